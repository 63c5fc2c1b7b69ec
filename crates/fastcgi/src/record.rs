//! Records (FastCGI 1.0 §3.3): eight bytes of header, content, padding.
//!
//! The decoder returns content as it arrives and buffers none, so the length of a record requires no bound. Absent by
//! design: several requests on one connection. Hardly any application server supports them; PHP-FPM does not.

use std::fmt;

/// Length of a record's header.
pub const HEADER_BYTES: usize = 8;

/// Maximum bytes of content per record.
pub const CONTENT_BYTES_MAX: usize = 65_535;

/// ID of the single request in progress on a connection; 0 would mean the connection itself.
pub const REQUEST_ID: u16 = 1;

/// Maximum records without content per response. Each stream ends with one; more would only waste time.
pub const EMPTY_RECORDS_MAX: u32 = 16;

const VERSION: u8 = 1;

/// Responder role (§6.2).
const RESPONDER: u16 = 1;

/// Flag: leave the connection open after the response (§5.1).
const KEEP_CONNECTION: u8 = 1;

/// Record types (§8) that this client sends or understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// Start of a request.
    BeginRequest = 1,
    /// The client no longer needs the response.
    AbortRequest = 2,
    /// End of the response.
    EndRequest = 3,
    /// Part of the variables.
    Params = 4,
    /// Part of the request's content.
    Stdin = 5,
    /// Part of the response.
    Stdout = 6,
    /// Part of the error output.
    Stderr = 7,
}

/// Header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Type.
    pub kind: u8,
    /// Request ID.
    pub request_id: u16,
    /// Bytes of content.
    pub content_bytes: u16,
    /// Bytes of padding after the content.
    pub padding_bytes: u8,
}

impl Header {
    /// Header of a record for [`REQUEST_ID`], without padding.
    pub const fn new(kind: RecordKind, content_bytes: u16) -> Self {
        Self { kind: kind as u8, request_id: REQUEST_ID, content_bytes, padding_bytes: 0 }
    }

    /// Encodes it.
    pub const fn encode(&self) -> [u8; HEADER_BYTES] {
        let [id_high, id_low] = self.request_id.to_be_bytes();
        let [high, low] = self.content_bytes.to_be_bytes();
        [VERSION, self.kind, id_high, id_low, high, low, self.padding_bytes, 0]
    }

    /// Decodes a header.
    pub const fn decode(bytes: [u8; HEADER_BYTES]) -> Result<Self, RecordError> {
        let [version, kind, id_high, id_low, high, low, padding_bytes, _] = bytes;
        if version != VERSION {
            return Err(RecordError::Version);
        }
        Ok(Self {
            kind,
            request_id: u16::from_be_bytes([id_high, id_low]),
            content_bytes: u16::from_be_bytes([high, low]),
            padding_bytes,
        })
    }
}

/// Appends FCGI_BEGIN_REQUEST. `keep`: leave the connection open afterwards.
pub fn encode_begin(keep: bool, output: &mut Vec<u8>) {
    output.extend_from_slice(&Header::new(RecordKind::BeginRequest, 8).encode());
    let [high, low] = RESPONDER.to_be_bytes();
    output.extend_from_slice(&[high, low, if keep { KEEP_CONNECTION } else { 0 }, 0, 0, 0, 0, 0]);
}

/// Appends `content` as a stream of type `kind`, in as many records as needed, without the empty one that ends it.
pub fn encode_stream(kind: RecordKind, content: &[u8], output: &mut Vec<u8>) {
    for part in content.chunks(CONTENT_BYTES_MAX) {
        // The length of a chunk fits in 16 bits.
        output.extend_from_slice(&Header::new(kind, part.len() as u16).encode());
        output.extend_from_slice(part);
    }
}

/// Appends the empty record that ends the stream of type `kind`.
pub fn encode_end(kind: RecordKind, output: &mut Vec<u8>) {
    output.extend_from_slice(&Header::new(kind, 0).encode());
}

/// Protocol status at the end of a request (§5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolStatus {
    /// The request is complete.
    Complete,
    /// The server accepts one request per connection.
    CannotMultiplex,
    /// The server is overloaded.
    Overloaded,
    /// The server does not support the role.
    UnknownRole,
}

/// Event from the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordEvent<'a> {
    /// Response bytes, never empty.
    Stdout(&'a [u8]),
    /// End of the response bytes. PHP-FPM omits it.
    StdoutEnd,
    /// Error output, never empty.
    Stderr(&'a [u8]),
    /// End of the error output.
    StderrEnd,
    /// End of the request. No further bytes are expected on the connection.
    End {
        /// Exit status of the application.
        app_status: u32,
        /// Protocol status.
        status: ProtocolStatus,
    },
}

/// Protocol error of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// A version other than 1.
    Version,
    /// A request ID other than that of the request in progress.
    RequestId,
    /// A type that only a client sends, or that is unexpected.
    Kind,
    /// Response bytes after the end of the stream.
    AfterEnd,
    /// FCGI_END_REQUEST without exactly eight bytes, or with an unknown status.
    EndMalformed,
    /// More records without content than [`EMPTY_RECORDS_MAX`].
    EmptyTooMany,
}

