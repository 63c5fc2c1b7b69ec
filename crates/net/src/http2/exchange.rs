//! From a request as the h2 crate has it to the handler's reply, and from a response to its head.

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

/// Field lines that need no heap, as for HTTP/1.1; browsers split their cookies into some more.
const FIELDS_INLINE: usize = 24;

const NO_FIELD: Header<'static> = Header { name: "", value: b"" };

/// Calls `then` with the head that `parts` are. `whole`: no content follows it.
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
        // RFC 9110 §7.4. Whether a proxy before us took TLS off is not ours to know.
        if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
            return then(Err(Refusal::TargetScheme));
        }
    }
    match assemble_request_head(parts.method.as_str().as_bytes(), target_text, authority, lines, limits) {
        Ok(mut head) => {
            // The end of the stream says where content ends (RFC 9113 §8.1), not a field.
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

/// Cookies may come in several lines, which a handler must see as one (RFC 9113 §8.2.3). `None` when they do not.
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

/// What a log shows of a request that was refused: a line as HTTP/1.1 would have it.
pub(crate) fn describe_refused(parts: &Parts) -> Vec<u8> {
    let target =
        parts.uri.path_and_query().map_or(Cow::Owned(parts.uri.to_string()), |target| Cow::Borrowed(target.as_str()));
    format!("{} {target} HTTP/2.0\r\n", parts.method).into_bytes()
}

/// The head of `response`.
pub(crate) fn head_of(response: &Response, date: HeaderValue) -> HeadOf<()> {
    let mut head = HeadOf::new(());
    // Statuses come from a table; what is none of them has no place on the wire.
    *head.status_mut() = StatusCode::from_u16(response.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut fields = response.head.http2_fields().clone();
    if !response.head.has_own_date() {
        fields.insert(DATE, date);
    }
    if response.extra.is_some() {
        // Their Date would be the second.
        for (name, value) in &parse_lines_but(response.extra_lines(), Some("date")) {
            fields.append(name.clone(), value.clone());
        }
    }
    *head.headers_mut() = fields;
    head
}

/// The head of an interim answer; `None` when its status is none.
pub(crate) fn interim_head_of(interim: &InterimResponse) -> Option<HeadOf<()>> {
    let mut head = HeadOf::new(());
    *head.status_mut() = StatusCode::from_u16(interim.status).ok().filter(|_| is_interim(interim.status))?;
    *head.headers_mut() = parse_lines(&interim.lines);
    Some(head)
}

/// The 103 that goes before `response`, if one does (RFC 8297).
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

/// Whether this head is answered without content whatever the response has.
pub(crate) fn is_head(head: &RequestHead<'_>) -> bool {
    head.method == Method::Head
}
