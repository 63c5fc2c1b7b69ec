//! What the operating system tells the server: SIGTERM and SIGINT to stop, SIGUSR1 to open its logs anew
//! and to say what it has counted.

use super::worker::Phase;
use std::future::poll_fn;
use std::io;
use std::task::Poll;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Where the phase is set and read.
pub fn phase_channel() -> (watch::Sender<Phase>, watch::Receiver<Phase>) {
    watch::channel(Phase::Serve)
}

/// Follows the signals: the first to stop begins the drain, the second ends it. `report` is called on SIGUSR1.
///
/// # Errors
/// When the kernel takes no handler. Must be called within a worker's runtime.
pub async fn follow_signals(phase: &watch::Sender<Phase>, report: impl Fn()) -> io::Result<()> {
    let mut stops = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
    let mut reports = signal(SignalKind::user_defined1())?;
    loop {
        let stop = poll_fn(|context| {
            let mut received = |signal: &mut Signal| matches!(signal.poll_recv(context), Poll::Ready(Some(())));
            if stops.iter_mut().any(&mut received) {
                Poll::Ready(true)
            } else if received(&mut reports) {
                Poll::Ready(false)
            } else {
                Poll::Pending
            }
        })
        .await;
        if stop {
            phase.send_modify(|phase| *phase = if *phase == Phase::Serve { Phase::Drain } else { Phase::Abandon });
        } else {
            report();
        }
    }
}
