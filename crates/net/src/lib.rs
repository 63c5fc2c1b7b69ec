//! Sockets and the operating system: runtimes, listeners, the server's and the client's connections, deadlines,
//! access logs.
//!
//! Each worker has a single-threaded tokio runtime and its own SO_REUSEPORT listener; workers share nothing but
//! counters, each with one writer. A request on the hot path is: wait, receive, send.
//!
//! | file | content |
//! |---|---|
//! | [`runtime`], [`registered`] | a worker's runtime and its event sources |
//! | [`socket`] | listeners, socket options, the owner of a port |
//! | [`cgroup`] | limits of the process's cgroup |
//! | [`process`] | users and groups, inherited descriptors |
//! | [`timer`], [`memory`], [`huge`] | ticks; trimming the heap after a load peak; huge pages for memory files |
//! | [`budget`] | one bound for the memory of content |
//! | [`clock`] | the coarse clock and the Date field |
//! | [`deadline`] | deadlines of connections |
//! | [`response`], [`shared`], [`mod@file`], [`routed`] | responses and their bodies |
//! | [`root`] | opening names below a folder, and why it fails |
//! | [`stream`], [`content`] | streamed content in both directions |
//! | [`handler`], [`owned`] | the interface of a site; a request that outlives its turn |
//! | [`ending`], [`counters`], [`access`] | close reasons, counters, access logs |
//! | [`tls`] | certificates by name, sessions, failures |
//! | `http2`, `windows` | HTTP/2 over the same handler; flow-control windows |
//! | [`server`], [`client`] | the two roles of the HTTP/1.1 core, on sockets |
//! | [`origin`] | connections to origin servers |
//! | [`fastcgi`] | connections to application servers |
//!
//! Absent by design: the content that is served, and the evaluation of load. Only this crate may use `unsafe`.

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
pub(crate) mod exchange;
pub mod fastcgi;
pub mod file;
pub mod handler;
pub(crate) mod http2;
pub mod huge;
pub mod memory;
pub mod origin;
pub mod owned;
mod page;
pub mod process;
pub mod process_clock;
pub mod procfs;
pub mod registered;
pub mod response;
pub mod root;
pub mod routed;
pub mod runtime;
pub mod server;
pub mod shared;
pub mod socket;
pub mod spool;
pub mod stream;
pub mod task_deadlines;
pub mod timer;
pub mod tls;
pub(crate) mod transport;
mod windows;
