//! A request's content on its way to the handler that has taken it.

use crate::content::ContentWriter;
use crate::ending::CloseReason;
use crate::server::receiving::ROUND_BYTES;
use crate::shared::SharedBytes;
use flatout_http::chunked::may_be_trailer;
use h2::RecvStream;
use http::HeaderMap;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Content on its way. The client's window opens as the handler reads.
pub(crate) struct Intake {
    content: RecvStream,
    /// `None` when all has been given, or nobody reads any more.
    writer: Option<ContentWriter>,
    data_ended: bool,
    /// Bytes given since the deadline was set.
    round_bytes: u64,
    /// When the client must have sent more; `u64::MAX` while it is for the handler to read.
    deadline_ms: u64,
}

/// The time, and how long clients have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) now_ms: u64,
    pub(crate) body_timeout_ms: u64,
}

impl Intake {
    pub(crate) const fn new(content: RecvStream, writer: ContentWriter) -> Self {
        Self { content, writer: Some(writer), data_ended: false, round_bytes: 0, deadline_ms: u64::MAX }
    }

    /// When the client must have sent more.
    pub(crate) const fn deadline_ms(&self) -> u64 {
        self.deadline_ms
    }

    pub(crate) fn cut(mut self, reason: CloseReason) {
        if let Some(writer) = self.writer.take() {
            writer.cut(reason);
        }
    }

    /// Gives the handler what has come, as long as it has room. `false` when the client has ended the stream.
    pub(crate) fn go_on(&mut self, patience: Patience, context: &mut Context<'_>) -> bool {
        while let Some(writer) = &self.writer {
            if writer.is_abandoned() {
                // What still comes stays with the client, until the answer ends the stream.
                self.writer = None;
                break;
            }
            if writer.poll_room(context).is_pending() {
                self.deadline_ms = u64::MAX;
                return true;
            }
            if self.deadline_ms == u64::MAX || self.round_bytes >= ROUND_BYTES {
                self.round_bytes = 0;
                self.deadline_ms = patience.now_ms.saturating_add(patience.body_timeout_ms);
            }
            if !self.data_ended {
                match self.content.poll_data(context) {
                    Poll::Pending => return true,
                    Poll::Ready(Some(Ok(bytes))) => {
                        self.round_bytes += bytes.len() as u64;
                        writer.write(SharedBytes::from(&bytes[..]));
                        // It fails when the stream is gone, which the next look at it says.
                        let _ = self.content.flow_control().release_capacity(bytes.len());
                        continue;
                    }
                    Poll::Ready(Some(Err(_))) => return false,
                    Poll::Ready(None) => self.data_ended = true,
                }
            }
            match self.content.poll_trailers(context) {
                Poll::Pending => return true,
                Poll::Ready(Ok(trailers)) => {
                    if let Some(writer) = self.writer.take() {
                        writer.end(trailers.as_ref().and_then(trailer_lines));
                    }
                }
                Poll::Ready(Err(_)) => return false,
            }
        }
        self.deadline_ms = u64::MAX;
        true
    }
}

/// Trailers as field lines; those that may not come late are left out (RFC 9110 §6.5.1).
fn trailer_lines(trailers: &HeaderMap) -> Option<Rc<[u8]>> {
    let mut lines = Vec::new();
    for (name, value) in trailers {
        if may_be_trailer(name.as_str().as_bytes()) {
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                lines.extend_from_slice(part);
            }
        }
    }
    (!lines.is_empty()).then(|| lines.into())
}
