//! Lists of URLs that are asked for in turn: one a line, `#` begins a comment, blank lines are passed over.

use super::fault::{FaultKind, Faults};
use super::filelist::text_of;
use super::lines::each_line;
use super::{Address, ENTRIES_MAX, Entry, TEXT_BYTES_MAX, Workload};
use crate::workload::filelist::LINE_BYTES_MAX;

/// Parses a list.
///
/// # Errors
/// Every malformed line, with its number.
pub fn parse(text: &[u8]) -> Result<Workload, Faults> {
    let mut faults = Faults::default();
    let mut entries = Vec::new();
    let mut bytes_left = TEXT_BYTES_MAX;
    let mut is_full = false;
    each_line(text, LINE_BYTES_MAX, |number, line| {
        if is_full {
            return;
        }
        let parsed = text_of(line).and_then(parse_line);
        match parsed {
            Ok(None) => {}
            Ok(Some(address)) if entries.len() < ENTRIES_MAX && address.target.len() <= bytes_left => {
                bytes_left -= address.target.len();
                entries.push(Entry::get(address));
            }
            Ok(Some(_)) => {
                is_full = true;
                faults.add(number, FaultKind::TooMany, b"");
            }
            Err(kind) => faults.add(number, kind, line.unwrap_or_default()),
        }
    });
    if !faults.is_empty() {
        return Err(faults);
    }
    Workload::in_turn("url-list", entries).ok_or_else(|| Faults::of_text(FaultKind::Empty))
}

/// The URL of a line, if it has one. A `#` within a URL begins its fragment, which is not sent.
fn parse_line(line: &str) -> Result<Option<Address>, FaultKind> {
    let mut words = line.split_ascii_whitespace();
    let Some(word) = words.next().filter(|word| !word.starts_with('#')) else { return Ok(None) };
    match words.next() {
        Some(more) if !more.starts_with('#') => Err(FaultKind::TooManyWords),
        _ => Address::parse(word).map(Some),
    }
}
