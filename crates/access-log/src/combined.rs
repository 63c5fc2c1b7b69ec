//! The combined format with three additional fields:
//!
//! `client - user [date] "request line" status bytes "referer" "user agent" outcome ending duration_us`
//!
//! Quotes, backslashes and bytes that are not printable ASCII are written as `\xHH`, and unknown values as `-`.

use super::line::{Gap, Gaps, Late};
use super::record::{LoggedResponse, Record};
use super::text::{Dates, append_address, append_escaped, append_escaped_word, append_three_digits};
use flatout_http::token::append_decimal;

/// Appends a line.
pub(super) fn append_combined(
    text: &mut Vec<u8>,
    dates: &mut Dates,
    record: &Record<'_>,
    answer: &LoggedResponse<'_>,
) -> Gaps {
    match record.client {
        Some(client) => append_address(text, client),
        None => text.push(b'-'),
    }
    text.extend_from_slice(b" - ");
    match answer.facts.user.as_deref() {
        Some(user) if !user.is_empty() => append_escaped_word(text, user.as_bytes()),
        _ => text.push(b'-'),
    }
    text.extend_from_slice(b" [");
    text.extend_from_slice(dates.combined(record.unix_ms));
    text.extend_from_slice(b"] \"");
    match record.method() {
        Some((method, version)) => {
            text.extend_from_slice(method.as_bytes());
            text.push(b' ');
            append_escaped(text, record.target());
            text.push(b' ');
            text.extend_from_slice(version.as_str().as_bytes());
        }
        None => append_escaped(text, record.target()),
    }
    text.extend_from_slice(b"\" ");
    append_three_digits(text, answer.status.min(999));
    text.push(b' ');
    append_decimal(text, answer.body_bytes);
    for value in [record.referer(), record.user_agent()] {
        text.extend_from_slice(b" \"");
        append_escaped(text, value.unwrap_or(b"-"));
        text.push(b'"');
    }
    text.push(b' ');
    text.extend_from_slice(answer.outcome.as_bytes());
    text.push(b' ');
    let ending = Gap { at: text.len(), late: Late::Ending };
    text.push(b' ');
    let duration = Gap { at: text.len(), late: Late::DurationUs };
    text.push(b'\n');
    [ending, duration]
}
