//! Records, as FastCGI 1.0 §3.3 frames everything: eight bytes of header, content, padding.
//!
//! The decoder gives out content as it comes and holds none of it, so that a record's length bounds nothing but itself.
//! Absent by design: several requests on one connection. Hardly any application server knows them, and PHP-FPM does not.

use std::fmt;

/// Bytes of a record's header.
pub const HEADER_BYTES: usize = 8;

/// Bytes of content that one record can hold.
pub const CONTENT_BYTES_MAX: usize = 65_535;

/// The number of the one request that a connection carries at a time; 0 would mean the connection itself.
pub const REQUEST_ID: u16 = 1;

/// Records without content in one answer. Each stream ends with one; a server that sends more keeps us busy with nothing.
pub const EMPTY_RECORDS_MAX: u32 = 16;

const VERSION: u8 = 1;

/// The role of an application that answers requests (§6.2).
const RESPONDER: u16 = 1;

/// The connection is to stay open after the answer (§5.1).
const KEEP_CONNECTION: u8 = 1;

/// Types of records (§8) that this client sends or understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A request begins.
    BeginRequest = 1,
    /// The client has no more use for the answer.
    AbortRequest = 2,
    /// The answer is whole.
    EndRequest = 3,
    /// Part of the variables.
    Params = 4,
    /// Part of the request's content.
    Stdin = 5,
    /// Part of the answer.
    Stdout = 6,
    /// Part of what the application has to say to whoever runs it.
    Stderr = 7,
}

/// A record's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The type, as it stands there.
    pub kind: u8,
    /// The request it belongs to.
    pub request_id: u16,
    /// Bytes of content.
    pub content_bytes: u16,
    /// Bytes behind the content that mean nothing.
    pub padding_bytes: u8,
}

impl Header {
    /// The header of a record of our request, without padding.
    pub const fn new(kind: Kind, content_bytes: u16) -> Self {
        Self { kind: kind as u8, request_id: REQUEST_ID, content_bytes, padding_bytes: 0 }
    }

    /// As it is sent.
    pub const fn encode(&self) -> [u8; HEADER_BYTES] {
        let [id_high, id_low] = self.request_id.to_be_bytes();
        let [high, low] = self.content_bytes.to_be_bytes();
        [VERSION, self.kind, id_high, id_low, high, low, self.padding_bytes, 0]
    }

    /// What `bytes` say.
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

/// Appends the record that begins a request. `keep`: the connection is to stay open after it.
pub fn encode_begin(keep: bool, output: &mut Vec<u8>) {
    output.extend_from_slice(&Header::new(Kind::BeginRequest, 8).encode());
    let [high, low] = RESPONDER.to_be_bytes();
    output.extend_from_slice(&[high, low, if keep { KEEP_CONNECTION } else { 0 }, 0, 0, 0, 0, 0]);
}

/// Appends `content` as a stream of type `kind`: as many records as it needs, without the empty one that ends it.
pub fn encode_stream(kind: Kind, content: &[u8], output: &mut Vec<u8>) {
    for part in content.chunks(CONTENT_BYTES_MAX) {
        // A chunk is no longer than what 16 bits can say.
        output.extend_from_slice(&Header::new(kind, part.len() as u16).encode());
        output.extend_from_slice(part);
    }
}

/// Appends the empty record that ends the stream of type `kind`.
pub fn encode_end(kind: Kind, output: &mut Vec<u8>) {
    output.extend_from_slice(&Header::new(kind, 0).encode());
}

/// What an application server says of a request that it is done with (§5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolStatus {
    /// The application has answered.
    Complete,
    /// It takes one request a connection, and this would have been a second.
    CannotMultiplex,
    /// It has too much to do.
    Overloaded,
    /// It does not know the role.
    UnknownRole,
}

/// What comes out of the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// More of the answer, never empty.
    Stdout(&'a [u8]),
    /// The answer has no more bytes. PHP-FPM leaves it out.
    StdoutEnd,
    /// More of what the log is to have, never empty.
    Stderr(&'a [u8]),
    /// The log gets no more.
    StderrEnd,
    /// The request is done with. What follows on the connection was not asked for.
    End {
        /// What the application's process would have exited with.
        app_status: u32,
        /// What became of the request.
        status: ProtocolStatus,
    },
}

/// How a server breaks the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// A record of another version than 1.
    Version,
    /// A record of another request than the one that was asked.
    RequestId,
    /// A record of a type that only a client sends, or that nobody asked for.
    Kind,
    /// More of the answer after its end.
    AfterEnd,
    /// The end of the request has not the eight bytes it must have, or an unknown status.
    EndMalformed,
    /// Records without content beyond [`EMPTY_RECORDS_MAX`].
    EmptyTooMany,
}

