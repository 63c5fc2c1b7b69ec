//! Conclusions from the requests that have been answered, or not: evidence of overload, and the limit that follows.

use super::climb::{self, Sample};
use super::growth::is_grown;
use super::kinds::Base;
use super::lane::{Control, Lane, LaneName, USUAL_MS};
use super::permit::Permit;
use super::{ConcurrencyLimiter, Place, Places, Relaxed, SAMPLES_MIN, SLOW_US, SeqCst};
use crate::group::Change;

/// Ratio of delays below which a request took no longer than usual.
const SLOWER: f64 = 1.5;

/// Number of requests in succession that began before there was a limit, and were overtaken, which shows that the limit
/// is a mistake.
const DOUBTS: u32 = 4;

/// Time without requests after which a limit ends, in milliseconds.
const IDLE_MS: u64 = 10_000;

/// Number of requests waiting for a head among which a request counts as one of few.
const FEW: u32 = 3;

/// How the delay of a response compares with those of the same kind among fewer requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    /// Nothing is known about fewer requests, or the delay is neither usual nor has it grown.
    None,
    Usual,
    /// It has grown, and the number of requests may be the reason.
    Grown,
    /// It has grown for a reason of its own: other requests were answered as usual in the meantime.
    Overtaken,
}

/// Reason why a limit ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LimitEnd {
    Calm,
    /// There were no requests.
    Idle,
    /// The delays did not become shorter.
    Useless,
    /// The requests before the limit were overtaken.
    Overtaken,
}

impl ConcurrencyLimiter {
    /// Handles an observation of the origin's load. Returns a change of the limit that operators should know of.
    pub(super) fn handle_sample(&self, permit: &Permit, sample: Sample, now_ms: u64) -> Option<Change> {
        let place = permit.place();
        let lane = self.lane(place.lane);
        if !matches!(sample, Sample::Answered { .. }) {
            lane.latest_ms.store(now_ms, Relaxed);
        }
        match sample {
            Sample::Nothing => return None,
            Sample::Answered { delay_us } => return self.handle_answer(permit, delay_us, now_ms),
            Sample::Refused if !permit.is_filled() => return None,
            Sample::Refused | Sample::Overloaded => {}
            Sample::Late => {
                if self.is_answering(now_ms) {
                    self.kinds.add_missing(place.kind, now_ms.saturating_sub(place.began_ms).saturating_mul(1_000));
                    return None;
                }
                if !place.is_quick {
                    return None;
                }
            }
        }
        self.change(lane, |control| {
            control.climb.handle_overload(place.asking, lane.answered.load(Relaxed), now_ms);
            None
        })
    }

    fn handle_answer(&self, permit: &Permit, delay_us: u64, now_ms: u64) -> Option<Change> {
        let place = permit.place();
        let lane = self.lane(place.lane);
        let base = self.kinds.base(place.kind, SAMPLES_MIN);
        let sent_ms = now_ms.saturating_sub(delay_us / 1_000);
        let comparison = self.compare(place, base, (sent_ms, delay_us));
        self.note_usual(place, (sent_ms, delay_us));
        self.note_quick(delay_us, now_ms);
        self.kinds.add(place.kind, place.asking, delay_us);
        // In an origin that works on all requests at the same time, those that come later delay it, too.
        let is_one_of_few = self.is_pool && place.all_asking <= FEW;
        let is_slow_alone = base
            .filter(|_| is_one_of_few)
            .is_some_and(|base| self.kinds.handle_few(base, is_grown(base.mean_us(), delay_us), delay_us));
        lane.answered.fetch_add(1, Relaxed);
        let shortest_us = self.kinds.shortest_us(place.kind);
        let is_usual = shortest_us.is_none_or(|shortest_us| !is_grown(shortest_us, delay_us));
        // A slow request that ends says nothing about those that were sent after it.
        let is_recent = place.lane == LaneName::Slow || delay_us < 1_000 * USUAL_MS;
        if is_usual && is_recent && lane.usual_ms.load(Relaxed) != now_ms {
            lane.usual_ms.store(now_ms, Relaxed);
        }
        let has_limit = lane.limit().is_some();
        let comparable = base.filter(|base| base.is_comparable(place.asking));
        if !has_limit && (comparable.is_none() || place.asking <= self.settings.min) {
            return None;
        }
        if comparison == Comparison::Grown
            && let Some(base) = comparable
        {
            self.kinds.note_grown(base, now_ms);
        }
        self.change(lane, |control| {
            let limit = control.climb.limit();
            let idle_ms = sent_ms.saturating_sub(lane.latest_ms.swap(now_ms, Relaxed));
            if limit == climb::NONE {
                let sample = (place.asking, delay_us);
                let is_evidence = comparison == Comparison::Grown;
                let overload = control.growth.handle((&self.kinds, comparable?), sample, is_evidence, now_ms)?;
                lane.grown_since_ms.store(overload.since_ms, Relaxed);
                control.doubts = 0;
                control.epoch_before = control.climb.epoch();
                control.climb.try_limit(overload, now_ms);
                return None;
            }
            if idle_ms >= IDLE_MS && place.all_asking == 1 {
                control.climb.end();
                return Some(LimitEnd::Idle);
            }
            let is_on_trial = control.climb.is_on_trial();
            if is_on_trial && is_slow_alone && self.has_grown(lane, place.kind) {
                control.climb.end();
                return Some(LimitEnd::Useless);
            }
            if is_on_trial && place.epoch == control.epoch_before {
                match comparison {
                    Comparison::Overtaken => control.doubts += 1,
                    Comparison::Grown => control.doubts = 0,
                    _ => {}
                }
                if control.doubts >= DOUBTS {
                    control.climb.end();
                    return Some(LimitEnd::Overtaken);
                }
            }
            // Long polls are too few for trials within their duration, so that the limit rises as if it were not
            // needed, as long as they take no longer than usual.
            let is_usual = place.lane == LaneName::Slow && base.is_some_and(|base| base.ratio(delay_us) < SLOWER);
            // The limit may be reached by requests that began before it did.
            let asking = Places(self.places.load(SeqCst)).asking(place.lane);
            let has_room = !permit.is_filled() && u64::from(asking) * 8 < u64::from(limit) * 7;
            if has_room || is_usual {
                control.climb.handle_calm(now_ms);
                return (control.climb.limit() == climb::NONE).then_some(LimitEnd::Calm);
            }
            // The trial is about those that have grown.
            if !place.is_extra
                && (!is_on_trial || self.has_grown(lane, place.kind))
                && let Some(base) = base
            {
                control.climb.handle_delay(place.epoch, delay_us * 1_000 / u64::from(base.mean_us()), now_ms);
            }
            (control.climb.limit() == climb::NONE).then_some(LimitEnd::Useless)
        })
    }

