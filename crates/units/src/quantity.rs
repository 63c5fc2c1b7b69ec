//! Durations and sizes as people write them: `20ms`, `1.5s`, `64MiB`.

/// One nanosecond in nanoseconds, as the resolution of a duration.
pub const NANOSECOND: u64 = 1;
/// One microsecond in nanoseconds, as the resolution of a duration.
pub const MICROSECOND: u64 = 1_000;
/// One millisecond in nanoseconds, as the resolution of a duration.
pub const MILLISECOND: u64 = 1_000_000;
/// One second in nanoseconds, as the resolution of a duration.
pub const SECOND: u64 = 1_000_000_000;

/// Units of time in nanoseconds, longest first. If a unit has several names, the first is used for printing.
const TIME_UNITS: &[(&str, u64)] = &[
    ("d", 86_400_000 * MILLISECOND),
    ("h", 3_600_000 * MILLISECOND),
    ("m", 60_000 * MILLISECOND),
    ("min", 60_000 * MILLISECOND),
    ("s", 1_000 * MILLISECOND),
    ("ms", MILLISECOND),
    ("us", MICROSECOND),
    ("\u{b5}s", MICROSECOND),
    ("\u{3bc}s", MICROSECOND),
    ("ns", NANOSECOND),
];

/// Binary units of size in bytes, largest first.
const BINARY_UNITS: &[(&str, u64)] =
    &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Decimal units of size in bytes.
const DECIMAL_UNITS: &[(&str, u64)] =
    &[("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("KB", 1_000), ("kB", 1_000)];

/// The reason a string could not be parsed as a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantityError {
    /// The string does not begin with a number.
    Number,
    /// There is no unit after the number.
    UnitMissing,
    /// The letters after the number are not the name of a unit.
    UnitUnknown,
    /// The quantity is finer than the resolution, or too large for 64 bits.
    Range,
}

/// Parses a duration as a multiple of `resolution_ns`: with [`MILLISECOND`], `1.5s` is 1,500.
pub fn parse_duration(text: &str, resolution_ns: u64) -> Result<u64, QuantityError> {
    parse(text, &[TIME_UNITS], resolution_ns)
}

/// Parses a size in bytes.
pub fn parse_size(text: &str) -> Result<u64, QuantityError> {
    parse(text, &[BINARY_UNITS, DECIMAL_UNITS], 1)
}

fn parse(text: &str, tables: &[&[(&str, u64)]], resolution: u64) -> Result<u64, QuantityError> {
    let (number, unit) = split_unit(text);
    if number.is_empty() {
        return Err(QuantityError::Number);
    }
    let known = tables.iter().copied().flatten().find(|(name, _)| *name == unit);
    let (_, factor) =
        known.ok_or(if unit.is_empty() { QuantityError::UnitMissing } else { QuantityError::UnitUnknown })?;
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || decimals.contains('.') || number.ends_with('.') {
        return Err(QuantityError::Number);
    }
    let digits: u128 = format!("{whole}{decimals}").parse().map_err(|_| QuantityError::Range)?;
    let scale = u32::try_from(decimals.len()).ok().and_then(|places| 10_u128.checked_pow(places));
    let divisor = scale.and_then(|scale| scale.checked_mul(u128::from(resolution)));
    let (product, divisor) = digits.checked_mul(u128::from(*factor)).zip(divisor).ok_or(QuantityError::Range)?;
    if !product.is_multiple_of(divisor) {
        return Err(QuantityError::Range);
    }
    u64::try_from(product / divisor).map_err(|_| QuantityError::Range)
}

/// Splits a string such as `20 ms` into its number and its unit. Either may be empty.
pub fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start())
}

/// Formats `count` times `resolution_ns` in the largest unit that leaves a whole number. The result parses to the same
/// duration.
pub fn exact_duration(count: u64, resolution_ns: u64) -> String {
    if count == 0 { "0s".to_owned() } else { exact(u128::from(count) * u128::from(resolution_ns), TIME_UNITS) }
}

/// Formats a number of bytes in the largest binary unit that leaves a whole number: `64MiB`.
pub fn exact_size(bytes: u64) -> String {
    exact(u128::from(bytes), BINARY_UNITS)
}

