//! One side of an HTTP/2 connection (RFC 9113), without I/O: received bytes in, events out; what is to be sent is
//! appended to the caller's buffer.
//!
//! | file | contents |
//! |---|---|
//! | `receiving` | received frames |
//! | `sending` | heads, content, resets, GOAWAY |
//! | `windows` | flow control |
//!
//! The connection checks every rule of streams, windows and settings. The caller gives it the rest of a frame once that
//! has arrived, returns credit for content that it has taken, and sends only what the windows permit.

mod receiving;
mod sending;
mod windows;

pub use receiving::Event;

use super::flood::{Flood, FloodGuard};
use super::frame::{ErrorCode, PREFACE, append_frame, append_goaway, kind, setting};
use super::hpack::Decoder;
use super::stream::StreamTable;
use super::window::Windows;
use std::collections::VecDeque;

/// Window of each stream, and of the connection, before any setting (RFC 9113 §6.9.2).
const WINDOW_BYTES: u32 = 65_535;

/// Largest window (RFC 9113 §6.9.1).
const WINDOW_BYTES_MAX: i64 = 0x7fff_ffff;

/// The side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The side that connected.
    Client,
    /// The side that accepted.
    Server,
}

/// Settings that one side announces.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Streams that a client may have open.
    pub streams_max: u32,
    /// Initial windows.
    pub windows: Windows,
    /// Size of a field section, in bytes.
    pub section_bytes_max: usize,
}

/// Why a connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offence {
    /// The peer violated the protocol.
    Protocol,
    /// A field section exceeds its limit many times, or content comes in tiny frames that nobody reads.
    Excess,
    /// Too many frames of a kind.
    Flood(Flood),
}

/// A connection error. A GOAWAY with its code has been appended to the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionError {
    /// The code in GOAWAY.
    pub code: ErrorCode,
    /// Its kind.
    pub offence: Offence,
}

impl ConnectionError {
    const fn protocol(code: ErrorCode) -> Self {
        Self { code, offence: Offence::Protocol }
    }
}

/// Credit that this side has granted the peer for the whole connection.
#[derive(Debug)]
struct ReceiveWindow {
    /// The size to which the window returns.
    size: u32,
    /// Bytes that the peer may send.
    available: i64,
    /// Bytes that were taken and not yet returned.
    owed_bytes: u32,
}

/// The peer's settings that matter to this side.
#[derive(Clone, Copy, Debug)]
struct PeerSettings {
    initial_window: i64,
    streams_max: u32,
}

/// A field section that is still arriving.
#[derive(Debug)]
struct OpenSection {
    stream: u32,
    ends: bool,
    depends_on_itself: bool,
    block: Vec<u8>,
}

/// One side of a connection. `T` is the caller's state of a stream.
#[derive(Debug)]
pub struct Connection<T> {
    role: Role,
    config: Config,
    decoder: Decoder,
    /// For servers.
    guard: Option<FloodGuard>,
    streams: StreamTable<T>,
    /// Bytes of the client's preface still to come.
    preface_left: usize,
    /// Bytes of an oversized payload still to be skipped.
    skip_bytes: usize,
    /// The peer's first SETTINGS has arrived.
    has_begun: bool,
    section: Option<OpenSection>,
    peer: PeerSettings,
    /// The peer's encoder-size setting is below the default: the next block begins with an update.
    must_shrink_table: bool,
    /// Initial windows that were announced and are not acknowledged.
    unacknowledged: VecDeque<u32>,
    /// Initial window of streams that the peer opens, as acknowledged.
    stream_window: u32,
    send_window: i64,
    receive: ReceiveWindow,
    /// Highest stream that the peer has opened.
    last_peer_stream: u32,
    next_own_stream: u32,
    /// The last stream in the GOAWAY that was sent.
    goaway_sent: Option<u32>,
    /// The peer wants no more streams.
    is_leaving: bool,
    has_failed: bool,
    /// DATA frames sent.
    data_frames: u64,
}

impl<T> Connection<T> {
    /// A connection, whose preface and settings are appended to `output`.
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
            peer: PeerSettings { initial_window: i64::from(WINDOW_BYTES), streams_max: u32::MAX },
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

    /// Returns whether a field section is arriving.
    pub const fn is_within_fields(&self) -> bool {
        self.section.is_some()
    }

    /// Returns whether a GOAWAY was sent or received: the client opens no more streams.
    pub const fn is_leaving(&self) -> bool {
        self.is_leaving || self.goaway_sent.is_some()
    }

    /// Returns whether a connection error has ended the connection.
    pub const fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Number of open streams.
    pub const fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// The caller's state of an open stream.
    pub fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.streams.get_mut(id).map(|stream| &mut stream.data)
    }

    /// The identifier of an open stream by its position.
    pub fn id_at(&self, index: usize) -> Option<u32> {
        self.streams.iter().nth(index).map(|stream| stream.id)
    }

    /// Closes a stream that both sides have ended.
    pub fn take_done(&mut self, id: u32) -> Option<T> {
        self.streams.remove_done(id).map(|stream| stream.data)
    }

    /// Returns whether a stream is open.
    pub fn is_open(&self, id: u32) -> bool {
        self.streams.get(id).is_some()
    }

    /// All open streams, in the order of their identifiers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.streams.iter().map(|stream| (stream.id, &stream.data))
    }

    /// All open streams.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.streams.iter_mut().map(|stream| (stream.id, &mut stream.data))
    }

    /// Ends the connection: appends a GOAWAY with the error's code.
    fn fail(&mut self, error: ConnectionError, output: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.has_failed, true) {
            append_goaway(self.last_handled(), error.code, output);
        }
    }

    /// The last stream in a GOAWAY: that of an earlier one is never exceeded (RFC 9113 §6.8).
    fn last_handled(&self) -> u32 {
        self.goaway_sent.map_or(self.last_peer_stream, |last| last.min(self.last_peer_stream))
    }

    /// Returns whether `id` belongs to a stream that nobody has opened.
    const fn is_idle(&self, id: u32) -> bool {
        let is_own = (id % 2 == 1) == matches!(self.role, Role::Client);
        if is_own { id >= self.next_own_stream } else { id > self.last_peer_stream }
    }
}

/// The part of a window that `bytes` take: a payload has a length of 24 bits.
const fn window_bytes(bytes: usize) -> i64 {
    bytes as u32 as i64
}

#[cfg(test)]
mod tests;
