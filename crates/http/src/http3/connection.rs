//! One side of an HTTP/3 connection (RFC 9114), without I/O. It takes received bytes of streams and returns events;
//! bytes to send are appended to the caller's buffers.
//!
//! | file | contents |
//! |---|---|
//! | `requests` | received bytes of request streams |
//! | `control` | received bytes of unidirectional streams: settings, GOAWAY, QPACK |
//! | `sending` | sent heads and content, and GOAWAY |
//!
//! The connection checks every rule of frames, messages and settings. The caller owns the QUIC streams: it announces
//! streams that the peer opens, passes received bytes, and resets, stops and finishes streams. Content is never
//! buffered.

mod control;
mod requests;
mod sending;

pub use requests::Event;

use super::error::ConnectionError;
use super::flood::FloodGuard;
use super::frame::{append_frame, append_varint, kind, setting, stream_kind};
use super::qpack::{BLOCKED_STREAMS_MAX, Decoder, DecoderFeedback, TABLE_BYTES_MAX, append_cancellation};
use super::stream::{FramePart, OpenStream, StreamTable};
use crate::http2::connection::Role;
use crate::http2::priority::Priority;
use control::{ControlReader, PeerStreams};
use std::collections::VecDeque;

/// Maximum compressed size of a field section, as a multiple of its maximum uncompressed size. No
/// encoder uses Huffman coding for a string that it makes longer, and the uncompressed size counts 32 bytes more for each
/// field. All incomplete and blocked
/// sections of a connection together have the same limit.
const SECTION_FACTOR: usize = 2;

/// The bit that is set in the identifier of a stream opened by the server (RFC 9000 §2.1).
const SERVER_BIT: u64 = 1;

/// The bit that is set in the identifier of a unidirectional stream (RFC 9000 §2.1).
const UNIDIRECTIONAL_BIT: u64 = 2;

/// Settings that this side announces.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Maximum size of a field section, in bytes.
    pub section_bytes_max: usize,
}

/// A unidirectional stream that this side opens. Its first bytes are its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnStream {
    /// The control stream.
    Control,
    /// The QPACK decoder stream.
    Decoder,
}

/// How to treat a stream that the peer has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// The bytes of the stream are handled.
    Open,
    /// The stream is beyond the last GOAWAY. The caller resets it with `H3_REQUEST_REJECTED`.
    Refused,
}

/// Settings of the peer that matter to this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    /// Maximum field section that the peer accepts, in bytes.
    pub section_bytes_max: u64,
    /// True if the peer supports extended CONNECT (RFC 9220).
    pub connect_protocol: bool,
}

/// One side of a connection. `T` is the state that the caller keeps for each request stream.
#[derive(Debug)]
pub struct Connection<T> {
    role: Role,
    config: Config,
    decoder: Decoder,
    feedback: DecoderFeedback,
    /// Flood protection. Only for servers.
    guard: Option<FloodGuard>,
    streams: StreamTable<T>,
    peer_streams: PeerStreams,
    control: ControlReader,
    control_output: Vec<u8>,
    decoder_output: Vec<u8>,
    /// True once the decoder stream has output and its type has therefore been written.
    has_decoder_stream: bool,
    peer: PeerSettings,
    /// True once the peer's SETTINGS have arrived.
    has_begun: bool,
    /// Total bytes of incomplete and blocked field sections.
    section_bytes: usize,
    /// Number of streams whose field section is blocked.
    blocked: usize,
    /// Streams that were blocked and whose input must be handled again.
    unblocked: VecDeque<u64>,
    /// Priorities that arrived before their streams, by stream identifier.
    early_priorities: VecDeque<(u64, Priority)>,
    /// The lowest identifier of a request that the client has not opened yet.
    next_peer_request: u64,
    /// The identifier in the last GOAWAY sent.
    goaway_sent: Option<u64>,
    /// The identifier in the last GOAWAY received.
    goaway_received: Option<u64>,
    /// The identifier in the last MAX_PUSH_ID received.
    max_push_id: Option<u64>,
    has_failed: bool,
    /// Number of DATA frames sent.
    data_frames: u64,
}

