//! Active pages: HTML with insertion points in Luau, compiled once by [`flatout_template`], run in one sandboxed
//! interpreter per worker.
//!
//! A request arrives at [`PagesWorker::handle`], which finds its page in a [`PageFolder`] and runs its first slice
//! immediately; mostly that completes the response. A page that waits, or computes longer, becomes a future; one that
//! calls `flush()`, a stream.
//!
//! | file | content |
//! |---|---|
//! | [`sandbox`] | the interpreter, and its limits of time and memory |
//! | [`exchange`] | the state of a running page |
//! | [`api`] | the API of pages |
//! | [`step`], [`open`] | a `pages` or `page` step, shared by all workers; its databases and other resources |
//! | [`folder`], `page` | from a path to a compiled and validated page; one page |
//! | [`worker`] | handling a request on one worker |
//! | `job`, `queue` | runs that continue later, and their scheduling |
//! | [`mod@check`] | compiling pages without running them; a folder of them on disk |
//! | [`backlog`] | output buffered for clients, and its bounds |
//! | `answer`, `dev` | heads and contents; errors in the browser, and automatic reload |
//! | [`outcome`], [`messages`] | outcomes of responses; messages for operators |
//!
//! Absent by design: sockets, sites, routes, files that are not pages.

mod answer;
pub mod api;
pub mod backlog;
pub mod check;
mod dev;
pub mod exchange;
pub mod folder;
mod job;
pub mod messages;
pub mod open;
pub mod outcome;
mod page;
mod queue;
pub mod sandbox;
pub mod step;
pub mod worker;

pub use folder::{PageFolder, SOURCE_ENDINGS};
pub use outcome::PageOutcome;
pub use step::{PagesShared, PagesStep};
pub use worker::PagesWorker;
