//! Messages about pages for operators. A separate thread writes them to standard error, so that no page waits if they
//! are read slowly.
//!
//! A page that fails usually does so for every visitor. An identical line is therefore written at most once per second,
//! with the number of omitted lines.

use flatout_os::random::HashState;
use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::io::Write as _;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

/// Maximum number of queued lines; any more are lost.
const LINES_MAX: usize = 1024;

/// Maximum number of lines remembered in order to suppress repetitions.
const REMEMBERED_MAX: usize = 1024;

/// Minimum interval between identical lines, in milliseconds.
const PAUSE_MS: u64 = 1000;

/// Minimum interval between identical lines about persistent conditions, in milliseconds.
const LONG_PAUSE_MS: u64 = 60_000;

/// Maximum length of a line, in bytes. Longer lines are truncated.
const LINE_BYTES_MAX: usize = 8 * 1024;

/// Writes messages about pages, and suppresses repetitions.
#[derive(Debug, Default)]
pub struct MessageWriter {
    writer: OnceLock<Option<SyncSender<String>>>,
    recent: Mutex<HashMap<u64, Recent, HashState>>,
    hasher: HashState,
}

#[derive(Clone, Copy, Debug)]
struct Recent {
    said_ms: u64,
    left_out: u64,
}

impl MessageWriter {
    /// Writes `line`, unless an identical line was written less than a second before `now_ms` on the monotonic clock.
    pub fn say_once(&self, line: &str, now_ms: u64) {
        if let Some(line) = self.decide(line, now_ms, PAUSE_MS) {
            self.say(line);
        }
    }

    /// Writes `line`, unless an identical line was written less than a minute before `now_ms` on the monotonic clock.
    pub fn say_rarely(&self, line: &str, now_ms: u64) {
        if let Some(line) = self.decide(line, now_ms, LONG_PAUSE_MS) {
            self.say(line);
        }
    }

    /// Writes `line` even if it is a repetition.
    pub fn say(&self, mut line: String) {
        cut(&mut line);
        line.push('\n');
        let writer = self.writer.get_or_init(start);
        // If standard error is read too slowly, lines are lost.
        let _ = writer.as_ref().map(|writer| writer.try_send(line));
    }

    fn decide(&self, line: &str, now_ms: u64, pause_ms: u64) -> Option<String> {
        let key = self.hasher.hash_one(line);
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() >= REMEMBERED_MAX && !recent.contains_key(&key) {
            recent.clear();
        }
        let before = recent.get(&key).copied();
        match before {
            Some(before) if now_ms.saturating_sub(before.said_ms) < pause_ms => {
                recent.insert(key, Recent { left_out: before.left_out + 1, ..before });
                None
            }
            _ => {
                recent.insert(key, Recent { said_ms: now_ms, left_out: 0 });
                let left_out = before.map_or(0, |before| before.left_out);
                Some(match left_out {
                    0 => line.to_owned(),
                    count => format!("{line} (after {count} more like it)"),
                })
            }
        }
    }
}

/// Turns a message into a single line of limited length, so that a page cannot forge other lines.
fn cut(line: &mut String) {
    if line.len() > LINE_BYTES_MAX {
        let end = (0..=LINE_BYTES_MAX).rev().find(|&end| line.is_char_boundary(end)).unwrap_or(0);
        line.truncate(end);
        line.push_str("...");
    }
    if line.contains(char::is_control) {
        *line = line.chars().map(|character| if character.is_control() { ' ' } else { character }).collect();
    }
}

/// Starts the thread that writes messages. Without it, no messages are written, but pages are still served.
fn start() -> Option<SyncSender<String>> {
    let (sender, lines) = sync_channel::<String>(LINES_MAX);
    let write = move || {
        for line in lines {
            // Pages are served even if standard error has been closed.
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    };
    thread::Builder::new().name("pages-log".into()).spawn(write).ok().map(|_| sender)
}

#[cfg(test)]
mod tests {
    use super::{LINE_BYTES_MAX, LONG_PAUSE_MS, MessageWriter, PAUSE_MS, REMEMBERED_MAX, cut};

    #[test]
    fn the_same_line_is_said_once_a_second() {
        let told = MessageWriter::default();
        assert_eq!(told.decide("a", 0, PAUSE_MS).as_deref(), Some("a"));
        assert_eq!((told.decide("a", 10, PAUSE_MS), told.decide("a", 999, PAUSE_MS)), (None, None));
        assert_eq!(told.decide("b", 10, PAUSE_MS).as_deref(), Some("b"));
        assert_eq!(told.decide("a", 1000, PAUSE_MS).as_deref(), Some("a (after 2 more like it)"));
        assert_eq!(told.decide("a", 2000, PAUSE_MS).as_deref(), Some("a"));
        assert_eq!(told.decide("a", 61_999, LONG_PAUSE_MS), None);
        assert_eq!(told.decide("a", 62_000, LONG_PAUSE_MS).as_deref(), Some("a (after 1 more like it)"));
        for number in 0..REMEMBERED_MAX * 3 {
            told.decide(&number.to_string(), 0, PAUSE_MS);
        }
        assert!(told.recent.lock().unwrap().len() <= REMEMBERED_MAX);
    }

    #[test]
    fn a_line_is_one_line_of_bounded_length() {
        let mut line = format!("a\nb\x1b[1m{}", "\u{e4}".repeat(LINE_BYTES_MAX));
        cut(&mut line);
        assert!(line.starts_with("a b [1m") && line.ends_with("..."));
        assert!(line.len() <= LINE_BYTES_MAX + 3);
    }
}
