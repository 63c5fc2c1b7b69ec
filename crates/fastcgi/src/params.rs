//! Name-value pairs (FastCGI 1.0 §3.4): two lengths of one or four bytes each, then the name and the value.

/// Lengths below this value are encoded in one byte.
const SHORT: usize = 128;

/// The highest bit, which marks a length of four bytes.
const LONG: u32 = 0x8000_0000;

/// Appends a pair. Lengths of 2 GiB and more cannot be represented, but requests are limited to far less.
pub fn encode_pair(name: &[u8], value: &[u8], output: &mut Vec<u8>) {
    encode_length(name.len(), output);
    encode_length(value.len(), output);
    output.extend_from_slice(name);
    output.extend_from_slice(value);
}

fn encode_length(length: usize, output: &mut Vec<u8>) {
    if length < SHORT {
        output.push(length as u8);
    } else {
        output.extend_from_slice(&(length as u32 | LONG).to_be_bytes());
    }
}

/// Decodes the first pair in `bytes`. Also returns its encoded length. Returns `None` if the pair is incomplete.
pub fn decode_pair(bytes: &[u8]) -> Option<(&[u8], &[u8], usize)> {
    let (name_bytes, first) = decode_length(bytes)?;
    let (value_bytes, second) = decode_length(&bytes[first..])?;
    let name_at = first + second;
    let value_at = name_at.checked_add(name_bytes)?;
    let end = value_at.checked_add(value_bytes)?;
    Some((bytes.get(name_at..value_at)?, bytes.get(value_at..end)?, end))
}

fn decode_length(bytes: &[u8]) -> Option<(usize, usize)> {
    match *bytes {
        [first, ..] if usize::from(first) < SHORT => Some((usize::from(first), 1)),
        [a, b, c, d, ..] => Some(((u32::from_be_bytes([a, b, c, d]) & !LONG) as usize, 4)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{decode_pair, encode_pair};
    use flatout_http::feed::{DecodeResult, assert_three_ways};
    use proptest::prelude::*;

    fn decode(bytes: &[u8]) -> DecodeResult<(Vec<u8>, Vec<u8>), ()> {
        decode_pair(bytes).map(|(name, value, used)| Ok(((name.to_vec(), value.to_vec()), used)))
    }

    #[test]
    fn lengths_take_one_or_four_bytes() {
        for (name_bytes, value_bytes, head) in
            [(0, 0, &[0, 0][..]), (127, 1, &[127, 1]), (128, 0, &[0x80, 0, 0, 128, 0]), (2, 300, &[2, 0x80, 0, 1, 44])]
        {
            let (name, value) = (vec![b'n'; name_bytes], vec![b'v'; value_bytes]);
            let mut output = Vec::new();
            encode_pair(&name, &value, &mut output);
            assert!(output.starts_with(head), "{output:?}");
            assert_eq!(output.len(), head.len() + name_bytes + value_bytes);
            assert_three_ways(&output, decode);
            assert_eq!(decode_pair(&output), Some((&name[..], &value[..], output.len())));
        }
    }

    #[test]
    fn a_wrong_length_never_reads_beyond_the_end() {
        assert_eq!(decode_pair(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, b'a']), None);
        assert_eq!(decode_pair(&[5, 0, b'a']), None);
        assert_eq!(decode_pair(&[]), None);
    }

    proptest! {
        #[test]
        fn pairs_round_trip(pairs: Vec<(Vec<u8>, Vec<u8>)>) {
            let mut output = Vec::new();
            for (name, value) in &pairs {
                encode_pair(name, value, &mut output);
            }
            let mut rest = &output[..];
            for (name, value) in &pairs {
                let (other, given, used) = decode_pair(rest).unwrap();
                prop_assert_eq!((other, given), (&name[..], &value[..]));
                rest = &rest[used..];
            }
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn arbitrary_input_never_panics(bytes: Vec<u8>) {
            assert_three_ways(&bytes, decode);
        }
    }
}
