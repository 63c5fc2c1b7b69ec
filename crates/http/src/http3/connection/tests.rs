//! Test vectors: bytes of streams in, events and bytes out. Each input is also passed byte by byte, with the same
//! result.

mod exchanges;
mod frames;
mod vectors;

use super::{Accepted, Config, Connection, ConnectionError, Event, OwnStream, Role};
use crate::http2::error::StreamError;
use crate::http2::fields::FieldBlock;
use crate::http3::frame::{FrameHead, append_frame, append_varint, kind};
use crate::http3::qpack::{SECTION_PREFIX, encode_field};

const CONFIG: Config = Config { section_bytes_max: 16 * 1024 };

/// The client's unidirectional streams.
const CONTROL: u64 = 2;
const ENCODER: u64 = 6;
const DECODER: u64 = 10;

fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut output = Vec::new();
    append_frame(kind, payload, &mut output);
    output
}

fn varint(value: u64) -> Vec<u8> {
    let mut output = Vec::new();
    append_varint(value, &mut output);
    output
}

fn section(lines: &[(&str, &str)]) -> Vec<u8> {
    let mut section = SECTION_PREFIX.to_vec();
    for (name, value) in lines {
        encode_field(name.as_bytes(), value.as_bytes(), &mut section);
    }
    section
}

fn headers(lines: &[(&str, &str)]) -> Vec<u8> {
    frame(kind::HEADERS, &section(lines))
}

fn request(method: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let pseudo = [(":method", method), (":scheme", "https"), (":authority", "a"), (":path", "/")];
    headers(&[&pseudo[..], more].concat())
}

fn data(content: &[u8]) -> Vec<u8> {
    frame(kind::DATA, content)
}

/// Returns a control stream with empty SETTINGS, followed by `frames`.
fn control(frames: &[u8]) -> Vec<u8> {
    [&[0][..], &frame(kind::SETTINGS, &[]), frames].concat()
}

/// Bytes of one stream: the stream identifier, the bytes, and whether they end the stream.
type Input<'a> = (u64, &'a [u8], bool);

/// One side of a connection, with a field block and a clock.
struct Side {
    connection: Connection<u32>,
    block: FieldBlock,
    now_ms: u64,
}

impl Side {
    fn new(role: Role) -> Self {
        Self { connection: Connection::new(role, CONFIG), block: FieldBlock::new(), now_ms: 0 }
    }

    /// Accepts the stream and passes `input` in pieces of `piece_bytes`. Returns the events as text.
    fn give(&mut self, (id, bytes, fin): Input<'_>, piece_bytes: usize) -> Result<Vec<String>, ConnectionError> {
        if !self.connection.is_own(id) && self.connection.accept(self.now_ms, id)? == Accepted::Refused {
            return Ok(vec![format!("refused {id}")]);
        }
        self.feed(id, bytes, fin, piece_bytes)
    }

    /// Passes bytes of a stream that is already open.
    fn feed(&mut self, id: u64, bytes: &[u8], fin: bool, piece_bytes: usize) -> Result<Vec<String>, ConnectionError> {
        let mut events = Vec::new();
        let count = bytes.len().div_ceil(piece_bytes.max(1));
        for (number, piece) in (1..).zip(bytes.chunks(piece_bytes.max(1))) {
            self.feed_piece(id, piece, fin && number == count, &mut events)?;
        }
        if bytes.is_empty() {
            self.feed_piece(id, &[], fin, &mut events)?;
        }
        Ok(events)
    }

    fn feed_piece(
        &mut self,
        id: u64,
        piece: &[u8],
        fin: bool,
        events: &mut Vec<String>,
    ) -> Result<(), ConnectionError> {
        let mut rest = piece;
        while let Some(event) = self.connection.handle(self.now_ms, id, &mut rest, fin, &mut self.block)? {
            events.push(describe(&event, &self.block));
        }
        assert!(rest.is_empty(), "blocked");
        Ok(())
    }

    fn output(&mut self, stream: OwnStream) -> Vec<u8> {
        std::mem::take(self.connection.output(stream))
    }
}

/// A server that has received empty SETTINGS.
fn server() -> Side {
    let mut side = Side::new(Role::Server);
    assert_eq!(side.give((CONTROL, &control(&[]), false), usize::MAX).unwrap(), ["settings"]);
    side.output(OwnStream::Control);
    side.output(OwnStream::Decoder);
    side
}

