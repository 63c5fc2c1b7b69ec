//! The error output of scripts, which is written to the server's standard error.
//!
//! A terminal or a pipe may block, so a separate thread writes. Lines that do not fit into the queue are counted, and
//! their number is logged.

use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// Maximum number of queued lines.
const LINES_WAITING_MAX: usize = 1_024;

/// Number of lines dropped since the last report.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Queues `line` for standard error, prefixed with `about`.
pub(crate) fn report(about: &str, line: &str) {
    static WRITER: OnceLock<Option<SyncSender<String>>> = OnceLock::new();
    let writer = WRITER.get_or_init(|| {
        let (sender, receiver) = sync_channel(LINES_WAITING_MAX);
        let write = move || write_lines(&receiver);
        thread::Builder::new().name("php-errors".to_owned()).spawn(write).ok().map(|_| sender)
    });
    let sent = writer.as_ref().is_some_and(|writer| writer.try_send(format!("php: {about}: {line}\n")).is_ok());
    if !sent {
        LOST.fetch_add(1, Ordering::Relaxed);
    }
}

fn write_lines(lines: &Receiver<String>) {
    while let Ok(line) = lines.recv() {
        let mut stderr = std::io::stderr().lock();
        let lost = LOST.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = writeln!(stderr, "php: {lost} lines were dropped because too many arrived at once");
        }
        // If standard error is closed, nothing can be reported.
        let _ = stderr.write_all(line.as_bytes());
    }
}
