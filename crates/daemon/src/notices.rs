//! Lines on standard error about the availability and the concurrency limits of origins: at most one line per origin in
//! ten seconds. Each line says what has changed since the last one, so a state that lasted for less is not reported.

use flatout_proxy::{Change, OriginState};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Minimum time between two lines about the same origin, in milliseconds.
const INTERVAL_MS: u64 = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// The last lines about each origin that exists, by its URL. It stays the same when a reload changes its settings.
    reported: BTreeMap<String, Reported>,
    /// True if a reload has renewed origins since they were last looked at.
    is_renewed: bool,
    /// For each origin, and for the beginning and the end of its failures, the time from which another line about them
    /// is allowed, in milliseconds.
    failures: BTreeMap<(String, bool), u64>,
}

#[derive(Debug, Default)]
struct Reported {
    /// The effect of the origin's fault according to the last line about its availability; `None` if it is available.
    effect: Option<&'static str>,
    /// The last change of its availability that was seen.
    change: Option<Change>,
    /// True if the origin is limited according to the last line about its limit.
    is_limited: bool,
    /// Time from which another line is allowed, in milliseconds.
    next_ms: u64,
    /// True if the origin's state differs from what was reported.
    is_stale: bool,
}

impl Reported {
    /// Compares the state of `origin` with what was reported, and returns the line to print now. `is_renewed` is true if
    /// a reload has renewed it since.
    fn update(&mut self, origin: &OriginState, is_renewed: bool, now_ms: u64) -> Option<String> {
        let OriginState { address, is_only, fault, is_limited } = origin;
        self.change = match (*fault, self.change) {
            (Some(fault), _) => Some(fault),
            (None, Some(Change::ChecksFailed | Change::Paused)) if is_renewed => Some(Change::Renewed),
            (None, Some(Change::ChecksFailed)) => Some(Change::ChecksPassed),
            (None, Some(Change::Paused)) => Some(Change::TrialPassed),
            (None, change) => change,
        };
        let effect = fault.map(|fault| fault.effect(*is_only));
        let is_about_limit = self.effect == effect;
        self.is_stale = !is_about_limit || self.is_limited != *is_limited;
        if !self.is_stale || now_ms < self.next_ms {
            return None;
        }
        let change = if is_about_limit {
            self.is_limited = *is_limited;
            if *is_limited { Change::LimitBegan } else { Change::LimitEnded }
        } else {
            self.effect = effect;
            self.change?
        };
        self.is_stale = self.is_limited != *is_limited;
        self.next_ms = now_ms.saturating_add(INTERVAL_MS);
        Some(describe(address, change, *is_only))
    }
}

fn describe(address: &str, change: Change, is_only: bool) -> String {
    format!("origin {address} {}: [{}] {}", change.effect(is_only), change.name(), change.text())
}

impl Notices {
    /// Handles a reload that renews origins: those that were unavailable or limited no longer are.
    pub(crate) const fn handle_reload(&mut self) {
        self.is_renewed = true;
    }

    /// Returns whether to print a line that requests to the origin at `address` fail, or if `is_end` is true, that it
    /// answers again. Each route has its own line, but one suffices.
    pub(crate) fn allows(&mut self, address: &str, is_end: bool, now_ms: u64) -> bool {
        self.failures.retain(|_, next_ms| *next_ms > now_ms);
        let entry = self.failures.entry((address.to_owned(), is_end));
        let is_allowed = matches!(entry, Entry::Vacant(_));
        entry.or_insert(now_ms.saturating_add(INTERVAL_MS));
        is_allowed
    }

