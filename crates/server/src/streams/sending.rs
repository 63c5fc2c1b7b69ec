//! Sending of response content by priority, as far as the windows and the gathered output permit.

use super::content::StreamIntake;
use super::state::{PendingStream, Sending, ServerStream, Streaming};
use super::{STREAM_RESET, StreamTransport, Streams};
use crate::exchange::pending::PendingResponse;
use crate::exchange::streamed::StreamedPiece;
use flatout_handler::Handler;
use flatout_handler::ending::CloseReason;
use flatout_handler::stream::MessageEnd;
use flatout_http::http2::error::StreamError;
use std::task::{Context, Poll};

impl<H: Handler, T: StreamTransport> Streams<H, T> {
    /// Sends content of all streams while there is room, the most urgent first. Returns whether anything was sent.
    pub(crate) fn send_content(&mut self) -> bool {
        let mut moved = false;
        while let Some(id) = self.transport.next_sender() {
            moved |= self.send_frame(id);
        }
        moved
    }

    /// Sends one frame of a stream's content. Returns whether anything was sent or the stream ended.
    pub(super) fn send_frame(&mut self, id: u64) -> bool {
        let mut stream = self.take(id);
        let sent = match &mut stream {
            ServerStream::Sending(sending) => sending.send(id, &mut self.transport),
            ServerStream::Streaming(streaming) => streaming.send(id, &mut self.transport),
            ServerStream::Tunnel(tunnel) => Ok((tunnel.send(id, &mut self.transport), false)),
            ServerStream::Idle | ServerStream::Receiving(_) | ServerStream::Pending(_) => Ok((0, false)),
        };
        let (bytes, ends) = match sent {
            Ok(sent) => sent,
            Err(reason) => {
                self.fail_stream(id, stream, reason);
                return true;
            }
        };
        self.content_bytes += bytes as u64;
        if !ends {
            if bytes > 0 {
                stream.note_moved(self.now_ms());
            }
            self.set(id, stream);
            return bytes > 0;
        }
        match stream {
            ServerStream::Sending(sending) => self.worker.commit_staged(&sending.staged, "sent"),
            ServerStream::Streaming(streaming) => self.log_streamed(&streaming.response, "sent"),
            _ => {}
        }
        self.finish(id);
        true
    }

    /// Aborts a stream whose content cannot be completed, so that the client does not mistake the content for complete
    /// (RFC 9113 §8.1).
    fn fail_stream(&mut self, id: u64, stream: ServerStream, reason: CloseReason) {
        let now_ms = self.now_ms();
        self.transport.abort(id, now_ms);
        self.log_cut(stream, reason.name());
    }

    /// Polls a stream. Returns whether it made progress.
    pub(crate) fn poll_stream(&mut self, id: u64, context: &mut Context<'_>) -> bool {
        self.poll_content(id, context);
        match self.transport.stream_mut(id) {
            Some(ServerStream::Pending(_)) => self.poll_pending(id, context),
            Some(ServerStream::Tunnel(_)) => self.poll_tunnel(id, context),
            // The next piece is polled only after the previous one has been sent.
            Some(ServerStream::Streaming(streaming)) if streaming.segment.is_none() => {
                self.transport.has_room() && self.poll_source(id, context)
            }
            _ => false,
        }
    }

    /// Lets the sources of responses continue whose content waits for the client.
    pub(crate) fn poll_ahead(&mut self, context: &mut Context<'_>) {
        let (has_room, mut index) = (self.transport.has_room(), 0);
        while let Some(id) = self.transport.id_at(index) {
            index += 1;
            if let Some(ServerStream::Streaming(streaming)) = self.transport.stream_mut(id)
                && (streaming.segment.is_some() || !has_room)
            {
                streaming.response.poll_ahead(context);
            }
        }
    }

    fn poll_pending(&mut self, id: u64, context: &mut Context<'_>) -> bool {
        let ServerStream::Pending(mut pending) = self.take(id) else { return false };
        let mut moved = false;
        let polled = pending.response.poll(context, |interim| {
            self.send_interim(id, interim.status, &interim.lines);
            moved = true;
        });
        let Poll::Ready(response) = polled else {
            let sends_continue = pending.intake.as_mut().is_some_and(StreamIntake::take_continue);
            self.set(id, ServerStream::Pending(pending));
            if sends_continue {
                self.send_interim(id, 100, b"");
                // From here on, the client must send its content.
                self.poll_content(id, context);
            }
            return moved || sends_continue;
        };
        let PendingStream { response: PendingResponse { record, .. }, intake, tunnel } = *pending;
        match tunnel {
            Some(input) => self.respond_to_connect(id, response, record, input),
            None => self.respond(id, response, record, intake),
        }
        true
    }

