//! Concurrency limit and queue of each origin.
//!
//! Each origin has a [`ConcurrencyLimiter`], shared by all workers. It exists for origins that slow down because of the
//! number of requests: beyond that number, requests wait in a bounded queue instead of in the origin, each until its
//! deadline, and those that would wait too long are refused at once.
//!
//! **Waiting is no load.** There is no limit until the delays of requests of the same kind (`kinds`) grow with the
//! number of requests (`growth`); then it adapts to the delays ([`climb`]). It applies to requests that are waiting
//! for a response head: the origin is working on these. The configured `max` applies to all requests in progress,
//! including those whose responses are streaming: long downloads and event streams hold a permit, but do not count
//! towards the adaptive limit. Therefore, a [`Permit`] receives a report when the head arrives, and is dropped when the
//! response is complete. If requests to a pool of processes take longer although only few are waiting, their kind
//! presumably takes that long now, and their number is not the reason.
//!
//! **Slow kinds are apart** (`lane`). Kinds that take long even alone, such as long polls and reports, have a limit
//! and a queue of their own, and a quarter of `max` is not for them, as long as there are others. A request that has
//! been waiting for more than a second while others are answered as usual no longer counts towards the limit of the
//! others either (`young`).
//!
//! **A limit is for those who have grown.** A request that is answered as usual, although it was sent after one that
//! takes long, shows that the origin's capacity is not the reason (`overtaking`). Quick requests of kinds that have not
//! grown have some places beyond the limit, so that this can show. A limit that does not help ends (`climb`).
//!
//! **No client fills the queue.** A client gets at most a quarter of it.
//!
//! A request that gets no permit is refused with a [`QueueRefusal`].

pub mod climb;
mod growth;
mod kinds;
mod lane;
mod overtaking;
mod permit;
mod queue;
mod samples;
mod status;
mod waiting;
mod young;

pub use climb::Sample;
pub use permit::Permit;
pub use status::{LaneStatus, LimiterStatus};
pub use waiting::WaitingRequest;

use flatout_config::model::Concurrency;
use flatout_overload::{QueueSettings, Subject, subject};
use kinds::{Base, Kind, Kinds};
use lane::{Lane, LaneName};
use overtaking::LatestUsual;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use young::YoungRequests;

/// Delay from which a kind is slow, in microseconds, if it is the delay of a single request.
const SLOW_US: u32 = 500_000;

/// Time for which a request that was answered soon keeps places free for others, in milliseconds.
const QUICK_MS: u64 = 60_000;

/// Divisor of the configured maximum that yields the number of places that are not for slow kinds.
const QUICK_SHARE: u32 = 4;

/// How many times as long as it takes among few a request waits because of an adaptive limit, and the minimum of this time
/// in milliseconds. The configured time applies if it is shorter, and to requests that wait because of the configured
/// maximum.
const WAIT_TIMES: u64 = 50;
const OVERLOAD_WAIT_MS: u64 = 1_000;

/// Number of delays that a kind must have for its growth to be judged.
const SAMPLES_MIN: u32 = 2;

/// Number of places beyond an adaptive limit, for quick requests of kinds whose delays have not grown.
const EXTRA_PLACES: u32 = 32;

/// Minimum length of the queue when the origin is slow, unless the configured maximum is lower.
const QUEUE_MIN: u32 = 16;

/// Reason why a request gets no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueRefusal {
    /// The limit is reached, and the queue is full.
    Full,
    /// The limit is reached, and requests of the same client take up their share of the queue.
    ClientShare,
    /// The request waited in the queue until the queue timeout.
    Timeout,
}

/// A request that arrives at a limiter.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The path of the request, without its query.
    pub path: &'a [u8],
    /// The client; `None` if it is not known, or may be a proxy that many clients share.
    pub client: Option<Subject>,
    /// Milliseconds of the monotonic clock.
    pub now_ms: u64,
}

impl<'a> Arrival<'a> {
    /// Describes a request for `path` from the address `client` that arrives at `now_ms`, as in the fields. An address of
    /// the own machine or a private network may belong to a proxy.
    pub fn new(path: &'a [u8], client: Option<IpAddr>, now_ms: u64) -> Self {
        let client = client.map(|client| client.to_canonical()).filter(|client| match client {
            IpAddr::V4(address) => !address.is_loopback() && !address.is_private(),
            IpAddr::V6(address) => !address.is_loopback() && !address.is_unique_local(),
        });
        Self { path, client: client.map(subject), now_ms }
    }
}

