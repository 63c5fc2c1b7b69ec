//! Test vectors: frames in, events and frames out. Each input is also passed byte by byte, with the same result.

mod frames;
mod rfc9113;
mod sending;
mod vectors;

use super::{Config, Connection, ConnectionError, Event, Role};
use crate::http2::error::StreamError;
use crate::http2::fields::FieldBlock;
use crate::http2::frame::{ErrorCode, FrameHead, HEAD_BYTES, PREFACE, append_frame, kind};
use crate::http2::hpack::encode_field;
use crate::http2::window::Windows;

const CONFIG: Config = Config {
    streams_max: 4,
    windows: Windows { stream: 65_535, connection: 256 * 1024 },
    section_bytes_max: 16 * 1024,
};

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut output = Vec::new();
    append_frame(kind, flags, stream, payload, &mut output);
    output
}

fn fields(lines: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in lines {
        encode_field(name.as_bytes(), value.as_bytes(), &mut block);
    }
    block
}

fn request(method: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let pseudo = [(":method", method), (":scheme", "http"), (":authority", "a"), (":path", "/")];
    fields(&[&pseudo[..], more].concat())
}

/// A server that has received the preface and empty SETTINGS.
fn server() -> (Connection<u32>, Vec<u8>) {
    let mut output = Vec::new();
    let mut connection = Connection::new(Role::Server, CONFIG, &mut output);
    let opening = [&PREFACE[..], &frame(kind::SETTINGS, 0, 0, &[])].concat();
    let (events, error) = give(&mut connection, &opening, opening.len(), &mut output);
    assert!(events.is_empty() && error.is_none() && connection.has_begun());
    output.clear();
    (connection, output)
}

/// Passes `input` in pieces of `piece_bytes`. Returns the events as text, and the error that ended the connection.
fn give(
    connection: &mut Connection<u32>,
    input: &[u8],
    piece_bytes: usize,
    output: &mut Vec<u8>,
) -> (Vec<String>, Option<ConnectionError>) {
    give_to(connection, input, piece_bytes, output, |connection, event, block, output| {
        let text = describe(&event, block);
        if let Event::Data { stream, bytes, .. } = event {
            connection.release(stream, bytes.len(), output);
        }
        text
    })
}

/// Passes `input` as in [`give`], with `handle` turning each event into text.
fn give_to(
    connection: &mut Connection<u32>,
    input: &[u8],
    piece_bytes: usize,
    output: &mut Vec<u8>,
    handle: fn(&mut Connection<u32>, Event<'_, u32>, &FieldBlock, &mut Vec<u8>) -> String,
) -> (Vec<String>, Option<ConnectionError>) {
    let (mut events, mut stash, mut block) = (Vec::new(), Vec::new(), FieldBlock::new());
    for piece in input.chunks(piece_bytes.max(1)) {
        stash.extend_from_slice(piece);
        let mut rest = &stash[..];
        loop {
            match connection.handle(0, &mut rest, &mut block, output) {
                Ok(Some(event)) => events.push(handle(connection, event, &block, output)),
                Ok(None) => break,
                Err(error) => return (events, Some(error)),
            }
        }
        let used = stash.len() - rest.len();
        stash.drain(..used);
    }
    (events, None)
}

fn describe(event: &Event<'_, u32>, block: &FieldBlock) -> String {
    let lines =
        || block.iter().map(|(name, value)| format!(" {name}={}", String::from_utf8_lossy(value))).collect::<String>();
    match event {
        Event::Request { stream, ends } => format!("request {stream} {ends}{}", lines()),
        Event::Response { stream, ends } => format!("response {stream} {:?} {ends}{}", block.status(), lines()),
        Event::Data { stream, bytes, ends } => format!("data {stream} {} {ends}", bytes.len()),
        Event::Trailers { stream } => format!("trailers {stream}{}", lines()),
        Event::Reset { stream, code, error, .. } => {
            format!("reset {stream} {code:?} {}", error.map_or("peer", StreamError::name))
        }
        Event::Rejected { stream, error } => format!("rejected {stream} {}", error.name()),
        Event::Acknowledged(payload) => format!("acknowledged {payload}"),
        Event::GoAway { last_stream, code } => format!("goaway {last_stream} {code:?}"),
    }
}

/// Type, flags, stream and payload.
type SentFrame = (u8, u8, u32, Vec<u8>);

/// The frames in `output`.
fn frames(mut output: &[u8]) -> Vec<SentFrame> {
    let mut frames = Vec::new();
    while let Some(head) = FrameHead::parse(output) {
        let end = HEAD_BYTES + head.payload_bytes;
        frames.push((head.kind, head.flags, head.stream, output[HEAD_BYTES..end].to_vec()));
        output = &output[end..];
    }
    assert!(output.is_empty());
    frames
}

/// Returns the events that `input` causes on a server, the frames it sends, and the error. The result must be the same
/// for the whole input, byte by byte, and in pieces.
fn consequence(input: &[u8]) -> (Vec<String>, Vec<SentFrame>, Option<ErrorCode>) {
    let of = |piece_bytes| {
        let (mut connection, mut output) = server();
        let (events, error) = give(&mut connection, input, piece_bytes, &mut output);
        (events, frames(&output), error.map(ConnectionError::code))
    };
    let whole = of(input.len());
    assert_eq!(of(1), whole);
    assert_eq!(of(7), whole);
    whole
}
