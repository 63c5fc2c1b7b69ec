use super::{Flood, FloodGuard, Offence};
use crate::feed::assert_pieces_agree;
use crate::http2::frame::{PREFACE, flag, kind};
use std::collections::HashSet;

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
}

fn watch() -> FloodGuard {
    let mut watch = FloodGuard::new();
    watch.handle_received(0, PREFACE).unwrap();
    assert!(!watch.has_begun());
    watch.handle_received(0, &frame(kind::SETTINGS, 0, &[])).unwrap();
    watch
}

/// Frames until the watch has had enough, of 10,000.
fn frames_until(
    flood: Flood,
    frames: &[Vec<u8>],
    send: impl Fn(&mut FloodGuard, &[u8]) -> Result<(), Offence>,
) -> usize {
    let mut watch = watch();
    for (count, frame) in (1..=10_000).zip(frames.iter().cycle()) {
        if let Err(found) = send(&mut watch, frame) {
            assert_eq!(found, Offence::Flood(flood));
            return count;
        }
    }
    panic!("{flood:?} was never found");
}

#[test]
fn every_flood_is_found_within_two_thousand_frames() {
    let headers = frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, &[0x82]);
    let reset = frame(kind::RST_STREAM, 0, &[0, 0, 0, 8]);
    let open = frame(kind::HEADERS, 0, &[0x82]);
    let empty = frame(kind::CONTINUATION, 0, &[]);
    let mut padded = vec![7];
    padded.extend([0; 7]);
    for (flood, frames) in [
        (Flood::RapidReset, vec![headers, reset]),
        (Flood::Ping, vec![frame(kind::PING, 0, &[0; 8])]),
        (Flood::Settings, vec![frame(kind::SETTINGS, 0, &[])]),
        (
            Flood::Continuation,
            vec![open, empty.clone(), empty.clone(), empty.clone(), empty.clone(), empty.clone(), empty],
        ),
        (Flood::EmptyData, vec![frame(kind::DATA, 0, &[])]),
        (Flood::EmptyData, vec![frame(kind::DATA, flag::PADDED, &padded)]),
        (Flood::WindowUpdate, vec![frame(kind::WINDOW_UPDATE, 0, &[0, 0, 0, 1])]),
        (Flood::Other, vec![frame(kind::PRIORITY, 0, &[0; 5])]),
        (Flood::Other, vec![frame(0x77, 0, &[])]),
        (Flood::Other, vec![frame(kind::SETTINGS, flag::ACK, &[])]),
        (Flood::Other, vec![frame(kind::PING, flag::ACK, &[0; 8])]),
    ] {
        let count = frames_until(flood, &frames, |watch, frame| watch.handle_received(0, frame));
        assert!(count <= 2000, "{flood:?}: {count}");
    }
    let provoked = frame(kind::RST_STREAM, 0, &[0, 0, 0, 1]);
    let count = frames_until(Flood::MadeYouReset, &[provoked], |watch, frame| {
        watch.handle_sent(0, frame).map_err(Offence::Flood)
    });
    assert!(count <= 1000);
}

#[test]
fn honest_clients_never_trip() {
    let mut watch = watch();
    let sent = [frame(kind::HEADERS, 4, &[0x88]), frame(kind::DATA, 1, &[0; 100])].concat();
    let (ping, update) = (frame(kind::PING, 0, &[0; 8]), frame(kind::WINDOW_UPDATE, 0, &[0, 0, 0, 9]));
    let reset = frame(kind::RST_STREAM, 0, &[0, 0, 0, 8]);
    for _ in 0..100_000 {
        // A bandwidth probe and two windows for each answer, every one of which is reset at its end, and all within
        // one millisecond.
        watch.handle_sent(1, &sent).unwrap();
        watch.handle_received(1, &ping).unwrap();
        watch.handle_received(1, &update).unwrap();
        watch.handle_received(1, &update).unwrap();
        watch.handle_received(1, &reset).unwrap();
    }
    for second in 1..10_000 {
        watch.handle_received(second * 1000, &ping).unwrap();
        watch.handle_received(second * 1000, &frame(kind::SETTINGS, 0, &[])).unwrap();
    }
    // An upload of small pieces, which end their stream with an empty one.
    for _ in 0..100_000 {
        watch.handle_received(1, &frame(kind::DATA, 0, &[1])).unwrap();
        watch.handle_received(1, &frame(kind::DATA, flag::END_STREAM, &[])).unwrap();
    }
    // What the server decides by itself is not held against the client.
    for _ in 0..100_000 {
        watch.handle_sent(1, &frame(kind::RST_STREAM, 0, &[0, 0, 0, 0])).unwrap();
    }
}

#[test]
fn header_sections_are_followed() {
    let mut watch = watch();
    assert!(!watch.is_within_fields());
    watch.handle_received(0, &frame(kind::HEADERS, 0, &[1])).unwrap();
    assert!(watch.is_within_fields());
    watch.handle_received(0, &frame(kind::CONTINUATION, flag::END_HEADERS, &[1])).unwrap();
    assert!(!watch.is_within_fields());
}

