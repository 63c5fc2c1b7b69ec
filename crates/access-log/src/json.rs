//! JSON lines: one object per line (RFC 8259), with fields in the configured order, in ASCII only.

use super::line::{Gap, Gaps, Late};
use super::record::{LoggedResponse, Record};
use super::text::{Dates, append_address, append_json_string};
use flatout_http::access::AccessField;
use flatout_http::token::append_decimal;

/// The fields of a line, each with the bytes that precede its value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct JsonForm(Box<[(Box<[u8]>, AccessField)]>);

impl JsonForm {
    /// Creates the format with `fields` in their order, without duplicates; with all fields if `fields` is empty.
    pub(super) fn new(fields: &[AccessField]) -> Self {
        let fields = if fields.is_empty() { AccessField::ALL } else { fields };
        let mut parts: Vec<(Box<[u8]>, AccessField)> = Vec::new();
        for &field in fields {
            if parts.iter().all(|(_, before)| *before != field) {
                let opening = if parts.is_empty() { '{' } else { ',' };
                parts.push((format!("{opening}\"{}\":", field.name()).into_bytes().into(), field));
            }
        }
        Self(parts.into())
    }

    pub(super) fn append(
        &self,
        text: &mut Vec<u8>,
        dates: &mut Dates,
        record: &Record<'_>,
        answer: &LoggedResponse<'_>,
    ) -> Gaps {
        let mut gaps = [Gap::NONE; 2];
        let mut leave_gap = |at: usize, late: Late| gaps[usize::from(gaps[0] != Gap::NONE)] = Gap { at, late };
        for (before, field) in &self.0 {
            text.extend_from_slice(before);
            match field {
                AccessField::Time => {
                    text.push(b'"');
                    dates.append_rfc3339(text, record.unix_ms);
                    text.push(b'"');
                }
                AccessField::Client => match record.client {
                    Some(client) => {
                        text.push(b'"');
                        append_address(text, client);
                        text.push(b'"');
                    }
                    None => text.extend_from_slice(NULL),
                },
                AccessField::Host => append_string_or_null(text, record.host()),
                AccessField::Method => {
                    append_string_or_null(text, record.method().map(|(method, _)| method.as_bytes()));
                }
                AccessField::Target => append_json_string(text, record.target()),
                AccessField::Version => {
                    append_string_or_null(text, record.method().map(|(_, version)| version.as_str().as_bytes()));
                }
                AccessField::Status if answer.status == 0 => text.extend_from_slice(NULL),
                AccessField::Status => append_decimal(text, answer.status.into()),
                AccessField::BodyBytes => append_decimal(text, answer.body_bytes),
                AccessField::Referer => append_string_or_null(text, record.referer()),
                AccessField::UserAgent => append_string_or_null(text, record.user_agent()),
                AccessField::Outcome => append_json_string(text, answer.outcome.as_bytes()),
                AccessField::Ending => {
                    text.push(b'"');
                    leave_gap(text.len(), Late::Ending);
                    text.push(b'"');
                }
                AccessField::DurationUs => leave_gap(text.len(), Late::DurationUs),
                AccessField::Tls => text.extend_from_slice(if record.secure { b"true" } else { b"false" }),
                AccessField::Site => append_string_or_null(text, answer.facts.site.as_deref().map(str::as_bytes)),
                AccessField::User => append_string_or_null(text, answer.facts.user.as_deref().map(str::as_bytes)),
                AccessField::Cache => {
                    append_string_or_null(text, answer.facts.cache.as_ref().map(|cache| cache.name().as_bytes()));
                }
            }
        }
        text.extend_from_slice(b"}\n");
        gaps
    }
}

const NULL: &[u8] = b"null";

fn append_string_or_null(text: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        Some(value) => append_json_string(text, value),
        None => text.extend_from_slice(NULL),
    }
}
