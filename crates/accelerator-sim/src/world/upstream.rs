//! The origin's connections: requests that arrive, responses in pieces.

use super::end::End;
use super::{Event, LATE_MS, World};
use crate::origin::{Ending, Received, Reply, UNSOLICITED};
use crate::scenario::Fault;
use rustix::event::PollFlags;
use rustix::net::{RecvFlags, recv};
use std::collections::VecDeque;
use std::io::Read as _;

/// The origin's end of a connection.
#[derive(Debug)]
pub(super) struct OriginEnd {
    pub(super) end: End,
    /// The request as far as it was seen. It stays in the kernel until it was answered, so that a close is a reset.
    pub(super) peeked: Vec<u8>,
    /// It is being answered.
    pub(super) is_busy: bool,
    pub(super) received: Received,
    pub(super) request_bytes: usize,
    pub(super) fault: Fault,
    pub(super) asked_order: u64,
    /// The index of its failure, while the accelerator waits for it.
    pub(super) hanging: Option<usize>,
    pub(super) pieces: VecDeque<Vec<u8>>,
    pub(super) piece_delay_ms: u64,
    pub(super) ending: Ending,
}

impl OriginEnd {
    /// Returns true if the next request has arrived: an unsolicited response would look like the response to it.
    fn has_next_request(&self) -> bool {
        let mut buffer = [0; 16 * 1024];
        let peeked = self.end.stream.as_ref().and_then(|stream| recv(stream, &mut buffer[..], RecvFlags::PEEK).ok());
        peeked.is_some_and(|(count, _)| count > self.request_bytes)
    }
}

impl World {
    pub(super) fn origin_ready(&mut self, index: usize, got: PollFlags) -> bool {
        let order = self.next_order();
        let origin = &mut self.origins[index];
        origin.end.flush();
        if origin.is_busy {
            if got.intersects(PollFlags::HUP | PollFlags::ERR) {
                origin.end.stream = None;
                origin.end.unsent.clear();
                if let Some(index) = origin.hanging.take() {
                    self.origin.failures[index].known_order = order;
                }
                let serial = origin.received.serial();
                self.origin.end(serial, self.now_ms, false);
            }
            return true;
        }
        let Some(stream) = &origin.end.stream else { return false };
        let mut buffer = [0; 16 * 1024];
        let count = recv(stream, &mut buffer[..], RecvFlags::PEEK).map_or(0, |(count, _)| count);
        if count == 0 {
            origin.end.stream = None;
            return true;
        }
        if count == origin.peeked.len() {
            if got.intersects(PollFlags::HUP) {
                origin.end.stream = None;
            }
            return false;
        }
        origin.peeked = buffer[..count].to_vec();
        let Some(end) = origin.peeked.windows(4).position(|four| four == b"\r\n\r\n") else { return true };
        let head = String::from_utf8_lossy(&origin.peeked[..end]).into_owned();
        let received = Received::parse(&head);
        let content_bytes: usize = received.field("content-length").parse().unwrap_or(0);
        if origin.peeked.len() < end + 4 + content_bytes {
            return true;
        }
        origin.request_bytes = end + 4 + content_bytes;
        origin.is_busy = true;
        origin.asked_order = order;
        let serial = received.serial();
        let is_post = received.method == "POST";
        origin.received = received;
        let fault = self.origin.begin(&self.scenario, serial, (self.now_ms, order));
        self.origins[index].fault = fault;
        let attempts = self.origin.attempts(serial);
        if is_post && attempts > 1 {
            self.fail(serial, "a POST reached the origin twice");
        }
        if attempts > 40 {
            self.fail(serial, "a request reached the origin more than 40 times");
        }
        let delay_ms = self.scenario.request(serial).map_or(0, |request| request.origin.delay_ms);
        self.schedule(delay_ms, Event::OriginResponds(index));
        true
    }

    pub(super) fn respond(&mut self, index: usize) {
        if self.origins[index].end.stream.is_none() {
            return;
        }
        let order = self.next_order();
        let (now, unix_s) = ((self.now_ms, order), self.unix_s());
        let origin = &self.origins[index];
        let (fault, asked_order) = (origin.fault, origin.asked_order);
        let reply = self.origin.respond(&self.scenario, (&origin.received, fault), (now, asked_order), unix_s);
        self.figures.origin_responses += 1;
        let Reply { pieces, piece_delay_ms, ending } = reply;
        let origin = &mut self.origins[index];
        origin.hanging = (fault == Fault::Hang).then(|| self.origin.failures.len() - 1);
        origin.pieces = pieces.into();
        (origin.piece_delay_ms, origin.ending) = (piece_delay_ms, ending);
        self.write_origin_piece(index);
    }

    pub(super) fn write_origin_piece(&mut self, index: usize) {
        let origin = &mut self.origins[index];
        if let Some(piece) = origin.pieces.pop_front()
            && (piece != UNSOLICITED || origin.fault != Fault::Surplus || !origin.has_next_request())
        {
            origin.end.send(&piece);
        }
        if !origin.pieces.is_empty() || !origin.end.unsent.is_empty() {
            // A proxy that reads slowly holds up the origin.
            let delay_ms = origin.piece_delay_ms.max(u64::from(!origin.end.unsent.is_empty()));
            if origin.end.stream.is_some() {
                self.schedule(delay_ms, Event::OriginPiece(index));
            }
            return;
        }
        if origin.ending == Ending::Silence {
            if origin.fault == Fault::Stall {
                // Too late: the accelerator has closed the connection.
                origin.ending = Ending::Close;
                origin.pieces.push_back(UNSOLICITED.to_vec());
                self.schedule(LATE_MS, Event::OriginPiece(index));
            }
            return;
        }
        if origin.ending != Ending::Reset
            && let Some(stream) = &mut origin.end.stream
        {
            let mut request = vec![0; origin.request_bytes];
            let _ = stream.read_exact(&mut request);
        }
        origin.peeked.clear();
        origin.is_busy = false;
        if origin.ending != Ending::Keep {
            origin.end.stream = None;
        }
    }
}
