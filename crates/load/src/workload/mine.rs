//! A filelist made of a log: what was asked for by GET and answered with 200, the most wanted first.
//!
//! As WebStone's `mine-logs` does it. The size stands behind `#` only where every answer had the same; where it changed,
//! the comment says from what to what, and nothing is asserted.

use super::filelist::{WEIGHT_MAX, format_line};
use super::log::{Log, LogEntry};
use super::{Address, Method};
use std::collections::HashSet;
use std::fmt::Write as _;

/// A list that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mined {
    /// Its text, as [`super::filelist::parse`] reads it; empty but for comments when nothing suited.
    pub text: String,
    /// How many URLs it has.
    pub urls: usize,
    /// How many requests they stand for.
    pub requests: u64,
    /// How many URLs were left out for being asked for less often than wanted.
    pub left_out: usize,
}

/// Makes a list of the `urls_max` most wanted URLs. URLs are whole where the log names several hosts.
pub fn mine(log: &Log, urls_max: usize) -> Mined {
    let hosts: HashSet<_> = log.entries.iter().map(|entry| &entry.host).collect();
    let wanted = |entry: &&LogEntry| entry.method == Method::Get && entry.ok > 0 && is_listable(&entry.target);
    let mut entries: Vec<&LogEntry> = log.entries.iter().filter(wanted).collect();
    // Those asked for as often stay in the order of the log.
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.ok));
    let left_out = entries.len().saturating_sub(urls_max);
    entries.truncate(urls_max);
    let requests = entries.iter().map(|entry| entry.ok).sum();
    let mut text = format!("# {} URLs for {requests} requests of a log\n", entries.len());
    for entry in &entries {
        let origin = entry.host.clone().filter(|_| hosts.len() > 1);
        let address = Address { origin, target: entry.target.clone() }.to_string();
        let bytes = entry.ok_bytes.filter(|(least, most)| least == most).map(|(bytes, _)| bytes);
        let mut line = format_line(&address, entry.ok.min(WEIGHT_MAX), bytes, None);
        if let Some((least, most)) = entry.ok_bytes.filter(|(least, most)| least != most) {
            line.truncate(line.trim_ascii_end().len());
            // Writing to a String cannot fail.
            let _ = writeln!(line, "\t# {least} to {most} bytes");
        }
        text.push_str(&line);
    }
    Mined { text, urls: entries.len(), requests, left_out }
}

/// A list takes what follows `#` for a comment.
fn is_listable(target: &str) -> bool {
    !target.contains('#')
}
