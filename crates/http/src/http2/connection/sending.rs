//! Sending: heads, content, trailers, resets, PING and GOAWAY.

use super::{Connection, window_bytes};
use crate::http2::frame::{
    ErrorCode, FrameHead, HEAD_BYTES, PAYLOAD_BYTES_MAX, append_frame, append_goaway, flag, kind,
};
use crate::http2::hpack::encode_table_size;
use crate::http2::priority::Priority;
use crate::http2::stream::PastStream;

/// The highest stream identifier: announces that the connection will close, without refusing streams in flight (RFC
/// 9113 §6.8).
const LAST_STREAM_MAX: u32 = 0x7fff_ffff;

/// Payload of the PING that follows the announcement.
const DRAIN_PING: u64 = u64::from_be_bytes(*b"draining");

impl<T: Default> Connection<T> {
    /// Opens a stream for a request; `None` if the peer permits no more. The request's head must follow.
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
    /// Appends a head or trailers, which `encode` writes as a field block. Ends this side of the stream if `ends`.
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

    /// Bytes of content that may be sent on a stream now, in one frame.
    pub fn data_room(&self, id: u32) -> usize {
        let window = self.streams.get(id).map_or(0, |stream| stream.send_window.min(self.send_window));
        usize::try_from(window).unwrap_or(0).min(PAYLOAD_BYTES_MAX)
    }

    /// The head of a DATA frame with `bytes` of content, at most [`Self::data_room`], which the caller appends with its
    /// content. Ends this side of the stream if `ends`.
    pub fn send_data(&mut self, id: u32, bytes: usize, ends: bool) -> [u8; HEAD_BYTES] {
        self.send_window -= window_bytes(bytes);
        self.data_frames += 1;
        if let Some(stream) = self.streams.get_mut(id) {
            stream.send_window -= window_bytes(bytes);
            stream.served = self.data_frames;
        }
        self.handle_sent();
        if ends {
            self.end(id);
        }
        let flags = if ends { flag::END_STREAM } else { 0 };
        FrameHead { payload_bytes: bytes, kind: kind::DATA, flags, stream: id }.to_bytes()
    }

    /// The stream to serve next, of those that `wants` approves and whose windows are open: by urgency; within one,
    /// complete responses in the order of their requests, then incremental ones in turns (RFC 9218 §10).
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

    /// The priority of a stream's response.
    pub fn priority(&self, id: u32) -> Priority {
        self.streams.get(id).map_or(Priority::DEFAULT, |stream| stream.priority)
    }

    /// Resets a stream. Returns the caller's state of it, if it was open.
    pub fn reset(&mut self, id: u32, code: ErrorCode, output: &mut Vec<u8>) -> Option<T> {
        append_frame(kind::RST_STREAM, 0, id, &(code as u32).to_be_bytes(), output);
        if let Some(stream) = self.streams.remove(id, PastStream::ResetByUs) {
            return Some(stream.data);
        }
        self.streams.note_closed(id, PastStream::ResetByUs);
        None
    }

    /// Discards what still arrives on a stream.
    pub fn discard(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.is_discarded = true;
        }
    }

    /// Returns whether the peer may send more on a stream.
    pub fn is_receiving(&self, id: u32) -> bool {
        self.streams.get(id).is_some_and(|stream| !stream.peer_done)
    }

    /// Appends a PING.
    pub fn ping(&mut self, payload: u64, output: &mut Vec<u8>) {
        append_frame(kind::PING, 0, 0, &payload.to_be_bytes(), output);
        if let Some(guard) = &mut self.guard {
            guard.handle_sent_request();
        }
    }

    /// Announces that the connection will close: the client may open no more streams, and those in flight are still
    /// handled. [`Self::handle_drained`] follows the acknowledgement.
    pub fn drain(&mut self, output: &mut Vec<u8>) {
        if self.goaway_sent.is_none() {
            self.goaway_sent = Some(LAST_STREAM_MAX);
            append_goaway(LAST_STREAM_MAX, ErrorCode::NoError, output);
            self.ping(DRAIN_PING, output);
        }
    }

    /// Handles the acknowledgement of a PING. Returns `false` if it is not the one that [`Self::drain`] sent.
    pub fn handle_drained(&mut self, payload: u64, output: &mut Vec<u8>) -> bool {
        let is_drain = payload == DRAIN_PING && self.goaway_sent == Some(LAST_STREAM_MAX);
        if is_drain {
            self.goaway_sent = Some(self.last_handled());
            append_goaway(self.last_peer_stream, ErrorCode::NoError, output);
        }
        is_drain
    }

    /// Returns whether the last GOAWAY of a drain was sent and every stream has ended.
    pub fn is_drained(&self) -> bool {
        self.goaway_sent.is_some_and(|last| last != LAST_STREAM_MAX) && self.streams.len() == 0
    }

    /// Ends the connection at once, with `code`.
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
        self.streams.remove_done(id);
    }
}
