//! What travels between a controller and its agents, as bytes.
//!
//! A frame is four bytes of length, most significant first, one byte of kind, and so many bytes as the length says. There
//! are two kinds: a [`Message`], as JSON, and a record, whose bytes mean nothing here. No frame is longer than its
//! receiver has said it may be, and that is known before any of it is kept.

use super::message::Message;

/// Bytes before a frame's content.
pub const HEAD_BYTES: usize = 5;

/// Longest message before the other side has said who it is.
pub const GREETING_BYTES_MAX: usize = 4 * 1024;

/// Longest message afterwards: a task may bring its list of URLs with it.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Longest record: histograms of every class and second of a long run.
pub const RECORD_BYTES_MAX: usize = 256 * 1024 * 1024;

const MESSAGE: u8 = 1;
const RECORD: u8 = 2;

/// One frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// Words.
    Message(Message),
    /// A record, as the recorder writes it.
    Record(Vec<u8>),
}

/// How long frames may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLimits {
    /// Longest message, in bytes of JSON.
    pub message_bytes_max: usize,
    /// Longest record, in bytes.
    pub record_bytes_max: usize,
}

impl FrameLimits {
    /// For one who has not said who he is.
    pub const STRANGER: Self = Self { message_bytes_max: GREETING_BYTES_MAX, record_bytes_max: 0 };

    /// For one who has.
    pub const KNOWN: Self = Self { message_bytes_max: MESSAGE_BYTES_MAX, record_bytes_max: RECORD_BYTES_MAX };
}

flatout_reason::reasons! {
    /// Why bytes are no frame.
    pub enum FrameRefusal { name, text, }
    KindUnknown, "kind-unknown", "the frame is of no kind that this version knows";
    TooLong, "too-long", "the frame is longer than it may be at this point";
    NotAMessage, "not-a-message", "the words are not JSON, or not a message that this version knows";
}

impl std::fmt::Display for FrameRefusal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.text())
    }
}

/// Reads the frame at the beginning of `bytes`: nothing while it is not whole, then the frame and how many bytes it took.
pub fn decode(bytes: &[u8], limits: FrameLimits) -> Option<Result<(Frame, usize), FrameRefusal>> {
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
        Frame::Record(content.to_vec())
    } else {
        match serde_json::from_slice(content) {
            Ok(message) => Frame::Message(message),
            Err(_) => return Some(Err(FrameRefusal::NotAMessage)),
        }
    };
    Some(Ok((frame, HEAD_BYTES + length)))
}

/// Writes a frame behind `bytes`. Nothing is written of one that is longer than any receiver takes.
pub fn encode(frame: &Frame, bytes: &mut Vec<u8>) -> Result<(), FrameRefusal> {
    match frame {
        Frame::Message(message) => {
            let content = serde_json::to_vec(message).map_err(|_| FrameRefusal::NotAMessage)?;
            put(MESSAGE, &content, MESSAGE_BYTES_MAX, bytes)
        }
        Frame::Record(content) => put(RECORD, content, RECORD_BYTES_MAX, bytes),
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

/// Bytes that have come, until they are frames. It holds no more than one frame and what was read with it.
#[derive(Debug)]
pub struct Inbox {
    bytes: Vec<u8>,
    /// How much of the front has been taken.
    taken: usize,
    limits: FrameLimits,
}

impl Inbox {
    /// An empty one.
    pub fn new(limits: FrameLimits) -> Self {
        Self { bytes: Vec::new(), taken: 0, limits }
    }

    /// From now on frames may be so long.
    pub fn set_limits(&mut self, limits: FrameLimits) {
        self.limits = limits;
    }

    /// More bytes have come.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next frame, if it is whole.
    pub fn take(&mut self) -> Result<Option<Frame>, FrameRefusal> {
        match decode(&self.bytes[self.taken..], self.limits) {
            None => Ok(None),
            Some(Ok((frame, used))) => {
                self.taken += used;
                Ok(Some(frame))
            }
            Some(Err(refusal)) => Err(refusal),
        }
    }

    /// Whether the other side ended in the midst of a frame.
    pub fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{Frame, FrameLimits, FrameRefusal, HEAD_BYTES, Inbox, MESSAGE_BYTES_MAX, decode, encode};
    use crate::agent::message::Message;
    use flatout_http::feed::assert_three_ways;

    fn bytes_of(frame: &Frame) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(frame, &mut bytes).unwrap();
        bytes
    }

    fn check(bytes: &[u8]) {
        assert_three_ways(bytes, |bytes| decode(bytes, FrameLimits::KNOWN));
        assert_three_ways(bytes, |bytes| decode(bytes, FrameLimits::STRANGER));
    }

    #[test]
    fn frames_come_back_as_they_were_whole_and_in_pieces() {
        let frames = [
            Frame::Message(Message::Ping { nonce: u64::MAX }),
            Frame::Message(Message::Failed { text: "größe \"x\"\n\0".to_owned() }),
            Frame::Message(Message::Plan { index: 1, agents: 3, task: serde_json::json!({ "urls": ["/", "/b"] }) }),
            Frame::Record(vec![0, 1, 255]),
            Frame::Record(Vec::new()),
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
    fn what_is_no_frame_is_refused_as_soon_as_it_shows() {
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
        // A stranger sends no records and no long stories.
        assert_eq!(decode(b"\0\0\0\x01\x02", FrameLimits::STRANGER), Some(Err(FrameRefusal::TooLong)));
        assert_eq!(decode(b"\0\0\x10\x01\x01", FrameLimits::STRANGER), Some(Err(FrameRefusal::TooLong)));
        assert_eq!(decode(b"\0\0\x10\x00\x01", FrameLimits::STRANGER), None);
    }

    #[test]
    fn nothing_is_written_that_nobody_takes() {
        let mut bytes = b"before".to_vec();
        let long = Frame::Message(Message::Failed { text: "x".repeat(MESSAGE_BYTES_MAX) });
        assert_eq!(encode(&long, &mut bytes), Err(FrameRefusal::TooLong));
        assert_eq!(bytes, b"before");
        assert_eq!(bytes_of(&Frame::Record(vec![7])).len(), HEAD_BYTES + 1);
    }
}
