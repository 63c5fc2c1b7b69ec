//! Session affinity: the cookie that names the origin that has a client's session.
//!
//! The cookie's value is an authentication code of the origin's URL, so it does not reveal the address and cannot be
//! guessed. It is the same in every process with the same key, and for every client of the origin, so it identifies
//! nobody. If the cookie has a lifetime, the value also contains the time at which it was issued, with a second code,
//! so that cookies in use are renewed.
//!
//! The cookie belongs to the proxy alone: neither the origin nor the cache sees it. A response that is stored, or that
//! several clients share, never sets it.

use crate::exchange::UpstreamRequest;
use crate::step::ProxyStep;
use aws_lc_rs::hmac::{self, HMAC_SHA256, Key};
use flatout_cache::directive::{Seconds, parse_response_directives};
use flatout_cache::lines::with_fields;
use flatout_config::model::{Proxy, SameSite, Sticky, is_trusted};
use flatout_handler::Request;
use flatout_handler::routed::RoutedRequest;
use flatout_http::base64::{BASE64URL_NOPAD, decode};
use flatout_http::cookie::cookies;
use flatout_http::forwarded::{Sender, read_claim};
use flatout_http::head::{Fields, Header};
use flatout_http::request::RequestHead;
use flatout_http::token::trim;
use flatout_http::url::OriginAddress;
use flatout_os::clock::unix_s;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::iter::once;

/// Length of an authentication code in a cookie, in bytes.
const TAG_BYTES: usize = 16;

/// Length of the time in a cookie, in bytes.
const TIME_BYTES: usize = 8;

/// How far the clock of another machine that issued a cookie may be ahead, in seconds.
const CLOCK_ERROR_S: i64 = 300;

type Tag = [u8; TAG_BYTES];

/// The cookie of a `proxy` step, and the origins that it can name.
#[derive(derive_more::Debug)]
#[debug("StickyCookie {{ name: {name:?}, .. }}")]
pub(crate) struct StickyCookie {
    name: Box<str>,
    max_age_s: Option<u64>,
    same_site: SameSite,
    /// The value for each origin, by index.
    tags: Vec<Tag>,
    /// The origin that each valid value names, and whether the key that signs has signed it. The table hashes with a
    /// secret seed, so the time of a lookup tells nothing about valid values.
    origins: HashMap<Tag, (usize, bool)>,
    /// The keys for the codes of times, beginning with the one that signs.
    time_keys: Vec<Key>,
}

/// A client's session, as far as its request tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Affinity {
    /// The index of the origin that the client's cookie names, or `None` if the client has no valid cookie.
    pub(crate) origin: Option<usize>,
    /// True if the cookie is to be replaced even if the origin stays the same.
    is_due: bool,
}

impl StickyCookie {
    /// Creates the cookie of the site `site` for origins with these `addresses`.
    pub(crate) fn new(settings: &Sticky, site: &str, addresses: &[OriginAddress]) -> Self {
        let mut cookie = Self {
            name: settings.cookie.as_str().into(),
            max_age_s: settings.max_age_s,
            same_site: settings.same_site,
            tags: Vec::new(),
            origins: HashMap::new(),
            time_keys: Vec::new(),
        };
        for (place, text) in settings.keys().enumerate() {
            let key = Key::new(HMAC_SHA256, text.as_bytes());
            for (index, address) in addresses.iter().enumerate() {
                // Neither host names nor URLs contain a line break, so the input is unambiguous.
                let tag = sign(&key, format!("flatout sticky origin 1\n{site}\n{address}").as_bytes());
                if place == 0 {
                    cookie.tags.push(tag);
                }
                cookie.origins.entry(tag).or_insert((index, place == 0));
            }
            let derived = hmac::sign(&key, format!("flatout sticky time 1\n{site}").as_bytes());
            cookie.time_keys.push(Key::new(HMAC_SHA256, derived.as_ref()));
        }
        cookie
    }

