//! Request cookies in a shared cache.
//!
//! A cookie usually identifies one visitor. Unless the response explicitly allows sharing, a request with a cookie
//! therefore belongs to one visitor. The configuration may name cookies that do not identify visitors.

use crate::request::CacheRequest;
use flatout_http::cookie::cookies;

/// Treatment of request cookies by name. A trailing `*` matches any suffix; names are case-sensitive (RFC 6265 §5.4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CookieRules {
    /// A request with one of these bypasses the cache.
    pub bypass: Vec<String>,
    /// These do not identify visitors.
    pub ignore: Vec<String>,
    /// The values of these are part of the variant key; otherwise they do not identify visitors. Exact names only.
    pub key: Vec<String>,
}

/// Prefix of a cookie's name among the names of `Stored::vary`. No field name contains a colon.
pub const VARY_PREFIX: &str = "cookie:";

/// Prefix of semicolon-separated patterns among the names of `Stored::vary` if Vary names Cookie: all other cookies
/// are compared.
pub const REST_PREFIX: &str = "cookies-but:";

/// Returns whether a cookie of `request` may identify its visitor.
pub fn names_visitor(request: &CacheRequest<'_>, rules: &CookieRules) -> bool {
    each_cookie(request)
        .any(|(name, _)| !matches_any(rules.ignore.iter(), name) && !rules.key.iter().any(|key| key.as_bytes() == name))
}

/// Returns whether a cookie of `request` requires bypassing the cache.
pub fn bypasses(request: &CacheRequest<'_>, rules: &CookieRules) -> bool {
    !rules.bypass.is_empty() && each_cookie(request).any(|(name, _)| matches_any(rules.bypass.iter(), name))
}

/// Appends the values of the cookies called `name`. Returns false if there are none.
///
/// An application may read a cookie of another name as `name`: PHP reads `lang[]`, `la%6Eg` and a bare `lang` as
/// `lang`, and others ignore case. Such a cookie is appended whole, so that a response that may depend on it is a
/// separate variant.
pub(crate) fn write_cookie(name: &str, request: &CacheRequest<'_>, output: &mut Vec<u8>) -> bool {
    let mut is_there = false;
    for (seen, value) in each_cookie(request) {
        let is_it = seen == name.as_bytes();
        // A cookie without a name consists of its value.
        let alias = if seen.is_empty() { value } else { seen };
        if !is_it && !may_be_read_as(alias, name.as_bytes()) {
            continue;
        }
        if is_there {
            output.push(b';');
        }
        if !is_it {
            output.extend_from_slice(seen);
            output.push(b'=');
        }
        output.extend_from_slice(value);
        is_there = true;
    }
    is_there
}

/// Name in `Stored::vary` for all cookies that `rules` do not name. `None`: `rules` name no cookie.
pub(crate) fn rest_name(rules: &CookieRules) -> Option<String> {
    let named: Vec<&str> = rules.ignore.iter().chain(&rules.key).map(String::as_str).collect();
    (!named.is_empty()).then(|| format!("{REST_PREFIX}{}", named.join(";")))
}

/// Appends all cookies that match none of the semicolon-separated `patterns`. Returns false if there are none.
pub(crate) fn write_rest(patterns: &str, request: &CacheRequest<'_>, output: &mut Vec<u8>) -> bool {
    let start = output.len();
    for (name, value) in each_cookie(request).filter(|(name, _)| !matches_any(patterns.split(';'), name)) {
        if output.len() > start {
            output.push(b';');
        }
        output.extend_from_slice(name);
        output.push(b'=');
        output.extend_from_slice(value);
    }
    output.len() > start
}

/// Returns whether an application may read a cookie called `seen` as `name`. The comparison ignores percent-encoding,
/// case, anything after a bracket, and the characters that PHP replaces in names.
fn may_be_read_as(seen: &[u8], name: &[u8]) -> bool {
    decoded(seen).eq(decoded(name))
}

