//! The cookies of one client (RFC 6265 §5, with the rules that browsers have added in its draft successor, RFC 6265bis),
//! without a clock.
//!
//! A cookie is sent only to the hosts of the run, so the list of public suffixes, which protects one site's users from
//! another site, is not needed. A run has no pages that could request something from another site, and no scripts, so
//! `SameSite` and `HttpOnly` have no meaning here. The rule that no response without TLS overwrites a `Secure` cookie would
//! never apply: either all hosts of a run use TLS or none does, and without TLS only loopback hosts store such cookies.
//!
//! Why not the crate `cookie_store`: it reads the clock itself, parses a URL for each request, bounds neither the number
//! nor the memory of cookies, and depends on the crates for URLs, international names and public suffixes, which the lab
//! does not need.

use flatout_http::date::parse_cookie_date;
use flatout_http::host::split_port;
use flatout_http::token::trim;
use std::ops::Range;

/// Maximum number of cookies of a client: the number per host that RFC 6265 §6.1 asks of every client. Browsers store
/// more (Chrome 180, Firefox 150), but few sites set as many.
const COOKIES_MAX: usize = 50;

/// Maximum length of a cookie's name and value together, in bytes (RFC 6265 §6.1).
const PAIR_BYTES_MAX: usize = 4096;

/// Maximum length of an attribute's value that is not ignored, in bytes (RFC 6265bis §5.6).
const ATTRIBUTE_BYTES_MAX: usize = 1024;

/// Maximum memory of a client's cookies, in bytes. By default, servers accept no longer request heads: nginx 32 KiB,
/// Node.js 16 KiB, and Apache httpd 8 KiB in one field.
const JAR_BYTES_MAX: usize = 32 * 1024;

/// Returns the size of an allocation of `bytes` bytes with the overhead of glibc's allocator: a header of 8 bytes, in
/// multiples of 16 bytes, at least 32 bytes. No memory is allocated for 0 bytes.
pub(super) const fn allocated(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        1..=24 => 32,
        _ => (bytes + 8).next_multiple_of(16),
    }
}

/// Time of a response, on two clocks: cookies expire by the wall clock, requests are timed by the monotonic one.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseTime {
    /// Time on the monotonic clock, in nanoseconds.
    pub(super) now_ns: u64,
    /// Unix time, in seconds.
    pub(super) unix_s: i64,
}

/// The parts of a request by which cookies are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestScope<'a> {
    /// Host, without port.
    host: &'a [u8],
    /// Path, without query.
    path: &'a [u8],
    /// True if cookies with the attribute `Secure` are stored and sent: over TLS and, as in browsers and curl, to this
    /// machine.
    is_secure: bool,
}

/// Byte ranges of a request's host and path in its HTTP/1 form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeRanges {
    /// The host, without port.
    host: Range<usize>,
    /// The path, without query.
    path: Range<usize>,
}

impl ScopeRanges {
    /// Finds the host and the path of a request. They are empty if the request has none.
    pub fn of(head: &[u8]) -> Self {
        let range = |part: &[u8]| {
            let start = part.as_ptr().addr() - head.as_ptr().addr();
            start..start + part.len()
        };
        let mut lines = head.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_end);
        let target = lines.next().and_then(|line| line.split(|&byte| byte == b' ').nth(1));
        let path = target.map(|target| target.split(|&byte| byte == b'?').next().unwrap_or(target));
        let host = lines.take_while(|line| !line.is_empty()).find_map(|line| {
            let (name, value) = line.split_at_checked("host:".len())?;
            name.eq_ignore_ascii_case(b"host:").then(|| split_port(trim(value)).0)
        });
        Self { host: host.map_or(0..0, range), path: path.map_or(0..0, range) }
    }
}

impl<'a> RequestScope<'a> {
    /// Returns the scope of the request in whose HTTP/1 form the ranges are.
    pub(super) fn new(head: &'a [u8], ranges: &ScopeRanges, is_tls: bool) -> Self {
        let part = |range: &Range<usize>| head.get(range.clone()).unwrap_or_default();
        let (host, path) = (part(&ranges.host), part(&ranges.path));
        Self { host, path, is_secure: is_tls || is_loopback_host(host) }
    }
}

