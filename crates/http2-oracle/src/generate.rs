//! Connections at random: mostly valid frames, some of which are then changed.

use super::{ACTION, RESETS};
use flatout_http::http2::connection::Role;
use flatout_http::http2::frame::{append_frame, flag, kind};
use flatout_http::http2::hpack::encode_field;

/// Frames of a case, at most.
const FRAMES_MAX: usize = 24;

/// Window of a stream and of the connection at the start.
const WINDOW_BYTES: usize = 65_535;

type Field = (Vec<u8>, Vec<u8>);

/// A xorshift generator.
struct Random(u64);

impl Random {
    /// A generator; seeds that differ in one bit have sequences that differ.
    const fn new(seed: u64) -> Self {
        // The multiplier of splitmix64; the state must not be 0.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `bound`, which is not 0.
    const fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % bound as u64) as usize
    }
}

/// The generated peer's view of its connection; it is wrong once a frame was changed.
struct Peer {
    random: Random,
    role: Role,
    output: Vec<Vec<u8>>,
    /// Entries of the dynamic table, newest first.
    table: Vec<Field>,
    /// Streams that this peer may send on.
    open: Vec<u32>,
    /// Streams that it has ended.
    ended: Vec<u32>,
    /// Streams of a server that have a response head.
    answered: Vec<u32>,
    next_stream: u32,
}

/// The frames of the case with this seed: what the peer of a `role` sends.
pub fn generate(seed: u64, role: Role) -> Vec<u8> {
    let open = if role == Role::Client { vec![1, 3, 5, 7] } else { Vec::new() };
    let mut peer = Peer {
        random: Random::new(seed),
        role,
        output: Vec::new(),
        table: Vec::new(),
        open,
        ended: Vec::new(),
        answered: Vec::new(),
        next_stream: 1,
    };
    if !peer.one_in(40) {
        peer.settings();
    }
    if peer.one_in(3) {
        peer.push(kind::SETTINGS, flag::ACK, 0, &[]);
    }
    for _ in 0..4 + peer.random.below(FRAMES_MAX - 4) {
        peer.step();
    }
    if peer.one_in(3) {
        peer.change();
    }
    peer.output.concat()
}

