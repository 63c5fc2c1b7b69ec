//! Sending a request: its head, and its streamed content.

use super::client::OriginShared;
use super::request::{OutgoingContent, OutgoingRequest};
use flatout_handler::content::{ContentPiece, RequestContent};
use flatout_handler::shared::SharedBytes;
use flatout_net::transport::Transport;
use std::io::{self, IoSlice, Write as _};
use std::task::{Context, Poll, ready};

/// Capacity to which the head buffer is shrunk, in bytes.
const SPARE_BYTES_MAX: usize = 64 * 1024;

/// The unsent rest of a request.
#[derive(Debug)]
pub(super) struct Upload {
    /// The head, and chunk framing.
    lines: Vec<u8>,
    /// Bytes of `lines` that were sent.
    lines_sent: usize,
    /// Content to send after the lines.
    piece: Option<SharedBytes>,
    rest: AwaitedContent,
    /// Bytes sent so far.
    sent_bytes: u64,
}

/// Content that has not arrived from the client yet.
#[derive(Debug)]
enum AwaitedContent {
    None,
    /// With this many bytes remaining.
    Length(RequestContent, u64),
    /// In chunks; true if a chunk has begun whose end has not been written.
    Chunks(RequestContent, bool),
}

/// Why sending ended early.
#[derive(Debug)]
pub(super) enum UploadError {
    /// The connection is not writable any more.
    Socket,
    /// The client did not send all of its content.
    ClientCut,
}

/// The side that a pending upload waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UploadWait {
    Client,
    Origin,
}

impl Upload {
    /// Takes the content of `request` and writes its head.
    pub(super) fn new(shared: &OriginShared, request: &mut OutgoingRequest<'_>) -> Self {
        debug_assert!(request.target.iter().all(|&byte| byte > b' ' && byte != 0x7f), "a target with a blank");
        debug_assert!(request.lines.is_empty() || request.lines.ends_with(b"\r\n"), "a field line without its end");
        let mut lines = shared.spare.take();
        lines.clear();
        for part in [request.method.as_bytes(), b" ", request.target, b" HTTP/1.1\r\n", request.lines] {
            lines.extend_from_slice(part);
        }
        if let Some(protocols) = request.upgrade {
            for part in [&b"Connection: Upgrade\r\nUpgrade: "[..], protocols, b"\r\n"] {
                lines.extend_from_slice(part);
            }
        } else if shared.settings.idle_connections_max == 0 {
            lines.extend_from_slice(b"Connection: close\r\n");
        }
        let mut piece = None;
        let mut length = None;
        let rest = match &request.content {
            OutgoingContent::None | OutgoingContent::Taken => AwaitedContent::None,
            OutgoingContent::Bytes(bytes) => {
                length = Some(bytes.len() as u64);
                piece = Some(bytes.clone()).filter(|bytes| !bytes.is_empty());
                AwaitedContent::None
            }
            OutgoingContent::Content(_) => match std::mem::replace(&mut request.content, OutgoingContent::Taken) {
                OutgoingContent::Content(content) => {
                    length = content.length();
                    match length {
                        Some(length) => AwaitedContent::Length(content, length),
                        None => AwaitedContent::Chunks(content, false),
                    }
                }
                _ => AwaitedContent::None,
            },
        };
        // Writing to a Vec cannot fail.
        let _ = match (length, &rest) {
            (Some(length), _) => write!(lines, "Content-Length: {length}\r\n\r\n"),
            (None, AwaitedContent::Chunks(..)) => lines.write_all(b"Transfer-Encoding: chunked\r\n\r\n"),
            (None, _) => lines.write_all(b"\r\n"),
        };
        Self { lines, lines_sent: 0, piece, rest, sent_bytes: 0 }
    }

    /// Bytes sent so far.
    pub(super) const fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// The side that it waits for, after it was pending.
    pub(super) fn wait(&self) -> UploadWait {
        if self.is_empty() && !matches!(self.rest, AwaitedContent::None) {
            UploadWait::Client
        } else {
            UploadWait::Origin
        }
    }

    fn is_empty(&self) -> bool {
        self.piece.is_none() && self.lines_sent == self.lines.len()
    }

