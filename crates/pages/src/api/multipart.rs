//! Incremental decoding of `multipart/form-data` (RFC 7578, RFC 2046 §5.1), part by part.
//!
//! The decoder buffers only a possible beginning of a delimiter and the head of one part. Nested multipart content is
//! treated as ordinary content.

use flatout_http::token::{is_token, trim};

/// Maximum length of a boundary, in bytes (RFC 2046 §5.1.1).
pub const BOUNDARY_BYTES_MAX: usize = 70;
/// Maximum length of a part's head, in bytes.
pub const PART_HEAD_BYTES_MAX: usize = 4096;
/// Maximum length of the preamble, in bytes. Browsers send none.
pub const PREAMBLE_BYTES_MAX: usize = 1024;
/// Maximum amount of white space after a delimiter, in bytes.
const PADDING_BYTES_MAX: usize = 64;

/// The name, file name and media type of a part (RFC 7578 §4.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartHead {
    /// The name of the form field.
    pub name: Vec<u8>,
    /// The file's name as sent by the browser; `None` if the part is not a file.
    pub file_name: Option<Vec<u8>>,
    /// The value of Content-Type, if present.
    pub media_type: Option<Vec<u8>>,
}

/// A consumer of the parts of a form.
pub trait Parts {
    /// The reason why the consumer rejects a part.
    type Refusal;

    /// Called once for each part, before its content.
    fn begin_part(&mut self, head: PartHead) -> Result<(), Self::Refusal>;

    /// Called with the next bytes of the part's content, which are never empty.
    fn part_bytes(&mut self, bytes: &[u8]) -> Result<(), Self::Refusal>;

    /// Called when the part is complete.
    fn end_part(&mut self) -> Result<(), Self::Refusal>;
}

flatout_reason::reasons! {
    /// The reason why content is not valid `multipart/form-data`.
    pub enum MultipartError { text, }
    /// Content-Type has no boundary or an invalid boundary (RFC 2046).
    Boundary, "The multipart content has no boundary, or a malformed one.";
    /// The preamble is longer than [`PREAMBLE_BYTES_MAX`].
    Preamble, "The multipart content has too much before its first part.";
    /// A delimiter is followed by unexpected bytes.
    Delimiter, "A delimiter of the multipart content is malformed.";
    /// A part's head is longer than [`PART_HEAD_BYTES_MAX`].
    PartHeadTooLong, "The head of a part is too long.";
    /// A part's head is not a field section, or has no Content-Disposition of type form-data with a name.
    PartHead, "The head of a part is malformed, or names no form field.";
    /// A part has a Content-Transfer-Encoding, which RFC 7578 §4.7 deprecates.
    PartEncoding, "A part has a Content-Transfer-Encoding, which is not allowed in form data.";
    /// The content ends before its closing delimiter.
    Cut, "The multipart content ends before its last part is complete.";
}

/// The reason why decoding stopped: malformed content, or a rejection by the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultipartStop<R> {
    /// The content is malformed.
    Malformed(MultipartError),
    /// The consumer rejected a part.
    Refused(R),
}

/// Returns the boundary in `content_type` if the type is `multipart/form-data`, and `None` for any other type.
pub fn parse_boundary(content_type: &[u8]) -> Option<Result<Vec<u8>, MultipartError>> {
    let mut parameters = Parameters::new(content_type);
    if !parameters.first().eq_ignore_ascii_case(b"multipart/form-data") {
        return None;
    }
    let boundary = parameters.find_map(|(name, value)| name.eq_ignore_ascii_case(b"boundary").then_some(value));
    Some(match boundary {
        Some(boundary) if is_boundary(&boundary) => Ok(boundary),
        _ => Err(MultipartError::Boundary),
    })
}

/// Returns whether `bytes` are a valid boundary (RFC 2046 §5.1.1).
fn is_boundary(bytes: &[u8]) -> bool {
    (1..=BOUNDARY_BYTES_MAX).contains(&bytes.len())
        && bytes.iter().all(|&byte| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte))
        && bytes.last() != Some(&b' ')
}

/// Parses a value with parameters, such as `form-data; name="a"; filename=b`.
struct Parameters<'a> {
    first: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Parameters<'a> {
    fn new(value: &'a [u8]) -> Self {
        let end = memchr::memchr(b';', value).unwrap_or(value.len());
        Self { first: trim(&value[..end]), rest: &value[end..] }
    }

    const fn first(&self) -> &'a [u8] {
        self.first
    }
}

