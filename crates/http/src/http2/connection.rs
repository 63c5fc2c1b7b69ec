//! One side of an HTTP/2 connection (RFC 9113), without I/O. It takes received bytes and returns events; bytes to send
//! are appended to the caller's buffer.
//!
//! | file | contents |
//! |---|---|
//! | `receiving` | received frames |
//! | `sending` | sent frames: heads, content, resets, GOAWAY |
//! | `windows` | flow control |
//!
//! The connection checks every rule of streams, windows and settings. The caller passes an incomplete frame again once
//! more of it has arrived, returns credit for content that it has consumed, and sends only what the windows permit.

mod receiving;
mod sending;
mod windows;

pub use receiving::Event;

use super::error::ConnectionError;
use super::flood::FloodGuard;
use super::frame::{PREFACE, append_frame, append_goaway, kind, setting};
use super::hpack::Decoder;
use super::stream::StreamTable;
use super::window::Windows;
use std::collections::VecDeque;

/// Initial window of each stream and of the connection, in bytes, before any setting (RFC 9113 §6.9.2).
const WINDOW_BYTES: u32 = 65_535;

/// Maximum size of a window, in bytes (RFC 9113 §6.9.1).
const WINDOW_BYTES_MAX: i64 = 0x7fff_ffff;

/// The side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The side that opened the connection.
    Client,
    /// The side that accepted the connection.
    Server,
}

/// Settings that this side announces.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Maximum number of streams that a client may have open.
    pub streams_max: u32,
    /// Initial window sizes.
    pub windows: Windows,
    /// Maximum size of a field section, in bytes.
    pub section_bytes_max: usize,
}

/// Credit that this side has granted the peer for the whole connection, in bytes.
#[derive(Debug)]
struct ReceiveWindow {
    /// The size to which the window returns when all credit has been returned.
    size: u32,
    /// Bytes that the peer may still send.
    available: i64,
    /// Bytes that were consumed and for which credit has not been returned yet.
    owed_bytes: u32,
}

/// Settings of the peer that matter to this side.
#[derive(Clone, Copy, Debug)]
struct PeerSettings {
    initial_window: i64,
    streams_max: u32,
    /// True if the peer accepts extended CONNECT (RFC 8441 §3).
    connect_protocol: bool,
    /// True once the first SETTINGS frame has arrived.
    have_arrived: bool,
}

/// A field section that is still arriving.
#[derive(Debug)]
struct OpenSection {
    stream: u32,
    ends: bool,
    depends_on_itself: bool,
    block: Vec<u8>,
}

/// One side of a connection. `T` is the state that the caller keeps for each stream.
#[derive(Debug)]
pub struct Connection<T> {
    role: Role,
    config: Config,
    decoder: Decoder,
    /// Flood protection. Only for servers.
    guard: Option<FloodGuard>,
    streams: StreamTable<T>,
    /// Bytes of the client's preface still to come.
    preface_left: usize,
    /// Bytes of an oversized payload that are still to be skipped.
    skip_bytes: usize,
    /// True once the peer's first SETTINGS frame has arrived.
    has_begun: bool,
    section: Option<OpenSection>,
    peer: PeerSettings,
    /// True if the peer set a table size below the default, so that the next field block must begin with a size update.
    must_shrink_table: bool,
    /// Initial stream windows that were announced and not yet acknowledged.
    unacknowledged: VecDeque<u32>,
    /// The last initial stream window that the peer has acknowledged.
    stream_window: u32,
    send_window: i64,
    receive: ReceiveWindow,
    /// Highest identifier of a stream that the peer has opened.
    last_peer_stream: u32,
    next_own_stream: u32,
    /// The last stream identifier in the GOAWAY that was sent.
    goaway_sent: Option<u32>,
    /// True if the peer has sent GOAWAY.
    is_leaving: bool,
    has_failed: bool,
    /// Number of DATA frames sent.
    data_frames: u64,
}

