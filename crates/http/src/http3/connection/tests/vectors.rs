use super::{
    CONTROL, ConnectionError, DECODER, ENCODER, Input, Side, client, consequence, control, data, frame, headers,
    request, section, server, varint,
};
use crate::http2::connection::Role;
use crate::http3::error::ErrorCode;
use crate::http3::frame::kind;

/// Returns the error that `inputs` cause. Panics if they cause events other than SETTINGS instead.
fn error_of(start: fn() -> Side, inputs: &[Input<'_>]) -> Option<ConnectionError> {
    let (events, error) = consequence(start, inputs);
    assert!(error.is_some() || events.is_empty() || events == ["settings"], "{events:?}");
    error
}

fn new_server() -> Side {
    Side::new(Role::Server)
}

fn new_client() -> Side {
    Side::new(Role::Client)
}

#[test]
fn requests_yield_their_parts() {
    let get = request("GET", &[("x-a", "b")]);
    let post = |more: &[(&str, &str)], content: &[&[u8]], trailers: &[u8]| {
        let mut bytes = request("POST", more);
        for piece in content {
            bytes.extend(data(piece));
        }
        [&bytes[..], trailers].concat()
    };
    let trailers = headers(&[("x-end", "1")]);
    let reserved = frame(0x21 + 0x1f * 5, b"anything");
    for (bytes, expected) in [
        (get.clone(), vec!["request 0 true x-a=b"]),
        ([&get[..], &reserved].concat(), vec!["request 0 false x-a=b", "data 0 0 true"]),
        ([&reserved[..], &get].concat(), vec!["request 0 true x-a=b"]),
        (post(&[], &[b"abc"], &[]), vec!["request 0 false", "data 0 3 true"]),
        (post(&[], &[b"ab", b"", b"c"], &[]), vec!["request 0 false", "data 0 3 true"]),
        (post(&[], &[b"abc", b""], &[]), vec!["request 0 false", "data 0 3 true"]),
        (post(&[], &[b""], &[]), vec!["request 0 false", "data 0 0 true"]),
        (post(&[("content-length", "3")], &[b"abc"], &[]), vec!["request 0 false content-length=3", "data 0 3 true"]),
        (post(&[], &[b"abc"], &trailers), vec!["request 0 false", "data 0 3 false", "trailers 0 x-end=1"]),
        (post(&[], &[], &trailers), vec!["request 0 false", "trailers 0 x-end=1"]),
        (
            post(&[], &[b"abc"], &[&trailers[..], &reserved].concat()),
            vec!["request 0 false", "data 0 3 false", "trailers 0 x-end=1"],
        ),
    ] {
        assert_eq!(
            consequence(server, &[(0, &bytes, true)]),
            (expected.iter().map(ToString::to_string).collect(), None)
        );
    }
    // The end of the stream arrives separately.
    let mut side = server();
    assert_eq!(side.give((0, &get, false), usize::MAX).unwrap(), ["request 0 false x-a=b"]);
    assert_eq!(side.feed(0, &[], true, 1).unwrap(), ["data 0 0 true"]);
    assert!(!side.connection.is_receiving(0) && side.connection.is_open(0));
}

#[test]
fn responses_yield_their_parts() {
    let head = |status: &str, more: &[(&str, &str)]| headers(&[&[(":status", status)], more].concat());
    let ok = head("200", &[("content-length", "2")]);
    for (id, bytes, expected) in [
        (0, [&ok[..], &data(b"ok")].concat(), vec!["response 0 Some(200) false content-length=2", "data 0 2 true"]),
        (
            0,
            [&head("103", &[])[..], &head("100", &[]), &ok, &data(b"ok"), &headers(&[("x", "y")])].concat(),
            vec![
                "response 0 Some(103) false",
                "response 0 Some(100) false",
                "response 0 Some(200) false content-length=2",
                "data 0 2 false",
                "trailers 0 x=y",
            ],
        ),
        (0, head("304", &[("content-length", "2")]), vec!["response 0 Some(304) true content-length=2"]),
        (4, ok, vec!["response 4 Some(200) true content-length=2"]),
    ] {
        let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
        assert_eq!(consequence(client, &[(id, &bytes, true)]), (expected, None));
    }
}

#[test]
fn messages_that_violate_a_rule_close_their_stream_alone() {
    let cut = |bytes: &[u8], fin| consequence(server, &[(0, bytes, fin), (4, &request("GET", &[]), true)]);
    let after = "request 4 true";
    for (bytes, expected) in [
        (vec![], "reset 0 RequestIncomplete stream_incomplete"),
        (frame(0x21, b"reserved"), "reset 0 RequestIncomplete stream_incomplete"),
        (request("GET", &[("connection", "close")]), "rejected 0 stream_connection_field"),
        (request("GET", &[("content-length", "1")]), "rejected 0 stream_content_too_short"),
        (headers(&[(":method", "GET")]), "rejected 0 stream_pseudo_missing"),
        (headers(&[(":status", "200")]), "rejected 0 stream_pseudo_field"),
        (request("GET", &[(":path", "/")]), "rejected 0 stream_pseudo_repeated"),
        (request("GET", &[("Upper", "case")]), "rejected 0 stream_field_name"),
    ] {
        let (events, error) = cut(&bytes, true);
        let events: Vec<_> =
            events.iter().map(String::as_str).filter(|event| !event.starts_with("request 0")).collect();
        assert_eq!((events, error), (vec![expected, after], None), "{bytes:?}");
    }
    let long = request("POST", &[("content-length", "2")]);
    let too_long = "reset 0 Message stream_content_too_long";
    let too_short = "reset 0 Message stream_content_too_short";
    for (content, piece_bytes, expected) in [
        (&b"abc"[..], 1, too_long),
        (b"abc", usize::MAX, too_long),
        (b"a", 1, too_short),
        (b"a", usize::MAX, too_short),
    ] {
        let mut side = server();
        let events = side.give((0, &[&long[..], &data(content)].concat(), true), piece_bytes).unwrap();
        assert_eq!(events.last().map(String::as_str), Some(expected), "{events:?}");
        assert_eq!(side.give((4, &request("GET", &[]), true), piece_bytes).unwrap(), [after]);
    }
    let (events, _) = cut(&[&long[..], &headers(&[("x-end", "1")])].concat(), true);
    assert_eq!(events[1], too_short, "trailers before the declared length");
    let (events, _) = cut(&[&request("POST", &[])[..], &headers(&[(":status", "1")])].concat(), true);
    assert_eq!(events[1], "reset 0 Message stream_pseudo_field", "trailers with a pseudo-field");
    let no_content = [headers(&[(":status", "204")]), data(b"a")].concat();
    for (bytes, name) in [
        (headers(&[(":status", "20")]), "stream_status"),
        (headers(&[(":status", "100")]), "stream_interim_end"),
        (headers(&[(":status", "101")]), "stream_status"),
        (headers(&[(":status", "200"), ("content-length", "1")]), "stream_content_too_short"),
        (headers(&[(":path", "/")]), "stream_pseudo_field"),
        (no_content, "stream_content_too_long"),
        (vec![], "stream_pseudo_missing"),
    ] {
        let (events, error) = consequence(client, &[(0, &bytes, true)]);
        let expected = format!("reset 0 Message {name}");
        assert_eq!((events.last(), error), (Some(&expected), None), "{bytes:?}");
    }
}

/// Every frame that is not allowed where it appears, with the error and its code.
#[test]
fn wrong_frames_end_the_connection() {
    let head = request("POST", &[]);
    let after_head = |more: &[u8]| [&head[..], more].concat();
    let ended = [&head[..], &headers(&[("x-end", "1")])].concat();
    let after_end = |more: &[u8]| [&ended[..], more].concat();
    let tunnel = [&headers(&[(":method", "CONNECT"), (":authority", "a:1")])[..], &headers(&[("x", "y")])].concat();
    let four = [4];
    for (bytes, reason, code) in [
        (data(b"a"), ConnectionError::DataFirst, ErrorCode::FrameUnexpected),
        (data(b""), ConnectionError::DataFirst, ErrorCode::FrameUnexpected),
        (after_end(&data(b"a")), ConnectionError::AfterTrailers, ErrorCode::FrameUnexpected),
        (after_end(&headers(&[])), ConnectionError::AfterTrailers, ErrorCode::FrameUnexpected),
        (tunnel, ConnectionError::RequestFrame, ErrorCode::FrameUnexpected),
        (frame(kind::CANCEL_PUSH, &four), ConnectionError::RequestFrame, ErrorCode::FrameUnexpected),
        (frame(kind::SETTINGS, &[]), ConnectionError::RequestFrame, ErrorCode::FrameUnexpected),
        (frame(kind::PUSH_PROMISE, &four), ConnectionError::RequestFrame, ErrorCode::FrameUnexpected),
        (after_head(&frame(kind::GOAWAY, &four)), ConnectionError::RequestFrame, ErrorCode::FrameUnexpected),
        (after_head(&frame(kind::MAX_PUSH_ID, &four)), ConnectionError::RequestFrame, ErrorCode::FrameUnexpected),
        (frame(kind::PRIORITY_UPDATE_REQUEST, &four), ConnectionError::RequestFrame, ErrorCode::FrameUnexpected),
        (frame(kind::PRIORITY_UPDATE_PUSH, &four), ConnectionError::RequestFrame, ErrorCode::FrameUnexpected),
        (frame(2, &[]), ConnectionError::Http2Frame, ErrorCode::FrameUnexpected),
        (after_head(&frame(6, &[0; 8])), ConnectionError::Http2Frame, ErrorCode::FrameUnexpected),
        (after_head(&frame(8, &[0; 4])), ConnectionError::Http2Frame, ErrorCode::FrameUnexpected),
        (after_head(&frame(9, &[])), ConnectionError::Http2Frame, ErrorCode::FrameUnexpected),
        (frame(kind::HEADERS, &[]), ConnectionError::SectionInvalid, ErrorCode::QpackDecompressionFailed),
        (frame(kind::HEADERS, &[0, 0, 0x80]), ConnectionError::SectionInvalid, ErrorCode::QpackDecompressionFailed),
        (
            frame(kind::HEADERS, &[0, 0, 0xff, 0x24]),
            ConnectionError::SectionInvalid,
            ErrorCode::QpackDecompressionFailed,
        ),
        ([&[1][..], &varint(65_537)].concat(), ConnectionError::SectionExcess, ErrorCode::ExcessiveLoad),
    ] {
        let (_, error) = consequence(server, &[(0, &bytes, false)]);
        assert_eq!((error, error.map(ConnectionError::code)), (Some(reason), Some(code)), "{bytes:?}");
    }
    // Pushes to a client that permits no pushes.
    let (_, error) = consequence(client, &[(0, &frame(kind::PUSH_PROMISE, &four), false)]);
    assert_eq!(error, Some(ConnectionError::PushForbidden));
    // A stream ends within a frame.
    for cut in [1, 2, head.len() - 1] {
        let (_, error) = consequence(server, &[(0, &head[..cut], true)]);
        assert_eq!(error, Some(ConnectionError::FrameTruncated), "{cut}");
    }
    let content = after_head(&data(b"abc"));
    for cut in [head.len() + 1, head.len() + 2, content.len() - 1] {
        let (_, error) = consequence(server, &[(0, &content[..cut], true)]);
        assert_eq!(error, Some(ConnectionError::FrameTruncated), "{cut}");
    }
    let ignored = frame(0x21, b"abc");
    assert_eq!(error_of(server, &[(0, &ignored[..3], true)]), Some(ConnectionError::FrameTruncated));
}

/// Every frame that is not allowed on a control stream, with the error and its code.
#[test]
fn wrong_control_frames_end_the_connection() {
    let pair = |id: u64, value: u64| [varint(id), varint(value)].concat();
    let settings = |pairs: &[(u64, u64)]| {
        let payload: Vec<u8> = pairs.iter().flat_map(|&(id, value)| pair(id, value)).collect();
        [&[0][..], &frame(kind::SETTINGS, &payload)].concat()
    };
    let first = |bytes: &[u8]| [&[0][..], bytes].concat();
    let long = vec![0; 1025];
    for (bytes, reason, code) in [
        (first(&frame(kind::GOAWAY, &[0])), ConnectionError::MissingSettings, ErrorCode::MissingSettings),
        (first(&frame(0x21, &[])), ConnectionError::MissingSettings, ErrorCode::MissingSettings),
        (first(&data(b"a")), ConnectionError::MissingSettings, ErrorCode::MissingSettings),
        (control(&frame(kind::SETTINGS, &[])), ConnectionError::SettingsRepeated, ErrorCode::FrameUnexpected),
        (settings(&[(0x21, 1), (0x21, 2)]), ConnectionError::SettingRepeated, ErrorCode::Settings),
        (settings(&[(6, 1), (1, 0), (6, 1)]), ConnectionError::SettingRepeated, ErrorCode::Settings),
        (settings(&[(2, 1)]), ConnectionError::SettingReserved, ErrorCode::Settings),
        (settings(&[(3, 1)]), ConnectionError::SettingReserved, ErrorCode::Settings),
        (settings(&[(4, 1)]), ConnectionError::SettingReserved, ErrorCode::Settings),
        (settings(&[(5, 1)]), ConnectionError::SettingReserved, ErrorCode::Settings),
        (settings(&[(8, 2)]), ConnectionError::SettingValue, ErrorCode::Settings),
        (first(&frame(kind::SETTINGS, &[6])), ConnectionError::FrameLength, ErrorCode::Frame),
        (first(&frame(kind::SETTINGS, &[6, 0x40])), ConnectionError::FrameLength, ErrorCode::Frame),
        (first(&frame(kind::SETTINGS, &long)), ConnectionError::FrameExcess, ErrorCode::ExcessiveLoad),
        (control(&data(b"a")), ConnectionError::ControlFrame, ErrorCode::FrameUnexpected),
        (control(&headers(&[])), ConnectionError::ControlFrame, ErrorCode::FrameUnexpected),
        (control(&frame(kind::PUSH_PROMISE, &[0])), ConnectionError::ControlFrame, ErrorCode::FrameUnexpected),
        (control(&frame(2, &[])), ConnectionError::Http2Frame, ErrorCode::FrameUnexpected),
        (control(&frame(6, &[])), ConnectionError::Http2Frame, ErrorCode::FrameUnexpected),
        (control(&frame(8, &[])), ConnectionError::Http2Frame, ErrorCode::FrameUnexpected),
        (control(&frame(9, &[])), ConnectionError::Http2Frame, ErrorCode::FrameUnexpected),
        (control(&frame(kind::CANCEL_PUSH, &[0])), ConnectionError::PushId, ErrorCode::Id),
        (control(&frame(kind::CANCEL_PUSH, &[])), ConnectionError::FrameLength, ErrorCode::Frame),
        (control(&frame(kind::GOAWAY, &[])), ConnectionError::FrameLength, ErrorCode::Frame),
        (control(&frame(kind::GOAWAY, &[0, 0])), ConnectionError::FrameLength, ErrorCode::Frame),
        (
            control(&[frame(kind::GOAWAY, &[1]), frame(kind::GOAWAY, &[2])].concat()),
            ConnectionError::GoawayIncreased,
            ErrorCode::Id,
        ),
        (
            control(&[frame(kind::MAX_PUSH_ID, &[5]), frame(kind::MAX_PUSH_ID, &[4])].concat()),
            ConnectionError::MaxPushIdDecreased,
            ErrorCode::Id,
        ),
        (control(&frame(kind::PRIORITY_UPDATE_REQUEST, &[2])), ConnectionError::PriorityId, ErrorCode::Id),
        (control(&frame(kind::PRIORITY_UPDATE_REQUEST, &[])), ConnectionError::FrameLength, ErrorCode::Frame),
        (control(&frame(kind::PRIORITY_UPDATE_PUSH, &[0])), ConnectionError::PriorityId, ErrorCode::Id),
        (control(&frame(kind::PRIORITY_UPDATE_REQUEST, &long)), ConnectionError::FrameExcess, ErrorCode::ExcessiveLoad),
    ] {
        let error = error_of(new_server, &[(CONTROL, &bytes, false)]);
        assert_eq!((error, error.map(ConnectionError::code)), (Some(reason), Some(code)), "{bytes:?}");
    }
    for (frames, reason) in [
        (frame(kind::GOAWAY, &[1]), ConnectionError::GoawayId),
        (frame(kind::MAX_PUSH_ID, &[1]), ConnectionError::ControlFrame),
        (frame(kind::PRIORITY_UPDATE_REQUEST, &[0]), ConnectionError::ControlFrame),
        (frame(kind::CANCEL_PUSH, &[0]), ConnectionError::PushId),
    ] {
        assert_eq!(error_of(new_client, &[(3, &control(&frames), false)]), Some(reason));
    }
    let (events, error) = consequence(
        new_client,
        &[(3, &control(&[frame(kind::GOAWAY, &[8]), frame(kind::GOAWAY, &[4])].concat()), false)],
    );
    assert_eq!((events, error), (vec!["settings".to_owned(), "goaway 8".to_owned(), "goaway 4".to_owned()], None));
}

#[test]
fn wrong_streams_end_the_connection() {
    let opening = control(&[]);
    for (inputs, reason, code) in [
        (
            vec![(CONTROL, &opening[..], false), (14, &[0], false)],
            ConnectionError::StreamRepeated,
            ErrorCode::StreamCreation,
        ),
        (
            vec![(ENCODER, &[2][..], false), (14, &[2], false)],
            ConnectionError::StreamRepeated,
            ErrorCode::StreamCreation,
        ),
        (
            vec![(DECODER, &[3][..], false), (14, &[3], false)],
            ConnectionError::StreamRepeated,
            ErrorCode::StreamCreation,
        ),
        (vec![(14, &[1, 0], false)], ConnectionError::PushStream, ErrorCode::StreamCreation),
        (vec![(CONTROL, &opening, true)], ConnectionError::CriticalStreamClosed, ErrorCode::ClosedCriticalStream),
        (vec![(CONTROL, &[0], true)], ConnectionError::CriticalStreamClosed, ErrorCode::ClosedCriticalStream),
        (vec![(ENCODER, &[2], true)], ConnectionError::CriticalStreamClosed, ErrorCode::ClosedCriticalStream),
        (vec![(DECODER, &[3], true)], ConnectionError::CriticalStreamClosed, ErrorCode::ClosedCriticalStream),
        (vec![(ENCODER, &[2, 0x41], false)], ConnectionError::EncoderInstruction, ErrorCode::QpackEncoderStream),
        (
            vec![(ENCODER, &[2, 0x3f, 0xe2, 0x1f], false)],
            ConnectionError::EncoderInstruction,
            ErrorCode::QpackEncoderStream,
        ),
        (vec![(DECODER, &[3, 0x80], false)], ConnectionError::DecoderInstruction, ErrorCode::QpackDecoderStream),
        (vec![(DECODER, &[3, 0x01], false)], ConnectionError::DecoderInstruction, ErrorCode::QpackDecoderStream),
    ] {
        let inputs: &[Input<'_>] = &inputs;
        // An insertion into a table without capacity is only invalid once its value has arrived.
        let inputs = if inputs[0].1 == [2, 0x41] { &[(ENCODER, &[2, 0x41, b'a', 0][..], false)][..] } else { inputs };
        let error = error_of(new_server, inputs);
        assert_eq!((error, error.map(ConnectionError::code)), (Some(reason), Some(code)), "{inputs:?}");
    }
    assert_eq!(error_of(new_client, &[(1, &[], false)]), Some(ConnectionError::ServerStream));
    assert_eq!(error_of(new_client, &[(3, &[1, 0], false)]), Some(ConnectionError::PushForbidden));
    // Streams of unknown types, and streams that end before their type is complete, are ignored.
    let unknown = [&varint(0x21)[..], &[7; 100]].concat();
    for (bytes, fin) in [(&unknown[..], true), (&unknown, false), (&[][..], true), (&[0x40], true)] {
        assert_eq!(error_of(new_server, &[(14, bytes, fin)]), None);
    }
    // Resets and STOP_SENDING on streams that the connection needs.
    let mut side = server();
    assert_eq!(side.connection.handle_reset(0, CONTROL, 0), Err(ConnectionError::CriticalStreamClosed));
    let mut side = server();
    assert_eq!(side.connection.handle_reset(0, 14, 0), Ok(None));
    assert_eq!(side.connection.handle_stopped(0, 14, 0), Ok(None));
    assert_eq!(side.connection.handle_stopped(0, 3, 0), Err(ConnectionError::CriticalStreamClosed));
    assert!(side.connection.has_failed());
}

#[test]
fn sections_beyond_their_limit_are_reported_or_end_the_connection() {
    let long = "c".repeat(10_000);
    let large = request("GET", &[("x", &long), ("y", &long)]);
    let mut side = server();
    let events = side.give((0, &large, true), usize::MAX).unwrap();
    assert!(events[0].starts_with("request 0 true") && side.block.is_too_large());
    // The same static field many times, with one byte each.
    let many = [&section(&[])[..], &vec![0xd1; 60_000]].concat();
    let error = error_of(server, &[(0, &frame(kind::HEADERS, &many), false)]);
    assert_eq!(error, Some(ConnectionError::SectionExcess));
}
