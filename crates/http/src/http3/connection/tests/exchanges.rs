use super::{
    CONTROL, ConnectionError, DECODER, ENCODER, Side, client, control, data, frame, frames, headers, request, server,
    varint,
};
use crate::framing::Version;
use crate::head::FieldStorage;
use crate::http2::connection::Role;
use crate::http2::fields::FieldBlock;
use crate::http3::connection::{Accepted, Connection, Event, OwnStream, PeerSettings};
use crate::http3::error::ErrorCode;
use crate::http3::frame::{FIXED_HEAD_BYTES, kind, stream_kind};
use crate::http3::qpack::{encode_field, encode_status};
use crate::limits::Limits;

fn give(side: &mut Side, id: u64, bytes: &[u8], fin: bool) -> Vec<String> {
    side.give((id, bytes, fin), usize::MAX).unwrap()
}

/// Two insertions: `x-a: 1` and `x-b: 2`.
const INSERTIONS: &[u8] = &[0x3f, 0xe1, 0x1f, 0x43, b'x', b'-', b'a', 1, b'1', 0x43, b'x', b'-', b'b', 1, b'2'];

/// Returns a request whose section needs `required` insertions and refers to the last of them.
fn referring_request(required: u8) -> Vec<u8> {
    let static_fields = [0xd1, 0xd7, 0xc1, 0x50, 1, b'a'];
    frame(kind::HEADERS, &[&[required + 1, 0][..], &static_fields, &[0x80]].concat())
}

#[test]
fn both_roles_understand_each_other() {
    let (mut client, mut server) = (Side::new(Role::Client), Side::new(Role::Server));
    for (own, id) in [(OwnStream::Control, 2), (OwnStream::Decoder, 6)] {
        let bytes = client.output(own);
        give(&mut server, id, &bytes, false);
        let bytes = server.output(own);
        give(&mut client, id + 1, &bytes, false);
    }
    assert!(client.connection.has_begun() && server.connection.has_begun());
    let settings = PeerSettings { section_bytes_max: 16 * 1024, connect_protocol: true };
    assert_eq!(client.connection.peer_settings(), settings);
    let mut to_server = Vec::new();
    client.connection.open(0, false);
    client.connection.send_fields(0, false, &mut to_server, |output| {
        for (name, value) in [(":method", "POST"), (":scheme", "https"), (":authority", "example.org"), (":path", "/a")]
        {
            encode_field(name.as_bytes(), value.as_bytes(), output);
        }
    });
    to_server.extend_from_slice(&client.connection.send_data(0, 3, false));
    to_server.extend_from_slice(b"abc");
    client.connection.send_fields(0, true, &mut to_server, |output| encode_field(b"x-end", b"1", output));
    assert_eq!(give(&mut server, 0, &to_server, true), ["request 0 false", "data 0 3 false", "trailers 0 x-end=1"]);
    let mut to_client = Vec::new();
    server.connection.send_fields(0, false, &mut to_client, |output| encode_status(103, output));
    server.connection.send_fields(0, false, &mut to_client, |output| encode_status(200, output));
    to_client.extend_from_slice(&server.connection.send_data(0, 2, true));
    to_client.extend_from_slice(b"ok");
    assert_eq!(
        client.feed(0, &to_client, true, 1).unwrap(),
        ["response 0 Some(103) false", "response 0 Some(200) false", "data 0 1 false", "data 0 1 true"]
    );
    assert!(client.connection.take_done(0).is_some());
    assert_eq!((client.connection.stream_count(), server.connection.stream_count()), (0, 0));
    assert!(!client.connection.has_output() && !server.connection.has_output());
}

#[test]
fn a_request_yields_the_head_of_http1() {
    let mut side = server();
    give(&mut side, 0, &request("GET", &[("cookie", "a=1"), ("x-a", "b"), ("cookie", "c=2")]), true);
    let mut storage = FieldStorage::new();
    let head = side.block.request_head(true, &Limits::DEFAULT, &mut storage).unwrap();
    assert_eq!((head.version, head.host, head.target_text), (Version::Http3, Some(&b"a"[..]), &b"/"[..]));
    let lines: Vec<_> = head.fields.iter().collect();
    assert_eq!(lines, [("x-a", &b"b"[..]), ("cookie", b"a=1; c=2")]);
    assert_eq!(side.block.request_line(), b"GET / HTTP/3.0\r\n");
}

