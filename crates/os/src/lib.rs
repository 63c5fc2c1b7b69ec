//! The operating system: sockets, files, clocks, processes, runtimes.
//!
//! | file | content |
//! |---|---|
//! | [`runtime`], [`registered`], [`timer`] | a worker's runtime, its event sources, ticks |
//! | [`socket`], [`connecting`], [`datagram`] | listeners, socket options, the owner of a port; connecting to servers; UDP sockets and their steering |
//! | [`send_memory`] | kernel memory of data that clients have not acknowledged |
//! | [`tun`] | network interfaces of this process |
//! | [`signals`] | signals received through a descriptor |
//! | [`cgroup`], [`process`], [`procfs`] | limits of the process's cgroup; users, groups and inherited descriptors; /proc |
//! | [`clock`], [`process_clock`], [`local_time`] | the coarse and the precise clock; CPU time; the local time |
//! | [`random`] | random bytes and the keys of hash tables |
//! | [`memory`], [`huge`] | trimming the heap after a load peak; huge pages for memory files |
//! | [`root`], [`mod@file`] | opening names below a folder, and the reasons for failure; open and unnamed files |
//! | [`block`], [`spool`] | bytes that are sent often; content that outgrows memory |
//! | [`counter`] | counters with one writer |
//! | `entered` | replacements for the clocks, randomness or network of one thread, for tests and simulations |
//!
//! Absent by design: protocols and served content. Only this crate may use `unsafe`.

pub mod block;
pub mod cgroup;
pub mod clock;
pub mod connecting;
pub mod counter;
pub mod datagram;
#[cfg(any(test, feature = "settable-clock", feature = "simulation"))]
pub mod entered;
pub mod file;
pub mod huge;
pub mod local_time;
pub mod memory;
pub mod process;
pub mod process_clock;
pub mod procfs;
pub mod random;
pub mod registered;
pub mod root;
pub mod runtime;
#[cfg(any(test, feature = "settable-clock"))]
mod seeded_random;
pub mod send_memory;
#[cfg(any(test, feature = "settable-clock"))]
mod settable_clock;
pub mod signals;
pub mod socket;
pub mod spool;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod timer;
pub mod tun;
