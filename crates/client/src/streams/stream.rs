//! One request as a stream, from sending it to the end of its response.

use super::connection::RequestStream;
use crate::content::{Digesting, check};
use crate::worker::ClientShared;
use crate::{Drive, RequestFailure};
use flatout_os::clock::precise_ns;
use std::task::{Context, Poll, ready};

/// One request in progress.
pub(super) struct ClientStream {
    pub(super) nth: u32,
    pub(super) request: u32,
    pub(super) sent_ns: u64,
    pub(super) sent_bytes: u64,
    /// Index of the first byte of the content that has not been sent; `None` if all of it has.
    pub(super) unsent_from: Option<usize>,
    /// The content, if it has placeholders.
    pub(super) filled: Option<Vec<u8>>,
    pub(super) stream: RequestStream,
    /// The status of the final response, if its head has arrived.
    pub(super) status: Option<u16>,
    pub(super) first_byte_ns: u64,
    pub(super) head_bytes: u64,
    pub(super) body_bytes: u64,
    pub(super) interim_responses: u64,
    pub(super) is_digested: bool,
    pub(super) digesting: Option<Digesting>,
}

impl ClientStream {
    pub(super) fn poll<D: Drive>(
        &mut self,
        context: &mut Context<'_>,
        shared: &ClientShared<D>,
    ) -> Poll<Result<u16, RequestFailure>> {
        self.send(context, shared);
        let status = loop {
            if let Some(status) = self.status {
                break status;
            }
            let (status, line_bytes) = ready!(self.stream.poll_head(context))?;
            if status < 200 {
                self.interim_responses += 1;
                continue;
            }
            self.first_byte_ns = precise_ns();
            // Count the head in HTTP/1 form, whatever its compressed size is.
            self.head_bytes = (line_bytes + "HTTP/2 200\r\n\r\n".len()) as u64;
            self.status = Some(status);
        };
        ready!(self.stream.poll_content(context, &mut self.body_bytes, &mut self.digesting))?;
        let prepared = &shared.settings.requests[self.request as usize];
        Poll::Ready(check(prepared, status, self.body_bytes, self.digesting.take()))
    }

    /// Returns the content that has not been sent.
    pub(super) fn unsent<'a, D: Drive>(&'a self, shared: &'a ClientShared<D>) -> &'a [u8] {
        let prepared = &shared.settings.requests[self.request as usize];
        let content = match (&self.filled, &prepared.streamed) {
            (Some(filled), _) => &filled[..],
            (None, Some(streamed)) => &streamed.content[..],
            (None, None) => &[],
        };
        self.unsent_from.and_then(|from| content.get(from..)).unwrap_or_default()
    }

    /// Sends as much content as the server's window permits. If the server stops reading the content, its response
    /// gives the reason.
    fn send<D: Drive>(&mut self, context: &mut Context<'_>, shared: &ClientShared<D>) {
        if self.unsent_from.is_none() && self.stream.has_unsent_head() {
            let _ = self.stream.poll_send(&[], context);
        }
        while let Some(from) = self.unsent_from {
            let unsent = self.unsent(shared);
            match self.stream.poll_send(unsent, context) {
                Poll::Pending => return,
                Poll::Ready(Err(())) => self.unsent_from = None,
                Poll::Ready(Ok(sent)) => self.unsent_from = (sent < unsent.len()).then_some(from + sent),
            }
        }
    }
}