/// Concurrency limiter of an origin, shared by all workers.
#[derive(Debug)]
pub struct ConcurrencyLimiter {
    settings: Concurrency,
    /// See [`for_pool`](Self::for_pool).
    is_pool: bool,
    /// Number of requests in progress, and of requests waiting for a head in each lane: see [`Places`].
    places: AtomicU64,
    quick: Lane,
    slow: Lane,
    /// Requests in the lane for quick kinds of which it is known how long they usually take.
    young_known: YoungRequests,
    /// The others in that lane, except those that hold a place beyond the limit.
    young_unknown: YoungRequests,
    young_extra: YoungRequests,
    /// Number of requests in the lane for quick kinds that have been waiting for a head for so long that they no longer
    /// count towards the limit. Below zero for a moment if one ends while it is being counted.
    aged: AtomicI32,
    /// Number of requests that count towards the limit, but hold a place beyond it.
    extra: AtomicU32,
    latest_usual: LatestUsual,
    /// The lane that is granted the next place if both have queues.
    slow_is_next: AtomicBool,
    kinds: Kinds,
    /// Latest time at which a request was answered soon, in milliseconds; 0 if none ever was.
    quick_ms: AtomicU64,
    /// The latest time passed by a caller, in milliseconds.
    latest_ms: AtomicU64,
}

/// A place that a request holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    lane: LaneName,
    kind: Kind,
    /// Tick in which the request began to wait for a head; `None` in the lane for slow kinds.
    tick: Option<young::Tick>,
    /// Epoch of the limit.
    epoch: u32,
    /// Number of requests waiting for a head, including this one.
    asking: u32,
    /// The same, of both lanes, and those that no longer count.
    all_asking: u32,
    /// True if this place is one of the few beyond the limit.
    is_extra: bool,
    /// True if it was known how long requests for this path take, so that the head could be expected soon.
    is_quick: bool,
    began_ms: u64,
}

impl ConcurrencyLimiter {
    /// Creates a limiter with all permits free.
    pub fn new(settings: &Concurrency) -> Arc<Self> {
        Self::with(settings, false)
    }

    /// The same, for a pool of processes each of which handles a request from its start to its end, in the order of arrival,
    /// so that a request does not delay earlier ones.
    pub fn for_pool(settings: &Concurrency) -> Arc<Self> {
        Self::with(settings, true)
    }

    fn with(settings: &Concurrency, is_pool: bool) -> Arc<Self> {
        let min = settings.min.max(1);
        let settings = Concurrency { min, max: settings.max.clamp(min, PLACES_MAX), ..*settings };
        let queue = QueueSettings {
            delay_target_ms: settings.queue_timeout_ms,
            entries_min: QUEUE_MIN.min(settings.queue_max),
            entries_max: settings.queue_max,
        };
        Arc::new(Self {
            places: AtomicU64::new(0),
            quick: Lane::new(LaneName::Quick, (min, settings.max), queue),
            slow: Lane::new(LaneName::Slow, (min, settings.max), queue),
            young_known: YoungRequests::default(),
            young_unknown: YoungRequests::default(),
            young_extra: YoungRequests::default(),
            aged: AtomicI32::new(0),
            extra: AtomicU32::new(0),
            latest_usual: LatestUsual::default(),
            slow_is_next: AtomicBool::new(false),
            kinds: Kinds::new(),
            quick_ms: AtomicU64::new(0),
            latest_ms: AtomicU64::new(0),
            settings,
            is_pool,
        })
    }

    /// Acquires a permit if one is free and the queue is empty. Otherwise, returns `None`; call
    /// [`enqueue`](Self::enqueue) to wait.
    pub fn try_acquire(self: &Arc<Self>, arrival: &Arrival<'_>) -> Option<Permit> {
        self.age(arrival.now_ms);
        let kind = self.kinds.find(arrival.path);
        let name = self.lane_of(kind, arrival.now_ms);
        let lane = self.lane(name);
        let has_queue = lane.waiting.load(SeqCst) > 0;
        let place = self.take_place(name, kind, has_queue, arrival.now_ms)?;
        let (limit, _) = lane.limit_and_epoch();
        // If at least seven eighths of the limit are in use, the delay is evidence about the limit.
        let filled = u64::from(place.asking) * 8 >= u64::from(limit) * 7;
        Some(Permit::new(Arc::clone(self), place, filled))
    }

    /// Adds a request to the queue.
    ///
    /// # Errors
    /// If the queue is full, which includes the case that, at the current rate of granting permits, the request would
    /// wait until its timeout, or if the client has used up its share of the queue.
    pub fn enqueue(self: &Arc<Self>, arrival: &Arrival<'_>) -> Result<WaitingRequest, QueueRefusal> {
        let now_ms = arrival.now_ms;
        let kind = self.kinds.find(arrival.path);
        let name = self.lane_of(kind, now_ms);
        let lane = self.lane(name);
        let wait_ms = self.wait_ms(lane, kind);
        self.latest_ms.fetch_max(now_ms, Relaxed);
        let mut queue = lane.lock_queue();
        let number = queue.push(kind, arrival.client, (now_ms, wait_ms))?;
        lane.note_queue(&queue);
        drop(queue);
        self.grant(name);
        Ok(WaitingRequest::new(Arc::clone(self), (name, kind), number, now_ms))
    }

