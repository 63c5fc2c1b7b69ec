//! Freshness lifetime of a response (RFC 9111 §4.2.1, §4.2.2).

use crate::directive::{SECONDS_MAX, Seconds, pragma_says_no_cache};
use crate::rules::Rules;
use crate::targeted::Chosen;
use flatout_http::date::parse_date;
use flatout_http::head::Fields;

flatout_reason::reasons! {
    /// Source of a freshness lifetime. Stored responses contain its place in this list.
    pub enum LifetimeSource { text, }
    /// `s-maxage` or `max-age` in a targeted field (RFC 9213), or `max-age` in Surrogate-Control.
    Targeted, "a targeted Cache-Control field";
    /// `s-maxage` in Cache-Control.
    SMaxage, "s-maxage in Cache-Control";
    /// `max-age` in Cache-Control.
    MaxAge, "max-age in Cache-Control";
    /// Expires minus Date.
    Expires, "Expires minus Date";
    /// The configured default.
    Default, "the configured default lifetime";
    /// Heuristic: a tenth of the time between Last-Modified and Date.
    Heuristic, "a tenth of the time between Last-Modified and Date";
    /// No source: the response is stale from the start.
    None, "nothing: there is no Cache-Control, Expires, default lifetime or Last-Modified";
    /// Invalid `s-maxage` or `max-age`: the response is stale from the start (RFC 9111 §4.2.1).
    Invalid, "an invalid max-age or s-maxage, which counts as stale";
    /// Expires with an invalid date: the response is stale from the start (RFC 9111 §5.3).
    ExpiresInvalid, "an invalid Expires, which counts as stale";
    /// The limit of a configured or heuristic lifetime for an error.
    ErrorLimit, "the limit of 10 s for an error without a lifetime of its own";
}

impl LifetimeSource {
    /// Returns whether the origin specified a lifetime, valid or invalid.
    pub const fn is_explicit(self) -> bool {
        !matches!(self, Self::Default | Self::ErrorLimit | Self::Heuristic | Self::None)
    }
}

/// A freshness lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Length in seconds, at most [`SECONDS_MAX`].
    pub seconds: u32,
    /// Source of the lifetime.
    pub source: LifetimeSource,
}

/// Returns whether a response with `status` may have a heuristic lifetime (RFC 9110 §15.1).
pub const fn is_heuristically_cacheable(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Maximum lifetime, in seconds, of a response whose status does not stand for lasting content, unless the origin or the
/// configuration sets one for it. A lifetime that is right for files would otherwise keep an error as long.
pub const ERROR_LIFETIME_S_MAX: u32 = 10;

/// Returns whether a response with `status` stands for lasting content.
const fn is_lasting(status: u16) -> bool {
    matches!(status, 200 | 203 | 206 | 301 | 308)
}

/// Calculates the freshness lifetime of a response with `status` and `fields`. `date_s` is its Date, in seconds since
/// 1970.
pub fn decide_lifetime(status: u16, fields: &Fields<'_>, chosen: &Chosen, date_s: i64, rules: &Rules) -> Lifetime {
    if let Some(lifetime) = explicit_lifetime(fields, chosen, date_s) {
        return lifetime;
    }
    // RFC 9111 §4.2.2: heuristics apply only to these statuses and to responses explicitly marked as cacheable. An
    // origin that sends an invalid Cache-Control or `Pragma: no-cache` (which is undefined in responses) does not want
    // a heuristic lifetime.
    let is_unreadable = chosen.directives.malformed;
    if (!is_heuristically_cacheable(status) && !chosen.directives.public)
        || is_unreadable
        || pragma_says_no_cache(fields)
    {
        return Lifetime { seconds: 0, source: LifetimeSource::None };
    }
    let own = rules.status_ttls_s.iter().find(|(own, _)| *own == status);
    if let Some((_, seconds)) = own {
        return Lifetime { seconds: *seconds, source: LifetimeSource::Default };
    }
    let lifetime = match rules.default_ttl_s {
        Some(seconds) => Lifetime { seconds, source: LifetimeSource::Default },
        None => heuristic_lifetime(fields, date_s, rules),
    };
    if lifetime.seconds > ERROR_LIFETIME_S_MAX && !is_lasting(status) {
        return Lifetime { seconds: ERROR_LIFETIME_S_MAX, source: LifetimeSource::ErrorLimit };
    }
    lifetime
}

/// Calculates a lifetime from Last-Modified.
fn heuristic_lifetime(fields: &Fields<'_>, date_s: i64, rules: &Rules) -> Lifetime {
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

/// Returns the lifetime from s-maxage, max-age or Expires, whichever is present first in this order (RFC 9111 §4.2.1).
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

/// Returns Expires minus Date, or `None` if Expires is absent. If there are several lines, the earliest date applies;
/// an invalid date makes the result `Invalid` (RFC 9111 §5.3).
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
    use super::{Lifetime, LifetimeSource, decide_lifetime, is_lasting};
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
        use LifetimeSource::{Default as Owner, ErrorLimit, Heuristic, None};
        let rules = Rules::default();
        let hour = "Last-Modified: Sun, 06 Nov 1994 07:49:37 GMT\r\n";
        assert_eq!(lifetime(200, hour, &rules), (360, Heuristic));
        assert_eq!(lifetime(200, "Last-Modified: Sun, 06 Nov 1994 08:49:38 GMT\r\n", &rules), (0, None));
        assert_eq!(lifetime(200, "Last-Modified: x\r\n", &rules), (0, None));
        assert_eq!(lifetime(200, "Last-Modified: Sun, 06 Nov 1983 08:49:37 GMT\r\n", &rules), (86_400, Heuristic));
        for (status, expected) in [
            (201, (0, None)),
            (203, (360, Heuristic)),
            (302, (0, None)),
            (308, (360, Heuristic)),
            (403, (0, None)),
            (404, (10, ErrorLimit)),
            (503, (0, None)),
        ] {
            assert_eq!(lifetime(status, hour, &rules), expected, "{status}");
            let public = format!("Cache-Control: public\r\n{hour}");
            let expected = if is_lasting(status) { (360, Heuristic) } else { (10, ErrorLimit) };
            assert_eq!(lifetime(status, &public, &rules), expected, "{status}");
        }
        let rules = Rules { heuristics: false, ..Rules::default() };
        assert_eq!(lifetime(200, hour, &rules), (0, None));
        assert_eq!(lifetime(200, &format!("{hour}Pragma: x, No-Cache\r\n"), &Rules::default()), (0, None));
        let rules = Rules { default_ttl_s: Some(7), ..Rules::default() };
        assert_eq!(lifetime(200, "Pragma: no-cache\r\n", &rules), (0, None));
        assert_eq!(lifetime(200, hour, &rules), (7, Owner));
        assert_eq!(lifetime(503, hour, &rules), (0, None));
        let rules = Rules { default_ttl_s: Some(31_536_000), status_ttls_s: vec![(410, 60)], ..Rules::default() };
        for (status, expected) in [
            (200, (31_536_000, Owner)),
            (301, (31_536_000, Owner)),
            (404, (10, ErrorLimit)),
            (204, (10, ErrorLimit)),
            (410, (60, Owner)),
            (503, (0, None)),
        ] {
            assert_eq!(lifetime(status, "", &rules), expected, "{status}");
        }
        assert_eq!(lifetime(404, "Cache-Control: max-age=60\r\n", &rules), (60, LifetimeSource::MaxAge));
        assert_eq!(lifetime(200, "Cache-Control: max-age=0\r\n", &rules), (0, LifetimeSource::MaxAge));
    }
}
