//! Freshness lifetime of a response (RFC 9111 §4.2.1, §4.2.2).

use crate::directive::{SECONDS_MAX, Seconds, pragma_says_no_cache};
use crate::rules::Rules;
use crate::targeted::Chosen;
use flatout_http::date::parse_date;
use flatout_http::head::Fields;

/// Source of a freshness lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LifetimeSource {
    /// A targeted field's `s-maxage` or `max-age` (RFC 9213).
    Targeted,
    /// `s-maxage`.
    SMaxage,
    /// `max-age`.
    MaxAge,
    /// Expires minus Date.
    Expires,
    /// The configured default.
    Default,
    /// Heuristic from Last-Modified.
    Heuristic,
    /// None: stale from the start.
    None,
    /// Invalid `s-maxage` or `max-age`: stale from the start (RFC 9111 §4.2.1).
    Invalid,
    /// Expires with an invalid date: stale from the start (RFC 9111 §5.3).
    ExpiresInvalid,
}

impl LifetimeSource {
    /// All variants; the index is the encoded number.
    pub const ALL: [Self; 9] = [
        Self::Targeted,
        Self::SMaxage,
        Self::MaxAge,
        Self::Expires,
        Self::Default,
        Self::Heuristic,
        Self::None,
        Self::Invalid,
        Self::ExpiresInvalid,
    ];

    /// Returns whether the origin specified the lifetime, validly or not.
    pub const fn is_explicit(self) -> bool {
        !matches!(self, Self::Default | Self::Heuristic | Self::None)
    }

    /// Description for users.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Targeted => "a targeted Cache-Control field",
            Self::SMaxage => "s-maxage in Cache-Control",
            Self::MaxAge => "max-age in Cache-Control",
            Self::Expires => "Expires less Date",
            Self::Default => "the default lifetime of the configuration",
            Self::Heuristic => "a tenth of the time between Last-Modified and Date",
            Self::None => "nothing: neither Cache-Control, Expires, a default nor Last-Modified",
            Self::Invalid => "an invalid max-age or s-maxage, which counts as stale",
            Self::ExpiresInvalid => "an invalid Expires, which counts as stale",
        }
    }
}

/// A freshness lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Seconds, at most [`SECONDS_MAX`].
    pub seconds: u32,
    /// Source of the lifetime.
    pub source: LifetimeSource,
}

