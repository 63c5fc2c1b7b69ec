//! HTTP-date (RFC 9110 §5.6.7) as seconds since 1970-01-01T00:00:00Z. This module reads no clock.

use std::time::{Duration, UNIX_EPOCH};

/// Length of an IMF-fixdate.
pub const DATE_BYTES: usize = 29;

/// Formats `unix_s` as an IMF-fixdate, clamped to the years 1970 to 9999.
pub fn format_date(unix_s: i64) -> [u8; DATE_BYTES] {
    const YEAR_9999_END_S: u64 = 253_402_300_799;
    let seconds = u64::try_from(unix_s).unwrap_or(0).min(YEAR_9999_END_S);
    let mut bytes = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    let text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds));
    if text.len() == DATE_BYTES {
        bytes.copy_from_slice(text.as_bytes());
    }
    bytes
}

/// Parses any of the three formats a recipient must accept (RFC 9110 §5.6.7). Names of days, months and the zone are
/// case-insensitive. A wrong day of the week is ignored, and second `60` is a leap second, which counts as the next
/// one. `None`: not an HTTP-date, or a zone other than GMT.
///
/// RFC 9110 §5.6.7 resolves two-digit years by the current date. Without a clock, 70 to 99 are in the 20th century
/// here.
pub fn parse_date(bytes: &[u8]) -> Option<i64> {
    let bytes = bytes.trim_ascii();
    let comma = bytes.iter().position(|&byte| byte == b',');
    let (name, rest) = match comma {
        Some(comma) => (&bytes[..comma], bytes.get(comma + 1..)?.strip_prefix(b" ")?),
        None => (bytes.get(..3)?, bytes.get(3..)?.strip_prefix(b" ")?),
    };
    let is_short = find_name(&DAYS, name, 3).is_some();
    let is_long = find_name(&DAYS, name, usize::MAX).is_some();
    match (comma, rest.get(2)?) {
        (Some(_), b' ') if is_short => parse_fixdate(rest),
        (Some(_), b'-') if is_long => parse_rfc850(rest),
        (None, _) if is_short => parse_asctime(rest),
        _ => None,
    }
}

const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Index of `name` in `names`, compared up to their first `bytes_max` bytes.
fn find_name(names: &[&str], name: &[u8], bytes_max: usize) -> Option<usize> {
    names.iter().position(|full| full.as_bytes()[..full.len().min(bytes_max)].eq_ignore_ascii_case(name))
}

/// `06 Nov 1994 08:49:37 GMT`
fn parse_fixdate(rest: &[u8]) -> Option<i64> {
    let rest: &[u8; 24] = rest.try_into().ok()?;
    let separators = [rest[2], rest[6], rest[11], rest[20]];
    if separators != *b"    " || !rest[21..].eq_ignore_ascii_case(b"GMT") {
        return None;
    }
    to_seconds(number(&rest[7..11])?, find_name(&MONTHS, &rest[3..6], 3)?, number(&rest[..2])?, &rest[12..20])
}

/// `06-Nov-94 08:49:37 GMT`
fn parse_rfc850(rest: &[u8]) -> Option<i64> {
    let rest: &[u8; 22] = rest.try_into().ok()?;
    let separators = [rest[2], rest[6], rest[9], rest[18]];
    if separators != *b"--  " || !rest[19..].eq_ignore_ascii_case(b"GMT") {
        return None;
    }
    let year = number(&rest[7..9])?;
    let year = if year < 70 { 2000 + year } else { 1900 + year };
    to_seconds(year, find_name(&MONTHS, &rest[3..6], 3)?, number(&rest[..2])?, &rest[10..18])
}

/// `Nov  6 08:49:37 1994`
fn parse_asctime(rest: &[u8]) -> Option<i64> {
    let rest: &[u8; 20] = rest.try_into().ok()?;
    let separators = [rest[3], rest[6], rest[15]];
    if separators != *b"   " {
        return None;
    }
    let day = if rest[4] == b' ' { &rest[5..6] } else { &rest[4..6] };
    to_seconds(number(&rest[16..])?, find_name(&MONTHS, &rest[..3], 3)?, number(day)?, &rest[7..15])
}