fn is_loopback_host(host: &[u8]) -> bool {
    domain_matches(host, b"localhost") || host == b"[::1]" || host.starts_with(b"127.") && is_address(host)
}

/// Returns whether a host is an IP address, which has no subdomains.
fn is_address(host: &[u8]) -> bool {
    host.starts_with(b"[") || host.iter().all(|&byte| byte.is_ascii_digit() || byte == b'.')
}

/// Returns whether a host is `domain`, which is in lower case, or one of its subdomains (RFC 6265 §5.1.3).
fn domain_matches(host: &[u8], domain: &[u8]) -> bool {
    let Some(before) = host.len().checked_sub(domain.len()) else { return false };
    host[before..].eq_ignore_ascii_case(domain) && (before == 0 || host[before - 1] == b'.' && !is_address(host))
}

/// Returns whether the path of a request is `path`, or below it (RFC 6265 §5.1.4).
fn path_matches(request: &[u8], path: &[u8]) -> bool {
    let Some(rest) = request.strip_prefix(path) else { return false };
    rest.is_empty() || path.ends_with(b"/") || rest.starts_with(b"/")
}

/// Returns the folder of a request's path: the path of a cookie without the attribute (RFC 6265 §5.1.4).
fn folder_of(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(last) if last > 0 && path[0] == b'/' => &path[..last],
        _ => b"/",
    }
}

/// The result of a Set-Cookie field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetResult {
    /// The cookie was added.
    Added,
    /// The cookie replaced another with the same name, domain and path.
    Replaced,
    /// The cookie has expired, and was removed if it was stored.
    Removed,
    /// The cookie was not stored: it is invalid, for another host, `Secure` without TLS, or there is no room for it.
    /// Browsers would remove another cookie instead; this one is counted.
    Dropped,
}

/// One cookie.
#[derive(Debug)]
struct Cookie {
    /// Name and value as they are sent: `name=value`, or the value alone if there is no name.
    pair: Box<[u8]>,
    /// Length of the name.
    name_bytes: usize,
    /// Host or domain, in lower case.
    domain: Box<[u8]>,
    /// True if the cookie is sent only to `domain`, and not to its subdomains.
    is_host_only: bool,
    path: Box<[u8]>,
    is_secure: bool,
    /// Time on the monotonic clock at which it expires, in nanoseconds; `u64::MAX` if it does not.
    expires_ns: u64,
}

impl Cookie {
    fn name(&self) -> &[u8] {
        &self.pair[..self.name_bytes]
    }

    /// Returns the memory that the cookie refers to, in bytes.
    fn bytes(&self) -> usize {
        allocated(self.pair.len()) + allocated(self.domain.len()) + allocated(self.path.len())
    }

    fn matches(&self, scope: &RequestScope<'_>, now_ns: u64) -> bool {
        let host_matches = if self.is_host_only {
            scope.host.eq_ignore_ascii_case(&self.domain)
        } else {
            domain_matches(scope.host, &self.domain)
        };
        host_matches
            && path_matches(scope.path, &self.path)
            && (scope.is_secure || !self.is_secure)
            && now_ns < self.expires_ns
    }
}

/// The attributes of a Set-Cookie field that have a meaning here (RFC 6265 §5.2).
#[derive(Debug, Default)]
struct Attributes<'a> {
    domain: &'a [u8],
    path: &'a [u8],
    is_secure: bool,
    /// Remaining lifetime in seconds, if specified; 0 or less if the cookie has expired.
    max_age_s: Option<i64>,
    expires_s: Option<i64>,
}