    /// Returns whether the origin has answered a request as usual within the last second, so that a request which is not
    /// answered says nothing about others.
    pub fn is_answering(&self, now_ms: u64) -> bool {
        self.quick.is_answering(now_ms) || self.slow.is_answering(now_ms)
    }

    /// Returns how long a request may wait in the queue of a lane, in milliseconds.
    fn wait_ms(&self, lane: &Lane, kind: Kind) -> u64 {
        let wait_ms = self.settings.queue_timeout_ms;
        if lane.limit().is_none() {
            return wait_ms;
        }
        // A request whose kind has turned out to be slow does not wait longer in the queue of the others.
        let is_slow_among_others = lane.name == LaneName::Quick && self.kinds.is_slow(kind);
        let base = self.kinds.base(kind, SAMPLES_MIN).filter(|_| !is_slow_among_others);
        let among_few_us = base.map_or(0, Base::mean_us);
        (u64::from(among_few_us) * WAIT_TIMES / 1_000).max(OVERLOAD_WAIT_MS).min(wait_ms)
    }

    const fn lane(&self, name: LaneName) -> &Lane {
        match name {
            LaneName::Quick => &self.quick,
            LaneName::Slow => &self.slow,
        }
    }

    /// Returns the lane of a kind.
    fn lane_of(&self, kind: Kind, now_ms: u64) -> LaneName {
        // A path that has never been answered may be slow.
        let may_be_slow = || {
            let slow_max = self.slow_max(now_ms);
            slow_max < self.settings.max && self.kinds.asking(kind) >= slow_max && !self.kinds.is_path_known(kind)
        };
        if self.kinds.is_slow(kind) || may_be_slow() { LaneName::Slow } else { LaneName::Quick }
    }

    /// Returns the maximum number of requests of slow kinds that wait for a head.
    fn slow_max(&self, now_ms: u64) -> u32 {
        let quick_ms = self.quick_ms.load(Relaxed);
        let is_shared = quick_ms > 0 && now_ms.saturating_sub(quick_ms) < QUICK_MS;
        self.settings.max - if is_shared { self.settings.max / QUICK_SHARE } else { 0 }
    }

    /// Takes a place, if the limits permit. If `is_beyond`, takes only a place beyond the adaptive limit.
    fn take_place(&self, name: LaneName, kind: Kind, is_beyond: bool, now_ms: u64) -> Option<Place> {
        let (limit, epoch) = self.lane(name).limit_and_epoch();
        let lane_max = match name {
            LaneName::Quick => self.settings.max,
            LaneName::Slow => {
                let slow_max = self.slow_max(now_ms);
                // Requests for a path that turned out to be slow may have begun as others.
                if self.kinds.asking(kind) >= slow_max {
                    return None;
                }
                slow_max
            }
        };
        let within = match name {
            LaneName::Quick if limit != climb::NONE => limit.saturating_add(self.extra.load(SeqCst)),
            _ => limit,
        };
        let place = if is_beyond { None } else { self.add_place(name, within.min(lane_max)) };
        let is_extra = place.is_none();
        let before = place.or_else(|| self.add_extra(name, limit, kind))?;
        self.kinds.begin(kind);
        let is_quick = name == LaneName::Quick && self.kinds.is_path_known(kind);
        let tick = (name == LaneName::Quick).then(|| {
            let (tick, aged) = self.young(is_quick, is_extra).begin(now_ms);
            self.uncount(aged, if is_extra { aged } else { 0 });
            tick
        });
        let asking = before.asking(name) + 1;
        let aged = u32::try_from(self.aged.load(Relaxed)).unwrap_or(0);
        let all_asking = before.asking(LaneName::Quick) + before.asking(LaneName::Slow) + 1 + aged;
        Some(Place { lane: name, kind, tick, epoch, asking, all_asking, is_extra, is_quick, began_ms: now_ms })
    }

    /// Counts a request, if fewer than `limit` in its lane wait for a head. Returns the places before.
    fn add_place(&self, name: LaneName, limit: u32) -> Option<Places> {
        let take = |places| {
            let may = Places(places).asking(name) < limit && Places(places).under_way() < self.settings.max;
            may.then(|| places + UNDER_WAY + asking(name))
        };
        self.places.fetch_update(SeqCst, SeqCst, take).ok().map(Places)
    }

