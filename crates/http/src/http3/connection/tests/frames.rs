//! Every type of frame in every state of every kind of stream, also truncated and with wrong lengths; every QPACK
//! instruction; and the end of every stream. For both roles.

use super::{CONTROL, ConnectionError, Role, Side, client, frame, headers, request, section, server, varint};
use crate::http2::error::StreamError;
use crate::http3::error::ErrorCode;
use crate::http3::frame::{FrameHead, kind};
use std::collections::BTreeSet;

/// A valid frame of each type: its type, its name and its payload. The payload of HEADERS is a trailer section.
fn types() -> [(u64, &'static str, Vec<u8>); 15] {
    [
        (kind::DATA, "DATA", b"content".to_vec()),
        (kind::HEADERS, "HEADERS", section(&[("x", "y")])),
        (2, "PRIORITY", vec![0; 5]),
        (kind::CANCEL_PUSH, "CANCEL_PUSH", vec![0]),
        (kind::SETTINGS, "SETTINGS", vec![6, 0x40, 100]),
        (kind::PUSH_PROMISE, "PUSH_PROMISE", [&[0][..], &section(&[("x", "y")])].concat()),
        (6, "PING", vec![0; 8]),
        (kind::GOAWAY, "GOAWAY", vec![8]),
        (8, "WINDOW_UPDATE", vec![0, 0, 0, 1]),
        (9, "CONTINUATION", vec![0]),
        (kind::MAX_PUSH_ID, "MAX_PUSH_ID", vec![8]),
        (kind::PRIORITY_UPDATE_REQUEST, "PRIORITY_UPDATE", b"\x00u=1".to_vec()),
        (kind::PRIORITY_UPDATE_PUSH, "PRIORITY_UPDATE_PUSH", b"\x00u=1".to_vec()),
        (0x21 + 0x1f * 3, "reserved", b"anything".to_vec()),
        (0x40, "unknown", b"anything".to_vec()),
    ]
}

/// The stream on which a frame arrives, and its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A control stream of which only the type has arrived.
    First,
    /// A control stream with SETTINGS.
    Control,
    /// A request stream, before the head.
    Head,
    /// A request stream after the head. For clients, an interim response preceded the head.
    Content,
    /// After the trailers.
    End,
    /// After the head of a CONNECT; for servers.
    Tunnel,
    /// A push stream.
    Push,
    /// The QPACK encoder stream.
    Encoder,
    /// The QPACK decoder stream.
    Decoder,
    /// A unidirectional stream of an unknown type.
    Unknown,
}

const STATES: [State; 10] = [
    State::First,
    State::Control,
    State::Head,
    State::Content,
    State::End,
    State::Tunnel,
    State::Push,
    State::Encoder,
    State::Decoder,
    State::Unknown,
];

/// Returns a connection of `role` with a stream in `state`, and the identifier of the stream.
///
/// # Errors
/// What precedes the frame already causes an error.
fn side_in(role: Role, state: State) -> Result<(Side, u64), ConnectionError> {
    let is_server = role == Role::Server;
    let mut side = match role {
        _ if state == State::First => Side::new(role),
        Role::Server => server(),
        Role::Client => client(),
    };
    let head = match role {
        Role::Server if state == State::Tunnel => headers(&[(":method", "CONNECT"), (":authority", "a:1")]),
        Role::Server => request("POST", &[]),
        Role::Client => [headers(&[(":status", "103")]), headers(&[(":status", "200")])].concat(),
    };
    let control = if is_server { CONTROL } else { CONTROL + 1 };
    let (id, bytes) = match state {
        State::First => (control, vec![0]),
        State::Control => return Ok((side, control)),
        State::Head => (0, Vec::new()),
        State::Content | State::Tunnel => (0, head),
        State::End => (0, [head, headers(&[("x", "y")])].concat()),
        State::Push => (control + 12, vec![1]),
        State::Encoder => (control + 4, vec![2]),
        State::Decoder => (control + 8, vec![3]),
        State::Unknown => (control + 12, varint(0x21)),
    };
    side.give((id, &bytes, false), usize::MAX)?;
    Ok((side, id))
}

