//! The wire format between a controller and its agents.
//!
//! A frame is a length of four bytes, big-endian, one byte for the kind, and the content. There are two kinds: a
//! [`Message`], as JSON, and a record, whose bytes are opaque here. A frame's length is checked against the receiver's
//! limit before any of the frame is buffered.

use super::message::Message;

/// Length of a frame's header, in bytes.
pub const HEAD_BYTES: usize = 5;

/// Maximum length of a message before authentication, in bytes.
pub const GREETING_BYTES_MAX: usize = 4 * 1024;

/// Maximum length of a message after authentication, in bytes. A task may contain its list of URLs.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Maximum length of a record, in bytes. It contains histograms for every class and every second of a long run.
pub const RECORD_BYTES_MAX: usize = 256 * 1024 * 1024;

const MESSAGE: u8 = 1;
const RECORD: u8 = 2;

/// A message or a record, as sent over the wire.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentFrame {
    /// A message.
    Message(Message),
    /// A record, in the bytes that the recorder wrote.
    Record(Vec<u8>),
}

/// Maximum lengths of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLimits {
    /// Maximum length of a message, in bytes of JSON.
    pub message_bytes_max: usize,
    /// Maximum length of a record, in bytes.
    pub record_bytes_max: usize,
}

impl FrameLimits {
    /// The limits for an unauthenticated peer.
    pub const UNAUTHENTICATED: Self = Self { message_bytes_max: GREETING_BYTES_MAX, record_bytes_max: 0 };

    /// The limits for an authenticated peer.
    pub const KNOWN: Self = Self { message_bytes_max: MESSAGE_BYTES_MAX, record_bytes_max: RECORD_BYTES_MAX };
}

flatout_reason::reasons! {
    /// The reason bytes are not a valid frame.
    #[derive(thiserror::Error)]
    #[error("{}", self.text())]
    pub enum FrameRefusal { name, text, }
    KindUnknown, "kind-unknown", "the frame has an unknown type";
    TooLong, "too-long", "the frame is longer than allowed at this point";
    NotAMessage, "not-a-message", "the message is not JSON, or unknown to this version";
}

/// Decodes the frame at the start of `bytes`. Returns `None` while the frame is incomplete, otherwise the frame and its
/// length in bytes.
pub fn decode(bytes: &[u8], limits: FrameLimits) -> Option<Result<(AgentFrame, usize), FrameRefusal>> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (kind, content) = rest.split_first()?;
    let length = u32::from_be_bytes(*length) as usize;
    let bytes_max = match *kind {
        MESSAGE => limits.message_bytes_max,
        RECORD => limits.record_bytes_max,
        _ => return Some(Err(FrameRefusal::KindUnknown)),
    };
    if length > bytes_max {
        return Some(Err(FrameRefusal::TooLong));
    }
    let content = content.get(..length)?;
    let frame = if *kind == RECORD {
        AgentFrame::Record(content.to_vec())
    } else {
        match serde_json::from_slice(content) {
            Ok(message) => AgentFrame::Message(message),
            Err(_) => return Some(Err(FrameRefusal::NotAMessage)),
        }
    };
    Some(Ok((frame, HEAD_BYTES + length)))
}

/// Appends a frame to `bytes`. Fails, and appends nothing, if the frame is longer than any receiver accepts.
pub fn encode(frame: &AgentFrame, bytes: &mut Vec<u8>) -> Result<(), FrameRefusal> {
    match frame {
        AgentFrame::Message(message) => {
            let content = serde_json::to_vec(message).map_err(|_| FrameRefusal::NotAMessage)?;
            put(MESSAGE, &content, MESSAGE_BYTES_MAX, bytes)
        }
        AgentFrame::Record(content) => put(RECORD, content, RECORD_BYTES_MAX, bytes),
    }
}

fn put(kind: u8, content: &[u8], bytes_max: usize, bytes: &mut Vec<u8>) -> Result<(), FrameRefusal> {
    let length = u32::try_from(content.len()).ok().filter(|_| content.len() <= bytes_max);
    let length = length.ok_or(FrameRefusal::TooLong)?;
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.push(kind);
    bytes.extend_from_slice(content);
    Ok(())
}

/// A buffer of received bytes: at most one incomplete frame, and the bytes that were read with it.
#[derive(Debug)]
pub struct Inbox {
    bytes: Vec<u8>,
    /// Number of bytes at the front that have been consumed.
    taken: usize,
    limits: FrameLimits,
}

impl Inbox {
    /// Creates an empty inbox.
    pub fn new(limits: FrameLimits) -> Self {
        Self { bytes: Vec::new(), taken: 0, limits }
    }

