//! Request cookies in a shared cache.
//!
//! A cookie usually identifies one visitor. Unless the response explicitly allows sharing, a request with a cookie
//! therefore belongs to one visitor. The configuration may name cookies that do not identify visitors.

use crate::request::CacheRequest;
use flatout_http::cookie::cookies;
use flatout_http::percent;

/// Rules for request cookies, by cookie name. A trailing `*` matches any suffix; names are case-sensitive (RFC 6265
/// §5.4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CookieRules {
    /// Cookies that make a request bypass the cache.
    pub bypass: Vec<String>,
    /// Cookies that do not identify visitors.
    pub ignore: Vec<String>,
    /// Cookies whose values are part of the variant key. They do not identify visitors. Exact names only.
    pub key: Vec<String>,
}

/// Prefix of entries of `Stored::vary` that name a cookie. No field name contains a colon, so these entries are
/// unambiguous.
pub const VARY_PREFIX: &str = "cookie:";

/// Prefix of the entry of `Stored::vary` that replaces `cookie`: the semicolon-separated patterns after it are
/// excluded, and all other cookies are compared.
pub const REST_PREFIX: &str = "cookies-but:";

/// Returns whether any cookie of `request` may identify the visitor.
///
/// The rules assume that the origin reads the path as flatout does. If the path has an encoded delimiter, the origin
/// may respond with a different page, so every cookie counts.
pub fn names_visitor(request: &CacheRequest<'_>, rules: &CookieRules) -> bool {
    let mut cookies = each_cookie(request).peekable();
    if cookies.peek().is_none() {
        return false;
    }
    has_encoded_delimiter(request.path)
        || cookies.any(|(name, value)| {
            !is_ignored(rules.ignore.iter(), name, value) && !rules.key.iter().any(|key| key.as_bytes() == name)
        })
}

/// Returns whether any cookie of `request` makes it bypass the cache.
pub fn bypasses(request: &CacheRequest<'_>, rules: &CookieRules) -> bool {
    let is_listed = |name: &[u8]| matches_any(rules.bypass.iter(), name);
    !rules.bypass.is_empty()
        && each_cookie(request)
            .any(|(name, value)| is_listed(name) || pieces(value).any(|piece| is_listed(name_of(piece))))
}

/// Returns whether a cookie matches one of `patterns` and cannot hide another cookie.
fn is_ignored(patterns: impl Iterator<Item = impl AsRef<str>>, name: &[u8], value: &[u8]) -> bool {
    let mut patterns = patterns.filter(|pattern| is_match(pattern.as_ref(), name));
    patterns.any(|pattern| pattern.as_ref() == "*" || value.iter().all(|&byte| is_cookie_octet(byte)))
}

/// Returns whether `byte` may occur in a cookie's value (RFC 6265 §4.1.1). Some applications end a value at a different
/// byte, such as a space or a comma, and read a further cookie after it.
const fn is_cookie_octet(byte: u8) -> bool {
    matches!(byte, 0x21 | 0x23..=0x2b | 0x2d..=0x3a | 0x3c..=0x5b | 0x5d..=0x7e)
}

/// Returns the parts of a cookie's value after a byte that may end it, which some applications read as cookies.
fn pieces(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| !is_cookie_octet(byte)).skip(1).filter(|piece| !piece.is_empty())
}

fn name_of(pair: &[u8]) -> &[u8] {
    pair.split(|&byte| byte == b'=').next().unwrap_or_default()
}

/// Returns whether `path` has a percent-encoded `?`, `#`, `;` or control character. Servers that decode a target before
/// they split it end the path there.
fn has_encoded_delimiter(path: &[u8]) -> bool {
    let ends_path = |byte: u8| matches!(byte, b'?' | b'#' | b';') || byte.is_ascii_control();
    path.windows(3).any(|bytes| percent::decode_first(bytes).is_some_and(ends_path))
}

/// Appends the values of the cookies called `name` to `output`. Returns false if there are none.
///
/// An application may treat a cookie with a different name as `name`: PHP reads `lang[]`, `la%6Eg` and a bare `lang` as
/// `lang`, and other applications ignore case. Such a cookie is appended with its name, so that a response that may
/// depend on it is a separate variant.
pub(crate) fn write_cookie(name: &str, request: &CacheRequest<'_>, output: &mut Vec<u8>) -> bool {
    let mut is_there = false;
    for (seen, value) in each_cookie(request) {
        let is_it = seen == name.as_bytes();
        // A cookie without a name consists only of a value, which may be read as a name.
        let alias = if seen.is_empty() { value } else { seen };
        let is_inside = || pieces(value).any(|piece| may_be_read_as(name_of(piece), name.as_bytes()));
        if !is_it && !may_be_read_as(alias, name.as_bytes()) && !is_inside() {
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

/// Returns the entry for `Stored::vary` that stands for all cookies not named by `rules`, or `None` if `rules` name no
/// cookie.
pub(crate) fn rest_name(rules: &CookieRules) -> Option<String> {
    let named: Vec<&str> = rules.ignore.iter().chain(&rules.key).map(String::as_str).collect();
    (!named.is_empty()).then(|| format!("{REST_PREFIX}{}", named.join(";")))
}

/// Appends to `output` all cookies that match none of the semicolon-separated `patterns`. Returns false if there are
/// none.
pub(crate) fn write_rest(patterns: &str, request: &CacheRequest<'_>, output: &mut Vec<u8>) -> bool {
    let start = output.len();
    for (name, value) in each_cookie(request).filter(|(name, value)| !is_ignored(patterns.split(';'), name, value)) {
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

/// Returns a cookie's name as lenient applications read it.
fn decoded(name: &[u8]) -> impl Iterator<Item = u8> {
    percent::decode(name)
        .skip_while(|&byte| byte == b' ')
        .take_while(|&byte| byte != b'[' && byte != 0)
        .map(|byte| if matches!(byte, b'.' | b' ' | b'+') { b'_' } else { byte.to_ascii_lowercase() })
}

fn each_cookie<'r>(request: &CacheRequest<'r>) -> impl Iterator<Item = (&'r [u8], &'r [u8])> {
    cookies(request.fields.all("cookie"))
}

fn matches_any(mut patterns: impl Iterator<Item = impl AsRef<str>>, name: &[u8]) -> bool {
    patterns.any(|pattern| is_match(pattern.as_ref(), name))
}

fn is_match(pattern: &str, name: &[u8]) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning.as_bytes()),
        None => pattern.as_bytes() == name,
    }
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
            // Cookies that some applications read after the end of another one.
            ("Cookie: _ga=1 user=7\r\n", true, false),
            ("Cookie: _ga=1,sid=7\r\n", true, true),
            ("Cookie: _ga=\"1\tsid=7\"\r\n", true, true),
            ("Cookie: _ga=1\\sid=7\r\n", true, true),
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
            ("Cookie: _ga=1 lang=fr\r\n", Some("_ga=1 lang=fr")),
            ("Cookie: _ga=lang, slang=fr\r\n", None),
        ] {
            let mut value = Vec::new();
            let is_there = ask(lines, |request| write_cookie("lang", request, &mut value));
            assert_eq!(is_there.then_some(&value[..]), expected.map(str::as_bytes), "{lines}");
        }
    }
}
