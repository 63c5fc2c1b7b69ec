//! Client errors: each has its error code in a frame, a name in the log, and a counter.

use super::client::{
    ACK, Client, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PREFACE, PRIORITY, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, encode, literal, request,
};
use super::{count_of, site};
use crate::e2e::harness::Server;
use flatout_http::http2::error::{ConnectionError, StreamError};
use flatout_http::http2::frame::ErrorCode;
use std::fs;
use std::io::Write as _;

const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;
const PRIORITY_UPDATE: u8 = 0x10;
const PADDED: u8 = 8;
const WITH_PRIORITY: u8 = 0x20;

const WHOLE: u8 = END_HEADERS | END_STREAM;

fn get_with(fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let fields: Vec<u8> = fields.iter().flat_map(|(name, value)| literal(name, value)).collect();
    encode(HEADERS, WHOLE, 1, &[request("GET", "/1k"), fields].concat())
}

fn post(fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let fields: Vec<u8> = fields.iter().flat_map(|(name, value)| literal(name, value)).collect();
    encode(HEADERS, END_HEADERS, 1, &[request("POST", "/1k"), fields].concat())
}

fn then(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    [post(&[]), encode(kind, flags, 1, payload)].concat()
}

fn update(stream: u32, bytes: u32) -> Vec<u8> {
    encode(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// Stream errors, with frames that cause them on stream 1.
fn stream_errors() -> Vec<(StreamError, Vec<u8>)> {
    let without_path = [literal(b":method", b"GET"), literal(b":scheme", b"http")].concat();
    let on_itself = [&[0, 0, 0, 1, 0][..], &request("GET", "/1k")].concat();
    let large = [vec![0x8f; 1700], literal(b"x", b"y")].concat();
    let content = |length: &[u8], bytes: &[u8], flags: u8| {
        [post(&[(b"content-length", length)]), encode(DATA, flags, 1, bytes)].concat()
    };
    let piece = [0; 16_384];
    let full = [post(&[]), encode(DATA, 0, 1, &piece)].concat();
    vec![
        (StreamError::FieldName, get_with(&[(b"X", b"y")])),
        (StreamError::FieldValue, get_with(&[(b"x", b"a\nb")])),
        (StreamError::FieldSpace, get_with(&[(b"x", b" y")])),
        (StreamError::ConnectionField, get_with(&[(b"transfer-encoding", b"chunked")])),
        (StreamError::PseudoField, get_with(&[(b":status", b"200")])),
        (StreamError::PseudoOrder, get_with(&[(b"x", b"y"), (b":protocol", b"z")])),
        (StreamError::PseudoRepeated, get_with(&[(b":path", b"/")])),
        (StreamError::PseudoMissing, encode(HEADERS, WHOLE, 1, &without_path)),
        (StreamError::LengthInvalid, get_with(&[(b"content-length", b"-1")])),
        (StreamError::LengthsDiffer, get_with(&[(b"content-length", b"1"), (b"content-length", b"2")])),
        (StreamError::ContentTooLong, content(b"1", b"ab", 0)),
        (StreamError::ContentTooShort, content(b"3", b"ab", END_STREAM)),
        (StreamError::TrailersOpen, then(HEADERS, END_HEADERS, &literal(b"x", b"y"))),
        (StreamError::SectionTooLarge, then(HEADERS, WHOLE, &large)),
        (StreamError::FrameTooLarge, then(DATA, 0, &[0; 16_385])),
        (StreamError::FrameLength, then(PRIORITY, 0, &[0; 4])),
        (StreamError::SelfDependency, encode(HEADERS, WHOLE | WITH_PRIORITY, 1, &on_itself)),
        (StreamError::WindowOverflow, [post(&[]), update(1, 0x7fff_ffff)].concat()),
        (StreamError::WindowIncrement, [post(&[]), update(1, 0)].concat()),
        (StreamError::FieldName, [full, encode(HEADERS, WHOLE, 1, &literal(b"X", b"y"))].concat()),
    ]
}

/// Connection errors, with bytes that cause them after the preface and SETTINGS.
fn connection_errors() -> Vec<(ConnectionError, Vec<u8>)> {
    let get = || get_with(&[]);
    let begun = || encode(HEADERS, END_STREAM, 1, &request("GET", "/1k"));
    let priority = |id: u32| encode(PRIORITY_UPDATE, 0, 0, &[&id.to_be_bytes()[..], b"u=1"].concat());
    vec![
        (ConnectionError::FrameTooLarge, encode(HEADERS, WHOLE, 1, &[0; 16_385])),
        (ConnectionError::FrameLength, encode(PING, 0, 0, &[0; 7])),
        (ConnectionError::Padding, then(DATA, PADDED, &[2, 0])),
        (ConnectionError::SectionInterrupted, [begun(), encode(PING, 0, 0, &[0; 8])].concat()),
        (ConnectionError::Continuation, encode(CONTINUATION, END_HEADERS, 1, &[])),
        (ConnectionError::StreamMissing, encode(DATA, 0, 0, b"x")),
        (ConnectionError::StreamForbidden, encode(PING, 0, 1, &[0; 8])),
        (ConnectionError::PushPromise, encode(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2])),
        (ConnectionError::StreamId, encode(HEADERS, WHOLE, 2, &request("GET", "/1k"))),
        (ConnectionError::StreamIdle, encode(DATA, 0, 1, b"x")),
        (ConnectionError::StreamClosed, [then(RST_STREAM, 0, &[0, 0, 0, 8]), get()].concat()),
        (ConnectionError::SelfDependency, encode(PRIORITY, 0, 5, &[0, 0, 0, 5, 1])),
        (ConnectionError::WindowOverflow, update(0, 0x7fff_ffff)),
        (ConnectionError::WindowIncrement, update(0, 0)),
        (ConnectionError::SettingValue, encode(SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 2])),
        (ConnectionError::SettingWindow, encode(SETTINGS, 0, 0, &[0, 4, 0x80, 0, 0, 0])),
        (ConnectionError::PriorityId, priority(2)),
        (ConnectionError::SectionInvalid, encode(HEADERS, WHOLE, 1, &[0xfe])),
    ]
}

