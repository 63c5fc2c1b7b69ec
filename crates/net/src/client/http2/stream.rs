//! One HTTP/2 request, from sending to the end of its response.

use crate::client::content::{Digesting, check};
use crate::client::worker::ClientShared;
use crate::client::{Drive, RequestFailure};
use crate::clock::precise_ns;
use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// One request in progress.
pub(super) struct ClientStream {
    pub(super) nth: u32,
    pub(super) request: u32,
    pub(super) sent_ns: u64,
    pub(super) sent_bytes: u64,
    /// Content that exceeds the server's window.
    pub(super) sending: Option<(SendStream<Bytes>, Bytes)>,
    pub(super) response: Option<ResponseFuture>,
    pub(super) body: Option<RecvStream>,
    pub(super) status: u16,
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
        if let Err(failure) = self.poll_sending(context) {
            return Poll::Ready(Err(failure));
        }
        if let Some(response) = &mut self.response {
            while let Poll::Ready(Some(Ok(_))) = response.poll_informational(context) {
                self.interim_responses += 1;
            }
            let response = ready!(Pin::new(response).poll(context))?;
            self.response = None;
            self.first_byte_ns = precise_ns();
            let (parts, body) = response.into_parts();
            self.status = parts.status.as_u16();
            self.head_bytes = head_bytes(&parts.headers);
            self.body = Some(body);
        }
        let Some(body) = &mut self.body else { return Poll::Ready(Err(RequestFailure::ClosedEarly)) };
        while let Some(piece) = ready!(body.poll_data(context)) {
            let piece = piece?;
            // Fails only if more is released than was received.
            let _ = body.flow_control().release_capacity(piece.len());
            self.body_bytes += piece.len() as u64;
            if let Some(digesting) = &mut self.digesting {
                digesting.take(&piece);
            }
        }
        let prepared = &shared.settings.requests[self.request as usize];
        Poll::Ready(check(prepared, self.status, self.body_bytes, self.digesting.take()))
    }

    /// Sends content as far as the server's window permits.
    fn poll_sending(&mut self, context: &mut Context<'_>) -> Result<(), RequestFailure> {
        while let Some((stream, content)) = &mut self.sending {
            stream.reserve_capacity(content.len());
            let room = match stream.poll_capacity(context) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Some(Ok(room))) => room.min(content.len()),
                Poll::Ready(Some(Err(error))) => return Err(error.into()),
                // The server stopped reading it; its response has the reason.
                Poll::Ready(None) => {
                    self.sending = None;
                    return Ok(());
                }
            };
            let piece = content.split_to(room);
            let is_last = content.is_empty();
            stream.send_data(piece, is_last)?;
            if is_last {
                self.sending = None;
            }
        }
        Ok(())
    }
}

/// Length of a head in HTTP/1 form, as the library does not report the compressed size.
fn head_bytes(fields: &http::HeaderMap) -> u64 {
    let lines: usize = fields.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    lines as u64 + "HTTP/2 200\r\n\r\n".len() as u64
}