impl<'a> Attributes<'a> {
    fn parse(parts: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut parsed = Self::default();
        for part in parts {
            let (name, value) = split_pair(part);
            if value.len() > ATTRIBUTE_BYTES_MAX {
                continue;
            }
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            if is("domain") {
                parsed.domain = value.strip_prefix(b".").unwrap_or(value);
            } else if is("path") {
                parsed.path = value;
            } else if is("secure") {
                parsed.is_secure = true;
            } else if is("max-age") {
                parsed.max_age_s = parse_max_age(value).or(parsed.max_age_s);
            } else if is("expires") {
                parsed.expires_s = parse_cookie_date(value).or(parsed.expires_s);
            }
        }
        parsed
    }

    /// Returns the time on the monotonic clock at which the cookie expires, in nanoseconds; `None` if it has expired.
    fn expires_ns(&self, now: ResponseTime) -> Option<u64> {
        let lifetime_s = self.max_age_s.or_else(|| Some(self.expires_s?.saturating_sub(now.unix_s)));
        let Some(lifetime_s) = lifetime_s else { return Some(u64::MAX) };
        let lifetime_s = u64::try_from(lifetime_s).ok().filter(|seconds| *seconds > 0)?;
        Some(now.now_ns.saturating_add(lifetime_s.saturating_mul(1_000_000_000)))
    }
}

/// Splits `name=value`, without white space around both. Without an equals sign, the value is empty.
fn split_pair(part: &[u8]) -> (&[u8], &[u8]) {
    match part.iter().position(|&byte| byte == b'=') {
        Some(equals) => (trim(&part[..equals]), trim(&part[equals + 1..])),
        None => (trim(part), b""),
    }
}

/// Parses a lifetime in seconds, which may be negative. `None` if it is not a number.
fn parse_max_age(value: &[u8]) -> Option<i64> {
    let (is_negative, digits) = value.strip_prefix(b"-").map_or((false, value), |digits| (true, digits));
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let seconds = std::str::from_utf8(digits).ok()?.parse().unwrap_or(i64::MAX);
    Some(if is_negative { -seconds } else { seconds })
}

/// Returns whether a cookie may have the name that its prefix reserves (RFC 6265bis §4.1.3): `__Secure-` for cookies with
/// `Secure`, and `__Host-` for those that also have `Path=/` and no `Domain`.
fn is_prefix_valid(pair: &[u8], attributes: &Attributes<'_>) -> bool {
    let begins_with = |prefix: &[u8]| pair.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    if begins_with(b"__Host-") {
        attributes.is_secure && attributes.domain.is_empty() && attributes.path == b"/"
    } else {
        attributes.is_secure || !begins_with(b"__Secure-")
    }
}

/// The cookies of one client, at most [`COOKIES_MAX`] and [`JAR_BYTES_MAX`].
#[derive(Debug, Default)]
pub(super) struct CookieJar {
    /// In the order in which they are sent: longer paths first, then older cookies (RFC 6265 §5.4).
    cookies: Vec<Cookie>,
    /// Memory that the cookies refer to, in bytes.
    bytes: usize,
}