    /// Changes the limits of frames.
    pub fn set_limits(&mut self, limits: FrameLimits) {
        self.limits = limits;
    }

    /// Appends received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next complete frame, and removes it.
    pub fn take(&mut self) -> Result<Option<AgentFrame>, FrameRefusal> {
        match decode(&self.bytes[self.taken..], self.limits) {
            None => Ok(None),
            Some(Ok((frame, used))) => {
                self.taken += used;
                Ok(Some(frame))
            }
            Some(Err(refusal)) => Err(refusal),
        }
    }

    /// Returns whether no partial frame is buffered.
    pub fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{AgentFrame, FrameLimits, FrameRefusal, HEAD_BYTES, Inbox, MESSAGE_BYTES_MAX, decode, encode};
    use crate::agent::message::Message;
    use flatout_http::feed::assert_three_ways;

    fn bytes_of(frame: &AgentFrame) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(frame, &mut bytes).unwrap();
        bytes
    }

    fn check(bytes: &[u8]) {
        assert_three_ways(bytes, |bytes| decode(bytes, FrameLimits::KNOWN));
        assert_three_ways(bytes, |bytes| decode(bytes, FrameLimits::UNAUTHENTICATED));
    }

    #[test]
    fn frames_come_back_as_they_were_whole_and_in_pieces() {
        let frames = [
            AgentFrame::Message(Message::Ping { nonce: u64::MAX }),
            AgentFrame::Message(Message::Failed { text: "größe \"x\"\n\0".to_owned() }),
            AgentFrame::Message(Message::Plan {
                index: 1,
                agents: 3,
                task: serde_json::json!({ "urls": ["/", "/b"] }),
            }),
            AgentFrame::Record(vec![0, 1, 255]),
            AgentFrame::Record(Vec::new()),
        ];
        let all: Vec<u8> = frames.iter().flat_map(bytes_of).collect();
        for frame in &frames {
            let bytes = bytes_of(frame);
            check(&bytes);
            assert_eq!(decode(&bytes, FrameLimits::KNOWN), Some(Ok((frame.clone(), bytes.len()))));
        }
        for piece_bytes in [1, 2, 7, all.len()] {
            let mut inbox = Inbox::new(FrameLimits::KNOWN);
            let mut came = Vec::new();
            for piece in all.chunks(piece_bytes) {
                inbox.feed(piece);
                while let Some(frame) = inbox.take().unwrap() {
                    came.push(frame);
                }
            }
            assert_eq!(came, frames);
            assert!(inbox.is_empty());
        }
    }

    #[test]
    fn invalid_frames_are_refused_as_early_as_possible() {
        for (bytes, refusal) in [
            (&b"\0\0\0\0\x00"[..], FrameRefusal::KindUnknown),
            (b"GET / HTTP/1.1\r\n\r\n", FrameRefusal::KindUnknown),
            (b"\xff\xff\xff\xff\x01", FrameRefusal::TooLong),
            (b"\xff\xff\xff\xff\x02", FrameRefusal::TooLong),
            (b"\0\0\0\x02\x01{}", FrameRefusal::NotAMessage),
            (b"\0\0\0\x01\x01\xff", FrameRefusal::NotAMessage),
            (b"\0\0\0\0\x01", FrameRefusal::NotAMessage),
            (b"\0\0\0\x0e\x01{\"say\":\"what\"}", FrameRefusal::NotAMessage),
            (b"\0\0\0\x1e\x01{\"say\":\"ping\",\"nonce\":1,\"x\":1}", FrameRefusal::NotAMessage),
        ] {
            check(bytes);
            assert_eq!(decode(bytes, FrameLimits::KNOWN), Some(Err(refusal)), "{bytes:?}");
        }
        // An unauthenticated peer may send neither records nor long messages.
        assert_eq!(decode(b"\0\0\0\x01\x02", FrameLimits::UNAUTHENTICATED), Some(Err(FrameRefusal::TooLong)));
        assert_eq!(decode(b"\0\0\x10\x01\x01", FrameLimits::UNAUTHENTICATED), Some(Err(FrameRefusal::TooLong)));
        assert_eq!(decode(b"\0\0\x10\x00\x01", FrameLimits::UNAUTHENTICATED), None);
    }

    #[test]
    fn frames_beyond_every_limit_are_not_written() {
        let mut bytes = b"before".to_vec();
        let long = AgentFrame::Message(Message::Failed { text: "x".repeat(MESSAGE_BYTES_MAX) });
        assert_eq!(encode(&long, &mut bytes), Err(FrameRefusal::TooLong));
        assert_eq!(bytes, b"before");
        assert_eq!(bytes_of(&AgentFrame::Record(vec![7])).len(), HEAD_BYTES + 1);
    }
}
