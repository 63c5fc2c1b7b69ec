//! Every type of frame in every state of its stream, on wrong streams, and with wrong lengths, for both roles.

use super::{Connection, ConnectionError, Role, fields, frame, frames, give, request};
use crate::http2::error::StreamError;
use crate::http2::frame::{ErrorCode, PREFACE, flag, kind};
use std::collections::BTreeSet;

/// A valid frame of each type: its type, its name, its flags and its payload.
fn types() -> [(u8, &'static str, u8, Vec<u8>); 12] {
    let end = flag::END_HEADERS | flag::END_STREAM;
    [
        (kind::DATA, "DATA", 0, b"content".to_vec()),
        (kind::HEADERS, "HEADERS", end, fields(&[("x", "y")])),
        (kind::PRIORITY, "PRIORITY", 0, vec![0, 0, 0, 9, 1]),
        (kind::RST_STREAM, "RST_STREAM", 0, vec![0, 0, 0, 8]),
        (kind::SETTINGS, "SETTINGS", 0, vec![0, 4, 0, 0, 0, 1]),
        (kind::PUSH_PROMISE, "PUSH_PROMISE", flag::END_HEADERS, vec![0, 0, 0, 2]),
        (kind::PING, "PING", 0, vec![0; 8]),
        (kind::GOAWAY, "GOAWAY", 0, vec![0; 8]),
        (kind::WINDOW_UPDATE, "WINDOW_UPDATE", 0, vec![0, 0, 0, 1]),
        (kind::CONTINUATION, "CONTINUATION", flag::END_HEADERS, Vec::new()),
        (kind::PRIORITY_UPDATE, "PRIORITY_UPDATE", 0, vec![0, 0, 0, 1, b'u', b'=', b'1']),
        (0x77, "unknown", 0xff, b"anything".to_vec()),
    ]
}

/// The state of the connection and of stream 1 when a frame arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The frame arrives instead of the first SETTINGS.
    First,
    /// The stream has not been opened. For clients, this includes streams of the server.
    Idle,
    /// Both sides may send.
    Open,
    /// The peer has ended its side.
    Ended,
    /// Both sides have ended.
    Closed,
    /// The peer has reset the stream.
    ResetByPeer,
    /// This side has reset the stream.
    ResetByUs,
    /// A field section of the stream is incomplete.
    Section,
}

const STATES: [State; 8] = [
    State::First,
    State::Idle,
    State::Open,
    State::Ended,
    State::Closed,
    State::ResetByPeer,
    State::ResetByUs,
    State::Section,
];

/// A connection of `role`, with stream 1 in `state`.
fn connection_in(role: Role, state: State) -> Connection<u32> {
    let mut output = Vec::new();
    let mut connection = Connection::new(role, super::CONFIG, &mut output);
    let mut input = if role == Role::Server { PREFACE.to_vec() } else { Vec::new() };
    if state != State::First {
        input.extend(frame(kind::SETTINGS, 0, 0, &[]));
    }
    if role == Role::Client && !matches!(state, State::First | State::Idle) {
        connection.open(false).unwrap();
    }
    let head = if role == Role::Server { request("POST", &[]) } else { fields(&[(":status", "200")]) };
    let ends = if matches!(state, State::Ended | State::Closed) { flag::END_STREAM } else { 0 };
    let is_whole = if state == State::Section { 0 } else { flag::END_HEADERS };
    if !matches!(state, State::First | State::Idle) {
        input.extend(frame(kind::HEADERS, ends | is_whole, 1, &head));
    }
    if state == State::ResetByPeer {
        input.extend(frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 8]));
    }
    let (_, error) = give(&mut connection, &input, input.len(), &mut output);
    assert_eq!(error, None);
    match state {
        State::Closed => {
            connection.send_fields(1, true, &mut output, |_| {});
            assert!(!connection.is_open(1));
        }
        State::ResetByUs => {
            connection.reset(1, ErrorCode::Cancel, &mut output).unwrap();
        }
        _ => {}
    }
    connection
}

