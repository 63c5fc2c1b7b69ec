//! Conversion of a log to a filelist of GET requests with status 200, most frequent first.
//!
//! Similar to WebStone's `mine-logs`, but by default, the comment with the size is text (`# 5125 bytes`), which is not
//! checked: a server that compresses logs the size of the compressed response.

use super::filelist::{WEIGHT_MAX, format_line};
use super::log::{AccessLog, LogEntry};
use super::{Address, Method};
use std::collections::HashSet;
use std::fmt::Write as _;

/// A list generated from a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mined {
    /// The list in the syntax of [`super::filelist::parse`]. It contains only comments if no request qualified.
    pub text: String,
    /// Number of URLs in the list.
    pub urls: usize,
    /// Number of logged requests that these URLs represent.
    pub requests: u64,
    /// Number of URLs omitted because of the limit.
    pub left_out: usize,
}

/// Generates a list of the `urls_max` most frequent URLs. URLs are absolute if the log has several hosts. If
/// `verifies_sizes`, the list contains the size of each URL whose responses all had the same size, so that it is
/// checked.
pub fn mine(log: &AccessLog, urls_max: usize, verifies_sizes: bool) -> Mined {
    let hosts: HashSet<_> = log.entries.iter().map(|entry| &entry.host).collect();
    let wanted = |entry: &&LogEntry| entry.method == Method::Get && entry.ok > 0 && is_listable(&entry.target);
    let mut entries: Vec<&LogEntry> = log.entries.iter().filter(wanted).collect();
    // The sort is stable, so ties stay in log order.
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.ok));
    let left_out = entries.len().saturating_sub(urls_max);
    entries.truncate(urls_max);
    let requests = entries.iter().map(|entry| entry.ok).sum();
    let mut text = format!("# {} URLs for {requests} requests of a log\n", entries.len());
    for entry in &entries {
        let origin = entry.host.clone().filter(|_| hosts.len() > 1);
        let address = Address { origin, target: entry.target.clone() }.to_string();
        let bytes = entry.ok_bytes.filter(|(least, most)| verifies_sizes && least == most).map(|(bytes, _)| bytes);
        let mut line = format_line(&address, entry.ok.min(WEIGHT_MAX), bytes, None);
        if let Some((least, most)) = entry.ok_bytes.filter(|_| bytes.is_none()) {
            line.truncate(line.trim_ascii_end().len());
            let range = if least == most { least.to_string() } else { format!("{least} to {most}") };
            let unit = if most == 1 { "byte" } else { "bytes" };
            // Writing to a String cannot fail.
            let _ = writeln!(line, "\t# {range} {unit}");
        }
        text.push_str(&line);
    }
    Mined { text, urls: entries.len(), requests, left_out }
}

/// Returns whether a list can contain the target. Text after a `#` would be a comment.
fn is_listable(target: &str) -> bool {
    !target.contains('#')
}
