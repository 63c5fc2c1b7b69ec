//! Quantities for display, with three digits and the unit that keeps them short.

/// Formats a whole number with thousands separators: `1,234,567`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a rate or another figure of any size: as a whole number from 100 up, otherwise with three digits.
pub fn figure(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    // Compare with 99.95, so that 99.96 becomes 100 and not 100.0.
    if value >= 99.95 { count(value.round() as u64) } else { three_digits(value) }
}

/// Formats a number of nanoseconds in ns, µs, ms or s.
pub fn duration(value_ns: f64) -> String {
    scaled(value_ns, &[(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")], 1000.0)
}

/// Formats a number of bytes in B, KiB, MiB, GiB or TiB.
pub fn bytes(value: f64) -> String {
    let kibi = 1024.0_f64;
    let units = [(1.0, "B"), (kibi, "KiB"), (kibi.powi(2), "MiB"), (kibi.powi(3), "GiB"), (kibi.powi(4), "TiB")];
    scaled(value, &units, 1000.0)
}

/// Formats a share of 1 as a percentage.
pub fn percent(share: f64) -> String {
    if share.is_finite() { format!("{} %", figure(100.0 * share)) } else { "-".to_owned() }
}

/// Formats a number with a noun in the singular or plural.
pub fn plural(count_of: u64, one: &str, several: &str) -> String {
    format!("{} {}", count(count_of), if count_of == 1 { one } else { several })
}

/// Formats a value in the first unit in which it stays below `below`.
fn scaled(value: f64, units: &[(f64, &str)], below: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    // Below this limit, 999.5 would be shown as 1000 of the smaller unit.
    let fits = |(size, _): &&(f64, &str)| value / size < below - 0.5;
    let Some((size, unit)) = units.iter().find(fits).or(units.last()) else { return String::new() };
    let number = if *size <= 1.0 && value.fract() == 0.0 { count(value as u64) } else { figure(value / size) };
    format!("{number} {unit}")
}

fn three_digits(value: f64) -> String {
    let decimals = if value >= 9.995 { 1 } else { 2 };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::{bytes, count, duration, figure, percent, plural};

    #[test]
    fn thousands_are_set_apart() {
        for (value, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(value), text);
        }
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn figures_have_three_digits_or_all_whole_ones() {
        for (value, text) in [
            (0.0, "0.00"),
            (1.234, "1.23"),
            (9.996, "10.0"),
            (99.94, "99.9"),
            (99.96, "100"),
            (12_345.6, "12,346"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(figure(value), text);
        }
    }

    #[test]
    fn durations_and_bytes_find_their_unit() {
        for (value_ns, text) in [
            (0.0, "0 ns"),
            (950.0, "950 ns"),
            (999.7, "1.00 µs"),
            (1_500.0, "1.50 µs"),
            (999_600.0, "1.00 ms"),
            (12_300_000.0, "12.3 ms"),
            (10e9, "10.0 s"),
            (3_600e9, "3,600 s"),
        ] {
            assert_eq!(duration(value_ns), text);
        }
        for (value, text) in
            [(0.0, "0 B"), (512.0, "512 B"), (1000.0, "0.98 KiB"), (1024.0, "1.00 KiB"), (1.5e9, "1.40 GiB")]
        {
            assert_eq!(bytes(value), text);
        }
    }

    #[test]
    fn shares_and_plurals() {
        assert_eq!(percent(0.956), "95.6 %");
        assert_eq!(percent(1.25), "125 %");
        assert_eq!(percent(f64::INFINITY), "-");
        assert_eq!(plural(1, "thread", "threads"), "1 thread");
        assert_eq!(plural(2_000, "thread", "threads"), "2,000 threads");
    }
}
