//! One HTTP/2 request, from sending to the end of its response.

use crate::content::{Digesting, check};
use crate::worker::ClientShared;
use crate::{Drive, RequestFailure};
use flatout_net::http2::ClientStream as Http2Stream;
use flatout_os::clock::precise_ns;
use std::task::{Context, Poll, ready};

/// One request in progress.
pub(super) struct ClientStream {
    pub(super) nth: u32,
    pub(super) request: u32,
    pub(super) sent_ns: u64,
    pub(super) sent_bytes: u64,
    /// Start of the content that exceeds the server's window.
    pub(super) unsent_from: Option<usize>,
    pub(super) stream: Http2Stream,
    /// The final status, once its head has arrived.
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
            let head = ready!(self.stream.poll_head(context))?;
            if head.status < 200 {
                self.interim_responses += 1;
                continue;
            }
            self.first_byte_ns = precise_ns();
            // In HTTP/1 form, whatever compression made of it.
            self.head_bytes = (head.lines.len() + "HTTP/2 200\r\n\r\n".len()) as u64;
            self.status = Some(head.status);
        };
        while let Ok(piece) = ready!(self.stream.poll_piece(context))? {
            self.body_bytes += piece.len() as u64;
            if let Some(digesting) = &mut self.digesting {
                digesting.take(&piece);
            }
        }
        let prepared = &shared.settings.requests[self.request as usize];
        Poll::Ready(check(prepared, status, self.body_bytes, self.digesting.take()))
    }

    /// The content that was not sent.
    pub(super) fn unsent<'a, D: Drive>(&self, shared: &'a ClientShared<D>) -> &'a [u8] {
        let prepared = &shared.settings.requests[self.request as usize];
        match (&prepared.http2, self.unsent_from) {
            (Some(http2), Some(from)) => http2.content.get(from..).unwrap_or_default(),
            _ => &[],
        }
    }

    /// Sends content as far as the server's window permits. If the server stops reading it, its response has the
    /// reason.
    fn send<D: Drive>(&mut self, context: &mut Context<'_>, shared: &ClientShared<D>) {
        while let Some(from) = self.unsent_from
            && let Poll::Ready(room) = self.stream.poll_room(context)
        {
            let unsent = self.unsent(shared);
            let Ok(room) = room else {
                self.unsent_from = None;
                return;
            };
            let sent = room.min(unsent.len());
            let is_last = sent == unsent.len();
            self.stream.send(&unsent[..sent], is_last);
            self.unsent_from = (!is_last).then_some(from + sent);
        }
    }
}
