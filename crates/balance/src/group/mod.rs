//! Load balancing: selection of an origin.
//!
//! One [`Group`] serves all workers. Its state per origin is a few atomic numbers, so that selection takes no lock.
//! Time is an argument; a separate driver performs health checks.
//!
//! - **Least connections** ([`Balance::LeastConnections`]): the fewest requests in progress relative to weight; ties
//!   in turn.
//! - **Round robin** ([`Balance::RoundRobin`]): in turn, by weight, evenly spread (`schedule`).
//! - **Consistent hashing** ([`Balance::ConsistentHash`]): weighted rendezvous hashing (`rendezvous`).
//! - **Backups** are selected in the same way if no other origin is available.
//! - **Health checks** take an origin down after `fall` consecutive failures and bring it back after `rise` successes.
//! - **Passive health**: consecutive failures pause an origin; then one trial request decides. Only failures to
//!   respond count, never a status: a client that finds a failing page must not be able to take an origin down.
//! - **Slow start**: a recovered origin begins with a hundredth of its share, which grows linearly.
//! - **If all are paused**, a request goes to the one whose pause ends first: trying is better than refusing, and a
//!   single origin is effectively never paused. An origin whose health checks fail is not tried: the checks will find
//!   its recovery.

mod change;
mod key;
mod member;
mod rendezvous;
mod schedule;
mod ticket;
mod tried;

pub use change::{Change, Ending, OriginStatus};
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

/// The origins of one `proxy`, shared by all workers.
#[derive(Debug)]
pub struct Group {
    origins: Vec<Origin>,
    members: Vec<Member>,
    balance: Balance,
    rules: HealthRules,
    schedule: Schedule,
}

/// A candidate for selection.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    index: usize,
    kind: SelectionReason,
}

impl Group {
    /// Creates a group of the origins in `settings`, all available. There must be at least one; only the first 65,536
    /// are used.
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

    /// The origins as configured; indices refer to this slice.
    pub fn origins(&self) -> &[Origin] {
        &self.origins
    }

    /// The balancing policy. Under consistent hashing, `choose` needs the hash of its key.
    pub fn balance(&self) -> &Balance {
        &self.balance
    }

    /// Selects an origin that is not in `tried`. `key_hash` (from [`hash_request`]) matters only under consistent
    /// hashing.
    ///
    /// `None` with an empty `tried`: the health checks of all origins fail
    /// (`no_healthy_origin`). `None` otherwise: all available origins
    /// were tried. To try the same origin again, as after a stale pooled connection, leave it out of `tried`.
    pub fn choose(self: &Arc<Self>, now_ms: u64, key_hash: u64, tried: &Tried) -> Option<Ticket> {
        // Another worker may claim a trial first; that origin is then unavailable, so each round has one candidate
        // fewer.
        for _ in 0..=self.members.len() {
            let candidate = self
                .pick(now_ms, key_hash, tried, false)
                .or_else(|| self.pick(now_ms, key_hash, tried, true))
                .or_else(|| self.last_resort(now_ms, tried))?;
            let member = &self.members[candidate.index];
            if candidate.kind == SelectionReason::Trial && !member.begin_trial() {
                continue;
            }
            self.schedule.charge(&member.pass, member.weight(now_ms, &self.rules));
            member.begin_request();
            return Some(Ticket::new(Arc::clone(self), candidate.index, candidate.kind));
        }
        None
    }

    /// Origins that are available now, backups or not, with their weights.
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
            let kind = match member.availability(now_ms) {
                Availability::Well => SelectionReason::Plain,
                Availability::TrialDue => SelectionReason::Trial,
                Availability::PausedUntil(_) | Availability::TrialUnderWay | Availability::Down => return None,
            };
            Some((Candidate { index, kind }, member, member.weight(now_ms, &self.rules)))
        })
    }

    fn pick(&self, now_ms: u64, key_hash: u64, tried: &Tried, backup: bool) -> Option<Candidate> {
        let candidates = self.candidates(now_ms, tried, backup);
        match &self.balance {
            Balance::RoundRobin => candidates
                .min_by_key(|(_, member, weight)| self.schedule.deadline(&member.pass, *weight))
                .map(|(candidate, ..)| candidate),
            Balance::ConsistentHash(_) => candidates
                .map(|(candidate, member, weight)| (candidate, rendezvous::score(key_hash, member.identity, weight)))
                .max_by(|(_, one), (_, other)| one.total_cmp(other))
                .map(|(candidate, _)| candidate),
            Balance::LeastConnections => self.pick_least(candidates),
        }
    }

    /// Selects the origin with the fewest requests in progress relative to weight; ties in turn. An origin in slow
    /// start has none and would receive every request, so it takes part only if its current share makes it due.
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
                // Due origins come first; then a/v < b/w as a·w < b·v.
                let (ours, theirs) = (one.under_way * best.weight, best.under_way * one.weight);
                (!one.due, ours, one.deadline) < (!best.due, theirs, best.deadline)
            });
            if better {
                best = Some(one);
            }
        }
        best.map(|best| best.candidate)
    }

    /// If no origin is available, selects the one whose pause ends first, but only for the first attempt of a request.
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

    /// Handles the result of a health check of the origin with this index.
    pub fn handle_check(&self, index: usize, good: bool, now_ms: u64) -> Option<Change> {
        self.members.get(index)?.handle_check(good, now_ms, &self.rules)
    }

    /// State of the origin with this index, for metrics and `status`.
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

    /// Requests in progress to the origin with this index, from all workers.
    pub fn under_way(&self, index: usize) -> u32 {
        self.members.get(index).map_or(0, Member::under_way)
    }
}

#[cfg(test)]
mod tests;