/// Cookie name as lenient applications read it.
fn decoded(name: &[u8]) -> impl Iterator<Item = u8> {
    let digit = |index: usize| name.get(index).and_then(|&byte| (byte as char).to_digit(16));
    let mut index = 0;
    std::iter::from_fn(move || {
        let byte = *name.get(index)?;
        let escaped = if byte == b'%' { digit(index + 1).zip(digit(index + 2)) } else { None };
        index += if escaped.is_some() { 3 } else { 1 };
        Some(escaped.map_or(byte, |(high, low)| (high * 16 + low) as u8))
    })
    .skip_while(|&byte| byte == b' ')
    .take_while(|&byte| byte != b'[' && byte != 0)
    .map(|byte| if matches!(byte, b'.' | b' ' | b'+') { b'_' } else { byte.to_ascii_lowercase() })
}

fn each_cookie<'r>(request: &CacheRequest<'r>) -> impl Iterator<Item = (&'r [u8], &'r [u8])> {
    cookies(request.fields.all("cookie"))
}

fn matches_any(mut patterns: impl Iterator<Item = impl AsRef<str>>, name: &[u8]) -> bool {
    patterns.any(|pattern| match pattern.as_ref().strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning.as_bytes()),
        None => pattern.as_ref().as_bytes() == name,
    })
}

#[cfg(test)]
mod tests {
    use super::{CookieRules, bypasses, names_visitor, write_cookie};
    use crate::lines::with_fields;
    use crate::request::CacheRequest;

    fn ask<T>(lines: &str, look: impl FnOnce(&CacheRequest<'_>) -> T) -> T {
        with_fields(lines.as_bytes(), |fields| {
            look(&CacheRequest {
                method: "GET",
                secure: false,
                authority: b"a",
                path: b"/",
                query: None,
                fields: *fields,
                has_content: false,
                forwarding: &crate::request::AsReceived,
            })
        })
        .unwrap()
    }

    #[test]
    fn which_cookies_tell_visitors_apart() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let rules = CookieRules {
            bypass: names(&["wp-postpass_*", "sid"]),
            ignore: names(&["_ga", "_ga_*"]),
            key: names(&["lang"]),
        };
        for (lines, visitor, bypassed) in [
            ("", false, false),
            ("Cookie:\r\n", false, false),
            ("Cookie: ;\r\n", false, false),
            ("Cookie: _ga=1\r\n", false, false),
            ("Cookie: _ga=1; _ga_X=2;lang=de\r\n", false, false),
            ("Cookie: _GA=1\r\n", true, false),
            ("Cookie: _gab=1\r\n", true, false),
            ("Cookie: langs=1\r\n", true, false),
            ("Cookie: nameless\r\n", true, false),
            ("Cookie: =nameless\r\n", true, false),
            ("Cookie: _ga=1\r\nCookie: user=7\r\n", true, false),
            ("cookie: _ga=sid\r\ncookie: sid=7\r\n", true, true),
            ("Cookie: wp-postpass_9=x\r\n", true, true),
        ] {
            let seen = ask(lines, |request| (names_visitor(request, &rules), bypasses(request, &rules)));
            assert_eq!(seen, (visitor, bypassed), "{lines}");
        }
        let all = CookieRules { ignore: names(&["*"]), ..CookieRules::default() };
        assert!(!ask("Cookie: a=1; b\r\n", |request| names_visitor(request, &all)));
        assert!(ask("Cookie: a=1\r\n", |request| names_visitor(request, &CookieRules::default())));
    }

    #[test]
    fn values_of_one_cookie() {
        for (lines, expected) in [
            ("Cookie: a=1; lang=de\r\n", Some("de")),
            ("Cookie: lang=de\r\nCookie: lang = fr\r\n", Some("de; fr")),
            ("Cookie: lang=\r\n", Some("")),
            ("Cookie: slang=en; la=ng\r\n", None),
            // What an application may read as the cookie makes another variant.
            ("Cookie: lang[]=x; lang=de\r\n", Some("lang[]=x;de")),
            ("Cookie: lang; lang=de\r\n", Some("=lang;de")),
            ("Cookie: Lang=de\r\n", Some("Lang=de")),
            ("Cookie: la%6eg=de\r\n", Some("la%6eg=de")),
            ("Cookie: lang%5b0]=de; lang=fr\r\n", Some("lang%5b0]=de;fr")),
            ("Cookie: lang= de\r\n", Some(" de")),
        ] {
            let mut value = Vec::new();
            let is_there = ask(lines, |request| write_cookie("lang", request, &mut value));
            assert_eq!(is_there.then_some(&value[..]), expected.map(str::as_bytes), "{lines}");
        }
    }
}
