//! Invalidation by unsafe methods (RFC 9111 §4.4, RFC 9875 §3).

use crate::key::{write_authority, write_key};
use crate::request::CacheRequest;
use crate::rules::Rules;
use crate::search::write_path_key;
use crate::tags::{Tags, parse_groups};
use flatout_http::head::Fields;

/// Stored responses to invalidate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Invalidation {
    /// Keys to invalidate with all their variants: those of the target URI, and those of Location, Content-Location and
    /// the request's Destination if they have the same origin.
    pub keys: Vec<Vec<u8>>,
    /// The same keys without queries, for responses stored under a key of [`crate::search`].
    pub path_keys: Vec<Vec<u8>>,
    /// Cache groups of the origin to invalidate (RFC 9875 §3); see [`write_group_tag`](crate::tags::write_group_tag).
    pub groups: Tags,
}

/// Decides what `request` invalidates, given the `status` and `fields` of its response. Requests with safe methods and
/// error responses invalidate nothing.
pub fn decide_invalidation(
    request: &CacheRequest<'_>,
    status: u16,
    fields: &Fields<'_>,
    rules: &Rules,
) -> Invalidation {
    // RFC 9111 §4.4: a non-error response has a status of 2xx or 3xx.
    if is_safe(request.method) || !(200..400).contains(&status) {
        return Invalidation::default();
    }
    let mut invalidation =
        Invalidation { groups: parse_groups(fields, "cache-group-invalidation"), ..Invalidation::default() };
    invalidation.add(request, rules);
    // COPY and MOVE write to a second resource (RFC 4918 §9.8, §9.9, §10.3).
    let destination = request.field("destination").filter(|_| matches!(request.method, "COPY" | "MOVE"));
    let named = ["location", "content-location"].into_iter().filter_map(|name| fields.first(name)).chain(destination);
    for (path, query) in named.filter_map(|reference| resolve(request, reference)) {
        let other = CacheRequest { path: &path, query: query.as_deref(), ..*request };
        invalidation.add(&other, rules);
    }
    invalidation
}

impl Invalidation {
    fn add(&mut self, request: &CacheRequest<'_>, rules: &Rules) {
        let (mut key, mut path_key) = (Vec::new(), Vec::new());
        write_key(request, rules, &mut key);
        write_path_key(request, &mut path_key);
        if !self.keys.contains(&key) {
            self.keys.push(key);
        }
        if !self.path_keys.contains(&path_key) {
            self.path_keys.push(path_key);
        }
    }
}

/// Returns whether `method` is registered as safe (RFC 9110 §9.2.1), except PRI, which is not a request method. Unknown
/// methods are unsafe.
pub fn is_safe(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PROPFIND" | "REPORT" | "SEARCH" | "QUERY")
}

/// Returns whether `reference`, the value of a Content-Location, is the request's target URI.
pub(crate) fn names_target(request: &CacheRequest<'_>, reference: &[u8]) -> bool {
    resolve(request, reference).is_some_and(|(path, query)| path == request.path && query.as_deref() == request.query)
}

type Resource = (Vec<u8>, Option<Vec<u8>>);

/// Resolves `reference` against the request's target URI (RFC 3986 §5.2). Returns the path and query, or `None` if the
/// reference is invalid or has a different origin.
fn resolve(request: &CacheRequest<'_>, reference: &[u8]) -> Option<Resource> {
    let reference = reference.split(|&byte| byte == b'#').next().unwrap_or_default();
    if !reference.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    let rest = match split_scheme(reference) {
        Some((scheme, rest)) => {
            let own: &[u8] = if request.secure { b"https" } else { b"http" };
            if !scheme.eq_ignore_ascii_case(own) || !rest.starts_with(b"//") {
                return None;
            }
            rest
        }
        None => reference,
    };
    let (path, query) = split_query(rest);
    if let Some(after) = rest.strip_prefix(b"//") {
        let end = after.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(after.len());
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        write_authority(request.secure, &after[..end], &mut theirs);
        write_authority(request.secure, request.authority, &mut ours);
        if theirs != ours {
            return None;
        }
        let (path, query) = split_query(&after[end..]);
        let path = if path.is_empty() { b"/".to_vec() } else { remove_dots(path) };
        return Some((path, query.map(<[u8]>::to_vec)));
    }
    if path.is_empty() {
        // RFC 3986 §5.2.2: an empty path refers to the same path; a query in the reference replaces the request's
        // query.
        let query = if rest.is_empty() { request.query } else { query };
        return Some((request.path.to_vec(), query.map(<[u8]>::to_vec)));
    }
    let path = if path.starts_with(b"/") {
        remove_dots(path)
    } else {
        let folder = request.path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        remove_dots(&[&request.path[..folder], path].concat())
    };
    Some((path, query.map(<[u8]>::to_vec)))
}