/// Returns `ok`, the name of the error in the events, or the name of the error that ended the connection.
fn name_in(found: Result<Vec<String>, ConnectionError>) -> &'static str {
    match found {
        Ok(events) => {
            let mut words = events.iter().filter_map(|event| event.split(' ').next_back());
            let error = words.find_map(|word| StreamError::ALL.iter().find(|error| error.name() == word));
            error.map_or("ok", |error| error.name())
        }
        Err(error) => error.name(),
    }
}

/// Returns `ok`, or the name of the error that `input` causes in `state`. The result must be the same for the whole
/// input and byte by byte.
fn verdict(role: Role, state: State, input: &[u8], fin: bool) -> &'static str {
    let of = |piece_bytes: usize| match side_in(role, state) {
        Ok((mut side, id)) => {
            let found = side.feed(id, input, fin, piece_bytes);
            assert_eq!(side.connection.has_failed(), found.is_err());
            name_in(found)
        }
        Err(error) => error.name(),
    };
    let whole = of(usize::MAX);
    assert_eq!(of(1), whole, "{role:?} {state:?} {input:?}");
    whole
}

type Row = (&'static str, [&'static str; STATES.len()]);

/// Returns the errors of all frame types in all states. `input` creates the bytes of a frame and says whether they end
/// the stream.
fn rows(role: Role, input: impl Fn(u64, &[u8]) -> (Vec<u8>, bool)) -> Vec<Row> {
    let row = |(kind, name, payload): (u64, &'static str, Vec<u8>)| {
        let (input, fin) = input(kind, &payload);
        (name, STATES.map(|state| verdict(role, state, &input, fin)))
    };
    types().into_iter().map(row).collect()
}

fn valid_rows(role: Role) -> Vec<Row> {
    rows(role, |kind, payload| (frame(kind, payload), false))
}

/// Abbreviations used in the tables.
const SHORT: [(&str, &str); 9] = [
    ("MISSING", "h3_missing_settings"),
    ("CONTROL", "h3_control_frame"),
    ("REQUEST", "h3_request_frame"),
    ("HTTP2", "h3_http2_frame"),
    ("TRUNCATED", "h3_frame_truncated"),
    ("LENGTH", "h3_frame_length"),
    ("CLOSED", "h3_critical_stream_closed"),
    ("ENCODER", "h3_encoder_instruction"),
    ("DECODER", "h3_decoder_instruction"),
];

fn check(what: &str, found: &[String], expected: &str) {
    let short = |line: &String| {
        let word = |word| SHORT.iter().find(|(_, name)| *name == word).map_or(word, |(short, _)| *short);
        line.split(' ').map(word).collect::<Vec<_>>().join(" ")
    };
    let found: Vec<String> = found.iter().map(short).collect();
    let expected: Vec<&str> = expected.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(found, expected, "{what}; found:\n{}", found.join("\n"));
}

/// Returns the cells of `rows` that differ from those of `before`: frame type, state and error.
fn changes(before: &[Row], rows: &[Row]) -> Vec<String> {
    let mut changes = Vec::new();
    for ((name, cells), (_, old)) in rows.iter().zip(before) {
        let changed = STATES.iter().zip(cells).zip(old).filter(|((_, cell), old)| cell != old);
        changes.extend(changed.map(|((state, cell), _)| format!("{name} {state:?} {cell}")));
    }
    changes
}

#[test]
fn every_type_in_every_state_of_a_servers_streams() {
    let lines: Vec<String> =
        valid_rows(Role::Server).iter().map(|(name, cells)| format!("{name} {}", cells.join(" "))).collect();
    check("server", &lines, SERVER_STATES);
}

#[test]
fn every_type_in_every_state_of_a_clients_streams() {
    let found = changes(&valid_rows(Role::Server), &valid_rows(Role::Client));
    check("client instead of server", &found, CLIENT_CHANGES);
}

