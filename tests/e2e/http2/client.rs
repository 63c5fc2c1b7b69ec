//! An HTTP/2 client that only knows frames, so that it can send what no client should.

use crate::e2e::harness::{Response, Server, TIMEOUT, uninterrupted, wait_until_read};
use flatout_http::http2::hpack::Decoder;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// The client's connection preface, without SETTINGS.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A received frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The 32-bit number at offset `at` in the payload: an error code at 0 in RST_STREAM and at 4 in GOAWAY.
    pub(crate) fn number(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }

    pub(crate) fn ends_stream(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }
}

pub(crate) fn encode(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A literal field without indexing (RFC 7541 §6.2.2), with both strings uncompressed.
pub(crate) fn literal(name: &[u8], value: &[u8]) -> Vec<u8> {
    assert!(name.len() < 127 && value.len() < 127);
    [&[0, name.len() as u8], name, &[value.len() as u8], value].concat()
}

/// The fields of a request for `path`, without the dynamic table.
pub(crate) fn request(method: &str, path: &str) -> Vec<u8> {
    [
        literal(b":method", method.as_bytes()),
        literal(b":scheme", b"http"),
        literal(b":authority", b"test"),
        literal(b":path", path.as_bytes()),
    ]
    .concat()
}

/// Takes the first frame from `received`. Returns `None` if the frame is incomplete.
pub(crate) fn take_frame(received: &mut Vec<u8>) -> Option<Frame> {
    let head: [u8; 9] = received.get(..9)?.try_into().unwrap();
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let payload = received.get(9..9 + length)?.to_vec();
    received.drain(..9 + length);
    let stream = u32::from_be_bytes(head[5..9].try_into().unwrap());
    Some(Frame { kind: head[3], flags: head[4], stream, payload })
}

/// One connection with prior knowledge.
#[derive(Debug)]
pub(crate) struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Client {
    /// Connects, and sends the preface and these settings, each an identifier and a value.
    pub(crate) fn connect(server: &Server, settings: &[(u16, u32)]) -> Self {
        let mut client = Self { stream: server.connect(), received: Vec::new() };
        let payload: Vec<u8> =
            settings.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
        client.send(&[PREFACE, &encode(SETTINGS, 0, 0, &payload)].concat());
        client
    }

    /// Sends `bytes`. Returns false if the server has closed the connection.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    pub(crate) fn send_frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        self.send(&encode(kind, flags, stream, payload))
    }

    /// Sends a GET without content.
    pub(crate) fn get(&mut self, stream: u32, path: &str) {
        self.send_frame(HEADERS, END_HEADERS | END_STREAM, stream, &request("GET", path));
    }

    /// Waits until the server has read everything that was sent.
    pub(crate) fn wait_until_read(&self) {
        wait_until_read(&self.stream);
    }

    /// Closes the client's side of the connection.
    pub(crate) fn finish(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// The next frame, or `None` at the end of the connection.
    pub(crate) fn frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.received_frame() {
                return Some(frame);
            }
            let mut buffer = [0; 16 * 1024];
            match uninterrupted(|| self.stream.read(&mut buffer)) {
                Ok(0) => return None,
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no frame arrived: {error}"),
            }
        }
    }

    fn received_frame(&mut self) -> Option<Frame> {
        take_frame(&mut self.received)
    }

    /// The next frame that satisfies `wanted`. Other frames are skipped.
    pub(crate) fn frame_like(&mut self, what: &str, wanted: impl Fn(&Frame) -> bool) -> Frame {
        loop {
            let frame = self.frame().unwrap_or_else(|| panic!("the connection ended before {what}"));
            if wanted(&frame) {
                return frame;
            }
        }
    }

    /// The response on `stream`, which must be the first on this connection.
    pub(crate) fn first_response(&mut self, stream: u32) -> Response {
        let (mut fields, mut body, mut scratch) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let frame = self.frame_like("the response", |frame| frame.stream == stream);
            match frame.kind {
                HEADERS => {
                    let decoded = Decoder::new().decode(&frame.payload, &mut scratch, |scratch, name, value| {
                        fields.push([name, value].map(|part| String::from_utf8(scratch[part].to_vec()).unwrap()));
                    });
                    decoded.unwrap();
                }
                DATA => body.extend_from_slice(&frame.payload),
                RST_STREAM => panic!("reset with code {}", frame.number(0)),
                _ => {}
            }
            if frame.ends_stream() {
                break;
            }
        }
        let status = fields.iter().find(|[name, _]| name == ":status").unwrap()[1].parse().unwrap();
        Response { status, fields: fields.into_iter().map(Into::into).collect(), body }
    }

    /// Returns the error code of a GOAWAY that has already arrived, without waiting for one.
    pub(crate) fn goaway_by_now(&mut self) -> Option<u32> {
        self.stream.set_nonblocking(true).unwrap();
        let mut buffer = [0; 16 * 1024];
        let mut ended = false;
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => break ended = true,
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                // The server closed before it had read everything. What it sent before that was received.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break ended = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        self.stream.set_nonblocking(false).unwrap();
        self.stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        while let Some(frame) = self.received_frame() {
            if frame.kind == GOAWAY {
                return Some(frame.number(4));
            }
        }
        assert!(!ended, "the connection ended without GOAWAY");
        None
    }
}