/// Returns `ok`, or the name of the error that `input` causes, after checking that its code was sent.
fn verdict(role: Role, state: State, input: &[u8]) -> &'static str {
    let of = |piece_bytes: usize| {
        let (mut connection, mut output) = (connection_in(role, state), Vec::new());
        let (events, error) = give(&mut connection, input, piece_bytes, &mut output);
        let sent = frames(&output);
        let code_of = |of: u8, at: usize| {
            let payload = sent.iter().rfind(|(kind, ..)| *kind == of).map(|(.., payload)| payload);
            payload.map(|payload| ErrorCode::from_number(u32::from_be_bytes(payload[at..at + 4].try_into().unwrap())))
        };
        if let Some(error) = error {
            assert_eq!(code_of(kind::GOAWAY, 4), Some(error.code()), "{error:?}");
            assert!(connection.has_failed());
            return error.name();
        }
        let mut names = events.iter().filter_map(|event| event.split(' ').next_back());
        let found = names.find_map(|name| StreamError::ALL.iter().find(|error| error.name() == name));
        assert_eq!(code_of(kind::RST_STREAM, 0), found.map(|error| error.code()), "{events:?}");
        found.map_or("ok", |error| error.name())
    };
    let whole = of(usize::MAX);
    assert_eq!(of(1), whole);
    whole
}

/// Compares `found`, which are rows of names, with `expected`.
fn check(what: &str, found: &[String], expected: &str) {
    let expected = ["WRONG h2_stream_forbidden", "PUSH h2_push_promise", "NONE h2_continuation"].iter().fold(
        expected.to_owned(),
        |expected, pair| {
            let (short, name) = pair.split_once(' ').unwrap();
            expected.replace(&format!(" {short}"), &format!(" {name}"))
        },
    );
    let expected: Vec<&str> = expected.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(found, expected, "{what}; found:\n{}", found.join("\n"));
}

/// Returns the errors that frames on `stream` cause in all states, with one row for each frame type.
fn rows(role: Role, stream: u32) -> Vec<String> {
    let row = |(kind, name, flags, payload): (u8, &str, u8, Vec<u8>)| {
        let input = frame(kind, flags, stream, &payload);
        let verdicts = STATES.map(|state| verdict(role, state, &input));
        format!("{name} {}", verdicts.join(" "))
    };
    types().into_iter().map(row).collect()
}

#[test]
fn every_type_in_every_state_of_a_servers_stream() {
    // First, Idle, Open, Ended, Closed, ResetByPeer, ResetByUs, Section.
    check("server", &rows(Role::Server, 1), SERVER_STATES);
}

#[test]
fn every_type_in_every_state_of_a_clients_stream() {
    let server = "HEADERS h2_preface stream_pseudo_missing";
    let client = "HEADERS h2_preface h2_stream_id";
    assert!(SERVER_STATES.contains(server));
    check("client", &rows(Role::Client, 1), &SERVER_STATES.replace(server, client));
}

#[test]
fn every_type_without_a_stream() {
    let rows = [Role::Server, Role::Client].map(|role| {
        types().map(|(kind, name, flags, payload)| {
            let found = verdict(role, State::Open, &frame(kind, flags, 0, &payload));
            format!("{name} {found}")
        })
    });
    check("a server without a stream", &rows[0], WITHOUT_STREAM);
    let of_client = WITHOUT_STREAM.replace("PRIORITY_UPDATE ok", "PRIORITY_UPDATE h2_priority_update");
    check("a client without a stream", &rows[1], &of_client);
}

#[test]
fn every_type_on_a_stream_that_the_peer_may_not_open() {
    // A client's streams are odd, and a server that pushes nothing opens no streams.
    for (role, stream) in [(Role::Server, 2), (Role::Client, 2), (Role::Client, 3)] {
        let found = types().map(|(kind, name, flags, payload)| {
            let found = verdict(role, State::Open, &frame(kind, flags, stream, &payload));
            format!("{name} {found}")
        });
        check(&format!("{role:?} {stream}"), &found, WRONG_STREAM);
    }
}

#[test]
fn every_type_with_a_wrong_length() {
    for role in [Role::Server, Role::Client] {
        let found = types().map(|(kind, name, flags, payload)| {
            let stream = match kind {
                kind::SETTINGS | kind::PING | kind::GOAWAY | kind::PRIORITY_UPDATE => 0,
                _ => 1,
            };
            let state = if kind == kind::CONTINUATION { State::Section } else { State::Open };
            let of = |payload: &[u8]| verdict(role, state, &frame(kind, flags, stream, payload)).to_owned();
            let short = payload.len().saturating_sub(1);
            let long = [&payload[..], &[0]].concat();
            format!("{name} {} {} {} {}", of(&[]), of(&payload[..short]), of(&long), of(&vec![0; 16_385]))
        });
        let expected = match role {
            Role::Server => LENGTHS.to_owned(),
            // A client accepts no such frame, whatever its length.
            Role::Client => LENGTHS.replace(
                "PRIORITY_UPDATE h2_frame_length ok ok h2_frame_too_large",
                "PRIORITY_UPDATE h2_frame_length h2_priority_update h2_priority_update h2_frame_too_large",
            ),
        };
        check(&format!("{role:?}: empty, a byte less, a byte more, 16,385 bytes"), &found, &expected);
    }
}

