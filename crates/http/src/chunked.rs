//! Chunked transfer coding (RFC 9112 §7.1), decoded incrementally however the input is split.

use crate::head::check_field_line;
use crate::limits::{CHUNK_SIZE_DIGITS_MAX, Limits};
use crate::lines::is_of_a_connection;
use crate::refusal::Refusal;
use crate::token::{QDTEXT, TCHAR, hex_value, is};

/// Result of one decoding step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkProgress {
    /// Number of bytes consumed from the input.
    pub consumed: usize,
    /// Offset of the content in the input. Valid only if `data_bytes` is not 0.
    pub data_start: usize,
    /// Number of content bytes decoded in this step.
    pub data_bytes: usize,
    /// True if the body is complete.
    pub done: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    /// Before the first digit of a chunk size.
    SizeStart,
    /// Within the digits of a chunk size.
    Size,
    /// In white space before the `;` of a chunk extension.
    BeforeSemicolon,
    /// After `;`, before an extension name.
    BeforeName,
    Name,
    /// In white space after an extension name: `=`, `;` or the end of the line follows.
    AfterName,
    /// After `=`, before an extension value.
    BeforeValue,
    Value,
    Quoted,
    QuotedPair,
    /// After a quoted value.
    AfterValue,
    /// Before the LF that ends a size line.
    SizeLineFeed,
    Data,
    DataCarriageReturn,
    DataLineFeed,
    /// At the start of a trailer line or of the final empty line.
    TrailerStart,
    TrailerLine,
    TrailerLineFeed,
    EndLineFeed,
    Done,
}

/// Incremental decoder of a chunked body.
#[derive(Clone, Debug)]
pub struct ChunkedDecoder {
    state: ChunkState,
    /// Bytes of the current chunk still to come.
    remaining: u64,
    /// Number of size digits of the current chunk read so far.
    size_digits: u8,
    extension_bytes: u32,
    extension_bytes_max: u32,
    trailer_bytes_max: u32,
    trailer_bytes: u32,
    trailer_fields: u32,
    fields_max: u32,
    /// True if forbidden trailer fields are dropped instead of refused, and white space at the end of a size line is
    /// skipped.
    is_lenient: bool,
    /// The current trailer line; bounded by `trailer_bytes_max`.
    line: Vec<u8>,
    /// Complete trailer lines, each with its CR LF. Their total size is bounded by `trailer_bytes_max` too.
    trailers: Vec<u8>,
}

/// Fields that must not occur in trailers (RFC 9110 §6.5.1), besides those of a connection, because they concern
/// framing, routing, authentication, preconditions or the interpretation of the content.
const TRAILER_FORBIDDEN: [&str; 18] = [
    "content-length",
    "host",
    "expect",
    "range",
    "content-encoding",
    "content-type",
    "content-range",
    "authorization",
    "proxy-authorization",
    "cookie",
    "set-cookie",
    "cache-control",
    "max-forwards",
    "if-match",
    "if-none-match",
    "if-modified-since",
    "if-unmodified-since",
    "if-range",
];

/// Returns whether a field called `name` is permitted in a trailer section.
pub fn may_be_trailer(name: &[u8]) -> bool {
    !is_of_a_connection(name)
        && !TRAILER_FORBIDDEN.iter().any(|forbidden| name.eq_ignore_ascii_case(forbidden.as_bytes()))
}

impl ChunkedDecoder {
    /// Creates a decoder for a request body.
    pub fn new(limits: &Limits) -> Self {
        Self {
            state: ChunkState::SizeStart,
            remaining: 0,
            size_digits: 0,
            extension_bytes: 0,
            extension_bytes_max: limits.chunk_extension_bytes_max,
            trailer_bytes_max: limits.trailer_bytes_max,
            trailer_bytes: 0,
            trailer_fields: 0,
            fields_max: limits.fields_max as u32,
            is_lenient: false,
            line: Vec::new(),
            trailers: Vec::new(),
        }
    }

    /// Creates a decoder for a response body. It is lenient: a recipient may drop trailer fields (RFC 9110 §6.5.1),
    /// whose names do not affect the content, and old servers pad chunk sizes with spaces to a fixed width.
    pub fn of_response(limits: &Limits) -> Self {
        Self { is_lenient: true, ..Self::new(limits) }
    }