/// Returns whether a response with `status` may have a heuristic lifetime (RFC 9110 §15.1).
pub const fn is_heuristically_cacheable(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Calculates the freshness lifetime of a response with `status`, `fields` and the Date `date_s`.
pub fn decide_lifetime(status: u16, fields: &Fields<'_>, chosen: &Chosen, date_s: i64, rules: &Rules) -> Lifetime {
    if let Some(lifetime) = explicit_lifetime(fields, chosen, date_s) {
        return lifetime;
    }
    // RFC 9111 §4.2.2: heuristics apply only to these statuses and to responses explicitly marked as cacheable. An
    // origin that sends `Pragma: no-cache`, which is undefined in responses, or an invalid Cache-Control does not want
    // a heuristic lifetime.
    let is_unreadable = chosen.directives.malformed;
    if (!is_heuristically_cacheable(status) && !chosen.directives.public)
        || is_unreadable
        || pragma_says_no_cache(fields)
    {
        return Lifetime { seconds: 0, source: LifetimeSource::None };
    }
    if let Some(seconds) = rules.default_ttl_s {
        return Lifetime { seconds: seconds.min(SECONDS_MAX), source: LifetimeSource::Default };
    }
    match fields.first("last-modified").and_then(parse_date) {
        Some(last_modified_s) if rules.heuristics && last_modified_s <= date_s => {
            // RFC 9111 §4.2.2 calls a tenth typical.
            let tenth = date_s.saturating_sub(last_modified_s) / 10;
            let seconds = u32::try_from(tenth).unwrap_or(SECONDS_MAX).min(rules.heuristic_max_s).min(SECONDS_MAX);
            Lifetime { seconds, source: LifetimeSource::Heuristic }
        }
        _ => Lifetime { seconds: 0, source: LifetimeSource::None },
    }
}

/// Lifetime from the first present of s-maxage, max-age and Expires (RFC 9111 §4.2.1).
fn explicit_lifetime(fields: &Fields<'_>, chosen: &Chosen, date_s: i64) -> Option<Lifetime> {
    let directives = &chosen.directives;
    let (seconds, source) = match (directives.s_maxage, directives.max_age) {
        (Seconds::Absent, Seconds::Absent) if chosen.field.is_some() => return None,
        (Seconds::Absent, Seconds::Absent) => (expires_lifetime(fields, date_s)?, LifetimeSource::Expires),
        (Seconds::Absent, max_age) => (max_age, LifetimeSource::MaxAge),
        (s_maxage, _) => (s_maxage, LifetimeSource::SMaxage),
    };
    Some(match seconds.valid() {
        Some(seconds) if chosen.field.is_some() => Lifetime { seconds, source: LifetimeSource::Targeted },
        Some(seconds) => Lifetime { seconds, source },
        None if source == LifetimeSource::Expires => Lifetime { seconds: 0, source: LifetimeSource::ExpiresInvalid },
        None => Lifetime { seconds: 0, source: LifetimeSource::Invalid },
    })
}

/// Expires minus Date. Of several lines the least counts; an invalid date is in the past (RFC 9111 §5.3). `None`:
/// Expires is absent.
fn expires_lifetime(fields: &Fields<'_>, date_s: i64) -> Option<Seconds> {
    let lifetime = |line| match parse_date(line) {
        Some(expires_s) => {
            let seconds = expires_s.saturating_sub(date_s).max(0);
            Seconds::Valid(u32::try_from(seconds).unwrap_or(SECONDS_MAX).min(SECONDS_MAX))
        }
        None => Seconds::Invalid,
    };
    fields.all("expires").map(lifetime).reduce(Seconds::and)
}

#[cfg(test)]
mod tests {
    use super::{Lifetime, LifetimeSource, decide_lifetime};
    use crate::lines::with_fields;
    use crate::rules::Rules;
    use crate::targeted::choose_directives;

    /// Sun, 06 Nov 1994 08:49:37 GMT.
    const DATE_S: i64 = 784_111_777;

    fn lifetime(status: u16, lines: &str, rules: &Rules) -> (u32, LifetimeSource) {
        let Lifetime { seconds, source } = with_fields(lines.as_bytes(), |fields| {
            decide_lifetime(status, fields, &choose_directives(fields, rules), DATE_S, rules)
        })
        .unwrap();
        (seconds, source)
    }

    #[test]
    fn the_order_of_rfc_9111_4_2_1() {
        use LifetimeSource::{Expires, ExpiresInvalid, Invalid, MaxAge, None, SMaxage, Targeted};
        let rules = Rules::default();
        for (lines, expected) in [
            ("", (0, None)),
            ("Cache-Control: max-age=60\r\nExpires: 0\r\n", (60, MaxAge)),
            ("Cache-Control: max-age=60, s-maxage=5\r\n", (5, SMaxage)),
            ("Cache-Control: s-maxage=60, max-age=5\r\nExpires: 0\r\n", (60, SMaxage)),
            ("Cache-Control: s-maxage=x, max-age=5\r\n", (0, Invalid)),
            ("Cache-Control: max-age=x\r\nExpires: Sun, 06 Nov 1994 08:50:37 GMT\r\n", (0, Invalid)),
            ("Cache-Control: max-age=5\r\nCDN-Cache-Control: max-age=9\r\n", (9, Targeted)),
            ("CDN-Cache-Control: foo\r\nExpires: Sun, 06 Nov 1994 08:50:37 GMT\r\n", (0, None)),
            ("Expires: Sun, 06 Nov 1994 08:50:37 GMT\r\n", (60, Expires)),
            ("Expires: Sun, 06 Nov 1994 08:49:37 GMT\r\n", (0, Expires)),
            ("Expires: Sun, 06 Nov 1994 08:48:37 GMT\r\n", (0, Expires)),
            ("Expires: 0\r\n", (0, ExpiresInvalid)),
            ("Expires: -1\r\nLast-Modified: Sun, 06 Nov 1994 07:49:37 GMT\r\n", (0, ExpiresInvalid)),
            ("Expires: Sun, 06 Nov 1994 08:50:37 GMT\r\nExpires: Sun, 06 Nov 1994 08:49:47 GMT\r\n", (10, Expires)),
            ("Expires: Sun, 06 Nov 1994 08:50:37 GMT\r\nExpires: 0\r\n", (0, ExpiresInvalid)),
            ("Expires: Fri, 31 Dec 9999 23:59:59 GMT\r\n", (1 << 31, Expires)),
        ] {
            assert_eq!(lifetime(200, lines, &rules), expected, "{lines}");
        }
    }

    #[test]
    fn guesses_of_rfc_9111_4_2_2() {
        use LifetimeSource::{Default as Owner, Heuristic, None};
        let rules = Rules::default();
        let hour = "Last-Modified: Sun, 06 Nov 1994 07:49:37 GMT\r\n";
        assert_eq!(lifetime(200, hour, &rules), (360, Heuristic));
        assert_eq!(lifetime(200, "Last-Modified: Sun, 06 Nov 1994 08:49:38 GMT\r\n", &rules), (0, None));
        assert_eq!(lifetime(200, "Last-Modified: x\r\n", &rules), (0, None));
        assert_eq!(lifetime(200, "Last-Modified: Sun, 06 Nov 1983 08:49:37 GMT\r\n", &rules), (86_400, Heuristic));
        for (status, guessed) in [(201, false), (203, true), (302, false), (403, false), (404, true), (503, false)] {
            assert_eq!(lifetime(status, hour, &rules).0 == 360, guessed, "{status}");
            let public = format!("Cache-Control: public\r\n{hour}");
            assert_eq!(lifetime(status, &public, &rules), (360, Heuristic), "{status}");
        }
        let rules = Rules { heuristics: false, ..Rules::default() };
        assert_eq!(lifetime(200, hour, &rules), (0, None));
        assert_eq!(lifetime(200, &format!("{hour}Pragma: x, No-Cache\r\n"), &Rules::default()), (0, None));
        let rules = Rules { default_ttl_s: Some(7), ..Rules::default() };
        assert_eq!(lifetime(200, "Pragma: no-cache\r\n", &rules), (0, None));
        assert_eq!(lifetime(200, hour, &rules), (7, Owner));
        assert_eq!(lifetime(503, hour, &rules), (0, None));
        assert_eq!(lifetime(200, "Cache-Control: max-age=0\r\n", &rules), (0, LifetimeSource::MaxAge));
    }
}
