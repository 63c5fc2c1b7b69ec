//! Requirements of RFC 9113 that h2spec does not check, or checks less strictly.

use super::client::{
    ACK, CONTINUATION, Client, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, PING, PREFACE, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, encode, literal, request,
};
use super::{count_of, site};
use crate::e2e::harness::{Server, read_to_end};
use std::io::Write;

const PROTOCOL_ERROR: u32 = 1;
const FRAME_SIZE_ERROR: u32 = 6;
const COMPRESSION_ERROR: u32 = 9;

/// How a server reacts to a protocol violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Consequence {
    /// A stream error: a reset with this code, or a response. The connection stays open.
    Stream(u32),
    /// A connection error: GOAWAY with this code.
    Connection(u32),
    /// No error: stream and connection stay open.
    Nothing,
}

/// Returns what the server does about `bytes`, which are frames on stream 1.
fn consequence(server: &Server, bytes: &[u8]) -> Consequence {
    let mut client = Client::connect(server, &[]);
    client.send(bytes);
    // If the connection is still open, the server acknowledges this, whatever the violation was.
    client.send_frame(PING, 0, 0, b"go on???");
    let (mut ended, mut answered) = (None, false);
    loop {
        let frame = client.frame().expect("the connection ended without GOAWAY");
        match frame {
            Frame { kind: GOAWAY, .. } => return Consequence::Connection(frame.number(4)),
            Frame { kind: RST_STREAM, stream: 1, .. } => ended = Some(frame.number(0)),
            // Status 400, by the first byte of its index in the static table.
            Frame { kind: HEADERS, stream: 1, ref payload, .. } if payload.first() == Some(&0x8c) => {
                ended = Some(PROTOCOL_ERROR);
            }
            // A reset from the same turn of the server may still follow it, but not the next one.
            Frame { kind: PING, flags: ACK, .. } if !std::mem::replace(&mut answered, true) => {
                client.send_frame(PING, 0, 0, b"go on!!!");
            }
            Frame { kind: PING, flags: ACK, .. } => {
                return ended.map_or(Consequence::Nothing, Consequence::Stream);
            }
            _ => {}
        }
    }
}

fn get_with(fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let more = fields.iter().flat_map(|(name, value)| literal(name, value));
    encode(HEADERS, END_HEADERS | END_STREAM, 1, &request("GET", "/1k").into_iter().chain(more).collect::<Vec<_>>())
}

/// The violation, its bytes and its consequence.
type Case = (&'static str, Vec<u8>, Consequence);

#[test]
fn protocol_violations_have_the_consequences_that_the_rfc_requires() {
    use Consequence::{Connection, Stream};
    let folder = site();
    let server = super::h2c(&folder);
    let open = || encode(HEADERS, END_HEADERS, 1, &request("POST", "/1k"));
    let then =
        |kind: u8, flags: u8, stream: u32, payload: &[u8]| [open(), encode(kind, flags, stream, payload)].concat();
    let too_large = vec![0; 16_385];
    let cases: [Case; 18] = [
        ("PING of 7 bytes", encode(PING, 0, 0, &[0; 7]), Connection(FRAME_SIZE_ERROR)),
        ("SETTINGS of 5 bytes", encode(SETTINGS, 0, 0, &[0; 5]), Connection(FRAME_SIZE_ERROR)),
        ("SETTINGS with ACK and content", encode(SETTINGS, ACK, 0, &[0; 6]), Connection(FRAME_SIZE_ERROR)),
        ("RST_STREAM of 3 bytes", then(RST_STREAM, 0, 1, &[0; 3]), Connection(FRAME_SIZE_ERROR)),
        ("WINDOW_UPDATE of 5 bytes", encode(WINDOW_UPDATE, 0, 0, &[1; 5]), Connection(FRAME_SIZE_ERROR)),
        ("GOAWAY of 4 bytes", encode(GOAWAY, 0, 0, &[0; 4]), Connection(FRAME_SIZE_ERROR)),
        ("HEADERS of 16,385 bytes", encode(HEADERS, END_HEADERS, 1, &too_large), Connection(FRAME_SIZE_ERROR)),
        ("a field of the connection", get_with(&[(b"connection", b"close")]), Stream(PROTOCOL_ERROR)),
        ("TE with a coding", get_with(&[(b"te", b"gzip")]), Stream(PROTOCOL_ERROR)),
        ("a value that begins with a space", get_with(&[(b"x-a", b" b")]), Stream(PROTOCOL_ERROR)),
        ("a value that ends with a tab", get_with(&[(b"x-a", b"b\t")]), Stream(PROTOCOL_ERROR)),
        (
            "no :path",
            encode(HEADERS, END_HEADERS | END_STREAM, 1, &literal(b":method", b"GET")),
            Stream(PROTOCOL_ERROR),
        ),
        (
            "a pseudo-field among trailers",
            then(HEADERS, END_HEADERS | END_STREAM, 1, &literal(b":path", b"/")),
            Stream(PROTOCOL_ERROR),
        ),
        ("CONTINUATION of nothing", encode(CONTINUATION, END_HEADERS, 1, &[]), Connection(PROTOCOL_ERROR)),
        ("a name with an upper-case letter", get_with(&[(b"X-A", b"b")]), Stream(PROTOCOL_ERROR)),
        ("a name that is not a token", get_with(&[(b"x a", b"b")]), Stream(PROTOCOL_ERROR)),
        (
            "an index beyond the table",
            encode(HEADERS, END_HEADERS | END_STREAM, 1, &[0xfe]),
            Connection(COMPRESSION_ERROR),
        ),
        ("DATA of 16,385 bytes", then(DATA, 0, 1, &too_large), Stream(FRAME_SIZE_ERROR)),
    ];
    let mut wrong = Vec::new();
    for (what, bytes, expected) in cases {
        let found = consequence(&server, &bytes);
        if found != expected {
            wrong.push(format!("{what}: {found:?} instead of {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_preface_without_settings_is_an_error_or_times_out_like_a_handshake() {
    let folder = site();
    let server = Server::start(folder.path(), &["--h2c", "--handshake-timeout", "1s"]);
    let mut stream = server.connect();
    stream.write_all(&[PREFACE, &encode(PING, 0, 0, &[0; 8])].concat()).unwrap();
    let answer = read_to_end(&mut stream);
    let goaway = encode(GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, PROTOCOL_ERROR as u8]);
    assert!(answer.ends_with(&goaway), "{answer:?}");
    let mut stream = server.connect();
    stream.write_all(PREFACE).unwrap();
    read_to_end(&mut stream);
    let (_, text) = server.stop();
    assert_eq!((count_of(&text, "closed_preface_timeout"), count_of(&text, "closed_h2_protocol")), (1, 1), "{text}");
}

#[test]
fn connect_gets_a_response_immediately() {
    let folder = site();
    let server = super::h2c(&folder);
    let mut client = Client::connect(&server, &[]);
    let fields = [literal(b":method", b"CONNECT"), literal(b":authority", b"test:80")].concat();
    // Its stream stays open, as for a tunnel.
    client.send_frame(HEADERS, END_HEADERS, 1, &fields);
    client.frame_like("a response", |frame| frame.kind == HEADERS && frame.stream == 1);
}
