//! What all sides of a scenario share: what origins were asked, what is let go, what was seen.

use super::Failure;
use super::script::{Times, Turn};
use super::wire::TIMEOUT;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A scenario while it is played.
#[derive(Debug)]
pub(crate) struct Stage {
    begun: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    over: bool,
    /// How often each turn was asked.
    asked: Vec<u32>,
    requests: usize,
    released: BTreeSet<String>,
    failures: Vec<Failure>,
    record: String,
}

impl Stage {
    pub(crate) fn new(turns: usize) -> Self {
        let state = State { asked: vec![0; turns], ..State::default() };
        Self { begun: Instant::now(), state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `done` or the end of the scenario; `false`: it took longer than `timeout`.
    fn wait(&self, timeout: Duration, done: impl Fn(&State) -> bool) -> bool {
        let until = Instant::now() + timeout;
        let mut state = self.lock();
        while !state.over && !done(&state) {
            let Some(left) = until.checked_duration_since(Instant::now()) else { return false };
            state =
                self.changed.wait_timeout(state, left).map_or_else(|error| error.into_inner().0, |(state, _)| state);
        }
        true
    }

    /// Chooses the turn that answers a request: the first that fits and was not asked often enough.
    pub(crate) fn choose(&self, turns: &[Turn], fits: impl Fn(&Turn) -> bool) -> Option<usize> {
        let mut state = self.lock();
        state.requests += 1;
        let chosen = turns.iter().zip(&state.asked).position(|(turn, asked)| {
            fits(turn)
                && match turn.times {
                    Times::Exactly(times) | Times::AtMost(times) => *asked < times,
                    Times::Any => true,
                }
        });
        if let Some(turn) = chosen {
            state.asked[turn] += 1;
        }
        self.changed.notify_all();
        chosen
    }

    /// Waits until the origins were asked so often.
    pub(crate) fn await_requests(&self, count: usize) -> Result<(), String> {
        if self.wait(TIMEOUT, |state| state.requests >= count) {
            return Ok(());
        }
        Err(format!("the origins were asked {} times", self.lock().requests))
    }

    /// Waits until `release` says this name.
    pub(crate) fn hold(&self, name: &str) -> Result<(), String> {
        if self.wait(TIMEOUT, |state| state.released.contains(name)) {
            return Ok(());
        }
        Err(format!("nobody released {name:?} in {TIMEOUT:?}"))
    }

    pub(crate) fn release(&self, name: &str) {
        self.lock().released.insert(name.to_owned());
        self.changed.notify_all();
    }

    pub(crate) fn pause(&self, duration: Duration) {
        self.wait(duration, |_| false);
    }

    pub(crate) fn wait_until_over(&self) {
        self.wait(TIMEOUT * 10, |_| false);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.lock().over
    }

    pub(crate) fn end(&self) {
        self.lock().over = true;
        self.changed.notify_all();
    }

    pub(crate) fn fail(&self, failure: Failure) {
        self.lock().failures.push(failure);
    }

    /// Notes what happened, to be printed when the scenario fails.
    pub(crate) fn note(&self, text: &str) {
        let at_ms = self.begun.elapsed().as_millis();
        let mut state = self.lock();
        let _ = writeln!(state.record, "    {at_ms:>5} ms  {text}");
    }

    pub(crate) fn record(&self) -> String {
        self.lock().record.clone()
    }

    /// What the origins have to complain of; with `turns`, also that they were asked too seldom.
    pub(crate) fn complaints(&self, turns: &[Turn]) -> Vec<Failure> {
        // What is refreshed in the background may still be on its way.
        const LATE: Duration = Duration::from_secs(3);
        let missing = |state: &State| {
            let each = turns.iter().zip(&state.asked);
            each.filter(|(turn, asked)| matches!(turn.times, Times::Exactly(times) if times != **asked))
                .map(|(turn, asked)| Failure::at(turn.line, format!("this was asked {asked} times")))
                .collect::<Vec<_>>()
        };
        if self.lock().failures.is_empty() {
            self.wait(LATE, |state| missing(state).is_empty());
        }
        let state = self.lock();
        let mut failures = state.failures.clone();
        failures.extend(missing(&state));
        failures
    }
}
