//! Cookies (RFC 6265): parsing Cookie fields and writing Set-Cookie fields. Values that a page sets are percent-encoded
//! where the RFC allows no other form, and decoded when the page reads them.

use flatout_http::cookie::cookies;
use flatout_http::percent;
use flatout_http::token::{is_token, trim};
use std::fmt::Write as _;

/// Maximum number of cookies per request; any more are ignored.
pub const COOKIES_MAX: usize = 128;
/// Maximum length of a cookie's name and value together, in bytes: as much as browsers accept (RFC 6265bis §5.6).
pub const COOKIE_BYTES_MAX: usize = 4096;
/// Maximum length of a Path or Domain attribute, in bytes (RFC 6265bis §5.6).
pub const ATTRIBUTE_BYTES_MAX: usize = 1024;

/// Parses the name and value of each cookie in the value of a Cookie field, in order (RFC 6265 §5.4). Pairs without a
/// name are skipped, and quotation marks around a value are removed. Values are not decoded; see [`decode_value`].
pub fn parse_cookies(field: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    cookies(std::iter::once(field)).filter(|(name, _)| !name.is_empty()).map(|(name, value)| {
        let value = trim(value);
        (name, value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value))
    })
}

/// Percent-decodes a cookie's value. A percent sign without two hexadecimal digits stays as it is.
pub fn decode_value(value: &[u8]) -> Vec<u8> {
    percent::decode(value).collect()
}

/// The SameSite attribute: whether browsers send a cookie with cross-site requests (RFC 6265bis §5.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SameSite {
    /// The cookie is never sent with cross-site requests.
    Strict,
    /// The cookie is sent when a link is followed, but not when a form is submitted with POST.
    #[default]
    Lax,
    /// The cookie is always sent. Requires Secure.
    None,
}

impl SameSite {
    /// Parses the attribute's value, ignoring case.
    pub fn parse(text: &str) -> Option<Self> {
        [("strict", Self::Strict), ("lax", Self::Lax), ("none", Self::None)]
            .into_iter()
            .find_map(|(name, value)| text.eq_ignore_ascii_case(name).then_some(value))
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "Strict",
            Self::Lax => "Lax",
            Self::None => "None",
        }
    }
}

/// A cookie to set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cookie<'a> {
    /// The name, which must be a token.
    pub name: &'a [u8],
    /// The value. Percent signs, and bytes other than visible ASCII characters except quotation mark, comma, semicolon
    /// and backslash, are percent-encoded.
    pub value: &'a [u8],
    /// The path prefix for which the cookie is sent; no Path attribute if empty.
    pub path: &'a [u8],
    /// The domain for which the cookie is sent, including its subdomains; `None` for this host only.
    pub domain: Option<&'a [u8]>,
    /// Lifetime in seconds; `None` for the duration of the browser session. 0 or less deletes the cookie.
    pub max_age_s: Option<i64>,
    /// True if the cookie is sent only over https.
    pub secure: bool,
    /// True if scripts cannot access the cookie.
    pub http_only: bool,
    /// The policy for cross-site requests.
    pub same_site: SameSite,
}

flatout_reason::reasons! {
    /// The reason why a cookie is invalid.
    pub enum CookieError { text, }
    /// The name is not a token (RFC 6265 §4.1.1).
    Name, "a cookie's name may contain only letters, digits and !#$%&'*+-.^_`|~";
    /// Path or Domain contains bytes that are not allowed, or is too long.
    Attribute, "a cookie's path or domain must not contain control characters or semicolons, or be longer than 1,024 bytes";
    /// Name and encoded value together are longer than [`COOKIE_BYTES_MAX`].
    TooLong, "a cookie's name and percent-encoded value must not exceed 4,096 bytes together";
    /// The cookie has SameSite=None but not Secure, which browsers reject.
    NoneInsecure, "a cookie with same_site = \"none\" must be secure, or browsers refuse it";
    /// The name begins with `__Secure-` without Secure, or with `__Host-` without Secure and Path=/ or with Domain (RFC
    /// 6265bis §4.1.3).
    Prefix, "a cookie named __Secure-... or __Host-... must be secure, and __Host-... also requires path = \"/\" and no domain";
}

