//! One request as a stream, from sending it to the end of its response.

use super::connection::{RequestStream, StreamConnection};
use crate::content::{Digesting, check};
use crate::cookies::{RequestId, field_bytes};
use crate::template::encoder;
use crate::worker::ClientShared;
use crate::{Drive, RequestFailure};
use flatout_load::schedule::Begin;
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
    /// True if the server reads no more of the content.
    pub(super) is_stopped: bool,
    /// The content, if it has placeholders.
    pub(super) filled: Option<Vec<u8>>,
    pub(super) has_cookies: bool,
    pub(super) stream: RequestStream,
    /// The status of the final response, if its head has arrived.
    pub(super) status: Option<u16>,
    pub(super) first_byte_ns: u64,
    pub(super) head_bytes: u64,
    pub(super) body_bytes: u64,
    pub(super) interim_responses: u64,
    /// The values of the Set-Cookie fields of the final response, each followed by LF.
    pub(super) set_cookies: Vec<u8>,
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
            let set_cookies = shared.settings.stores_cookies.then_some(&mut self.set_cookies);
            let (status, line_bytes) = ready!(self.stream.poll_head(context, set_cookies))?;
            if status < 200 {
                self.interim_responses += 1;
                self.set_cookies.clear();
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

    /// Returns whether the request can be sent again if the server closes the connection: nothing of a response has
    /// arrived, and the method is idempotent (RFC 9110 §9.2.2).
    pub(super) fn may_send_again<D: Drive>(&self, shared: &ClientShared<D>) -> bool {
        self.status.is_none()
            && self.interim_responses == 0
            && shared.settings.requests[self.request as usize].is_idempotent
    }

    /// Returns the reason that the request failed: if the connection closed after the head of the response, the body is
    /// cut, as over HTTP/1.
    pub(super) const fn name_failure(&self, failure: RequestFailure) -> RequestFailure {
        match failure {
            RequestFailure::ClosedEarly if self.status.is_some() => RequestFailure::ShortBody,
            failure => failure,
        }
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
        while let Some(from) = self.unsent_from.filter(|_| !self.is_stopped) {
            let unsent = self.unsent(shared);
            match self.stream.poll_send(unsent, context) {
                Poll::Pending => return,
                Poll::Ready(Err(())) => self.is_stopped = true,
                Poll::Ready(Ok(sent)) => self.unsent_from = (sent < unsent.len()).then_some(from + sent),
            }
        }
    }
}

/// A stream whose head was sent.
pub(super) struct OpenedStream {
    pub(super) stream: RequestStream,
    /// The content, if it has placeholders.
    pub(super) filled: Option<Vec<u8>>,
    pub(super) has_content: bool,
    pub(super) has_cookies: bool,
    /// Length of the HTTP/1 form of the request, in bytes.
    pub(super) http1_bytes: usize,
}

/// Opens a stream and sends the head of a request.
pub(super) fn poll_open<D: Drive>(
    shared: &ClientShared<D>,
    connection: &StreamConnection,
    (begin, (request, number)): (&Begin, RequestId),
    is_digested: bool,
    context: &mut Context<'_>,
) -> Poll<Result<OpenedStream, RequestFailure>> {
    let prepared = &shared.settings.requests[request as usize];
    let (Some(streamed), Some(streams)) = (&prepared.streamed, shared.settings.streams) else {
        return Poll::Ready(Err(RequestFailure::NoHttp2));
    };
    let buffers = &mut *shared.fill_buffers.borrow_mut();
    let (block, mut http1_bytes, is_filled) = if let Some(template) = &prepared.template {
        // The values depend only on the number, so they are the same if the stream cannot be opened yet.
        let bytes = buffers.fill_stream(template, streams.version, &shared.settings.values, number);
        (&buffers.block[..], bytes, template.content.is_some())
    } else {
        (&streamed.block[..], prepared.kept.len(), false)
    };
    let has_content = if is_filled { !buffers.content.is_empty() } else { !streamed.content.is_empty() };
    let mut has_cookies = false;
    let encode = |output: &mut Vec<u8>| {
        output.extend_from_slice(block);
        let Some(visitor) = shared.visitor_with_cookies(begin) else { return };
        let cookies = &mut *shared.cookies.borrow_mut();
        let Some(value) = cookies.value_for(&visitor, (&shared.settings, (request, number)), precise_ns()) else {
            return;
        };
        encoder(streams.version)(b"cookie", value, output);
        http1_bytes += field_bytes(value);
        has_cookies = true;
    };
    let stream = ready!(connection.poll_open((prepared.is_head, !has_content), encode, is_digested, context))?;
    let filled = is_filled.then(|| buffers.take_content());
    Poll::Ready(Ok(OpenedStream { stream, filled, has_content, has_cookies, http1_bytes }))
}
