//! The settings announced to HTTP/2 clients.

use flatout_http::http2::connection::Config;
use flatout_http::http2::window::Windows;
use flatout_http::limits::Limits;

/// Maximum concurrent streams. RFC 9113 §6.5.2 recommends at least 100; nginx allows 128 and Apache 100.
const STREAMS_MAX: u32 = 128;

/// Initial windows in bytes: the protocol's default for each stream, and a larger one for the connection.
pub(super) const WINDOWS: Windows = Windows { stream: 65_535, connection: 256 * 1024 };

/// Minimum size of the connection's window, in stream windows: an upload that is not read must leave room for others.
pub(super) const STREAMS_PER_CONNECTION: u32 = 2;

/// Returns the settings of a server with `limits`. The uncompressed size of a field section counts.
pub(super) const fn config(limits: &Limits) -> Config {
    Config { streams_max: STREAMS_MAX, windows: WINDOWS, section_bytes_max: limits.section_bytes_max() }
}
