//! Sending a request to an origin or an application server while its content may still be arriving.
//!
//! An [`Upload`] reads content from an [`UploadSource`] and sends it to an [`UploadSink`], which implements the framing
//! of a protocol. Everything else is the same for HTTP/1.1, HTTP/2 and FastCGI.

use flatout_handler::shared::SharedBytes;
use flatout_net::task_deadlines::DeadlineTimer;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll};

/// A piece of content, or its end.
#[derive(Debug)]
pub enum UploadPiece {
    /// More content, never empty.
    Bytes(SharedBytes),
    /// The last content, never empty. Its length was declared, so the end needs no marker.
    Last(SharedBytes),
    /// The content is complete, with these trailer field lines, each `Name: value` and CR LF, if there were any.
    End(Option<Rc<[u8]>>),
}

/// Source of a request's content.
pub trait UploadSource {
    /// Reason why the content remains incomplete.
    type Error;

    /// Polls for the next piece. Not called after the last.
    ///
    /// # Errors
    /// Fails if the content remains incomplete.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<UploadPiece, Self::Error>>;

    /// Returns whether content may be sent together with the head. If false, content is not taken before the head has
    /// been sent, so that the request can be sent again if that fails.
    fn joins_head(&self) -> bool {
        true
    }

    /// Returns whether the content is held back until the server requests it.
    fn is_held(&self) -> bool {
        false
    }

    /// Stops holding content back.
    fn release(&mut self) {}
}

/// Connection to which a request is sent, with the framing of its protocol.
pub trait UploadSink {
    /// Maximum number of content bytes per frame.
    const FRAME_BYTES_MAX: usize = usize::MAX;

    /// Appends to `output` what precedes a frame of `content_bytes` bytes, unless the connection does the framing
    /// itself. `is_first` is true for the first frame.
    fn begin_frame(&mut self, content_bytes: usize, is_first: bool, output: &mut Vec<u8>);

    /// Appends the end of the content to `output`, or sends it. `is_first` is true if there was no frame.
    fn end(&mut self, trailers: Option<&[u8]>, is_first: bool, output: &mut Vec<u8>);

    /// Sends as much of `slices` as the connection accepts, and returns the number of bytes sent. The slices are
    /// framing followed by content, and are never empty. `ends` is true if nothing follows.
    fn poll_send(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>], ends: bool) -> Poll<io::Result<usize>>;

    /// Polls until the server no longer reads the request. Called while waiting for the client's content.
    fn poll_closed(&mut self, context: &mut Context<'_>) -> Poll<()>;

    /// Polls until everything has been passed to the kernel.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// State of an upload: what it is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadState {
    /// Waiting for the client to send more content.
    Client,
    /// Waiting for the server to send 100 (Continue) or a final response. The content is held back.
    Continue,
    /// Waiting for the server to read more. True if any bytes were sent in this turn.
    Server(bool),
    /// The server will not read any more, but may still respond.
    Closed,
    /// Everything has been sent.
    Done,
}

/// A request that is being sent.
#[derive(Debug)]
pub struct Upload<S> {
    source: S,
    /// The head, and framing of the content.
    lines: Vec<u8>,
    /// Number of bytes of `lines` that have been sent.
    lines_sent: usize,
    /// Content to send after the lines.
    piece: Option<SharedBytes>,
    /// Number of bytes of the piece that belong to the current frame.
    frame_bytes: usize,
    /// True if a frame has begun.
    has_framed: bool,
    /// True if the source has no more content.
    is_ended: bool,
    sent_bytes: u64,
}

impl<S: UploadSource> Upload<S> {
    /// Creates an upload that sends `head`, followed by the content of `source`.
    pub const fn new(head: Vec<u8>, source: S) -> Self {
        Self {
            source,
            lines: head,
            lines_sent: 0,
            piece: None,
            frame_bytes: 0,
            has_framed: false,
            is_ended: false,
            sent_bytes: 0,
        }
    }

    /// Creates an upload like [`new`](Self::new), after the first `sent` bytes of the head have been sent.
    pub fn partly_sent(head: Vec<u8>, sent: usize, source: S) -> Self {
        let mut upload = Self::new(head, source);
        upload.handle_sent(sent);
        upload
    }

    /// Returns the number of bytes sent so far, including those of the head and framing.
    pub const fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Returns whether no frame has been sent partially.
    pub const fn is_between_frames(&self) -> bool {
        self.lines_sent == self.lines.len() && self.frame_bytes == 0
    }

    /// Returns whether everything has been sent.
    pub const fn is_done(&self) -> bool {
        self.is_ended && self.is_between_frames() && self.piece.is_none()
    }

