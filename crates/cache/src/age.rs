//! Age of a response (RFC 9111 §4.2.3).

use crate::directive::{SECONDS_MAX, Seconds, parse_seconds};
use flatout_http::head::Fields;
use flatout_http::token::trim;

/// Parses Age, in seconds. If the field has several lines or members, only the first member is used (RFC 9111 §5.1).
/// Returns `None` if Age is missing or its first member is invalid.
pub fn parse_age(fields: &Fields<'_>) -> Option<u32> {
    let first = fields.first("age")?.split(|&byte| byte == b',').next().map(trim)?;
    match parse_seconds(first) {
        Seconds::Valid(seconds) => Some(seconds),
        Seconds::Absent | Seconds::Invalid => None,
    }
}

/// `corrected_initial_age` (RFC 9111 §4.2.3), in seconds.
pub fn initial_age_s(age_field_s: u32, date_s: i64, request_time_s: i64, response_time_s: i64) -> u32 {
    let apparent_age = response_time_s.saturating_sub(date_s).max(0);
    let response_delay = response_time_s.saturating_sub(request_time_s).max(0);
    let corrected_age = i64::from(age_field_s).saturating_add(response_delay);
    clamp(apparent_age.max(corrected_age))
}

/// `current_age` (RFC 9111 §4.2.3), in seconds.
pub fn current_age_s(initial_age_s: u32, response_time_s: i64, now_s: i64) -> u32 {
    let resident_time = now_s.saturating_sub(response_time_s).max(0);
    clamp(i64::from(initial_age_s).saturating_add(resident_time))
}

fn clamp(seconds: i64) -> u32 {
    u32::try_from(seconds.max(0)).unwrap_or(SECONDS_MAX).min(SECONDS_MAX)
}

#[cfg(test)]
mod tests {
    use super::{current_age_s, initial_age_s, parse_age};
    use crate::directive::SECONDS_MAX;
    use crate::lines::with_fields;

    #[test]
    fn the_first_member_counts_and_invalid_values_are_ignored() {
        for (lines, expected) in [
            ("", None),
            ("Age: 0\r\n", Some(0)),
            ("age: 7200\r\n", Some(7200)),
            ("Age: 99999999999\r\n", Some(SECONDS_MAX)),
            ("Age: 7200,0\r\n", Some(7200)),
            ("Age: 0,7200\r\n", Some(0)),
            ("Age: 3600, 3600\r\n", Some(3600)),
            ("Age: 12, x\r\n", Some(12)),
            ("Age: 0\r\nAge: 7200\r\n", Some(0)),
            ("Age: 7200\r\nAge: 0\r\n", Some(7200)),
            ("Age: abc\r\n", None),
            ("Age: x, 12\r\n", None),
            ("Age: -7200\r\n", None),
            ("Age: 7200.0\r\n", None),
            ("Age: 7200;foo=bar\r\n", None),
            ("Age:\r\n", None),
        ] {
            assert_eq!(with_fields(lines.as_bytes(), parse_age), Some(expected), "{lines}");
        }
    }

    /// The formulas of RFC 9111 §4.2.3.
    #[test]
    fn the_arithmetic_of_age() {
        assert_eq!(initial_age_s(0, 1000, 1000, 1000), 0);
        assert_eq!(initial_age_s(0, 900, 1000, 1002), 102, "apparent age");
        assert_eq!(initial_age_s(200, 900, 1000, 1002), 202, "Age and the delay");
        assert_eq!(initial_age_s(5, 2000, 1000, 1000), 5, "a Date ahead of us is not a negative age");
        assert_eq!(initial_age_s(0, 1000, 1010, 1000), 0, "a clock that went back");
        assert_eq!(initial_age_s(SECONDS_MAX, i64::MIN, i64::MIN, i64::MAX), SECONDS_MAX);
        assert_eq!(current_age_s(10, 1000, 1005), 15);
        assert_eq!(current_age_s(10, 1000, 900), 10);
        assert_eq!(current_age_s(10, i64::MIN, i64::MAX), SECONDS_MAX);
    }
}