impl<'a> Iterator for Parameters<'a> {
    type Item = (&'a [u8], Vec<u8>);

    /// Returns the next parameter, and stops at anything that is not a parameter.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = trim(self.rest.strip_prefix(b";")?);
            if rest.first() == Some(&b';') {
                self.rest = rest;
                continue;
            }
            let equals = memchr::memchr(b'=', rest)?;
            let name = trim(&rest[..equals]);
            if !is_token(name) {
                return None;
            }
            let value = trim(&rest[equals + 1..]);
            let Some(quoted) = value.strip_prefix(b"\"") else {
                let end = memchr::memchr(b';', value).unwrap_or(value.len());
                self.rest = &value[end..];
                return Some((name, trim(&value[..end]).to_vec()));
            };
            let (text, used) = unquote(quoted)?;
            self.rest = trim(&quoted[used..]);
            return Some((name, text));
        }
    }
}

/// Returns the characters up to the closing quotation mark, and their length in bytes including the mark. Browsers
/// escape a quotation mark as `%22`, other clients as `\"`. A backslash before any other character is part of a Windows
/// path.
fn unquote(quoted: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut text = Vec::new();
    let mut at = 0;
    loop {
        match (*quoted.get(at)?, quoted.get(at + 1)) {
            (b'"', _) => return Some((text, at + 1)),
            (b'\\', Some(&escaped @ (b'"' | b'\\'))) => {
                text.push(escaped);
                at += 2;
            }
            (byte, _) => {
                text.push(byte);
                at += 1;
            }
        }
    }
}