    /// Compares the states of all origins with what was reported. Returns the lines to print now. Forgets origins that
    /// are not among `origins`. An origin that occurs several times, for different routes, has the faults of all of
    /// them.
    pub(crate) fn update(&mut self, origins: impl IntoIterator<Item = OriginState>, now_ms: u64) -> Vec<String> {
        let is_renewed = std::mem::take(&mut self.is_renewed);
        let mut states = BTreeMap::<String, OriginState>::new();
        for origin in origins {
            match states.entry(origin.address.clone()) {
                Entry::Vacant(entry) => {
                    entry.insert(origin);
                }
                Entry::Occupied(mut entry) => {
                    let state = entry.get_mut();
                    // Failed checks have the larger effect.
                    if state.fault != Some(Change::ChecksFailed) {
                        state.fault = origin.fault.or(state.fault);
                    }
                    state.is_only &= origin.is_only;
                    state.is_limited |= origin.is_limited;
                }
            }
        }
        let mut before = std::mem::take(&mut self.reported);
        let mut lines = Vec::new();
        for (address, origin) in states {
            let mut reported = before.remove(&address).unwrap_or_default();
            lines.extend(reported.update(&origin, is_renewed, now_ms));
            self.reported.insert(address, reported);
        }
        // What began also ends.
        let removed = before.into_iter().filter(|(_, reported)| reported.effect.is_some() || reported.is_limited);
        lines.extend(removed.map(|(address, _)| describe(&address, Change::Removed, false)));
        lines
    }

    /// Returns when [`Notices::update`] must be called again even if no origin changes, in milliseconds.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        self.reported.values().filter(|reported| reported.is_stale).map(|reported| reported.next_ms).min()
    }
}

#[cfg(test)]
mod tests {
    use super::Notices;
    use flatout_proxy::{Change, OriginState};

    fn origin(index: usize, fault: Option<Change>) -> OriginState {
        OriginState { address: index.to_string(), is_only: false, fault, is_limited: false }
    }

    /// Returns the beginning of each line.
    fn look(notices: &mut Notices, origins: &[&OriginState], now_ms: u64) -> Vec<String> {
        let lines = notices.update(origins.iter().map(|origin| (*origin).clone()), now_ms);
        lines.iter().map(|line| line.split_once(']').unwrap().0.to_owned()).collect()
    }

    #[test]
    fn lines_come_in_pairs_and_late_rather_than_never() {
        let mut notices = Notices::default();
        let (well, out) = (origin(0, None), origin(0, Some(Change::Paused)));
        assert_eq!(look(&mut notices, &[&well], 0), [""; 0]);
        assert_eq!(look(&mut notices, &[&out], 1_000), ["origin 0 is out of rotation: [origin_paused"]);
        assert_eq!(look(&mut notices, &[&out], 12_000), [""; 0]);
        assert_eq!(notices.due_ms(), None);
        assert_eq!(look(&mut notices, &[&well], 13_000), ["origin 0 is back in rotation: [origin_trial_passed"]);
        // Another origin has its own lines.
        let other = origin(1, Some(Change::ChecksFailed));
        let lines = look(&mut notices, &[&out, &other], 14_000);
        assert_eq!(
            (lines.as_slice(), notices.due_ms()),
            (["origin 1 is out of rotation: [origin_checks_failed".to_owned()].as_slice(), Some(23_000))
        );
        // What lasted for a short time is not said.
        assert_eq!(look(&mut notices, &[&well, &other], 22_999), [""; 0]);
        assert_eq!((look(&mut notices, &[&out, &other], 23_000).len(), notices.due_ms()), (1, None));
    }

    #[test]
    fn an_origin_of_several_routes_is_reported_once() {
        let mut notices = Notices::default();
        let (well, out) = (origin(0, None), origin(0, Some(Change::Paused)));
        assert_eq!(look(&mut notices, &[&well, &out], 0), ["origin 0 is out of rotation: [origin_paused"]);
        assert_eq!(look(&mut notices, &[&out, &out], 20_000), [""; 0]);
        assert_eq!(look(&mut notices, &[&well, &well], 30_000), ["origin 0 is back in rotation: [origin_trial_passed"]);
        let down = origin(0, Some(Change::ChecksFailed));
        for (now_ms, both) in [(40_000, [&out, &down]), (60_000, [&down, &out])] {
            let lines = look(&mut notices, &both, now_ms);
            assert_eq!(lines, ["origin 0 is out of rotation: [origin_checks_failed"]);
            assert_eq!(look(&mut notices, &[&well], now_ms + 10_000).len(), 1);
        }
    }