    /// Returns whether content is held back until the server requests it.
    pub fn is_held(&self) -> bool {
        self.source.is_held()
    }

    /// Stops holding content back.
    pub fn release(&mut self) {
        self.source.release();
    }

    /// Returns the source, which still has the content that was not taken.
    pub fn into_source(self) -> S {
        self.source
    }

    /// Takes the buffer for the head and framing.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        self.lines_sent = 0;
        std::mem::take(&mut self.lines)
    }

    /// Sends as much of the request as possible.
    ///
    /// # Errors
    /// Fails if the content remains incomplete.
    pub fn advance<K: UploadSink>(&mut self, sink: &mut K, context: &mut Context<'_>) -> Result<UploadState, S::Error> {
        let sent_before = self.sent_bytes;
        loop {
            if self.piece.is_none() && !self.is_ended && (self.is_between_frames() || self.source.joins_head()) {
                self.take_piece(sink, context)?;
            }
            if self.frame_bytes == 0
                && let Some(piece) = &self.piece
            {
                self.frame_bytes = piece.len().min(K::FRAME_BYTES_MAX);
                sink.begin_frame(self.frame_bytes, !self.has_framed, &mut self.lines);
                self.has_framed = true;
            }
            let polled = if !self.is_between_frames() {
                self.poll_send(sink, context)
            } else if !self.is_ended {
                let is_closed = sink.poll_closed(context).is_ready();
                return Ok(match is_closed {
                    true => UploadState::Closed,
                    false if self.source.is_held() => UploadState::Continue,
                    false => UploadState::Client,
                });
            } else {
                sink.poll_flush(context).map_ok(|()| 0)
            };
            match polled {
                Poll::Pending => return Ok(UploadState::Server(self.sent_bytes > sent_before)),
                Poll::Ready(Ok(_)) if self.is_done() => return Ok(UploadState::Done),
                // If the connection accepts nothing of a non-empty buffer, it is closed.
                Poll::Ready(Err(_) | Ok(0)) => return Ok(UploadState::Closed),
                Poll::Ready(Ok(sent)) => self.handle_sent(sent),
            }
        }
    }

    /// Takes the next piece from the source, if one has arrived.
    fn take_piece(&mut self, sink: &mut impl UploadSink, context: &mut Context<'_>) -> Result<(), S::Error> {
        match self.source.poll_piece(context)? {
            Poll::Pending => {}
            Poll::Ready(UploadPiece::Bytes(bytes)) => self.piece = Some(bytes),
            Poll::Ready(UploadPiece::Last(bytes)) => {
                self.piece = Some(bytes);
                self.is_ended = true;
            }
            Poll::Ready(UploadPiece::End(trailers)) => {
                sink.end(trailers.as_deref(), !self.has_framed, &mut self.lines);
                self.is_ended = true;
            }
        }
        Ok(())
    }

    fn poll_send(&self, sink: &mut impl UploadSink, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let piece = self.piece.as_deref().unwrap_or_default();
        let slices = [IoSlice::new(&self.lines[self.lines_sent..]), IoSlice::new(&piece[..self.frame_bytes])];
        // Pass only one slice if possible, so that a plain send can be used.
        let slices = match (slices[0].is_empty(), slices[1].is_empty()) {
            (true, _) => &slices[1..],
            (_, true) => &slices[..1],
            _ => &slices[..],
        };
        sink.poll_send(context, slices, self.is_ended && self.frame_bytes == piece.len())
    }

    fn handle_sent(&mut self, sent: usize) {
        self.sent_bytes += sent as u64;
        let of_lines = sent.min(self.lines.len() - self.lines_sent);
        self.lines_sent += of_lines;
        if self.lines_sent == self.lines.len() {
            self.lines.clear();
            self.lines_sent = 0;
        }
        self.frame_bytes -= sent - of_lines;
        if let Some(piece) = &mut self.piece {
            piece.advance(sent - of_lines);
        }
        self.piece.take_if(|piece| piece.is_empty());
    }
}

/// The event that a request is waiting for until the head of its response arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitsFor {
    /// Waiting for the client to send more content. The client's connection enforces the timeout.
    Client,
    /// Waiting for the server to send 100 (Continue).
    Continue,
    /// Waiting for the server to read more of the request.
    Taking,
    /// Waiting for the server to respond.
    Head,
}

/// Timeouts of a request until the head of its response arrives.
#[derive(Debug)]
pub struct HeadWait {
    waits_for: WaitsFor,
    body_timeout_ms: u64,
    head_timeout_ms: u64,
    continue_timeout_ms: u64,
}

