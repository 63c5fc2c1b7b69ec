//! HTTP/2 against other implementations: the same frames are given to this core and to another one, and each step must
//! have the same verdict. Differences that a section of an RFC permits or decides are rows of [`differences`]; any
//! other difference is a failure.
//!
//! The input is frames after the preface. A frame of type [`ACTION`] is not sent; this side acts instead: it ends its
//! side of the stream, or resets it.

pub mod differences;
pub mod generate;
mod ours;
mod theirs;

use differences::Difference;
use flatout_http::http2::connection::Role;
use flatout_http::http2::frame::{ErrorCode, FrameHead, HEAD_BYTES, PAYLOAD_BYTES_MAX, flag, kind};
use std::collections::BTreeMap;

/// The type of a frame that stands for an action of this side; bit 0 of its flags: reset the stream, or end this side.
pub const ACTION: u8 = 0xf0;

/// Flag of [`ACTION`].
pub const RESETS: u8 = 1;

/// Streams that the server permits.
const STREAMS_MAX: u32 = 4;

/// Size of a field section that either side permits.
const SECTION_BYTES_MAX: u32 = 16 * 1024;

/// Requests of a client: stream, method, and whether it has no content.
const OWN_REQUESTS: [(u32, &str, bool); 4] =
    [(1, "GET", true), (3, "HEAD", true), (5, "POST", false), (7, "GET", true)];

/// Names and values, sorted by name.
pub type FieldList = Vec<(String, Vec<u8>)>;

/// The meaning of a frame for its receiver.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// Nothing that an application sees.
    Nothing,
    /// A request or a response.
    Message {
        /// Number of the stream on which the head arrived.
        stream: u32,
        /// Its pseudo-fields and fields.
        fields: FieldList,
        /// True if no content follows.
        ends: bool,
    },
    /// A request that is answered with an error, by the name of its refusal.
    Refused(String),
    /// Content.
    Data {
        /// Number of the stream to which it belongs.
        stream: u32,
        /// Content without padding.
        content: Vec<u8>,
        /// True if it ends the message.
        ends: bool,
    },
    /// A field section after the content.
    Trailers {
        /// Their stream.
        stream: u32,
        /// Their fields.
        fields: FieldList,
    },
    /// The peer reset a stream.
    Reset {
        /// Number of the stream that ends.
        stream: u32,
        /// Error code (RFC 9113 §7).
        code: ErrorCode,
    },
    /// This side reset a stream.
    StreamError {
        /// Number of the stream that ends.
        stream: u32,
        /// Error code (RFC 9113 §7).
        code: ErrorCode,
        /// The name of the error; that of its code where the implementation has no names.
        name: String,
    },
    /// This side ended the connection.
    ConnectionError {
        /// Error code (RFC 9113 §7).
        code: ErrorCode,
        /// The name of the error; that of its code where the implementation has no names.
        name: String,
    },
}

impl Verdict {
    /// The form that rows of [`differences`] have.
    pub fn label(&self) -> String {
        match self {
            Self::Nothing => "nothing".to_owned(),
            Self::Message { fields, .. } if is_connect(fields) => "message CONNECT".to_owned(),
            Self::Message { .. } => "message".to_owned(),
            Self::Refused(name) => format!("refused {name}"),
            Self::Data { .. } => "data".to_owned(),
            Self::Trailers { .. } => "trailers".to_owned(),
            Self::Reset { .. } => "reset".to_owned(),
            Self::StreamError { name, .. } => format!("stream {name}"),
            Self::ConnectionError { name, .. } => format!("connection {name}"),
        }
    }

    /// Returns whether two implementations mean the same.
    pub fn agrees(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Nothing, Self::Nothing) => true,
            (
                Self::Message { stream: a, fields: b, ends: c },
                Self::Message { stream: other_a, fields: other_b, ends: other_c },
            ) => a == other_a && b == other_b && c == other_c,
            (
                Self::Data { stream: a, content: b, ends: c },
                Self::Data { stream: other_a, content: other_b, ends: other_c },
            ) => a == other_a && b == other_b && c == other_c,
            (Self::Trailers { stream: a, fields: b }, Self::Trailers { stream: other_a, fields: other_b }) => {
                a == other_a && b == other_b
            }
            (Self::Reset { stream: a, code: b }, Self::Reset { stream: other_a, code: other_b })
            | (
                Self::StreamError { stream: a, code: b, .. },
                Self::StreamError { stream: other_a, code: other_b, .. },
            ) => a == other_a && b == other_b,
            (Self::ConnectionError { code, .. }, Self::ConnectionError { code: other, .. }) => code == other,
            _ => false,
        }
    }
}

/// Returns whether these are the fields of a CONNECT that is not an extended one.
fn is_connect(fields: &FieldList) -> bool {
    let has = |name: &str| fields.iter().find(|(other, _)| other == name).map(|(_, value)| &value[..]);
    has(":method") == Some(b"CONNECT") && has(":protocol").is_none()
}

