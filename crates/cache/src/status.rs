//! Cache-Status (RFC 9211).

use flatout_http::token::{TCHAR, is};

/// Reason for forwarding a request (RFC 9211 §2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fwd {
    /// The cache was bypassed.
    Bypass,
    /// The semantics of the method require forwarding.
    Method,
    /// Nothing is stored for the URI.
    UriMiss,
    /// Responses are stored for the URI, but none of them is a variant that matches this request.
    VaryMiss,
    /// No stored response matches.
    Miss,
    /// A fresh response is stored, but the request forbids its use.
    Request,
    /// A stale response is stored.
    Stale,
    /// Only part of the requested content is stored.
    Partial,
}

/// Member of Cache-Status for this cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheStatus<'a> {
    /// The cache's name.
    pub identifier: &'a str,
    /// Reason for forwarding, or `None` if a stored response was served.
    pub fwd: Option<Fwd>,
    /// Status of the upstream response, if it differs from the status sent to the client.
    pub fwd_status: Option<u16>,
    /// True if the response was stored.
    pub stored: bool,
    /// True if the request was collapsed with another request and shared its upstream response.
    pub collapsed: bool,
    /// Remaining freshness in seconds; negative if the response is stale.
    pub ttl_s: Option<i64>,
    /// The cache key, if it should be disclosed.
    pub key: Option<&'a [u8]>,
    /// Name of the lookup result or other reason.
    pub detail: &'a str,
}

impl Fwd {
    /// Returns the token defined in RFC 9211 §2.2.
    pub const fn token(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Miss => "miss",
            Self::Request => "request",
            Self::Stale => "stale",
            Self::Partial => "partial",
        }
    }
}

impl CacheStatus<'_> {
    /// Appends the member, without the field name: `flatout; hit; ttl=59; detail=hit_fresh`. The member must follow any
    /// members sent by the origin, in a separate line or after a comma (RFC 9211 §2).
    pub fn write(&self, output: &mut Vec<u8>) {
        write_token_or_string(self.identifier.as_bytes(), output);
        match self.fwd {
            None => output.extend_from_slice(b"; hit"),
            Some(fwd) => {
                output.extend_from_slice(b"; fwd=");
                output.extend_from_slice(fwd.token().as_bytes());
            }
        }
        if let Some(status) = self.fwd_status {
            write_integer(b"; fwd-status=", i64::from(status), output);
        }
        if let Some(ttl_s) = self.ttl_s {
            write_integer(b"; ttl=", ttl_s, output);
        }
        if self.stored {
            output.extend_from_slice(b"; stored");
        }
        if self.collapsed {
            output.extend_from_slice(b"; collapsed");
        }
        if let Some(key) = self.key {
            output.extend_from_slice(b"; key=");
            write_string(key, output);
        }
        if !self.detail.is_empty() {
            output.extend_from_slice(b"; detail=");
            write_token_or_string(self.detail.as_bytes(), output);
        }
    }
}

/// Appends `name` and an `sf-integer`, which has at most 15 digits (RFC 9651 §3.3.1). Larger values are clamped.
fn write_integer(name: &[u8], value: i64, output: &mut Vec<u8>) {
    const LIMIT: i64 = 999_999_999_999_999;
    output.extend_from_slice(name);
    output.extend_from_slice(value.clamp(-LIMIT, LIMIT).to_string().as_bytes());
}

/// Appends `text` as an `sf-token` if possible (RFC 9651 §3.3.4), otherwise as an `sf-string`.
fn write_token_or_string(text: &[u8], output: &mut Vec<u8>) {
    let token = text.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'*')
        && text.iter().all(|&byte| is(byte, TCHAR) || matches!(byte, b':' | b'/'));
    if token {
        output.extend_from_slice(text);
    } else {
        write_string(text, output);
    }
}

/// Appends `text` as an `sf-string` (RFC 9651 §3.3.3). Only printable ASCII is allowed; any other byte is replaced by a
/// question mark.
fn write_string(text: &[u8], output: &mut Vec<u8>) {
    output.push(b'"');
    for &byte in text {
        match byte {
            b'"' | b'\\' => output.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => output.push(byte),
            _ => output.push(b'?'),
        }
    }
    output.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::{CacheStatus, Fwd};
    use flatout_http::structured::parse_list;
    use sfv::{Item, List, ListEntry};

    const HIT: CacheStatus<'_> = CacheStatus {
        identifier: "flatout",
        fwd: None,
        fwd_status: None,
        stored: false,
        collapsed: false,
        ttl_s: Some(59),
        key: None,
        detail: "hit_fresh",
    };

    fn text(status: &CacheStatus<'_>) -> String {
        let mut output = Vec::new();
        status.write(&mut output);
        assert!(parse_list([&output[..]]).is_some_and(|members| members.len() == 1));
        String::from_utf8(output).unwrap()
    }

    /// RFC 9211 §2, §3.
    #[test]
    fn members() {
        assert_eq!(text(&HIT), "flatout; hit; ttl=59; detail=hit_fresh");
        let stale = CacheStatus {
            fwd: Some(Fwd::Stale),
            fwd_status: Some(304),
            ttl_s: Some(-5),
            stored: true,
            collapsed: true,
            detail: "stale_expired",
            ..HIT
        };
        assert_eq!(text(&stale), "flatout; fwd=stale; fwd-status=304; ttl=-5; stored; collapsed; detail=stale_expired");
        let key = CacheStatus { key: Some(b"http://a/\"\\\xff"), ttl_s: Some(i64::MAX), detail: "a b", ..HIT };
        assert_eq!(text(&key), "flatout; hit; ttl=999999999999999; key=\"http://a/\\\"\\\\?\"; detail=\"a b\"");
        let named = CacheStatus { identifier: "my cache", ttl_s: None, detail: "", ..HIT };
        assert_eq!(text(&named), "\"my cache\"; hit");
        let members: List = parse_list([text(&named).as_bytes()]).unwrap();
        assert!(
            matches!(&members[..], [ListEntry::Item(Item { bare_item, .. })] if bare_item.as_string().is_some_and(|name| name.as_str() == "my cache"))
        );
    }
}
