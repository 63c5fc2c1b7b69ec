//! Times in log lines.

use flatout_http::date::{parse_month, unix_seconds};

/// Parses `10/Oct/2000:13:55:36 -0700` as seconds since the epoch.
pub(super) fn parse_common(text: &[u8]) -> Option<i64> {
    if text.len() != 26
        || [text[2], text[6], text[11], text[14], text[17], text[20]] != [b'/', b'/', b':', b':', b':', b' ']
    {
        return None;
    }
    let month = parse_month(&text[3..6])?;
    let seconds = unix_seconds(
        [digits(&text[7..11])?, month, digits(&text[..2])?],
        [digits(&text[12..14])?, digits(&text[15..17])?, digits(&text[18..20])?],
    )?;
    Some(seconds - offset_s(text[21], digits(&text[22..24])?, digits(&text[24..26])?)?)
}

/// Parses `2026-11-21T00:23:47.123Z` (RFC 3339 §5.6) as nanoseconds since the epoch.
pub(super) fn parse_rfc3339(text: &[u8]) -> Option<i64> {
    if text.len() < 20
        || [text[4], text[7], text[13], text[16]] != [b'-', b'-', b':', b':']
        || !matches!(text[10], b'T' | b't' | b' ')
    {
        return None;
    }
    let seconds = unix_seconds(
        [digits(&text[..4])?, digits(&text[5..7])?, digits(&text[8..10])?],
        [digits(&text[11..13])?, digits(&text[14..16])?, digits(&text[17..19])?],
    )?;
    let mut rest = &text[19..];
    let mut fraction_ns = 0;
    if let Some(fraction) = rest.strip_prefix(b".") {
        let end = fraction.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(fraction.len());
        // Drop digits beyond nanoseconds.
        let kept = &fraction[..end.min(9)];
        fraction_ns = digits(kept)? * 10_i64.pow(9 - kept.len() as u32);
        rest = &fraction[end..];
    }
    let offset_s = match rest {
        b"Z" | b"z" => 0,
        [sign @ (b'+' | b'-'), hours @ .., b':', tens, units] if hours.len() == 2 => {
            offset_s(*sign, digits(hours)?, digits(&[*tens, *units])?)?
        }
        _ => return None,
    };
    (seconds - offset_s).checked_mul(1_000_000_000)?.checked_add(fraction_ns)
}

/// Parses a number that consists of 1 to 9 digits only.
fn digits(text: &[u8]) -> Option<i64> {
    if text.is_empty() || text.len() > 9 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(text.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')))
}

fn offset_s(sign: u8, hours: i64, minutes: i64) -> Option<i64> {
    let offset_s = (hours * 60 + minutes) * 60;
    match sign {
        _ if hours > 23 || minutes > 59 => None,
        b'+' => Some(offset_s),
        b'-' => Some(-offset_s),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{parse_common, parse_rfc3339};

    #[test]
    fn times_of_both_forms() {
        // The expected values come from `date -u -d … +%s`.
        for (common, rfc3339, unix_s) in [
            ("06/Nov/1994:08:49:37 +0000", "1994-11-06T08:49:37Z", 784_111_777),
            ("10/Oct/2000:13:55:36 -0700", "2000-10-10T13:55:36-07:00", 971_211_336),
            ("29/Feb/2024:12:00:00 +0000", "2024-02-29T12:00:00Z", 1_709_208_000),
            ("01/Jan/1970:01:00:00 +0100", "1970-01-01T01:00:00+01:00", 0),
            ("31/Dec/1969:23:59:59 +0000", "1969-12-31 23:59:59z", -1),
            ("01/Mar/2100:00:00:00 +0000", "2100-03-01t00:00:00Z", 4_107_542_400),
            ("31/Dec/2016:23:59:60 +0000", "2016-12-31T23:59:60Z", 1_483_228_800),
            // These times are too long ago for nanoseconds in 64 bits.
            ("01/Jan/0000:00:00:00 +0000", "0000-01-01T00:00:00Z", -62_167_219_200_i64),
        ] {
            assert_eq!(parse_common(common.as_bytes()), Some(unix_s), "{common}");
            assert_eq!(parse_rfc3339(rfc3339.as_bytes()), unix_s.checked_mul(1_000_000_000), "{rfc3339}");
        }
        assert_eq!(parse_rfc3339(b"1970-01-01T00:00:00.123Z"), Some(123_000_000));
        assert_eq!(parse_rfc3339(b"1970-01-01T00:00:00.1234567891Z"), Some(123_456_789));
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "06/Nov/1994:08:49:37",
            "06-Nov-1994:08:49:37 +0000",
            "31/Apr/1994:08:49:37 +0000",
            "29/Feb/2023:08:49:37 +0000",
            "00/Nov/1994:08:49:37 +0000",
            "06/Nov/1994:24:49:37 +0000",
            "06/Nov/1994:08:60:37 +0000",
            "06/Nov/1994:08:49:61 +0000",
            "06/Nov/1994:08:49:37 00000",
            "06/Nov/1994:08:49:37 +2400",
            "06/Nov/1994:08:49:3é +000",
            "+6/Nov/1994:08:49:37 +0000",
        ] {
            assert_eq!(parse_common(text.as_bytes()), None, "{text}");
        }
        for text in [
            "1994-11-06T08:49:37",
            "1994-11-06T08:49:37.Z",
            "1994-11-06T08:49:37+0100",
            "1994-13-06T08:49:37Z",
            "1994-11-06T08:49:37ZZ",
            "9999-12-31T23:59:59Z",
        ] {
            assert_eq!(parse_rfc3339(text.as_bytes()), None, "{text}");
        }
    }
}
