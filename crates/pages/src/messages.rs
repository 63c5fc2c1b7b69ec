//! Messages about pages for operators: lines on standard error, written by a separate thread, so that no page waits
//! for their reader.
//!
//! A failing page fails for every visitor: an identical line appears at most once a second, with the number of
//! omitted ones.

use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::io::Write as _;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

/// Upper bound of queued lines; more are lost.
const LINES_MAX: usize = 1024;

/// Upper bound of remembered lines, for the suppression of repetitions.
const REMEMBERED_MAX: usize = 1024;

/// Interval between identical lines, in milliseconds.
const PAUSE_MS: u64 = 1000;

/// Interval between identical lines about persistent conditions, in milliseconds.
const LONG_PAUSE_MS: u64 = 60_000;

/// Upper bound of a line, in bytes; longer ones are cut.
const LINE_BYTES_MAX: usize = 8 * 1024;

/// The writer of messages.
#[derive(Debug, Default)]
pub struct MessageWriter {
    writer: OnceLock<Option<SyncSender<String>>>,
    recent: Mutex<HashMap<u64, Recent, RandomState>>,
    hasher: RandomState,
}

#[derive(Clone, Copy, Debug)]
struct Recent {
    said_ms: u64,
    left_out: u64,
}

impl MessageWriter {
    /// Writes `line` at `now_ms` on the monotonic clock, unless an identical one was written less than a second ago.
    pub fn say_once(&self, line: &str, now_ms: u64) {
        if let Some(line) = self.decide(line, now_ms, PAUSE_MS) {
            self.say(line);
        }
    }

    /// Writes `line` at `now_ms` on the monotonic clock, unless an identical one was written less than a minute ago.
    pub fn say_rarely(&self, line: &str, now_ms: u64) {
        if let Some(line) = self.decide(line, now_ms, LONG_PAUSE_MS) {
            self.say(line);
        }
    }

    /// Writes `line` unconditionally.
    pub fn say(&self, mut line: String) {
        cut(&mut line);
        line.push('\n');
        let writer = self.writer.get_or_init(start);
        // If the reader is too slow, lines are lost.
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
                    count => format!("{line} (and {count} more like it before)"),
                })
            }
        }
    }
}

/// Limits a message to one line, so that a page cannot forge other lines.
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

/// Without a thread no messages are written, but pages are served.
fn start() -> Option<SyncSender<String>> {
    let (sender, lines) = sync_channel::<String>(LINES_MAX);
    let write = move || {
        for line in lines {
            // A closed standard error is not a reason to stop.
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
        assert_eq!(told.decide("a", 1000, PAUSE_MS).as_deref(), Some("a (and 2 more like it before)"));
        assert_eq!(told.decide("a", 2000, PAUSE_MS).as_deref(), Some("a"));
        assert_eq!(told.decide("a", 61_999, LONG_PAUSE_MS), None);
        assert_eq!(told.decide("a", 62_000, LONG_PAUSE_MS).as_deref(), Some("a (and 1 more like it before)"));
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
