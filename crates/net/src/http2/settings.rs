//! The settings announced to HTTP/2 clients, and limits that are not announced.

use super::body::SendBody;
use super::link::Io;
use flatout_http::http2::window::Windows;
use flatout_http::limits::Limits;
use h2::server::{Builder, Handshake};

/// Concurrent streams. RFC 9113 §6.5.2 recommends at least 100; nginx and Apache allow 128 and 100.
const STREAMS_MAX: u32 = 128;

/// Initial windows: the protocol's default for each stream, and one for all streams together.
pub(super) const WINDOWS: Windows = Windows { stream: 65_535, connection: 256 * 1024 };

/// Upper bound of the window growth of all clients of one worker, in bytes: enough for a few large uploads over long
/// distances.
pub(crate) const WINDOW_GROWTH_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The largest frame a client may send: the protocol's minimum. Larger ones would delay other streams' frames.
const FRAME_BYTES_MAX: u32 = 16 * 1024;

/// Bytes of one stream's response that are read from a file ahead of the client's window or the socket.
const SEND_BYTES_MAX: usize = 32 * 1024;

/// Streams reset by the client before they were processed. More of them are detected and named by the link's own
/// inspection.
const PENDING_RESETS_MAX: usize = 512;

/// The protocol machine for one connection.
pub(crate) fn handshake(io: Io, limits: &Limits) -> Handshake<Io, SendBody> {
    Builder::new()
        .max_concurrent_streams(STREAMS_MAX)
        .initial_window_size(WINDOWS.stream)
        .initial_connection_window_size(WINDOWS.connection)
        .max_frame_size(FRAME_BYTES_MAX)
        // The same bound as for an HTTP/1.1 head. Compressed fields are counted uncompressed.
        .max_header_list_size(u32::try_from(limits.head_bytes_max).unwrap_or(u32::MAX))
        .max_send_buffer_size(SEND_BYTES_MAX)
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .handshake(io)
}
