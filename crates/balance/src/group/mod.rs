//! Load balancing: selection of an origin for each request.
//!
//! A [`Group`] is shared by all workers. Its state per origin is a few atomic numbers, so that selection takes no lock.
//! Time is passed as an argument, and the caller performs health checks.
//!
//! - **Least connections** ([`Balance::LeastConnections`]): the origin with the fewest requests in progress relative to
//!   its weight; ties are resolved by round robin.
//! - **Round robin** ([`Balance::RoundRobin`]): each origin in turn, weighted and evenly interleaved (`schedule`).
//! - **Consistent hashing** ([`Balance::ConsistentHash`]): weighted rendezvous hashing (`rendezvous`). Requests without a
//!   key are distributed as by least connections.
//! - **Session affinity** ([`Preference::origin`]): a client's origin is selected as long as it is available.
//! - **Backups** are selected in the same way if no other origin is available.
//! - **Health checks** take an origin down after `fall` consecutive failures and bring it back after `rise` successes.
//! - **Passive health**: consecutive failures pause an origin, after which the outcome of a trial request decides. Only
//!   failures to respond count, never a status, because a client that finds a failing page must not be able to take an
//!   origin down.
//! - **Slow start**: after recovery, an origin begins with a hundredth of its share, which grows linearly.
//! - **If all origins are paused**, a request is sent to the origin whose pause ends first, because that is better than
//!   refusing it. A single origin is therefore effectively never paused. An origin whose health checks fail receives no
//!   requests, since the checks will detect its recovery.

mod change;
mod key;
mod member;
mod rendezvous;
mod schedule;
mod ticket;
mod tried;

pub use change::{Change, Ending, OriginStatus, OtherOrigins};
pub use key::hash_request;
pub use rendezvous::hash_key;
pub use ticket::Ticket;
pub use tried::{TRIED_MAX, Tried};

use flatout_config::model::{Balance, Origin, Proxy};
use member::{Availability, Member};
use schedule::Schedule;
use std::sync::Arc;
use ticket::SelectionReason;

/// Health and slow start settings.
#[derive(Clone, Copy, Debug)]
struct HealthRules {
    failures: u32,
    pause_ms: u64,
    slow_start_ms: u64,
    rise: u32,
    fall: u32,
}

/// The origins of a `proxy` step, shared by all workers.
#[derive(Debug)]
pub struct Group {
    origins: Vec<Origin>,
    members: Vec<Member>,
    balance: Balance,
    rules: HealthRules,
    schedule: Schedule,
}

/// The properties of a request that decide which origin it gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preference {
    /// The result of [`hash_request`], for consistent hashing. A request without a key is distributed by load.
    pub key_hash: Option<u64>,
    /// The index of the origin that has the client's session. While it is available, the policy is not consulted.
    pub origin: Option<usize>,
}

impl Preference {
    /// No preference: the policy alone decides, and consistent hashing distributes the request by load.
    pub const NONE: Self = Self { key_hash: None, origin: None };
}

/// A candidate for selection.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    index: usize,
    kind: SelectionReason,
}

impl Group {
    /// Creates a group of the origins in `settings`, all of them available. There must be at least one; only the first
    /// 65,536 are used.
    pub fn new(settings: &Proxy) -> Self {
        let origins: Vec<_> = settings.origins.iter().take(usize::from(u16::MAX) + 1).cloned().collect();
        let check = settings.health_check.as_ref();
        Self {
            members: origins.iter().map(Member::new).collect(),
            origins,
            balance: settings.balance.clone(),
            rules: HealthRules {
                failures: settings.passive.failures,
                pause_ms: settings.passive.pause_ms.max(1),
                slow_start_ms: settings.slow_start_ms,
                rise: check.map_or(1, |check| check.rise.max(1)),
                fall: check.map_or(1, |check| check.fall.max(1)),
            },
            schedule: Schedule::default(),
        }
    }

