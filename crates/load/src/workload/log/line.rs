//! One line of an access log.

use super::super::fault::FaultKind;
use super::date::{parse_common, parse_rfc3339};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;

/// The content of a log line. Bytes are as in the request, with escapes decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogLine<'a> {
    /// The client, or `-` if the log does not contain it.
    pub client: Cow<'a, [u8]>,
    /// The time in nanoseconds since the epoch.
    pub unix_ns: i64,
    /// True if the line states only whole seconds.
    pub is_whole_second: bool,
    /// The method; `None` if the line does not contain a valid request line.
    pub method: Option<Cow<'a, [u8]>>,
    /// Path and query as received.
    pub target: Cow<'a, [u8]>,
    /// The value of the Host field, if the format contains it.
    pub host: Option<Cow<'a, str>>,
    /// True if the request came over TLS; false if it did not, or if the format does not say.
    pub secure: bool,
    /// The status, if the line has one; 0 for a request without a response.
    pub status: Option<u16>,
    /// The number of bytes of content, if the line contains it.
    pub body_bytes: Option<u64>,
}

/// Parses a line without its line end.
///
/// # Errors
/// Returns what is wrong with the line.
pub fn parse_line(text: &[u8]) -> Result<AccessLogLine<'_>, FaultKind> {
    let text = text.trim_ascii();
    if text.starts_with(b"{") { parse_json(text) } else { parse_combined(text) }
}

/// Parses `client identity user [date] "request" status bytes`, with any further fields.
fn parse_combined(text: &[u8]) -> Result<AccessLogLine<'_>, FaultKind> {
    let client_end = text.iter().position(|&byte| byte == b' ').ok_or(FaultKind::LogForm)?;
    // A user name may contain spaces, but no space directly before a bracket.
    let date_start = text.windows(2).position(|pair| pair == b" [").ok_or(FaultKind::LogForm)? + 2;
    if text[client_end..date_start].split(|&byte| byte == b' ').filter(|word| !word.is_empty()).count() < 3 {
        return Err(FaultKind::LogForm);
    }
    let date_bytes = text[date_start..].iter().position(|&byte| byte == b']').ok_or(FaultKind::LogForm)?;
    let (date, rest) = text[date_start..].split_at(date_bytes);
    let rest = rest.strip_prefix(b"] \"").ok_or(FaultKind::LogForm)?;
    let request_end = find_quote(rest).ok_or(FaultKind::LogForm)?;
    let (request, rest) = (&rest[..request_end], &rest[request_end + 1..]);
    let mut words = rest.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let (Some(status), Some(bytes)) = (words.next(), words.next()) else { return Err(FaultKind::LogForm) };
    let unix_s = parse_common(date).ok_or(FaultKind::LogTime)?;
    let (method, target) = split_request(request);
    Ok(AccessLogLine {
        client: Cow::Borrowed(&text[..client_end]),
        unix_ns: unix_s.checked_mul(1_000_000_000).ok_or(FaultKind::LogTime)?,
        is_whole_second: true,
        method: method.map(Cow::Borrowed),
        target: unescape(target),
        host: None,
        secure: false,
        status: Some(parse_status(status)?),
        body_bytes: match bytes {
            b"-" => None,
            bytes => Some(parse_number(bytes).ok_or(FaultKind::LogBytes)?),
        },
    })
}

/// Returns the end of the quoted text: the position of a quote without a backslash before it.
fn find_quote(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match text.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Splits a request line into method and target. Returns no method if the text is not a request line.
fn split_request(request: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let Some(method_end) = request.iter().position(|&byte| byte == b' ') else { return (None, request) };
    let (method, target) = (&request[..method_end], &request[method_end + 1..]);
    // The method is a token (RFC 9110 §5.6.2). HTTP/0.9 requests have no version.
    let is_token = !method.is_empty()
        && method.iter().all(|&byte| byte.is_ascii_alphanumeric() || b"-_.!#$%&'*+^`|~".contains(&byte));
    let target = match target.iter().rposition(|&byte| byte == b' ') {
        Some(end) if target[end + 1..].starts_with(b"HTTP/") => &target[..end],
        _ => target,
    };
    if is_token { (Some(method), target) } else { (None, request) }
}

/// Decodes `\xHH`, `\"`, `\\`, `\n`, `\r` and `\t`, which are the only escapes that flatout, nginx and Apache write.
fn unescape(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'\\') {
        return Cow::Borrowed(text);
    }
    let hex = |digit: u8| char::from(digit).to_digit(16);
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        let (byte, used) = match (first, behind) {
            (b'\\', [b'x' | b'X', high, low, ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => ((high * 16 + low) as u8, 4),
                _ => (first, 1),
            },
            (b'\\', [b'n', ..]) => (b'\n', 2),
            (b'\\', [b'r', ..]) => (b'\r', 2),
            (b'\\', [b't', ..]) => (b'\t', 2),
            (b'\\', [other @ (b'"' | b'\\'), ..]) => (*other, 2),
            _ => (first, 1),
        };
        plain.push(byte);
        rest = &rest[used..];
    }
    Cow::Owned(plain)
}

fn parse_number(text: &[u8]) -> Option<u64> {
    // `parse` would accept a sign.
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    core::str::from_utf8(text).ok()?.parse().ok()
}

fn parse_status(text: &[u8]) -> Result<u16, FaultKind> {
    match parse_number(text) {
        Some(status @ 0..=999) => Ok(status as u16),
        _ => Err(FaultKind::LogStatus),
    }
}

/// A field of a JSON line.
#[derive(Default)]
enum JsonField<T> {
    /// The line does not have the field, because the log was not configured to contain it.
    #[default]
    Absent,
    /// The field is null.
    Null,
    Value(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonField<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(|value| value.map_or(Self::Null, Self::Value))
    }
}

/// The fields of flatout's JSON format that are used here.
#[derive(Deserialize)]
struct Fields {
    time: Option<String>,
    client: Option<String>,
    host: Option<String>,
    #[serde(default)]
    method: JsonField<String>,
    target: Option<String>,
    #[serde(default)]
    status: JsonField<u64>,
    body_bytes: Option<u64>,
    tls: Option<bool>,
}

fn parse_json(text: &[u8]) -> Result<AccessLogLine<'static>, FaultKind> {
    let fields: Fields = serde_json::from_slice(text).map_err(|_| FaultKind::LogForm)?;
    let time = fields.time.ok_or(FaultKind::LogField)?;
    let target = fields.target.ok_or(FaultKind::LogField)?;
    Ok(AccessLogLine {
        client: fields.client.map_or(Cow::Borrowed(b"-"), bytes_of),
        unix_ns: parse_rfc3339(time.as_bytes()).ok_or(FaultKind::LogTime)?,
        is_whole_second: false,
        method: match fields.method {
            JsonField::Absent => return Err(FaultKind::LogField),
            JsonField::Null => None,
            JsonField::Value(method) => Some(bytes_of(method)),
        },
        target: bytes_of(target),
        host: fields.host.map(Cow::Owned),
        secure: fields.tls.unwrap_or(false),
        status: match fields.status {
            JsonField::Absent => None,
            // `null` means a request without a response.
            JsonField::Null => Some(0),
            JsonField::Value(status @ 0..=999) => Some(status as u16),
            JsonField::Value(_) => return Err(FaultKind::LogStatus),
        },
        body_bytes: fields.body_bytes,
    })
}

fn bytes_of(text: String) -> Cow<'static, [u8]> {
    Cow::Owned(text.into_bytes())
}