#[test]
fn the_output_is_settings_and_then_what_is_sent() {
    let mut side = Side::new(Role::Server);
    let output = side.output(OwnStream::Control);
    assert_eq!(output[0], 0);
    assert_eq!(
        frames(&output[1..]),
        [(kind::SETTINGS, [&[1][..], &varint(4096), &[7, 16, 6], &varint(16_384), &[8, 1]].concat())]
    );
    assert!(side.output(OwnStream::Decoder).is_empty(), "nothing refers to the dynamic table");
    assert!(!side.connection.has_output());
    give(&mut side, 0, &request("GET", &[]), true);
    let mut output = Vec::new();
    side.connection.send_fields(0, false, &mut output, |output| encode_status(200, output));
    output.extend_from_slice(&side.connection.send_data(0, 2, true));
    output.extend_from_slice(b"ok");
    assert_eq!(output.len(), 2 * FIXED_HEAD_BYTES + 3 + 2);
    assert_eq!(frames(&output), [(kind::HEADERS, vec![0, 0, 0xd9]), (kind::DATA, b"ok".to_vec())]);
}

#[test]
fn blocked_sections_wait_for_their_insertions() {
    for piece_bytes in [1, 3, usize::MAX] {
        let mut side = server();
        let bytes = [&referring_request(2)[..], &data(b"abc")].concat();
        assert_eq!(side.connection.accept(0, 0), Ok(Accepted::Open));
        // The section is consumed, but the bytes after it are not.
        let mut rest = &bytes[..];
        assert_eq!(side.connection.handle(0, 0, &mut rest, true, &mut side.block), Ok(None));
        assert_eq!(rest, data(b"abc"));
        assert_eq!(give(&mut side, 4, &request("GET", &[]), true), ["request 4 true"], "another stream goes on");
        side.connection.accept(0, ENCODER).unwrap();
        let events = side.feed(ENCODER, &[&[2], INSERTIONS].concat(), false, piece_bytes).unwrap();
        assert_eq!(events, ["unblocked 0"]);
        let mut events = Vec::new();
        side.feed_piece(0, rest, true, &mut events).unwrap();
        assert_eq!(events, ["request 0 false x-b=2", "data 0 3 true"]);
        let output = side.output(OwnStream::Decoder);
        let (kind, feedback) = output.split_first().unwrap();
        assert_eq!(u64::from(*kind), stream_kind::DECODER);
        assert_eq!(feedback.last(), Some(&0x80), "an acknowledgment of stream 0");
        assert_eq!(feedback[..feedback.len() - 1].iter().map(|byte| u32::from(*byte)).sum::<u32>(), 2);
    }
}

#[test]
fn blocked_streams_and_stored_sections_are_bounded() {
    let mut side = server();
    for id in (0..16).map(|number| number * 4) {
        assert!(give(&mut side, id, &referring_request(1), true).is_empty());
    }
    let error = side.give((64, &referring_request(1), true), 1).unwrap_err();
    assert_eq!((error, error.code()), (ConnectionError::SectionsBlocked, ErrorCode::QpackDecompressionFailed));
    // Resets make room and are reported to the encoder.
    let mut side = server();
    for id in (0..100).map(|number| number * 4) {
        give(&mut side, id, &referring_request(1), true);
        let reset = side.connection.handle_reset(0, id, 0x10c).unwrap();
        assert_eq!(reset, Some(Event::Reset { stream: id, code: ErrorCode::RequestCancelled, error: None, data: 0 }));
    }
    assert_eq!(&side.output(OwnStream::Decoder)[..4], &[3, 0x40, 0x44, 0x48]);
    // Field sections that never end.
    let mut side = server();
    let long = [&[1][..], &varint(30_000), &vec![0; 25_000]].concat();
    assert!(give(&mut side, 0, &long, false).is_empty());
    assert_eq!(give(&mut side, 4, &long, false), ["reset 4 RequestRejected stream_sections_too_large"]);
    assert_eq!(give(&mut side, 8, &long[..5000], false), [""; 0]);
    assert_eq!(side.connection.section_bytes, 29_995);
    side.connection.reset(0);
    side.connection.stop_receiving(8);
    assert_eq!((side.connection.section_bytes, side.connection.stream_count()), (0, 1));
    assert_eq!(side.feed(8, &long, true, 1).unwrap(), [""; 0]);
}

