//! All sockets live here: runtimes, listeners, the server's pump and the client's, deadlines, the access log.
//!
//! One single-threaded tokio runtime per worker, each with its own SO_REUSEPORT listener; nothing is shared between
//! workers but counters, which each writes alone. The life of a request on the hot path is: wait, receive, send.
//!
//! | file | what it knows |
//! |---|---|
//! | [`runtime`], [`registered`] | how a worker's runtime is built, and what it waits for |
//! | [`socket`] | listeners, socket options, who holds a port |
//! | [`cgroup`] | what the process's cgroup allows |
//! | [`process`] | who the process is, and descriptors it was started with |
//! | [`timer`], [`memory`], [`huge`] | ticks; memory given back after a crowd; huge pages for memory files |
//! | [`budget`] | one bound for the memory that content takes |
//! | [`clock`] | the time, coarse and cheap, and the Date field |
//! | [`deadline`] | when each connection's patience ends |
//! | [`response`], [`shared`], [`mod@file`], [`page`] | what a handler answers with |
//! | [`root`] | opening below a folder, and why a name cannot be opened |
//! | [`stream`], [`content`] | content that comes bit by bit, either way |
//! | [`handler`], [`owned`] | what a site is to this crate; a request that is kept |
//! | [`ending`], [`counters`], [`access`] | every reason by name, counted and logged |
//! | [`tls`] | certificates by name, sessions, why they fail |
//! | `http2`, `windows` | HTTP/2 over the same handler; how large a connection's windows are |
//! | [`server`], [`client`] | the two roles of the HTTP/1.1 core, on sockets |
//! | [`origin`] | this process as a client of origin servers |
//! | [`fastcgi`] | connections to application servers |
//!
//! Absent by design: what is served and how load is judged. This crate alone may use `unsafe`.

pub mod access;
pub mod block;
pub mod budget;
pub mod cgroup;
pub mod client;
pub mod clock;
pub mod content;
pub mod counters;
pub mod deadline;
pub mod ending;
pub mod fastcgi;
pub mod file;
pub mod handler;
pub(crate) mod http2;
pub mod huge;
pub mod memory;
pub mod origin;
pub mod owned;
pub mod page;
pub mod process;
pub mod process_clock;
pub mod registered;
pub mod response;
pub mod root;
pub mod runtime;
pub mod server;
pub mod shared;
pub mod socket;
pub mod stream;
pub mod timer;
pub mod tls;
mod windows;
