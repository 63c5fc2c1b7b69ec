//! The short format, for a person at a terminal: `status method target bytes milliseconds`, followed by the outcome if
//! the status is an error.

use super::line::{Gap, Gaps, Late};
use super::record::{LoggedResponse, Record};
use super::text::{append_escaped, append_three_digits};
use flatout_http::token::append_decimal;

/// Width of the method column; few methods are longer.
const METHOD_WIDTH: usize = 4;

/// Appends a line.
pub(super) fn append_short(text: &mut Vec<u8>, record: &Record<'_>, answer: &LoggedResponse<'_>) -> Gaps {
    match answer.status {
        0 => text.extend_from_slice(b"---"),
        status => append_three_digits(text, status.min(999)),
    }
    text.push(b' ');
    if let Some((method, _)) = record.method() {
        text.extend_from_slice(method.as_bytes());
        text.resize(text.len() + METHOD_WIDTH.saturating_sub(method.len()) + 1, b' ');
    }
    append_escaped(text, record.target());
    text.extend_from_slice(b"  ");
    append_bytes(text, answer.body_bytes);
    text.extend_from_slice(b"  ");
    let duration = Gap { at: text.len(), late: Late::DurationMs };
    if answer.status == 0 || answer.status >= 400 {
        text.extend_from_slice(b"  ");
        text.extend_from_slice(answer.outcome.as_bytes());
    }
    text.push(b'\n');
    [duration, Gap::NONE]
}

/// Appends a size in the largest unit that is not larger than the size.
fn append_bytes(text: &mut Vec<u8>, bytes: u64) {
    const UNITS: [(&[u8], u64); 3] = [(b" GiB", 1 << 30), (b" MiB", 1 << 20), (b" KiB", 1 << 10)];
    if let Some((name, unit)) = UNITS.iter().find(|(_, unit)| bytes >= *unit) {
        append_decimal(text, bytes / unit);
        text.push(b'.');
        append_decimal(text, bytes % unit * 10 / unit);
        text.extend_from_slice(name);
    } else {
        append_decimal(text, bytes);
        text.extend_from_slice(b" B");
    }
}

/// Appends a duration in milliseconds, with one decimal place.
pub(super) fn append_milliseconds(text: &mut Vec<u8>, duration_us: u64) {
    append_decimal(text, duration_us / 1_000);
    text.push(b'.');
    append_decimal(text, duration_us % 1_000 / 100);
    text.extend_from_slice(b" ms");
}