    /// Returns the origins as configured. Indices refer to this slice.
    pub fn origins(&self) -> &[Origin] {
        &self.origins
    }

    /// Returns the balancing policy.
    pub fn balance(&self) -> &Balance {
        &self.balance
    }

    /// Selects an origin that is not in `tried`: the preferred one if it is available, otherwise by the policy.
    ///
    /// Returns `None` if all available origins have been tried or, with an empty `tried`, if the health checks of all
    /// origins fail. To try the same origin again, for instance after a stale pooled connection, leave it out of
    /// `tried`.
    pub fn choose(self: &Arc<Self>, now_ms: u64, preference: Preference, tried: &Tried) -> Option<Ticket> {
        // Another worker may claim a trial first. The origin is then unavailable, so each round has one candidate
        // fewer.
        for _ in 0..=self.members.len() {
            let preferred = self.preferred(now_ms, preference, tried);
            let candidate = preferred
                .or_else(|| self.pick(now_ms, preference, tried, false))
                .or_else(|| self.pick(now_ms, preference, tried, true))
                .or_else(|| self.last_resort(now_ms, tried))?;
            let member = &self.members[candidate.index];
            if candidate.kind == SelectionReason::Trial && !member.begin_trial() {
                continue;
            }
            // A session's requests take no turn, so that turns distribute new sessions evenly.
            if preferred.is_none() {
                self.schedule.charge(&member.pass, member.weight(now_ms, &self.rules));
            }
            member.begin_request();
            return Some(Ticket::new(Arc::clone(self), candidate.index, candidate.kind));
        }
        None
    }

    /// Returns the preferred origin if it is available and has not been tried. Slow start does not apply, because no
    /// other origin has the session.
    fn preferred(&self, now_ms: u64, preference: Preference, tried: &Tried) -> Option<Candidate> {
        let index = preference.origin.filter(|&index| !tried.contains(index))?;
        let kind = self.members.get(index)?.selectable(now_ms)?;
        Some(Candidate { index, kind })
    }

    /// Returns the indices of the origins from which [`choose`](Self::choose) selects one for a new request: the
    /// preferred one, or the one to which the key is hashed; without such a preference, the available ones; if there are
    /// none, the available backups; if there are none either, all whose health checks do not fail.
    pub fn selectable(&self, now_ms: u64, preference: Preference) -> Vec<usize> {
        let is_hashed = matches!(self.balance, Balance::ConsistentHash(_)) && preference.key_hash.is_some();
        let hashed = |backup| self.pick(now_ms, preference, &Tried::NONE, backup).filter(|_| is_hashed);
        let selected =
            self.preferred(now_ms, preference, &Tried::NONE).or_else(|| hashed(false)).or_else(|| hashed(true));
        if let Some(candidate) = selected {
            return vec![candidate.index];
        }
        for backup in [false, true] {
            let candidates = self.candidates(now_ms, &Tried::NONE, backup);
            let indices: Vec<_> = candidates.map(|(candidate, ..)| candidate.index).collect();
            if !indices.is_empty() {
                return indices;
            }
        }
        let is_down = |index: &usize| matches!(self.members[*index].availability(now_ms), Availability::Down);
        (0..self.members.len()).filter(|index| !is_down(index)).collect()
    }

