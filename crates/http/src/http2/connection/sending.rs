//! Sending of heads, content, trailers, resets, PING and GOAWAY.

use super::{Connection, Role, window_bytes};
use crate::http2::frame::{
    ErrorCode, FrameHead, HEAD_BYTES, PAYLOAD_BYTES_MAX, append_frame, append_goaway, flag, kind,
};
use crate::http2::hpack::encode_table_size;
use crate::http2::priority::Priority;
use crate::http2::stream::PastStream;

/// The highest stream identifier. In a GOAWAY it announces that the connection will close, without refusing streams in
/// flight (RFC 9113 §6.8).
const LAST_STREAM_MAX: u32 = 0x7fff_ffff;

/// Payload of the PING that follows the first GOAWAY of a drain.
const DRAIN_PING: u64 = u64::from_be_bytes(*b"draining");

impl<T: Default> Connection<T> {
    /// Opens a stream for a request, whose head must be sent next. Returns `None` if the peer accepts no more streams.
    pub fn open(&mut self, is_head: bool) -> Option<u32> {
        let is_full = self.streams.len() as u64 >= u64::from(self.peer.streams_max);
        if is_full || self.is_leaving() || self.has_failed || self.next_own_stream > LAST_STREAM_MAX {
            return None;
        }
        let mut stream = self.new_stream(self.next_own_stream);
        stream.is_head = is_head;
        let id = stream.id;
        self.next_own_stream += 2;
        self.streams.insert(stream);
        Some(id)
    }
}

impl<T> Connection<T> {
    /// Appends a head or trailers, which `encode` writes as a field block. If `ends`, ends this side of the stream.
    pub fn send_fields(&mut self, id: u32, ends: bool, output: &mut Vec<u8>, encode: impl FnOnce(&mut Vec<u8>)) {
        let at = output.len();
        output.extend_from_slice(&[0; HEAD_BYTES]);
        if std::mem::take(&mut self.must_shrink_table) {
            encode_table_size(0, output);
        }
        encode(output);
        let block_bytes = output.len() - at - HEAD_BYTES;
        let flags = if ends { flag::END_STREAM } else { 0 };
        if block_bytes <= PAYLOAD_BYTES_MAX {
            let head = FrameHead {
                payload_bytes: block_bytes,
                kind: kind::HEADERS,
                flags: flags | flag::END_HEADERS,
                stream: id,
            };
            output[at..at + HEAD_BYTES].copy_from_slice(&head.to_bytes());
        } else {
            let block = output.split_off(at + HEAD_BYTES);
            output.truncate(at);
            let count = block.len().div_ceil(PAYLOAD_BYTES_MAX);
            for (index, piece) in block.chunks(PAYLOAD_BYTES_MAX).enumerate() {
                let (kind, first) = if index == 0 { (kind::HEADERS, flags) } else { (kind::CONTINUATION, 0) };
                let last = if index + 1 == count { flag::END_HEADERS } else { 0 };
                append_frame(kind, first | last, id, piece, output);
            }
        }
        self.handle_sent();
        if ends {
            self.end(id);
        }
    }

    /// Returns the number of content bytes that may be sent on a stream now in one frame.
    pub fn data_room(&self, id: u32) -> usize {
        self.turn_room(id, 1)
    }

    /// Bytes of content that may be sent on a stream now, in at most `frames_max` frames, before another stream has its
    /// turn. An incremental response has one frame.
    pub fn turn_room(&self, id: u32, frames_max: usize) -> usize {
        let Some(stream) = self.streams.get(id) else { return 0 };
        let frames = if stream.priority.incremental { 1 } else { frames_max };
        let window = usize::try_from(stream.send_window.min(self.send_window)).unwrap_or(0);
        window.min(frames.saturating_mul(PAYLOAD_BYTES_MAX))
    }

    /// Returns the head of a DATA frame with `bytes` of content, at most [`Self::data_room`]. The caller sends the head
    /// and the content. If `ends`, ends this side of the stream.
    pub fn send_data(&mut self, id: u32, bytes: usize, ends: bool) -> [u8; HEAD_BYTES] {
        self.send_window -= window_bytes(bytes);
        self.data_frames += 1;
        if let Some(stream) = self.streams.get_mut(id) {
            stream.send_window -= window_bytes(bytes);
            stream.served = self.data_frames;
        }
        if let Some(guard) = &mut self.guard {
            guard.handle_content_sent(bytes);
        }
        self.handle_sent();
        if ends {
            self.end(id);
        }
        let flags = if ends { flag::END_STREAM } else { 0 };
        FrameHead { payload_bytes: bytes, kind: kind::DATA, flags, stream: id }.to_bytes()
    }

