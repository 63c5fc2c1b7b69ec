//! Lines on standard error about origins and application servers, here called origins: about the availability and the
//! concurrency limit of each, at most one line in ten seconds, and about its failing requests, likewise. Each line says
//! what has changed since the last one, so a state that lasted for less is not reported.

mod failures;

use failures::FailureNotices;
use flatout_balance::limit::LimiterStatus;
use flatout_proxy::{Change, OtherOrigins};
use flatout_upstream::events::{OriginState, SeriesReport};
use std::collections::{BTreeMap, BTreeSet};

/// Minimum time between two lines about the same origin, in milliseconds.
const INTERVAL_MS: u64 = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// The last lines about each origin that exists, by its name. It stays the same when a reload changes its settings.
    reported: BTreeMap<String, Reported>,
    /// The names of origins that reloads have renewed since they were last looked at.
    renewed: BTreeSet<String>,
    failures: FailureNotices,
}

/// The state of an origin in all its routes, with its worst fault.
#[derive(Debug)]
struct Standing {
    fault: Option<Change>,
    /// Other origins of the routes in which it has the fault; of all its routes, if there is no fault.
    others: OtherOrigins,
    /// The load in a route in which it is limited.
    limited: Option<LimiterStatus>,
}

impl Standing {
    fn of_route(origin: &OriginState) -> Self {
        let OriginState { fault, is_only, .. } = *origin;
        Self { fault, others: OtherOrigins::of_group(is_only), limited: origin.limited.clone() }
    }

    /// Adds the state in another route.
    fn add(&mut self, origin: &OriginState) {
        let added = Self::of_route(origin);
        let others = match (self.fault, added.fault) {
            (one, other) if one == other => self.others.and(added.others),
            // Failed checks have the larger effect.
            (Some(_), None) | (Some(Change::ChecksFailed), _) => self.others,
            _ => added.others,
        };
        if self.fault != Some(Change::ChecksFailed) {
            self.fault = added.fault.or(self.fault);
        }
        self.others = others;
        self.limited = self.limited.take().or(added.limited);
    }
}

#[derive(Debug, Default)]
struct Reported {
    /// The effect of the origin's fault according to the last line about its availability; `None` if it is available.
    effect: Option<&'static str>,
    /// The other origins according to the last line about a fault, for the line about its end.
    others: Option<OtherOrigins>,
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
    /// Compares the state of the origin called `server` with what was reported, and returns the line to print now.
    /// `is_renewed` is true if a reload has renewed it since.
    fn update(&mut self, server: &str, standing: &Standing, is_renewed: bool, now_ms: u64) -> Option<String> {
        let Standing { fault, others, .. } = *standing;
        let is_limited = standing.limited.is_some();
        self.change = match (fault, self.change) {
            (Some(fault), _) => Some(fault),
            (None, Some(Change::ChecksFailed | Change::Paused)) if is_renewed => Some(Change::Renewed),
            (None, Some(Change::ChecksFailed)) => Some(Change::ChecksPassed),
            (None, Some(Change::Paused)) => Some(Change::TrialPassed),
            (None, change) => change,
        };
        let effect = fault.map(|fault| fault.effect(others));
        let is_about_limit = self.effect == effect;
        self.is_stale = !is_about_limit || self.is_limited != is_limited;
        if !self.is_stale || now_ms < self.next_ms {
            return None;
        }
        let change = if is_about_limit {
            self.is_limited = is_limited;
            if is_limited { Change::LimitBegan } else { Change::LimitEnded }
        } else {
            self.effect = effect;
            self.change?
        };
        // Lines come in pairs: "back in rotation" only if the origin was out of it.
        let others = match (fault, is_about_limit) {
            (None, false) => self.others.unwrap_or(others),
            _ => others,
        };
        if fault.is_some() && !is_about_limit {
            self.others = Some(others);
        }
        self.is_stale = self.is_limited != is_limited;
        self.next_ms = now_ms.saturating_add(INTERVAL_MS);
        let line = describe(server, change, others);
        Some(match &standing.limited {
            Some(load) if change == Change::LimitBegan => format!("{line} It has {load}."),
            _ => line,
        })
    }
}

fn describe(server: &str, change: Change, others: OtherOrigins) -> String {
    format!("{server} {}: [{}] {}", change.effect(others), change.name(), change.text())
}

impl Notices {
    /// Handles a reload that renews the origins with these names: if they were unavailable or limited, they no longer are.
    pub(crate) fn handle_reload(&mut self, renewed: Vec<String>) {
        self.renewed.extend(renewed);
    }

    /// Handles a report of the route with the number `route` about requests to `server`.
    pub(crate) fn handle_series(&mut self, server: String, route: u64, report: SeriesReport) {
        self.failures.handle(server, route, report);
    }

    /// Compares the states of all origins with what was reported. Returns the lines to print now. Forgets origins that
    /// are not among `origins`. An origin that occurs several times, for different routes, has the faults of all of
    /// them, and a line is about the worst one.
    pub(crate) fn update(&mut self, origins: impl IntoIterator<Item = OriginState>, now_ms: u64) -> Vec<String> {
        let renewed = std::mem::take(&mut self.renewed);
        let mut states = BTreeMap::<String, Standing>::new();
        let mut routes = BTreeSet::new();
        for origin in origins {
            states
                .entry(origin.server.clone())
                .and_modify(|standing| standing.add(&origin))
                .or_insert_with(|| Standing::of_route(&origin));
            routes.insert((origin.server, origin.route));
        }
        let mut before = std::mem::take(&mut self.reported);
        self.failures.retain_routes(|server, route| routes.contains(&(server.to_owned(), route)));
        let mut lines = self.failures.lines(now_ms);
        for (server, standing) in states {
            let mut reported = before.remove(&server).unwrap_or_default();
            lines.extend(reported.update(&server, &standing, renewed.contains(&server), now_ms));
            self.reported.insert(server, reported);
        }
        // What began also ends.
        let removed = before.into_iter().filter(|(_, reported)| reported.effect.is_some() || reported.is_limited);
        lines.extend(removed.map(|(server, _)| describe(&server, Change::Removed, OtherOrigins::Everywhere)));
        lines
    }