#[test]
fn every_type_with_a_wrong_length() {
    type Change = fn(u64, &[u8]) -> (Vec<u8>, bool);
    let variants: [(&str, Change, &str); 6] = [
        ("the stream ends after the frame", |kind, payload| (frame(kind, payload), true), ENDS),
        (
            "the stream ends a byte before the end of the frame",
            |kind, payload| {
                let mut bytes = frame(kind, payload);
                bytes.pop();
                (bytes, true)
            },
            CUT,
        ),
        ("no payload", |kind, _| (frame(kind, &[]), false), EMPTY),
        ("a byte less", |kind, payload| (frame(kind, &payload[..payload.len() - 1]), false), SHORTER),
        ("a byte more", |kind, payload| (frame(kind, &[payload, &[0]].concat()), false), LONGER),
        (
            "2^40 bytes",
            |kind, payload| {
                let mut bytes = Vec::new();
                FrameHead { kind, payload_bytes: 1 << 40 }.append_to(&mut bytes);
                bytes.extend_from_slice(payload);
                (bytes, false)
            },
            OVERSIZED,
        ),
    ];
    for (what, change, expected) in variants {
        check(what, &changes(&valid_rows(Role::Server), &rows(Role::Server, change)), expected);
    }
    // A client differs in the same cells as with valid frames, because it forbids the same frames whatever their
    // length. Only servers have tunnels, and a response without a head has a separate error.
    let known: BTreeSet<&str> = CLIENT_CHANGES.lines().filter(|line| !line.contains("Tunnel ok")).collect();
    for (what, change, _) in variants {
        let differ: Vec<String> = changes(&rows(Role::Server, change), &rows(Role::Client, change))
            .into_iter()
            .map(|line| line.replace("h3_control_frame", "CONTROL"))
            .filter(|line| !line.starts_with("HEADERS Tunnel ") && !line.ends_with("Head stream_pseudo_missing"))
            .collect();
        let differ: BTreeSet<&str> = differ.iter().map(String::as_str).collect();
        let known: BTreeSet<&str> = known.iter().copied().filter(|line| !line.is_empty()).collect();
        assert_eq!(differ, known, "{what}");
    }
}