impl<T> Connection<T> {
    /// Creates a connection, whose settings are in the buffer of the control stream ([`Self::output`]).
    pub fn new(role: Role, config: Config) -> Self {
        let mut settings = Vec::with_capacity(16);
        let mut add = |id: u64, value: u64| {
            append_varint(id, &mut settings);
            append_varint(value, &mut settings);
        };
        add(setting::QPACK_MAX_TABLE_CAPACITY, TABLE_BYTES_MAX as u64);
        add(setting::QPACK_BLOCKED_STREAMS, BLOCKED_STREAMS_MAX as u64);
        add(setting::MAX_FIELD_SECTION_SIZE, config.section_bytes_max as u64);
        if role == Role::Server {
            add(setting::ENABLE_CONNECT_PROTOCOL, 1);
        }
        let mut control_output = Vec::new();
        append_varint(stream_kind::CONTROL, &mut control_output);
        append_frame(kind::SETTINGS, &settings, &mut control_output);
        Self {
            role,
            config,
            decoder: Decoder::new(),
            feedback: DecoderFeedback::default(),
            guard: (role == Role::Server).then(FloodGuard::new),
            streams: StreamTable::new(),
            peer_streams: PeerStreams::default(),
            control: ControlReader::default(),
            control_output,
            decoder_output: Vec::new(),
            has_decoder_stream: false,
            peer: PeerSettings { section_bytes_max: u64::MAX, connect_protocol: false },
            has_begun: false,
            section_bytes: 0,
            blocked: 0,
            unblocked: VecDeque::new(),
            early_priorities: VecDeque::new(),
            next_peer_request: 0,
            goaway_sent: None,
            goaway_received: None,
            max_push_id: None,
            has_failed: false,
            data_frames: 0,
        }
    }

    /// Returns the bytes to send on one of this side's unidirectional streams. The caller removes the bytes that QUIC
    /// has accepted. Before the peer uses the dynamic table, the decoder stream has no bytes and need not exist (RFC
    /// 9204 §4.2), which saves an idle connection 0.4 KiB.
    pub fn output(&mut self, stream: OwnStream) -> &mut Vec<u8> {
        match stream {
            OwnStream::Control => &mut self.control_output,
            OwnStream::Decoder => {
                if !self.decoder_output.is_empty() && !std::mem::replace(&mut self.has_decoder_stream, true) {
                    let mut begun = Vec::new();
                    append_varint(stream_kind::DECODER, &mut begun);
                    self.decoder_output.splice(..0, begun);
                }
                &mut self.decoder_output
            }
        }
    }

    /// Returns whether any of the buffers of [`Self::output`] contains bytes.
    pub const fn has_output(&self) -> bool {
        !self.control_output.is_empty() || !self.decoder_output.is_empty()
    }

    /// Returns whether the peer's SETTINGS have arrived.
    pub const fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Returns the peer's settings, or the defaults before they arrive.
    pub const fn peer_settings(&self) -> PeerSettings {
        self.peer
    }

    /// Returns whether this server has sent a GOAWAY, or this client has received one, after which the client opens no
    /// more streams.
    pub const fn is_leaving(&self) -> bool {
        match self.role {
            Role::Client => self.goaway_received.is_some(),
            Role::Server => self.goaway_sent.is_some(),
        }
    }

