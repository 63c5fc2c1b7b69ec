//! Weights in Accept fields (RFC 9110 §12.4.2, §12.5.1).

use crate::token::trim;

/// Weight in thousandths, 0 to 1000. 0 means "not acceptable".
pub type Weight = u16;

/// Parses a `weight` parameter without its semicolon: `q=`, then a number from 0 to 1 with at most three decimals.
pub fn parse_weight(parameter: &[u8]) -> Option<Weight> {
    let (whole, decimals) = match parameter {
        [b'q' | b'Q', b'=', whole @ (b'0' | b'1')] => (*whole, &[][..]),
        [b'q' | b'Q', b'=', whole @ (b'0' | b'1'), b'.', decimals @ ..] if decimals.len() <= 3 => (*whole, decimals),
        _ => return None,
    };
    let mut weight = Weight::from(whole - b'0');
    for at in 0..3 {
        let digit = *decimals.get(at).unwrap_or(&b'0');
        if !digit.is_ascii_digit() {
            return None;
        }
        weight = weight * 10 + Weight::from(digit - b'0');
    }
    (weight <= 1000).then_some(weight)
}

/// Returns the media ranges of all Accept lines with their weights. Skips ranges with a malformed weight.
pub fn media_ranges<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> impl Iterator<Item = (&'a [u8], Weight)> {
    lines.into_iter().flat_map(|line| line.split(|&byte| byte == b',')).filter_map(|element| {
        let mut parts = element.split(|&byte| byte == b';').map(trim);
        let range = parts.next().unwrap_or_default();
        let weight = parts.find(|parameter| matches!(parameter, [b'q' | b'Q', b'=', ..]));
        Some((range, weight.map_or(Some(1000), parse_weight)?))
    })
}

#[cfg(test)]
mod tests {
    use super::parse_weight;

    #[test]
    fn weights_have_three_decimals() {
        for (text, weight) in [("0", 0), ("1", 1000), ("0.", 0), ("1.", 1000), ("0.5", 500), ("0.05", 50)] {
            assert_eq!(parse_weight(format!("q={text}").as_bytes()), Some(weight), "{text}");
        }
        assert_eq!((parse_weight(b"Q=0.001"), parse_weight(b"q=1.000")), (Some(1), Some(1000)));
        for bad in ["q=", "q=1.001", "q=2", "q=0.1234", "q=.5", "q=0,5", "q=+1", "q=1.0 ", "q=0.x", "q=00", "0.5"] {
            assert_eq!(parse_weight(bad.as_bytes()), None, "{bad}");
        }
    }
}