impl HeadWait {
    /// Creates the timeouts: the server must read more of the request within `body_timeout_ms`, and respond within
    /// `head_timeout_ms` after the request has been sent completely.
    pub const fn new(body_timeout_ms: u64, head_timeout_ms: u64) -> Self {
        Self { waits_for: WaitsFor::Client, body_timeout_ms, head_timeout_ms, continue_timeout_ms: u64::MAX }
    }

    /// Reduces the head timeout to `left_ms`, if that is less.
    #[must_use]
    pub fn with_head_left_ms(mut self, left_ms: Option<u64>) -> Self {
        self.head_timeout_ms = self.head_timeout_ms.min(left_ms.unwrap_or(u64::MAX));
        self
    }

    /// Starts waiting for the head of the response to a request without content.
    pub fn begin(&self, timer: &mut DeadlineTimer) {
        timer.begin(self.head_timeout_ms);
    }

    /// Sets a timeout for 100 (Continue). When it expires, the upload must be [released](Upload::release).
    #[must_use]
    pub const fn with_continue_timeout_ms(mut self, timeout_ms: u64) -> Self {
        self.continue_timeout_ms = timeout_ms;
        self
    }

    /// Returns whether the request is waiting for 100 (Continue).
    pub fn is_for_continue(&self) -> bool {
        self.waits_for == WaitsFor::Continue
    }

    /// Sets `timer` according to `state`, the state of the upload after it was advanced.
    pub fn handle(&mut self, state: UploadState, timer: &mut DeadlineTimer) {
        let (waits_for, timeout_ms) = match state {
            UploadState::Client => (WaitsFor::Client, u64::MAX),
            UploadState::Continue => (WaitsFor::Continue, self.continue_timeout_ms),
            UploadState::Server(_) => (WaitsFor::Taking, self.body_timeout_ms),
            UploadState::Closed | UploadState::Done => (WaitsFor::Head, self.head_timeout_ms),
        };
        if waits_for == WaitsFor::Client {
            timer.clear();
        } else if waits_for != self.waits_for || state == UploadState::Server(true) {
            timer.begin(timeout_ms);
        }
        self.waits_for = waits_for;
    }

    /// Returns the failure to report when the timer has expired: `upload` if the server did not read the request,
    /// otherwise `head`.
    pub fn timeout<T>(&self, upload: T, head: T) -> T {
        if self.waits_for == WaitsFor::Taking { upload } else { head }
    }
}

#[cfg(test)]
mod tests {
    use super::{HeadWait, UploadState};
    use flatout_net::task_deadlines::{DeadlineTable, DeadlineTimer};
    use std::rc::Rc;
    use std::task::{Context, Waker};

    #[test]
    fn the_time_left_for_the_head_bounds_only_the_wait_for_the_head() {
        let context = &Context::from_waker(Waker::noop());
        let mut timer = DeadlineTimer::new(&Rc::new(DeadlineTable::default()));
        for (state, is_bounded) in [
            (UploadState::Client, false),
            (UploadState::Server(true), false),
            (UploadState::Server(false), false),
            (UploadState::Continue, false),
            (UploadState::Closed, true),
            (UploadState::Client, false),
            (UploadState::Done, true),
        ] {
            for (left_ms, is_over) in [(None, false), (Some(60_000), false), (Some(0), true)] {
                let mut wait = HeadWait::new(30_000, 30_000).with_continue_timeout_ms(1_000).with_head_left_ms(left_ms);
                wait.handle(state, &mut timer);
                let expected = is_over && is_bounded;
                assert_eq!(timer.poll_expired(context).is_ready(), expected, "{state:?} {left_ms:?}");
            }
        }
        // More time than the head timeout does not extend it.
        HeadWait::new(30_000, 0).with_head_left_ms(Some(60_000)).begin(&mut timer);
        assert!(timer.poll_expired(context).is_ready());
    }

    #[test]
    fn a_wait_for_100_is_not_a_failure() {
        let context = &Context::from_waker(Waker::noop());
        let mut timer = DeadlineTimer::new(&Rc::new(DeadlineTable::default()));
        let mut wait = HeadWait::new(30_000, 30_000).with_continue_timeout_ms(0);
        wait.handle(UploadState::Continue, &mut timer);
        assert!(wait.is_for_continue() && timer.poll_expired(context).is_ready());
        wait.handle(UploadState::Client, &mut timer);
        assert!(!wait.is_for_continue() && timer.poll_expired(context).is_pending());
    }
}