impl CookieJar {
    /// Returns the memory that the cookies use, in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes + allocated(self.cookies.capacity() * size_of::<Cookie>())
    }

    /// Handles the value of one Set-Cookie field of the response to a request with this scope. `bytes_max` is the memory
    /// that all cookies may use, in bytes.
    pub(super) fn set(
        &mut self,
        value: &[u8],
        scope: &RequestScope<'_>,
        now: ResponseTime,
        bytes_max: usize,
    ) -> SetResult {
        let is_control = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
        let mut parts = value.split(|&byte| byte == b';');
        let pair = trim(parts.next().unwrap_or_default());
        // Without an equals sign, there is a value and no name.
        let (name, value_of) = if pair.contains(&b'=') { split_pair(pair) } else { (&b""[..], pair) };
        let pair = if name.is_empty() { value_of.to_vec() } else { [name, b"=", value_of].concat() };
        let is_long = name.len() + value_of.len() > PAIR_BYTES_MAX;
        if pair.is_empty() || is_long || value.iter().any(is_control) {
            return SetResult::Dropped;
        }
        let attributes = Attributes::parse(parts);
        let domain = attributes.domain.to_ascii_lowercase();
        let is_host_only = domain.is_empty();
        let may_set = is_host_only || domain_matches(scope.host, &domain);
        if !may_set || attributes.is_secure && !scope.is_secure || !is_prefix_valid(&pair, &attributes) {
            return SetResult::Dropped;
        }
        let domain = if is_host_only { scope.host.to_ascii_lowercase() } else { domain };
        let path = if attributes.path.starts_with(b"/") { attributes.path } else { folder_of(scope.path) };
        let before = self.cookies.iter().position(|other| {
            (other.name(), &*other.domain, &*other.path) == (name, &domain[..], path)
                && other.is_host_only == is_host_only
        });
        let Some(expires_ns) = attributes.expires_ns(now) else {
            if let Some(before) = before {
                self.bytes -= self.cookies.remove(before).bytes();
            }
            return SetResult::Removed;
        };
        let cookie = Cookie {
            name_bytes: name.len(),
            pair: pair.into(),
            domain: domain.into(),
            is_host_only,
            path: path.into(),
            is_secure: attributes.is_secure,
            expires_ns,
        };
        let bytes_max = bytes_max.min(JAR_BYTES_MAX);
        if let Some(before) = before {
            let bytes = self.bytes - self.cookies[before].bytes() + cookie.bytes();
            if self.bytes() - self.bytes + bytes > bytes_max {
                return SetResult::Dropped;
            }
            self.bytes = bytes;
            self.cookies[before] = cookie;
            return SetResult::Replaced;
        }
        self.forget_expired(now.now_ns);
        let count = self.cookies.len() + 1;
        let table_bytes = allocated(count.max(self.cookies.capacity()) * size_of::<Cookie>());
        if count > COOKIES_MAX || table_bytes + self.bytes + cookie.bytes() > bytes_max {
            return SetResult::Dropped;
        }
        self.bytes += cookie.bytes();
        let place = self.cookies.partition_point(|other| other.path.len() >= cookie.path.len());
        self.cookies.reserve_exact(1);
        self.cookies.insert(place, cookie);
        SetResult::Added
    }

    fn forget_expired(&mut self, now_ns: u64) {
        self.cookies.retain(|cookie| now_ns < cookie.expires_ns);
        self.bytes = self.cookies.iter().map(Cookie::bytes).sum();
    }

    /// Appends the value of the Cookie field of a request with this scope. Returns whether it has any cookie.
    pub(super) fn write(&self, scope: &RequestScope<'_>, now_ns: u64, output: &mut Vec<u8>) -> bool {
        let start = output.len();
        for cookie in self.cookies.iter().filter(|cookie| cookie.matches(scope, now_ns)) {
            if output.len() > start {
                output.extend_from_slice(b"; ");
            }
            output.extend_from_slice(&cookie.pair);
        }
        output.len() > start
    }
}

#[cfg(test)]
mod tests {
    use super::{
        COOKIES_MAX, CookieJar, JAR_BYTES_MAX, PAIR_BYTES_MAX, RequestScope, ResponseTime, ScopeRanges, SetResult,
    };

    const NOW: ResponseTime = ResponseTime { now_ns: 5_000_000_000, unix_s: 1_800_000_000 };

    fn head(target: &str, host: &str) -> String {
        format!("GET {target} HTTP/1.1\r\nAccept: */*\r\nhost: {host}\r\n\r\nHost: content")
    }

