//! Settings of an access log: target, format, fields of a line, rotation.

use std::fmt;
use std::path::PathBuf;

/// Settings of one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// Destination of the lines.
    pub target: LogDestination,
    /// Format of a line.
    pub format: LogFormat,
    /// Fields of a JSON line, in this order, without duplicates. Empty means all.
    pub fields: Vec<AccessField>,
    /// When the file is rotated. Only regular files are.
    pub rotation: Rotation,
    /// Permissions of a new file; an existing file keeps its permissions.
    pub mode: u32,
}

/// Default permissions of a log: other users cannot read the addresses of visitors.
const LOG_MODE: u32 = 0o640;

impl LogSettings {
    /// Combined lines to `target`, never rotated.
    pub const fn new(target: LogDestination) -> Self {
        let rotation = Rotation { bytes_max: None, age_max_s: None, keep: 0 };
        Self { target, format: LogFormat::Combined, fields: Vec::new(), rotation, mode: LOG_MODE }
    }
}

/// The destination of lines.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LogDestination {
    /// Appended to this file, which may also be a FIFO or a device.
    File(PathBuf),
    /// Standard output.
    Stdout,
    /// The system log, through its Unix datagram socket (RFC 3164 framing, facility daemon, severity informational).
    Syslog(PathBuf),
}

impl fmt::Display for LogDestination {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) | Self::Syslog(path) => path.display().fmt(formatter),
            Self::Stdout => formatter.write_str("on standard output"),
        }
    }
}

/// The format of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// The combined format with three additional fields: outcome, ending, duration in microseconds.
    #[default]
    Combined,
    /// Status, method, target, size and time, for a person at a terminal.
    Short,
    /// One JSON object per line.
    Json,
}

flatout_reason::reasons! {
    /// A field of a JSON line. An unknown value is `null`.
    pub enum AccessField { name, text, }
    Time, "time", "When the response was created, RFC 3339 in UTC with milliseconds; at most one tick of the kernel's coarse clock late.";
    Client, "client", "The client's address, without its port.";
    Host, "host", "The Host or :authority of the request, as received.";
    Method, "method", "The method; null when no head was understood.";
    Target, "target", "The target as received; if the head could not be parsed, the first line of the received data, up to 128 bytes.";
    Version, "version", "HTTP/1.0, HTTP/1.1 or HTTP/2.0; null when no head was understood.";
    Status, "status", "The status; null if the request had no response.";
    BodyBytes, "body_bytes", "Bytes of content of the complete response, even if it was cut short.";
    Referer, "referer", "The Referer field.";
    UserAgent, "user_agent", "The User-Agent field.";
    Outcome, "outcome", "The outcome of the handler, or the name of the refusal.";
    Ending, "ending", "How the response ended: sent, or the reason why the connection was closed before that.";
    DurationUs, "duration_us", "Microseconds from the first bytes of the request to the end of its response.";
    Tls, "tls", "Whether the request came over TLS.";
    Site, "site", "The site that responded, by its first name; null if there was none.";
    User, "user", "The user name of a verified password (RFC 7617).";
    Cache, "cache", "The result of the cache lookup; null without a cache.";
}

/// When a log file is rotated to NAME.YYYYMMDD-HHMMSS (UTC), and how many rotated files remain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// Size that a file does not exceed, in bytes; a single longer line is still written.
    pub bytes_max: Option<u64>,
    /// Age of the first line at which the file is rotated, in seconds.
    pub age_max_s: Option<u64>,
    /// Rotated files that remain, the newest ones; 0 is all.
    pub keep: u32,
}
