//! Single byte range (RFC 9110 §14). [`crate::ranges`] handles several.

use crate::token::parse_decimal;

/// Decision about a Range field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeDecision {
    /// No supported range: the whole representation, 200.
    Whole,
    /// These bytes, inclusive: 206.
    Part {
        /// The first byte.
        first: u64,
        /// The last byte.
        last: u64,
    },
    /// Valid but out of bounds: 416.
    Unsatisfiable,
}

/// Evaluates `value`, of a Range field, for a representation of `length` bytes. An unknown unit, several ranges and
/// invalid values are ignored, as RFC 9110 §14.2 permits, and requires for the first.
pub fn decide_range(value: &[u8], length: u64) -> RangeDecision {
    let Some(equals) = value.iter().position(|&byte| byte == b'=') else { return RangeDecision::Whole };
    if !value[..equals].eq_ignore_ascii_case(b"bytes") {
        return RangeDecision::Whole;
    }
    match parse_spec(&value[equals + 1..], length) {
        Spec::Malformed => RangeDecision::Whole,
        Spec::Outside => RangeDecision::Unsatisfiable,
        Spec::Part { first, last } => RangeDecision::Part { first, last },
    }
}

/// One range of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spec {
    /// It breaks the grammar, or ends before it begins.
    Malformed,
    /// It is entirely out of bounds.
    Outside,
    /// These bytes, inclusive, within bounds.
    Part { first: u64, last: u64 },
}

/// Parses `first-`, `first-last` or `-suffix`, without white space, for a representation of `length` bytes.
pub(crate) fn parse_spec(spec: &[u8], length: u64) -> Spec {
    let Some(dash) = spec.iter().position(|&byte| byte == b'-') else { return Spec::Malformed };
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    if first.is_empty() {
        return parse_suffix(last, length);
    }
    // A number too large for 64 bits is valid, beyond any end.
    let (Some(first), Some(last)) = (parse_position(first), parse_last(last)) else { return Spec::Malformed };
    if last < first {
        Spec::Malformed
    } else if first >= length {
        Spec::Outside
    } else {
        Spec::Part { first, last: last.min(length - 1) }
    }
}

/// Parses `-n`: the last n bytes. Zero bytes, or an empty representation, are unsatisfiable (RFC 9110 §14.1.2).
fn parse_suffix(digits: &[u8], length: u64) -> Spec {
    match parse_position(digits) {
        None => Spec::Malformed,
        Some(0) => Spec::Outside,
        Some(_) if length == 0 => Spec::Outside,
        Some(suffix) => Spec::Part { first: length.saturating_sub(suffix), last: length - 1 },
    }
}

fn parse_position(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(parse_decimal(digits).unwrap_or(u64::MAX))
}

fn parse_last(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() { Some(u64::MAX) } else { parse_position(digits) }
}

#[cfg(test)]
mod tests {
    use super::{RangeDecision, decide_range};

    #[test]
    fn ranges_and_what_they_ask() {
        let part = |first, last| RangeDecision::Part { first, last };
        for (value, length, expected) in [
            ("bytes=0-0", 10, part(0, 0)),
            ("bytes=0-", 10, part(0, 9)),
            ("BYTES=2-5", 10, part(2, 5)),
            ("bytes= 2-5", 10, RangeDecision::Whole),
            ("bytes=5-100", 10, part(5, 9)),
            ("bytes=5-99999999999999999999999", 10, part(5, 9)),
            ("bytes=-3", 10, part(7, 9)),
            ("bytes=-100", 10, part(0, 9)),
            ("bytes=10-", 10, RangeDecision::Unsatisfiable),
            ("bytes=99999999999999999999999-", 10, RangeDecision::Unsatisfiable),
            ("bytes=-0", 10, RangeDecision::Unsatisfiable),
            ("bytes=0-", 0, RangeDecision::Unsatisfiable),
            ("bytes=-1", 0, RangeDecision::Unsatisfiable),
            ("bytes=5-2", 10, RangeDecision::Whole),
            ("bytes=0-1,3-4", 10, RangeDecision::Whole),
            ("bytes=-", 10, RangeDecision::Whole),
            ("bytes=", 10, RangeDecision::Whole),
            ("bytes", 10, RangeDecision::Whole),
            ("bytes=a-b", 10, RangeDecision::Whole),
            ("bytes=1 -2", 10, RangeDecision::Whole),
            ("bytes=+1-2", 10, RangeDecision::Whole),
            ("items=0-1", 10, RangeDecision::Whole),
        ] {
            assert_eq!(decide_range(value.as_bytes(), length), expected, "{value} of {length}");
        }
    }
}
