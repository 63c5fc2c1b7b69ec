//! The messages between agents and controllers.

use flatout_http::feed::assert_three_ways;
use flatout_lab::agent::coordinator::{AgentLoss, Coordinator, CoordinatorAction};
use flatout_lab::agent::frame::{FrameLimits, HEAD_BYTES, Inbox, decode, encode};
use flatout_lab::agent::message::{Message, PROTOCOL};

/// Messages, a record, one after the other, and what is too long.
pub(crate) const FRAME_SEEDS: &[&[u8]] = &[
    b"\0\0\0\x0f\x01{\"say\":\"ready\"}\0\0\0\x03\x02abc",
    b"\0\0\0\x18\x01{\"say\":\"ping\",\"nonce\":17}\0\0\0\0\x02",
    b"\0\0\0\x29\x01{\"say\":\"plan\",\"index\":0,\"agents\":1,\"task\":1}",
    b"\xff\xff\xff\xff\x01{",
];

/// Events of a coordinator, one byte each.
pub(crate) const COORDINATOR_SEEDS: &[&[u8]] = &[
    &[0, 8, 16, 16, 16, 16, 16, 16, 16, 16, 24, 32, 40],
    &[0, 0, 8, 9, 16, 17, 16, 17, 16, 17, 16, 17, 16, 17, 16, 17, 16, 17, 16, 17, 24, 25, 33, 41, 49],
    &[0, 8, 57, 0, 0, 8, 56, 48, 40, 32, 24, 16],
];

pub(crate) fn check_frames(bytes: &[u8]) {
    for limits in [FrameLimits::KNOWN, FrameLimits::UNAUTHENTICATED] {
        assert_three_ways(bytes, |bytes| decode(bytes, limits));
    }
    // An inbox finds the same frames, however they are cut.
    let frames = |piece_bytes: usize| {
        let (mut inbox, mut found) = (Inbox::new(FrameLimits::KNOWN), Vec::new());
        for piece in bytes.chunks(piece_bytes) {
            inbox.feed(piece);
            loop {
                match inbox.take() {
                    Ok(Some(frame)) => found.push(Ok(frame)),
                    Ok(None) => break,
                    Err(refusal) => {
                        found.push(Err(refusal));
                        return found;
                    }
                }
            }
        }
        found
    };
    let whole = frames(bytes.len().max(1));
    assert_eq!(whole, frames(1));
    for frame in whole.into_iter().flatten() {
        let mut written = Vec::new();
        if encode(&frame, &mut written).is_ok() {
            assert_eq!(decode(&written, FrameLimits::KNOWN), Some(Ok((frame.clone(), written.len()))));
            assert!(written.len() >= HEAD_BYTES);
        }
    }
}

/// Whatever agents send in whatever order, nothing panics, orders are for those who are there, and the end is reached
/// when all are gone.
pub(crate) fn check_coordinator(bytes: &[u8]) {
    let mut coordinator = Coordinator::new(2, "1", serde_json::Value::Null);
    let (mut agents, mut now_ns, mut nonces) = (0_usize, 0_u64, [0_u64; 8]);
    for byte in bytes.iter().take(500) {
        now_ns += u64::from(*byte) * 10_000_000;
        let who = usize::from(byte % 8);
        let orders = match byte / 8 % 8 {
            0 => {
                if agents < 8 {
                    agents += 1;
                    coordinator.handle_connected(now_ns);
                }
                Vec::new()
            }
            1 => {
                let hello = Message::Hello {
                    protocol: PROTOCOL.to_owned(),
                    flatout: "1".to_owned(),
                    name: "a".to_owned(),
                    cores: 1,
                };
                coordinator.handle_message(who, now_ns, hello)
            }
            2 => coordinator.handle_message(who, now_ns, Message::Pong { nonce: nonces[who], at_ns: now_ns ^ 0xffff }),
            3 => coordinator.handle_message(who, now_ns, Message::Ready {}),
            4 => coordinator.handle_message(
                who,
                now_ns,
                Message::Done { begun_ns: now_ns, facts: serde_json::Value::Null },
            ),
            5 => coordinator.handle_record(who, now_ns, vec![*byte]),
            6 => coordinator.handle_time(now_ns),
            _ => coordinator.handle_lost(who, AgentLoss::Closed, ""),
        };
        for order in &orders {
            let (CoordinatorAction::Say(to, _) | CoordinatorAction::Trust(to) | CoordinatorAction::Dismiss(to)) = order;
            assert!(*to < agents, "an order for nobody");
            if let CoordinatorAction::Say(to, Message::Ping { nonce }) = order {
                nonces[*to] = *nonce;
            }
        }
        assert!(coordinator.here() <= 8);
    }
    let had_work = coordinator.is_over();
    for who in 0..agents {
        coordinator.handle_lost(who, AgentLoss::Closed, "");
    }
    assert!(coordinator.is_over() || !had_work, "it was over and is not any more");
    for result in coordinator.into_results() {
        assert!(result.index < 2 && (result.lost.is_some() || result.record.len() == 1));
    }
}