/// One step of a case.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// Bytes to receive: a frame, or as much of an oversized one as there is.
    Frame(FrameHead, &'a [u8]),
    /// This side ends its side of the stream.
    End(u32),
    /// This side resets the stream.
    Reset(u32),
}

/// The steps in `bytes`, without an incomplete frame at the end.
pub fn steps(mut bytes: &[u8]) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    while let Some(head) = FrameHead::parse(bytes) {
        let end = HEAD_BYTES + head.payload_bytes;
        if bytes.len() < end && head.payload_bytes <= PAYLOAD_BYTES_MAX {
            break;
        }
        let (frame, rest) = bytes.split_at(end.min(bytes.len()));
        bytes = rest;
        steps.push(match head.kind {
            ACTION if head.has(RESETS) => Step::Reset(head.stream),
            ACTION => Step::End(head.stream),
            _ => Step::Frame(head, frame),
        });
    }
    steps
}

/// The name of a frame in rows of [`differences`].
pub fn frame_name(head: FrameHead) -> &'static str {
    match head.kind {
        kind::DATA => "DATA",
        kind::HEADERS if !head.has(flag::END_HEADERS) => "HEADERS part",
        kind::HEADERS => "HEADERS",
        kind::PRIORITY => "PRIORITY",
        kind::RST_STREAM => "RST_STREAM",
        kind::SETTINGS if head.has(flag::ACK) => "SETTINGS ACK",
        kind::SETTINGS => "SETTINGS",
        kind::PUSH_PROMISE => "PUSH_PROMISE",
        kind::PING => "PING",
        kind::GOAWAY => "GOAWAY",
        kind::WINDOW_UPDATE => "WINDOW_UPDATE",
        kind::CONTINUATION if !head.has(flag::END_HEADERS) => "CONTINUATION part",
        kind::CONTINUATION => "CONTINUATION",
        kind::PRIORITY_UPDATE => "PRIORITY_UPDATE",
        0xa => "ALTSVC",
        _ => "unknown",
    }
}

/// An implementation with one connection.
trait Endpoint {
    /// Receives bytes.
    fn receive(&mut self, bytes: &[u8]) -> Verdict;

    /// Ends this side of a stream: a server with a response without content, a client with the end of its content.
    fn end(&mut self, stream: u32);

    /// Resets a stream with CANCEL.
    fn reset(&mut self, stream: u32);
}

/// The streams on which the application may act, by what has ended.
#[derive(Debug, Default)]
struct Application {
    streams: BTreeMap<u32, Ended>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    own: bool,
    peer: bool,
}

impl Application {
    fn new(role: Role) -> Self {
        let requests = OWN_REQUESTS.into_iter().filter(|_| role == Role::Client);
        Self { streams: requests.map(|(stream, _, own)| (stream, Ended { own, peer: false })).collect() }
    }

    /// Takes the step if the application may.
    fn act(&mut self, step: Step<'_>, endpoint: &mut impl Endpoint) {
        match step {
            Step::End(stream) if self.streams.get(&stream).is_some_and(|ended| !ended.own) => {
                endpoint.end(stream);
                self.update(stream, |ended| ended.own = true);
            }
            Step::Reset(stream) if self.streams.remove(&stream).is_some() => endpoint.reset(stream),
            _ => {}
        }
    }

    fn handle(&mut self, role: Role, verdict: &Verdict) {
        match verdict {
            Verdict::Message { stream, ends, .. } => {
                if role == Role::Server {
                    self.streams.insert(*stream, Ended::default());
                }
                self.update(*stream, |ended| ended.peer |= *ends);
            }
            Verdict::Data { stream, ends, .. } => self.update(*stream, |ended| ended.peer |= *ends),
            Verdict::Trailers { stream, .. } => self.update(*stream, |ended| ended.peer = true),
            Verdict::Reset { stream, .. } | Verdict::StreamError { stream, .. } => {
                self.streams.remove(stream);
            }
            Verdict::Nothing | Verdict::Refused(_) | Verdict::ConnectionError { .. } => {}
        }
    }

    fn update(&mut self, stream: u32, change: impl FnOnce(&mut Ended)) {
        if let Some(ended) = self.streams.get_mut(&stream) {
            change(ended);
            if ended.own && ended.peer {
                self.streams.remove(&stream);
            }
        }
    }
}

/// The verdicts on the frames of a case, up to a connection error.
fn verdicts(role: Role, bytes: &[u8], mut endpoint: impl Endpoint) -> Vec<Verdict> {
    let (mut application, mut found) = (Application::new(role), Vec::new());
    for step in steps(bytes) {
        let Step::Frame(_, frame) = step else {
            application.act(step, &mut endpoint);
            continue;
        };
        let verdict = endpoint.receive(frame);
        application.handle(role, &verdict);
        let is_over = matches!(verdict, Verdict::ConnectionError { .. });
        found.push(verdict);
        if is_over {
            break;
        }
    }
    found
}

/// The verdicts of this core.
pub fn our_verdicts(role: Role, bytes: &[u8]) -> Vec<Verdict> {
    verdicts(role, bytes, ours::Ours::new(role))
}

