//! Incremental decoding of a message body, whatever its framing.

use crate::chunked::{ChunkProgress, ChunkedDecoder};
use crate::framing::Framing;
use crate::limits::Limits;
use crate::refusal::Refusal;

/// Decoder of one message body.
#[derive(Clone, Debug)]
pub enum BodyDecoder {
    /// A body with Content-Length, and the number of bytes still to come.
    Length(u64),
    /// A chunked body. The decoder is boxed because a connection needs it only while a chunked body arrives.
    Chunked(Box<ChunkedDecoder>),
    /// A body that ends when the peer closes the connection.
    UntilClose,
}

impl BodyDecoder {
    /// Creates a decoder for a response body. See [`ChunkedDecoder::of_response`].
    pub fn of_response(framing: Framing, limits: &Limits) -> Option<Self> {
        match framing {
            Framing::Chunked => Some(Self::Chunked(Box::new(ChunkedDecoder::of_response(limits)))),
            _ => Self::new(framing, limits),
        }
    }

    /// Creates a decoder for `framing`. Returns `None` if there is no body.
    pub fn new(framing: Framing, limits: &Limits) -> Option<Self> {
        match framing {
            Framing::None => None,
            Framing::Length(length) => Some(Self::Length(length)),
            Framing::Chunked => Some(Self::Chunked(Box::new(ChunkedDecoder::new(limits)))),
            Framing::UntilClose => Some(Self::UntilClose),
        }
    }

    /// Decodes up to the end of the next run of content, the end of the body, or the end of the input, whichever comes
    /// first. Empty input makes no progress.
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

    /// Returns the trailer field lines of a chunked body received so far. See [`ChunkedDecoder::trailers`].
    pub fn trailers(&self) -> &[u8] {
        match self {
            Self::Chunked(decoder) => decoder.trailers(),
            Self::Length(_) | Self::UntilClose => b"",
        }
    }

    /// Returns whether this body ends when the connection closes. With any other framing, closing truncates the body.
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
