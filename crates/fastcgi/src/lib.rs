//! FastCGI 1.0 as a client: records and variables as values, and the handler in front of PHP-FPM.
//!
//! | file | what it knows |
//! |---|---|
//! | [`record`], [`params`] | FastCGI's framing, both ways |
//! | [`variables`] | what a script is told of its request (RFC 3875 §4) |
//! | [`head`] | what a script says of its answer (RFC 3875 §6) |
//! | [`split`] | which script a path means, if any |
//! | [`lines`], `errors` | what scripts have to say to whoever runs them, and where that goes |
//! | [`step`], [`worker`] | one `php` step of the configuration; what one worker answers with |
//! | `upload`, `spool` | a request on its way; content whose length is not told |
//! | `exchange`, `answer` | one request to the application server; its answer as one of ours |
//! | [`outcome`] | why each answer was what it was |
//!
//! The records, the variables, the heads and the splitting know no socket and no clock. Absent by design: connections
//! (`flatout_net::fastcgi` has them), and which files scripts may have sent (the engine knows the folders).

mod answer;
mod errors;
mod exchange;
pub mod head;
pub mod lines;
pub mod outcome;
pub mod params;
pub mod record;
pub mod split;
mod spool;
pub mod step;
mod upload;
pub mod variables;
pub mod worker;

pub use outcome::Outcome;
pub use split::{Meaning, PassReason};
pub use step::PhpStep;
pub use worker::{Asking, FileName, FileWanted, Handled, Made, PhpWorker, Refused};