#[test]
fn resets_and_stops_close_streams() {
    let mut side = server();
    give(&mut side, 0, &request("POST", &[]), false);
    *side.connection.get_mut(0).unwrap() = 7;
    let stopped = side.connection.handle_stopped(0, 0, 0x10c).unwrap();
    assert_eq!(stopped, Some(Event::Reset { stream: 0, code: ErrorCode::RequestCancelled, error: None, data: 7 }));
    assert_eq!(side.connection.handle_reset(0, 0, 0x10c), Ok(None), "it is closed");
    assert_eq!(side.feed(0, b"more", true, 1).unwrap(), [""; 0]);
    let mut side = client();
    side.connection.open(8, false);
    let stopped = side.connection.handle_stopped(0, 8, 0x100).unwrap();
    assert_eq!(stopped, Some(Event::Stopped { stream: 8, code: ErrorCode::NoError }));
    assert_eq!(side.feed(8, &headers(&[(":status", "200")]), true, 99).unwrap(), ["response 8 Some(200) true"]);
    assert!(side.connection.take_done(8).is_some());
    let reset = side.connection.handle_reset(0, 0, 0x10b).unwrap();
    assert!(matches!(reset, Some(Event::Reset { stream: 0, code: ErrorCode::RequestRejected, error: None, .. })));
}

#[test]
fn an_early_response_drops_the_rest_of_the_request() {
    let mut side = server();
    give(&mut side, 0, &request("POST", &[]), false);
    side.connection.send_fields(0, true, &mut Vec::new(), |output| encode_status(413, output));
    assert!(side.connection.is_receiving(0));
    side.connection.stop_receiving(0);
    assert!(!side.connection.is_open(0));
    assert_eq!(side.output(OwnStream::Decoder), [3, 0x40]);
    assert_eq!(side.feed(0, &data(b"late"), true, 1).unwrap(), [""; 0]);
}

#[test]
fn a_drain_lets_requests_in_flight_end() {
    let mut side = server();
    give(&mut side, 0, &request("GET", &[]), true);
    side.connection.drain();
    side.connection.drain();
    assert_eq!(frames(&side.output(OwnStream::Control)), [(kind::GOAWAY, varint((1 << 62) - 4))]);
    assert_eq!(give(&mut side, 4, &request("GET", &[]), true), ["request 4 true"]);
    side.connection.finish_drain();
    assert_eq!(frames(&side.output(OwnStream::Control)), [(kind::GOAWAY, varint(8))]);
    assert_eq!(give(&mut side, 8, &request("GET", &[]), true), ["refused 8"]);
    assert!(side.connection.is_leaving() && !side.connection.is_drained());
    for id in [0, 4] {
        side.connection.send_fields(id, true, &mut Vec::new(), |output| encode_status(200, output));
    }
    assert!(side.connection.is_drained());
    // A client opens no more streams.
    let mut side = client();
    assert!(side.connection.can_open());
    assert_eq!(side.feed(3, &frame(kind::GOAWAY, &[4]), false, 1).unwrap(), ["goaway 4"]);
    assert!(!side.connection.can_open());
}

#[test]
fn urgent_responses_go_first_and_incremental_ones_take_turns() {
    let mut side = server();
    // An update may precede its stream, and it overrides the Priority field.
    let update = |id: u64, value: &[u8]| frame(kind::PRIORITY_UPDATE_REQUEST, &[&varint(id), value].concat());
    side.feed(CONTROL, &update(0, b"u=5"), false, 1).unwrap();
    for (id, priority) in [(0, "u=1"), (4, "u=3, i"), (8, "u=3, i"), (12, "u=3")] {
        give(&mut side, id, &request("GET", &[("priority", priority)]), true);
    }
    let serve = |connection: &mut Connection<u32>, open: &[u64]| {
        let id = connection.next_sender(|id, _| open.contains(&id)).unwrap();
        connection.send_data(id, 1, false);
        id
    };
    let connection = &mut side.connection;
    assert_eq!((serve(connection, &[0, 4, 8, 12]), serve(connection, &[0, 4, 8, 12])), (12, 12));
    let turns: Vec<_> = (0..4).map(|_| serve(connection, &[0, 4, 8])).collect();
    assert_eq!((turns, serve(connection, &[0])), (vec![4, 8, 4, 8], 0));
    side.feed(CONTROL, &update(0, b"u=0"), false, 1).unwrap();
    assert_eq!((serve(&mut side.connection, &[0, 4, 8, 12]), side.connection.priority(0).urgency), (0, 0));
    // The number of stored priorities for streams that never arrive is limited.
    for id in 10..1000 {
        side.now_ms += 1000;
        side.feed(CONTROL, &update(id * 4, b"u=0"), false, 99).unwrap();
    }
    assert_eq!(side.connection.early_priorities.len(), 16);
}