impl<T> Connection<T> {
    /// Creates a connection and appends its preface and settings to `output`.
    pub fn new(role: Role, config: Config, output: &mut Vec<u8>) -> Self {
        let mut settings = Vec::with_capacity(36);
        let mut add = |id: u16, value: u32| {
            settings.extend_from_slice(&id.to_be_bytes());
            settings.extend_from_slice(&value.to_be_bytes());
        };
        match role {
            Role::Server => add(setting::MAX_CONCURRENT_STREAMS, config.streams_max),
            Role::Client => {
                add(setting::ENABLE_PUSH, 0);
                output.extend_from_slice(PREFACE);
            }
        }
        if config.windows.stream != WINDOW_BYTES {
            add(setting::INITIAL_WINDOW_SIZE, config.windows.stream);
        }
        add(setting::MAX_HEADER_LIST_SIZE, u32::try_from(config.section_bytes_max).unwrap_or(u32::MAX));
        if role == Role::Server {
            add(setting::NO_RFC7540_PRIORITIES, 1);
            add(setting::ENABLE_CONNECT_PROTOCOL, 1);
        }
        append_frame(kind::SETTINGS, 0, 0, &settings, output);
        let more = config.windows.connection.saturating_sub(WINDOW_BYTES);
        if more > 0 {
            append_frame(kind::WINDOW_UPDATE, 0, 0, &more.to_be_bytes(), output);
        }
        let size = config.windows.connection.max(WINDOW_BYTES);
        Self {
            role,
            config,
            decoder: Decoder::new(),
            guard: (role == Role::Server).then(FloodGuard::new),
            streams: StreamTable::new(),
            preface_left: if role == Role::Server { PREFACE.len() } else { 0 },
            skip_bytes: 0,
            has_begun: false,
            section: None,
            peer: PeerSettings {
                initial_window: i64::from(WINDOW_BYTES),
                streams_max: u32::MAX,
                connect_protocol: false,
                have_arrived: false,
            },
            must_shrink_table: false,
            unacknowledged: VecDeque::from([config.windows.stream]),
            stream_window: WINDOW_BYTES,
            send_window: i64::from(WINDOW_BYTES),
            receive: ReceiveWindow { size, available: i64::from(size), owed_bytes: 0 },
            last_peer_stream: 0,
            next_own_stream: 1,
            goaway_sent: None,
            is_leaving: false,
            has_failed: false,
            data_frames: 0,
        }
    }

    /// Returns whether the peer's preface is complete, including its SETTINGS (RFC 9113 §3.4).
    pub const fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Returns whether a field section has begun and is not complete.
    pub const fn is_within_fields(&self) -> bool {
        self.section.is_some()
    }

    /// Returns whether a GOAWAY was sent or received, after which the client opens no more streams.
    pub const fn is_leaving(&self) -> bool {
        self.is_leaving || self.goaway_sent.is_some()
    }

    /// Returns whether the peer accepts extended CONNECT (RFC 8441 §3), or `None` before its first SETTINGS frame.
    pub fn peer_connect_protocol(&self) -> Option<bool> {
        self.peer.have_arrived.then_some(self.peer.connect_protocol)
    }

    /// Returns the number of streams that the peer permits this side to have open at once, or `None` before its first
    /// SETTINGS frame.
    pub fn peer_streams_max(&self) -> Option<u32> {
        self.peer.have_arrived.then_some(self.peer.streams_max)
    }

    /// Returns whether a connection error has occurred. The connection then ignores all input.
    pub const fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Returns the number of open streams.
    pub const fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Returns the caller's state of an open stream.
    pub fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.streams.get_mut(id).map(|stream| &mut stream.data)
    }

    /// Returns the identifier of the open stream at position `index`.
    pub fn id_at(&self, index: usize) -> Option<u32> {
        self.streams.iter().nth(index).map(|stream| stream.id)
    }

    /// Closes a stream that both sides have ended, and returns the caller's state of it.
    pub fn take_done(&mut self, id: u32) -> Option<T> {
        self.streams.remove_done(id).map(|stream| stream.data)
    }

    /// Returns whether a stream is open.
    pub fn is_open(&self, id: u32) -> bool {
        self.streams.get(id).is_some()
    }

    /// Iterates over all open streams in the order of their identifiers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.streams.iter().map(|stream| (stream.id, &stream.data))
    }

    /// Iterates over all open streams in the order of their identifiers.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.streams.iter_mut().map(|stream| (stream.id, &mut stream.data))
    }

    /// Marks the connection as failed and appends a GOAWAY with the code of `error`.
    fn fail(&mut self, error: ConnectionError, output: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.has_failed, true) {
            append_goaway(self.last_handled(), error.code(), output);
        }
    }

    /// Returns the last stream identifier for a GOAWAY, which must not exceed that of an earlier GOAWAY (RFC 9113
    /// §6.8).
    fn last_handled(&self) -> u32 {
        self.goaway_sent.map_or(self.last_peer_stream, |last| last.min(self.last_peer_stream))
    }

    /// Returns whether `id` belongs to a stream that neither side has opened yet.
    const fn is_idle(&self, id: u32) -> bool {
        let is_own = (id % 2 == 1) == matches!(self.role, Role::Client);
        if is_own { id >= self.next_own_stream } else { id > self.last_peer_stream }
    }
}

/// Converts the length of a payload, which has at most 24 bits, to the type of window sizes.
const fn window_bytes(bytes: usize) -> i64 {
    bytes as u32 as i64
}

#[cfg(test)]
mod tests;
