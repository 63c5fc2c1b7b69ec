//! The load lab: benches, the machine's limits, and their presentation.
//!
//! - [`mod@bench`] runs a load against a server and, if requested, measures the machine's own limit for comparison;
//! - [`limits`] measures the limits of this machine with built-in probes;
//! - [`target`] finds the server's processes on this machine and their resource use;
//! - [`machine`] describes the machine;
//! - [`view`] renders results as text and versioned JSON;
//! - [`workload`] reads lists and logs, and writes sets of files to be served.
//!
//! By design, the lab knows nothing of sites, files to serve, or any other part of the flatout server. It treats
//! flatout like any other server.

pub mod agent;
pub mod bench;
pub mod cgroup;
pub mod cores;
pub mod cpu;
pub mod cpu_roles;
pub mod limits;
pub mod machine;
pub mod request;
pub mod resolve;
pub mod spread;
pub mod target;
pub mod tree;
pub mod view;
pub mod workload;
