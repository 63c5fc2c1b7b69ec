//! Pending responses and their interim responses.

use super::record::ExchangeRecord;
use flatout_handler::LaterResponse;
use flatout_handler::content::{InterimResponse, Interims};
use flatout_handler::response::Response;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A request whose response is pending.
pub(crate) struct PendingResponse {
    response: LaterResponse,
    /// Interim responses, if the handler took the channel for them.
    interims: Option<Interims>,
    pub(crate) record: ExchangeRecord,
}

impl fmt::Debug for PendingResponse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PendingResponse").field("record", &self.record).finish_non_exhaustive()
    }
}

impl PendingResponse {
    pub(crate) const fn new(response: LaterResponse, interims: Option<Interims>, record: ExchangeRecord) -> Self {
        Self { response, interims, record }
    }

    /// Polls the response, and calls `send` for each valid interim response that precedes it.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>, mut send: impl FnMut(&InterimResponse)) -> Poll<Response> {
        let polled = Pin::new(&mut self.response).poll(context);
        if let Some(interims) = &self.interims {
            let next = || match polled {
                // No interim response follows a final response, so the task need not be woken for one.
                Poll::Ready(_) => interims.take_next(),
                Poll::Pending => match interims.poll_next(context) {
                    Poll::Ready(interim) => Some(interim),
                    Poll::Pending => None,
                },
            };
            for interim in std::iter::from_fn(next) {
                // The connection itself sends 100, and 101 is not an interim response (RFC 9110 §15.2).
                if matches!(interim.status, 102..=199) {
                    send(&interim);
                }
            }
        }
        polled
    }
}