/// Splits `scheme ":"` from the rest (RFC 3986 §3.1). Returns `None` if another delimiter comes first.
fn split_scheme(reference: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = reference.iter().position(|byte| matches!(byte, b':' | b'/' | b'?'))?;
    let (scheme, rest) = (&reference[..colon], &reference[colon + 1..]);
    let valid = reference[colon] == b':'
        && scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme.iter().all(|&byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    valid.then_some((scheme, rest))
}

fn split_query(reference: &[u8]) -> (&[u8], Option<&[u8]>) {
    match reference.iter().position(|&byte| byte == b'?') {
        Some(mark) => (&reference[..mark], Some(&reference[mark + 1..])),
        None => (reference, None),
    }
}

/// Removes dot segments (RFC 3986 §5.2.4) from a path that begins with `/`.
fn remove_dots(path: &[u8]) -> Vec<u8> {
    let mut segments: Vec<&[u8]> = Vec::new();
    let mut rest = path.split(|&byte| byte == b'/').skip(1).peekable();
    while let Some(segment) = rest.next() {
        let last = rest.peek().is_none();
        match segment {
            b"." | b".." => {
                if segment == b".." {
                    segments.pop();
                }
                if last {
                    segments.push(b"");
                }
            }
            _ => segments.push(segment),
        }
    }
    segments.iter().flat_map(|segment| [&b"/"[..], segment]).collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use super::{decide_invalidation, is_safe, names_target};
    use crate::lines::with_fields;
    use crate::request::CacheRequest;
    use crate::rules::Rules;
    use flatout_http::head::Fields;

    fn request(method: &'static str) -> CacheRequest<'static> {
        CacheRequest {
            method,
            secure: false,
            authority: b"Example.com:80",
            path: b"/a/b",
            query: Some(b"q"),
            fields: Fields::EMPTY,
            has_content: true,
            forwarding: &crate::request::AsReceived,
        }
    }

    fn keys(method: &'static str, status: u16, lines: &str) -> Vec<String> {
        let invalidation = with_fields(lines.as_bytes(), |fields| {
            decide_invalidation(&request(method), status, fields, &Rules::default())
        })
        .unwrap();
        assert!(invalidation.path_keys.len() <= invalidation.keys.len());
        invalidation.keys.into_iter().map(|key| String::from_utf8(key).unwrap()).collect()
    }

    const TARGET: &str = "http://example.com/a/b?q";

    /// RFC 9111 §4.4.
    #[test]
    fn unsafe_methods_that_succeed_invalidate_their_target() {
        for method in ["POST", "PUT", "DELETE", "PATCH", "M-SEARCH", "get"] {
            for (status, expected) in [(200, 1), (204, 1), (303, 1), (400, 0), (404, 0), (500, 0), (199, 0)] {
                let keys = keys(method, status, "");
                assert_eq!(keys, &[TARGET][..expected], "{method} {status}");
            }
        }
        for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND"] {
            assert!(is_safe(method) && keys(method, 200, "Location: /x\r\n").is_empty(), "{method}");
        }
    }

    #[test]
    fn locations_of_the_same_origin_alone() {
        for (reference, expected) in [
            ("/c", "http://example.com/c"),
            ("c", "http://example.com/a/c"),
            ("./c/../d?x#f", "http://example.com/a/d?x"),
            ("../../..", "http://example.com/"),
            ("?r", "http://example.com/a/b?r"),
            ("//EXAMPLE.com/c", "http://example.com/c"),
            ("http://example.com:80/c?d", "http://example.com/c?d"),
            ("HTTP://example.com", "http://example.com/"),
            ("http://example.com?x", "http://example.com/?x"),
            ("c:d/e", ""),
            ("", ""),
            ("#f", ""),
            ("https://example.com/c", ""),
            ("http://example.com:8080/c", ""),
            ("http://example.org/c", ""),
            ("//example.com.evil/c", ""),
            ("http:/c", ""),
            ("http:c", ""),
            ("mailto:a@example.com", ""),
            ("/a b", ""),
        ] {
            let mut all = vec![TARGET];
            all.extend((!expected.is_empty()).then_some(expected));
            assert_eq!(keys("POST", 201, &format!("Location: {reference}\r\n")), all, "{reference}");
            assert_eq!(keys("POST", 201, &format!("Content-Location: {reference}\r\n")), all, "{reference}");
        }
        let both = keys("PUT", 200, "Location: /x\r\nContent-Location: /y\r\n");
        assert_eq!(both, [TARGET, "http://example.com/x", "http://example.com/y"]);
    }

    #[test]
    fn the_target_by_other_names() {
        for same in ["", "b?q", "/a/b?q", "http://EXAMPLE.com/a/b?q", "/a/./b?q", "#x"] {
            assert!(names_target(&request("POST"), same.as_bytes()), "{same}");
        }
        for other in ["/a/b", "/a/b?Q", "/a/b?q&", "https://example.com/a/b?q", "/a/%62?q"] {
            assert!(!names_target(&request("POST"), other.as_bytes()), "{other}");
        }
    }

    /// RFC 9875 §3.
    #[test]
    fn groups() {
        let groups = |method, status| {
            with_fields(b"Cache-Group-Invalidation: \"a\", \"b\"\r\n", |fields| {
                let invalidation = decide_invalidation(&request(method), status, fields, &Rules::default());
                invalidation.groups.iter().map(<[u8]>::to_vec).collect::<Vec<_>>()
            })
            .unwrap()
        };
        assert_eq!(groups("POST", 200), [b"a", b"b"]);
        assert!(groups("GET", 200).is_empty() && groups("POST", 500).is_empty());
    }
}