impl RecordError {
    /// What is wrong.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Version => "a record has another version than 1",
            Self::RequestId => "a record belongs to another request",
            Self::Kind => "a record has a type that no server may send here",
            Self::AfterEnd => "the answer goes on after its end",
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
enum State {
    /// So many bytes of a header are here.
    Header(usize),
    /// Within the content of a record of this kind.
    Content(Kind),
    /// Behind it.
    Padding,
    /// After the end of the request.
    Done,
}

/// Takes records apart, from wherever the bytes were cut.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    /// A header, then the content of an EndRequest.
    kept: [u8; HEADER_BYTES],
    content_left: usize,
    padding_left: usize,
    stdout_ended: bool,
    empty_records: u32,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            state: State::Header(0),
            kept: [0; HEADER_BYTES],
            content_left: 0,
            padding_left: 0,
            stdout_ended: false,
            empty_records: 0,
        }
    }
}

impl Decoder {
    /// The next event in `input` and how many bytes were used; `None` when there is none yet, and then all were.
    pub fn decode<'a>(&mut self, input: &'a [u8]) -> Result<(usize, Option<Event<'a>>), RecordError> {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            match self.state {
                State::Done => return Ok((used, None)),
                State::Header(have) => {
                    let count = rest.len().min(HEADER_BYTES - have);
                    self.kept[have..have + count].copy_from_slice(&rest[..count]);
                    used += count;
                    if have + count < HEADER_BYTES {
                        self.state = State::Header(have + count);
                        return Ok((used, None));
                    }
                    if let Some(event) = self.begin(Header::decode(self.kept)?)? {
                        return Ok((used, Some(event)));
                    }
                }
                State::Content(_) if self.content_left == 0 => self.state = State::Padding,
                State::Content(kind) => {
                    if rest.is_empty() {
                        return Ok((used, None));
                    }
                    let count = rest.len().min(self.content_left);
                    let part = &rest[..count];
                    used += count;
                    if kind == Kind::EndRequest {
                        let at = HEADER_BYTES - self.content_left;
                        self.kept[at..at + count].copy_from_slice(part);
                    }
                    self.content_left -= count;
                    match kind {
                        Kind::Stdout => return Ok((used, Some(Event::Stdout(part)))),
                        Kind::Stderr => return Ok((used, Some(Event::Stderr(part)))),
                        _ if self.content_left > 0 => {}
                        _ => return Ok((used, Some(self.end()?))),
                    }
                }
                State::Padding => {
                    let count = rest.len().min(self.padding_left);
                    self.padding_left -= count;
                    used += count;
                    if self.padding_left > 0 {
                        return Ok((used, None));
                    }
                    self.state = State::Header(0);
                }
            }
        }
    }

    /// Whether the request is done with, so that the connection may carry another.
    pub const fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// A record begins. One without content is an event by itself.
    fn begin(&mut self, header: Header) -> Result<Option<Event<'static>>, RecordError> {
        if header.request_id != REQUEST_ID {
            return Err(RecordError::RequestId);
        }
        let kind = match header.kind {
            kind if kind == Kind::Stdout as u8 => Kind::Stdout,
            kind if kind == Kind::Stderr as u8 => Kind::Stderr,
            kind if kind == Kind::EndRequest as u8 => Kind::EndRequest,
            _ => return Err(RecordError::Kind),
        };
        self.content_left = usize::from(header.content_bytes);
        self.padding_left = usize::from(header.padding_bytes);
        self.state = State::Content(kind);
        match (kind, self.content_left) {
            (Kind::EndRequest, HEADER_BYTES) => Ok(None),
            (Kind::EndRequest, _) => Err(RecordError::EndMalformed),
            (Kind::Stdout, _) if self.stdout_ended => Err(RecordError::AfterEnd),
            (_, 0) => {
                self.empty_records += 1;
                if self.empty_records > EMPTY_RECORDS_MAX {
                    return Err(RecordError::EmptyTooMany);
                }
                if kind == Kind::Stdout {
                    self.stdout_ended = true;
                    return Ok(Some(Event::StdoutEnd));
                }
                Ok(Some(Event::StderrEnd))
            }
            _ => Ok(None),
        }
    }

    /// The content of an EndRequest is whole. Its padding, if any, is surplus like all that follows: PHP-FPM sends none.
    fn end(&mut self) -> Result<Event<'static>, RecordError> {
        let [a, b, c, d, status, ..] = self.kept;
        let status = match status {
            0 => ProtocolStatus::Complete,
            1 => ProtocolStatus::CannotMultiplex,
            2 => ProtocolStatus::Overloaded,
            3 => ProtocolStatus::UnknownRole,
            _ => return Err(RecordError::EndMalformed),
        };
        self.state = State::Done;
        Ok(Event::End { app_status: u32::from_be_bytes([a, b, c, d]), status })
    }
}

#[cfg(test)]
mod tests;
