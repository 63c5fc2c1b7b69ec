//! The Cookie request field (RFC 6265 §4.2, §5.4), parsed as leniently as applications parse it.

use crate::token::trim;

/// Parses Cookie lines into names and values, in order, and skips empty cookies. A cookie without `=` has a value and
/// no name (RFC 6265bis §5.6). Names are trimmed; values keep quotation marks and the white space after `=`.
pub fn cookies<'a>(lines: impl Iterator<Item = &'a [u8]>) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    let pairs = lines.flat_map(|line| line.split(|&byte| byte == b';')).map(trim).filter(|pair| !pair.is_empty());
    pairs.map(|pair| match pair.iter().position(|&byte| byte == b'=') {
        Some(equals) => (trim(&pair[..equals]), &pair[equals + 1..]),
        None => (&b""[..], pair),
    })
}

#[cfg(test)]
mod tests {
    use super::cookies;

    #[test]
    fn cookies_are_pairs_of_all_lines() {
        let lines: [&[u8]; 3] = [b"a=1; b = 2;;c", b"", b"d=\"e=f\" ; =g"];
        let found: Vec<_> = cookies(lines.into_iter()).collect();
        let expected: [(&[u8], &[u8]); 5] = [(b"a", b"1"), (b"b", b" 2"), (b"", b"c"), (b"d", b"\"e=f\""), (b"", b"g")];
        assert_eq!(found, expected);
    }
}
