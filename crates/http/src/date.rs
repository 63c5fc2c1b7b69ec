//! HTTP-date (RFC 9110 §5.6.7) as seconds since 1970-01-01T00:00:00Z. This module reads no clock.

use std::time::{Duration, UNIX_EPOCH};

/// Length of an IMF-fixdate, in bytes.
pub const DATE_BYTES: usize = 29;

/// Formats the Unix time `unix_s` as an IMF-fixdate, clamped to the years 1970 to 9999.
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

/// Parses any of the three formats that a recipient must accept (RFC 9110 §5.6.7). Names of days, months and the time
/// zone are case-insensitive. A wrong day of the week is ignored, and the leap second `60` counts as the second after
/// it. Returns `None` if `bytes` is not an HTTP-date or its time zone is not GMT.
///
/// RFC 9110 §5.6.7 resolves two-digit years relative to the current date. This module has no clock, so years from 70 to
/// 99 belong to the 20th century and years below 70 to the 21st.
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

/// Parses the date of a cookie's Expires attribute (RFC 6265 §5.1.1), which may have almost any form: the first time, day
/// of the month, month and year count, wherever they are. Everything else, such as a time zone, is ignored. Returns `None`
/// if a part is missing or the date does not exist.
pub fn parse_cookie_date(bytes: &[u8]) -> Option<i64> {
    const YEAR_MIN: i64 = 1601;
    let is_delimiter = |byte: &u8| matches!(byte, b'\t' | b' '..=b'/' | b';'..=b'@' | b'['..=b'`' | b'{'..=b'~');
    let (mut time, mut day, mut month, mut year) = (None, None, None, None);
    // Each token is the first part that it can be and that is still missing.
    for token in bytes.split(is_delimiter) {
        if time.is_none()
            && let Some(found) = leading_time(token)
        {
            time = Some(found);
        } else if day.is_none()
            && let Some((found, _)) = leading_number(token, 1, 2)
        {
            day = Some(found);
        } else if month.is_none()
            && let Some(found) = token.get(..3).and_then(parse_month)
        {
            month = Some(found);
        } else if year.is_none()
            && let Some((found, _)) = leading_number(token, 2, 4)
        {
            year = Some(found);
        }
    }
    let year = match year? {
        year @ 70..=99 => 1900 + year,
        year @ 0..=69 => 2000 + year,
        year => year,
    };
    unix_seconds([year, month?, day?], time?).filter(|_| year >= YEAR_MIN)
}

/// Returns the time with which a token begins: hour, minute and second, each of one or two digits.
fn leading_time(token: &[u8]) -> Option<[i64; 3]> {
    let (hour, rest) = leading_number(token, 1, 2)?;
    let (minute, rest) = leading_number(rest.strip_prefix(b":")?, 1, 2)?;
    let (second, _) = leading_number(rest.strip_prefix(b":")?, 1, 2)?;
    Some([hour, minute, second])
}

