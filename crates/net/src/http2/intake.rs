//! Request content on its way to the handler that took it.

use crate::content::ContentWriter;
use crate::ending::CloseReason;
use crate::response::trailer_lines;
use crate::server::receiving::ROUND_BYTES;
use crate::shared::SharedBytes;
use crate::windows::WindowReader;
use flatout_http::timeouts::Timeouts;
use h2::RecvStream;
use std::task::{Context, Poll};

/// Content on its way to a handler. The client's window opens as the handler reads.
pub(crate) struct Intake {
    content: RecvStream,
    windows: WindowReader,
    /// True if the client may pause for long, as in gRPC.
    may_rest: bool,
    /// `None` after the end, or after the reader was dropped.
    writer: Option<ContentWriter>,
    data_ended: bool,
    /// Bytes delivered since the deadline was set.
    round_bytes: u64,
    /// When the client must have sent more; `u64::MAX` while the handler has yet to read.
    deadline_ms: u64,
}

/// The current time and the clients' timeouts.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_field_names, reason = "units stand last everywhere")]
pub(crate) struct IntakeTimeouts {
    pub(crate) now_ms: u64,
    pub(crate) body_timeout_ms: u64,
    /// For more content of a request whose client may pause.
    pub(crate) stream_timeout_ms: u64,
}

impl IntakeTimeouts {
    pub(crate) const fn new(now_ms: u64, timeouts: &Timeouts) -> Self {
        Self { now_ms, body_timeout_ms: timeouts.body_timeout_ms, stream_timeout_ms: timeouts.stream_timeout_ms }
    }
}

impl Intake {
    pub(crate) const fn new(content: RecvStream, writer: ContentWriter, windows: WindowReader, may_rest: bool) -> Self {
        Self {
            content,
            windows,
            may_rest,
            writer: Some(writer),
            data_ended: false,
            round_bytes: 0,
            deadline_ms: u64::MAX,
        }
    }

    /// The rest of the content.
    pub(crate) fn into_rest(self) -> RecvStream {
        self.content
    }

    /// When the client must have sent more.
    pub(crate) const fn deadline_ms(&self) -> u64 {
        self.deadline_ms
    }

    /// Tells the handler that the content is cut. Returns the rest of it.
    pub(crate) fn cut(mut self, reason: CloseReason) -> RecvStream {
        if let Some(writer) = self.writer.take() {
            writer.cut(reason);
        }
        self.content
    }

    /// Delivers received content while the handler has room. Returns `false` if the client has ended the stream.
    pub(crate) fn go_on(&mut self, timeouts: IntakeTimeouts, context: &mut Context<'_>) -> bool {
        while let Some(writer) = &self.writer {
            if writer.is_abandoned() {
                // Further content stays with the client, until the response ends the stream.
                self.writer = None;
                break;
            }
            if writer.poll_room(context).is_pending() {
                self.deadline_ms = u64::MAX;
                return true;
            }
            if self.deadline_ms == u64::MAX || self.round_bytes >= ROUND_BYTES {
                self.round_bytes = 0;
                let timeout_ms = if self.may_rest { timeouts.stream_timeout_ms } else { timeouts.body_timeout_ms };
                self.deadline_ms = timeouts.now_ms.saturating_add(timeout_ms);
            }
            if !self.data_ended {
                match self.content.poll_data(context) {
                    Poll::Pending => return true,
                    Poll::Ready(Some(Ok(bytes))) => {
                        self.round_bytes += bytes.len() as u64;
                        writer.write(SharedBytes::from(&bytes[..]));
                        if self.may_rest {
                            // Each message starts a new wait.
                            self.deadline_ms = u64::MAX;
                        }
                        self.windows.release(&mut self.content, bytes.len());
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
