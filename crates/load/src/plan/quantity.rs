//! Parsing of numbers and times: `20ms`, `1.5s`, `2m`, `30%`, `10k`.

/// Maximum time: a hundred days. A longer one is probably a typing error.
pub const TIME_NS_MAX: f64 = 100.0 * 86_400.0 * 1e9;

/// Time units in nanoseconds.
const TIME_UNITS: [(&str, f64); 9] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("μs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("min", 60e9),
    ("m", 60e9),
    ("h", 3_600e9),
];

/// Splits `20ms` into number and unit. The number is finite and not negative.
pub fn split_unit(text: &str) -> Result<(f64, &str), String> {
    let text = text.trim();
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    if number.is_empty() {
        return Err(format!("{text:?} does not begin with a number"));
    }
    let value: f64 = number.parse().map_err(|_| format!("{number:?} is not a number"))?;
    if value.is_finite() { Ok((value, unit.trim())) } else { Err(format!("{number:?} is too large")) }
}

/// Parses a time as nanoseconds. A unit is required, except for zero.
pub fn parse_time_ns(text: &str) -> Result<f64, String> {
    let (value, unit) = split_unit(text)?;
    if unit.is_empty() {
        let how = "give a time with its unit: ns, us, ms, s, m or h";
        return if value > 0.0 { Err(format!("{text:?} has no unit; {how}")) } else { Ok(0.0) };
    }
    let Some((_, scale)) = TIME_UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(format!("{unit:?} is no unit of time; use ns, us, ms, s, m or h"));
    };
    let value_ns = value * scale;
    if value_ns <= TIME_NS_MAX { Ok(value_ns) } else { Err(format!("{text:?} is more than a hundred days")) }
}

/// Parses a plain number with an optional suffix `k` or `M`.
pub fn parse_number(text: &str) -> Result<f64, String> {
    let (value, unit) = split_unit(text)?;
    let scale = match unit {
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        _ => return Err(format!("{text:?} is not a plain number")),
    };
    Ok(value * scale)
}

#[cfg(test)]
mod tests {
    use super::{parse_number, parse_time_ns};

    #[test]
    fn times_are_read_with_their_units() {
        for (text, value_ns) in [
            ("20ms", 20e6),
            ("1.5s", 1.5e9),
            ("7us", 7e3),
            ("7µs", 7e3),
            ("2m", 120e9),
            ("2min", 120e9),
            ("1h", 3_600e9),
            ("3ns", 3.0),
            ("0", 0.0),
        ] {
            assert_eq!(parse_time_ns(text), Ok(value_ns), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in ["", "ms", "20", "-1s", "1..2s", "1e3s", "20 parsecs", "NaN", "inf", "99999d", "9999999999h"] {
            assert!(parse_time_ns(text).is_err(), "{text}");
        }
        let huge = "9".repeat(400);
        assert!(parse_time_ns(&format!("{huge}s")).is_err());
    }

    #[test]
    fn numbers_may_be_in_thousands() {
        assert_eq!(parse_number("10k"), Ok(10_000.0));
        assert_eq!(parse_number("0.5"), Ok(0.5));
        assert!(parse_number("10q").is_err() && parse_number("x").is_err());
    }
}