impl RecordError {
    /// Description.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Version => "a record does not have version 1",
            Self::RequestId => "a record belongs to another request",
            Self::Kind => "a record has a type that a server must not send here",
            Self::AfterEnd => "the response continues after its end",
            Self::EndMalformed => "the end of the request is malformed",
            Self::EmptyTooMany => "there are too many empty records",
        }
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.text())
    }
}

#[derive(Clone, Copy, Debug)]
enum RecordState {
    /// This many bytes of a header have arrived.
    Header(usize),
    /// Within the content of a record of this type.
    Content(RecordKind),
    /// Within the padding.
    Padding,
    /// After the end of the request.
    Done,
}

/// Incremental decoder of records.
#[derive(Debug)]
pub struct Decoder {
    state: RecordState,
    /// A header, then the content of FCGI_END_REQUEST.
    kept: [u8; HEADER_BYTES],
    content_left: usize,
    padding_left: usize,
    stdout_ended: bool,
    empty_records: u32,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            state: RecordState::Header(0),
            kept: [0; HEADER_BYTES],
            content_left: 0,
            padding_left: 0,
            stdout_ended: false,
            empty_records: 0,
        }
    }
}

impl Decoder {
    /// Returns the next event in `input` and the bytes consumed; without an event, all are consumed.
    pub fn decode<'a>(&mut self, input: &'a [u8]) -> Result<(usize, Option<RecordEvent<'a>>), RecordError> {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            match self.state {
                RecordState::Done => return Ok((used, None)),
                RecordState::Header(have) => {
                    let count = rest.len().min(HEADER_BYTES - have);
                    self.kept[have..have + count].copy_from_slice(&rest[..count]);
                    used += count;
                    if have + count < HEADER_BYTES {
                        self.state = RecordState::Header(have + count);
                        return Ok((used, None));
                    }
                    if let Some(event) = self.begin(Header::decode(self.kept)?)? {
                        return Ok((used, Some(event)));
                    }
                }
                RecordState::Content(_) if self.content_left == 0 => self.state = RecordState::Padding,
                RecordState::Content(kind) => {
                    if rest.is_empty() {
                        return Ok((used, None));
                    }
                    let count = rest.len().min(self.content_left);
                    let part = &rest[..count];
                    used += count;
                    if kind == RecordKind::EndRequest {
                        let at = HEADER_BYTES - self.content_left;
                        self.kept[at..at + count].copy_from_slice(part);
                    }
                    self.content_left -= count;
                    match kind {
                        RecordKind::Stdout => return Ok((used, Some(RecordEvent::Stdout(part)))),
                        RecordKind::Stderr => return Ok((used, Some(RecordEvent::Stderr(part)))),
                        _ if self.content_left > 0 => {}
                        _ => return Ok((used, Some(self.end()?))),
                    }
                }
                RecordState::Padding => {
                    let count = rest.len().min(self.padding_left);
                    self.padding_left -= count;
                    used += count;
                    if self.padding_left > 0 {
                        return Ok((used, None));
                    }
                    self.state = RecordState::Header(0);
                }
            }
        }
    }

    /// Returns whether the request has ended, so that the connection is reusable.
    pub const fn is_done(&self) -> bool {
        matches!(self.state, RecordState::Done)
    }

    /// Begins a record. One without content is an event by itself.
    fn begin(&mut self, header: Header) -> Result<Option<RecordEvent<'static>>, RecordError> {
        if header.request_id != REQUEST_ID {
            return Err(RecordError::RequestId);
        }
        let kind = match header.kind {
            kind if kind == RecordKind::Stdout as u8 => RecordKind::Stdout,
            kind if kind == RecordKind::Stderr as u8 => RecordKind::Stderr,
            kind if kind == RecordKind::EndRequest as u8 => RecordKind::EndRequest,
            _ => return Err(RecordError::Kind),
        };
        self.content_left = usize::from(header.content_bytes);
        self.padding_left = usize::from(header.padding_bytes);
        self.state = RecordState::Content(kind);
        match (kind, self.content_left) {
            (RecordKind::EndRequest, HEADER_BYTES) => Ok(None),
            (RecordKind::EndRequest, _) => Err(RecordError::EndMalformed),
            (RecordKind::Stdout, _) if self.stdout_ended => Err(RecordError::AfterEnd),
            (_, 0) => {
                self.empty_records += 1;
                if self.empty_records > EMPTY_RECORDS_MAX {
                    return Err(RecordError::EmptyTooMany);
                }
                if kind == RecordKind::Stdout {
                    self.stdout_ended = true;
                    return Ok(Some(RecordEvent::StdoutEnd));
                }
                Ok(Some(RecordEvent::StderrEnd))
            }
            _ => Ok(None),
        }
    }

    /// Handles complete FCGI_END_REQUEST content. Padding after it counts as surplus: PHP-FPM sends none.
    fn end(&mut self) -> Result<RecordEvent<'static>, RecordError> {
        let [a, b, c, d, status, ..] = self.kept;
        let status = match status {
            0 => ProtocolStatus::Complete,
            1 => ProtocolStatus::CannotMultiplex,
            2 => ProtocolStatus::Overloaded,
            3 => ProtocolStatus::UnknownRole,
            _ => return Err(RecordError::EndMalformed),
        };
        self.state = RecordState::Done;
        Ok(RecordEvent::End { app_status: u32::from_be_bytes([a, b, c, d]), status })
    }
}

#[cfg(test)]
mod tests;
