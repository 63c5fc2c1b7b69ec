use super::FloodGuard;
use crate::http2::error::ConnectionError;
use crate::http2::frame::{FrameHead, flag, kind};

const fn frame(kind: u8, flags: u8) -> FrameHead {
    FrameHead { payload_bytes: 0, kind, flags, stream: 1 }
}

/// Returns the number of frames, of at most 10,000, until the protection triggers.
fn frames_until(flood: ConnectionError, frames: &[FrameHead]) -> usize {
    let mut guard = FloodGuard::new();
    for (count, frame) in (1..=10_000).zip(frames.iter().cycle()) {
        if let Err(found) = guard.handle_received(0, *frame, 0) {
            assert_eq!(found, flood);
            return count;
        }
    }
    panic!("{flood:?} was never found");
}

#[test]
fn every_flood_is_found_within_two_thousand_frames() {
    let headers = frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM);
    let open = frame(kind::HEADERS, 0);
    let empty = frame(kind::CONTINUATION, 0);
    for (flood, frames) in [
        (ConnectionError::RapidReset, vec![headers, frame(kind::RST_STREAM, 0)]),
        (ConnectionError::PingFlood, vec![frame(kind::PING, 0)]),
        (ConnectionError::SettingsFlood, vec![frame(kind::SETTINGS, 0)]),
        (ConnectionError::ContinuationFlood, vec![open, empty, empty, empty, empty, empty, empty]),
        (ConnectionError::ContinuationFlood, vec![open, empty]),
        (ConnectionError::EmptyDataFlood, vec![frame(kind::DATA, 0)]),
        (ConnectionError::WindowUpdateFlood, vec![frame(kind::WINDOW_UPDATE, 0)]),
        (ConnectionError::FrameFlood, vec![frame(kind::PRIORITY, 0)]),
        (ConnectionError::FrameFlood, vec![frame(0x77, 0)]),
        (ConnectionError::FrameFlood, vec![frame(kind::SETTINGS, flag::ACK)]),
        (ConnectionError::FrameFlood, vec![frame(kind::PING, flag::ACK)]),
    ] {
        let count = frames_until(flood, &frames);
        assert!(count <= 2000, "{flood:?}: {count}");
    }
    let mut guard = FloodGuard::new();
    assert!((0..2000).any(|_| guard.handle_provoked_reset(0) == Err(ConnectionError::MadeYouReset)));
    let tiny = (0..20_000).position(|_| !guard.handle_discarded(0, 1));
    assert_eq!(tiny, Some(10_000));
    assert!(guard.handle_discarded(0, 1000));
}

#[test]
fn honest_clients_never_trip() {
    let mut guard = FloodGuard::new();
    let mut now_ms = 0;
    for request in 0..100_000_u32 {
        now_ms += u64::from(request % 3 == 0);
        for kind in [kind::HEADERS, kind::WINDOW_UPDATE, kind::WINDOW_UPDATE, kind::PRIORITY] {
            guard.handle_received(now_ms, frame(kind, flag::END_HEADERS), 0).unwrap();
        }
        guard.handle_sent();
        guard.handle_sent();
        if request % 2 == 0 {
            guard.handle_received(now_ms, frame(kind::RST_STREAM, 0), 4).unwrap();
        }
        // A PING for each DATA frame, as gRPC clients send it.
        guard.handle_received(now_ms, frame(kind::PING, 0), 8).unwrap();
    }
    // A program that reads in pieces of 1 KiB, whose updates arrive long after the content.
    let update = frame(kind::WINDOW_UPDATE, 0);
    let read = |guard: &mut FloodGuard, bytes: usize| {
        (0..2 * bytes / 1024).for_each(|_| guard.handle_received(now_ms, update, 4).unwrap());
    };
    (0..256).for_each(|_| guard.handle_content_sent(16 * 1024));
    for _ in 0..10_000 {
        guard.handle_content_sent(16 * 1024);
        read(&mut guard, 16 * 1024);
    }
    read(&mut guard, 256 * 16 * 1024);
    // Acknowledging the server's requests costs the client no budget.
    for _ in 0..10_000 {
        guard.handle_sent_request();
        guard.handle_received(now_ms, frame(kind::PING, flag::ACK), 8).unwrap();
    }
}
