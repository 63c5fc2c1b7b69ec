//! Conversion of h2 requests to the handler's form, and of responses to h2 heads.

use crate::content::InterimResponse;
use crate::response::{Response, parse_lines, parse_lines_but};
use crate::server::awaiting::is_interim;
use flatout_http::framing::Framing;
use flatout_http::head::{Fields, Header};
use flatout_http::limits::Limits;
use flatout_http::refusal::Refusal;
use flatout_http::request::{Method, RequestHead, assemble_request_head};
use http::header::{DATE, HeaderMap, HeaderValue, LINK};
use http::request::Parts;
use http::{Response as HeadOf, StatusCode};
use std::borrow::Cow;

/// Fields that need no heap, as for HTTP/1.1; browsers split their cookies into some more.
const FIELDS_INLINE: usize = 24;

const NO_FIELD: Header<'static> = Header { name: "", value: b"" };

/// Calls `then` with the head parsed from `parts`. `whole` is true if no content follows.
pub(crate) fn with_head<T>(
    parts: &Parts,
    whole: bool,
    limits: &Limits,
    then: impl FnOnce(Result<&RequestHead<'_>, Refusal>) -> T,
) -> T {
    let cookie = join_cookies(&parts.headers);
    let mut inline = [NO_FIELD; FIELDS_INLINE];
    let mut overflow = Vec::new();
    let count = parts.headers.len();
    let lines = if count <= FIELDS_INLINE {
        &mut inline[..]
    } else {
        overflow.resize(count, NO_FIELD);
        &mut overflow[..]
    };
    let mut used = 0;
    let mut add = |name, value| {
        lines[used] = Header { name, value };
        used += 1;
    };
    for (name, value) in &parts.headers {
        if cookie.is_none() || name != http::header::COOKIE {
            add(name.as_str(), value.as_bytes());
        }
    }
    if let Some(cookie) = &cookie {
        add("cookie", cookie);
    }
    let has_outer_space =
        |value: &[u8]| [value.first(), value.last()].iter().any(|byte| matches!(byte, Some(b' ' | b'\t')));
    if lines[..used].iter().any(|line| has_outer_space(line.value)) {
        // RFC 9113 §8.2.1.
        return then(Err(Refusal::FieldValue));
    }
    let authority = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
    let target_text = match parts.uri.path_and_query() {
        Some(target) if parts.method != http::Method::CONNECT => target.as_str().as_bytes(),
        _ => authority.unwrap_or(b""),
    };
    let lines = Fields::from_lines(&lines[..used]);
    if let Some(scheme) = parts.uri.scheme_str() {
        // RFC 9110 §7.4. The server cannot tell whether a proxy in front of it terminated TLS.
        if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
            return then(Err(Refusal::TargetScheme));
        }
    }
    match assemble_request_head(parts.method.as_str().as_bytes(), target_text, authority, lines, limits) {
        Ok(mut head) => {
            // The end of the stream delimits the content (RFC 9113 §8.1), not a field.
            head.framing = match (whole, head.framing) {
                (true, _) => Framing::None,
                (false, Framing::Length(length)) => Framing::Length(length),
                (false, _) => Framing::Chunked,
            };
            then(Ok(&head))
        }
        Err(refusal) => then(Err(refusal)),
    }
}

/// Joins Cookie fields that came in several lines, which a handler must see as one (RFC 9113 §8.2.3). `None` if there
/// is at most one.
fn join_cookies(headers: &HeaderMap) -> Option<Vec<u8>> {
    let mut lines = headers.get_all(http::header::COOKIE).iter();
    let (first, second) = (lines.next()?, lines.next()?);
    let mut joined = [first.as_bytes(), second.as_bytes()].join(&b"; "[..]);
    for line in lines {
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(line.as_bytes());
    }
    Some(joined)
}

/// The log text of a refused request: a request line in HTTP/1.1 form.
pub(crate) fn describe_refused(parts: &Parts) -> Vec<u8> {
    let target =
        parts.uri.path_and_query().map_or(Cow::Owned(parts.uri.to_string()), |target| Cow::Borrowed(target.as_str()));
    format!("{} {target} HTTP/2.0\r\n", parts.method).into_bytes()
}

/// The head of `response`.
pub(crate) fn head_of(response: &Response, date: HeaderValue) -> HeadOf<()> {
    let mut head = HeadOf::new(());
    // Statuses come from a table; an invalid one cannot be sent.
    *head.status_mut() = StatusCode::from_u16(response.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut fields = response.head.http2_fields().clone();
    if !response.head.has_own_date() {
        fields.insert(DATE, date);
    }
    if response.extra.is_some() {
        // Their Date would be a second one.
        for (name, value) in &parse_lines_but(response.extra_lines(), Some("date")) {
            fields.append(name.clone(), value.clone());
        }
    }
    *head.headers_mut() = fields;
    head
}

/// The head of an interim response; `None` if its status is not an interim one.
pub(crate) fn interim_head_of(interim: &InterimResponse) -> Option<HeadOf<()>> {
    let mut head = HeadOf::new(());
    *head.status_mut() = StatusCode::from_u16(interim.status).ok().filter(|_| is_interim(interim.status))?;
    *head.headers_mut() = parse_lines(&interim.lines);
    Some(head)
}

/// The 103 to send before `response`, if any (RFC 8297).
pub(crate) fn early_head_of(response: &Response) -> Option<HeadOf<()>> {
    let links = response.early_links.as_ref().filter(|links| !links.is_empty())?;
    let mut head = HeadOf::new(());
    *head.status_mut() = StatusCode::EARLY_HINTS;
    for link in links.iter() {
        if let Ok(value) = HeaderValue::from_str(link) {
            head.headers_mut().append(LINK, value);
        }
    }
    Some(head)
}

/// Returns whether the response to this head has no content in any case.
pub(crate) fn is_head(head: &RequestHead<'_>) -> bool {
    head.method == Method::Head
}