    /// Returns the available origins, either backups or others, with their weights.
    fn candidates<'a>(
        &'a self,
        now_ms: u64,
        tried: &'a Tried,
        backup: bool,
    ) -> impl Iterator<Item = (Candidate, &'a Member, u64)> {
        self.members.iter().enumerate().filter_map(move |(index, member)| {
            if member.backup != backup || tried.contains(index) {
                return None;
            }
            let kind = member.selectable(now_ms)?;
            Some((Candidate { index, kind }, member, member.weight(now_ms, &self.rules)))
        })
    }

    fn pick(&self, now_ms: u64, preference: Preference, tried: &Tried, backup: bool) -> Option<Candidate> {
        let candidates = self.candidates(now_ms, tried, backup);
        match (&self.balance, preference.key_hash) {
            (Balance::RoundRobin, _) => candidates
                .min_by_key(|(_, member, weight)| self.schedule.deadline(&member.pass, *weight))
                .map(|(candidate, ..)| candidate),
            (Balance::ConsistentHash(_), Some(key_hash)) => candidates
                .map(|(candidate, member, weight)| (candidate, rendezvous::score(key_hash, member.identity, weight)))
                .max_by(|(_, one), (_, other)| one.total_cmp(other))
                .map(|(candidate, _)| candidate),
            (Balance::LeastConnections | Balance::ConsistentHash(_), _) => self.pick_least(candidates),
        }
    }

    /// Selects the origin with the fewest requests in progress relative to its weight; ties are resolved by round
    /// robin. An origin in slow start has few requests in progress and would receive every new one, so it takes part
    /// only when it is due according to its current share.
    fn pick_least<'a>(&self, candidates: impl Iterator<Item = (Candidate, &'a Member, u64)>) -> Option<Candidate> {
        struct Best {
            candidate: Candidate,
            under_way: u64,
            weight: u64,
            deadline: i64,
            due: bool,
        }
        let mut best: Option<Best> = None;
        for (candidate, member, weight) in candidates {
            let deadline = self.schedule.deadline(&member.pass, weight);
            let due = weight == member.full_weight() || deadline <= Schedule::stride(member.full_weight());
            let one = Best { candidate, under_way: u64::from(member.under_way()), weight, deadline, due };
            let better = best.as_ref().is_none_or(|best| {
                // Origins that are due come first. Then a/v < b/w is compared as a·w < b·v.
                let (ours, theirs) = (one.under_way * best.weight, best.under_way * one.weight);
                (!one.due, ours, one.deadline) < (!best.due, theirs, best.deadline)
            });
            if better {
                best = Some(one);
            }
        }
        best.map(|best| best.candidate)
    }

    /// Selects the origin whose pause ends first, for use if no origin is available, but only for the first attempt at
    /// a request.
    fn last_resort(&self, now_ms: u64, tried: &Tried) -> Option<Candidate> {
        if tried.count() > 0 {
            return None;
        }
        let paused = self.members.iter().enumerate().filter_map(|(index, member)| match member.availability(now_ms) {
            Availability::PausedUntil(until_ms) => Some((until_ms, index)),
            Availability::TrialUnderWay | Availability::TrialDue | Availability::Well => Some((0, index)),
            Availability::Down => None,
        });
        paused.min().map(|(_, index)| Candidate { index, kind: SelectionReason::LastResort })
    }

    /// Handles the result of a health check of the origin with this index. Returns the change in its availability, if
    /// any.
    pub fn handle_check(&self, index: usize, good: bool, now_ms: u64) -> Option<Change> {
        self.members.get(index)?.handle_check(good, now_ms, &self.rules)
    }

    /// Returns the state of the origin with this index, for metrics and `status`.
    pub fn standing(&self, index: usize, now_ms: u64) -> Option<OriginStatus> {
        let member = self.members.get(index)?;
        Some(match member.availability(now_ms) {
            Availability::Down => OriginStatus::Down,
            Availability::PausedUntil(until_ms) => OriginStatus::PausedUntil(until_ms),
            Availability::TrialDue | Availability::TrialUnderWay => OriginStatus::Trial,
            Availability::Well => match member.share(now_ms, &self.rules) {
                member::SHARE_FULL => OriginStatus::Well,
                share => OriginStatus::Starting(share as u16),
            },
        })
    }

    /// Returns the number of requests in progress to the origin with this index, over all workers.
    pub fn under_way(&self, index: usize) -> u32 {
        self.members.get(index).map_or(0, Member::under_way)
    }
}

#[cfg(test)]
mod tests;
