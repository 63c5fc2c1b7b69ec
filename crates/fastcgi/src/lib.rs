//! A client for FastCGI 1.0: records and variables, and the handler for PHP-FPM.
//!
//! | file | contents |
//! |---|---|
//! | [`record`], [`params`] | FastCGI framing in both directions |
//! | [`variables`] | request variables (RFC 3875 §4) |
//! | [`head`] | head of a response (RFC 3875 §6) |
//! | [`split`] | mapping of a path to a script |
//! | [`lines`], `errors` | error output of scripts |
//! | [`step`], [`worker`] | a `php` step of the configuration; handling its requests on one worker |
//! | `upload` | sending a request |
//! | `exchange`, `answer` | a FastCGI request; conversion of its response |
//! | [`outcome`] | reasons for responses |
//!
//! Records, variables, heads and the mapping of paths use neither sockets nor a clock. Absent by design: connections
//! (see `flatout_upstream::fastcgi`), and the folders from which scripts may send files, which the engine checks.

mod answer;
mod errors;
mod exchange;
pub mod head;
pub mod lines;
pub mod outcome;
pub mod params;
pub mod record;
pub mod split;
pub mod step;
mod upload;
pub mod variables;
pub mod worker;

pub use outcome::PhpOutcome;
pub use split::{Meaning, PassReason};
pub use step::PhpStep;
pub use worker::{FileName, FileWanted, PhpWorker};
