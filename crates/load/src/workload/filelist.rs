//! WebStone file lists of versions 2.x.
//!
//! A line is a URL and an integer weight. A missing weight, or a weight of 0 or less, counts as 1. `#` begins a
//! comment. By convention of WebStone's own scripts, a comment of digits is the file's size in bytes, and here a
//! response of a different size counts as wrong. As an extension, `#sha256=` and 64 hexadecimal digits state the digest
//! of the content.
//!
//! ```text
//! /file500.html  350  #500
//! /file5k.html   500  #5125 #sha256=9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//! http://127.0.0.1:8081/other.html
//! ```
//!
//! A file is chosen with probability proportional to its weight. Lists of WebStone 1.x, which begin with the number of
//! pages, mean something else and are rejected.

use super::fault::{FaultKind, Faults};
use super::lines::{TooLong, each_line};
use super::{Address, ENTRIES_MAX, TEXT_BYTES_MAX, Workload, WorkloadEntry};
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use std::fmt::Write as _;

/// Maximum length of a line in bytes.
pub const LINE_BYTES_MAX: usize = 16 << 10;

/// Largest permitted weight.
pub const WEIGHT_MAX: u64 = 1_000_000_000_000;

/// Parses a list.
///
/// # Errors
/// Returns all malformed lines with their numbers.
pub fn parse(text: &[u8]) -> Result<Workload, Faults> {
    let entries = read_entries(text, parse_line)?;
    let files = entries.len();
    let weights: f64 = entries.iter().map(|entry| entry.weight).sum();
    let mut workload = Workload::by_weight("filelist", entries).ok_or_else(|| Faults::of_text(FaultKind::Empty))?;
    workload.parameters = vec![("files", files.to_string()), ("weights", format!("{weights:.0}"))];
    workload.parameters.extend(workload.body_bytes_mean().map(|mean| ("mean body", format!("{mean:.0} B"))));
    Ok(workload)
}

/// Parses the entries of a list within the limits of workloads. Returns the error of each malformed line.
pub(super) fn read_entries(
    text: &[u8],
    parse_line: impl Fn(&str) -> Result<Option<WorkloadEntry>, FaultKind>,
) -> Result<Vec<WorkloadEntry>, Faults> {
    let mut faults = Faults::default();
    let mut entries: Vec<WorkloadEntry> = Vec::new();
    let mut bytes_left = TEXT_BYTES_MAX;
    let mut is_full = false;
    each_line(text, LINE_BYTES_MAX, |number, line| {
        if is_full {
            return;
        }
        match text_of(line).and_then(&parse_line) {
            Ok(None) => {}
            Ok(Some(entry)) if entries.len() < ENTRIES_MAX && entry.address.target.len() <= bytes_left => {
                bytes_left -= entry.address.target.len();
                entries.push(entry);
            }
            Ok(Some(_)) => {
                is_full = true;
                faults.add(number, FaultKind::TooMany, b"");
            }
            Err(kind) => faults.add(number, kind, line.unwrap_or_default()),
        }
    });
    if faults.is_empty() { Ok(entries) } else { Err(faults) }
}

/// Returns a line as text, which may contain no control characters other than tabs.
fn text_of(line: Result<&[u8], TooLong>) -> Result<&str, FaultKind> {
    let line = line.map_err(|TooLong| FaultKind::LineTooLong)?;
    let text = core::str::from_utf8(line).map_err(|_| FaultKind::NotText)?;
    if text.chars().any(|character| character.is_control() && character != '\t') {
        return Err(FaultKind::NotText);
    }
    Ok(text)
}

/// Parses the entry of a line, or `None` if the line has no entry.
///
/// # Errors
/// Returns what is wrong with the line.
pub fn parse_line(line: &str) -> Result<Option<WorkloadEntry>, FaultKind> {
    let (words, comments) = match line.split_once('#') {
        Some((words, comments)) => (words, Some(comments)),
        None => (line, None),
    };
    let mut words = words.split_ascii_whitespace();
    let Some(url) = words.next() else { return Ok(None) };
    if url.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(FaultKind::WebStone1);
    }
    let mut entry = WorkloadEntry::get(Address::parse(url)?);
    entry.weight = words.next().map_or(Ok(1), parse_weight)? as f64;
    if words.next().is_some() {
        return Err(FaultKind::TooManyWords);
    }
    for comment in comments.into_iter().flat_map(|comments| comments.split('#')) {
        read_comment(comment.trim_ascii(), &mut entry)?;
    }
    Ok(Some(entry))
}

fn parse_weight(text: &str) -> Result<u64, FaultKind> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(FaultKind::WeightInvalid);
    }
    if text.starts_with('-') {
        return Ok(1);
    }
    match digits.parse() {
        Ok(0) => Ok(1),
        Ok(weight) if weight <= WEIGHT_MAX => Ok(weight),
        _ => Err(FaultKind::WeightInvalid),
    }
}

/// Parses a comment, which may be a size, a digest or other text.
fn read_comment(comment: &str, entry: &mut WorkloadEntry) -> Result<(), FaultKind> {
    if let Some(digest) = comment.strip_prefix("sha256=") {
        entry.sha256 = Some(parse_digest(digest).ok_or(FaultKind::DigestInvalid)?);
    } else if entry.body_bytes.is_none() && !comment.is_empty() && comment.bytes().all(|byte| byte.is_ascii_digit()) {
        entry.body_bytes = Some(comment.parse().map_err(|_| FaultKind::SizeInvalid)?);
    }
    Ok(())
}

fn parse_digest(text: &str) -> Option<[u8; 32]> {
    HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?.try_into().ok()
}

/// Formats a line in the syntax of [`parse_line`], including the line end.
pub fn format_line(address: &str, weight: u64, body_bytes: Option<u64>, sha256: Option<&[u8; 32]>) -> String {
    let mut line = format!("{address}\t{weight}");
    if let Some(bytes) = body_bytes {
        // Writing to a String cannot fail.
        let _ = write!(line, "\t#{bytes}");
    }
    if let Some(digest) = sha256 {
        line.push_str("\t#sha256=");
        HEXLOWER.encode_append(digest, &mut line);
    }
    line.push('\n');
    line
}