    /// Polls the source of a streamed response. Returns whether it made progress.
    fn poll_source(&mut self, id: u64, context: &mut Context<'_>) -> bool {
        let ServerStream::Streaming(mut streaming) = self.take(id) else { return false };
        let moved = streaming.ended.is_some() || streaming.poll(context);
        let ended = if streaming.segment.is_none() { streaming.ended.take() } else { None };
        match ended {
            None => {
                if moved {
                    // The piece begins to wait for the client.
                    streaming.moved_ms = self.now_ms();
                }
                self.set(id, ServerStream::Streaming(streaming));
                return moved;
            }
            Some(Err(reason)) => self.fail_stream(id, ServerStream::Streaming(streaming), reason),
            // Ending the stream without content needs no window.
            Some(Ok(MessageEnd(trailers))) => {
                let mut block = Vec::new();
                T::encode_lines(trailers.as_deref().unwrap_or_default(), None, &mut block);
                if block.is_empty() {
                    self.transport.send_bytes(id, b"", true);
                } else {
                    self.transport.send_fields(id, true, |output| output.extend_from_slice(&block));
                }
                self.log_streamed(&streaming.response, "sent");
                self.finish(id);
            }
        }
        true
    }

    /// Handles a stream that the client reset, or that was reset because of the client's `error`.
    pub(crate) fn handle_reset(&self, stream: ServerStream, error: Option<StreamError>) {
        let Some(error) = error else { return self.log_cut(stream, STREAM_RESET) };
        self.worker.counters.stream_errors[error as usize].add(1);
        if matches!(stream, ServerStream::Idle) {
            // The request has not begun, or has been logged already.
            self.log_fault(b"", (error.name(), error.name()));
        }
        self.log_cut(stream, error.name());
    }
}

impl Streaming {
    /// Polls for the next piece. If it completes the content, also polls for the end, so that the frame of the piece
    /// can end the stream. Returns whether there is a piece or the end.
    fn poll(&mut self, context: &mut Context<'_>) -> bool {
        let mut piece = self.response.poll_piece(context);
        if let StreamedPiece::Segment(segment) = piece {
            self.segment = Some(segment);
            if !self.response.is_complete() {
                return true;
            }
            piece = self.response.poll_piece(context);
        }
        match piece {
            StreamedPiece::End(end) => self.ended = Some(Ok(end)),
            StreamedPiece::Failed(reason) => self.ended = Some(Err(reason)),
            // After complete content, trailers may follow, so the stream ends when the source does.
            StreamedPiece::Segment(_) | StreamedPiece::Wait => {}
        }
        self.segment.is_some() || self.ended.is_some()
    }

    /// Sends a part of the piece. Returns the number of bytes sent, and whether they ended the stream.
    fn send<T: StreamTransport>(&mut self, id: u64, transport: &mut T) -> Result<(usize, bool), CloseReason> {
        let Some(segment) = &mut self.segment else { return Ok((0, false)) };
        let ends = matches!(self.ended, Some(Ok(MessageEnd(None))));
        let bytes = transport.send_segment(id, segment, ends)?;
        self.response.count(bytes as u64);
        if segment.is_empty() {
            self.segment = None;
        }
        Ok((bytes, self.segment.is_none() && ends))
    }
}

impl Sending {
    /// Sends a part of the content. Returns the number of bytes sent, and whether they were the last.
    fn send<T: StreamTransport>(&mut self, id: u64, transport: &mut T) -> Result<(usize, bool), CloseReason> {
        loop {
            match self.segments.front_mut() {
                Some(segment) if segment.is_empty() => drop(self.segments.pop_front()),
                // Cannot happen: the segments contain as many bytes as declared.
                None => return Err(CloseReason::FileChanged),
                Some(segment) => {
                    let ends = segment.len() == self.remaining_bytes;
                    let bytes = transport.send_segment(id, segment, ends)?;
                    self.remaining_bytes -= bytes as u64;
                    return Ok((bytes, self.remaining_bytes == 0));
                }
            }
        }
    }
}