    /// The cookie's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Calls `handle` with `routed` without the cookie, and with the session that the cookie tells of.
    pub(crate) fn take<T>(
        &self,
        routed: &RoutedRequest<'_>,
        handle: impl FnOnce(&RoutedRequest<'_>, Affinity) -> T,
    ) -> T {
        let request = routed.request;
        let fields = request.head.fields;
        let mut values = cookies(fields.all("cookie")).filter(|(name, _)| *name == self.name.as_bytes()).peekable();
        if values.peek().is_none() {
            return handle(routed, Affinity { origin: None, is_due: false });
        }
        let named = values.find_map(|(_, value)| self.open(trim(value), routed.now.unix_s));
        let affinity =
            Affinity { origin: named.map(|(index, _)| index), is_due: named.is_some_and(|(_, is_due)| is_due) };
        self.without(fields, |fields| {
            let head = RequestHead { fields, ..*request.head };
            let request = Request { head: &head, ..*request };
            handle(&RoutedRequest { request: &request, ..*routed }, affinity)
        })
    }

    /// Calls `handle` with `fields` without the cookie.
    pub(crate) fn without<T>(&self, fields: Fields<'_>, handle: impl FnOnce(Fields<'_>) -> T) -> T {
        let lines: Vec<Vec<u8>> = fields.all("cookie").map(|line| self.strip(line)).collect();
        let mut rest = lines.iter();
        let kept: Vec<Header<'_>> = fields
            .iter()
            .filter_map(|(name, value)| {
                if !name.eq_ignore_ascii_case("cookie") {
                    return Some(Header { name, value });
                }
                rest.next().filter(|line| !line.is_empty()).map(|line| Header { name, value: line })
            })
            .collect();
        handle(Fields::from_lines(&kept))
    }

    /// Returns whether a response's field line with this `name` sets the cookie.
    pub(crate) fn is_set_by(&self, name: &[u8], line: &[u8]) -> bool {
        let pair = line.get(name.len() + 1..).unwrap_or_default();
        let cookie = trim(pair.split(|&byte| byte == b'=').next().unwrap_or_default());
        name.eq_ignore_ascii_case(b"set-cookie") && cookie == self.name.as_bytes()
    }

    /// Returns the Cookie line `line` without this cookie.
    fn strip(&self, line: &[u8]) -> Vec<u8> {
        let is_other = |pair: &&[u8]| !cookies(once(*pair)).any(|(name, _)| name == self.name.as_bytes());
        trim(&line.split(|&byte| byte == b';').filter(is_other).collect::<Vec<_>>().join(&b';')).to_vec()
    }

    /// Returns the index of the origin that the value names, and whether the cookie is to be replaced. Returns `None` if
    /// the value is invalid or has expired.
    fn open(&self, value: &[u8], now_s: i64) -> Option<(usize, bool)> {
        const CHARS_MAX: usize = 64;
        let bytes = decode(value.get(..value.len().min(CHARS_MAX + 1))?, &BASE64URL_NOPAD)?;
        let (tag, issued) = bytes.split_first_chunk::<TAG_BYTES>()?;
        let &(index, is_current) = self.origins.get(tag)?;
        let is_due = match (issued.split_first_chunk::<TIME_BYTES>(), self.max_age_s) {
            (None, max_age_s) if issued.is_empty() => max_age_s.is_some(),
            (None, _) => return None,
            (Some((time, code)), max_age_s) => {
                let signed = [&tag[..], time].concat();
                let is_valid = |key: &Key| code.len() == TAG_BYTES && is_code(key, &signed, code);
                let place = self.time_keys.iter().position(is_valid)?;
                let age_s = now_s.checked_sub(i64::from_be_bytes(*time))?;
                let lifetime_s = max_age_s.map_or(i64::MAX, |seconds| i64::try_from(seconds).unwrap_or(i64::MAX));
                if !(-CLOCK_ERROR_S..=lifetime_s).contains(&age_s) {
                    return None;
                }
                place > 0 || max_age_s.is_none() || age_s > lifetime_s / 2
            }
        };
        Some((index, is_due || !is_current))
    }

    /// Returns the value that names the origin with this index.
    fn seal(&self, index: usize, now_s: i64) -> Option<String> {
        let mut bytes = self.tags.get(index)?.to_vec();
        if self.max_age_s.is_some() {
            bytes.extend_from_slice(&now_s.to_be_bytes());
            let code = sign(self.time_keys.first()?, &bytes);
            bytes.extend_from_slice(&code);
        }
        Some(BASE64URL_NOPAD.encode(&bytes))
    }
}

fn sign(key: &Key, bytes: &[u8]) -> Tag {
    let mut tag = [0; TAG_BYTES];
    tag.copy_from_slice(&hmac::sign(key, bytes).as_ref()[..TAG_BYTES]);
    tag
}

/// Compares in constant time.
fn is_code(key: &Key, signed: &[u8], code: &[u8]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(&sign(key, signed), code).is_ok()
}