    /// Returns when [`Notices::update`] must be called again even if no origin changes, in milliseconds.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        let due_ms = self.reported.values().filter(|reported| reported.is_stale).map(|reported| reported.next_ms);
        due_ms.chain(self.failures.due_ms()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::Notices;
    use flatout_balance::limit::{LaneStatus, LimiterStatus};
    use flatout_proxy::Change;
    use flatout_upstream::events::OriginState;

    fn origin(index: usize, fault: Option<Change>) -> OriginState {
        OriginState { server: format!("origin {index}"), route: 1, is_only: false, fault, limited: None }
    }

    /// A load of which two paths have the most requests.
    fn load() -> LimiterStatus {
        let lane = |asking, limit, queued| LaneStatus { asking, limit, queued };
        LimiterStatus {
            under_way: 9,
            max: 64,
            queue_max: 128,
            quick: lane(8, Some(8), 31),
            aged: 0,
            slow: lane(0, None, 0),
            paths: vec![("/search".to_owned(), 6), ("/".to_owned(), 2)],
        }
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

    /// A route with several origins, and another one of which the same origin is the only one.
    #[test]
    fn a_line_is_true_for_each_route_that_has_the_fault() {
        let among_others = |fault| origin(0, fault);
        let only = |fault| OriginState { is_only: true, route: 2, ..origin(0, fault) };
        let (paused, down) = (Some(Change::Paused), Some(Change::ChecksFailed));
        for (first, second, expected, end) in [
            (paused, None, "is out of rotation", "is back in rotation"),
            (None, paused, "is failing, but still gets all requests: there is no other", "is healthy again"),
            (
                paused,
                paused,
                "is failing: it is out of rotation where there are other origins, and gets all requests where there are none",
                "is healthy again",
            ),
            (down, paused, "is out of rotation", "is back in rotation"),
            (
                paused,
                down,
                "is unhealthy, and gets no requests until its checks pass: there is no other",
                "is healthy again",
            ),
            (down, down, "is unhealthy, and gets no requests until its checks pass", "is healthy again"),
        ] {
            let faults = [among_others(first), only(second)];
            for order in [[0, 1], [1, 0]] {
                let mut notices = Notices::default();
                let lines = look(&mut notices, &order.map(|index| &faults[index]), 0);
                let [line] = &lines[..] else { panic!("{lines:?}") };
                assert!(line.starts_with(&format!("origin 0 {expected}: [")), "{line}");
                let lines = look(&mut notices, &[&among_others(None), &only(None)], 20_000);
                let [line] = &lines[..] else { panic!("{lines:?}") };
                assert!(line.starts_with(&format!("origin 0 {end}: [")), "{line}");
            }
        }
    }

    /// An origin with other settings has a new state.
    #[test]
    fn a_reload_ends_faults_and_limits() {
        let mut notices = Notices::default();
        let (well, out) = (origin(0, None), OriginState { limited: Some(load()), ..origin(0, Some(Change::Paused)) });
        assert_eq!(look(&mut notices, &[&out], 0).len(), 1);
        // It is too soon for another line.
        notices.handle_reload(vec!["origin 0".to_owned()]);
        assert_eq!(look(&mut notices, &[&well], 9_999), [""; 0]);
        assert_eq!(look(&mut notices, &[&well], 10_000), ["origin 0 is back in rotation: [origin_renewed"]);
        assert_eq!(notices.due_ms(), None);
        // A reload does not change the reason of what happened before it.
        assert_eq!(look(&mut notices, &[&out], 20_000).len(), 1);
        assert_eq!(look(&mut notices, &[&well], 20_001), [""; 0]);
        notices.handle_reload(vec!["origin 0".to_owned()]);
        assert_eq!(look(&mut notices, &[&well], 30_000), ["origin 0 is back in rotation: [origin_trial_passed"]);
        // A reload of another origin is not the reason either.
        assert_eq!(look(&mut notices, &[&out], 40_000).len(), 1);
        notices.handle_reload(vec!["origin 1".to_owned()]);
        assert_eq!(look(&mut notices, &[&well], 50_000), ["origin 0 is back in rotation: [origin_trial_passed"]);
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
        let limited = OriginState { limited: Some(load()), ..origin(0, Some(Change::Paused)) };
        assert_eq!(look(&mut notices, &[&limited], 0), ["origin 0 is out of rotation: [origin_paused"]);
        assert_eq!(notices.due_ms(), Some(10_000));
        let lines = notices.update([limited], 10_000);
        assert!(lines[0].contains(": [origin_limit_began] The origin is overloaded"), "{lines:?}");
        let load = ". It has 9 of 64 requests in progress, 8 waiting for a response head (limit 8), 31 queued; most of them \
                    for /search (6).";
        assert!(lines[0].ends_with(load), "{lines:?}");
        let lines = look(&mut notices, &[&origin(0, Some(Change::Paused))], 20_000);
        assert_eq!(lines, ["origin 0 gets all requests at once again: [origin_limit_ended"]);
        assert_eq!(look(&mut notices, &[], 20_000), ["origin 0 gets no more requests: [origin_removed"]);
        assert_eq!((look(&mut notices, &[], 20_000), notices.reported.len()), (Vec::new(), 0));
    }
}