impl Peer {
    fn one_in(&mut self, count: usize) -> bool {
        self.random.below(count) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random.below(from.len())]
    }

    fn push(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut frame = Vec::new();
        append_frame(kind, flags, stream, payload, &mut frame);
        self.output.push(frame);
    }

    /// Mostly an open stream; sometimes one that has ended, is idle, or belongs to the other side.
    fn stream(&mut self) -> u32 {
        let known = if self.one_in(8) { self.ended.clone() } else { self.open.clone() };
        if known.is_empty() || self.one_in(60) {
            return self.pick(&[0, 1, 2, 3, 5, 7, 9, 11, 13, 101, 0x7fff_ffff]);
        }
        self.pick(&known)
    }

    fn end(&mut self, stream: u32) {
        self.open.retain(|other| *other != stream);
        self.ended.push(stream);
    }

    fn step(&mut self) {
        match self.random.below(30) {
            0..8 if self.role == Role::Server => self.request(),
            0..8 => self.response(),
            8..13 => self.data(),
            13 => self.trailers(),
            14 => {
                let (stream, code) = (self.stream(), self.pick(&[0, 1, 7, 8, 99]));
                self.push(kind::RST_STREAM, 0, stream, &u32::to_be_bytes(code));
                self.end(stream);
            }
            15..17 => {
                let stream = if self.one_in(2) { 0 } else { self.stream() };
                let bytes = self.pick(&[0, 1, 1000, 65_535, 0x4000_0000, 0x7fff_0000, 0x7fff_ffff, 0x8000_0001]);
                self.push(kind::WINDOW_UPDATE, 0, stream, &u32::to_be_bytes(bytes));
            }
            17..19 => self.settings(),
            19 => {
                let flags = self.pick(&[0, flag::ACK]);
                self.push(kind::PING, flags, 0, b"pingpong");
            }
            20 => {
                let (stream, other) = (self.stream(), self.stream());
                self.push(kind::PRIORITY, 0, stream, &[&other.to_be_bytes()[..], &[7]].concat());
            }
            21 if self.role == Role::Server || self.one_in(8) => {
                let stream = self.stream();
                self.push(kind::PRIORITY_UPDATE, 0, 0, &[&stream.to_be_bytes()[..], b"u=1, i"].concat());
            }
            22 if self.one_in(3) => {
                let (last, code) = (self.stream(), self.pick(&[0, 1, 11]));
                self.push(kind::GOAWAY, 0, 0, &[last.to_be_bytes(), u32::to_be_bytes(code)].concat());
            }
            23 => {
                let (kind, stream) = (self.pick(&[0x0a, 0x0c, 0x77, 0xff]), self.stream());
                self.push(kind, 0, stream, b"anything");
            }
            24 if self.one_in(6) => {
                let stream = self.stream();
                self.push(kind::PUSH_PROMISE, flag::END_HEADERS, stream, &[0, 0, 0, 2, 0x82, 0x84, 0x86]);
            }
            24 if self.one_in(4) => {
                let stream = self.stream();
                self.push(kind::CONTINUATION, flag::END_HEADERS, stream, &[0x82]);
            }
            25 if self.one_in(4) => self.push(kind::SETTINGS, flag::ACK, 0, &[]),
            26..28 => {
                let stream = self.stream();
                self.push(ACTION, 0, stream, &[]);
            }
            28 => {
                let stream = self.stream();
                self.push(ACTION, RESETS, stream, &[]);
            }
            _ => {}
        }
    }

    fn settings(&mut self) {
        let mut payload = Vec::new();
        for _ in 0..self.random.below(3) {
            let (id, value) = match self.random.below(12) {
                0 => (1, self.pick(&[0, 100, 4096, 65_536])),
                1 => (2, if self.one_in(4) { self.pick(&[1, 2]) } else { 0 }),
                2 => (3, self.pick(&[0, 1, 100, u32::MAX])),
                3..5 => (4, self.pick(&[0, 1, 65_535, 0x7fff_ffff])),
                5 if self.one_in(4) => (4, 0x8000_0000),
                5 => (5, self.pick(&[16_384, 65_536, 0xff_ffff])),
                6 if self.one_in(4) => (5, self.pick(&[0, 16_383, 0x100_0000])),
                6 => (6, self.pick(&[0, 100, 65_536])),
                7 => (8, if self.one_in(6) { 2 } else { self.random.below(2) as u32 }),
                8 => (9, if self.one_in(6) { 2 } else { 1 }),
                _ => (self.pick(&[0, 10, 0x99, 0xffff]), 7),
            };
            payload.extend_from_slice(&u16::to_be_bytes(id));
            payload.extend_from_slice(&u32::to_be_bytes(value));
        }
        self.push(kind::SETTINGS, 0, 0, &payload);
    }

    fn data(&mut self) {
        let stream = self.stream();
        if self.role == Role::Client && !self.answered.contains(&stream) && !self.one_in(20) {
            return self.answer(stream);
        }
        let bytes = if self.one_in(12) {
            self.pick(&[16_384, 16_384, 16_385, WINDOW_BYTES + 1])
        } else {
            self.pick(&[0, 1, 3, 3, 10, 300])
        };
        let (mut payload, mut flags) = (vec![b'c'; bytes], 0);
        if self.one_in(8) && bytes < 1000 {
            let padding = self.pick(&[0, 1, 9, 255]);
            payload.insert(0, padding);
            payload.resize(payload.len() + usize::from(padding), 0);
            flags |= flag::PADDED;
            if self.one_in(8) {
                payload.truncate(usize::from(padding));
            }
        }
        if self.one_in(3) {
            flags |= flag::END_STREAM;
            self.end(stream);
        }
        self.push(kind::DATA, flags, stream, &payload);
        if bytes == 16_384 {
            // As much as the window permits, or a byte more.
            for _ in 0..2 {
                self.push(kind::DATA, 0, stream, &payload);
            }
            let last = self.pick(&[16_383, 16_384]);
            self.push(kind::DATA, 0, stream, &payload[..last]);
        }
    }

    fn request(&mut self) {
        let stream = if self.one_in(20) { self.stream() } else { self.next_stream };
        let step = self.pick(&[2, 2, 2, 2, 4]);
        self.next_stream = self.next_stream.max(stream.saturating_add(step) | 1);
        let method = self.pick(&["GET", "GET", "POST", "HEAD", "OPTIONS", "CONNECT", "PATCH"]);
        let paths = ["/", "/index.html", "/a?b=c", "/a%20b"];
        let path = if method == "OPTIONS" || self.one_in(20) { "*" } else { self.pick(&paths) };
        let mut fields = vec![field(":method", method)];
        if method == "CONNECT" {
            fields.push(field(":authority", "a:443"));
            if self.one_in(2) {
                fields.extend([field(":scheme", "https"), field(":path", path), field(":protocol", "websocket")]);
            }
        } else {
            let scheme = if self.one_in(20) { "ftp" } else { self.pick(&["http", "https"]) };
            fields.extend([field(":scheme", scheme), field(":path", path)]);
            let authority = self.pick(&["a", "example.org", "example.org:8080", "[::1]", "A.b"]);
            if self.one_in(8) {
                fields.push(field("host", authority));
            } else {
                fields.push(field(":authority", authority));
            }
        }
        self.add_fields(&mut fields);
        let ends = self.one_in(2);
        self.section(stream, ends, &fields);
        if ends {
            self.ended.push(stream);
        } else {
            self.open.push(stream);
        }
    }

    fn response(&mut self) {
        let stream = self.stream();
        if self.answered.contains(&stream) { self.data() } else { self.answer(stream) }
    }

    fn answer(&mut self, stream: u32) {
        let status = self.pick(&["200", "200", "200", "204", "304", "404", "100", "103", "103", "500"]);
        let wrong = self.pick(&["101", "99", "1000", "abc", "20"]);
        let status = if self.one_in(12) { wrong } else { status };
        let mut fields = vec![field(":status", status)];
        self.add_fields(&mut fields);
        let ends = self.one_in(3);
        self.section(stream, ends, &fields);
        if !status.starts_with('1') {
            self.answered.push(stream);
        }
        if ends {
            self.end(stream);
        }
    }

    fn trailers(&mut self) {
        let stream = self.stream();
        let mut fields = Vec::new();
        self.add_fields(&mut fields);
        let ends = !self.one_in(8);
        self.section(stream, ends, &fields);
        self.end(stream);
    }

    /// Adds fields, a few of which are invalid.
    fn add_fields(&mut self, fields: &mut Vec<Field>) {
        for _ in 0..self.random.below(4) {
            let valid = [
                field("accept", "*/*"),
                field("x-a", "b"),
                field("x-b", "a \t\u{e9}"),
                field("x-empty", ""),
                field("cookie", "a=1"),
                field("cookie", "b=2"),
                field("te", "trailers"),
                field("priority", "u=1, i"),
            ];
            let at = self.random.below(valid.len());
            fields.push(valid[at].clone());
        }
        if self.one_in(8) {
            let length = self.pick(&["0", "3", "4", "6", "00", "3, 3", "+3", "-1", "", "18446744073709551616"]);
            fields.push(field("content-length", length));
            if self.one_in(4) {
                fields.push(field("content-length", "3"));
            }
        }
        if self.one_in(8) {
            let invalid = [
                field("X-A", "b"),
                field("", "b"),
                field("a b", "c"),
                field("a:b", "c"),
                field("a", "b\r\nc: d"),
                field("a", "b\0"),
                field("a", " b"),
                field("a", "b\t"),
                field("a", "\x7f"),
                field("connection", "close"),
                field("keep-alive", "1"),
                field("proxy-connection", "close"),
                field("transfer-encoding", "chunked"),
                field("upgrade", "websocket"),
                field("te", "gzip"),
                field("te", "trailers, gzip"),
                field("host", "other"),
                field(":path", "/b"),
                field(":method", "GET"),
                field(":status", "200"),
                field(":protocol", "websocket"),
                field(":unknown", "x"),
                field(":authority", "a@b"),
                field(":path", ""),
                field(":scheme", "9"),
                field("expect", "100-continue"),
                field("trailer", "x-a"),
            ];
            let (at, place) = (self.random.below(invalid.len()), self.random.below(fields.len() + 1));
            if self.one_in(3) && !fields.is_empty() {
                let place = place.min(fields.len() - 1);
                fields[place] = invalid[at].clone();
            } else {
                fields.insert(place, invalid[at].clone());
            }
        }
        if self.one_in(30) && !fields.is_empty() {
            let at = self.random.below(fields.len());
            fields.remove(at);
        }
        if self.one_in(60) {
            let bytes = self.pick(&[9000, 17_000, 40_000]);
            fields.push((b"x-large".to_vec(), vec![b'v'; bytes]));
        }
    }

    /// A field section in one frame or more.
    fn section(&mut self, stream: u32, ends: bool, fields: &[Field]) {
        let mut block = self.block(fields);
        let mut flags = if ends { flag::END_STREAM } else { 0 };
        if self.one_in(10) {
            flags |= flag::PRIORITY;
            let parent = if self.one_in(4) { stream } else { 0 };
            block = [&parent.to_be_bytes()[..], &[9], &block].concat();
        }
        let mut first = block.len();
        if block.len() > 16_000 || self.one_in(6) {
            first = self.random.below(block.len().min(16_000) + 1);
        }
        let mut payload = block[..first].to_vec();
        if self.one_in(12) {
            flags |= flag::PADDED;
            let padding = self.pick(&[0, 1, 100]);
            payload.insert(0, padding);
            payload.resize(payload.len() + usize::from(padding), 0);
        }
        let is_whole = first == block.len();
        self.push(kind::HEADERS, flags | if is_whole { flag::END_HEADERS } else { 0 }, stream, &payload);
        let mut rest = &block[first..];
        while !rest.is_empty() {
            let count = 1 + self.random.below(rest.len().min(16_000));
            let (piece, after) = rest.split_at(if rest.len() > 2000 { rest.len().min(16_000) } else { count });
            rest = after;
            if self.one_in(30) {
                self.push(kind::PING, 0, 0, b"between.");
            }
            let of = if self.one_in(30) { stream ^ 2 } else { stream };
            self.push(kind::CONTINUATION, if rest.is_empty() { flag::END_HEADERS } else { 0 }, of, piece);
        }
    }

    /// A field block, with and without the dynamic table.
    fn block(&mut self, fields: &[Field]) -> Vec<u8> {
        let mut block = Vec::new();
        if self.one_in(12) {
            match self.random.below(6) {
                0 => block.extend_from_slice(&[0x20, 0x3f, 0xe1, 0x1f]),
                1 => block.extend_from_slice(&[0x3f, 0xe2, 0x1f]),
                2 => block.extend_from_slice(&[0x20, 0x20, 0x20]),
                3 => block.extend_from_slice(&[0x3f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01]),
                _ => block.push(0x20),
            }
            self.table.clear();
        }
        for (name, value) in fields {
            let known = self.table.iter().position(|entry| entry.0 == *name && entry.1 == *value);
            match (self.random.below(4), known) {
                (0 | 1, Some(at)) => block.push(0x80 | (62 + at) as u8),
                (0, None) if name.len() < 100 && value.len() < 100 && self.table.len() < 8 => {
                    block.push(0x40);
                    literal(name, &mut block);
                    literal(value, &mut block);
                    self.table.insert(0, (name.clone(), value.clone()));
                }
                (2, _) => encode_field(name, value, &mut block),
                _ => {
                    block.push(if self.one_in(4) { 0x10 } else { 0 });
                    literal(name, &mut block);
                    literal(value, &mut block);
                }
            }
        }
        if self.one_in(40) {
            let wrong: &[u8] = self.pick(&[
                &[0x80][..],
                &[0xff, 0x00],
                &[0xfe],
                &[0x20],
                &[0x00, 0x05, b'a'],
                &[0x00, 0x81, 0xff, 0x01, b'v'],
                &[0x00, 0x01, b'a', 0x84, 0xff, 0xff, 0xff, 0xff],
                &[0x7f],
                &[0x00, 0x7f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00],
            ]);
            block.extend_from_slice(wrong);
        }
        block
    }

    /// Changes one frame.
    fn change(&mut self) {
        let at = self.random.below(self.output.len());
        let (stream, kind) = (self.stream(), self.random.below(12) as u8);
        let (bit, to) = (self.random.below(8), self.random.below(256) as u8);
        let frame = &mut self.output[at];
        let length = frame.len();
        let place = self.random.below(length);
        match self.random.below(9) {
            0 => frame.truncate(9 + (length - 9) / 2),
            1 => frame.push(to),
            2 => frame[3] = kind,
            3 => frame[4] ^= 1 << bit,
            4 => frame[5..9].copy_from_slice(&stream.to_be_bytes()),
            5 => frame[5] |= 0x80,
            6 if length > 9 => frame[9.max(place)] = to,
            7 => {
                let copy = frame.clone();
                self.output.insert(at, copy);
            }
            _ => {
                let other = self.random.below(self.output.len());
                self.output.swap(at, other);
            }
        }
        // The lengths of the heads follow, so that the other frames stay what they are.
        for frame in &mut self.output {
            let length = (frame.len() - 9) as u32;
            frame[..3].copy_from_slice(&length.to_be_bytes()[1..]);
        }
    }
}

fn field(name: &str, value: &str) -> Field {
    (name.as_bytes().to_vec(), value.as_bytes().to_vec())
}

/// A string without Huffman coding.
fn literal(text: &[u8], output: &mut Vec<u8>) {
    let mut left = text.len();
    if left < 127 {
        output.push(left as u8);
    } else {
        output.push(127);
        left -= 127;
        while left >= 128 {
            output.push((left % 128) as u8 | 0x80);
            left /= 128;
        }
        output.push(left as u8);
    }
    output.extend_from_slice(text);
}
