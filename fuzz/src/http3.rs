//! HTTP/3: bytes of several streams, in any order.

use flatout_http::http2::connection::Role;
use flatout_http::http2::fields::FieldBlock;
use flatout_http::http3::connection::{Accepted, Config, Connection, Event, OwnStream};
use flatout_http::http3::error::ConnectionError;
use flatout_http::http3::qpack::Decoder;
use std::collections::{HashMap, HashSet};

/// Input above this size is cut: the same bytes must have the same consequence however they were cut, and the bound of
/// incomplete sections depends on the cuts.
const INPUT_BYTES_MAX: usize = 3000;

/// Each record: a byte for the stream (0 to 3 for requests, 4 to 7 for unidirectional ones; bit 7 ends it), a length,
/// and as many bytes.
pub(crate) const CONNECTION_SEEDS: &[&[u8]] = &[
    b"\x04\x03\0\x04\0\x80\x0a\x01\x08\0\0\xd1\xd7\xc1\x50\x01a",
    b"\x04\x0b\0\x04\x05\x01\0\x06\x40\x40\x07\x01\x04\x80\x0a\x01\x08\0\0\xd1\xd7\xc1\x50\x01a",
    b"\x04\x03\0\x04\0\x00\x0b\x01\x09\x02\0\xd1\xd7\xc1\x50\x01a\x80\x80\x03\0\x01z\x05\x0a\x02\x3f\xe1\x1f\x43x-a\x011",
    b"\x04\x03\0\x04\0\x04\x09\x80\x0f\x07\0\x04\0u=1\x06\x02\x03\x40\x00\x0a\x01\x08\0\0\xd4\xd7\xc1\x50\x01a\x80\x02\0\0",
    b"\x04\x03\0\x04\0\x00\x0b\x01\x03\0\0\xd9\0\x04abcd\x00\x02\x21\0\x80\x08\x01\x06\0\0\x21x\x01y",
];

pub(crate) const QPACK_SEEDS: &[&[u8]] = &[
    b"\x0b\x3f\xe1\x1f\x43x-a\x011\x43x-b\x012\x03\x81\x10\x11",
    b"\x10\x3f\xbd\x01\xc0\x0fwww.example.com\xc1\x0c/sample/path\0\0\x51\x0b/index.html",
];

struct Side {
    connection: Connection<u8>,
    fields: FieldBlock,
    /// Streams that were accepted, and those that have ended.
    accepted: HashSet<u64>,
    ended: HashSet<u64>,
    /// The input of blocked streams.
    kept: HashMap<u64, (Vec<u8>, bool)>,
    /// Events other than content, as text.
    events: Vec<String>,
}

impl Side {
    fn new(role: Role) -> Self {
        let mut connection = Connection::new(role, Config { section_bytes_max: 1000 });
        if role == Role::Client {
            (0..4).for_each(|number| connection.open(number * 4, number == 1));
        }
        Self {
            connection,
            fields: FieldBlock::new(),
            accepted: HashSet::new(),
            ended: HashSet::new(),
            kept: HashMap::new(),
            events: Vec::new(),
        }
    }

    fn give(&mut self, id: u64, is_own: bool, bytes: &[u8], fin: bool) {
        if !is_own && self.accepted.insert(id) {
            match self.connection.accept(0, id) {
                Ok(Accepted::Open) => {}
                other => self.events.push(format!("{other:?}")),
            }
        }
        let (mut input, mut ends) = self.kept.remove(&id).unwrap_or_default();
        input.extend_from_slice(bytes);
        ends |= fin;
        let mut queue = vec![(id, input, ends)];
        while let Some((id, input, ends)) = queue.pop() {
            let mut rest = &input[..];
            loop {
                match self.connection.handle(0, id, &mut rest, ends, &mut self.fields) {
                    Ok(Some(Event::Data { .. })) => {}
                    Ok(Some(Event::Unblocked { stream })) => {
                        let (input, ends) = self.kept.remove(&stream).unwrap_or_default();
                        queue.push((stream, input, ends));
                        self.events.push(format!("unblocked {stream}"));
                    }
                    Ok(Some(event)) => self.events.push(format!("{event:?}")),
                    Ok(None) => break,
                    Err(error) => {
                        self.events.push(format!("{error:?}"));
                        return;
                    }
                }
            }
            if !rest.is_empty() || ends {
                self.kept.insert(id, (rest.to_vec(), ends));
            }
        }
    }
}

/// The same bytes have the same consequence however they were cut, for either role, and what they provoke is bounded.
pub(crate) fn check_connection(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(INPUT_BYTES_MAX)];
    for role in [Role::Server, Role::Client] {
        let consequence = |size: usize| {
            let (mut side, mut rest) = (Side::new(role), bytes);
            while let [stream, count, after @ ..] = rest {
                let (content, after) = after.split_at(usize::from(*count).min(after.len()));
                rest = after;
                let (number, is_request) = (u64::from(stream & 3), stream & 4 == 0);
                let own_bit = u64::from(role == Role::Client && !is_request);
                let id = number * 4 + if is_request { 0 } else { 2 + own_bit };
                let fin = stream & 0x80 != 0;
                if side.ended.contains(&id) {
                    continue;
                }
                if fin {
                    side.ended.insert(id);
                }
                let is_own = role == Role::Client && is_request;
                if content.is_empty() {
                    side.give(id, is_own, &[], fin);
                }
                let pieces = content.len().div_ceil(size.max(1));
                for (number, piece) in (1..).zip(content.chunks(size)) {
                    side.give(id, is_own, piece, fin && number == pieces);
                }
            }
            let output_bytes =
                side.connection.output(OwnStream::Control).len() + side.connection.output(OwnStream::Decoder).len();
            assert!(side.connection.stream_count() <= 4 && output_bytes <= 100 + 2 * bytes.len());
            (side.events, side.connection.has_failed())
        };
        let whole = consequence(usize::MAX);
        // A section that waits for the table is decoded after the piece that completes it. What follows in that piece
        // matters only if it evicts referenced entries, which RFC 9204 §2.1.1 forbids; then the result may differ.
        let has_waited = |events: &[String]| events.iter().any(|event| event.starts_with("unblocked"));
        for size in [1, 7, 100] {
            let cut = consequence(size);
            let comparable = !has_waited(&whole.0) && !has_waited(&cut.0);
            assert!(!comparable || cut == whole, "in pieces of {size} bytes: {cut:?}, whole: {whole:?}");
        }
    }
}

/// Instructions have the same consequence however they were cut, and no section grows a buffer without a bound. The
/// first byte is the number of bytes of instructions; a section follows.
pub(crate) fn check_qpack(bytes: &[u8]) {
    let Some((&count, rest)) = bytes.split_first() else { return };
    let (instructions, section) = rest.split_at(usize::from(count).min(rest.len()));
    let consequence = |size: usize| {
        let (mut decoder, mut output) = (Decoder::new(), Vec::new());
        for piece in instructions.chunks(size) {
            decoder.handle_instructions(piece, || true, &mut output)?;
        }
        let (mut scratch, mut lines) = (Vec::new(), Vec::new());
        let decoded = decoder.decode(section, &mut scratch, |scratch, name, value| {
            lines.push((scratch[name].to_vec(), scratch[value].to_vec()));
        });
        assert!(scratch.len() <= section.len() * 4096);
        Ok::<_, ConnectionError>((decoded, lines, decoder.insert_count()))
    };
    let whole = consequence(usize::MAX);
    assert!([1, 2, 7].into_iter().all(|size| consequence(size) == whole));
}
