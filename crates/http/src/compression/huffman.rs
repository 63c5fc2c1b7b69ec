//! Huffman coding of strings (RFC 7541 §5.2, Appendix B).
//!
//! The code is canonical: codes of equal length are consecutive in symbol order, and the codes of each length continue
//! where those of the next shorter length ended. The lengths alone therefore determine the code, and all tables are
//! computed from them at compile time.

/// Number of symbols: 256 bytes and EOS.
const SYMBOLS: usize = 257;

/// The end-of-string symbol (RFC 7541 §5.2). It never occurs in a valid string; its most significant bits serve as
/// padding.
const EOS: usize = 256;

/// Length of the longest code, in bits.
const BITS_MAX: usize = 30;

/// Maximum length of codes that one table lookup decodes, in bits. These codes include all printable ASCII characters
/// except ten.
const FAST_BITS: usize = 10;

/// Length of each symbol's code, in bits (RFC 7541 Appendix B).
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28,
    28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8,
    15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7,
    8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23,
    23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21,
    23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21,
    26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

/// The Huffman code in the forms needed for encoding and decoding.
struct HuffmanCode {
    /// Code of each symbol, right-aligned.
    codes: [u32; SYMBOLS],
    /// Symbols in the order of their codes.
    symbols: [u16; SYMBOLS],
    /// First code of each length, right-aligned.
    first_codes: [u32; BITS_MAX + 1],
    /// Index in `symbols` of the first code of each length.
    first_indexes: [u16; BITS_MAX + 2],
    /// For each value of the next `FAST_BITS` bits: the symbol and the length of its code. The length is 0 if the code
    /// is longer than `FAST_BITS`.
    fast: [(u8, u8); 1 << FAST_BITS],
}

static CODE: HuffmanCode = HuffmanCode::build();

impl HuffmanCode {
    const fn build() -> Self {
        let mut code = Self {
            codes: [0; SYMBOLS],
            symbols: [0; SYMBOLS],
            first_codes: [0; BITS_MAX + 1],
            first_indexes: [0; BITS_MAX + 2],
            fast: [(0, 0); 1 << FAST_BITS],
        };
        let (mut next, mut index, mut bits) = (0_u32, 0, 1);
        while bits <= BITS_MAX {
            next <<= 1;
            code.first_codes[bits] = next;
            code.first_indexes[bits] = index as u16;
            let mut symbol = 0;
            while symbol < SYMBOLS {
                if LENGTHS[symbol] as usize == bits {
                    code.codes[symbol] = next;
                    code.symbols[index] = symbol as u16;
                    if bits <= FAST_BITS {
                        let spare = FAST_BITS - bits;
                        let (start, mut filled) = ((next as usize) << spare, 0);
                        while filled < 1 << spare {
                            code.fast[start + filled] = (symbol as u8, bits as u8);
                            filled += 1;
                        }
                    }
                    next += 1;
                    index += 1;
                }
                symbol += 1;
            }
            bits += 1;
        }
        code.first_indexes[BITS_MAX + 1] = index as u16;
        code
    }

    /// Returns the symbol whose code starts the left-aligned `window`, and the length of that code in bits.
    fn find(&self, window: u64) -> (usize, u32) {
        let (symbol, bits) = self.fast[(window >> (64 - FAST_BITS)) as usize];
        if bits != 0 {
            return (usize::from(symbol), u32::from(bits));
        }
        for bits in FAST_BITS + 1..BITS_MAX {
            let code = (window >> (64 - bits)) as u32;
            let index = (code.wrapping_sub(self.first_codes[bits]) as usize)
                .saturating_add(usize::from(self.first_indexes[bits]));
            if code >= self.first_codes[bits] && index < usize::from(self.first_indexes[bits + 1]) {
                return (usize::from(self.symbols[index]), bits as u32);
            }
        }
        // The code is complete, so anything that matches no shorter code has the maximum length.
        let code = (window >> (64 - BITS_MAX)) as u32;
        let index = (code - self.first_codes[BITS_MAX]) as usize + usize::from(self.first_indexes[BITS_MAX]);
        (usize::from(self.symbols[index]), BITS_MAX as u32)
    }
}

