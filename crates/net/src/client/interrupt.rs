//! Ctrl-C for work that is no worker's.

use crate::runtime::build_runtime;
use std::io;
use std::thread;

/// Calls `handle` for each SIGINT from now on, with how many there have been, on a thread of its own that lives as long
/// as the process. SIGINT then no longer ends the process by itself.
pub fn watch_interrupts(mut handle: impl FnMut(u32) + Send + 'static) -> io::Result<()> {
    let (watching, begun) = std::sync::mpsc::channel();
    thread::Builder::new().name("interrupts".to_owned()).spawn(move || {
        let runtime = match build_runtime() {
            Ok(runtime) => runtime,
            Err(error) => return drop(watching.send(Err(error))),
        };
        runtime.block_on(async {
            let mut signals = match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt()) {
                Ok(signals) => signals,
                Err(error) => return drop(watching.send(Err(error))),
            };
            drop(watching.send(Ok(())));
            let mut count = 0_u32;
            while signals.recv().await.is_some() {
                count = count.saturating_add(1);
                handle(count);
            }
        });
    })?;
    begun.recv().map_err(|_| io::Error::other("the thread that watches for Ctrl-C has ended"))?
}
