//! The QPACK decoder streams (RFC 9204 §4.4): what this side's decoder sends, and what the peer's decoder may send.

use crate::compression::{TextError, decode_integer, encode_integer};
use crate::http3::error::ConnectionError;

/// Length of the longest instruction, in bytes.
const INSTRUCTION_BYTES_MAX: usize = 10;

/// Reader of instructions from the peer's decoder. This side's encoder inserts nothing that the peer could acknowledge,
/// so only Stream Cancellation is valid.
#[derive(Clone, Debug, Default)]
pub(in crate::http3) struct DecoderFeedback {
    /// The start of an instruction that is still arriving.
    stash: Vec<u8>,
}

impl DecoderFeedback {
    /// Handles received bytes. Calls `admits` for each instruction; if it returns `false`, the connection must be
    /// closed.
    pub(in crate::http3) fn handle(
        &mut self,
        mut input: &[u8],
        mut admits: impl FnMut() -> bool,
    ) -> Result<(), ConnectionError> {
        while !input.is_empty() {
            let stashed = self.stash.len();
            let joined_bytes = (stashed + input.len()).min(INSTRUCTION_BYTES_MAX);
            self.stash.extend_from_slice(&input[..joined_bytes - stashed]);
            let mut rest = &self.stash[..];
            // Section Acknowledgment and Insert Count Increment refer to insertions, and there are none.
            if self.stash.first().is_some_and(|first| first >> 6 != 1) {
                return Err(ConnectionError::DecoderInstruction);
            }
            match decode_integer(&mut rest, 6, u32::MAX) {
                Ok(_) => input = &input[joined_bytes - rest.len() - stashed..],
                Err(TextError::Truncated) if joined_bytes < INSTRUCTION_BYTES_MAX => return Ok(()),
                Err(_) => return Err(ConnectionError::DecoderInstruction),
            }
            self.stash.clear();
            if !admits() {
                return Err(ConnectionError::InstructionFlood);
            }
        }
        Ok(())
    }
}

/// Appends a Section Acknowledgment instruction.
pub(in crate::http3) fn append_acknowledgment(stream: u64, output: &mut Vec<u8>) {
    encode_integer(stream, 7, 0x80, output);
}

/// Appends a Stream Cancellation instruction.
pub(in crate::http3) fn append_cancellation(stream: u64, output: &mut Vec<u8>) {
    encode_integer(stream, 6, 0x40, output);
}

#[cfg(test)]
mod tests {
    use super::{DecoderFeedback, append_acknowledgment, append_cancellation};
    use crate::http3::error::ConnectionError;

    #[test]
    fn cancellations_are_valid_however_they_are_cut() {
        let mut bytes = Vec::new();
        for stream in [0, 4, 62, 63, 64, 1 << 40, (1 << 62) - 4] {
            append_cancellation(stream, &mut bytes);
        }
        for size in [1, 2, 3, 7, bytes.len()] {
            let (mut feedback, mut count) = (DecoderFeedback::default(), 0);
            for piece in bytes.chunks(size) {
                feedback
                    .handle(piece, || {
                        count += 1;
                        true
                    })
                    .unwrap();
            }
            assert_eq!((count, feedback.stash.len()), (7, 0), "pieces of {size}");
        }
        let flood = DecoderFeedback::default().handle(&bytes, || false);
        assert_eq!(flood, Err(ConnectionError::InstructionFlood));
    }

    #[test]
    fn other_instructions_are_errors() {
        let mut acknowledgment = Vec::new();
        append_acknowledgment(0, &mut acknowledgment);
        for bytes in
            [&acknowledgment[..], &[0x01], &[0x00], &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]]
        {
            let handled = DecoderFeedback::default().handle(bytes, || true);
            assert_eq!(handled, Err(ConnectionError::DecoderInstruction), "{bytes:?}");
        }
    }
}
