//! Integers and strings (RFC 7541 §5, RFC 9204 §4.1).

use super::huffman;
use std::ops::Range;

/// Maximum size of an integer, in bits: that of QUIC integers (RFC 9204 §4.1.1).
const INTEGER_BITS_MAX: u32 = 62;

/// The reason an integer or a string could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextError {
    /// The input ends before the integer or string does.
    Truncated,
    /// An integer exceeds its maximum or is encoded in more bytes than the maximum needs.
    Integer,
    /// A Huffman-coded string contains EOS, or its padding is invalid.
    Huffman,
}

/// Decodes an integer with a prefix of `prefix_bits` in its first byte, followed by at most `groups_max` groups of
/// seven bits.
pub(crate) fn decode_integer(input: &mut &[u8], prefix_bits: u32, groups_max: u32) -> Result<u64, TextError> {
    let (&first, mut rest) = input.split_first().ok_or(TextError::Truncated)?;
    let mask = (1_u64 << prefix_bits) - 1;
    let mut value = u64::from(first) & mask;
    if value == mask {
        let mut group = 0;
        loop {
            let (&byte, after) = rest.split_first().ok_or(TextError::Truncated)?;
            if group == groups_max.min(INTEGER_BITS_MAX.div_ceil(7)) {
                return Err(TextError::Integer);
            }
            rest = after;
            // Nine groups have 63 bits, and the prefix adds less than one more.
            value = value.saturating_add(u64::from(byte & 0x7f) << (7 * group));
            group += 1;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    if value >> INTEGER_BITS_MAX != 0 {
        return Err(TextError::Integer);
    }
    *input = rest;
    Ok(value)
}

/// Appends the name and value of a table entry to `scratch` and returns their ranges.
pub(crate) fn append_entry(scratch: &mut Vec<u8>, (name, value): (&[u8], &[u8])) -> (Range<usize>, Range<usize>) {
    let start = scratch.len();
    scratch.extend_from_slice(name);
    let name_end = scratch.len();
    scratch.extend_from_slice(value);
    (start..name_end, name_end..scratch.len())
}

/// Maximum number of seven-bit groups in the length of a string: 28 bits.
const LENGTH_GROUPS_MAX: u32 = 4;

/// Splits an encoded string off `input` and returns whether it is Huffman-coded, and its bytes. Its length has a prefix
/// of `prefix_bits`; the bit above that prefix is the Huffman flag.
fn split_string<'i>(input: &mut &'i [u8], prefix_bits: u32) -> Result<(bool, &'i [u8]), TextError> {
    let is_coded = input.first().is_some_and(|first| first >> prefix_bits & 1 == 1);
    let mut after = *input;
    let bytes = decode_integer(&mut after, prefix_bits, LENGTH_GROUPS_MAX)?;
    let (text, rest) = after.split_at_checked(bytes as usize).ok_or(TextError::Truncated)?;
    *input = rest;
    Ok((is_coded, text))
}

/// Decodes a string and appends it to `output`. Its length has a prefix of `prefix_bits`; the bit above that prefix is
/// the Huffman flag.
pub(crate) fn decode_string(input: &mut &[u8], prefix_bits: u32, output: &mut Vec<u8>) -> Result<(), TextError> {
    let (is_coded, text) = split_string(input, prefix_bits)?;
    if is_coded {
        huffman::decode(text, output).map_err(|()| TextError::Huffman)
    } else {
        output.extend_from_slice(text);
        Ok(())
    }
}

/// Skips a string without decoding it. Returns `Err(Truncated)` if the string is incomplete but no longer than
/// `bytes_max`, and `Err(Integer)` if it is longer.
pub(crate) fn skip_string(input: &mut &[u8], prefix_bits: u32, bytes_max: usize) -> Result<(), TextError> {
    let mut length = *input;
    if decode_integer(&mut length, prefix_bits, LENGTH_GROUPS_MAX)? > bytes_max as u64 {
        return Err(TextError::Integer);
    }
    split_string(input, prefix_bits).map(|_| ())
}

/// Appends `value` with a prefix of `prefix_bits`. The bits of the first byte above the prefix come from `first`.
pub(crate) fn encode_integer(value: u64, prefix_bits: u32, first: u8, output: &mut Vec<u8>) {
    let mask = (1_u64 << prefix_bits) - 1;
    if value < mask {
        output.push(first | value as u8);
        return;
    }
    output.push(first | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        output.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    output.push(rest as u8);
}

/// Appends `text` as a string whose length has a prefix of `prefix_bits`, Huffman-coded if that is shorter. The bits of
/// the first byte above the Huffman flag come from `first`.
pub(crate) fn encode_string(text: &[u8], prefix_bits: u32, first: u8, output: &mut Vec<u8>) {
    let coded_bytes = huffman::coded_bytes(text);
    if coded_bytes < text.len() {
        encode_integer(coded_bytes as u64, prefix_bits, first | 1 << prefix_bits, output);
        huffman::encode(text, output);
    } else {
        encode_integer(text.len() as u64, prefix_bits, first, output);
        output.extend_from_slice(text);
    }
}

#[cfg(test)]
mod tests {
    use super::{TextError, decode_integer, decode_string, encode_integer, encode_string, skip_string};
    use proptest::prelude::{any, proptest};

    #[test]
    fn integers_have_at_most_62_bits() {
        let largest = (1_u64 << 62) - 1;
        for value in [0, 6, 7, 8, 127, 128, 1337, largest] {
            let mut bytes = Vec::new();
            encode_integer(value, 3, 0xa8, &mut bytes);
            assert_eq!(bytes[0] & 0xf8, 0xa8);
            assert_eq!(decode_integer(&mut &bytes[..], 3, u32::MAX), Ok(value));
            assert_eq!(decode_integer(&mut &bytes[..bytes.len() - 1], 3, u32::MAX), Err(TextError::Truncated));
        }
        let mut bytes = Vec::new();
        encode_integer(largest + 1, 3, 0, &mut bytes);
        assert_eq!(decode_integer(&mut &bytes[..], 3, u32::MAX), Err(TextError::Integer));
        assert_eq!(decode_integer(&mut &[0xff; 20][..], 8, u32::MAX), Err(TextError::Integer));
        assert_eq!(decode_integer(&mut &[0xff, 0x80, 0x80, 0][..], 8, 2), Err(TextError::Integer));
    }

    proptest! {
        #[test]
        fn strings_return_unchanged(text: Vec<u8>, prefix_bits in 3..8_u32, trailing: Vec<u8>) {
            let mut bytes = Vec::new();
            encode_string(&text, prefix_bits, 0, &mut bytes);
            let text_bytes = bytes.len();
            bytes.extend_from_slice(&trailing);
            let (mut input, mut output) = (&bytes[..], Vec::new());
            assert_eq!(decode_string(&mut input, prefix_bits, &mut output), Ok(()));
            assert_eq!((&output, input), (&text, &trailing[..]));
            let mut input = &bytes[..];
            assert_eq!(skip_string(&mut input, prefix_bits, text_bytes), Ok(()));
            assert_eq!(input, &trailing[..]);
            let cut = decode_string(&mut &bytes[..text_bytes - 1], prefix_bits, &mut Vec::new());
            assert_eq!(cut, Err(TextError::Truncated));
        }

        #[test]
        fn any_integer_returns_unchanged(value in 0..1_u64 << 62, prefix_bits in 3..8_u32, first in any::<u8>()) {
            let mut bytes = Vec::new();
            encode_integer(value, prefix_bits, first >> prefix_bits << prefix_bits, &mut bytes);
            assert_eq!(decode_integer(&mut &bytes[..], prefix_bits, u32::MAX), Ok(value));
        }
    }
}
