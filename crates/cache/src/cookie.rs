//! Cookies of a request, as far as they matter to a shared cache.
//!
//! A cookie usually tells one visitor from another. Unless the response says itself that it is for everybody, a request
//! with a cookie is therefore one visitor's own. The owner of the cache may name cookies that do not tell visitors
//! apart.

use crate::request::CacheRequest;
use flatout_http::cookie::cookies;

/// Which cookies of a request matter. Names end in `*` for all that begin so; their case matters (RFC 6265 §5.4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CookieRules {
    /// A request with one of these leaves the cache out altogether.
    pub bypass: Vec<String>,
    /// These tell no visitor from another.
    pub ignore: Vec<String>,
    /// The values of these are part of the variant key, and tell no visitor from another otherwise. Exact names.
    pub key: Vec<String>,
}

/// What stands before a cookie's name among the names of `Stored::vary`. No field name has a colon.
pub const VARY_PREFIX: &str = "cookie:";

/// What stands before patterns, separated by semicolons, among the names of `Stored::vary` where Vary names Cookie: all cookies
/// but these are compared.
pub const REST_PREFIX: &str = "cookies-but:";

/// Whether a cookie of `request` may tell its visitor from others.
pub fn names_visitor(request: &CacheRequest<'_>, rules: &CookieRules) -> bool {
    each_cookie(request)
        .any(|(name, _)| !matches_any(rules.ignore.iter(), name) && !rules.key.iter().any(|key| key.as_bytes() == name))
}

/// Whether a cookie of `request` is one for which the cache is left out.
pub fn bypasses(request: &CacheRequest<'_>, rules: &CookieRules) -> bool {
    !rules.bypass.is_empty() && each_cookie(request).any(|(name, _)| matches_any(rules.bypass.iter(), name))
}

/// Appends the values that cookies called `name` have. False: there is no such cookie.
///
/// An application may take a cookie of another name for it: PHP reads `lang[]`, `la%6Eg` and a bare `lang` as `lang`, and
/// others ignore case. Such a cookie is appended whole, so that a response which it may have changed is a variant of
/// its own.
pub(crate) fn write_cookie(name: &str, request: &CacheRequest<'_>, output: &mut Vec<u8>) -> bool {
    let mut is_there = false;
    for (seen, value) in each_cookie(request) {
        let is_it = seen == name.as_bytes();
        // One without a name is all value.
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

/// The name that stands for Cookie in `Stored::vary`: all cookies but those that `rules` name. `None`: they name none.
pub(crate) fn rest_name(rules: &CookieRules) -> Option<String> {
    let named: Vec<&str> = rules.ignore.iter().chain(&rules.key).map(String::as_str).collect();
    (!named.is_empty()).then(|| format!("{REST_PREFIX}{}", named.join(";")))
}

/// Appends all cookies but those that match one of `patterns`, which semicolons separate. False: there are none.
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

/// Whether an application may take a cookie called `seen` for one called `name`: percent-encoding, case, what stands
/// behind a bracket, and the characters that PHP replaces in names do not count.
fn may_be_read_as(seen: &[u8], name: &[u8]) -> bool {
    decoded(seen).eq(decoded(name))
}

/// A cookie's name as lenient applications read it.
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
