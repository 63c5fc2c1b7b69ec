//! Sending of heads, content, trailers and GOAWAY.

use super::Connection;
use crate::http2::connection::Role;
use crate::http2::priority::Priority;
use crate::http3::error::ConnectionError;
use crate::http3::frame::{FIXED_HEAD_BYTES, append_frame, append_varint, fixed_head, kind};
use crate::http3::qpack::{SECTION_PREFIX, append_cancellation};

/// The highest identifier of a request. In a GOAWAY it announces that the connection will close, without refusing
/// requests in flight (RFC 9114 §5.2).
const REQUEST_ID_MAX: u64 = (1 << 62) - 4;

/// Length of the longest variable-length integer, in bytes.
const VARINT_BYTES_MAX: usize = 8;

impl<T> Connection<T> {
    /// Appends a head or trailers, whose fields `encode` writes. If `ends`, ends this side of the stream, and the
    /// caller finishes the QUIC stream after these bytes.
    pub fn send_fields(&mut self, id: u64, ends: bool, output: &mut Vec<u8>, encode: impl FnOnce(&mut Vec<u8>)) {
        let at = output.len();
        output.extend_from_slice(&[0; FIXED_HEAD_BYTES]);
        output.extend_from_slice(&SECTION_PREFIX);
        encode(output);
        let section_bytes = output.len() - at - FIXED_HEAD_BYTES;
        output[at..at + FIXED_HEAD_BYTES].copy_from_slice(&fixed_head(kind::HEADERS, section_bytes));
        self.handle_sent();
        if ends {
            self.end(id);
        }
    }

    /// Returns the head of a DATA frame with `bytes` of content. The caller sends the head and the content. If `ends`,
    /// ends this side of the stream, and the caller finishes the QUIC stream after these bytes.
    pub fn send_data(&mut self, id: u64, bytes: usize, ends: bool) -> [u8; FIXED_HEAD_BYTES] {
        self.data_frames += 1;
        if let Some(stream) = self.streams.get_mut(id) {
            stream.served = self.data_frames;
        }
        self.handle_sent();
        if ends {
            self.end(id);
        }
        fixed_head(kind::DATA, bytes)
    }

    /// Ends this side of a stream. The caller must finish the QUIC stream.
    pub fn end(&mut self, id: u64) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.own_done = true;
        }
        self.take_done(id);
    }

    /// Returns the stream to serve next among those that `wants` approves. Streams are served by urgency; within the
    /// same urgency, non-incremental responses come first, in the order of their requests, and then incremental
    /// responses in turn (RFC 9218 §10).
    pub fn next_sender(&self, wants: impl Fn(u64, &T) -> bool) -> Option<u64> {
        let candidates = self.streams.iter().filter(|stream| wants(stream.id, &stream.data));
        let first = candidates.min_by_key(|stream| {
            let turn = if stream.priority.incremental { stream.served } else { 0 };
            (stream.priority, turn, stream.id)
        });
        first.map(|stream| stream.id)
    }

    /// Returns the priority of a stream's response.
    pub fn priority(&self, id: u64) -> Priority {
        self.streams.get(id).map_or(Priority::DEFAULT, |stream| stream.priority)
    }

    /// Closes a stream, which the caller must reset and stop. Returns the caller's state of the stream if it was open.
    pub fn reset(&mut self, id: u64) -> Option<T> {
        self.remove(id).map(|stream| stream.data)
    }

    /// Drops everything that still arrives on a stream, which the caller must stop (RFC 9114 §4.1: with `H3_NO_ERROR`
    /// after a complete response).
    pub fn stop_receiving(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(id).filter(|stream| !stream.peer_done) else { return };
        stream.peer_done = true;
        self.take_section(id);
        append_cancellation(id, &mut self.decoder_output);
        self.take_done(id);
    }

    /// Counts `bytes` of content that the caller discards.
    ///
    /// # Errors
    /// The client sends the content in too many small pieces.
    pub fn discard_data(&mut self, now_ms: u64, bytes: usize) -> Result<(), ConnectionError> {
        let Some(guard) = &mut self.guard else { return Ok(()) };
        guard.handle_discarded(now_ms, bytes).inspect_err(|_| self.has_failed = true)
    }

    /// Announces that the connection will close. Streams that the client has already opened are still handled. The
    /// caller calls [`Self::finish_drain`] about one round trip later.
    pub fn drain(&mut self) {
        if self.goaway_sent.is_none() {
            self.send_goaway(REQUEST_ID_MAX);
        }
    }

    /// Sends a second GOAWAY, which refuses all requests that have not arrived yet.
    pub fn finish_drain(&mut self) {
        if self.goaway_sent != Some(self.next_peer_request) {
            self.send_goaway(self.next_peer_request);
        }
    }

    fn send_goaway(&mut self, id: u64) {
        // A client's GOAWAY refers to pushes, and this client permits none.
        let id = if self.role == Role::Client { 0 } else { id };
        let mut payload = Vec::with_capacity(VARINT_BYTES_MAX);
        append_varint(id, &mut payload);
        append_frame(kind::GOAWAY, &payload, &mut self.control_output);
        self.goaway_sent = Some(id);
    }

    /// Returns whether the last GOAWAY of a drain was sent and all streams have closed.
    pub fn is_drained(&self) -> bool {
        self.goaway_sent.is_some_and(|id| id != REQUEST_ID_MAX) && self.streams.len() == 0
    }

    fn handle_sent(&mut self) {
        if let Some(guard) = &mut self.guard {
            guard.handle_sent();
        }
    }
}
