//! Settings of an access log: destination, format, fields and rotation.

use std::path::PathBuf;

/// Settings of one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// Where the lines go.
    pub target: LogDestination,
    /// Format of the lines.
    pub format: LogFormat,
    /// Fields of a JSON line, in this order, without duplicates. Empty means all.
    pub fields: Vec<AccessField>,
    /// When the file is rotated. Only regular files are rotated.
    pub rotation: Rotation,
    /// Permission bits of a newly created file. An existing file keeps its permissions.
    pub mode: u32,
}

/// Default permissions of a log file: other users must not read client addresses.
const LOG_MODE: u32 = 0o640;

impl LogSettings {
    /// Returns settings that write combined lines to `target` and never rotate the file.
    pub const fn new(target: LogDestination) -> Self {
        let rotation = Rotation { bytes_max: None, age_max_s: None, keep: 0 };
        Self { target, format: LogFormat::Combined, fields: Vec::new(), rotation, mode: LOG_MODE }
    }
}

/// Where log lines go.
#[derive(Clone, Debug, PartialEq, Eq, Hash, derive_more::Display)]
pub enum LogDestination {
    /// This file, which may also be a FIFO or a device. Lines are appended.
    #[display("{}", _0.display())]
    File(PathBuf),
    /// Standard output.
    #[display("on standard output")]
    Stdout,
    /// The system log, through its Unix datagram socket (RFC 3164 framing, facility daemon, severity informational).
    #[display("{}", _0.display())]
    Syslog(PathBuf),
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// The combined format with three additional fields: outcome, ending, and duration in microseconds.
    #[default]
    Combined,
    /// Status, method, target, size and time, for reading in a terminal.
    Short,
    /// One JSON object per line.
    Json,
}

flatout_reason::reasons! {
    /// A field of a JSON line. A field without a value is `null`.
    pub enum AccessField { name, text, }
    Time, "time", "When the response was created, in RFC 3339 format, UTC, with milliseconds; at most one tick of the kernel's coarse clock late.";
    Client, "client", "The client's address, without its port.";
    Host, "host", "The Host or :authority of the request, as received.";
    Method, "method", "The method; null if no head could be parsed.";
    Target, "target", "The target as received; if the head could not be parsed, the first line of the received data, up to 128 bytes.";
    Version, "version", "HTTP/1.0, HTTP/1.1 or HTTP/2.0; null if no head could be parsed.";
    Status, "status", "The status; null if the request had no response.";
    BodyBytes, "body_bytes", "Content bytes of the complete response, even if the response was cut short.";
    Referer, "referer", "The Referer field.";
    UserAgent, "user_agent", "The User-Agent field.";
    Outcome, "outcome", "The outcome of the handler, or the name of the refusal.";
    Ending, "ending", "How the response ended: sent, or the reason why the connection closed before the response was complete.";
    DurationUs, "duration_us", "Microseconds from the first bytes of the request to the end of its response.";
    Tls, "tls", "Whether the request arrived over TLS.";
    Site, "site", "The site that responded, by its first name; null if there was none.";
    User, "user", "The user name, if its password was verified (RFC 7617).";
    Cache, "cache", "`storing` if the response from the origin is stored, or the reason why not, including `no_room`, `too_large` and `incomplete`, which are sometimes found after the head was sent; null for stored responses, whose lookup result is `outcome`, and without a cache.";
}

/// When a log file is rotated to NAME.YYYYMMDD-HHMMSS (UTC), and how many rotated files are retained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// Maximum size of a file, in bytes. A single line longer than this is still written.
    pub bytes_max: Option<u64>,
    /// Age at which the file is rotated, in seconds, measured from its first line.
    pub age_max_s: Option<u64>,
    /// Number of rotated files to keep, newest first. 0 keeps all of them.
    pub keep: u32,
}
