use super::{
    CONFIG, Connection, Event, FieldBlock, Role, describe, fields, frame, frames, give, give_to, request, server,
};
use crate::http2::frame::{ErrorCode, PREFACE, flag, kind};
use crate::http2::hpack::{encode_field, encode_status};

const END: u8 = flag::END_HEADERS | flag::END_STREAM;

fn exchange(connection: &mut Connection<u32>, output: &mut Vec<u8>, input: &[u8]) -> Vec<String> {
    let (events, error) = give(connection, input, input.len(), output);
    assert_eq!(error, None);
    events
}

fn get(stream: u32, more: &[(&str, &str)]) -> Vec<u8> {
    frame(kind::HEADERS, END, stream, &request("GET", more))
}

#[test]
fn a_response_respects_both_windows_and_ends_its_stream() {
    let (mut connection, mut output) = server();
    // The peer sets an initial stream window of 10 bytes.
    exchange(&mut connection, &mut output, &frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 10]));
    exchange(&mut connection, &mut output, &get(1, &[]));
    output.clear();
    connection.send_fields(1, false, &mut output, |output| encode_status(200, output));
    assert_eq!((connection.data_room(1), connection.next_sender(|_| true)), (10, Some(1)));
    output.extend_from_slice(&connection.send_data(1, 10, false));
    output.extend_from_slice(&[0; 10]);
    assert_eq!((connection.data_room(1), connection.next_sender(|_| true)), (0, None));
    let mut more = Vec::new();
    exchange(&mut connection, &mut more, &frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 5]));
    assert_eq!(connection.data_room(1), 5);
    output.extend_from_slice(&connection.send_data(1, 0, true));
    assert_eq!((connection.stream_count(), connection.data_room(1)), (0, 0));
    let sent: Vec<_> = frames(&output).into_iter().map(|(kind, flags, ..)| (kind, flags)).collect();
    assert_eq!(sent, [(kind::HEADERS, flag::END_HEADERS), (kind::DATA, 0), (kind::DATA, flag::END_STREAM)]);
}

/// Credit for content that the caller received in events but will not read must return when the stream ends. Otherwise
/// the connection's window shrinks with each such stream.
#[test]
fn content_that_nobody_will_read_returns_its_credit() {
    type Ending = fn(&mut Connection<u32>, u32, &mut Vec<u8>);
    fn respond(connection: &mut Connection<u32>, id: u32, output: &mut Vec<u8>) {
        connection.send_fields(id, true, output, |block| encode_status(200, block));
        connection.discard(id, output);
    }
    let endings: [(&str, u8, Ending); 4] = [
        ("the client resets the stream", 0, |connection, id, output| {
            exchange(connection, output, &frame(kind::RST_STREAM, 0, id, &[0, 0, 0, 8]));
        }),
        ("the server resets the stream", 0, |connection, id, output| {
            connection.reset(id, ErrorCode::Cancel, output).unwrap();
        }),
        ("the response is complete before the request", 0, |connection, id, output| {
            respond(connection, id, output);
            connection.reset(id, ErrorCode::NoError, output).unwrap();
        }),
        ("the request is complete, and then the response", flag::END_STREAM, respond),
    ];
    const STREAMS: u32 = 20;
    const PIECE_BYTES: usize = 16_000;
    for (what, end, ending) in endings {
        let (mut connection, mut output) = server();
        for id in (0..STREAMS).map(|number| 2 * number + 1) {
            let head = frame(kind::HEADERS, flag::END_HEADERS, id, &request("POST", &[]));
            let piece = |flags| frame(kind::DATA, flags, id, &[0; PIECE_BYTES]);
            let input = [head, piece(0), piece(0), piece(end)].concat();
            let keep = |_: &mut Connection<u32>, event: Event<'_, u32>, block: &FieldBlock, _: &mut Vec<u8>| {
                describe(&event, block)
            };
            let (_, error) = give_to(&mut connection, &input, input.len(), &mut output, keep);
            assert_eq!(error, None, "{what}: stream {id}");
            ending(&mut connection, id, &mut output);
        }
        assert_eq!(connection.stream_count(), 0, "{what}");
        let updates =
            frames(&output).into_iter().filter(|(kind, _, stream, _)| (*kind, *stream) == (kind::WINDOW_UPDATE, 0));
        let returned: u32 = updates.map(|(.., payload)| u32::from_be_bytes(payload[..].try_into().unwrap())).sum();
        let (sent, window) = (STREAMS * 3 * PIECE_BYTES as u32, CONFIG.windows.connection);
        assert!((sent - window..=sent).contains(&returned), "{what}: {returned} of {sent}");
    }
}

