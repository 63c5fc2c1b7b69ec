//! Signal handling for threads that are not workers: Ctrl-C, and signals that terminate a process that must clean up
//! first.

use flatout_os::runtime::build_runtime;
use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::thread;

/// Calls `handle` for each SIGINT, with the number of SIGINTs so far, on a separate thread that runs as long as the
/// process. SIGINT then no longer terminates the process.
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
    begun.recv().map_err(|_| io::Error::other("the thread that watches for Ctrl-C has exited"))?
}

/// Calls `handle` when SIGTERM, SIGHUP or SIGQUIT arrives, and then exits with 128 plus the signal's number, as shells
/// report it.
pub fn watch_endings(handle: impl FnOnce() + Send + 'static) -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (watching, begun) = std::sync::mpsc::channel();
    thread::Builder::new().name("endings".to_owned()).spawn(move || {
        let runtime = match build_runtime() {
            Ok(runtime) => runtime,
            Err(error) => return drop(watching.send(Err(error))),
        };
        runtime.block_on(async {
            let kinds = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()];
            let signals: io::Result<Vec<_>> =
                kinds.into_iter().map(|kind| Ok((kind.as_raw_value(), signal(kind)?))).collect();
            let mut signals = match signals {
                Ok(signals) => signals,
                Err(error) => return drop(watching.send(Err(error))),
            };
            drop(watching.send(Ok(())));
            let number = poll_fn(|context| {
                let mut arrived = signals
                    .iter_mut()
                    .filter_map(|(number, signal)| signal.poll_recv(context).is_ready().then_some(*number));
                arrived.next().map_or(Poll::Pending, Poll::Ready)
            })
            .await;
            handle();
            std::process::exit(128 + number);
        });
    })?;
    begun.recv().map_err(|_| io::Error::other("the thread that watches for signals has exited"))?
}