/// A client that has received empty SETTINGS, with an open GET on stream 0 and an open HEAD on stream 4.
fn client() -> Side {
    let mut side = Side::new(Role::Client);
    assert_eq!(side.give((3, &control(&[]), false), usize::MAX).unwrap(), ["settings"]);
    for (id, is_head) in [(0, false), (4, true)] {
        side.connection.open(id, is_head);
        side.connection.send_fields(id, true, &mut Vec::new(), |_| {});
    }
    side
}

fn describe(event: &Event<'_, u32>, block: &FieldBlock) -> String {
    let lines =
        || block.iter().map(|(name, value)| format!(" {name}={}", String::from_utf8_lossy(value))).collect::<String>();
    match event {
        Event::Request { stream, ends } => format!("request {stream} {ends}{}", lines()),
        Event::Response { stream, ends } => format!("response {stream} {:?} {ends}{}", block.status(), lines()),
        Event::Data { stream, bytes, ends } => format!("data {stream} {} {ends}", bytes.len()),
        Event::Trailers { stream } => format!("trailers {stream}{}", lines()),
        Event::Reset { stream, code, error, .. } => format!("reset {stream} {code:?} {}", name_of(*error)),
        Event::Stopped { stream, code } => format!("stopped {stream} {code:?}"),
        Event::Rejected { stream, error } => format!("rejected {stream} {}", error.name()),
        Event::Unblocked { stream } => format!("unblocked {stream}"),
        Event::Settings => "settings".to_owned(),
        Event::GoAway { id } => format!("goaway {id}"),
    }
}

/// Returns the name of an error of the peer, or `peer` if the peer reset the stream.
fn name_of(error: Option<StreamError>) -> &'static str {
    error.map_or("peer", StreamError::name)
}

/// Joins the events of content, so that content in one piece equals the same content in several.
fn join_data(events: Vec<String>) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    let parts = |event: &str| {
        let mut words = event.strip_prefix("data ")?.split(' ');
        Some((words.next()?.to_owned(), words.next()?.parse::<usize>().ok()?, words.next()?.to_owned()))
    };
    for event in events {
        if let Some((id, bytes, ends)) = parts(&event)
            && let Some(last) = joined.last_mut()
            && let Some((last_id, last_bytes, last_ends)) = parts(last)
            && (&last_id, &last_ends[..]) == (&id, "false")
        {
            *last = format!("data {id} {} {ends}", last_bytes + bytes);
        } else {
            joined.push(event);
        }
    }
    joined
}

/// Returns the events of `inputs`, passed one after another, and the error that ended the connection. The result must
/// be the same for whole inputs, byte by byte, and in pieces; after an error, trailing bytes must change nothing.
fn consequence(start: fn() -> Side, inputs: &[Input<'_>]) -> (Vec<String>, Option<ConnectionError>) {
    let of = |piece_bytes: usize, trailing: &[u8]| {
        let mut side = start();
        let mut events = Vec::new();
        for &(id, bytes, fin) in inputs {
            let bytes = [bytes, trailing].concat();
            match side.give((id, &bytes, fin), piece_bytes) {
                Ok(more) => events.extend(more),
                Err(error) => {
                    assert!(side.connection.has_failed());
                    return (join_data(events), Some(error));
                }
            }
        }
        (join_data(events), None)
    };
    let whole = of(usize::MAX, &[]);
    assert_eq!(of(1, &[]), whole);
    assert_eq!(of(7, &[]), whole);
    if let ([(_, _, false)], (_, Some(_))) = (inputs, &whole) {
        assert_eq!(of(usize::MAX, b"\0\x01trailing"), whole);
        assert_eq!(of(1, b"\0\x01trailing"), whole);
    }
    whole
}

/// Returns the types and payloads of the frames in `output`.
fn frames(mut output: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut frames = Vec::new();
    while let Some(head) = FrameHead::take(&mut output) {
        let (payload, rest) = output.split_at(head.payload_bytes as usize);
        frames.push((head.kind, payload.to_vec()));
        output = rest;
    }
    assert!(output.is_empty());
    frames
}