    /// Returns the trailer field lines received so far, each as `Name: value` and CR LF. They are complete once the
    /// body has ended, and empty if there are no trailers.
    pub fn trailers(&self) -> &[u8] {
        &self.trailers
    }

    /// Decodes up to the end of the next run of content, the end of the body, or the end of the input, whichever comes
    /// first.
    pub fn decode(&mut self, input: &[u8]) -> Result<ChunkProgress, Refusal> {
        let mut at = 0;
        while at < input.len() && self.state != ChunkState::Done {
            if self.state == ChunkState::Data {
                let data_bytes = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(input.len() - at);
                self.remaining -= data_bytes as u64;
                if self.remaining == 0 {
                    self.state = ChunkState::DataCarriageReturn;
                }
                return Ok(ChunkProgress { consumed: at + data_bytes, data_start: at, data_bytes, done: false });
            }
            self.state = self.handle_byte(input[at])?;
            at += 1;
        }
        Ok(ChunkProgress { consumed: at, data_start: at, data_bytes: 0, done: self.state == ChunkState::Done })
    }

    fn handle_byte(&mut self, byte: u8) -> Result<ChunkState, Refusal> {
        match self.state {
            ChunkState::SizeStart | ChunkState::Size => self.handle_size(byte),
            ChunkState::SizeLineFeed => match byte {
                b'\n' if self.remaining == 0 => Ok(ChunkState::TrailerStart),
                b'\n' => Ok(ChunkState::Data),
                _ => Err(Refusal::BareCr),
            },
            ChunkState::DataCarriageReturn if byte == b'\r' => Ok(ChunkState::DataLineFeed),
            ChunkState::DataLineFeed if byte == b'\n' => Ok(ChunkState::SizeStart),
            ChunkState::DataCarriageReturn | ChunkState::DataLineFeed => Err(Refusal::ChunkEnd),
            ChunkState::TrailerStart
            | ChunkState::TrailerLine
            | ChunkState::TrailerLineFeed
            | ChunkState::EndLineFeed => self.handle_trailer(byte),
            ChunkState::Data | ChunkState::Done => Ok(self.state),
            _ => self.handle_extension(byte),
        }
    }

    fn handle_size(&mut self, byte: u8) -> Result<ChunkState, Refusal> {
        if let Some(digit) = hex_value(byte) {
            if self.state == ChunkState::SizeStart {
                self.size_digits = 0;
            }
            // 15 significant digits exceed the size of any disk, so a 16th is refused.
            if self.size_digits == CHUNK_SIZE_DIGITS_MAX || self.remaining >> 56 != 0 {
                return Err(Refusal::ChunkSize);
            }
            self.size_digits += 1;
            self.remaining = self.remaining << 4 | u64::from(digit);
            return Ok(ChunkState::Size);
        }
        match (self.state, byte) {
            (ChunkState::Size, b'\r') => Ok(ChunkState::SizeLineFeed),
            (ChunkState::Size, b';' | b' ' | b'\t') => self.handle_extension_from(ChunkState::BeforeSemicolon, byte),
            (_, b'\n') => Err(Refusal::BareLf),
            _ => Err(Refusal::ChunkSize),
        }
    }

    fn handle_extension_from(&mut self, state: ChunkState, byte: u8) -> Result<ChunkState, Refusal> {
        self.state = state;
        self.handle_extension(byte)
    }

