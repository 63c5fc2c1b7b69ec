//! What a client of HTTP/2 is told, and the bounds kept without telling.

use super::body::SendBody;
use super::link::Io;
use flatout_http::http2::window::Windows;
use flatout_http::limits::Limits;
use h2::server::{Builder, Handshake};

/// Streams at once. RFC 9113 §6.5.2 wants at least 100; nginx and Apache allow 128 and 100.
const STREAMS_MAX: u32 = 128;

/// What a client may send at first, before it is told that more was read: on one stream, the protocol's own default, and
/// on all streams together.
pub(super) const WINDOWS: Windows = Windows { stream: 65_535, connection: 256 * 1024 };

/// What the windows of all clients of one worker may grow by, in bytes: enough for a few large uploads from afar.
pub(crate) const WINDOW_GROWTH_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The largest frame a client may send: the protocol's least. Larger ones would hold up other streams' frames.
const FRAME_BYTES_MAX: u32 = 16 * 1024;

/// Bytes of one stream's response that are read from a file before the client's window, or the socket, takes them.
const SEND_BYTES_MAX: usize = 32 * 1024;

/// Streams that the client has reset before they were looked at. Our own watch has a name for more of them.
const PENDING_RESETS_MAX: usize = 512;

/// The protocol machine for one connection.
pub(crate) fn handshake(io: Io, limits: &Limits) -> Handshake<Io, SendBody> {
    Builder::new()
        .max_concurrent_streams(STREAMS_MAX)
        .initial_window_size(WINDOWS.stream)
        .initial_connection_window_size(WINDOWS.connection)
        .max_frame_size(FRAME_BYTES_MAX)
        // The same bound as for a head of HTTP/1.1. Compressed fields are counted as they are unpacked.
        .max_header_list_size(u32::try_from(limits.head_bytes_max).unwrap_or(u32::MAX))
        .max_send_buffer_size(SEND_BYTES_MAX)
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .handshake(io)
}