/// Decodes the Huffman-coded string `input` and appends it to `output`. Fails if the string contains EOS, or if its
/// padding is longer than 7 bits or is not a prefix of EOS (RFC 7541 §5.2).
pub(crate) fn decode(input: &[u8], output: &mut Vec<u8>) -> Result<(), ()> {
    let (mut window, mut window_bits, mut used) = (0_u64, 0, 0);
    loop {
        while window_bits <= 56 && used < input.len() {
            window |= u64::from(input[used]) << (56 - window_bits);
            window_bits += 8;
            used += 1;
        }
        let (symbol, bits) = CODE.find(window);
        if bits > window_bits {
            let is_padding = window_bits < 8 && window.leading_ones() >= window_bits;
            return if is_padding { Ok(()) } else { Err(()) };
        }
        if symbol == EOS {
            return Err(());
        }
        output.push(symbol as u8);
        window <<= bits;
        window_bits -= bits;
    }
}

/// Returns the length of `text` after Huffman coding, in bytes.
pub(crate) fn coded_bytes(text: &[u8]) -> usize {
    text.iter().map(|&byte| usize::from(LENGTHS[usize::from(byte)])).sum::<usize>().div_ceil(8)
}

/// Appends the Huffman coding of `text` to `output`.
pub(crate) fn encode(text: &[u8], output: &mut Vec<u8>) {
    let (mut window, mut window_bits) = (0_u64, 0);
    for &byte in text {
        let bits = u32::from(LENGTHS[usize::from(byte)]);
        window = window << bits | u64::from(CODE.codes[usize::from(byte)]);
        window_bits += bits;
        while window_bits >= 8 {
            window_bits -= 8;
            output.push((window >> window_bits) as u8);
        }
    }
    if window_bits > 0 {
        let padding = 8 - window_bits;
        output.push(((window << padding) as u8) | ((1 << padding) - 1));
    }
}

#[cfg(test)]
mod tests {
    use super::{coded_bytes, decode, encode};
    use proptest::prelude::{any, proptest};

    fn decoded(input: &[u8]) -> Result<Vec<u8>, ()> {
        let mut output = Vec::new();
        decode(input, &mut output).map(|()| output)
    }

    #[test]
    fn strings_of_rfc_7541_appendix_c() {
        for (text, coded) in [
            ("www.example.com", &[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff][..]),
            ("no-cache", &[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]),
            ("302", &[0x64, 0x02]),
            ("private", &[0xae, 0xc3, 0x77, 0x1a, 0x4b]),
        ] {
            let mut output = Vec::new();
            encode(text.as_bytes(), &mut output);
            assert_eq!((&output[..], coded_bytes(text.as_bytes())), (coded, coded.len()), "{text}");
            assert_eq!(decoded(coded), Ok(text.as_bytes().to_vec()));
        }
    }

    #[test]
    fn every_byte_returns_unchanged() {
        for first in 0..=255_u8 {
            for second in [0, b'a', b'<', 0xff, first] {
                let text = [first, second, first];
                let mut output = Vec::new();
                encode(&text, &mut output);
                assert_eq!(decoded(&output), Ok(text.to_vec()));
            }
        }
    }

    #[test]
    fn eos_and_wrong_padding_are_errors() {
        // The complete EOS with padding, then "1" with zeros as padding, then "1" with one byte of padding too many.
        assert_eq!(decoded(&[0xff; 4]), Err(()));
        assert_eq!(decoded(&[0b0000_1000]), Err(()));
        assert_eq!(decoded(&[0b0000_1111, 0xff]), Err(()));
        assert_eq!(decoded(&[0b0000_1111]), Ok(b"1".to_vec()));
        assert_eq!(decoded(&[0xff]), Err(()), "8 bits of padding");
        assert_eq!(decoded(&[]), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn any_text_returns_unchanged(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut output = Vec::new();
            encode(&text, &mut output);
            assert_eq!(output.len(), coded_bytes(&text));
            assert_eq!(decoded(&output), Ok(text));
        }

        #[test]
        fn any_input_ends(input in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut output = Vec::new();
            let _ = decode(&input, &mut output);
            assert!(output.len() <= input.len() * 8 / 5);
        }
    }
}