fn number(digits: &[u8]) -> Option<i64> {
    let digits = digits.iter().map(|byte| byte.is_ascii_digit().then(|| i64::from(byte - b'0')));
    digits.into_iter().try_fold(0, |number, digit| Some(number * 10 + digit?))
}

/// Converts a Gregorian date and a time of day, `08:49:37`, to seconds since 1970. `month` counts from 0. `None`:
/// there is no such day or time, or it is before 1970.
fn to_seconds(year: i64, month: usize, day: i64, time: &[u8]) -> Option<i64> {
    let [h1, h2, b':', m1, m2, b':', s1, s2] = *time else { return None };
    let (hours, minutes, seconds) = (number(&[h1, h2])?, number(&[m1, m2])?, number(&[s1, s2])?);
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let month_days = match month {
        1 => 28 + i64::from(is_leap(year)),
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    };
    if year < 1970 || !(1..=month_days).contains(&day) || hours > 23 || minutes > 59 || seconds > 60 {
        return None;
    }
    const DAYS_BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let before = year - 1;
    // Days since 1 January of the year 1, minus those until 1970.
    let year_days = before * 365 + before / 4 - before / 100 + before / 400 - 719_162;
    let days = year_days + DAYS_BEFORE.get(month)? + i64::from(month > 1 && is_leap(year)) + day - 1;
    Some(days * 86_400 + hours * 3_600 + minutes * 60 + seconds)
}

#[cfg(test)]
mod tests {
    use super::{format_date, parse_date};

    #[test]
    fn the_three_formats_of_the_standard() {
        for text in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(parse_date(text.as_bytes()), Some(784_111_777), "{text}");
        }
        assert_eq!(&format_date(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
    }

    #[test]
    fn what_is_forgiven() {
        for (text, seconds) in [
            ("sun, 06 nov 1994 08:49:37 gmt", 784_111_777),
            ("SUN, 06 NOV 1994 08:49:37 GMT", 784_111_777),
            ("SUNDAY, 06-nov-94 08:49:37 Gmt", 784_111_777),
            ("sUn nOV  6 08:49:37 1994", 784_111_777),
            ("Mon, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Sun, 06 Nov 1994 08:49:60 GMT", 784_111_800),
            ("Tue, 29 Feb 2000 00:00:00 GMT", 951_782_400),
            ("Friday, 31-Dec-69 23:59:59 GMT", 3_155_759_999),
            ("Fri, 31 Dec 9999 23:59:59 GMT", 253_402_300_799),
            (" Thu, 01 Jan 1970 00:00:00 GMT ", 0),
        ] {
            assert_eq!(parse_date(text.as_bytes()), Some(seconds), "{text}");
        }
    }

    #[test]
    fn edges_and_nonsense() {
        assert_eq!(&format_date(-1), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(&format_date(i64::MAX), b"Fri, 31 Dec 9999 23:59:59 GMT");
        for bad in
            [&b""[..], b"0", b"yesterday", b"Sun, 06 Nov 1994 08:49:37", b"Sun, 32 Nov 1994 08:49:37 GMT", b"\xff"]
        {
            assert_eq!(parse_date(bad), None, "{bad:?}");
        }
        for bad in [
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 EST",
            "Sun, 06 Nov 1994 08:49:37 +0000",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Sun, 06 Nov 1994 08:60:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Tue, 29 Feb 1994 08:49:37 GMT",
            "Thu, 01 Mar 1900 00:00:00 GMT",
            "Fri, 31 Dec 1969 23:59:59 GMT",
            "Sun,06 Nov 1994 08:49:37 GMT",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun, 06-Nov-94 08:49:37 GMT",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Day, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Non 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08.49.37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT+1",
            "Sun Nov  6 08:49:37 1994 GMT",
            "Sun, +6 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(parse_date(bad.as_bytes()), None, "{bad}");
        }
        for seconds in [0, 951_782_400, 1_709_164_800, 4_102_444_799] {
            assert_eq!(parse_date(&format_date(seconds)), Some(seconds));
        }
    }
}
