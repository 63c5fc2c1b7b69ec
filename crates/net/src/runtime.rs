//! How a worker's runtime is built.

use std::io;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

/// Tasks polled between two looks at the kernel. tokio's default of 61 makes 64 busy connections look twice a round;
/// 256 measured at the floor of a bare epoll loop.
const EVENT_INTERVAL: u32 = 256;

/// A single-threaded runtime for the current thread. Tasks are spawned with `tokio::task::spawn_local` and need not
/// be `Send`.
pub fn build_runtime() -> io::Result<LocalRuntime> {
    Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .event_interval(EVENT_INTERVAL)
        .build_local(LocalOptions::default())
}

/// The same without tokio's timers, which are looked at on every turn: a server's worker has [`crate::timer`].
pub fn build_server_runtime() -> io::Result<LocalRuntime> {
    Builder::new_current_thread().enable_io().event_interval(EVENT_INTERVAL).build_local(LocalOptions::default())
}
