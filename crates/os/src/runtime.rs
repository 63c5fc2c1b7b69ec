//! Construction of a worker's runtime.

use std::io;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

/// Number of tasks polled between two polls of the kernel. With tokio's default of 61, 64 busy connections cause two
/// polls per round; 256 measured equal to a bare epoll loop.
const EVENT_INTERVAL: u32 = 256;

/// Builds a single-threaded runtime for the current thread. Tasks are spawned with `tokio::task::spawn_local` and need
/// not be `Send`.
pub fn build_runtime() -> io::Result<LocalRuntime> {
    Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .event_interval(EVENT_INTERVAL)
        .build_local(LocalOptions::default())
}

/// Builds the same runtime as [`build_runtime`] but without tokio's timers, which cost time on every turn. A server's
/// worker uses [`crate::timer`] instead.
pub fn build_server_runtime() -> io::Result<LocalRuntime> {
    Builder::new_current_thread().enable_io().event_interval(EVENT_INTERVAL).build_local(LocalOptions::default())
}