    fn scope(head: &[u8], is_tls: bool) -> RequestScope<'_> {
        RequestScope::new(head, &ScopeRanges::of(head), is_tls)
    }

    fn set(jar: &mut CookieJar, value: &[u8], target: &str, host: &str) -> SetResult {
        jar.set(value, &scope(head(target, host).as_bytes(), false), NOW, usize::MAX)
    }

    /// Returns the cookies of a request, `later_s` after the responses.
    fn sent(jar: &CookieJar, target: &str, host: &str, is_tls: bool, later_s: u64) -> String {
        let (head, mut value) = (head(target, host), Vec::new());
        let now_ns = NOW.now_ns + later_s * 1_000_000_000;
        let has_any = jar.write(&scope(head.as_bytes(), is_tls), now_ns, &mut value);
        assert_eq!(has_any, !value.is_empty());
        String::from_utf8(value).unwrap()
    }

    #[test]
    fn the_scope_of_a_request_is_read_from_its_head() {
        for (target, host, is_tls, expected) in [
            ("/a/b?c=/d", "Example.org:8080", false, ("Example.org", "/a/b", false)),
            ("/", "[::1]:80", false, ("[::1]", "/", true)),
            ("/", "[::2]", false, ("[::2]", "/", false)),
            ("*", "127.0.0.1:80", false, ("127.0.0.1", "*", true)),
            ("/", "127.example", false, ("127.example", "/", false)),
            ("/", "a.LOCALHOST", false, ("a.LOCALHOST", "/", true)),
            ("/", "example", true, ("example", "/", true)),
        ] {
            let head = head(target, host);
            let scope = scope(head.as_bytes(), is_tls);
            let (host, path, is_secure) = expected;
            assert_eq!(scope, RequestScope { host: host.as_bytes(), path: path.as_bytes(), is_secure });
        }
        for broken in ["", "GET", "GET /", "\r\n\r\nHost: a", "GET / HTTP/1.1\r\nHost"] {
            assert_eq!(scope(broken.as_bytes(), false).host, b"", "{broken}");
        }
    }

    #[test]
    fn cookies_are_replaced_by_name_domain_and_path() {
        let mut jar = CookieJar::default();
        for (value, result) in [
            ("a=1", SetResult::Added),
            (" b = 2 ; HttpOnly; SameSite=Lax", SetResult::Added),
            ("a=3", SetResult::Replaced),
            ("a=4; Path=/x", SetResult::Added),
            ("no name", SetResult::Added),
            ("e=", SetResult::Added),
            ("q=\"x=y\"", SetResult::Added),
        ] {
            assert_eq!(set(&mut jar, value.as_bytes(), "/", "h"), result, "{value}");
        }
        assert_eq!(sent(&jar, "/", "h", false, 0), "a=3; b=2; no name; e=; q=\"x=y\"");
        // A cookie of a domain is another than that of its host.
        assert_eq!(set(&mut jar, b"e=2; Domain=h", "/", "h"), SetResult::Added);
        assert_eq!(set(&mut jar, b"e=; Domain=h; Max-Age=0", "/", "h"), SetResult::Removed);
        // Longer paths come first.
        assert_eq!(sent(&jar, "/x/y", "h", false, 0), "a=4; a=3; b=2; no name; e=; q=\"x=y\"");
        assert_eq!(sent(&jar, "/xy", "h", false, 0), sent(&jar, "/", "h", false, 0));
    }

    #[test]
    fn a_cookie_goes_to_its_host_and_its_path() {
        let mut jar = CookieJar::default();
        assert_eq!(set(&mut jar, b"own=1", "/a/b/c?d", "www.Example.org:80"), SetResult::Added);
        assert_eq!(set(&mut jar, b"all=1; domain=.EXAMPLE.org; path=/", "/a", "www.example.org"), SetResult::Added);
        assert_eq!(set(&mut jar, b"odd=1; path=x", "/f/g", "www.example.org"), SetResult::Added);
        for (target, host, expected) in [
            ("/a/b", "WWW.example.org", "own=1; all=1"),
            ("/a/b/x", "www.example.org:81", "own=1; all=1"),
            ("/a/bc", "www.example.org", "all=1"),
            ("/f/", "www.example.org", "odd=1; all=1"),
            ("/a/b", "example.org", "all=1"),
            ("/a/b", "a.www.example.org", "all=1"),
            ("/a/b", "badexample.org", ""),
            ("/a/b", "org", ""),
        ] {
            assert_eq!(sent(&jar, target, host, false, 0), expected, "{host}{target}");
        }
        for (domain, host) in [("other.org", "example.org"), ("www.example.org", "example.org"), ("0.1", "10.0.0.1")] {
            let value = format!("c=1; Domain={domain}");
            assert_eq!(set(&mut jar, value.as_bytes(), "/", host), SetResult::Dropped, "{value}");
        }
        assert_eq!(set(&mut jar, b"c=1; Domain=10.0.0.1", "/", "10.0.0.1"), SetResult::Added);
    }

    #[test]
    fn secure_cookies_need_tls_or_a_loopback_host() {
        let mut jar = CookieJar::default();
        assert_eq!(set(&mut jar, b"a=1; Secure", "/", "example.org"), SetResult::Dropped);
        assert_eq!(set(&mut jar, b"a=1; secure=x", "/", "127.0.0.1:80"), SetResult::Added);
        assert_eq!(sent(&jar, "/", "127.0.0.1", false, 0), "a=1");
        let head = head("/", "example.org");
        let scope = scope(head.as_bytes(), true);
        assert_eq!(jar.set(b"b=1; Secure", &scope, NOW, usize::MAX), SetResult::Added);
        assert_eq!(sent(&jar, "/", "example.org", true, 0), "b=1");
        assert_eq!(sent(&jar, "/", "example.org", false, 0), "");
    }

    #[test]
    fn reserved_prefixes_need_their_attributes() {
        for (value, result) in [
            ("__Secure-a=1; Secure", SetResult::Added),
            ("__Secure-b=1", SetResult::Dropped),
            ("__Host-a=1; Secure; Path=/", SetResult::Added),
            ("__hOST-b=1; Secure; Path=/x", SetResult::Dropped),
            ("__Host-c=1; Secure; Path=/; Domain=localhost", SetResult::Dropped),
            ("__Host-d=1; Path=/", SetResult::Dropped),
            ("__Host_e=1", SetResult::Added),
        ] {
            assert_eq!(set(&mut CookieJar::default(), value.as_bytes(), "/", "localhost"), result, "{value}");
        }
    }

    #[test]
    fn cookies_expire_and_are_removed() {
        let mut jar = CookieJar::default();
        for value in ["a=1; Max-Age=10", "b=1; expires=Fri, 15 Jan 2027 08:00:20 GMT", "c=1; Max-Age=x", "d=1; Max-Age"]
        {
            assert_eq!(set(&mut jar, value.as_bytes(), "/", "h"), SetResult::Added, "{value}");
        }
        assert_eq!(sent(&jar, "/", "h", false, 9), "a=1; b=1; c=1; d=1");
        assert_eq!(sent(&jar, "/", "h", false, 10), "b=1; c=1; d=1");
        assert_eq!(sent(&jar, "/", "h", false, 20), "c=1; d=1");
        // Max-Age takes precedence over Expires, and is clamped.
        let long = "a=2; Max-Age=99999999999999999999; Expires=Thu, 01 Jan 1970 00:00:00 GMT";
        assert_eq!(set(&mut jar, long.as_bytes(), "/", "h"), SetResult::Replaced);
        assert_eq!(sent(&jar, "/", "h", false, 1_000_000), "a=2; c=1; d=1");
        for value in [
            "a=; Max-Age=0",
            "b=; Expires=Thu, 01-Jan-1970 00:00:01 GMT",
            "c=; Expires=Thu, 01-Jan-70 00:00:00 GMT",
            "d=; Max-Age=-1",
            "unknown=; Max-Age=0",
            "unknown=; expires=Wed, 31 Dec 1969 23:59:59 GMT",
            "unknown=; expires=Fri, 1 Jan 2010 0:00:00",
        ] {
            assert_eq!(set(&mut jar, value.as_bytes(), "/", "h"), SetResult::Removed, "{value}");
        }
        assert_eq!((sent(&jar, "/", "h", false, 0), jar.cookies.len(), jar.bytes), (String::new(), 0, 0));
    }

    #[test]
    fn hostile_cookies_are_dropped_and_the_jar_is_bounded() {
        let mut jar = CookieJar::default();
        let huge = format!("a={}", "x".repeat(PAIR_BYTES_MAX));
        let prefixed = ["__Host-a=1", "__secure-a=1; Path=/", "__Host-a=1; Secure", "__Secure-a"];
        for value in ["", ";", "=", " ; Path=/", "a=\0", "a\r=1", "a=1\nb=2", "a=1; Path=/\x7f", &huge]
            .into_iter()
            .chain(prefixed)
        {
            assert_eq!(set(&mut jar, value.as_bytes(), "/", "h"), SetResult::Dropped, "{value:?}");
        }
        assert_eq!(jar.bytes(), 0);
        let most = format!("a={}", "x".repeat(PAIR_BYTES_MAX - 1));
        assert_eq!(set(&mut jar, most.as_bytes(), "/", "h"), SetResult::Added);
        assert_eq!(set(&mut jar, b"a=", "/", "h"), SetResult::Replaced);
        // An attribute that is too long is ignored.
        let long = format!("b=1; Path=/{}", "p".repeat(2_000));
        assert_eq!(set(&mut jar, long.as_bytes(), "/", "h"), SetResult::Added);
        assert_eq!(sent(&jar, "/", "h", false, 0), "a=; b=1");
        let added = (0..5_000).filter(|n| set(&mut jar, format!("n{n}=1").as_bytes(), "/", "h") == SetResult::Added);
        assert_eq!(added.count(), COOKIES_MAX - 2);
        // Stored cookies can still be replaced and removed.
        assert_eq!(set(&mut jar, b"n0=2", "/", "h"), SetResult::Replaced);
        assert_eq!(set(&mut jar, b"n0=; Max-Age=0", "/", "h"), SetResult::Removed);
        assert_eq!(set(&mut jar, b"late=1; Max-Age=1", "/", "h"), SetResult::Added);
        // Few large cookies fill it too.
        let mut jar = CookieJar::default();
        for n in 0..100 {
            set(&mut jar, format!("n{n}={}", "x".repeat(4_000)).as_bytes(), "/", "h");
        }
        assert!(jar.bytes() <= JAR_BYTES_MAX && jar.bytes() > JAR_BYTES_MAX / 2);
        let scope = RequestScope { host: b"h", path: b"/", is_secure: false };
        let within = |bytes_max| CookieJar::default().set(b"a=1", &scope, NOW, bytes_max);
        assert_eq!((within(100), within(1_000)), (SetResult::Dropped, SetResult::Added));
    }

    #[test]
    fn an_expired_cookie_makes_room() {
        let mut jar = CookieJar::default();
        for n in 0..COOKIES_MAX {
            set(&mut jar, format!("n{n}=1; Max-Age=5").as_bytes(), "/", "h");
        }
        assert_eq!(set(&mut jar, b"late=1", "/", "h"), SetResult::Dropped);
        let scope = RequestScope { host: b"h", path: b"/", is_secure: false };
        let later = ResponseTime { now_ns: NOW.now_ns + 5_000_000_000, unix_s: NOW.unix_s + 5 };
        assert_eq!(jar.set(b"late=1", &scope, later, jar.bytes()), SetResult::Added);
        assert_eq!(sent(&jar, "/", "h", false, 5), "late=1");
    }

    #[test]
    fn any_bytes_are_a_cookie_or_dropped() {
        let value = b"a=1; Domain=.h.org; Path=/x; Max-Age=-9; Expires=Fri, 15-Jan-2027 08:00:20 GMT; Secure";
        for end in 0..=value.len() {
            for byte in 0..=u8::MAX {
                let mut jar = CookieJar::default();
                let bytes = [&value[..end], &[byte], &value[end..]].concat();
                for piece in [&bytes[..], &bytes[..=end], &bytes[end..]] {
                    set(&mut jar, piece, "/x/y", "h.org");
                    let line = [b"GET ", piece, b"\r\nHost: ", piece].concat();
                    let _ = scope(&line, true);
                }
                let mut sent = Vec::new();
                let head = head("/x/y", "h.org");
                jar.write(&scope(head.as_bytes(), true), NOW.now_ns, &mut sent);
                assert!(!sent.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t'));
            }
        }
    }
}