/// Returns whether the client uses https, according to the connection or to a trusted proxy.
fn is_secure(settings: &Proxy, request: &Request<'_>) -> bool {
    let trusted = &settings.trusted;
    if !is_trusted(trusted, request.sender()) {
        return request.secure;
    }
    read_claim(request.head.fields, |address| is_trusted(trusted, Sender::Ip(address))).secure.unwrap_or(request.secure)
}

/// Appends a Set-Cookie line to `lines` if the cookie of the client that sent `ask` does not name the origin that has
/// responded with `status`, which has the index `served`. From `lines_at`, `lines` contains the field lines as the
/// client receives them, after all changes by the configuration.
///
/// A response that other caches may store for everyone gets none, unless it sets a cookie itself: it begins no session.
/// Neither does a 304, whose fields replace those of the response that a cache has stored (RFC 9111 §3.2).
pub(crate) fn write_set_cookie(
    step: &ProxyStep,
    ask: &UpstreamRequest,
    (status, served): (u16, usize),
    lines_at: usize,
    lines: &mut Vec<u8>,
) {
    let (Some(cookie), Some(affinity)) = (&step.sticky, ask.affinity) else { return };
    if (affinity.origin == Some(served) && !affinity.is_due) || status == 304 || is_for_everyone(&lines[lines_at..]) {
        return;
    }
    let Some(value) = cookie.seal(served, unix_s()) else { return };
    let same_site = match cookie.same_site {
        SameSite::Lax => "Lax",
        SameSite::None => "None",
        SameSite::Strict => "Strict",
    };
    let mut line = format!("Set-Cookie: {}={value}; Path=/; HttpOnly; SameSite={same_site}", cookie.name);
    if let Some(seconds) = cookie.max_age_s {
        // Writing to a String cannot fail.
        let _ = write!(line, "; Max-Age={seconds}");
    }
    // Browsers accept SameSite=None only with Secure.
    let must_be_secure = cookie.same_site == SameSite::None;
    if must_be_secure || ask.request.with(|request| is_secure(&step.settings, request)) {
        line.push_str("; Secure");
    }
    line.push_str("\r\n");
    lines.extend_from_slice(line.as_bytes());
}

/// Returns whether a response with these field lines invites shared caches to store it.
pub(crate) fn is_for_everyone(lines: &[u8]) -> bool {
    let invites = with_fields(lines, |fields| {
        if fields.first("set-cookie").is_some() {
            return false;
        }
        // Each targeted field is for another cache, so none of them revokes what another field permits.
        if fields.iter().any(|(name, value)| is_targeted(name) && invites_target(value)) {
            return true;
        }
        let directives = parse_response_directives(fields);
        if directives.private || directives.no_store {
            return false;
        }
        let lasts = |seconds: Seconds| seconds.valid().is_some_and(|seconds| seconds > 0);
        let expires =
            directives.max_age == Seconds::Absent && !directives.no_cache && fields.first("expires").is_some();
        let is_stale = lasts(directives.stale_while_revalidate) || lasts(directives.stale_if_error);
        directives.public || lasts(directives.s_maxage) || lasts(directives.max_age) || is_stale || expires
    });
    // No cookie in lines that nobody understands.
    invites.unwrap_or(true)
}

/// Returns whether the field `name` has directives for certain caches: those whose names follow the convention of RFC
/// 9213 §2, such as CDN-Cache-Control, and Surrogate-Control.
fn is_targeted(name: &str) -> bool {
    const SUFFIX: &[u8] = b"-cache-control";
    let end = name.len().checked_sub(SUFFIX.len()).and_then(|at| name.as_bytes().get(at..));
    name.eq_ignore_ascii_case("surrogate-control") || end.is_some_and(|end| end.eq_ignore_ascii_case(SUFFIX))
}

/// Returns whether the value of a targeted field permits its cache to store the response. Which caches obey it, and how
/// exactly they parse it, is unknown, so a prohibition counts only in its simplest form, and a permission in any.
fn invites_target(value: &[u8]) -> bool {
    const LASTING: [&str; 4] = ["max-age", "s-maxage", "stale-while-revalidate", "stale-if-error"];
    let members = || value.split(|&byte| matches!(byte, b',' | b' ' | b'\t'));
    let is = |member: &[u8], word: &str| member.eq_ignore_ascii_case(word.as_bytes());
    if members().any(|member| is(member, "no-store") || is(member, "private")) {
        return false;
    }
    members().any(|member| {
        let (name, argument) =
            member.split_at(member.iter().position(|byte| b"=;".contains(byte)).unwrap_or(member.len()));
        is(name, "public") || (argument != b"=0" && LASTING.iter().any(|word| is(name, word)))
    })
}

#[cfg(test)]
mod tests;