    /// Compares the delay of a response with those among fewer requests.
    fn compare(&self, place: &Place, base: Option<Base>, (sent_ms, delay_us): (u64, u64)) -> Comparison {
        let Some(base) = base.filter(|base| base.is_comparable(place.all_asking)) else { return Comparison::None };
        if base.ratio(delay_us) < SLOWER {
            return Comparison::Usual;
        }
        if !is_grown(base.mean_us(), delay_us) {
            return Comparison::None;
        }
        if self.latest_usual.overtook(sent_ms, delay_us - u64::from(base.mean_us())) {
            self.kinds.add_below(base, place.asking, delay_us);
            return Comparison::Overtaken;
        }
        Comparison::Grown
    }

    /// Notes a request that shows that others need not take longer. That is one that takes as long as among few, or whose
    /// kind is known only among many.
    fn note_usual(&self, place: &Place, (sent_ms, delay_us): (u64, u64)) {
        let is_usual = |base: Base| !base.is_comparable(place.all_asking) || base.ratio(delay_us) < SLOWER;
        if self.kinds.base(place.kind, 1).is_some_and(is_usual) {
            self.latest_usual.note(sent_ms, delay_us);
        }
    }

    /// Changes the limit of a lane. Returns whether it has begun or ended. Does nothing if another worker is doing so.
    fn change(&self, lane: &Lane, handle: impl FnOnce(&mut Control) -> Option<LimitEnd>) -> Option<Change> {
        let Ok(mut control) = lane.control.try_lock() else { return None };
        let had_limit = control.climb.limit() != climb::NONE;
        let end = handle(&mut control);
        let has_limit = control.climb.limit() != climb::NONE;
        let is_changed = lane.publish(&control.climb);
        drop(control);
        match end {
            // The delays of quick kinds may have become others. That slow kinds are slow stays true.
            Some(LimitEnd::Calm) => self.kinds.forget(|shortest_us| shortest_us < SLOW_US),
            Some(LimitEnd::Useless) => self.kinds.forget_grown(lane.grown_since_ms.load(Relaxed)),
            Some(LimitEnd::Idle | LimitEnd::Overtaken) | None => {}
        }
        if is_changed {
            self.grant(lane.name);
        }
        match (had_limit, has_limit) {
            (false, true) => Some(Change::LimitBegan),
            (true, false) => Some(Change::LimitEnded),
            _ => None,
        }
    }

    /// Notes that a request was answered soon.
    fn note_quick(&self, delay_us: u64, now_ms: u64) {
        // Once per second, so that workers do not contend for the cache line.
        let is_old = now_ms.saturating_sub(self.quick_ms.load(Relaxed)) >= 1_000;
        if delay_us < u64::from(SLOW_US) && (is_old || self.quick_ms.load(Relaxed) == 0) {
            self.quick_ms.store(now_ms.max(1), Relaxed);
        }
    }
}