#[test]
fn urgent_responses_go_first_and_incremental_ones_take_turns() {
    let (mut connection, mut output) = server();
    for (stream, priority) in [(1, "u=5"), (3, "u=3, i"), (5, "u=3, i"), (7, "u=3")] {
        exchange(&mut connection, &mut output, &get(stream, &[("priority", priority)]));
    }
    // The windows are 65,535 bytes.
    let rooms = [(7, 1), (7, 3), (7, 4), (3, 1), (3, 4)].map(|(id, frames)| connection.turn_room(id, frames));
    assert_eq!(rooms, [16_384, 49_152, 65_535, 16_384, 16_384]);
    let serve = |connection: &mut Connection<u32>, open: &[u32]| {
        for (id, wants) in connection.iter_mut() {
            *wants = u32::from(open.contains(&id));
        }
        let id = connection.next_sender(|wants| *wants == 1).unwrap();
        connection.send_data(id, 1, false);
        id
    };
    assert_eq!((serve(&mut connection, &[1, 3, 5, 7]), serve(&mut connection, &[1, 3, 5, 7])), (7, 7));
    let turns: Vec<_> = (0..4).map(|_| serve(&mut connection, &[1, 3, 5])).collect();
    assert_eq!((turns, serve(&mut connection, &[1])), (vec![3, 5, 3, 5], 1));
    let update = [&1_u32.to_be_bytes()[..], b"u=0"].concat();
    exchange(&mut connection, &mut output, &frame(kind::PRIORITY_UPDATE, 0, 0, &update));
    assert_eq!(serve(&mut connection, &[1, 3, 5, 7]), 1);
}

#[test]
fn a_large_head_continues_in_more_frames() {
    let (mut connection, mut output) = server();
    exchange(&mut connection, &mut output, &get(1, &[]));
    output.clear();
    connection.send_fields(1, true, &mut output, |output| {
        encode_status(200, output);
        encode_field(b"x-a", &vec![0xff; 40_000], output);
    });
    let sent: Vec<_> =
        frames(&output).into_iter().map(|(kind, flags, _, payload)| (kind, flags, payload.len())).collect();
    assert_eq!(sent[0], (kind::HEADERS, flag::END_STREAM, 16_384));
    assert_eq!(sent[1], (kind::CONTINUATION, 0, 16_384));
    assert_eq!((sent[2].0, sent[2].1, sent.len()), (kind::CONTINUATION, flag::END_HEADERS, 3));
}

#[test]
fn a_peer_without_a_table_is_told_once_that_none_is_used() {
    let (mut connection, mut output) = server();
    exchange(&mut connection, &mut output, &frame(kind::SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0]));
    for (stream, first) in [(1, 0x20), (3, 0x88)] {
        exchange(&mut connection, &mut output, &get(stream, &[]));
        output.clear();
        connection.send_fields(stream, true, &mut output, |output| encode_status(200, output));
        assert_eq!(frames(&output)[0].3[0], first);
    }
}