    /// Returns the stream to serve next among those that `wants` approves and whose windows are open. Streams are
    /// served by urgency; within the same urgency, non-incremental responses come first, in the order of their
    /// requests, and then incremental responses in turn (RFC 9218 §10).
    pub fn next_sender(&self, wants: impl Fn(&T) -> bool) -> Option<u32> {
        if self.send_window <= 0 {
            return None;
        }
        let candidates = self.streams.iter().filter(|stream| stream.send_window > 0 && wants(&stream.data));
        let first = candidates.min_by_key(|stream| {
            let turn = if stream.priority.incremental { stream.served } else { 0 };
            (stream.priority, turn, stream.id)
        });
        first.map(|stream| stream.id)
    }

    /// Returns the priority of a stream's response.
    pub fn priority(&self, id: u32) -> Priority {
        self.streams.get(id).map_or(Priority::DEFAULT, |stream| stream.priority)
    }

    /// Resets a stream. Returns the caller's state of the stream if it was open.
    pub fn reset(&mut self, id: u32, code: ErrorCode, output: &mut Vec<u8>) -> Option<T> {
        append_frame(kind::RST_STREAM, 0, id, &code.number().to_be_bytes(), output);
        if let Some(stream) = self.streams.remove(id, PastStream::ResetByUs) {
            self.release_connection(stream.held_bytes, output);
            return Some(stream.data);
        }
        self.streams.note_closed(id, PastStream::ResetByUs);
        None
    }

    /// Discards content that still arrives on a stream, and returns credit for content that the caller has not
    /// released.
    pub fn discard(&mut self, id: u32, output: &mut Vec<u8>) {
        let mut held_bytes = 0;
        if let Some(stream) = self.streams.get_mut(id) {
            stream.is_discarded = true;
            held_bytes = std::mem::take(&mut stream.held_bytes);
        }
        self.release_connection(held_bytes, output);
    }

    /// Returns whether the peer may send more on a stream.
    pub fn is_receiving(&self, id: u32) -> bool {
        self.streams.get(id).is_some_and(|stream| !stream.peer_done)
    }

    /// Appends a PING frame.
    pub fn ping(&mut self, payload: u64, output: &mut Vec<u8>) {
        append_frame(kind::PING, 0, 0, &payload.to_be_bytes(), output);
        if let Some(guard) = &mut self.guard {
            guard.handle_sent_request();
        }
    }

    /// Announces that the connection will close. Streams that the client has already opened are still handled. The
    /// caller passes the acknowledgement of the PING to [`Self::handle_drained`].
    pub fn drain(&mut self, output: &mut Vec<u8>) {
        if self.goaway_sent.is_none() {
            self.goaway_sent = Some(LAST_STREAM_MAX);
            append_goaway(LAST_STREAM_MAX, ErrorCode::NoError, output);
            self.ping(DRAIN_PING, output);
        }
    }

    /// Handles the acknowledgement of a PING. Returns `false` if the PING was not sent by [`Self::drain`].
    pub fn handle_drained(&mut self, payload: u64, output: &mut Vec<u8>) -> bool {
        let is_drain = payload == DRAIN_PING && self.goaway_sent == Some(LAST_STREAM_MAX);
        if is_drain {
            self.goaway_sent = Some(self.last_handled());
            append_goaway(self.last_peer_stream, ErrorCode::NoError, output);
        }
        is_drain
    }

    /// Returns whether the last GOAWAY of a drain was sent and all streams have closed.
    pub fn is_drained(&self) -> bool {
        self.goaway_sent.is_some_and(|last| last != LAST_STREAM_MAX) && self.streams.len() == 0
    }

    /// Closes the connection immediately with a GOAWAY that has `code`.
    pub fn shut(&mut self, code: ErrorCode, output: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.has_failed, true) {
            append_goaway(self.last_handled(), code, output);
        }
    }

    fn handle_sent(&mut self) {
        if let Some(guard) = &mut self.guard {
            guard.handle_sent();
        }
    }

    fn end(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.own_done = true;
        }
        let done = self.streams.remove_done(id);
        // After a complete response the rest of the request is not needed. `discard` returns the credit.
        if let Some(stream) = done.filter(|_| self.role == Role::Server) {
            self.receive.owed_bytes += stream.held_bytes;
        }
    }
}
