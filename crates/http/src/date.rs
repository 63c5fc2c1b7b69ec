//! HTTP-date (RFC 9110 §5.6.7), as seconds since 1970-01-01T00:00:00Z. The clock is the caller's.

use std::time::{Duration, UNIX_EPOCH};

/// Bytes of an IMF-fixdate: always 29.
pub const DATE_BYTES: usize = 29;

/// Formats `unix_s` as an IMF-fixdate. What lies outside the years 1970 to 9999 is clamped to them.
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

/// Parses any of the three formats a recipient must accept. `None` for what is no HTTP-date.
pub fn parse_date(bytes: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let time = httpdate::parse_http_date(text).ok()?;
    i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()
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
    fn edges_and_nonsense() {
        assert_eq!(&format_date(-1), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(&format_date(i64::MAX), b"Fri, 31 Dec 9999 23:59:59 GMT");
        for bad in
            [&b""[..], b"0", b"yesterday", b"Sun, 06 Nov 1994 08:49:37", b"Sun, 32 Nov 1994 08:49:37 GMT", b"\xff"]
        {
            assert_eq!(parse_date(bad), None, "{bad:?}");
        }
        for seconds in [0, 951_782_400, 1_709_164_800, 4_102_444_799] {
            assert_eq!(parse_date(&format_date(seconds)), Some(seconds));
        }
    }
}
