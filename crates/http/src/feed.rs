//! Test helpers that feed a decoder the whole input, single bytes, and input with trailing bytes.
//!
//! Unit tests and fuzzers call [`assert_three_ways`].

use std::fmt::Debug;

/// Result of a decoder: `None` if it needs more input, otherwise an error, or a value and the number of bytes consumed.
pub type DecodeResult<T, E> = Option<Result<(T, usize), E>>;

/// Checks that `decode` gives the same result for all of `bytes`, for the shortest prefix of `bytes` with a result, and
/// for `bytes` followed by other bytes.
///
/// # Panics
/// If the results differ. Only for tests and fuzzers.
#[allow(clippy::panic)]
pub fn assert_three_ways<T, E>(bytes: &[u8], decode: impl Fn(&[u8]) -> DecodeResult<T, E>)
where
    T: Debug + PartialEq,
    E: Debug + PartialEq,
{
    let whole = decode(bytes);
    let mut bytewise = None;
    for length in 0..=bytes.len() {
        bytewise = decode(&bytes[..length]);
        if let Some(outcome) = &bytewise {
            if let Ok((_, used)) = outcome {
                assert!(*used <= length, "used {used} of {length} bytes");
            }
            break;
        }
    }
    assert_eq!(whole, bytewise, "whole and byte by byte differ for {:?}", String::from_utf8_lossy(bytes));
    if whole.is_some() {
        for trailing in [&b"\r\n"[..], b"GET / HTTP/1.1\r\n\r\n", b"\0\xff", b"0"] {
            let outcome = decode(&[bytes, trailing].concat());
            assert_eq!(whole, outcome, "trailing bytes changed {:?}", String::from_utf8_lossy(bytes));
        }
    }
}

/// Checks a stateful decoder in the same way. `start` creates a decoder; `feed` passes it the next piece of input and
/// returns the number of bytes consumed and whether decoding is complete.
///
/// The output, the number of bytes consumed and the error must agree for the whole input, for pieces of 1 to 7 bytes,
/// and for input with trailing bytes.
///
/// # Panics
/// If they differ. Only for tests and fuzzers.
#[allow(clippy::panic)]
pub fn assert_pieces_agree<S, E>(
    bytes: &[u8],
    start: impl Fn() -> S,
    feed: impl Fn(&mut S, &[u8], &mut Vec<u8>) -> Result<(usize, bool), E>,
) where
    E: Debug + PartialEq,
{
    let run = |input: &[u8], piece_bytes: usize| {
        let (mut state, mut output, mut used) = (start(), Vec::new(), 0);
        let mut done = false;
        while !done && used < input.len() {
            let piece = &input[used..(used + piece_bytes).min(input.len())];
            match feed(&mut state, piece, &mut output) {
                Ok((consumed, now_done)) => {
                    assert!(consumed <= piece.len());
                    assert!(now_done || consumed > 0, "no progress");
                    used += consumed;
                    done = now_done;
                }
                Err(error) => return (output, None, Some(error)),
            }
        }
        (output, Some((used, done)), None)
    };
    let whole = run(bytes, usize::MAX / 2);
    for piece_bytes in 1..=7 {
        assert_eq!(whole, run(bytes, piece_bytes), "pieces of {piece_bytes}: {:?}", String::from_utf8_lossy(bytes));
    }
    // Decoding ended, successfully or not, so trailing bytes must not matter.
    if !matches!(whole.1, Some((_, false))) {
        let trailing = [bytes, b"GET / HTTP/1.1\r\n"].concat();
        for piece_bytes in [1, 3, usize::MAX / 2] {
            assert_eq!(whole, run(&trailing, piece_bytes), "trailing: {:?}", String::from_utf8_lossy(bytes));
        }
    }
}
