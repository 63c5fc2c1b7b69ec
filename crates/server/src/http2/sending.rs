//! Response content: as much as the windows and the gathered output permit, by priority.

use super::stream::{PendingStream, ServerStream, Streaming};
use super::task::{Http2Task, STREAM_RESET};
use crate::exchange::pending::PendingResponse;
use crate::exchange::streamed::StreamedPiece;
use crate::tls_session::read_piece;
use flatout_handler::Handler;
use flatout_handler::ending::CloseReason;
use flatout_handler::response::{Segment, encode_fields};
use flatout_handler::stream::MessageEnd;
use flatout_http::http2::frame::{ErrorCode, HEAD_BYTES};
use std::task::{Context, Poll};

impl<H: Handler> Http2Task<H> {
    /// Sends content that fits into one frame and the windows. Returns `false` if it does not.
    pub(super) fn send_whole(&mut self, id: u32, bytes: &[u8]) -> bool {
        if bytes.len() > self.core.data_room(id) || bytes.len() > self.link.room() {
            return false;
        }
        let head = self.core.send_data(id, bytes.len(), true);
        self.link.output.extend_from_slice(&head);
        self.link.output.extend_from_slice(bytes);
        self.content_bytes += bytes.len() as u64;
        self.worker.commit("sent");
        self.finish(id);
        true
    }

    /// Sends content of all streams, the most urgent first, while there is room. Returns whether anything was sent.
    pub(super) fn send_content(&mut self) -> bool {
        let mut moved = false;
        while self.link.room() > 0
            && let Some(id) = self.core.next_sender(ServerStream::is_sending)
        {
            moved |= self.send_frame(id);
        }
        moved
    }

    /// Sends one frame of a stream's content. Returns whether that was possible.
    pub(super) fn send_frame(&mut self, id: u32) -> bool {
        let room = self.core.data_room(id).min(self.link.room());
        if room == 0 {
            return false;
        }
        let at = self.link.output.len();
        self.link.output.extend_from_slice(&[0; HEAD_BYTES]);
        let mut stream = self.take(id);
        let output = &mut self.link.output;
        let sent = match &mut stream {
            ServerStream::Sending(sending) => loop {
                match sending.segments.front_mut() {
                    Some(segment) if segment.is_empty() => drop(sending.segments.pop_front()),
                    // The segments hold as many bytes as declared.
                    None => break Err(CloseReason::FileChanged),
                    Some(segment) => {
                        break append_piece(segment, room, output).map(|bytes| {
                            sending.remaining_bytes -= bytes as u64;
                            (bytes, sending.remaining_bytes == 0)
                        });
                    }
                }
            },
            ServerStream::Streaming(streaming) => streaming.append_piece(room, output),
            _ => Ok((0, false)),
        };
        let (bytes, ends) = match sent {
            Ok(sent) => sent,
            Err(reason) => {
                self.link.output.truncate(at);
                self.fail_stream(id, stream, reason);
                return true;
            }
        };
        let head = self.core.send_data(id, bytes, ends);
        self.link.output[at..at + HEAD_BYTES].copy_from_slice(&head);
        self.content_bytes += bytes as u64;
        if !ends {
            self.set(id, stream);
            return true;
        }
        match stream {
            ServerStream::Sending(sending) => self.worker.commit_staged(&sending.staged, "sent"),
            ServerStream::Streaming(streaming) => self.log_streamed(&streaming.response, "sent"),
            _ => {}
        }
        self.finish(id);
        true
    }

    /// Resets a stream whose content cannot be completed: the client must not mistake the part for the whole (RFC 9113
    /// §8.1).
    fn fail_stream(&mut self, id: u32, stream: ServerStream, reason: CloseReason) {
        self.core.reset(id, ErrorCode::Internal, &mut self.link.output);
        self.log_cut(stream, reason.name());
    }

    /// Polls a stream. Returns whether it made progress.
    pub(super) fn poll_stream(&mut self, id: u32, context: &mut Context<'_>) -> bool {
        self.poll_content(id, context);
        match self.core.get_mut(id) {
            Some(ServerStream::Pending(_)) => self.poll_pending(id, context),
            // The next piece is polled only when the last has left.
            Some(ServerStream::Streaming(streaming)) if streaming.segment.is_none() => {
                self.link.room() > 0 && self.poll_source(id, context)
            }
            _ => false,
        }
    }