/// Repeats `step` until the connection ends with `error`. Returns the number of repetitions.
fn times_until(
    side: &mut Side,
    error: ConnectionError,
    mut step: impl FnMut(&mut Side, u64) -> Result<(), ConnectionError>,
) -> u64 {
    for count in 1..=20_000 {
        if let Err(found) = step(side, count) {
            assert_eq!((found, found.code()), (error, ErrorCode::ExcessiveLoad));
            return count;
        }
    }
    panic!("{error:?} was never found");
}

#[test]
fn floods_end_the_connection() {
    let mut side = server();
    give(&mut side, 0, &request("POST", &[]), false);
    let empty = data(b"");
    let count =
        times_until(&mut side, ConnectionError::EmptyDataFlood, |side, _| side.feed(0, &empty, false, 99).map(drop));
    assert!(count < 200);
    let mut side = server();
    give(&mut side, 0, &request("POST", &[]), false);
    let reserved = frame(0x21, b"");
    let count =
        times_until(&mut side, ConnectionError::FrameFlood, |side, _| side.feed(0, &reserved, false, 99).map(drop));
    assert!(count < 1000);
    let mut side = server();
    times_until(&mut side, ConnectionError::FrameFlood, |side, _| side.feed(CONTROL, &reserved, false, 99).map(drop));
    let mut side = server();
    times_until(&mut side, ConnectionError::FrameFlood, |side, count| {
        side.give((2 + 16 * count, &[0x21], true), 99).map(drop)
    });
    let mut side = server();
    let update = frame(kind::PRIORITY_UPDATE_REQUEST, b"\0u=1");
    times_until(&mut side, ConnectionError::FrameFlood, |side, _| side.feed(CONTROL, &update, false, 99).map(drop));
    let mut side = server();
    side.give((ENCODER, &[&[2], INSERTIONS].concat(), false), 99).unwrap();
    let count = times_until(&mut side, ConnectionError::InstructionFlood, |side, _| {
        side.feed(ENCODER, &[0; 10], false, 99).map(drop)
    });
    assert!(count < 250);
    let mut side = server();
    side.give((DECODER, &[3], false), 99).unwrap();
    times_until(&mut side, ConnectionError::InstructionFlood, |side, _| {
        side.feed(DECODER, &[0x40], false, 99).map(drop)
    });
    let mut side = server();
    let get = request("GET", &[]);
    let count = times_until(&mut side, ConnectionError::RapidReset, |side, count| {
        side.give((count * 4, &get, true), 99)?;
        side.connection.handle_stopped(0, count * 4, 0x10c).map(drop)
    });
    assert!(count < 500);
    let mut side = server();
    let malformed = headers(&[]);
    let count = times_until(&mut side, ConnectionError::MadeYouReset, |side, count| {
        side.give((count * 4, &malformed, true), 99).map(drop)
    });
    assert!(count < 500);
    let mut side = server();
    times_until(&mut side, ConnectionError::DataExcess, |side, _| side.connection.discard_data(0, 1));
}

#[test]
fn honest_clients_are_not_taken_for_floods() {
    let mut side = server();
    side.give((ENCODER, &[&[2], INSERTIONS].concat(), false), 99).unwrap();
    let get = request("GET", &[]);
    for number in 0..20_000 {
        let id = number * 4;
        give(&mut side, id, &get, true);
        side.feed(ENCODER, &[0; 6], false, 99).unwrap();
        side.feed(CONTROL, &frame(kind::PRIORITY_UPDATE_REQUEST, &varint(id)), false, 99).unwrap();
        let mut output = Vec::new();
        side.connection.send_fields(id, false, &mut output, |output| encode_status(200, output));
        // Every second response is cancelled.
        if number % 2 == 0 {
            side.connection.handle_stopped(0, id, 0x10c).unwrap();
        } else {
            side.connection.send_data(id, 10, true);
        }
    }
    assert_eq!((side.connection.stream_count(), side.connection.has_failed()), (0, false));
}

#[test]
fn a_failed_connection_handles_nothing_more() {
    let mut side = server();
    side.give((0, &data(b"a"), false), 99).unwrap_err();
    assert_eq!(side.feed(CONTROL, b"anything", false, 99).unwrap(), [""; 0]);
    assert_eq!(side.connection.accept(0, 4), Ok(Accepted::Refused));
    assert!(!side.connection.can_open());
    let mut block = FieldBlock::new();
    let mut rest = &control(&[])[..];
    assert_eq!(side.connection.handle(0, CONTROL, &mut rest, false, &mut block), Ok(None));
    assert!(rest.is_empty());
}