    /// An origin with other settings has a new state.
    #[test]
    fn a_reload_ends_faults_and_limits() {
        let mut notices = Notices::default();
        let (well, out) = (origin(0, None), OriginState { is_limited: true, ..origin(0, Some(Change::Paused)) });
        assert_eq!(look(&mut notices, &[&out], 0).len(), 1);
        // It is too soon for another line.
        notices.handle_reload();
        assert_eq!(look(&mut notices, &[&well], 9_999), [""; 0]);
        assert_eq!(look(&mut notices, &[&well], 10_000), ["origin 0 is back in rotation: [origin_renewed"]);
        assert_eq!(notices.due_ms(), None);
        // A reload does not change the reason of what happened before it.
        assert_eq!(look(&mut notices, &[&out], 20_000).len(), 1);
        assert_eq!(look(&mut notices, &[&well], 20_001), [""; 0]);
        notices.handle_reload();
        assert_eq!(look(&mut notices, &[&well], 30_000), ["origin 0 is back in rotation: [origin_trial_passed"]);
    }

    /// "Back in rotation" must not be said of an origin that is down.
    #[test]
    fn the_last_line_is_true_whatever_came_between() {
        let mut notices = Notices::default();
        let mut said = Vec::new();
        let states = [Some(Change::Paused), Some(Change::ChecksFailed), None, Some(Change::Paused), None];
        for now_ms in (0..200_000).step_by(500) {
            // It changes every 500 ms, then stays in one state.
            let fault = states[(now_ms / 500).min(102) as usize % states.len()];
            let lines = look(&mut notices, &[&origin(0, fault)], now_ms);
            said.extend(lines.into_iter().map(|line| (now_ms, line)));
        }
        assert!(said.windows(2).all(|pair| pair[1].0 - pair[0].0 >= 10_000), "{said:?}");
        for (at, (_, line)) in said.iter().enumerate() {
            assert!(line.contains(if at % 2 == 0 { "is out of" } else { "is back in" }), "{said:?}");
        }
        assert!(said.len() % 2 == 0 && notices.due_ms().is_none(), "{said:?}");
        // The only origin: each fault has another effect.
        let only = |fault| OriginState { is_only: true, ..origin(0, fault) };
        let paused = look(&mut notices, &[&only(Some(Change::Paused))], 300_000);
        assert_eq!(paused, ["origin 0 is failing, but still gets all requests: there is no other: [origin_paused"]);
        let down = look(&mut notices, &[&only(Some(Change::ChecksFailed))], 310_000);
        assert!(down[0].starts_with("origin 0 is unhealthy, "), "{down:?}");
        assert_eq!(look(&mut notices, &[&only(None)], 320_000), ["origin 0 is healthy again: [origin_checks_passed"]);
    }

    #[test]
    fn limits_are_reported_after_the_availability_and_removed_origins_are_forgotten() {
        let mut notices = Notices::default();
        let limited = OriginState { is_limited: true, ..origin(0, Some(Change::Paused)) };
        assert_eq!(look(&mut notices, &[&limited], 0), ["origin 0 is out of rotation: [origin_paused"]);
        assert_eq!(notices.due_ms(), Some(10_000));
        assert!(look(&mut notices, &[&limited], 10_000)[0].ends_with("[origin_limit_began"));
        let lines = look(&mut notices, &[&origin(0, Some(Change::Paused))], 20_000);
        assert_eq!(lines, ["origin 0 gets all requests at once again: [origin_limit_ended"]);
        assert_eq!(look(&mut notices, &[], 20_000), ["origin 0 gets no more requests: [origin_removed"]);
        assert_eq!((look(&mut notices, &[], 20_000), notices.reported.len()), (Vec::new(), 0));
    }

    #[test]
    fn failures_of_many_routes_are_reported_once_in_ten_seconds() {
        let mut notices = Notices::default();
        let allowed: Vec<_> = [(0, false), (1, false), (2, true), (3, true), (9_999, false), (10_000, false)]
            .into_iter()
            .filter(|(now_ms, is_end)| notices.allows("a", *is_end, *now_ms))
            .collect();
        assert_eq!(allowed, [(0, false), (2, true), (10_000, false)]);
        assert!(notices.allows("b", false, 10_000));
        assert!(notices.allows("a", true, 60_000) && notices.failures.len() == 1);
    }
}
