//! Where scripts' complaints go: the server's standard error, which its supervisor keeps.
//!
//! A terminal or a pipe may take its time, and an event loop has none; so a thread of its own writes. What it has no room
//! for is counted, and said.

use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// Lines that wait to be written at the most.
const LINES_WAITING_MAX: usize = 1_024;

/// Lines that had no room.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Has `line` written, with what it concerns before it.
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
            let _ = writeln!(stderr, "php: {lost} lines were lost, as there were too many at once");
        }
        // Where nobody reads, nothing can be said.
        let _ = stderr.write_all(line.as_bytes());
    }
}
