//! Active pages: HTML with insertion points in Luau, compiled once into segments, run in one sandboxed interpreter a worker.
//!
//! A request comes to [`PagesWorker::handle`], which finds its page in a [`Folder`], runs its first slice at once, and mostly
//! has the answer then. A page that waits, or computes for longer, becomes a future; one that calls `flush()`, a stream.
//!
//! | file | what it knows |
//! |---|---|
//! | [`template`] | from the text of a page to segments and what is run |
//! | [`sandbox`] | the interpreter, and what it may use of time and memory |
//! | [`exchange`] | what a running page works on |
//! | [`api`] | what a page can call |
//! | [`step`], [`open`] | a `pages` or `page` step, shared by all workers; what its pages keep and ask |
//! | [`folder`], `page` | from a path to a page, compiled and looked at again; one page |
//! | [`worker`], [`asking`] | a request answered on one worker |
//! | `job`, `queue`, `deadlines` | runs that go on later, whose turn it is, and by when they must have ended |
//! | [`mod@check`] | pages compiled without running them |
//! | [`backlog`] | output that waits for clients, and how much of it there may be |
//! | `answer`, `dev` | heads and contents; errors in the browser, and pages that load again |
//! | [`outcome`], [`told`] | why each answer was what it was; what operators are told |
//!
//! Absent by design: sockets, sites, routes, files that are no pages.

mod answer;
pub mod api;
pub mod asking;
pub mod backlog;
pub mod check;
mod deadlines;
mod dev;
pub mod exchange;
pub mod folder;
mod job;
pub mod open;
pub mod outcome;
mod page;
mod queue;
pub mod sandbox;
pub mod step;
pub mod template;
pub mod told;
pub mod worker;

pub use asking::{Asking, Changes, Handled, Making, Refused};
pub use folder::{Folder, SOURCE_ENDINGS};
pub use outcome::{Outcome, PageOutcome};
pub use step::{PagesShared, PagesStep};
pub use worker::PagesWorker;