impl Cookie<'_> {
    /// Appends the value of a Set-Cookie field to `out`.
    pub fn encode_to(&self, out: &mut String) -> Result<(), CookieError> {
        let name = self.check_name()?;
        let value = percent::encode(self.value, |byte| byte != b'%' && is_cookie_octet(byte));
        if name.len() + value.len() > COOKIE_BYTES_MAX {
            return Err(CookieError::TooLong);
        }
        let path = check_attribute(self.path)?;
        let domain = self.domain.map(check_attribute).transpose()?;
        if self.same_site == SameSite::None && !self.secure {
            return Err(CookieError::NoneInsecure);
        }
        // Browsers ignore case when they compare the prefixes (RFC 6265bis §5.7).
        let has_prefix =
            |prefix: &str| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
        let host_only = domain.is_none() && path == "/";
        if (has_prefix("__Secure-") && !self.secure) || (has_prefix("__Host-") && !(self.secure && host_only)) {
            return Err(CookieError::Prefix);
        }
        out.push_str(name);
        out.push('=');
        out.push_str(&value);
        if !path.is_empty() {
            out.push_str("; Path=");
            out.push_str(path);
        }
        if let Some(domain) = domain {
            out.push_str("; Domain=");
            out.push_str(domain);
        }
        if let Some(seconds) = self.max_age_s {
            // Writing to a String cannot fail.
            let _ = write!(out, "; Max-Age={}", seconds.max(0));
        }
        if self.secure {
            out.push_str("; Secure");
        }
        if self.http_only {
            out.push_str("; HttpOnly");
        }
        out.push_str("; SameSite=");
        out.push_str(self.same_site.as_str());
        Ok(())
    }

    fn check_name(&self) -> Result<&str, CookieError> {
        let name = std::str::from_utf8(self.name).map_err(|_| CookieError::Name)?;
        if !is_token(self.name) {
            return Err(CookieError::Name);
        }
        Ok(name)
    }
}

/// Returns whether `byte` is a cookie-octet (RFC 6265 §4.1.1).
const fn is_cookie_octet(byte: u8) -> bool {
    matches!(byte, 0x21 | 0x23..=0x2b | 0x2d..=0x3a | 0x3c..=0x5b | 0x5d..=0x7e)
}

/// Checks that `bytes` are a valid value of an attribute (av-octet, RFC 6265 §4.1.1).
fn check_attribute(bytes: &[u8]) -> Result<&str, CookieError> {
    if bytes.len() > ATTRIBUTE_BYTES_MAX || !bytes.iter().all(|&byte| matches!(byte, 0x20..=0x7e) && byte != b';') {
        return Err(CookieError::Attribute);
    }
    std::str::from_utf8(bytes).map_err(|_| CookieError::Attribute)
}

#[cfg(test)]
mod tests {
    use super::{Cookie, CookieError, SameSite, decode_value, parse_cookies};
    use proptest::prelude::*;

