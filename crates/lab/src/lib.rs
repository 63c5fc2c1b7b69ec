//! The load lab: benches, the machine's limits, and how both are shown.
//!
//! - [`mod@bench`] runs a closed loop against a server, and the machine's own limit beside it when asked;
//! - [`limits`] measures what this machine can do at most, with probes of our own;
//! - [`target`] finds the server's processes on this machine and what they cost;
//! - [`machine`] says what the figures were measured on;
//! - [`view`] turns results into text for people and versioned JSON;
//! - [`workload`] reads lists and logs, and writes files to be served.
//!
//! Absent on purpose: sites, files to serve, and every other part of the server. The lab sees a server as a stranger does.

pub mod agent;
pub mod bench;
pub mod cgroup;
pub mod cores;
pub mod cpu;
pub mod crowd;
pub mod limits;
pub mod machine;
pub mod procfs;
pub mod request;
pub mod spread;
pub mod target;
pub mod tree;
pub mod url;
pub mod view;
pub mod workload;