/// Returns the number with which a token begins, and the bytes after it. `None` if it has fewer or more digits.
fn leading_number(token: &[u8], digits_min: usize, digits_max: usize) -> Option<(i64, &[u8])> {
    let digits = token.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_number = (digits_min..=digits_max).contains(&digits);
    is_number.then(|| Some((number(&token[..digits])?, &token[digits..]))).flatten()
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

/// Returns the index of `name` in `names`, each of which is compared up to `bytes_max` bytes.
fn find_name(names: &[&str], name: &[u8], bytes_max: usize) -> Option<usize> {
    names.iter().position(|full| full.as_bytes()[..full.len().min(bytes_max)].eq_ignore_ascii_case(name))
}

/// Parses the rest of an IMF-fixdate: `06 Nov 1994 08:49:37 GMT`.
fn parse_fixdate(rest: &[u8]) -> Option<i64> {
    let rest: &[u8; 24] = rest.try_into().ok()?;
    let separators = [rest[2], rest[6], rest[11], rest[20]];
    if separators != *b"    " || !rest[21..].eq_ignore_ascii_case(b"GMT") {
        return None;
    }
    to_seconds(number(&rest[7..11])?, parse_month(&rest[3..6])?, number(&rest[..2])?, &rest[12..20])
}

/// Parses the rest of an RFC 850 date: `06-Nov-94 08:49:37 GMT`.
fn parse_rfc850(rest: &[u8]) -> Option<i64> {
    let rest: &[u8; 22] = rest.try_into().ok()?;
    let separators = [rest[2], rest[6], rest[9], rest[18]];
    if separators != *b"--  " || !rest[19..].eq_ignore_ascii_case(b"GMT") {
        return None;
    }
    let year = number(&rest[7..9])?;
    let year = if year < 70 { 2000 + year } else { 1900 + year };
    to_seconds(year, parse_month(&rest[3..6])?, number(&rest[..2])?, &rest[10..18])
}

/// Parses the rest of an asctime date: `Nov  6 08:49:37 1994`.
fn parse_asctime(rest: &[u8]) -> Option<i64> {
    let rest: &[u8; 20] = rest.try_into().ok()?;
    let separators = [rest[3], rest[6], rest[15]];
    if separators != *b"   " {
        return None;
    }
    let day = if rest[4] == b' ' { &rest[5..6] } else { &rest[4..6] };
    to_seconds(number(&rest[16..])?, parse_month(&rest[..3])?, number(day)?, &rest[7..15])
}

fn number(digits: &[u8]) -> Option<i64> {
    let digits = digits.iter().map(|byte| byte.is_ascii_digit().then(|| i64::from(byte - b'0')));
    digits.into_iter().try_fold(0, |number, digit| Some(number * 10 + digit?))
}

/// Converts a date and a time such as `08:49:37` to a Unix time. Returns `None` if the day or the time does not exist
/// or is before 1970.
fn to_seconds(year: i64, month: i64, day: i64, time: &[u8]) -> Option<i64> {
    let [h1, h2, b':', m1, m2, b':', s1, s2] = *time else { return None };
    let time = [number(&[h1, h2])?, number(&[m1, m2])?, number(&[s1, s2])?];
    unix_seconds([year, month, day], time).filter(|_| year >= 1970)
}

/// Returns the number, from 1, of the month whose name begins with the three letters of `name`, ignoring case.
pub fn parse_month(name: &[u8]) -> Option<i64> {
    find_name(&MONTHS, name, 3).and_then(|index| i64::try_from(index + 1).ok())
}

/// Returns the Unix time of a year, month and day, and an hour, minute and second, in the proleptic Gregorian calendar.
/// A leap second counts as the second after it. Returns `None` if the day or the time does not exist.
pub fn unix_seconds([year, month, day]: [i64; 3], [hour, minute, second]: [i64; 3]) -> Option<i64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let month_days = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=month_days).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Years that begin in March have the leap day at their end; 719,468 days lie between 1 March of year 0 and 1970.
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = 365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// Formats the Unix time `unix_s` as `2026-11-21T04:30:00Z` (RFC 3339 §5.6), clamped to the years 0000 to 9999.
pub fn format_rfc3339(unix_s: i64) -> String {
    const FIRST_S: i64 = -62_167_219_200;
    const LAST_S: i64 = 253_402_300_799;
    const DAY_S: i64 = 86_400;
    let unix_s = unix_s.clamp(FIRST_S, LAST_S);
    // Days since 0000-03-01, so that a leap day is the last day of its year and of its 4-, 100- and 400-year period.
    let days = unix_s.div_euclid(DAY_S) + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (minutes, second) = (unix_s.rem_euclid(DAY_S) / 60, unix_s.rem_euclid(60));
    format!("{year:04}-{month:02}-{day_of_month:02}T{:02}:{:02}:{second:02}Z", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::{format_date, format_rfc3339, parse_cookie_date, parse_date, unix_seconds};

    #[test]
    fn the_three_formats_of_the_standard() {
        for text in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(parse_date(text.as_bytes()), Some(784_111_777), "{text}");
        }
        assert_eq!(&format_date(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
    }

    #[test]
    fn lenient_dates_are_accepted() {
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
    fn dates_of_cookies_have_many_forms() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun, 6-Nov-1994 8:49:37",
            "08:49:37 november 6th 94 EST",
            "6/Nov/1994\t08:49:37.5+0100",
            // Further times, days, months and years are ignored.
            "Sun, 06 Nov 1994 08:49:37 GMT 2001 Dec 7 1",
        ] {
            assert_eq!(parse_cookie_date(text.as_bytes()), Some(784_111_777), "{text}");
        }
        for (text, seconds) in [
            ("Thu, 01-Jan-70 00:00:00 GMT", 0),
            ("Thu, 1 Jan 1970 0:0:1", 1),
            ("Wed, 31 Dec 1969 23:59:59 GMT", -1),
            ("Mon, 01-Jan-0001 00:00:00 GMT", 978_307_200),
            ("1 Jan 1601 00:00:00", -11_644_473_600),
            ("31 Dec 69 23:59:59", 3_155_759_999),
            ("Fri, 31 Dec 9999 23:59:59 GMT", 253_402_300_799),
        ] {
            assert_eq!(parse_cookie_date(text.as_bytes()), Some(seconds), "{text}");
        }
        for bad in [
            "",
            "0",
            "Session",
            "Sun, 06 Nov 1994",
            "Nov 1994 08:49:37",
            "06 1994 08:49:37",
            "06 Nov 08:49:37",
            "06 Nov 19940 08:49:37",
            "06 Nov 1 08:49:37",
            "06 Nov 1994 08:49",
            "06 Nov 1994 008:49:37",
            "06 Nov 1994 08:49:370",
            "06 Nov 1994 24:00:00",
            "31 Nov 1994 08:49:37",
            "31 Dec 1600 23:59:59",
            "06 N 1994 08:49:37",
            "\u{ff}",
        ] {
            assert_eq!(parse_cookie_date(bad.as_bytes()), None, "{bad}");
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

    #[test]
    fn dates_of_rfc_3339() {
        for (unix_s, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (i64::MAX, "9999-12-31T23:59:59Z"),
            (i64::MIN, "0000-01-01T00:00:00Z"),
        ] {
            assert_eq!(format_rfc3339(unix_s), expected);
        }
        assert_eq!(unix_seconds([2000, 2, 29], [0, 0, 0]), Some(951_782_400));
        assert_eq!(unix_seconds([2100, 2, 29], [0, 0, 0]), None);
    }
}
