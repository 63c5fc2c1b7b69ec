//! The settings announced to HTTP/2 clients.

use flatout_http::http2::connection::Config;
use flatout_http::http2::window::Windows;
use flatout_http::limits::Limits;

/// Concurrent streams. RFC 9113 §6.5.2 recommends at least 100; nginx and Apache allow 128 and 100.
const STREAMS_MAX: u32 = 128;

/// Initial windows: the protocol's default for each stream, and one for all streams together.
pub(super) const WINDOWS: Windows = Windows { stream: 65_535, connection: 256 * 1024 };

/// Lower bound of the connection's window, in stream windows: an upload that nobody reads leaves room for others.
pub(super) const STREAMS_PER_CONNECTION: u32 = 2;

/// Upper bound of the window growth of all clients of one worker, in bytes: enough for a few large uploads over long
/// distances.
pub(crate) const WINDOW_GROWTH_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The settings of a server with `limits`. A field section has the same bound as an HTTP/1.1 head; compressed fields
/// are counted uncompressed.
pub(super) const fn config(limits: &Limits) -> Config {
    Config { streams_max: STREAMS_MAX, windows: WINDOWS, section_bytes_max: limits.head_bytes_max }
}