    /// Returns whether a connection error has occurred. The connection then ignores all input.
    pub const fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Returns the number of open request streams.
    pub const fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Returns the caller's state of an open stream.
    pub fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        self.streams.get_mut(id).map(|stream| &mut stream.data)
    }

    /// Returns the identifier of the open stream at position `index`.
    pub fn id_at(&self, index: usize) -> Option<u64> {
        self.streams.at(index).map(|stream| stream.id)
    }

    /// Closes a stream that both sides have ended, and returns the caller's state of it.
    pub fn take_done(&mut self, id: u64) -> Option<T> {
        let is_done = self.streams.get(id).is_some_and(|stream| stream.peer_done && stream.own_done);
        if is_done { self.remove(id).map(|stream| stream.data) } else { None }
    }

    /// Returns whether a stream is open.
    pub fn is_open(&self, id: u64) -> bool {
        self.streams.get(id).is_some()
    }

    /// Returns whether the peer may send more on a stream.
    pub fn is_receiving(&self, id: u64) -> bool {
        self.streams.get(id).is_some_and(|stream| !stream.peer_done)
    }

    /// Returns the number of content bytes still to come on a stream, if its head declared a length.
    pub fn content_left(&self, id: u64) -> Option<u64> {
        self.streams.get(id)?.content_left
    }

    /// Returns whether a stream is blocked on the dynamic table. It takes no more bytes while it is.
    pub fn is_blocked(&self, id: u64) -> bool {
        self.streams.get(id).is_some_and(|stream| matches!(stream.frame, FramePart::Blocked { .. }))
    }

    /// Iterates over all open streams in the order of their identifiers.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.streams.iter().map(|stream| (stream.id, &stream.data))
    }

    /// Iterates over all open streams in the order of their identifiers.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        self.streams.iter_mut().map(|stream| (stream.id, &mut stream.data))
    }

    /// Returns whether the stream `id` was opened by this side.
    const fn is_own(&self, id: u64) -> bool {
        (id & SERVER_BIT == 0) == matches!(self.role, Role::Client)
    }

    /// Returns the maximum total size of all incomplete and blocked field sections, in bytes.
    const fn section_bytes_max(&self) -> usize {
        self.config.section_bytes_max.saturating_mul(SECTION_FACTOR)
    }

    /// Removes a stream whose input needs no more handling.
    fn remove(&mut self, id: u64) -> Option<OpenStream<T>> {
        let stream = self.streams.remove(id)?;
        self.forget_section(stream.frame, stream.section.len());
        if !stream.peer_done {
            // Unread field sections of the stream may refer to the dynamic table (RFC 9204 §2.2.2.2).
            append_cancellation(id, &mut self.decoder_output);
        }
        Some(stream)
    }

    /// Removes the stored section of a stream and returns it.
    fn take_section(&mut self, id: u64) -> Vec<u8> {
        let Some(stream) = self.streams.get_mut(id) else { return Vec::new() };
        let section = std::mem::take(&mut stream.section);
        let frame = std::mem::replace(&mut stream.frame, FramePart::Head);
        self.forget_section(frame, section.len());
        section
    }

    /// Updates the counters after a stored section was taken or dropped.
    const fn forget_section(&mut self, frame: FramePart, section_bytes: usize) {
        self.section_bytes -= section_bytes;
        if matches!(frame, FramePart::Blocked { .. }) {
            self.blocked -= 1;
        }
    }
}

impl<T: Default> Connection<T> {
    /// Handles a stream of either direction that the peer has opened. Must be called once for each stream, before its
    /// bytes.
    ///
    /// # Errors
    /// The peer must not open this stream, or opens too many useless streams.
    pub fn accept(&mut self, now_ms: u64, id: u64) -> Result<Accepted, ConnectionError> {
        self.accept_stream(now_ms, id).inspect_err(|_| self.has_failed = true)
    }

    fn accept_stream(&mut self, now_ms: u64, id: u64) -> Result<Accepted, ConnectionError> {
        if self.has_failed || self.is_own(id) {
            return Ok(Accepted::Refused);
        }
        if id & UNIDIRECTIONAL_BIT != 0 {
            if let Some(guard) = &mut self.guard {
                guard.handle_other(now_ms)?;
            }
            self.peer_streams.add(id);
            return Ok(Accepted::Open);
        }
        if self.role == Role::Client {
            return Err(ConnectionError::ServerStream);
        }
        if self.goaway_sent.is_some_and(|limit| id >= limit) {
            return Ok(Accepted::Refused);
        }
        self.next_peer_request = self.next_peer_request.max(id + 4);
        let mut stream = OpenStream::new(id);
        if let Some(index) = self.early_priorities.iter().position(|(other, _)| *other == id)
            && let Some((_, priority)) = self.early_priorities.remove(index)
        {
            (stream.priority, stream.is_reprioritized) = (priority, true);
        }
        self.streams.insert(stream);
        Ok(Accepted::Open)
    }

    /// Returns whether a client may open a stream, apart from QUIC's limit on streams.
    pub const fn can_open(&self) -> bool {
        !self.is_leaving() && !self.has_failed
    }

    /// Opens a stream for a request, with the identifier that QUIC assigned. The head of the request must be sent next.
    pub fn open(&mut self, id: u64, is_head: bool) {
        let mut stream = OpenStream::new(id);
        stream.is_head = is_head;
        self.streams.insert(stream);
    }
}

#[cfg(test)]
mod tests;
