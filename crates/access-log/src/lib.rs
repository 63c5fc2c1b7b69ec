//! The access logs: one line per request, in the combined format with three additional fields or as JSON.
//!
//! A line is staged when its response is created. It is committed when the response has been handed to the kernel or
//! was truncated; the field `ending` tells which. Lines are buffered per worker and log, and go through one bounded
//! queue to one writer thread. The writer writes only whole lines. If a target is stalled or too slow, lines are lost
//! and counted: a request never waits for its log line.
//!
//! | file | content |
//! |---|---|
//! | `failure` | failures to open a log |
//! | `record` | the logged data of a request and its response |
//! | `text` | numbers, dates and escapes as bytes |
//! | `combined`, `json`, `short`, `line` | the formats of a line, and gaps for late values |
//! | `staged`, `worker` | a worker's part: staged lines and buffers |
//! | `logs`, `queue` | all logs of a process: open, replace, reopen, close; messages to the writer |
//! | `writer`, `sink` | the writer thread, and its handling of stalled targets |
//! | `file`, `rotation`, `stream`, `syslog` | the targets |
//!
//! Compression of rotated files and network targets are deliberately not supported.

mod combined;
mod failure;
mod file;
mod json;
mod line;
mod logs;
mod queue;
mod record;
mod rotation;
mod short;
mod sink;
mod staged;
mod stream;
mod syslog;
#[cfg(test)]
mod tests;
mod text;
mod worker;
mod writer;

pub use failure::OpenError;
pub use logs::{LogCount, LogSet, Logs, Warn};
pub use record::{Description, Logged, LoggedPeer, LoggedResponse};
pub use sink::find_unusable;
pub use staged::Staged;
pub use worker::WorkerLog;