fn serve(folder: &crate::e2e::harness::Folder) -> (Server, std::path::PathBuf) {
    let log = folder.path().join(".log");
    (Server::start(folder.path(), &["--h2c", "--access-log", log.to_str().unwrap()]), log)
}

/// The number of lines in the log that contain `name`.
fn lines_with(log: &str, name: &str) -> usize {
    log.lines().filter(|line| line.split(' ').any(|word| word == name)).count()
}

#[test]
fn stream_errors_end_only_their_stream() {
    let folder = site();
    let (server, log) = serve(&folder);
    let cases = stream_errors();
    for (error, bytes) in &cases {
        let mut client = Client::connect(&server, &[]);
        client.send(bytes);
        let reset = client.frame_like(error.name(), |frame| frame.kind == RST_STREAM);
        assert_eq!((reset.stream, reset.number(0)), (1, error.number()), "{error:?}");
        // The connection stays open.
        client.get(3, "/1k");
        client.frame_like("the next response's end", |frame| frame.stream == 3 && frame.ends_stream());
    }
    let (_, text) = server.stop();
    let log = fs::read_to_string(log).unwrap();
    for (error, _) in &cases {
        let count = cases.iter().filter(|(other, _)| other == error).count();
        let found = (count_of(&text, error.name()), lines_with(&log, error.name()));
        assert_eq!(found, (count as u64, count), "{error:?}: {text}\n{log}");
    }
    assert_eq!(count_of(&text, "http2_streams_cut"), cases.len() as u64, "{text}");
}

#[test]
fn connection_errors_end_the_connection() {
    let folder = site();
    let (server, log) = serve(&folder);
    let cases = connection_errors();
    for (error, bytes) in &cases {
        let mut client = Client::connect(&server, &[]);
        client.send(bytes);
        let goaway = client.frame_like(error.name(), |frame| frame.kind == GOAWAY);
        assert_eq!(goaway.number(4), error.number(), "{error:?}");
        while client.frame().is_some() {}
    }
    // A frame other than SETTINGS after the preface.
    let mut stream = server.connect();
    stream.write_all(&[PREFACE, &encode(PING, ACK, 0, &[0; 8])].concat()).unwrap();
    let received = crate::e2e::harness::read_to_end(&mut stream);
    assert!(received.ends_with(&encode(GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 1])), "{received:?}");
    let (_, text) = server.stop();
    let log = fs::read_to_string(log).unwrap();
    let names = cases.iter().map(|(error, _)| *error).chain([ConnectionError::Preface]);
    for error in names {
        let found = (count_of(&text, error.name()), lines_with(&log, error.name()));
        assert_eq!(found, (1, 1), "{error:?}: {text}\n{log}");
    }
    assert_eq!(count_of(&text, "closed_h2_protocol"), cases.len() as u64 + 1, "{text}");
    // All other errors are floods, errors of servers, or errors about windows that this server keeps open.
    let missing: Vec<_> = ConnectionError::ALL
        .iter()
        .filter(|error| error.code() != ErrorCode::EnhanceYourCalm && !cases.iter().any(|(other, _)| other == *error))
        .collect();
    let elsewhere = [ConnectionError::Preface, ConnectionError::WindowExceeded, ConnectionError::PriorityUpdate];
    assert_eq!(missing, elsewhere.iter().collect::<Vec<_>>());
}
