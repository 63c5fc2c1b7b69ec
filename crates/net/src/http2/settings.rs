//! What a client of HTTP/2 is told, and the bounds kept without telling.

use super::body::SendBody;
use super::link::Io;
use flatout_http::limits::Limits;
use h2::server::{Builder, Handshake};

/// Streams at once. RFC 9113 §6.5.2 wants at least 100; nginx and Apache allow 128 and 100.
const STREAMS_MAX: u32 = 128;

/// What a client may send on one stream before it is told that more was read. The protocol's own default: request
/// content is not what this server is for.
const STREAM_WINDOW_BYTES: u32 = 65_535;

/// The same for all streams together.
const CONNECTION_WINDOW_BYTES: u32 = 256 * 1024;

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
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        // The same bound as for a head of HTTP/1.1. Compressed fields are counted as they are unpacked.
        .max_header_list_size(u32::try_from(limits.head_bytes_max).unwrap_or(u32::MAX))
        .max_send_buffer_size(SEND_BYTES_MAX)
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .handshake(io)
}
