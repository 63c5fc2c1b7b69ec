//! Active pages: HTML with insertion points in Luau. [`flatout_template`] compiles a page once, and one sandboxed
//! interpreter per worker runs it.
//!
//! A request arrives at [`PagesWorker::handle`], which finds its page in a [`PageFolder`] and runs the first slice of
//! the page immediately. Usually, that completes the response. A page that waits, or that computes for longer, becomes
//! a future. A page that calls `flush()` becomes a stream.
//!
//! | file | content |
//! |---|---|
//! | [`sandbox`] | the interpreter, and its time and memory limits |
//! | [`exchange`] | the state of a running page |
//! | [`api`] | the API of pages |
//! | [`step`], [`open`] | a `pages` or `page` step, shared by all workers; its databases and other resources |
//! | [`folder`], `page` | from a path to a compiled and validated page; a single page |
//! | [`worker`] | handling requests on one worker |
//! | `job`, `queue` | runs that continue later, and their scheduling |
//! | [`mod@check`] | compiling pages without running them; reading them from a folder on disk |
//! | [`backlog`] | output buffered for clients, and its limits |
//! | `answer`, `ranged`, `dev` | response heads and content; ranges; errors in the browser, and automatic reload |
//! | [`outcome`], [`messages`] | outcomes of responses; messages for operators |
//!
//! Absent by design: sockets, sites, routes, and files that are not pages.

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
mod ranged;
pub mod sandbox;
pub mod step;
pub mod worker;

pub use folder::{PageFolder, SOURCE_ENDINGS};
pub use outcome::PageOutcome;
pub use step::{PagesShared, PagesStep};
pub use worker::PagesWorker;
