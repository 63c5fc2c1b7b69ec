//! Answers that are being made, with what goes ahead of them.

use super::exchanges::{Described, Exchanges, Turn};
use super::receiving::Receiving;
use super::streaming::{Flow, Frame, Outlined, Streaming};
use crate::content::{InterimResponse, Interims};
use crate::ending::CloseReason;
use crate::handler::{Handler, LaterResponse, Reply};
use crate::response::{Body, Response};
use crate::stream::Stream;
use flatout_http::connection::Event;
use flatout_http::framing::Version;
use flatout_http::status::reason;
use std::fmt;
use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A request whose answer is being made.
pub(super) struct Awaiting {
    response: LaterResponse,
    pub(super) request: Described,
    /// What is sent ahead of the answer, when the handler has asked for the way.
    interims: Option<Interims>,
}

impl fmt::Debug for Awaiting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Awaiting").field("request", &self.request).finish_non_exhaustive()
    }
}

impl Exchanges {
    /// The answer will be what `response` is then.
    pub(super) fn wait(&mut self, response: LaterResponse, request: Described, interims: Option<Interims>) {
        // Clients of HTTP/1.0 do not know interim answers (RFC 9110 §15.2).
        let interims = interims.filter(|_| request.exchange.version != Version::Http10);
        self.awaiting = Some(Box::new(Awaiting { response, request, interims }));
    }

    /// Asks for the answer that is being made, or for more of the one that has begun, and puts what there is into the
    /// output.
    pub(crate) fn poll_answer<H: Handler>(&mut self, turn: &mut Turn<'_, H>, context: &mut Context<'_>) -> Flow {
        if let Some(awaiting) = self.awaiting.as_mut() {
            let polled = Pin::new(&mut awaiting.response).poll(context);
            if let Some(interims) = &awaiting.interims {
                while let Poll::Ready(interim) = interims.poll_next(context) {
                    if append_interim(turn.output, &interim) {
                        self.machine.advance(Event::Interim);
                    }
                }
            }
            let Poll::Ready(response) = polled else { return Flow::Wait };
            let Some(awaiting) = self.awaiting.take() else { return Flow::Done };
            self.answer_awaited(turn, response, awaiting.request);
        }
        self.poll_stream(turn, context)
    }

    /// Answers a request whose content may still be coming.
    fn answer_awaited<H: Handler>(&mut self, turn: &mut Turn<'_, H>, response: Response, request: Described) {
        if self.intake.is_none() {
            self.answer_described(turn, response, request, None);
            return;
        }
        if let Some(decoder) = self.take_unwanted(turn.worker.settings.limits.body_bytes_max) {
            let reply = Reply::Now(response);
            self.receiving = Some(Box::new(Receiving { decoder, body_bytes: 0, reply, request, interims: None }));
            return;
        }
        // The answer goes ahead of the rest of the content, with which nothing can follow on this connection. While it
        // comes bit by bit, its maker may go on reading.
        let goes_on = matches!(response.body, Body::Stream(_))
            && !request.exchange.to_head
            && self.intake.as_ref().is_some_and(|intake| intake.is_read());
        if !goes_on {
            self.cut_content(CloseReason::RefusedBody);
        }
        self.answer_described(turn, response, request, Some(CloseReason::RefusedBody));
    }

    /// Begins an answer that comes bit by bit.
    pub(super) fn begin_stream<H: Handler>(
        &mut self,
        turn: &mut Turn<'_, H>,
        response: &Response,
        source: Stream,
        request: Described,
        close: Option<CloseReason>,
    ) {
        let exchange = request.exchange;
        let (frame, line, close): (_, &[u8], _) = match source.length() {
            Some(length) => (Frame::Length(length), b"", close),
            None if exchange.version == Version::Http10 => {
                (Frame::UntilClose, b"", close.or(Some(CloseReason::NotPersistent)))
            }
            None => (Frame::Chunked { open: false }, b"Transfer-Encoding: chunked\r\n", close),
        };
        turn.head_at = Some(turn.output.len());
        let ends = self.begin_answer(turn, response, exchange, close, line);
        let outlined = Outlined::new::<H>(response);
        self.streaming = Some(Box::new(Streaming::new(source, frame, request, outlined, ends)));
    }
}

/// Whether `status` is one that an interim answer may have: 100 is ours, and 101 no interim (RFC 9110 §15.2).
pub(crate) const fn is_interim(status: u16) -> bool {
    matches!(status, 102..=199)
}

/// Appends an interim answer; `false` when its status is none.
fn append_interim(output: &mut Vec<u8>, interim: &InterimResponse) -> bool {
    if !is_interim(interim.status) {
        return false;
    }
    // Writing to a Vec cannot fail.
    let _ = write!(output, "HTTP/1.1 {} {}\r\n", interim.status, reason(interim.status));
    output.extend_from_slice(&interim.lines);
    output.extend_from_slice(b"\r\n");
    true
}