    /// Returns whether the delays of a kind have grown since those of the first one did that led to the limit of a lane.
    fn has_grown(&self, lane: &Lane, kind: Kind) -> bool {
        self.kinds.has_grown(kind, SAMPLES_MIN, lane.grown_since_ms.load(Relaxed))
    }

    /// Counts a request beyond the adaptive limit, if its kind may have such a place and one is free. Returns the places
    /// before.
    fn add_extra(&self, name: LaneName, limit: u32, kind: Kind) -> Option<Places> {
        if name == LaneName::Slow || limit == climb::NONE || self.has_grown(self.lane(name), kind) {
            return None;
        }
        let take = |extra| (extra < EXTRA_PLACES).then_some(extra + 1);
        self.extra.fetch_update(SeqCst, SeqCst, take).ok()?;
        let before = self.add_place(name, self.settings.max);
        if before.is_none() {
            self.extra.fetch_sub(1, SeqCst);
        }
        before
    }

    /// Handles the arrival of the head, or the end of a request whose head never arrived: the request no longer counts
    /// towards the limit. `also` is subtracted from the counts too.
    fn free_asking(&self, place: &Place, also: u64) {
        self.kinds.end(place.kind);
        let is_counted = place.tick.is_none_or(|tick| self.young(place.is_quick, place.is_extra).end(tick));
        if !is_counted {
            self.aged.fetch_sub(1, Relaxed);
        } else if place.is_extra {
            self.extra.fetch_sub(1, SeqCst);
        }
        self.free_place(also + if is_counted { asking(place.lane) } else { 0 });
    }

    /// Subtracts from the counts, and grants free permits.
    fn free_place(&self, parts: u64) {
        self.places.fetch_sub(parts, SeqCst);
        // Alternate, so that neither lane waits for ever if the configured maximum is reached.
        if self.slow.waiting() > 0 && self.slow_is_next.fetch_xor(true, Relaxed) {
            self.grant(LaneName::Slow);
        }
        self.grant(LaneName::Quick);
        self.grant(LaneName::Slow);
    }

    /// Returns the young requests among which a request of the lane for quick kinds is counted.
    const fn young(&self, is_known: bool, is_extra: bool) -> &YoungRequests {
        match (is_extra, is_known) {
            (true, _) => &self.young_extra,
            (false, true) => &self.young_known,
            (false, false) => &self.young_unknown,
        }
    }

    /// Removes requests that have been waiting for a head for more than a second from the limit. A kind that is usually
    /// answered sooner may wait for the origin's capacity, unless others are answered as usual.
    fn age(&self, now_ms: u64) {
        let extra = self.young_extra.age(now_ms);
        let mut aged = extra + self.young_unknown.age(now_ms);
        if self.quick.is_answering(now_ms) {
            aged += self.young_known.age(now_ms);
        }
        if aged > 0 {
            self.uncount(aged, extra);
            self.grant(LaneName::Quick);
        }
    }

    /// Removes requests from the limit, `extra` of which hold a place beyond it.
    fn uncount(&self, aged: u32, extra: u32) {
        self.extra.fetch_sub(extra, SeqCst);
        self.aged.fetch_add(aged.cast_signed(), Relaxed);
        self.places.fetch_sub(u64::from(aged) * asking(LaneName::Quick), SeqCst);
    }

    /// Grants free permits to queued requests.
    fn grant(&self, name: LaneName) {
        let lane = self.lane(name);
        while lane.waiting.load(SeqCst) > 0 {
            let mut queue = lane.lock_queue();
            let now_ms = self.latest_ms.load(Relaxed);
            let Some(kind) = queue.next(now_ms) else { return };
            let Some(place) = self.take_place(name, kind, false, now_ms) else { return };
            let waker = queue.grant(place, now_ms);
            lane.note_queue(&queue);
            // Release the lock before waking the task.
            drop(queue);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

/// Number of requests in progress (upper bits), and of requests waiting for a head in each lane.
#[derive(Clone, Copy, Debug)]
struct Places(u64);

/// Number of bits of each count in [`Places`].
const PLACES_BITS: u32 = 21;

/// Maximum value of each count in [`Places`].
const PLACES_MAX: u32 = (1 << PLACES_BITS) - 1;

/// A request in progress, as an addend of [`Places`].
const UNDER_WAY: u64 = 1 << (2 * PLACES_BITS);

/// Returns a request that waits for the head of its response, as an addend of [`Places`].
const fn asking(lane: LaneName) -> u64 {
    match lane {
        LaneName::Quick => 1,
        LaneName::Slow => 1 << PLACES_BITS,
    }
}

impl Places {
    const fn under_way(self) -> u32 {
        (self.0 / UNDER_WAY) as u32
    }

    const fn asking(self, lane: LaneName) -> u32 {
        (self.0 / asking(lane)) as u32 & PLACES_MAX
    }
}

#[cfg(test)]
mod tests;