fn exact(value: u128, units: &[(&str, u64)]) -> String {
    let fits = |(_, factor): &&(&str, u64)| value >= u128::from(*factor) && value.is_multiple_of(u128::from(*factor));
    let (name, factor) = units.iter().find(fits).or(units.last()).copied().unwrap_or(("", 1));
    format!("{}{name}", value / u128::from(factor))
}

#[cfg(test)]
mod tests {
    use super::{
        MICROSECOND, MILLISECOND, NANOSECOND, QuantityError, exact_duration, exact_size, parse_duration, parse_size,
    };
    use QuantityError::{Number, Range, UnitMissing, UnitUnknown};

    #[test]
    fn durations_have_a_number_a_unit_and_a_resolution() {
        for (text, resolution_ns, expected) in [
            ("20ms", NANOSECOND, Ok(20_000_000)),
            ("1.5s", NANOSECOND, Ok(1_500_000_000)),
            ("1.5s", MILLISECOND, Ok(1_500)),
            ("7us", MICROSECOND, Ok(7)),
            ("7\u{b5}s", MICROSECOND, Ok(7)),
            ("7\u{3bc}s", MICROSECOND, Ok(7)),
            ("2m", MILLISECOND, Ok(120_000)),
            ("2 min", MILLISECOND, Ok(120_000)),
            ("7d", MILLISECOND, Ok(604_800_000)),
            ("0s", MILLISECOND, Ok(0)),
            ("1500us", MILLISECOND, Err(Range)),
            ("0.1ns", NANOSECOND, Err(Range)),
            ("20", MILLISECOND, Err(UnitMissing)),
            ("20 parsecs", MILLISECOND, Err(UnitUnknown)),
            ("20S", MILLISECOND, Err(UnitUnknown)),
            ("1e3s", MILLISECOND, Err(UnitUnknown)),
            ("", MILLISECOND, Err(Number)),
            ("ms", MILLISECOND, Err(Number)),
            ("-1s", MILLISECOND, Err(Number)),
            ("+1s", MILLISECOND, Err(Number)),
            (".5s", MILLISECOND, Err(Number)),
            ("5.s", MILLISECOND, Err(Number)),
            ("1..2s", MILLISECOND, Err(Number)),
            ("99999999999999999999d", MILLISECOND, Err(Range)),
            ("99999999999d", NANOSECOND, Err(Range)),
        ] {
            assert_eq!(parse_duration(text, resolution_ns), expected, "{text}");
        }
        assert_eq!(parse_duration(&format!("{}s", "9".repeat(400)), NANOSECOND), Err(Range));
        assert_eq!(parse_duration(&format!("0.{}1s", "0".repeat(400)), NANOSECOND), Err(Range));
    }

    #[test]
    fn sizes_have_binary_and_decimal_units() {
        for (text, expected) in [
            ("0B", Ok(0)),
            ("64MiB", Ok(64 << 20)),
            ("1.5 KiB", Ok(1_536)),
            ("1GB", Ok(1_000_000_000)),
            ("3kB", Ok(3_000)),
            ("3KB", Ok(3_000)),
            ("0.5B", Err(Range)),
            ("64", Err(UnitMissing)),
            ("64M", Err(UnitUnknown)),
            ("64mib", Err(UnitUnknown)),
            ("18446744073709551616B", Err(Range)),
        ] {
            assert_eq!(parse_size(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_printed_parses_as_the_same() {
        for number in [0, 1, 999, 1_000, 1_024, 1_536, 60_000, 86_400_000, 90_000_000, 1 << 20, 1 << 44, u64::MAX] {
            assert_eq!(parse_size(&exact_size(number)), Ok(number));
            for resolution_ns in [NANOSECOND, MICROSECOND, MILLISECOND] {
                assert_eq!(parse_duration(&exact_duration(number, resolution_ns), resolution_ns), Ok(number));
            }
        }
        assert_eq!((exact_size(64 << 20), exact_size(1_000)), ("64MiB".to_owned(), "1000B".to_owned()));
        assert_eq!(exact_duration(90_000, MILLISECOND), "90s");
        assert_eq!(exact_duration(200, MICROSECOND), "200us");
    }
}
