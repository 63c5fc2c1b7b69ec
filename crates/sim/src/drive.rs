//! Runs a plan against a simulated server, with a clock that advances only when nothing else is left to do.

use crate::model::Server;
use flatout_load::plan::{Plan, PlanError};
use flatout_load::record::{ConnectionEnd, Recorder, RecorderSettings, Sample};
use flatout_load::schedule::{Begin, Move, Schedule, Tally};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Driven {
    /// The recorded samples.
    pub recorder: Recorder,
    /// The counts of the schedule.
    pub tally: Tally,
    /// When it ended, in nanoseconds from its start.
    pub ended_ns: u64,
}

/// Bytes of the head and the body of every simulated response, and of a request.
const HEAD_BYTES: u64 = 100;
const BODY_BYTES: u64 = 1024;
const REQUEST_BYTES: u64 = 50;

/// Runs a plan in one thread against a server. Connecting takes no time. The client wakes `wake_lag_ns` later than planned,
/// as on a busy machine; 0 simulates a perfect one.
///
/// # Errors
/// If the plan is invalid.
pub fn drive(plan: &Plan, server: Server, wake_lag_ns: u64) -> Result<Driven, PlanError> {
    drive_observed(plan, server, wake_lag_ns, &mut |_| {})
}

/// As [`drive`]; `observe` receives every recorded sample.
///
/// # Errors
/// If the plan is invalid.
pub fn drive_observed(
    plan: &Plan,
    mut server: Server,
    wake_lag_ns: u64,
    observe: &mut dyn FnMut(&Sample),
) -> Result<Driven, PlanError> {
    let share = *plan.shares(1, 0, 1).first().ok_or(PlanError::NoWork)?;
    let mut schedule = Schedule::begin(plan, share, 0)?;
    let settings =
        RecorderSettings { classes: 1, start_ns: 0, measured_from_ns: schedule.measured_from_ns().unwrap_or(0) };
    let recorder = Recorder::new(settings).map_err(|error| PlanError::Meaningless(error.to_string()))?;
    let mut client = Client {
        recorder,
        under_way: BinaryHeap::new(),
        slots: vec![SimulatedConnection::default(); share.connections as usize],
        order: 0,
    };
    let mut now_ns = 0;
    loop {
        match schedule.next(now_ns) {
            Move::Begin(begin) => {
                client.begin(begin, now_ns, &mut server);
                continue;
            }
            Move::Close(_) | Move::DropClient(_) => continue,
            Move::WaitUntil(until_ns) => match client.next_answer_ns() {
                Some(answer_ns) if answer_ns <= until_ns => now_ns = now_ns.max(answer_ns),
                _ => {
                    now_ns = now_ns.max(until_ns + wake_lag_ns);
                    continue;
                }
            },
            Move::Idle | Move::Done => match client.next_answer_ns() {
                Some(answer_ns) => now_ns = now_ns.max(answer_ns),
                // Nothing is in progress, and nothing will start.
                None => break,
            },
        }
        if let Some((slot, is_open)) = client.take_answer(now_ns, observe)
            && let Some(begin) = schedule.handle_answered(slot, now_ns, is_open)
        {
            client.begin(begin, now_ns, &mut server);
        }
    }
    client.recorder.finish(now_ns);
    Ok(Driven { recorder: client.recorder, tally: schedule.tally(), ended_ns: now_ns })
}

/// The connections of the one thread.
struct Client {
    recorder: Recorder,
    /// Bursts in progress: the time of the last response, the order among equal times, and the slot.
    under_way: BinaryHeap<Reverse<(u64, u64, u32)>>,
    slots: Vec<SimulatedConnection>,
    order: u64,
}

#[derive(Clone, Debug, Default)]
struct SimulatedConnection {
    samples: Vec<Sample>,
    closes: bool,
    connected_ns: u64,
    replies: u64,
}

impl Client {
    fn begin(&mut self, begin: Begin, now_ns: u64, server: &mut Server) {
        self.recorder.record_begun(begin.burst, begin.intended_ns, now_ns);
        let slot = &mut self.slots[begin.slot as usize];
        if begin.connect {
            self.recorder.record_connect_begun(now_ns);
            self.recorder.record_connected(now_ns, None);
            (slot.connected_ns, slot.replies) = (now_ns, 0);
        }
        slot.closes = begin.closes;
        let mut answered_ns = now_ns;
        for index in 0..begin.burst {
            // Responses on one connection arrive in order (RFC 9112 §9.3.2).
            answered_ns = answered_ns.max(server.answer_ns(now_ns));
            slot.samples.push(Sample {
                class: 0,
                step: 0,
                intended_ns: begin.intended_ns,
                begun_ns: now_ns,
                sent_ns: now_ns,
                first_byte_ns: answered_ns,
                ended_ns: answered_ns,
                resolve_ns: 0,
                connect_ns: 0,
                tls_ns: 0,
                result: Ok(200),
                detail: "",
                head_bytes: HEAD_BYTES,
                body_bytes: BODY_BYTES,
                sent_bytes: REQUEST_BYTES,
                interim_responses: 0,
                is_new_connection: begin.connect && index == 0,
            });
        }
        self.order += 1;
        self.under_way.push(Reverse((answered_ns, self.order, begin.slot)));
    }

    fn next_answer_ns(&self) -> Option<u64> {
        self.under_way.peek().map(|Reverse((answer_ns, ..))| *answer_ns)
    }

    /// Records the burst whose responses have all arrived by now. Returns its slot, and true if the connection is still open.
    fn take_answer(&mut self, now_ns: u64, observe: &mut dyn FnMut(&Sample)) -> Option<(u32, bool)> {
        let &Reverse((answer_ns, _, number)) = self.under_way.peek()?;
        if answer_ns > now_ns {
            return None;
        }
        self.under_way.pop();
        let slot = &mut self.slots[number as usize];
        for sample in slot.samples.drain(..) {
            slot.replies += 1;
            self.recorder.record(&sample);
            observe(&sample);
        }
        if slot.closes {
            self.recorder.record_connection_end(&ConnectionEnd {
                begun_ns: slot.connected_ns,
                ended_ns: now_ns,
                replies: slot.replies,
                by_server: false,
            });
        }
        Some((number, !slot.closes))
    }
}
