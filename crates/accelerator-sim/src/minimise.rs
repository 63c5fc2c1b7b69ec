//! The smallest scenario that fails.

use crate::scenario::{Fault, Kind, Scenario};
use crate::world::run;

/// Runs at most.
const RUNS_MAX: usize = 2_000;

/// Removes actions, faults and fields from `scenario` as long as it breaks the same invariant.
pub fn minimise(scenario: &Scenario, rule: &str) -> Scenario {
    let mut smallest = scenario.clone();
    let mut runs = 0;
    let mut fails = |candidate: &Scenario| {
        runs += 1;
        runs <= RUNS_MAX && run(candidate).is_err_and(|violation| violation.is_like(rule))
    };
    let mut size = smallest.actions.len().div_ceil(2);
    while size > 0 {
        let mut first = 0;
        while first < smallest.actions.len() {
            let mut candidate = smallest.clone();
            candidate.actions.drain(first..(first + size).min(smallest.actions.len()));
            if fails(&candidate) {
                smallest = candidate;
            } else {
                first += size;
            }
        }
        size /= 2;
    }
    for index in 0..smallest.actions.len() {
        for simplify in SIMPLIFICATIONS {
            let mut candidate = smallest.clone();
            if let Kind::Request(request) = &mut candidate.actions[index].kind {
                simplify(request);
            }
            if candidate != smallest && fails(&candidate) {
                smallest = candidate;
            }
        }
    }
    smallest
}

/// Each makes a request more ordinary.
const SIMPLIFICATIONS: [fn(&mut crate::scenario::Request); 12] = [
    |request| request.origin.fault = Fault::None,
    |request| request.origin.delay_ms = 0,
    |request| (request.origin.piece_bytes, request.origin.piece_delay_ms) = (usize::MAX, 0),
    |request| (request.piece_bytes, request.piece_delay_ms) = (usize::MAX, 0),
    |request| request.range = None,
    |request| request.is_conditional = false,
    |request| request.is_pipelined = false,
    |request| request.leaves_after_ms = None,
    |request| request.reads_after_ms = 0,
    |request| (request.closes, request.control) = (false, String::new()),
    |request| (request.has_cookie, request.has_authorization) = (false, false),
    |request| (request.language, request.encoding) = (String::new(), String::new()),
];