#[test]
fn cuts_change_no_decision() {
    let mut bytes = [&PREFACE[..], &frame(kind::SETTINGS, 0, &[])].concat();
    for _ in 0..300 {
        bytes.extend(frame(kind::PING, 0, &[0; 8]));
        bytes.extend(frame(kind::HEADERS, 4, &[0x82; 20]));
    }
    assert_pieces_agree(&bytes, FloodGuard::new, |watch, piece, _| {
        watch.handle_received(0, piece).map(|()| (piece.len(), false))
    });
}

#[test]
fn the_first_frame_is_settings() {
    for first in [frame(kind::PING, 0, &[0; 8]), frame(kind::SETTINGS, flag::ACK, &[])] {
        let mut watch = FloodGuard::new();
        assert_eq!(watch.handle_received(0, &[&PREFACE[..], &first].concat()), Err(Offence::NoSettings));
    }
}

#[test]
fn frames_of_a_wrong_size_end_the_connection() {
    for (kind, flags, bytes, is_wrong) in [
        (kind::PING, 0, 7, true),
        (kind::PING, flag::ACK, 9, true),
        (kind::PING, 0, 8, false),
        (kind::SETTINGS, 0, 5, true),
        (kind::SETTINGS, 0, 12, false),
        (kind::SETTINGS, flag::ACK, 6, true),
        (kind::RST_STREAM, 0, 3, true),
        (kind::RST_STREAM, 0, 4, false),
        (kind::WINDOW_UPDATE, 0, 5, true),
        (kind::GOAWAY, 0, 7, true),
        (kind::GOAWAY, 0, 9, false),
        // An error of its stream (RFC 9113 §6.3).
        (kind::PRIORITY, 0, 4, false),
    ] {
        let expected = if is_wrong { Err(Offence::FrameSize) } else { Ok(()) };
        assert_eq!(watch().handle_received(0, &frame(kind, flags, &vec![1; bytes])), expected, "{kind} {bytes}");
    }
}

#[test]
fn what_the_server_asks_for_costs_nobody_anything() {
    let mut watch = watch();
    for _ in 0..10_000 {
        watch.handle_sent(1, &frame(kind::PING, 0, &[0; 8])).unwrap();
        watch.handle_received(1, &frame(kind::PING, flag::ACK, &[0; 8])).unwrap();
    }
}

#[test]
fn names_are_unique() {
    let names: HashSet<_> = Flood::ALL.iter().map(|flood| flood.name()).collect();
    assert_eq!(names.len(), Flood::ALL.len());
    assert!(Flood::ALL.iter().all(|flood| flood.text().ends_with('.')));
}

#[test]
fn a_field_block_begins_with_two_changes_of_the_table_size_at_most() {
    let end = flag::END_HEADERS | flag::END_STREAM;
    // 0x20: no table. 0x3f 0xe1 0x1f: 4096 bytes. 0x82: a field.
    let (none, all) = ([0x20].as_slice(), [0x3f, 0xe1, 0x1f].as_slice());
    let block = |parts: &[&[u8]]| [parts.concat(), vec![0x82]].concat();
    let headers = |flags: u8, payload: &[u8]| frame(kind::HEADERS, flags, payload);
    let priority = [0, 0, 0, 0, 16];
    let allowed = [
        headers(end, &block(&[none, all])),
        headers(end, &block(&[all, all])),
        // A value may look like changes.
        headers(end, &[0x82, 0x20, 0x20, 0x20]),
        headers(end | flag::PRIORITY, &[&priority[..], none, none, &[0x82]].concat()),
        // Padding is no part of the block.
        headers(end | flag::PADDED, &[3, 0x82, 0x20, 0x20, 0x20]),
        headers(flag::PADDED, &[3, 0x20, 0x20, 0x20, 0x20]),
        frame(kind::CONTINUATION, flag::END_HEADERS, &block(&[none])),
        // Broken frames are the protocol machine's to refuse.
        headers(end | flag::PADDED, &[200, 0x20, 0x20, 0x20]),
        headers(end | flag::PRIORITY, &[0, 0]),
        headers(end | flag::PADDED, &[]),
    ];
    watch().handle_received(0, &allowed.concat()).unwrap();
    let too_many = [
        headers(end, &block(&[none, none, none])),
        headers(end, &vec![0x20; 16_000]),
        headers(end, &block(&[all, all, all])),
        headers(end | flag::PRIORITY, &[&priority[..], all, all, all].concat()),
        headers(end | flag::PADDED | flag::PRIORITY, &[&[0], &priority[..], all, all, none].concat()),
        // Cut into frames, within a change and between two.
        [headers(0, &[0x20, 0x3f]), frame(kind::CONTINUATION, 4, &[0xe1, 0x1f, 0x20])].concat(),
        [headers(0, &[]), frame(kind::CONTINUATION, 0, none), frame(kind::CONTINUATION, 4, &[0x20; 2])].concat(),
    ];
    for bytes in too_many {
        assert_eq!(watch().handle_received(0, &bytes), Err(Offence::Flood(Flood::TableSize)), "{bytes:x?}");
    }
}
