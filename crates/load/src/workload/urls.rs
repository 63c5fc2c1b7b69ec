//! Lists of URLs requested in turn, one per line. `#` begins a comment. Blank lines and the weights of a WebStone list
//! are ignored.

use super::fault::{FaultKind, Faults};
use super::filelist::read_entries;
use super::{Address, Workload, WorkloadEntry};

/// Parses a list.
///
/// # Errors
/// Returns all malformed lines with their numbers.
pub fn parse(text: &[u8]) -> Result<Workload, Faults> {
    let entries = read_entries(text, parse_line)?;
    let urls = entries.len();
    let mut workload = Workload::in_turn("url-list", entries).ok_or_else(|| Faults::of_text(FaultKind::Empty))?;
    workload.parameters = vec![("URLs", urls.to_string())];
    Ok(workload)
}

/// Parses the entry of a line, or `None` if the line has no entry. A `#` within a URL begins its fragment, which is not
/// sent.
fn parse_line(line: &str) -> Result<Option<WorkloadEntry>, FaultKind> {
    let mut words = line.split_ascii_whitespace();
    let Some(word) = words.next().filter(|word| !word.starts_with('#')) else { return Ok(None) };
    // A list with weights can also be requested in turn, ignoring the weights.
    let more = words.next();
    let is_weight = more.is_some_and(|word| word.parse::<i64>().is_ok());
    match if is_weight { words.next() } else { more } {
        Some(more) if !more.starts_with('#') => Err(FaultKind::TooManyWords),
        _ => Address::parse(word).map(|address| Some(WorkloadEntry::get(address))),
    }
}
