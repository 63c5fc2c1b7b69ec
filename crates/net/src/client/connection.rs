//! One connection's life: connect, exchange after exchange, close, and again.

use super::deadline::Slot;
use super::failure::Failure;
use super::link::Link;
use super::reader::{Answer, Reader};
use super::worker::Shared;
use super::{Drive, Event};
use crate::clock::precise_ns;
use std::rc::Rc;
use std::time::Duration;

/// Pauses are slept in pieces of this, so that a run which is given up ends at once.
const PAUSE_PIECE_NS: u64 = 50_000_000;

/// Why a connection was left.
enum Left {
    /// There is nothing more to send.
    Done,
    /// It was for one request only.
    Used,
    /// The server ended it, orderly, between two requests.
    ServerClosed,
    /// A request on it failed.
    Failed(Failure),
}

/// What remains of the time, or of the connection, after an exchange.
struct Exchanged {
    answer: Answer,
    /// When the last byte had arrived.
    ended_ns: u64,
    /// Whether the server had closed its half by then.
    server_closed: bool,
}

/// Runs one connection slot until its drive has nothing more to send.
pub(super) async fn run_connection<D: Drive>(shared: Rc<Shared<D>>, index: usize) {
    let mut is_reconnect = false;
    let mut failures_in_a_row = 0;
    // A request is taken before its connection is made, so that none is made for nothing.
    let mut now_ns = precise_ns();
    while shared.drive.borrow_mut().take_request(now_ns) {
        let slot = &shared.slots[index];
        let left = match Link::open(&shared, slot, is_reconnect).await {
            Ok((link, sent_ns)) => {
                failures_in_a_row = 0;
                let left = run_exchanges(&shared, link, slot, sent_ns).await;
                slot.forget();
                left
            }
            Err(failure) => {
                slot.forget();
                shared.drive.borrow_mut().handle_event(Event::Failed(failure));
                failures_in_a_row += 1;
                if !pause(&shared, failures_in_a_row).await {
                    return;
                }
                Left::Used
            }
        };
        is_reconnect = matches!(left, Left::ServerClosed);
        match left {
            Left::Done => return,
            Left::Failed(failure) => shared.drive.borrow_mut().handle_event(Event::Failed(failure)),
            Left::Used | Left::ServerClosed => {}
        }
        now_ns = precise_ns();
    }
}

/// Sleeps before another attempt to connect; false when there should be none.
async fn pause<D: Drive>(shared: &Shared<D>, failures_in_a_row: u32) -> bool {
    let pause_ns = shared.drive.borrow_mut().decide_pause_ns(precise_ns(), failures_in_a_row);
    let Some(mut left_ns) = pause_ns else { return false };
    while left_ns > 0 && !shared.is_abandoned() {
        let piece_ns = left_ns.min(PAUSE_PIECE_NS);
        tokio::time::sleep(Duration::from_nanos(piece_ns)).await;
        left_ns -= piece_ns;
    }
    true
}

/// Sends and reads until the connection is left. The first request was taken, and sent as far as `sent` says.
async fn run_exchanges<D: Drive>(shared: &Shared<D>, mut link: Link, slot: &Slot, first_sent_ns: u64) -> Left {
    let settings = &shared.settings;
    let mut reader = Reader::new(settings.is_head, settings.closes);
    let mut sent_ns = first_sent_ns;
    loop {
        slot.set_deadline(sent_ns.saturating_add(settings.request_timeout_ns));
        let exchanged = exchange(shared, &mut link, &mut reader).await;
        let received = reader.received();
        let mut drive = shared.drive.borrow_mut();
        (0..received.interim_responses).for_each(|_| drive.handle_event(Event::Interim));
        drive.handle_event(Event::Received {
            head_bytes: received.total_bytes - received.body_bytes,
            body_bytes: received.body_bytes,
        });
        let exchanged = match exchanged {
            Ok(exchanged) => exchanged,
            // A socket that was cut says all sorts of things; the reason for the cut is the truth.
            Err(failure) => return Left::Failed(slot.cut().unwrap_or(failure)),
        };
        let latency_ns = exchanged.ended_ns.saturating_sub(sent_ns);
        drive.handle_event(Event::Answered { status: exchanged.answer.status, latency_ns });
        if settings.closes {
            return Left::Used;
        }
        if !exchanged.answer.persistent || exchanged.server_closed {
            return Left::ServerClosed;
        }
        // The end of one exchange is the beginning of the next: one look at the clock for both.
        sent_ns = exchanged.ended_ns;
        if !drive.take_request(sent_ns) {
            return Left::Done;
        }
    }
}

/// One request and its answer.
async fn exchange<D: Drive>(shared: &Shared<D>, link: &mut Link, reader: &mut Reader) -> Result<Exchanged, Failure> {
    link.send(&shared.settings.request).await?;
    reader.handle_sent();
    shared.drive.borrow_mut().handle_event(Event::Sent { bytes: shared.settings.request.len() as u64 });
    loop {
        let received = link.receive(shared, reader).await?;
        if let Some(answer) = received.answer {
            return Ok(Exchanged { answer, ended_ns: precise_ns(), server_closed: received.server_closed });
        }
    }
}