    /// Sends as much as possible; ready when everything was sent.
    pub(super) fn poll(
        &mut self,
        shared: &OriginShared,
        transport: &mut Transport,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), UploadError>> {
        loop {
            if self.piece.is_none() {
                self.take_piece(context)?;
            }
            if self.is_empty() {
                let flushed = transport.poll_flush(context);
                if !matches!(self.rest, AwaitedContent::None) {
                    return Poll::Pending;
                }
                ready!(flushed).map_err(|_| UploadError::Socket)?;
                self.give_back(shared);
                return Poll::Ready(Ok(()));
            }
            let sent = ready!(self.poll_send(transport, context)).map_err(|_| UploadError::Socket)?;
            shared.counts.bytes_sent.add(sent as u64);
            self.handle_sent(sent);
        }
    }

    fn poll_send(&self, transport: &mut Transport, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let lines = IoSlice::new(&self.lines[self.lines_sent..]);
        let sent = match &self.piece {
            None => ready!(transport.poll_send(context, &[lines])),
            Some(piece) if lines.is_empty() => ready!(transport.poll_send(context, &[IoSlice::new(piece)])),
            Some(piece) => ready!(transport.poll_send(context, &[lines, IoSlice::new(piece)])),
        };
        // A transport that takes nothing of a non-empty buffer never will.
        Poll::Ready(if matches!(sent, Ok(0)) { Err(io::ErrorKind::WriteZero.into()) } else { sent })
    }

    fn handle_sent(&mut self, sent: usize) {
        self.sent_bytes += sent as u64;
        let of_lines = sent.min(self.lines.len() - self.lines_sent);
        self.lines_sent += of_lines;
        if let Some(piece) = &mut self.piece {
            piece.advance(sent - of_lines);
            if piece.is_empty() {
                self.piece = None;
            }
        }
        if self.lines_sent == self.lines.len() {
            self.lines.clear();
            self.lines_sent = 0;
        }
    }

    /// Takes content that has arrived from the client.
    fn take_piece(&mut self, context: &mut Context<'_>) -> Result<(), UploadError> {
        match &mut self.rest {
            AwaitedContent::None => {}
            AwaitedContent::Length(content, remaining) => match content.poll_piece(context) {
                Poll::Pending => {}
                Poll::Ready(ContentPiece::Bytes(bytes)) if bytes.len() as u64 <= *remaining => {
                    *remaining -= bytes.len() as u64;
                    self.piece = Some(bytes).filter(|bytes| !bytes.is_empty());
                    if *remaining == 0 {
                        self.rest = AwaitedContent::None;
                    }
                }
                Poll::Ready(ContentPiece::End(_)) if *remaining == 0 => self.rest = AwaitedContent::None,
                // More or fewer bytes than declared would desynchronise the connection.
                Poll::Ready(_) => return Err(UploadError::ClientCut),
            },
            AwaitedContent::Chunks(content, begun) => match content.poll_piece(context) {
                Poll::Pending => {}
                Poll::Ready(ContentPiece::Bytes(bytes)) => {
                    if !bytes.is_empty() {
                        let before = if *begun { "\r\n" } else { "" };
                        *begun = true;
                        // Writing to a Vec cannot fail.
                        let _ = write!(self.lines, "{before}{:x}\r\n", bytes.len());
                        self.piece = Some(bytes);
                    }
                }
                Poll::Ready(ContentPiece::End(trailers)) => {
                    self.lines.extend_from_slice(if *begun { b"\r\n0\r\n" } else { b"0\r\n" });
                    self.lines.extend_from_slice(trailers.as_deref().unwrap_or_default());
                    self.lines.extend_from_slice(b"\r\n");
                    self.rest = AwaitedContent::None;
                }
                Poll::Ready(ContentPiece::Cut(_)) => return Err(UploadError::ClientCut),
            },
        }
        Ok(())
    }

    /// Returns the buffer for other requests.
    fn give_back(&mut self, shared: &OriginShared) {
        if self.lines.capacity() <= SPARE_BYTES_MAX {
            shared.spare.replace(std::mem::take(&mut self.lines));
        }
    }
}
