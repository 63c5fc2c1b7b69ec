//! Sending a request over HTTP/1.1: its head, and its content with framing.

use super::client::OriginShared;
use super::content::TakenContent;
use super::failure::OriginFailure;
use super::request::OutgoingRequest;
use crate::upload::{Upload, UploadSink, UploadState};
use flatout_net::transport::Transport;
use std::io::{self, IoSlice, Write as _};
use std::task::{Context, Poll};

/// Maximum capacity of a head buffer that later requests reuse, in bytes.
const SPARE_BYTES_MAX: usize = 64 * 1024;

/// A request that is being sent.
#[derive(Debug)]
pub(super) struct Http1Upload {
    upload: Upload<TakenContent>,
    /// True if the content is sent with chunked transfer coding.
    is_chunked: bool,
}

impl Http1Upload {
    /// Builds the head of `request` and takes its content.
    pub(super) fn new(shared: &OriginShared, request: &mut OutgoingRequest<'_>) -> Self {
        debug_assert!(request.lines.is_empty() || request.lines.ends_with(b"\r\n"), "a field line without its end");
        let mut lines = begin_head(shared, request.method, request.target);
        lines.extend_from_slice(request.lines);
        if let Some(protocols) = request.upgrade {
            for part in [&b"Connection: Upgrade\r\nUpgrade: "[..], protocols, b"\r\n"] {
                lines.extend_from_slice(part);
            }
        } else if shared.settings.idle_connections_max == 0 {
            lines.extend_from_slice(b"Connection: close\r\n");
        }
        let content = TakenContent::new(request, true, &shared.budget);
        if content.expects_continue {
            lines.extend_from_slice(b"Expect: 100-continue\r\n");
        }
        let is_chunked = content.length.is_none() && !content.is_empty();
        // Writing to a Vec cannot fail.
        let _ = match content.length {
            Some(length) => write!(lines, "Content-Length: {length}\r\n\r\n"),
            None if is_chunked => lines.write_all(b"Transfer-Encoding: chunked\r\n\r\n"),
            None => lines.write_all(b"\r\n"),
        };
        Self { upload: Upload::new(lines, content), is_chunked }
    }

    /// Creates the upload of a request without content, of whose `head` the first `sent` bytes have been sent.
    pub(super) fn rest_of(head: Vec<u8>, sent: usize) -> Self {
        Self { upload: Upload::partly_sent(head, sent, TakenContent::NONE), is_chunked: false }
    }

    /// Returns the number of bytes sent so far.
    pub(super) const fn sent_bytes(&self) -> u64 {
        self.upload.sent_bytes()
    }

    /// Returns whether the content is held back until the origin requests it.
    pub(super) fn is_held(&self) -> bool {
        self.upload.is_held()
    }

    /// Stops holding the content back.
    pub(super) fn release(&mut self) {
        self.upload.release();
    }

    /// Sends as much of the request as possible.
    pub(super) fn advance(
        &mut self,
        shared: &OriginShared,
        transport: &mut Transport,
        context: &mut Context<'_>,
    ) -> Result<UploadState, OriginFailure> {
        let mut sink = Http1Sink { shared, transport, is_chunked: self.is_chunked };
        let state = self.upload.advance(&mut sink, context)?;
        if state == UploadState::Done {
            give_back(shared, self.upload.take_buffer());
        }
        Ok(state)
    }
}

/// Takes the buffer for heads and writes the request line to it.
pub(super) fn begin_head(shared: &OriginShared, method: &str, target: &[u8]) -> Vec<u8> {
    debug_assert!(target.iter().all(|&byte| byte > b' ' && byte != 0x7f), "a target with a blank");
    let mut head = shared.spare.take();
    head.clear();
    for part in [method.as_bytes(), b" ", target, b" HTTP/1.1\r\n"] {
        head.extend_from_slice(part);
    }
    head
}

/// Gives the buffer back for the heads of later requests, unless it is too large.
pub(super) fn give_back(shared: &OriginShared, buffer: Vec<u8>) {
    if buffer.capacity() <= SPARE_BYTES_MAX {
        shared.spare.replace(buffer);
    }
}

/// Sends a request on an HTTP/1.1 connection.
struct Http1Sink<'a> {
    shared: &'a OriginShared,
    transport: &'a mut Transport,
    is_chunked: bool,
}

impl UploadSink for Http1Sink<'_> {
    fn begin_frame(&mut self, content_bytes: usize, is_first: bool, output: &mut Vec<u8>) {
        if self.is_chunked {
            let before = if is_first { "" } else { "\r\n" };
            // Writing to a Vec cannot fail.
            let _ = write!(output, "{before}{content_bytes:x}\r\n");
        }
    }

    fn end(&mut self, trailers: Option<&[u8]>, is_first: bool, output: &mut Vec<u8>) {
        if self.is_chunked {
            let last = if is_first { &b"0\r\n"[..] } else { b"\r\n0\r\n" };
            for part in [last, trailers.unwrap_or_default(), b"\r\n"] {
                output.extend_from_slice(part);
            }
        }
    }

    fn poll_send(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>], _: bool) -> Poll<io::Result<usize>> {
        self.transport.poll_send(context, slices).map_ok(|sent| {
            self.shared.counts.bytes_sent.add(sent as u64);
            sent
        })
    }

    fn poll_closed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // Never report the connection as closed here, because the origin may have responded before it closed the
        // connection.
        let _ = self.transport.poll_flush(context);
        Poll::Pending
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.transport.poll_flush(context)
    }
}
