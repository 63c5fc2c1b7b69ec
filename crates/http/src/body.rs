//! Incremental decoding of a body with any framing.

use crate::chunked::{ChunkProgress, ChunkedDecoder};
use crate::framing::Framing;
use crate::limits::Limits;
use crate::refusal::Refusal;

/// State of a body decoder.
#[derive(Clone, Debug)]
pub enum BodyDecoder {
    /// Remaining bytes.
    Length(u64),
    /// Chunks; boxed, since a connection needs it only during a chunked body.
    Chunked(Box<ChunkedDecoder>),
    /// All bytes until the peer closes.
    UntilClose,
}

impl BodyDecoder {
    /// Decoder for a response; see [`ChunkedDecoder::of_response`].
    pub fn of_response(framing: Framing, limits: &Limits) -> Option<Self> {
        match framing {
            Framing::Chunked => Some(Self::Chunked(Box::new(ChunkedDecoder::of_response(limits)))),
            _ => Self::new(framing, limits),
        }
    }

    /// Decoder for `framing`; `None` if there is no body.
    pub fn new(framing: Framing, limits: &Limits) -> Option<Self> {
        match framing {
            Framing::None => None,
            Framing::Length(length) => Some(Self::Length(length)),
            Framing::Chunked => Some(Self::Chunked(Box::new(ChunkedDecoder::new(limits)))),
            Framing::UntilClose => Some(Self::UntilClose),
        }
    }

    /// Decodes up to the end of the next run of content, of the body, or of the input. An empty input makes no
    /// progress.
    pub fn decode(&mut self, input: &[u8]) -> Result<ChunkProgress, Refusal> {
        match self {
            Self::Length(remaining) => {
                let data_bytes = usize::try_from(*remaining).unwrap_or(usize::MAX).min(input.len());
                *remaining -= data_bytes as u64;
                Ok(ChunkProgress { consumed: data_bytes, data_start: 0, data_bytes, done: *remaining == 0 })
            }
            Self::Chunked(decoder) => decoder.decode(input),
            Self::UntilClose => {
                Ok(ChunkProgress { consumed: input.len(), data_start: 0, data_bytes: input.len(), done: false })
            }
        }
    }

    /// Trailer field lines of a chunked body so far; see [`ChunkedDecoder::trailers`].
    pub fn trailers(&self) -> &[u8] {
        match self {
            Self::Chunked(decoder) => decoder.trailers(),
            Self::Length(_) | Self::UntilClose => b"",
        }
    }

    /// Returns whether the close of the connection ends this body; with other framings it truncates the body.
    pub const fn ends_with_connection(&self) -> bool {
        matches!(self, Self::UntilClose)
    }
}

#[cfg(test)]
mod tests {
    use super::BodyDecoder;
    use crate::feed::assert_pieces_agree;
    use crate::framing::Framing;
    use crate::limits::Limits;

    #[test]
    fn lengths_end_where_they_say() {
        for (length, input) in [(1, &b"a"[..]), (3, b"abcdef"), (10, b"abc")] {
            assert_pieces_agree(
                input,
                || BodyDecoder::new(Framing::Length(length), &Limits::DEFAULT).unwrap(),
                |decoder, piece, output| {
                    let step = decoder.decode(piece)?;
                    output.extend_from_slice(&piece[step.data_start..][..step.data_bytes]);
                    Ok::<_, crate::refusal::Refusal>((step.consumed, step.done))
                },
            );
        }
    }

    #[test]
    fn only_one_framing_ends_with_the_connection() {
        for (framing, expected) in [(Framing::Length(1), false), (Framing::Chunked, false), (Framing::UntilClose, true)]
        {
            let decoder = BodyDecoder::new(framing, &Limits::DEFAULT).unwrap();
            assert_eq!(decoder.ends_with_connection(), expected);
        }
        assert!(BodyDecoder::new(Framing::None, &Limits::DEFAULT).is_none());
    }
}