    /// Handles a byte of `chunk-ext = *( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] )`.
    fn handle_extension(&mut self, byte: u8) -> Result<ChunkState, Refusal> {
        self.extension_bytes += 1;
        if self.extension_bytes > self.extension_bytes_max {
            return Err(Refusal::ChunkExtensionTooLarge);
        }
        let blank = matches!(byte, b' ' | b'\t');
        match (self.state, byte) {
            (_, b'\n') => Err(Refusal::BareLf),
            (
                ChunkState::BeforeSemicolon
                | ChunkState::AfterName
                | ChunkState::AfterValue
                | ChunkState::Name
                | ChunkState::Value,
                b';',
            ) => Ok(ChunkState::BeforeName),
            (ChunkState::Name | ChunkState::AfterName, b'=') => Ok(ChunkState::BeforeValue),
            (ChunkState::Name | ChunkState::Value | ChunkState::AfterValue, b'\r') => Ok(ChunkState::SizeLineFeed),
            // White space may precede `;` or `=`, but must not end a line.
            (ChunkState::BeforeSemicolon | ChunkState::AfterName, b'\r') if self.is_lenient => {
                Ok(ChunkState::SizeLineFeed)
            }
            (ChunkState::BeforeSemicolon | ChunkState::BeforeName | ChunkState::BeforeValue, _) if blank => {
                Ok(self.state)
            }
            (ChunkState::Name | ChunkState::AfterName, _) if blank => Ok(ChunkState::AfterName),
            (ChunkState::Value | ChunkState::AfterValue, _) if blank => Ok(ChunkState::BeforeSemicolon),
            (ChunkState::BeforeName | ChunkState::Name, _) if is(byte, TCHAR) => Ok(ChunkState::Name),
            (ChunkState::BeforeValue, b'"') => Ok(ChunkState::Quoted),
            (ChunkState::BeforeValue | ChunkState::Value, _) if is(byte, TCHAR) => Ok(ChunkState::Value),
            (ChunkState::Quoted, b'"') => Ok(ChunkState::AfterValue),
            (ChunkState::Quoted, b'\\') => Ok(ChunkState::QuotedPair),
            (ChunkState::Quoted, _) if is(byte, QDTEXT) => Ok(ChunkState::Quoted),
            (ChunkState::QuotedPair, _) if byte == b'\t' || (byte >= b' ' && byte != 0x7f) => Ok(ChunkState::Quoted),
            _ => Err(Refusal::ChunkExtension),
        }
    }