    fn poll_pending(&mut self, id: u32, context: &mut Context<'_>) -> bool {
        let ServerStream::Pending(mut pending) = self.take(id) else { return false };
        let mut moved = false;
        let polled = pending.response.poll(context, |interim| {
            self.send_interim(id, interim.status, &interim.lines);
            moved = true;
        });
        let Poll::Ready(response) = polled else {
            self.set(id, ServerStream::Pending(pending));
            return moved;
        };
        let PendingStream { response: PendingResponse { record, .. }, intake } = *pending;
        self.respond(id, response, record, intake);
        true
    }

    /// Polls the source of a streamed response.
    fn poll_source(&mut self, id: u32, context: &mut Context<'_>) -> bool {
        let ServerStream::Streaming(mut streaming) = self.take(id) else { return false };
        let polled = if streaming.ended.is_some() { Ok(true) } else { streaming.poll(context) };
        match polled {
            Err(reason) => self.fail_stream(id, ServerStream::Streaming(streaming), reason),
            Ok(moved) if streaming.segment.is_some() || streaming.ended.is_none() => {
                self.set(id, ServerStream::Streaming(streaming));
                return moved;
            }
            // The end alone needs no window.
            Ok(_) => {
                let trailers = streaming.ended.take().and_then(|MessageEnd(trailers)| trailers);
                let mut block = Vec::new();
                encode_fields(trailers.as_deref().unwrap_or_default(), None, &mut block);
                if block.is_empty() {
                    let head = self.core.send_data(id, 0, true);
                    self.link.output.extend_from_slice(&head);
                } else {
                    let output = &mut self.link.output;
                    self.core.send_fields(id, true, output, |output| output.extend_from_slice(&block));
                }
                self.log_streamed(&streaming.response, "sent");
                self.finish(id);
            }
        }
        true
    }

    /// Handles that a stream was reset.
    pub(super) fn handle_reset(&self, stream: ServerStream) {
        self.log_cut(stream, STREAM_RESET);
    }
}

impl Streaming {
    /// Polls for the next piece, and for the end if the piece is the last: its frame then ends the stream. Returns
    /// whether there is one.
    fn poll(&mut self, context: &mut Context<'_>) -> Result<bool, CloseReason> {
        match self.response.poll_piece(context) {
            StreamedPiece::Segment(segment) => {
                self.segment = Some(segment);
                if self.response.is_complete() {
                    match self.response.poll_piece(context) {
                        StreamedPiece::End(end) => self.ended = Some(end),
                        StreamedPiece::Failed(reason) => return Err(reason),
                        // Trailers may follow: the stream ends with the source.
                        StreamedPiece::Segment(_) | StreamedPiece::Wait => {}
                    }
                }
                Ok(true)
            }
            StreamedPiece::End(end) => {
                self.ended = Some(end);
                Ok(true)
            }
            StreamedPiece::Failed(reason) => Err(reason),
            StreamedPiece::Wait => Ok(false),
        }
    }

    /// Appends a part of the piece. Returns its bytes, and whether it is the end of the stream.
    fn append_piece(&mut self, bytes_max: usize, output: &mut Vec<u8>) -> Result<(usize, bool), CloseReason> {
        let Some(segment) = &mut self.segment else { return Ok((0, false)) };
        let bytes = append_piece(segment, bytes_max, output)?;
        self.response.count(bytes as u64);
        if segment.is_empty() {
            self.segment = None;
        }
        Ok((bytes, self.segment.is_none() && matches!(self.ended, Some(MessageEnd(None)))))
    }
}

/// Appends the next piece of `segment`, at most `bytes_max` bytes.
fn append_piece(segment: &mut Segment, bytes_max: usize, output: &mut Vec<u8>) -> Result<usize, CloseReason> {
    match segment {
        Segment::Bytes(bytes) => {
            let count = bytes.len().min(bytes_max);
            output.extend_from_slice(&bytes[..count]);
            bytes.advance(count);
            Ok(count)
        }
        Segment::File(file) => {
            let at = output.len();
            let wanted = usize::try_from(file.bytes).unwrap_or(usize::MAX).min(bytes_max);
            output.resize(at + wanted, 0);
            let read = read_piece(file, &mut output[at..]);
            output.truncate(at + read.as_ref().copied().unwrap_or(0));
            read
        }
    }
}
