//! What a client thread is driven by: its share of the plan, and its record.

use flatout_load::{Exchange, FailureKind, Recorder, Retry, ThreadPlan};
use flatout_net::client::{Drive, Event, Failure};
use hdrhistogram::Histogram;
use rustix::io::Errno;
use std::sync::{Arc, Mutex};

/// How often a thread publishes where it stands, in nanoseconds.
const PUBLISH_INTERVAL_NS: u64 = 200_000_000;

/// Where a thread stands, for the live line. Counts and times are from the start of the run.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    pub(super) responses: u64,
    pub(super) failures: u64,
    pub(super) latency: Histogram<u64>,
}

/// Where a thread leaves its standing for the one that prints.
pub(super) type Board = Arc<Mutex<Option<Standing>>>;

/// One client thread's drive.
#[derive(Debug)]
pub(super) struct LabDrive {
    plan: ThreadPlan,
    recorder: Recorder,
    board: Option<Board>,
    published_ns: u64,
}

impl LabDrive {
    pub(super) fn new(plan: ThreadPlan, recorder: Recorder, board: Option<Board>) -> Self {
        Self { plan, recorder, board, published_ns: 0 }
    }

    pub(super) fn into_recorder(self) -> Recorder {
        self.recorder
    }
}

impl Drive for LabDrive {
    fn take_request(&mut self, now_ns: u64) -> bool {
        self.plan.decide_next(now_ns) == flatout_load::Next::Send
    }

    fn decide_pause_ns(&mut self, now_ns: u64, failures_in_a_row: u32) -> Option<u64> {
        match self.plan.decide_retry(now_ns, failures_in_a_row) {
            Retry::After { pause_ns } => Some(pause_ns),
            Retry::GiveUp => None,
        }
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Connected { connect_ns, is_reconnect } => {
                self.plan.handle_connected();
                self.recorder.record_connect(connect_ns, is_reconnect);
            }
            Event::Sent { bytes } => self.recorder.record_sent(bytes),
            Event::Interim => self.recorder.record_interim(),
            Event::Received { head_bytes, body_bytes } => self.recorder.record_received(head_bytes, body_bytes),
            Event::Answered { status, latency_ns } => self.recorder.record_exchange(Exchange { status, latency_ns }),
            Event::Failed(failure) => {
                let (kind, detail) = kind_of(failure);
                self.recorder.record_failure(kind, detail);
            }
        }
    }

    fn handle_tick(&mut self, now_ns: u64) {
        let Some(board) = &self.board else { return };
        if now_ns.saturating_sub(self.published_ns) < PUBLISH_INTERVAL_NS {
            return;
        }
        self.published_ns = now_ns;
        // The reader holds it for a moment only; a turn missed is made up for by the next one.
        if let Ok(mut standing) = board.try_lock() {
            *standing = Some(Standing {
                responses: self.recorder.counts().responses,
                failures: self.recorder.counts().failures_total(),
                latency: self.recorder.latency().clone(),
            });
        }
    }

    fn handle_interrupt(&mut self) {
        self.plan.stop();
    }
}

/// The classic name of a failure, and what is known beyond it.
fn kind_of(failure: Failure) -> (FailureKind, &'static str) {
    match failure {
        Failure::TimedOut => (FailureKind::ClientTimo, ""),
        Failure::ClosedEarly => (FailureKind::ClosedEarly, ""),
        Failure::ShortBody => (FailureKind::ShortBody, ""),
        Failure::Malformed(refusal) => (FailureKind::BadResponse, refusal.name()),
        Failure::Surplus => (FailureKind::BadResponse, "surplus"),
        Failure::Abandoned => (FailureKind::Abandoned, ""),
        Failure::System(errno) => match errno {
            Errno::TIMEDOUT => (FailureKind::SocketTimo, ""),
            Errno::CONNREFUSED => (FailureKind::ConnRefused, ""),
            Errno::CONNRESET => (FailureKind::ConnReset, ""),
            // The peer had reset the connection before we sent.
            Errno::PIPE => (FailureKind::ConnReset, "epipe"),
            Errno::MFILE => (FailureKind::FdUnavail, ""),
            Errno::NFILE => (FailureKind::FtabFull, ""),
            Errno::ADDRNOTAVAIL => (FailureKind::AddrUnavail, ""),
            Errno::HOSTUNREACH => (FailureKind::Other, "host-unreachable"),
            Errno::NETUNREACH => (FailureKind::Other, "network-unreachable"),
            Errno::CONNABORTED => (FailureKind::Other, "aborted"),
            Errno::NOBUFS | Errno::NOMEM => (FailureKind::Other, "no-memory"),
            Errno::ACCESS | Errno::PERM => (FailureKind::Other, "not-permitted"),
            _ => (FailureKind::Other, ""),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::{LabDrive, kind_of};
    use flatout_http::refusal::Refusal;
    use flatout_load::{FailureKind, Recorder, Share, Stop, ThreadPlan};
    use flatout_net::client::{Drive, Event, Failure};
    use rustix::io::Errno;
    use std::sync::{Arc, Mutex};

    #[test]
    fn failures_keep_their_classic_names() {
        for (failure, kind, detail) in [
            (Failure::TimedOut, FailureKind::ClientTimo, ""),
            (Failure::System(Errno::CONNREFUSED), FailureKind::ConnRefused, ""),
            (Failure::System(Errno::MFILE), FailureKind::FdUnavail, ""),
            (Failure::System(Errno::NFILE), FailureKind::FtabFull, ""),
            (Failure::System(Errno::ADDRNOTAVAIL), FailureKind::AddrUnavail, ""),
            (Failure::System(Errno::XDEV), FailureKind::Other, ""),
            (Failure::Malformed(Refusal::StatusLine), FailureKind::BadResponse, "status_line"),
            (Failure::Surplus, FailureKind::BadResponse, "surplus"),
        ] {
            assert_eq!(kind_of(failure), (kind, detail));
        }
    }

    #[test]
    fn events_reach_the_record_and_ticks_the_board() {
        let board = Arc::new(Mutex::new(None));
        let plan = ThreadPlan::begin(Share { connections: 1, stop: Stop::Requests(2) }, 0, 1);
        let mut drive = LabDrive::new(plan, Recorder::new().unwrap(), Some(Arc::clone(&board)));
        assert!(drive.take_request(1));
        drive.handle_event(Event::Sent { bytes: 7 });
        drive.handle_event(Event::Answered { status: 200, latency_ns: 9 });
        drive.handle_tick(super::PUBLISH_INTERVAL_NS);
        assert_eq!(board.lock().unwrap().as_ref().unwrap().responses, 1);
        drive.handle_interrupt();
        assert!(!drive.take_request(2));
        assert_eq!(drive.into_recorder().counts().bytes_out, 7);
    }
}