/// This table and the cases of RFC 9113 cause every error that a server can report, except floods, which have separate
/// tests.
#[test]
fn every_error_is_brought_about() {
    let grids = [SERVER_STATES, WITHOUT_STREAM, WRONG_STREAM, LENGTHS].concat();
    let cases = include_str!("rfc9113.txt");
    let mut names: BTreeSet<&str> = grids.split_whitespace().collect();
    names.extend(cases.split_whitespace());
    let missing: Vec<&str> = ConnectionError::ALL
        .iter()
        .filter(|error| error.code() != ErrorCode::EnhanceYourCalm)
        .map(|error| error.name())
        .filter(|name| !names.contains(name) && !names.contains(name))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    let missing: Vec<&str> = StreamError::ALL
        .iter()
        .filter(|error| error.is_of_http2())
        .map(|error| error.name())
        .filter(|name| !names.contains(name))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Columns as in [`STATES`].
const SERVER_STATES: &str = "
DATA h2_preface h2_stream_idle ok stream_closed h2_stream_closed h2_stream_closed ok h2_section_interrupted
HEADERS h2_preface stream_pseudo_missing ok stream_closed h2_stream_closed h2_stream_closed ok h2_section_interrupted
PRIORITY h2_preface ok ok ok ok ok ok h2_section_interrupted
RST_STREAM h2_preface h2_stream_idle ok ok ok ok ok h2_section_interrupted
SETTINGS WRONG WRONG WRONG WRONG WRONG WRONG WRONG h2_section_interrupted
PUSH_PROMISE h2_preface PUSH PUSH PUSH PUSH PUSH PUSH h2_section_interrupted
PING h2_preface WRONG WRONG WRONG WRONG WRONG WRONG h2_section_interrupted
GOAWAY h2_preface WRONG WRONG WRONG WRONG WRONG WRONG h2_section_interrupted
WINDOW_UPDATE h2_preface h2_stream_idle ok ok ok ok ok h2_section_interrupted
CONTINUATION h2_preface NONE NONE NONE NONE NONE NONE ok
PRIORITY_UPDATE h2_preface WRONG WRONG WRONG WRONG WRONG WRONG h2_section_interrupted
unknown h2_preface ok ok ok ok ok ok h2_section_interrupted
";

const WITHOUT_STREAM: &str = "
DATA h2_stream_missing
HEADERS h2_stream_missing
PRIORITY h2_stream_missing
RST_STREAM h2_stream_missing
SETTINGS ok
PUSH_PROMISE h2_push_promise
PING ok
GOAWAY ok
WINDOW_UPDATE ok
CONTINUATION h2_stream_missing
PRIORITY_UPDATE ok
unknown ok
";

const WRONG_STREAM: &str = "
DATA h2_stream_idle
HEADERS h2_stream_id
PRIORITY ok
RST_STREAM h2_stream_idle
SETTINGS h2_stream_forbidden
PUSH_PROMISE h2_push_promise
PING h2_stream_forbidden
GOAWAY h2_stream_forbidden
WINDOW_UPDATE h2_stream_idle
CONTINUATION h2_continuation
PRIORITY_UPDATE h2_stream_forbidden
unknown ok
";

/// The frame type, and the errors of a frame without payload, one byte too short, one byte too long, and with 16,385
/// bytes.
const LENGTHS: &str = "
DATA ok ok ok stream_frame_too_large
HEADERS ok h2_section_invalid h2_section_invalid h2_frame_too_large
PRIORITY stream_frame_length stream_frame_length stream_frame_length h2_frame_too_large
RST_STREAM h2_frame_length h2_frame_length h2_frame_length h2_frame_too_large
SETTINGS ok h2_frame_length h2_frame_length h2_frame_too_large
PUSH_PROMISE h2_push_promise h2_push_promise h2_push_promise h2_frame_too_large
PING h2_frame_length h2_frame_length h2_frame_length h2_frame_too_large
GOAWAY h2_frame_length h2_frame_length ok h2_frame_too_large
WINDOW_UPDATE h2_frame_length h2_frame_length h2_frame_length h2_frame_too_large
CONTINUATION ok ok h2_section_invalid h2_frame_too_large
PRIORITY_UPDATE h2_frame_length ok ok h2_frame_too_large
unknown ok ok ok h2_frame_too_large
";