    fn handle_trailer(&mut self, byte: u8) -> Result<ChunkState, Refusal> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > self.trailer_bytes_max {
            return Err(Refusal::TrailerTooLarge);
        }
        match (self.state, byte) {
            (ChunkState::TrailerStart, b'\r') => Ok(ChunkState::EndLineFeed),
            (ChunkState::EndLineFeed, b'\n') => {
                self.line = Vec::new();
                Ok(ChunkState::Done)
            }
            (ChunkState::TrailerLine, b'\r') => Ok(ChunkState::TrailerLineFeed),
            (ChunkState::TrailerLineFeed, b'\n') => {
                self.check_trailer_line()?;
                Ok(ChunkState::TrailerStart)
            }
            (ChunkState::EndLineFeed | ChunkState::TrailerLineFeed, _) => Err(Refusal::BareCr),
            (_, b'\n') => Err(Refusal::BareLf),
            _ => {
                self.line.push(byte);
                Ok(ChunkState::TrailerLine)
            }
        }
    }

    fn check_trailer_line(&mut self) -> Result<(), Refusal> {
        let (name, _) = check_field_line(&self.line)?;
        let is_allowed = may_be_trailer(name);
        if !is_allowed && !self.is_lenient {
            return Err(Refusal::TrailerForbidden);
        }
        self.trailer_fields += 1;
        if self.trailer_fields > self.fields_max {
            return Err(Refusal::FieldsTooMany);
        }
        if !is_allowed {
            self.line.clear();
            return Ok(());
        }
        self.trailers.append(&mut self.line);
        self.trailers.extend_from_slice(b"\r\n");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::ChunkedDecoder;
    use crate::feed::assert_pieces_agree;
    use crate::limits::Limits;
    use crate::refusal::Refusal;

    fn feed(decoder: &mut ChunkedDecoder, piece: &[u8], output: &mut Vec<u8>) -> Result<(usize, bool), Refusal> {
        let step = decoder.decode(piece)?;
        output.extend_from_slice(&piece[step.data_start..step.data_start + step.data_bytes]);
        Ok((step.consumed, step.done))
    }

    fn decode(bytes: &[u8]) -> Result<(Vec<u8>, usize, bool), Refusal> {
        assert_pieces_agree(bytes, || ChunkedDecoder::new(&Limits::DEFAULT), feed);
        let (mut decoder, mut output, mut used) = (ChunkedDecoder::new(&Limits::DEFAULT), Vec::new(), 0);
        loop {
            let (consumed, done) = feed(&mut decoder, &bytes[used..], &mut output)?;
            used += consumed;
            if done || used == bytes.len() {
                return Ok((output, used, done));
            }
        }
    }

    /// RFC 9110 §6.5.1.
    #[test]
    fn a_response_is_whole_whatever_its_trailers_are_called() {
        let bytes = b"1\r\nx\r\n0\r\nSet-Cookie: a=b\r\nX-Sum: 1\r\nContent-Length: 9\r\n\r\n";
        assert_eq!(decode(bytes), Err(Refusal::TrailerForbidden));
        assert_pieces_agree(bytes, || ChunkedDecoder::of_response(&Limits::DEFAULT), feed);
        let mut decoder = ChunkedDecoder::of_response(&Limits::DEFAULT);
        let (mut used, mut output) = (0, Vec::new());
        while used < bytes.len() {
            used += feed(&mut decoder, &bytes[used..], &mut output).unwrap().0;
        }
        assert_eq!((&output[..], decoder.trailers()), (&b"x"[..], &b"X-Sum: 1\r\n"[..]));
    }

    #[test]
    fn a_response_may_pad_its_chunk_sizes() {
        for bytes in [
            &b"5  \r\nhello\r\n0  \r\n\r\n"[..],
            b"5\t \r\nhello\r\n0\t\r\n\r\n",
            b"5 ;a \r\nhello\r\n0;b=c \r\n\r\n",
            b"5 ;a=\"b\" \r\nhello\r\n0 ; b \r\n\r\n",
        ] {
            assert_pieces_agree(bytes, || ChunkedDecoder::of_response(&Limits::DEFAULT), feed);
            let mut decoder = ChunkedDecoder::of_response(&Limits::DEFAULT);
            let (mut used, mut output, mut is_done) = (0, Vec::new(), false);
            while used < bytes.len() {
                let (consumed, done) = feed(&mut decoder, &bytes[used..], &mut output).unwrap();
                (used, is_done) = (used + consumed, done);
            }
            assert_eq!((&output[..], is_done), (&b"hello"[..], true));
            assert_eq!(decode(bytes).err(), Some(Refusal::ChunkExtension));
        }
        for (bytes, refusal) in [
            (&b" 5\r\n"[..], Refusal::ChunkSize),
            (b"5 5\r\n", Refusal::ChunkExtension),
            (b"5 ;\r\n", Refusal::ChunkExtension),
            (b"5;a= \r\n", Refusal::ChunkExtension),
            (b"5 \n", Refusal::BareLf),
            (b"5 \rx", Refusal::BareCr),
        ] {
            let mut decoder = ChunkedDecoder::of_response(&Limits::DEFAULT);
            assert_eq!(decoder.decode(bytes), Err(refusal), "{:?}", String::from_utf8_lossy(bytes));
        }
        let padded = [b"5".to_vec(), b" ".repeat(5000)].concat();
        let mut decoder = ChunkedDecoder::of_response(&Limits::DEFAULT);
        assert_eq!(decoder.decode(&padded), Err(Refusal::ChunkExtensionTooLarge));
    }

    #[test]
    fn chunks_extensions_and_trailers() {
        for (bytes, content) in [
            (&b"0\r\n\r\n"[..], &b""[..]),
            (b"3\r\nabc\r\n0\r\n\r\n", b"abc"),
            (b"00003\r\nabc\r\n2\r\nde\r\n000\r\n\r\n", b"abcde"),
            (b"0000000000000003\r\nabc\r\n0000000000000000\r\n\r\n", b"abc"),
            (b"A\r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
            (b"1;a\r\nx\r\n0;b=c;d=\"e;\\\"\r\"\r\n\r\n", b"x"),
            (b"1 ; a = b ;c\r\nx\r\n0\r\n\r\n", b"x"),
            (b"1;a=\"b\\\"c\" ;d\r\nx\r\n0\r\nX-Sum: 1\r\nY:\r\n\r\n", b"x"),
        ] {
            if bytes.windows(2).any(|pair| pair == b"\r\"") {
                assert_eq!(decode(bytes), Err(Refusal::ChunkExtension));
                continue;
            }
            assert_eq!(
                decode(bytes),
                Ok((content.to_vec(), bytes.len(), true)),
                "{:?}",
                String::from_utf8_lossy(bytes)
            );
        }
    }

    #[test]
    fn trailers_are_kept_as_they_came() {
        let bytes = b"1\r\nx\r\n0\r\nX-Sum: 1\r\nY:\r\n\r\n";
        for step in [1, 3, bytes.len()] {
            let mut decoder = ChunkedDecoder::new(&Limits::DEFAULT);
            for piece in bytes.chunks(step) {
                let mut used = 0;
                while used < piece.len() {
                    used += feed(&mut decoder, &piece[used..], &mut Vec::new()).unwrap().0;
                }
            }
            assert_eq!(decoder.trailers(), b"X-Sum: 1\r\nY:\r\n");
        }
        let mut decoder = ChunkedDecoder::new(&Limits::DEFAULT);
        decoder.decode(b"0\r\n\r\n").unwrap();
        assert_eq!(decoder.trailers(), b"");
    }

    #[test]
    fn unfinished_bodies_wait() {
        for bytes in [&b"3\r\nab"[..], b"3\r\nabc", b"3\r\nabc\r", b"0\r\n", b"0\r\nA: b\r\n", b"1;a", b"f"] {
            assert!(!decode(bytes).unwrap().2, "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn what_is_refused_and_why() {
        for (bytes, refusal) in [
            (&b"\r\n"[..], Refusal::ChunkSize),
            (b"g\r\n", Refusal::ChunkSize),
            (b"-1\r\n", Refusal::ChunkSize),
            (b"+1\r\n", Refusal::ChunkSize),
            (b" 1\r\n", Refusal::ChunkSize),
            (b"0x1\r\n", Refusal::ChunkSize),
            (b"1_0\r\n", Refusal::ChunkSize),
            (b"10000000000000000\r\n", Refusal::ChunkSize),
            (b"ffffffffffffffff1\r\n", Refusal::ChunkSize),
            (b"00000000000000003\r\n", Refusal::ChunkSize),
            (b"00000000000000000", Refusal::ChunkSize),
            (b"1\r\nx\r\n00000000000000000", Refusal::ChunkSize),
            (b"1\n", Refusal::BareLf),
            (b"1\rx", Refusal::BareCr),
            (b"1;\r\n", Refusal::ChunkExtension),
            (b"1;;a\r\n", Refusal::ChunkExtension),
            (b"1;a=\r\n", Refusal::ChunkExtension),
            (b"1 \r\n", Refusal::ChunkExtension),
            (b"1 a\r\n", Refusal::ChunkExtension),
            (b"1;a\n", Refusal::BareLf),
            (b"1;a=\"\n\"\r\n", Refusal::BareLf),
            (b"1;a=\"\0\"\r\n", Refusal::ChunkExtension),
            (b"1;a b\r\n", Refusal::ChunkExtension),
            (b"1;a=b c\r\n", Refusal::ChunkExtension),
            (b"1\r\nab\r\n", Refusal::ChunkEnd),
            (b"1\r\na\n", Refusal::ChunkEnd),
            (b"1\r\na\rx", Refusal::ChunkEnd),
            (b"0\r\n\n", Refusal::BareLf),
            (b"0\r\n\rx", Refusal::BareCr),
            (b"0\r\nA b\r\n\r\n", Refusal::ColonMissing),
            (b"0\r\nA : b\r\n\r\n", Refusal::SpaceBeforeColon),
            (b"0\r\nA: b\r\n c\r\n\r\n", Refusal::ObsFold),
            (b"0\r\nA: b\n\r\n", Refusal::BareLf),
            (b"0\r\nContent-Length: 1\r\n\r\n", Refusal::TrailerForbidden),
            (b"0\r\nhost: a\r\n\r\n", Refusal::TrailerForbidden),
            (b"0\r\nCookie: a=b\r\n\r\n", Refusal::TrailerForbidden),
            (b"0\r\nIf-Match: *\r\n\r\n", Refusal::TrailerForbidden),
        ] {
            assert_eq!(decode(bytes).err(), Some(refusal), "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn bounds_hold_over_the_whole_body() {
        let extensions = b"1;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\nx\r\n".repeat(100);
        assert_eq!(decode(&extensions).err(), Some(Refusal::ChunkExtensionTooLarge));
        let trailer =
            [b"0\r\n".to_vec(), b"A: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\r\n".repeat(90)].concat();
        assert_eq!(decode(&trailer).err(), Some(Refusal::TrailerTooLarge));
        let many = [b"0\r\n".to_vec(), b"A: b\r\n".repeat(101)].concat();
        assert_eq!(decode(&many).err(), Some(Refusal::FieldsTooMany));
    }
}
