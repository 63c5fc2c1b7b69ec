//! State that all sides of a scenario share: the requests to origins, released names, and what was observed.

use super::Failure;
use super::script::{Times, Turn};
use super::wire::TIMEOUT;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A running scenario.
#[derive(Debug)]
pub(crate) struct Stage {
    begun: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    over: bool,
    /// How often each turn was used.
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

    /// Waits until `done` returns true or the scenario ends. Returns false after `timeout`.
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

    /// Chooses the turn for a request: the first that fits and has not been used often enough.
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

    /// Waits until the origins have received this many requests.
    pub(crate) fn await_requests(&self, count: usize) -> Result<(), String> {
        if self.wait(TIMEOUT, |state| state.requests >= count) {
            return Ok(());
        }
        Err(format!("the origins were asked {} times", self.lock().requests))
    }

    /// Waits until `release` is called with this name.
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

    /// Records what happened, to be printed if the scenario fails.
    pub(crate) fn note(&self, text: &str) {
        let at_ms = self.begun.elapsed().as_millis();
        let mut state = self.lock();
        let _ = writeln!(state.record, "    {at_ms:>5} ms  {text}");
    }

    pub(crate) fn record(&self) -> String {
        self.lock().record.clone()
    }

    /// The complaints of the origins. With `turns`, also those about turns that were not used often enough.
    pub(crate) fn complaints(&self, turns: &[Turn]) -> Vec<Failure> {
        // A background revalidation may still be in progress.
        const LATE: Duration = Duration::from_secs(20);
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