#[test]
fn a_drain_lets_streams_in_flight_end() {
    let (mut connection, mut output) = server();
    exchange(&mut connection, &mut output, &get(1, &[]));
    output.clear();
    connection.drain(&mut output);
    let sent = frames(&output);
    assert_eq!((sent[0].0, &sent[0].3[..4], sent[1].0), (kind::GOAWAY, &[0x7f, 0xff, 0xff, 0xff][..], kind::PING));
    // A request in flight is still handled, but a request after the acknowledgement is not.
    assert_eq!(exchange(&mut connection, &mut output, &get(3, &[])), ["request 3 true"]);
    let events = exchange(&mut connection, &mut output, &frame(kind::PING, flag::ACK, 0, &sent[1].3));
    assert_eq!(events.len(), 1);
    output.clear();
    assert!(connection.handle_drained(u64::from_be_bytes(sent[1].3[..].try_into().unwrap()), &mut output));
    assert_eq!(frames(&output)[0].3, [0, 0, 0, 3, 0, 0, 0, 0]);
    let late = [
        frame(kind::HEADERS, flag::END_HEADERS, 5, &request("POST", &[])),
        frame(kind::DATA, flag::END_STREAM, 5, b"late"),
    ];
    assert!(exchange(&mut connection, &mut output, &late.concat()).is_empty());
    assert!(!connection.is_drained());
    for stream in [1, 3] {
        connection.send_fields(stream, true, &mut output, |output| encode_status(200, output));
    }
    assert!(connection.is_drained());
}

#[test]
fn both_roles_understand_each_other() {
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let mut client: Connection<u32> = Connection::new(Role::Client, CONFIG, &mut to_server);
    let mut server: Connection<u32> = Connection::new(Role::Server, CONFIG, &mut to_client);
    let id = client.open(false).unwrap();
    client.send_fields(id, false, &mut to_server, |output| output.extend_from_slice(&request("POST", &[])));
    to_server.extend_from_slice(&client.send_data(id, 3, false));
    to_server.extend_from_slice(b"abc");
    client.send_fields(id, true, &mut to_server, |output| output.extend_from_slice(&fields(&[("x-end", "1")])));
    assert!(to_server.starts_with(PREFACE));
    let events = exchange(&mut server, &mut to_client, &to_server);
    assert_eq!(events, ["request 1 false", "data 1 3 false", "trailers 1 x-end=1"]);
    server.send_fields(1, false, &mut to_client, |output| encode_status(103, output));
    server.send_fields(1, false, &mut to_client, |output| {
        encode_status(200, output);
        encode_field(b"content-length", b"2", output);
    });
    to_client.extend_from_slice(&server.send_data(1, 2, true));
    to_client.extend_from_slice(b"ok");
    to_server.clear();
    let events = exchange(&mut client, &mut to_server, &to_client);
    assert_eq!(events, ["response 1 Some(103) false", "response 1 Some(200) false content-length=2", "data 1 2 true"]);
    assert_eq!((client.stream_count(), server.stream_count()), (1, 0));
    // Both sides' settings are acknowledged.
    let events = exchange(&mut server, &mut to_client, &to_server);
    assert!(events.is_empty() && server.is_acknowledged());
}

#[test]
fn an_early_response_discards_the_rest_of_the_request() {
    let (mut connection, mut output) = server();
    let head = frame(kind::HEADERS, flag::END_HEADERS, 1, &request("POST", &[]));
    exchange(&mut connection, &mut output, &head);
    connection.send_fields(1, true, &mut output, |output| encode_status(413, output));
    connection.discard(1, &mut output);
    assert!(connection.is_receiving(1) && connection.stream_count() == 1);
    let events = exchange(&mut connection, &mut output, &frame(kind::DATA, 0, 1, &[0; 1000]));
    assert!(events.is_empty());
    connection.reset(1, ErrorCode::NoError, &mut output);
    let events = exchange(&mut connection, &mut output, &frame(kind::DATA, flag::END_STREAM, 1, &[0; 1000]));
    assert!(events.is_empty() && connection.stream_count() == 0);
}
