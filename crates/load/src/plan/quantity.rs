//! Parsing of numbers and times: `20ms`, `1.5s`, `2m`, `30%`, `10k`.

use flatout_units::quantity::{self, NANOSECOND, QuantityError, parse_duration};

/// Longest accepted time, a hundred days in nanoseconds. A longer time is probably a typing error.
pub const TIME_NS_MAX: f64 = 100.0 * 86_400.0 * 1e9;

/// Splits a string such as `20ms` into number and unit. The number is finite and not negative.
pub fn split_unit(text: &str) -> Result<(f64, &str), String> {
    let (number, unit) = quantity::split_unit(text);
    if number.is_empty() {
        return Err(format!("{text:?} does not begin with a number"));
    }
    let value: f64 = number.parse().map_err(|_| format!("{number:?} is not a number"))?;
    if value.is_finite() { Ok((value, unit)) } else { Err(format!("{number:?} is too large")) }
}

/// Parses a time as nanoseconds. A unit is required, except for zero.
pub fn parse_time_ns(text: &str) -> Result<f64, String> {
    match parse_duration(text, NANOSECOND) {
        Ok(value_ns) if value_ns as f64 <= TIME_NS_MAX => Ok(value_ns as f64),
        Ok(_) | Err(QuantityError::Range) => Err(format!("{text:?} is longer than a hundred days, or finer than 1 ns")),
        Err(QuantityError::UnitMissing) if split_unit(text)?.0 == 0.0 => Ok(0.0),
        Err(QuantityError::UnitMissing) => {
            Err(format!("{text:?} has no unit; use a time with a unit: ns, us, ms, s, m or h"))
        }
        Err(QuantityError::UnitUnknown) => {
            Err(format!("{:?} is not a unit of time; use ns, us, ms, s, m or h", quantity::split_unit(text).1))
        }
        Err(QuantityError::Number) => Err(format!("{text:?} does not begin with a number")),
    }
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