#[test]
fn every_instruction_of_qpack() {
    // The complete instruction; the instruction without its last byte, where the stream ends; and the instruction with
    // an index, a length or a number that is too large.
    let instructions: [(&str, State, &[u8], &[u8]); 8] = [
        ("capacity", State::Encoder, &[0x3f, 0x01], &[0x3f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        ("insert, static name", State::Encoder, &[0x3f, 0x61, 0xc1, 1, b'v'], &[0x3f, 0x61, 0xff, 0x7f, 1, b'v']),
        (
            "insert, own name",
            State::Encoder,
            &[0x3f, 0x61, 0xc1, 1, b'v', 0x80, 1, b'w'],
            &[0x3f, 0x61, 0xbf, 0x7f, 1, b'v'],
        ),
        ("insert, literal name", State::Encoder, &[0x3f, 0x61, 0x41, b'n', 1, b'v'], &[0x3f, 0x61, 0x5f, 0xff, 0x7f]),
        ("duplicate", State::Encoder, &[0x3f, 0x61, 0xc1, 1, b'v', 0], &[0x3f, 0x61, 0x1f, 0xff, 0x7f]),
        ("acknowledgment", State::Decoder, &[0x80], &[0xff, 0xff, 0x7f]),
        ("cancellation", State::Decoder, &[0x7f, 0x01], &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        ("increment", State::Decoder, &[0x01], &[0x3f, 0xff, 0x7f]),
    ];
    for role in [Role::Server, Role::Client] {
        let found = instructions.map(|(name, state, bytes, large)| {
            let of = |bytes: &[u8], fin| verdict(role, state, bytes, fin);
            format!("{name}: {} {} {}", of(bytes, false), of(&bytes[..bytes.len() - 1], true), of(large, false))
        });
        check(&format!("{role:?}"), &found, INSTRUCTIONS);
    }
}

#[test]
fn every_end_of_a_stream() {
    for role in [Role::Server, Role::Client] {
        let found = STATES.map(|state| {
            let of = |end: fn(&mut Side, u64) -> Result<Vec<String>, ConnectionError>| match side_in(role, state) {
                Ok((mut side, id)) => name_in(end(&mut side, id)),
                Err(error) => error.name(),
            };
            let fin = of(|side, id| side.feed(id, &[], true, 1));
            let reset = of(|side, id| side.connection.handle_reset(0, id, 0x10c).map(|_| Vec::new()));
            // STOP_SENDING concerns the other direction. For a unidirectional stream, use the corresponding stream of
            // this side.
            let stopped = of(|side, id| {
                let id = if id & 2 == 0 { id } else { id ^ 1 };
                side.connection.handle_stopped(0, id, 0x10c).map(|_| Vec::new())
            });
            format!("{state:?} {fin} {reset} {stopped}")
        });
        let expected = match role {
            Role::Server => ENDINGS.to_owned(),
            Role::Client => ENDINGS
                .replace("Push h3_push_stream h3_push_stream h3_push_stream", "Push PUSHED PUSHED PUSHED")
                .replace("PUSHED", "h3_push_forbidden")
                .replace("Head stream_incomplete", "Head stream_pseudo_missing"),
        };
        check(&format!("{role:?}: end, reset, STOP_SENDING"), &found, &expected);
    }
}

/// The error code that RFC 9114, RFC 9204 and RFC 9218 define for each error in these tables, listed independently of
/// the table in the product.
const CODES: [(&str, &str); 26] = [
    // RFC 9114 §6.2.1, §7.2.4.
    ("h3_missing_settings", "H3_MISSING_SETTINGS"),
    ("h3_settings_repeated", "H3_FRAME_UNEXPECTED"),
    // §7.2.1 to §7.2.8: frames on the wrong stream, and frames of HTTP/2.
    ("h3_control_frame", "H3_FRAME_UNEXPECTED"),
    ("h3_request_frame", "H3_FRAME_UNEXPECTED"),
    ("h3_http2_frame", "H3_FRAME_UNEXPECTED"),
    // §4.1: invalid sequences of frames.
    ("h3_data_first", "H3_FRAME_UNEXPECTED"),
    ("h3_after_trailers", "H3_FRAME_UNEXPECTED"),
    // §7.1.
    ("h3_frame_truncated", "H3_FRAME_ERROR"),
    ("h3_frame_length", "H3_FRAME_ERROR"),
    // §6.2.2, §4.6, §7.2.3, §7.2.5.
    ("h3_push_stream", "H3_STREAM_CREATION_ERROR"),
    ("h3_push_forbidden", "H3_ID_ERROR"),
    ("h3_push_id", "H3_ID_ERROR"),
    // RFC 9218 §7.2.
    ("h3_priority_id", "H3_ID_ERROR"),
    // RFC 9114 §6.2.1, RFC 9204 §4.2.
    ("h3_critical_stream_closed", "H3_CLOSED_CRITICAL_STREAM"),
    // RFC 9204 §6.
    ("h3_section_invalid", "QPACK_DECOMPRESSION_FAILED"),
    ("h3_encoder_instruction", "QPACK_ENCODER_STREAM_ERROR"),
    ("h3_decoder_instruction", "QPACK_DECODER_STREAM_ERROR"),
    // RFC 9114 §10.5.
    ("h3_section_excess", "H3_EXCESSIVE_LOAD"),
    ("h3_frame_excess", "H3_EXCESSIVE_LOAD"),
    // RFC 9114 §7.2.4.1, §5.2, §6.1, §6.2.1: tested in `vectors`.
    ("h3_setting_repeated", "H3_SETTINGS_ERROR"),
    ("h3_setting_reserved", "H3_SETTINGS_ERROR"),
    ("h3_setting_value", "H3_SETTINGS_ERROR"),
    ("h3_stream_repeated", "H3_STREAM_CREATION_ERROR"),
    ("h3_server_stream", "H3_STREAM_CREATION_ERROR"),
    // RFC 9114 §4.1, §4.1.2.
    ("stream_incomplete", "H3_REQUEST_INCOMPLETE"),
    ("stream_pseudo_missing", "H3_MESSAGE_ERROR"),
];

#[test]
fn every_error_of_the_tables_has_the_code_of_its_rfc() {
    let tables = [SERVER_STATES, CLIENT_CHANGES, ENDS, CUT, EMPTY, SHORTER, LONGER, OVERSIZED, INSTRUCTIONS, ENDINGS];
    let long = |word| SHORT.iter().find(|(short, _)| *short == word).map_or(word, |(_, name)| *name);
    let names: BTreeSet<&str> = tables.iter().flat_map(|table| table.split_whitespace()).map(long).collect();
    let code_of = |name: &str| {
        let of_stream = StreamError::ALL.iter().find(|error| error.name() == name).map(|error| ErrorCode::from(*error));
        let of_connection = ConnectionError::ALL.iter().find(|error| error.name() == name).map(|error| error.code());
        of_stream.or(of_connection)
    };
    for name in names.iter().filter(|name| name.starts_with("h3_") || name.starts_with("stream_")) {
        assert!(CODES.iter().any(|(known, _)| known == name), "{name}");
    }
    for (name, code) in CODES {
        assert_eq!(code_of(name).map(ErrorCode::name), Some(code), "{name}");
    }
}

/// Columns as in [`STATES`].
const SERVER_STATES: &str = "
DATA MISSING CONTROL h3_data_first ok h3_after_trailers ok h3_push_stream ENCODER DECODER ok
HEADERS MISSING CONTROL stream_pseudo_missing ok h3_after_trailers REQUEST h3_push_stream ENCODER DECODER ok
PRIORITY MISSING HTTP2 HTTP2 HTTP2 HTTP2 HTTP2 h3_push_stream ENCODER DECODER ok
CANCEL_PUSH MISSING h3_push_id REQUEST REQUEST REQUEST REQUEST h3_push_stream ENCODER DECODER ok
SETTINGS ok h3_settings_repeated REQUEST REQUEST REQUEST REQUEST h3_push_stream ENCODER DECODER ok
PUSH_PROMISE MISSING CONTROL REQUEST REQUEST REQUEST REQUEST h3_push_stream ENCODER DECODER ok
PING MISSING HTTP2 HTTP2 HTTP2 HTTP2 HTTP2 h3_push_stream ENCODER DECODER ok
GOAWAY MISSING ok REQUEST REQUEST REQUEST REQUEST h3_push_stream ENCODER DECODER ok
WINDOW_UPDATE MISSING HTTP2 HTTP2 HTTP2 HTTP2 HTTP2 h3_push_stream ENCODER DECODER ok
CONTINUATION MISSING HTTP2 HTTP2 HTTP2 HTTP2 HTTP2 h3_push_stream ENCODER DECODER ok
MAX_PUSH_ID MISSING ok REQUEST REQUEST REQUEST REQUEST h3_push_stream ENCODER DECODER ok
PRIORITY_UPDATE MISSING ok REQUEST REQUEST REQUEST REQUEST h3_push_stream ok DECODER ok
PRIORITY_UPDATE_PUSH MISSING h3_priority_id REQUEST REQUEST REQUEST REQUEST h3_push_stream ok DECODER ok
reserved MISSING ok ok ok ok ok h3_push_stream ok DECODER ok
unknown MISSING ok ok ok ok ok h3_push_stream ok DECODER ok
";
const CLIENT_CHANGES: &str = "
DATA Push h3_push_forbidden
HEADERS Tunnel ok
HEADERS Push h3_push_forbidden
PRIORITY Push h3_push_forbidden
CANCEL_PUSH Push h3_push_forbidden
SETTINGS Push h3_push_forbidden
PUSH_PROMISE Head h3_push_forbidden
PUSH_PROMISE Content h3_push_forbidden
PUSH_PROMISE End h3_push_forbidden
PUSH_PROMISE Tunnel h3_push_forbidden
PUSH_PROMISE Push h3_push_forbidden
PING Push h3_push_forbidden
GOAWAY Push h3_push_forbidden
WINDOW_UPDATE Push h3_push_forbidden
CONTINUATION Push h3_push_forbidden
MAX_PUSH_ID Control CONTROL
MAX_PUSH_ID Push h3_push_forbidden
PRIORITY_UPDATE Control CONTROL
PRIORITY_UPDATE Push h3_push_forbidden
PRIORITY_UPDATE_PUSH Control CONTROL
PRIORITY_UPDATE_PUSH Push h3_push_forbidden
reserved Push h3_push_forbidden
unknown Push h3_push_forbidden
";
const ENDS: &str = "
SETTINGS First CLOSED
GOAWAY Control CLOSED
MAX_PUSH_ID Control CLOSED
PRIORITY_UPDATE Control CLOSED
PRIORITY_UPDATE Encoder CLOSED
PRIORITY_UPDATE_PUSH Encoder CLOSED
reserved Control CLOSED
reserved Head stream_incomplete
reserved Encoder CLOSED
unknown Control CLOSED
unknown Head stream_incomplete
unknown Encoder CLOSED
";
const CUT: &str = "
DATA Content TRUNCATED
DATA Tunnel TRUNCATED
HEADERS Head TRUNCATED
HEADERS Content TRUNCATED
CANCEL_PUSH Control CLOSED
SETTINGS First CLOSED
GOAWAY Control CLOSED
MAX_PUSH_ID Control CLOSED
PRIORITY_UPDATE Control CLOSED
PRIORITY_UPDATE Encoder CLOSED
PRIORITY_UPDATE_PUSH Control CLOSED
PRIORITY_UPDATE_PUSH Encoder CLOSED
reserved Control CLOSED
reserved Head TRUNCATED
reserved Content TRUNCATED
reserved End TRUNCATED
reserved Tunnel TRUNCATED
reserved Encoder CLOSED
unknown Control CLOSED
unknown Head TRUNCATED
unknown Content TRUNCATED
unknown End TRUNCATED
unknown Tunnel TRUNCATED
unknown Encoder CLOSED
";
const EMPTY: &str = "
HEADERS Head h3_section_invalid
HEADERS Content h3_section_invalid
CANCEL_PUSH Control LENGTH
GOAWAY Control LENGTH
MAX_PUSH_ID Control LENGTH
PRIORITY_UPDATE Control LENGTH
PRIORITY_UPDATE_PUSH Control LENGTH
";
const SHORTER: &str = "
HEADERS Head h3_section_invalid
HEADERS Content h3_section_invalid
CANCEL_PUSH Control LENGTH
SETTINGS First LENGTH
GOAWAY Control LENGTH
MAX_PUSH_ID Control LENGTH
";
const LONGER: &str = "
HEADERS Head h3_section_invalid
HEADERS Content h3_section_invalid
CANCEL_PUSH Control LENGTH
SETTINGS First LENGTH
GOAWAY Control LENGTH
MAX_PUSH_ID Control LENGTH
";
const OVERSIZED: &str = "
HEADERS Head h3_section_excess
HEADERS Content h3_section_excess
CANCEL_PUSH Control h3_frame_excess
SETTINGS First h3_frame_excess
GOAWAY Control h3_frame_excess
MAX_PUSH_ID Control h3_frame_excess
PRIORITY_UPDATE Control h3_frame_excess
PRIORITY_UPDATE_PUSH Control h3_frame_excess
";
const INSTRUCTIONS: &str = "
capacity: ok CLOSED ENCODER
insert, static name: ok CLOSED ENCODER
insert, own name: ok CLOSED ENCODER
insert, literal name: ok CLOSED ENCODER
duplicate: ok CLOSED ENCODER
acknowledgment: DECODER CLOSED DECODER
cancellation: ok CLOSED DECODER
increment: DECODER CLOSED DECODER
";
const ENDINGS: &str = "
First CLOSED CLOSED CLOSED
Control CLOSED CLOSED CLOSED
Head stream_incomplete ok ok
Content ok ok ok
End ok ok ok
Tunnel ok ok ok
Push h3_push_stream h3_push_stream h3_push_stream
Encoder CLOSED CLOSED CLOSED
Decoder CLOSED CLOSED CLOSED
Unknown ok ok CLOSED
";