    fn parsed(field: &str) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        parse_cookies(field.as_bytes()).map(|(name, value)| (text(name), text(value))).collect()
    }

    fn cookie<'a>(name: &'a str, value: &'a str) -> Cookie<'a> {
        Cookie {
            name: name.as_bytes(),
            value: value.as_bytes(),
            path: b"/",
            domain: None,
            max_age_s: None,
            secure: true,
            http_only: true,
            same_site: SameSite::Lax,
        }
    }

    fn encoded(cookie: &Cookie<'_>) -> Result<String, CookieError> {
        let mut out = String::new();
        cookie.encode_to(&mut out).map(|()| out)
    }

    #[test]
    fn what_browsers_send() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        for (field, expected) in [
            ("a=b", vec![pair("a", "b")]),
            ("a=b; c=d;e=f", vec![pair("a", "b"), pair("c", "d"), pair("e", "f")]),
            ("a=\"b c\"; d=\"", vec![pair("a", "b c"), pair("d", "\"")]),
            ("a=b=c; =x; y; ; z=", vec![pair("a", "b=c"), pair("z", "")]),
            ("", vec![]),
        ] {
            assert_eq!(parsed(field), expected, "{field}");
        }
    }

    #[test]
    fn what_is_set() {
        assert_eq!(encoded(&cookie("a", "b")).unwrap(), "a=b; Path=/; Secure; HttpOnly; SameSite=Lax");
        let long = Cookie {
            path: b"/x",
            domain: Some(b"example.com"),
            max_age_s: Some(60),
            secure: false,
            http_only: false,
            same_site: SameSite::Strict,
            ..cookie("a", "")
        };
        assert_eq!(encoded(&long).unwrap(), "a=; Path=/x; Domain=example.com; Max-Age=60; SameSite=Strict");
        let gone = Cookie { max_age_s: Some(-5), ..cookie("a", "") };
        assert!(encoded(&gone).unwrap().contains("; Max-Age=0;"));
        for (value, expected) in [
            ("b c", "b%20c"),
            ("b; Domain=evil", "b%3B%20Domain=evil"),
            ("b\r\nX: y", "b%0D%0AX:%20y"),
            ("\u{e9}", "%C3%A9"),
            ("100%", "100%25"),
            ("%20", "%2520"),
            ("\"a\\,b\"", "%22a%5C%2Cb%22"),
            ("a=b/c+d~(e)", "a=b/c+d~(e)"),
        ] {
            let line = encoded(&cookie("a", value)).unwrap();
            assert_eq!(line, format!("a={expected}; Path=/; Secure; HttpOnly; SameSite=Lax"));
            assert_eq!(decode_value(expected.as_bytes()), value.as_bytes());
        }
    }

    #[test]
    fn what_is_refused() {
        let long = "x".repeat(4096);
        for (wrong, error) in [
            (cookie("a b", "c"), CookieError::Name),
            (cookie("", "c"), CookieError::Name),
            (cookie("a\r\nX", "c"), CookieError::Name),
            (cookie("a", &long), CookieError::TooLong),
            (cookie("a", &" ".repeat(1366)), CookieError::TooLong),
            (Cookie { path: b"/;x", ..cookie("a", "b") }, CookieError::Attribute),
            (Cookie { domain: Some(b"a\r\nb"), ..cookie("a", "b") }, CookieError::Attribute),
            (Cookie { same_site: SameSite::None, secure: false, ..cookie("a", "b") }, CookieError::NoneInsecure),
            (Cookie { secure: false, ..cookie("__secure-a", "b") }, CookieError::Prefix),
            (Cookie { path: b"/x", ..cookie("__Host-a", "b") }, CookieError::Prefix),
            (Cookie { domain: Some(b"example.com"), ..cookie("__Host-a", "b") }, CookieError::Prefix),
        ] {
            assert_eq!(encoded(&wrong), Err(error), "{wrong:?}");
            assert!(!error.text().is_empty());
        }
    }

    proptest! {
        #[test]
        fn nothing_that_comes_is_fatal(field in any::<Vec<u8>>()) {
            for (name, value) in parse_cookies(&field) {
                prop_assert!(!name.is_empty() && !name.contains(&b';') && !value.contains(&b';'));
            }
        }

        #[test]
        fn no_name_or_value_breaks_out_of_its_line(name in any::<Vec<u8>>(), value in any::<Vec<u8>>(), path in any::<Vec<u8>>()) {
            let cookie = Cookie { name: &name, value: &value, path: &path, ..cookie("", "") };
            if let Ok(line) = encoded(&cookie) {
                prop_assert!(line.bytes().all(|byte| (0x20..0x7f).contains(&byte)));
                prop_assert_eq!(line.matches(';').count(), if path.is_empty() { 3 } else { 4 });
                let mut pairs = parse_cookies(line.split(';').next().unwrap().as_bytes());
                let (sent, came) = pairs.next().unwrap();
                prop_assert_eq!((sent, decode_value(came)), (&name[..], value));
            }
        }
    }
}