/// The verdicts of the h2 crate.
pub fn their_verdicts(role: Role, bytes: &[u8]) -> Vec<Verdict> {
    verdicts(role, bytes, theirs::Theirs::new(role))
}

/// The first difference between two lists of verdicts on `bytes`: the frame and both labels.
#[derive(Clone, Debug)]
pub struct Disagreement {
    /// The name of the frame.
    pub frame: &'static str,
    /// The label of this core's verdict.
    pub ours: String,
    /// The label of the other implementation's.
    pub theirs: String,
    /// Both verdicts, and the number of the frame.
    pub text: String,
}

impl Disagreement {
    /// The row that explains it.
    pub fn row<'r>(&self, rows: &'r [Difference]) -> Option<&'r Difference> {
        rows.iter().find(|row| row.explains(self))
    }
}

/// Compares two lists of verdicts on `bytes` up to the first difference, after which the states differ as well.
pub fn compare(bytes: &[u8], ours: &[Verdict], theirs: &[Verdict]) -> Option<Disagreement> {
    let frames = steps(bytes).into_iter().filter_map(|step| match step {
        Step::Frame(head, frame) => Some((head, frame)),
        _ => None,
    });
    let ended = Verdict::Nothing;
    let mut after = None;
    for (number, (head, frame)) in frames.enumerate() {
        let (our, their) = match (ours.get(number), theirs.get(number)) {
            (None, None) => return None,
            (our, their) => (our.unwrap_or(&ended), their.unwrap_or(&ended)),
        };
        if !our.agrees(their) {
            return Some(Disagreement {
                frame: after.unwrap_or_else(|| frame_name(head)),
                ours: our.label(),
                theirs: their.label(),
                text: format!("frame {number}, {head:?}:\n  ours:   {our:?}\n  theirs: {their:?}"),
            });
        }
        // What follows these depends on choices and faults of the other implementations: the rows name them.
        if head.kind == kind::GOAWAY {
            after = Some("after GOAWAY");
        } else if depends_on_itself(head, frame) {
            after = after.or(Some("after self-dependency"));
        }
    }
    None
}

/// Returns whether it is a HEADERS frame whose stream depends on itself.
fn depends_on_itself(head: FrameHead, frame: &[u8]) -> bool {
    let at = HEAD_BYTES + usize::from(head.has(flag::PADDED));
    let parent = frame.get(at..).and_then(<[u8]>::first_chunk).map(|bytes| u32::from_be_bytes(*bytes) & 0x7fff_ffff);
    head.kind == kind::HEADERS && head.has(flag::PRIORITY) && parent == Some(head.stream)
}

/// Inputs for the fuzzer: the first byte is the role.
pub const SEEDS: &[&[u8]] = &[
    b"\0\0\0\0\x04\0\0\0\0\0\0\0\x05\x01\x05\0\0\0\x01\x82\x86\x84\x41\x01",
    b"\0\0\0\0\x04\0\0\0\0\0\0\0\x0a\x01\x04\0\0\0\x01\x83\x86\x84\x41\x01a\x40\x01x\x01y\0\0\x03\0\x09\0\0\0\x01\x01a\0",
    b"\0\0\0\0\x04\0\0\0\0\0\0\0\x06\x01\x05\0\0\0\x01\x82\x86\x84\x41\x01a\0\0\0\xf0\0\0\0\0\x01\0\0\x04\x08\0\0\0\0\x01\0\0\0\x01",
    b"\0\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\x01\0\0\x03\x01\x01\0\0\0\x01\x82\x86\x84\0\0\x03\x09\x04\0\0\0\x01\x41\x01a\0\0\x08\x06\0\0\0\0\0abcdefgh",
    b"\x01\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\x04\0\0\0\x01\x88\0\0\x01\0\x01\0\0\0\x01a\0\0\x04\x03\0\0\0\0\x05\0\0\0\x08",
    b"\x01\0\0\0\x04\0\0\0\0\0\0\0\x05\x01\x04\0\0\0\x05\x08\x03103\0\0\0\x04\x01\x05\0\0\0\x05\x89\x5c\x01\x30\0\0\0\xf0\x01\0\0\0\x07",
];

/// This core and the h2 crate agree on what is accepted, but for what the table lists. Bytes at random break several
/// rules at once, so which error is named is not compared here.
///
/// # Panics
/// When they do not agree.
pub fn check(bytes: &[u8]) {
    let Some((role, bytes)) = bytes.split_first() else { return };
    let role = if role & 1 == 0 { Role::Server } else { Role::Client };
    let is_error = |label: &str| ["stream ", "connection ", "refused "].iter().any(|kind| label.starts_with(kind));
    let difference = compare(bytes, &our_verdicts(role, bytes), &their_verdicts(role, bytes))
        .filter(|found| !is_error(&found.ours) || !is_error(&found.theirs));
    if let Some(found) = difference {
        assert!(
            found.row(&differences::parse(differences::H2_CRATE)).is_some(),
            "{role:?}, {}: {} here, {} in the h2 crate; {}",
            found.frame,
            found.ours,
            found.theirs,
            found.text
        );
    }
}

#[cfg(test)]
mod tests;
