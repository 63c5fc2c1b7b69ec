//! The access logs: a line for each request, in the combined format with three fields more or as JSON.
//!
//! A line is staged when its response is made and committed when the response has been handed to the kernel, or was cut
//! short; `ending` says which. Lines gather in a buffer for each worker and log, and go through one bounded queue to one
//! thread for the process, which writes them whole. Where a target takes none, or takes them too slowly, lines are lost
//! and counted: a request never waits for its line.
//!
//! | file | what it knows |
//! |---|---|
//! | `settings` | what a log is told |
//! | `record` | what is known of a request and of its answer |
//! | `text` | numbers, dates and escapes as bytes |
//! | `combined`, `json`, `line` | the two forms of a line, and what is filled in last |
//! | `staged`, `worker` | a worker's side: lines that wait for their endings, and buffers |
//! | `logs`, `queue` | all logs of a process: opened, replaced, reopened, closed; what passes to the writer |
//! | `writer`, `sink` | the thread that writes, and what it does when a target takes nothing |
//! | `file`, `rotation`, `stream`, `syslog` | the targets |
//!
//! Absent by design: compression of files put aside, and any target that needs the network.

mod combined;
mod file;
mod json;
mod line;
mod logs;
mod queue;
mod record;
mod rotation;
mod settings;
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

pub use logs::{LogCount, LogSet, Logs, Warn};
pub use record::{Answer, Description, Logged, Peer};
pub use settings::{Field, Format, LogSettings, OpenError, Rotation, Target};
pub use staged::Staged;
pub use worker::WorkerLog;
