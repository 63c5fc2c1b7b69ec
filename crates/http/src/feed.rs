//! The one way every decoder is tested: fed whole, byte by byte, and with trailing bytes.
//!
//! Unit tests call [`assert_three_ways`]; the fuzzers call it with bytes nobody thought of.

use std::fmt::Debug;

/// What a decoder made of the bytes it was given: `None` while it needs more; then a value and how many bytes it
/// used, or an error.
pub type Outcome<T, E> = Option<Result<(T, usize), E>>;

/// Panics unless `decode` gives one outcome for `bytes` whole, for the shortest prefix that has an outcome, and for
/// `bytes` with others behind them.
///
/// # Panics
/// When the three differ: that is its purpose. Only tests and fuzzers call it.
#[allow(clippy::panic)]
pub fn assert_three_ways<T, E>(bytes: &[u8], decode: impl Fn(&[u8]) -> Outcome<T, E>)
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

/// The same for a decoder with state: `feed` is called with consecutive pieces on a fresh `start()` each time and
/// says how much of the piece it used and whether it is done.
///
/// Whole, byte by byte, in pieces of 2 to 7 and with trailing bytes, the collected output, the total used and the
/// error must agree.
///
/// # Panics
/// When they differ.
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
    // It ended, well or badly: what follows must not matter.
    if !matches!(whole.1, Some((_, false))) {
        let trailing = [bytes, b"GET / HTTP/1.1\r\n"].concat();
        for piece_bytes in [1, 3, usize::MAX / 2] {
            assert_eq!(whole, run(&trailing, piece_bytes), "trailing: {:?}", String::from_utf8_lossy(bytes));
        }
    }
}