/// Parses a part's head: its field lines, each ending with CR LF, without the empty line.
fn parse_part_head(bytes: &[u8]) -> Result<PartHead, MultipartError> {
    let mut head = PartHead::default();
    let mut named = false;
    let mut rest = bytes;
    while !rest.is_empty() {
        let end = memchr::memmem::find(rest, b"\r\n").ok_or(MultipartError::PartHead)?;
        let (line, tail) = (&rest[..end], &rest[end + 2..]);
        rest = tail;
        let colon = memchr::memchr(b':', line).ok_or(MultipartError::PartHead)?;
        let (name, value) = (&line[..colon], trim(&line[colon + 1..]));
        // Control characters are invalid in every field, and folded lines are obsolete.
        if !is_token(name) || value.iter().any(|&byte| byte < 0x20 && byte != b'\t' || byte == 0x7f) {
            return Err(MultipartError::PartHead);
        }
        if name.eq_ignore_ascii_case(b"content-disposition") {
            let mut parameters = Parameters::new(value);
            if named || !parameters.first().eq_ignore_ascii_case(b"form-data") {
                return Err(MultipartError::PartHead);
            }
            for (name, value) in &mut parameters {
                if name.eq_ignore_ascii_case(b"name") && !named {
                    head.name = value;
                    named = true;
                } else if name.eq_ignore_ascii_case(b"filename") && head.file_name.is_none() {
                    // `filename*` is not allowed in form data (RFC 7578 §4.2).
                    head.file_name = Some(value);
                }
            }
        } else if name.eq_ignore_ascii_case(b"content-type") {
            head.media_type = Some(value.to_vec());
        } else if name.eq_ignore_ascii_case(b"content-transfer-encoding")
            && ![&b"7bit"[..], b"8bit", b"binary"].iter().any(|plain| value.eq_ignore_ascii_case(plain))
        {
            return Err(MultipartError::PartEncoding);
        }
    }
    if named { Ok(head) } else { Err(MultipartError::PartHead) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MultipartState {
    Preamble,
    /// Directly after a delimiter.
    Delimiter,
    Dash,
    Padding,
    PaddingCr,
    Head,
    Body,
    End,
}

/// A decoder of multipart content that arrives in pieces of any size.
#[derive(Debug)]
pub struct MultipartDecoder {
    /// The delimiter: CR LF, two hyphens and the boundary.
    delimiter: Vec<u8>,
    /// Number of bytes of the delimiter matched so far, in the preamble or a part.
    matched: usize,
    state: MultipartState,
    /// Number of bytes in the preamble, or of white space after a delimiter.
    counted: usize,
    /// The current part's head so far.
    head: Vec<u8>,
}

impl MultipartDecoder {
    /// Creates a decoder for content with `boundary`, which [`parse_boundary`] has returned.
    pub fn new(boundary: &[u8]) -> Self {
        let mut delimiter = b"\r\n--".to_vec();
        delimiter.extend_from_slice(boundary);
        // The first delimiter may be at the very beginning, without a preceding line break.
        Self { delimiter, matched: 2, state: MultipartState::Preamble, counted: 0, head: Vec::new() }
    }

    /// Decodes `input` and passes its content to `parts`. Returns the number of bytes used, and whether the closing
    /// delimiter has been read. The epilogue after the closing delimiter is ignored (RFC 2046 §5.1.1).
    pub fn feed<P: Parts>(&mut self, input: &[u8], parts: &mut P) -> Result<(usize, bool), MultipartStop<P::Refusal>> {
        let mut at = 0;
        while at < input.len() && self.state != MultipartState::End {
            at += match self.state {
                MultipartState::Preamble | MultipartState::Body => self.feed_content(&input[at..], parts)?,
                MultipartState::Head => self.feed_head(&input[at..], parts)?,
                _ => {
                    self.state = self.after_delimiter(input[at]).map_err(MultipartStop::Malformed)?;
                    1
                }
            };
        }
        Ok((at, self.state == MultipartState::End))
    }

    /// Checks that the content is complete; must be called at its end.
    pub fn finish(&self) -> Result<(), MultipartError> {
        if self.state == MultipartState::End { Ok(()) } else { Err(MultipartError::Cut) }
    }

    /// Consumes content up to a delimiter. The first byte of the delimiter occurs nowhere else in it, so a partial
    /// match that fails contains no other beginning of a delimiter.
    fn feed_content<P: Parts>(&mut self, input: &[u8], parts: &mut P) -> Result<usize, MultipartStop<P::Refusal>> {
        let in_part = self.state == MultipartState::Body;
        let mut at = 0;
        while at < input.len() {
            if self.matched == 0 {
                let plain = memchr::memchr(b'\r', &input[at..]).unwrap_or(input.len() - at);
                self.content(in_part, &input[at..at + plain], parts)?;
                at += plain;
                if at == input.len() {
                    break;
                }
            }
            if input[at] == self.delimiter[self.matched] {
                self.matched += 1;
                at += 1;
                if self.matched == self.delimiter.len() {
                    if in_part {
                        parts.end_part().map_err(MultipartStop::Refused)?;
                    }
                    self.matched = 0;
                    self.counted = 0;
                    self.state = MultipartState::Delimiter;
                    break;
                }
            } else {
                let matched = std::mem::take(&mut self.matched);
                let held = std::mem::take(&mut self.delimiter);
                let given = self.content(in_part, &held[..matched], parts);
                self.delimiter = held;
                given?;
            }
        }
        Ok(at)
    }

    fn content<P: Parts>(
        &mut self,
        in_part: bool,
        bytes: &[u8],
        parts: &mut P,
    ) -> Result<(), MultipartStop<P::Refusal>> {
        if bytes.is_empty() {
            return Ok(());
        }
        if in_part {
            return parts.part_bytes(bytes).map_err(MultipartStop::Refused);
        }
        self.counted += bytes.len();
        if self.counted > PREAMBLE_BYTES_MAX {
            return Err(MultipartStop::Malformed(MultipartError::Preamble));
        }
        Ok(())
    }

    fn after_delimiter(&mut self, byte: u8) -> Result<MultipartState, MultipartError> {
        self.counted += 1;
        match (self.state, byte) {
            (MultipartState::Delimiter, b'-') => Ok(MultipartState::Dash),
            (MultipartState::Dash, b'-') => Ok(MultipartState::End),
            (MultipartState::Delimiter | MultipartState::Padding, b' ' | b'\t')
                if self.counted <= PADDING_BYTES_MAX =>
            {
                Ok(MultipartState::Padding)
            }
            (MultipartState::Delimiter | MultipartState::Padding, b'\r') => Ok(MultipartState::PaddingCr),
            (MultipartState::PaddingCr, b'\n') => {
                self.head.clear();
                Ok(MultipartState::Head)
            }
            _ => Err(MultipartError::Delimiter),
        }
    }

    /// Consumes a part's head, including the empty line after it.
    fn feed_head<P: Parts>(&mut self, input: &[u8], parts: &mut P) -> Result<usize, MultipartStop<P::Refusal>> {
        let known = self.head.len();
        let room = (PART_HEAD_BYTES_MAX + 1).saturating_sub(known).min(input.len());
        self.head.extend_from_slice(&input[..room]);
        // The head begins with the empty line: a part without fields is not a form field.
        let end = if self.head.starts_with(b"\r\n") {
            Some(0)
        } else {
            let from = known.saturating_sub(3);
            memchr::memmem::find(&self.head[from..], b"\r\n\r\n").map(|at| from + at + 2)
        };
        // The limit includes the empty line, so that it applies at the same byte regardless of how the input is split.
        match end {
            Some(end) if end + 2 <= PART_HEAD_BYTES_MAX => {
                let head = parse_part_head(&self.head[..end]).map_err(MultipartStop::Malformed)?;
                parts.begin_part(head).map_err(MultipartStop::Refused)?;
                self.head.clear();
                self.state = MultipartState::Body;
                // The delimiter must begin with a line break of its own; the empty line after the head does not count.
                self.matched = 0;
                Ok(end + 2 - known)
            }
            None if self.head.len() <= PART_HEAD_BYTES_MAX => Ok(room),
            _ => Err(MultipartStop::Malformed(MultipartError::PartHeadTooLong)),
        }
    }
}

#[cfg(test)]
mod tests;
