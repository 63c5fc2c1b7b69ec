//! Lists of URLs requested in turn, one per line. `#` begins a comment. Blank lines and the weights of a WebStone list
//! are ignored.
//!
//! A method before the URL replaces GET. The rest of such a line is the content of the request, or, after `@`, the name of
//! a file with the content. Content that begins with `#` is a comment; to send it, write it into a file:
//!
//! ```text
//! /a
//! DELETE /b   # a comment
//! POST /c name=value
//! PUT http://127.0.0.1:8081/d @d.json
//! ```

use super::fault::{FaultKind, Faults};
use super::filelist::read_entries;
use super::{Address, EntryContent, Workload, WorkloadEntry};

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
    let line = line.trim_ascii();
    if let Some((method, rest)) = line.split_once([' ', '\t']).filter(|(method, _)| is_method(method)) {
        return parse_request(method, rest.trim_ascii_start()).map(Some);
    }
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

/// Returns whether the first word of a line is a method: uppercase letters, hyphens and underscores.
fn is_method(word: &str) -> bool {
    word.starts_with(|character: char| character.is_ascii_uppercase())
        && word.bytes().all(|byte| byte.is_ascii_uppercase() || matches!(byte, b'-' | b'_'))
}

/// Parses the URL and the content of a line with a method.
fn parse_request(method: &str, rest: &str) -> Result<WorkloadEntry, FaultKind> {
    if method == "CONNECT" {
        return Err(FaultKind::MethodInvalid);
    }
    let (word, content) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
    let content = content.trim_ascii_start();
    let content = match content.strip_prefix('@') {
        _ if content.is_empty() || content.starts_with('#') => None,
        Some("") => return Err(FaultKind::ContentInvalid),
        Some(file) => Some(EntryContent::File(file.into())),
        None => Some(EntryContent::Bytes(content.as_bytes().into())),
    };
    let own_method = Some(method.into());
    Address::parse(word).map(|address| WorkloadEntry { own_method, content, ..WorkloadEntry::get(address) })
}
