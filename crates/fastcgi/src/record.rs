//! Records (FastCGI 1.0 §3.3): a header of eight bytes, content and padding.
//!
//! The decoder returns content as it arrives and buffers none, so the length of a record need not be limited. Absent by
//! design: several requests at the same time on one connection. Hardly any application server supports this, and
//! PHP-FPM does not.

/// Length of a record's header, in bytes.
pub const HEADER_BYTES: usize = 8;

/// Maximum length of the content of a record, in bytes.
pub const CONTENT_BYTES_MAX: usize = 65_535;

/// The ID of the only request in progress on a connection. 0 would refer to the connection itself.
pub const REQUEST_ID: u16 = 1;

/// Maximum number of records without content per response. Each stream ends with one; more would only waste time.
pub const EMPTY_RECORDS_MAX: u32 = 16;

const VERSION: u8 = 1;

/// The responder role (§6.2).
const RESPONDER: u16 = 1;

/// The flag that asks the server to leave the connection open after the response (§5.1).
const KEEP_CONNECTION: u8 = 1;

/// The record types (§8) that this client sends or understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// The start of a request.
    BeginRequest = 1,
    /// The client no longer needs the response.
    AbortRequest = 2,
    /// The end of the response.
    EndRequest = 3,
    /// A part of the variables.
    Params = 4,
    /// A part of the request's content.
    Stdin = 5,
    /// A part of the response.
    Stdout = 6,
    /// A part of the error output.
    Stderr = 7,
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The record type.
    pub kind: u8,
    /// The ID of the request that the record belongs to; 0 for management records.
    pub request_id: u16,
    /// Length of the content that follows the header, in bytes.
    pub content_bytes: u16,
    /// Length of the padding after the content, in bytes.
    pub padding_bytes: u8,
}

impl Header {
    /// Creates the header of a record for [`REQUEST_ID`], without padding.
    pub const fn new(kind: RecordKind, content_bytes: u16) -> Self {
        Self { kind: kind as u8, request_id: REQUEST_ID, content_bytes, padding_bytes: 0 }
    }

    /// Encodes the header.
    pub const fn encode(&self) -> [u8; HEADER_BYTES] {
        let [id_high, id_low] = self.request_id.to_be_bytes();
        let [high, low] = self.content_bytes.to_be_bytes();
        [VERSION, self.kind, id_high, id_low, high, low, self.padding_bytes, 0]
    }

    /// Decodes a header. Its type and length are not checked.
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

/// Appends FCGI_BEGIN_REQUEST. `keep` asks the server to leave the connection open afterwards.
pub fn encode_begin(keep: bool, output: &mut Vec<u8>) {
    output.extend_from_slice(&Header::new(RecordKind::BeginRequest, 8).encode());
    let [high, low] = RESPONDER.to_be_bytes();
    output.extend_from_slice(&[high, low, if keep { KEEP_CONNECTION } else { 0 }, 0, 0, 0, 0, 0]);
}

/// Appends `content` as records of type `kind`, as many as needed, without the empty record that ends the stream.
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

/// The protocol status at the end of a request (§5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolStatus {
    /// The request is complete.
    Complete,
    /// The server accepts only one request at a time per connection.
    CannotMultiplex,
    /// The server is overloaded.
    Overloaded,
    /// The server does not support the requested role.
    UnknownRole,
}

/// An event that the decoder returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordEvent<'a> {
    /// Bytes of the response, never empty.
    Stdout(&'a [u8]),
    /// The end of the response. PHP-FPM omits it.
    StdoutEnd,
    /// Bytes of the error output, never empty.
    Stderr(&'a [u8]),
    /// The end of the error output.
    StderrEnd,
    /// The end of the request. No further bytes are expected on the connection.
    End {
        /// The exit status of the application.
        app_status: u32,
        /// The protocol status.
        status: ProtocolStatus,
    },
}

flatout_reason::reasons! {
    /// A protocol error of a server.
    #[derive(thiserror::Error)]
    #[error("{}", self.text())]
    pub enum RecordError { text, }
    /// A record has a version other than 1.
    Version, "a record does not have version 1";
    /// A record has a request ID other than that of the request in progress.
    RequestId, "a record belongs to another request";
    /// A record has a type that only a client sends, or that is not expected at this point.
    Kind, "a record has a type that a server must not send here";
    /// Bytes of the response follow the end of its stream.
    AfterEnd, "the response continues after its end";
    /// FCGI_END_REQUEST does not have exactly eight bytes of content, or has an unknown status.
    EndMalformed, "the end of the request is malformed";
    /// There are more records without content than [`EMPTY_RECORDS_MAX`].
    EmptyTooMany, "there are too many empty records";
}

#[derive(Clone, Copy, Debug)]
enum RecordState {
    /// In a header, of which this many bytes have arrived.
    Header(usize),
    /// In the content of a record of this type.
    Content(RecordKind),
    /// In the padding of a record.
    Padding,
    /// After the end of the request.
    Done,
}

flatout_reason::defaults! {
    /// An incremental decoder of records.
    #[derive(Debug)]
    pub struct Decoder {
        state: RecordState = RecordState::Header(0),
        /// The bytes of a header, or of the content of FCGI_END_REQUEST.
        kept: [u8; HEADER_BYTES] = [0; HEADER_BYTES],
        content_left: usize = 0,
        padding_left: usize = 0,
        stdout_ended: bool = false,
        empty_records: u32 = 0,
    }
}

impl Decoder {
    /// Returns the number of bytes consumed and the next event in `input`. If there is no event, all bytes have been
    /// consumed.
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

    /// Returns whether the request has ended, so that the connection can be reused.
    pub const fn is_done(&self) -> bool {
        matches!(self.state, RecordState::Done)
    }

    /// Begins a record. A record without content is an event by itself.
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

    /// Handles the complete content of FCGI_END_REQUEST. Padding after it counts as surplus, because PHP-FPM sends
    /// none.
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
