//! Explanation of the freshness calculation, for `flatout explain`.

use crate::freshness::LifetimeSource;
use crate::lines::with_fields;
use crate::stored::{Extent, Flags, Stored};
use flatout_http::date::format_date;
use std::fmt;

/// Explanation of a stored response's freshness, formatted by [`Display`](fmt::Display).
#[derive(Clone, Copy, Debug)]
pub struct Explanation<'a> {
    /// The stored response.
    pub stored: &'a Stored,
    /// The time at which freshness is evaluated, in seconds since 1970.
    pub now_s: i64,
}

impl fmt::Display for Explanation<'_> {
    /// Writes a line for each step of RFC 9111 §4.2: the source of the lifetime, the calculation of the age, the
    /// remaining freshness, and the permitted uses of the response while stale.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stored = self.stored;
        writeln!(formatter, "lifetime     {} s, from {}", stored.lifetime_s, stored.lifetime_source.text())?;
        self.write_fields(formatter)?;
        let apparent_age = stored.response_time_s.saturating_sub(stored.date_s).max(0);
        let delay = stored.response_time_s.saturating_sub(stored.request_time_s).max(0);
        writeln!(
            formatter,
            "initial age  {} s = the greater of {apparent_age} s (time of arrival minus Date) and {} s (Age) + \
             {delay} s (the origin's response time)",
            stored.initial_age_s, stored.age_field_s
        )?;
        let resident = self.now_s.saturating_sub(stored.response_time_s).max(0);
        let age = stored.current_age_s(self.now_s);
        writeln!(formatter, "current age  {age} s = {} s + {resident} s in this cache", stored.initial_age_s)?;
        let ttl = stored.ttl_s(self.now_s);
        if ttl > 0 {
            writeln!(formatter, "fresh        for another {ttl} s = {} s - {age} s", stored.lifetime_s)?;
        } else {
            writeln!(formatter, "stale        since {} s = {age} s - {} s", -ttl, stored.lifetime_s)?;
        }
        self.write_limits(formatter)
    }
}

impl Explanation<'_> {
    /// Writes the response fields that determine the lifetime.
    fn write_fields(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: &[&str] = match self.stored.lifetime_source {
            LifetimeSource::Targeted | LifetimeSource::SMaxage | LifetimeSource::MaxAge | LifetimeSource::Invalid => {
                &["cache-control"]
            }
            LifetimeSource::Expires | LifetimeSource::ExpiresInvalid => &["expires", "date"],
            LifetimeSource::Heuristic => &["last-modified", "date"],
            LifetimeSource::Default | LifetimeSource::ErrorLimit | LifetimeSource::None => &[],
        };
        let targeted = self.stored.lifetime_source == LifetimeSource::Targeted;
        with_fields(&self.stored.lines, |fields| {
            for (name, value) in fields.iter() {
                let lower = name.to_ascii_lowercase();
                let targets = targeted && (lower.ends_with("-cache-control") || lower == "surrogate-control");
                if targets || (!targeted && names.contains(&lower.as_str())) {
                    writeln!(formatter, "             {name}: {}", Text(value))?;
                }
            }
            Ok(())
        })
        .unwrap_or(Ok(()))
    }

    /// Writes the permitted uses of the stale response, its validator, Vary and extent.
    fn write_limits(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stored = self.stored;
        if stored.flags.any(Flags::NO_CACHE) {
            writeln!(formatter, "validation   each time: no-cache")?;
        }
        for (seconds, what) in [
            (stored.stale_while_revalidate_s, "while a new one is fetched"),
            (stored.stale_if_error_s, "instead of an error"),
        ] {
            if seconds > 0 {
                writeln!(formatter, "stale use    for {seconds} s {what}")?;
            }
        }
        if stored.flags.any(Flags::MUST_REVALIDATE) && stored.stale_if_error_s.max(stored.stale_while_revalidate_s) == 0
        {
            writeln!(formatter, "stale use    never: must-revalidate, proxy-revalidate or s-maxage")?;
        }
        match (&stored.etag, stored.last_modified_s) {
            (Some(etag), _) => writeln!(formatter, "validator    ETag {}", Text(etag))?,
            (None, Some(last_modified_s)) => {
                let date = format_date(last_modified_s);
                writeln!(formatter, "validator    Last-Modified {}", Text(&date))?;
            }
            (None, None) => writeln!(formatter, "validator    none: a stale response is fetched again in full")?,
        }
        if !stored.vary.is_empty() {
            writeln!(formatter, "vary         {}", stored.vary)?;
        }
        if let Extent::Part { first, last, total } = stored.extent {
            let total = total.map_or_else(|| "an unknown total".to_owned(), |total| total.to_string());
            writeln!(formatter, "part         bytes {first} to {last} of {total}")?;
        }
        Ok(())
    }
}

/// Displays a field value with non-printable bytes escaped, for a terminal.
struct Text<'a>(&'a [u8]);

impl fmt::Display for Text<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in self.0 {
            match byte {
                b' '..=b'~' => fmt::Write::write_char(formatter, char::from(byte))?,
                _ => write!(formatter, "{}", byte.escape_ascii())?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Explanation;
    use crate::rules::Rules;
    use crate::storable::tests::{RESPONSE_TIME_S, stored_with};

    #[test]
    fn every_step_of_the_arithmetic() {
        let lines = "Date: Sun, 06 Nov 1994 08:49:30 GMT\r\nCache-Control: max-age=60, stale-if-error=9\r\nAge: 20\r\n\
            ETag: \"x\"\r\nVary: Foo\r\n";
        let stored = stored_with("", 200, lines, &Rules::default());
        let explanation = Explanation { stored: &stored, now_s: RESPONSE_TIME_S + 10 };
        let expected = "\
lifetime     60 s, from max-age in Cache-Control
             Cache-Control: max-age=60, stale-if-error=9
initial age  21 s = the greater of 7 s (time of arrival minus Date) and 20 s (Age) + 1 s (the origin's response time)
current age  31 s = 21 s + 10 s in this cache
fresh        for another 29 s = 60 s - 31 s
stale use    for 9 s instead of an error
validator    ETag \"x\"
vary         foo
";
        assert_eq!(explanation.to_string(), expected);
        let later = Explanation { stored: &stored, now_s: RESPONSE_TIME_S + 100 }.to_string();
        assert!(later.contains("stale        since 61 s = 121 s - 60 s\n"), "{later}");
    }
}
