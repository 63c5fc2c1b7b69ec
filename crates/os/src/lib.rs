//! The operating system: sockets, files below a folder, clocks, processes, runtimes.
//!
//! | file | content |
//! |---|---|
//! | [`runtime`], [`registered`], [`timer`] | a worker's runtime, its event sources, ticks |
//! | [`socket`] | listeners, socket options, the owner of a port |
//! | [`signals`] | signals through a descriptor |
//! | [`cgroup`], [`process`], [`procfs`] | limits of the process's cgroup; users, groups and inherited descriptors; /proc |
//! | [`clock`], [`process_clock`], [`local_time`] | the coarse and the precise clock; CPU time; the local time |
//! | [`memory`], [`huge`] | trimming the heap after a load peak; huge pages for memory files |
//! | [`root`], [`mod@file`] | opening names below a folder, and why it fails; unnamed files |
//! | [`block`], [`spool`] | bytes that are sent often; content that outgrows memory |
//! | [`counter`] | counters with one writer |
//!
//! Absent by design: protocols, and what is served. Only this crate may use `unsafe`.

pub mod block;
pub mod cgroup;
pub mod clock;
pub mod counter;
pub mod file;
pub mod huge;
pub mod local_time;
pub mod memory;
pub mod process;
pub mod process_clock;
pub mod procfs;
pub mod registered;
pub mod root;
pub mod runtime;
pub mod signals;
pub mod socket;
pub mod spool;
pub mod timer;
