//! Outcomes of requests: one table defines the name in logs and counters, the status and the meaning.

use flatout_cache::reason::Lookup;
use flatout_net::origin::OriginFailure;
use flatout_reason::join;

flatout_reason::reasons! {
    /// Outcome of forwarding by this crate's rules. Cache decisions and origin failures have separate tables.
    pub enum ForwardOutcome {
        name,
        /// Status of the response; 0: the origin's status.
        status: u16,
        text,
    }
    Forwarded, "forwarded", 0, "An origin answered.";
    ForwardedAgain, "forwarded_again", 0, "An origin answered, after another attempt had failed.";
    Upgraded, "upgraded", 101, "The origin agreed to another protocol, and the connection is a tunnel now: 101.";
    UpgradeInvalid, "upgrade_invalid", 502, "The origin changed to a protocol that nobody had asked for: 502.";
    LoopDetected, "loop_detected", 508, "Via names this server twice already: the request goes in a circle: 508.";
    MaxForwards, "max_forwards", 200, "Max-Forwards is 0, so that this server is the last to answer: 200.";
    ConnectRefused, "connect_refused", 501, "CONNECT asks for a tunnel to anywhere, which this server does not make: 501.";
    OriginNoneWell, "origin_none_well", 503, "The health checks of all origins fail: 503.";
    Purged, "purged", 200, "PURGE was asked for, by a client who may: 200.";
    PurgeDenied, "purge_denied", 403, "PURGE was requested by a client that may not use it, or with more tags than a response may have: 403.";
    OriginQueueFull, "origin_queue_full", 503, "The origin has all it can take, and too many requests wait already: 503.";
    OriginQueueTimeout, "origin_queue_timeout", 503, "The origin had no place for the request within its patience: 503.";
    EsiComposed, "esi_composed", 0, "The page was put together from its parts.";
    EsiIncomplete, "esi_incomplete", 0, "The page was put together, and a part that may be missing is.";
    EsiMalformed, "esi_malformed", 0, "The page's ESI is wrong somewhere: from there on it is sent as it stands.";
    EsiEncoded, "esi_encoded", 0, "The page asks for ESI and came compressed, though nobody had asked for that: it is sent as it stands.";
    EsiPartFailed, "esi_part_failed", 502, "A part of the page could not be had, and it may not be missing: 502.";
}

/// Outcome of a proxied request: cache decisions, forwarding rules and origin failures in one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome(u8);

const LOOKUPS: usize = Lookup::NAMES.len();
const FORWARDS: usize = ForwardOutcome::NAMES.len();
const COUNT: usize = LOOKUPS + FORWARDS + OriginFailure::NAMES.len();

impl Outcome {
    /// Names, in the order of the table.
    pub const NAMES: &'static [&'static str; COUNT] =
        &join(&[Lookup::NAMES, ForwardOutcome::NAMES, OriginFailure::NAMES]);

    /// Meanings, in the order of the table.
    pub const TEXTS: &'static [&'static str; COUNT] =
        &join(&[Lookup::TEXTS, ForwardOutcome::TEXTS, OriginFailure::TEXTS]);

    /// A cache decision.
    pub const fn cache(lookup: Lookup) -> Self {
        Self(lookup as u8)
    }

    /// A forwarding outcome.
    pub const fn forward(outcome: ForwardOutcome) -> Self {
        Self(LOOKUPS as u8 + outcome as u8)
    }

    /// An origin failure.
    pub const fn origin(failure: OriginFailure) -> Self {
        Self((LOOKUPS + FORWARDS) as u8 + failure as u8)
    }

    /// Index into [`Outcome::NAMES`].
    pub const fn index(self) -> u8 {
        self.0
    }

    /// Stable name.
    pub fn name(self) -> &'static str {
        Self::NAMES.get(usize::from(self.0)).copied().unwrap_or("-")
    }
}

#[cfg(test)]
mod tests {
    use super::ForwardOutcome;
    use crate::esi::EsiError;
    use crate::group::Change;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_statuses_are_told() {
        let all = ForwardOutcome::NAMES.iter().chain(Change::NAMES).chain(EsiError::NAMES);
        let names: HashSet<_> = all.clone().collect();
        assert_eq!(names.len(), all.count());
        for (index, outcome) in ForwardOutcome::ALL.iter().enumerate() {
            assert_eq!((*outcome as usize, outcome.name()), (index, ForwardOutcome::NAMES[index]));
            assert!(outcome.text().ends_with('.'));
            assert!(outcome.status() == 0 || outcome.text().ends_with(&format!(": {}.", outcome.status())));
        }
        assert!(Change::ALL.iter().all(|change| change.text().ends_with('.')));
        assert!(EsiError::ALL.iter().all(|error| error.text().ends_with('.')));
    }
}
