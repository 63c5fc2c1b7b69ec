mod kinds;
mod knee;
mod mixed;

use super::QueueRefusal;
use super::climb::{Climb, NONE};
use super::{Arrival, ConcurrencyLimiter, Permit, SAMPLES_MIN, Sample, WaitingRequest};
use crate::group::Change;
use flatout_config::model::Concurrency;
use proptest::prelude::{prop_assert, prop_assert_eq, proptest};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

fn limiter(min: u32, max: u32, queue_max: u32) -> Arc<ConcurrencyLimiter> {
    ConcurrencyLimiter::new(&Concurrency { min, max, queue_max, queue_timeout_ms: 1_000 })
}

/// A request for a page, at a time.
const fn at(now_ms: u64) -> Arrival<'static> {
    Arrival { path: b"/page", client: None, now_ms }
}

fn under_way(limiter: &ConcurrencyLimiter) -> u32 {
    limiter.status().under_way
}

fn poll(waiting: &mut WaitingRequest, now_ms: u64) -> Poll<Result<Permit, QueueRefusal>> {
    waiting.poll_permit(&mut Context::from_waker(Waker::noop()), now_ms)
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Requests in the queue of a simulation, each with what the simulation knows of it. They are polled as tasks are: when
/// they are woken, and at intervals.
struct Waiters<T> {
    entries: BTreeMap<usize, (WaitingRequest, T)>,
    woken: Arc<Mutex<Vec<usize>>>,
    arrived: usize,
    swept_ms: u64,
}

/// Interval at which all requests in a queue are polled, in milliseconds.
const SWEEP_MS: u64 = 50;

struct WaiterWaker {
    number: usize,
    woken: Arc<Mutex<Vec<usize>>>,
}

impl Wake for WaiterWaker {
    fn wake(self: Arc<Self>) {
        self.woken.lock().unwrap().push(self.number);
    }
}

impl<T> Waiters<T> {
    fn new() -> Self {
        Self { entries: BTreeMap::new(), woken: Arc::default(), arrived: 0, swept_ms: 0 }
    }

    fn push(&mut self, request: WaitingRequest, about: T) {
        self.arrived += 1;
        self.woken.lock().unwrap().push(self.arrived);
        self.entries.insert(self.arrived, (request, about));
    }

    /// Removes the requests of clients that leave.
    fn retain(&mut self, stays: impl Fn(&T) -> bool) {
        self.entries.retain(|_, (_, about)| stays(about));
    }

    /// Returns the requests that have a permit or were refused.
    fn poll(&mut self, now_ms: u64) -> Vec<(Result<Permit, QueueRefusal>, T)> {
        if now_ms >= self.swept_ms + SWEEP_MS {
            self.swept_ms = now_ms;
            self.woken.lock().unwrap().extend(self.entries.keys());
        }
        let mut ready = Vec::new();
        // A request that is refused may let another one proceed.
        while let Some(number) = { self.woken.lock().unwrap().pop() } {
            let Some((request, _)) = self.entries.get_mut(&number) else { continue };
            let waker = Waker::from(Arc::new(WaiterWaker { number, woken: Arc::clone(&self.woken) }));
            if let Poll::Ready(result) = request.poll_permit(&mut Context::from_waker(&waker), now_ms)
                && let Some((_, about)) = self.entries.remove(&number)
            {
                ready.push((result, about));
            }
        }
        ready
    }
}

#[test]
fn places_then_a_queue_then_a_refusal() {
    let limiter = limiter(2, 2, 2);
    let first = limiter.try_acquire(&at(0)).unwrap();
    let _second = limiter.try_acquire(&at(0)).unwrap();
    assert!(limiter.try_acquire(&at(0)).is_none());
    let (mut third, mut fourth) = (limiter.enqueue(&at(0)).unwrap(), limiter.enqueue(&at(0)).unwrap());
    assert_eq!(limiter.enqueue(&at(0)).unwrap_err(), QueueRefusal::Full);
    assert!(poll(&mut third, 0).is_pending() && poll(&mut fourth, 0).is_pending());
    assert_eq!((under_way(&limiter), limiter.status().quick.queued), (2, 2));
    drop(first);
    // First come, first served, and nobody comes between.
    assert_eq!((under_way(&limiter), limiter.status().quick.queued), (2, 1));
    assert!(limiter.try_acquire(&at(0)).is_none() && poll(&mut fourth, 1).is_pending());
    let Poll::Ready(Ok(third)) = poll(&mut third, 1) else { panic!("the third has no place") };
    drop(third);
    assert!(poll(&mut fourth, 1).is_ready());
}

/// A constant number of clients, such as browsers in front of a pool of five processes, are all served, in order, although
/// they wait for seconds. When the queue becomes full, the newest are served first.
#[test]
fn requests_that_may_wait_for_long_are_served_in_order_until_the_queue_is_full() {
    let settings = Concurrency { min: 1, max: 1, queue_max: 4, queue_timeout_ms: 10_000 };
    let limiter = ConcurrencyLimiter::new(&settings);
    let mut permit = limiter.try_acquire(&at(0));
    let mut waiting: Vec<_> = (0..4).map(|number| limiter.enqueue(&at(number)).unwrap()).collect();
    let mut next = |waiting: &mut Vec<WaitingRequest>, now_ms: u64| {
        limiter.latest_ms.store(now_ms, Ordering::Relaxed);
        drop(permit.take());
        let ready = waiting.iter_mut().map(|one| poll(one, now_ms)).position(|polled| match polled {
            Poll::Ready(Ok(granted)) => permit.replace(granted).is_none(),
            _ => false,
        });
        drop(waiting.remove(ready.unwrap()));
        ready
    };
    assert_eq!(next(&mut waiting, 3_000), Some(0));
    waiting.push(limiter.enqueue(&at(3_001)).unwrap());
    assert_eq!(limiter.enqueue(&at(3_002)).unwrap_err(), QueueRefusal::Full);
    assert_eq!([4_000, 5_000, 6_000, 7_000].map(|now_ms| next(&mut waiting, now_ms)), [3, 2, 1, 0].map(Some));
}

#[test]
fn timeout_ends() {
    let limiter = limiter(1, 1, 9);
    let place = limiter.try_acquire(&at(0)).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting = limiter.enqueue(&at(10)).unwrap();
    assert_eq!(waiting.deadline_ms(), 1_010);
    assert!(waiting.poll_permit(&mut context, 1_009).is_pending());
    let Poll::Ready(Err(refused)) = waiting.poll_permit(&mut context, 1_010) else { panic!("it waits for ever") };
    assert_eq!(refused, QueueRefusal::Timeout);
    assert_eq!(limiter.status().quick.queued, 0);
    drop((waiting, place));
    assert_eq!(under_way(&limiter), 0);
}

#[test]
fn a_dropped_request_leaves_no_trace() {
    let limiter = limiter(1, 1, 9);
    let place = limiter.try_acquire(&at(0)).unwrap();
    let (gone, mut next, gone_later) =
        (limiter.enqueue(&at(0)).unwrap(), limiter.enqueue(&at(0)).unwrap(), limiter.enqueue(&at(0)).unwrap());
    drop(gone);
    assert_eq!(limiter.status().quick.queued, 2);
    drop(place);
    // Its place was given to it, and it goes away before it knows: the next one gets it.
    let Poll::Ready(Ok(place)) = poll(&mut next, 2_000) else { panic!("a place given in time is taken") };
    drop(place);
    assert_eq!((under_way(&limiter), limiter.status().quick.queued), (1, 0));
    drop(gone_later);
    assert_eq!((under_way(&limiter), limiter.status().quick.queued), (0, 0));
    assert!(limiter.try_acquire(&at(0)).is_some());
}

/// Event streams and long downloads do not count towards the limit, but still count as requests in progress.
#[test]
fn answers_that_stream_take_no_place_of_the_limit() {
    let limiter = limiter(2, 5, 9);
    let mut streams: Vec<_> = (0..5).map(|_| limiter.try_acquire(&at(0)).unwrap()).collect();
    assert!(limiter.try_acquire(&at(0)).is_none());
    for stream in &mut streams {
        stream.report(Sample::Answered { delay_us: 5 }, 0);
        stream.report(Sample::Overloaded, 0);
    }
    assert_eq!((limiter.status().quick.asking, under_way(&limiter)), (0, 5));
    // The most there may be.
    let mut waiting = limiter.enqueue(&at(0)).unwrap();
    assert!(limiter.try_acquire(&at(0)).is_none() && poll(&mut waiting, 0).is_pending());
    streams.pop();
    let Poll::Ready(Ok(permit)) = poll(&mut waiting, 0) else { panic!("the place is not given") };
    assert_eq!((limiter.status().quick.asking, under_way(&limiter)), (1, 5));
    drop((permit, streams));
    assert_eq!((limiter.status().quick.asking, under_way(&limiter)), (0, 0));
}

#[test]
fn a_response_head_releases_the_permit() {
    let limiter = limiter(1, 1_000, 9);
    let mut permits: Vec<_> = (0..100).map(|_| limiter.try_acquire(&at(0)).unwrap()).collect();
    limit_to(&limiter, 100);
    let mut waiting = limiter.enqueue(&at(0)).unwrap();
    assert!(poll(&mut waiting, 0).is_pending());
    permits[0].report(Sample::Nothing, 0);
    assert!(poll(&mut waiting, 0).is_ready());
}

#[test]
fn a_place_that_becomes_free_wakes_one() {
    let limiter = limiter(1, 1, 9);
    let place = limiter.try_acquire(&at(0)).unwrap();
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let mut waiting: Vec<_> = (0..3).map(|_| limiter.enqueue(&at(0)).unwrap()).collect();
    for waiting in &mut waiting {
        assert!(waiting.poll_permit(&mut Context::from_waker(&waker), 0).is_pending());
    }
    drop(place);
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
}

#[test]
fn workers_share_it() {
    let limiter = limiter(3, 3, 1_000);
    let most = AtomicUsize::new(0);
    let inside = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5_000 {
                    let permit = limiter.try_acquire(&at(0)).unwrap_or_else(|| {
                        let mut waiting = limiter.enqueue(&at(0)).unwrap();
                        loop {
                            if let Poll::Ready(permit) = poll(&mut waiting, 0) {
                                return permit.unwrap();
                            }
                            std::thread::yield_now();
                        }
                    });
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::hint::black_box(&permit);
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert!(most.load(Ordering::SeqCst) <= 3);
    assert_eq!((under_way(&limiter), limiter.status().quick.queued), (0, 0));
}

/// Blocks this thread until the future is ready, sleeping until it is woken.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        std::thread::park();
    }
}

/// No waiter sleeps forever: a lost wake-up would hang this test.
#[test]
fn no_wake_is_lost() {
    let limiter = limiter(2, 2, 1_000);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..3_000 {
                    let permit = limiter.try_acquire(&at(0)).unwrap_or_else(|| {
                        let mut waiting = limiter.enqueue(&at(0)).unwrap();
                        block_on(poll_fn(|context| waiting.poll_permit(context, 0))).unwrap()
                    });
                    assert!(under_way(&limiter) <= 2);
                    drop(permit);
                }
            });
        }
    });
    assert_eq!((under_way(&limiter), limiter.status().quick.queued), (0, 0));
}

#[test]
fn overload_lowers_it_at_once_and_calm_removes_it() {
    let mut climb = Climb::new(8, 1_024);
    assert_eq!(climb.limit(), NONE);
    for _ in 0..3 {
        climb.handle_overload(100, 0, 10);
    }
    assert_eq!(climb.limit(), NONE);
    // The fourth within a second; the others that were under way with it change nothing.
    for _ in 0..50 {
        climb.handle_overload(100, 0, 20);
    }
    assert_eq!(climb.limit(), 70);
    // A second later again, and never below the least.
    for round in 1..20 {
        for _ in 0..4 {
            climb.handle_overload(climb.limit(), 0, 20 + round * 2_000);
        }
    }
    assert_eq!(climb.limit(), 8);
    climb.handle_calm(42_000);
    assert_eq!(climb.limit(), 8);
    for round in 0..20 {
        climb.handle_calm(50_000 + round * 5_000);
    }
    assert_eq!(climb.limit(), NONE);
}

/// A failing page also gets 503s, although the origin is not overloaded.
#[test]
fn refusals_count_under_pressure_alone() {
    let refused = |limit: Option<u32>, requests: usize| {
        let limiter = ConcurrencyLimiter::new(&Concurrency::default());
        if let Some(limit) = limit {
            limit_to(&limiter, limit);
        }
        let mut permits: Vec<_> = (0..requests).map(|_| limiter.try_acquire(&at(0)).unwrap()).collect();
        for permit in &mut permits {
            permit.report(Sample::Refused, 10);
        }
        limiter.status().quick.limit
    };
    assert_eq!((refused(None, 500), refused(Some(100), 80)), (None, Some(100)));
    assert!(refused(Some(100), 100).unwrap() < 75);
}

#[test]
fn a_few_of_many_are_no_overload() {
    let mut climb = Climb::new(8, 1_024);
    climb.handle_overload(100, 0, 0);
    // One in twenty.
    for count in 1..100 {
        climb.handle_overload(100, count * 20, u64::from(count));
    }
    assert_eq!(climb.limit(), NONE);
}

/// Begins a limit, because requests for `/page` take longer than alone.
fn limit_to(limiter: &ConcurrencyLimiter, limit: u32) {
    let page = limiter.kinds.find(b"/page");
    (0..SAMPLES_MIN).for_each(|_| limiter.kinds.add(page, 1, 2_000));
    limiter.kinds.note_grown(limiter.kinds.base(page, SAMPLES_MIN).unwrap(), 1);
    let mut control = limiter.quick.control.lock().unwrap();
    control.climb.begin(limit, 0);
    limiter.quick.publish(&control.climb);
}

/// Requests for `path`, each answered alone after `delay_us`, one after another.
fn teach(limiter: &Arc<ConcurrencyLimiter>, path: &[u8], delay_us: u64, now_ms: u64) {
    for _ in 0..8 {
        let mut permit = limiter.try_acquire(&Arrival { path, client: None, now_ms }).unwrap();
        permit.report(Sample::Answered { delay_us }, now_ms);
    }
}

/// A limit ends when nothing has been requested for a while, and one on trial when requests take as long among few.
#[test]
fn a_limit_ends_with_its_reason() {
    let answer = |limiter: &Arc<ConcurrencyLimiter>, delay_us, now_ms| {
        let mut permit = limiter.try_acquire(&at(now_ms - delay_us / 1_000)).unwrap();
        permit.report(Sample::Answered { delay_us }, now_ms)
    };
    let limiter = ConcurrencyLimiter::new(&Concurrency::default());
    limit_to(&limiter, 8);
    assert_eq!(answer(&limiter, 2_000, 1_000), None);
    assert_eq!(answer(&limiter, 2_000, 10_900), None);
    assert_eq!(answer(&limiter, 2_000, 20_901), None);
    assert_eq!(answer(&limiter, 2_000, 30_903), Some(Change::LimitEnded));

    // A limit that timeouts have just caused is not idle.
    let limiter = ConcurrencyLimiter::new(&Concurrency::default());
    teach(&limiter, b"/page", 2_000, 1);
    let mut late: Vec<_> = (0..4).map(|_| limiter.try_acquire(&at(30_000)).unwrap()).collect();
    let changes: Vec<_> = late.iter_mut().filter_map(|permit| permit.report(Sample::Late, 60_000)).collect();
    assert_eq!((changes, answer(&limiter, 2_000, 60_010)), (vec![Change::LimitBegan], None));

    let limiter = ConcurrencyLimiter::for_pool(&Concurrency { min: 1, ..Concurrency::default() });
    teach(&limiter, b"/page", 2_000, 1);
    let mut burst: Vec<_> = (0..30).map(|_| limiter.try_acquire(&at(1_000)).unwrap()).collect();
    // The first ones end last.
    let changes: Vec<_> =
        burst.iter_mut().rev().filter_map(|one| one.report(Sample::Answered { delay_us: 900_000 }, 1_900)).collect();
    assert_eq!(changes, [Change::LimitBegan, Change::LimitEnded]);
}

proptest! {
    #[test]
    fn it_stays_within_its_bounds(
        min in 0_u32..50,
        max in 0_u32..500,
        samples in proptest::collection::vec((0_u8..5, 0_u64..100_000_000, 0_u64..3_000), 0..2_000),
    ) {
        let mut climb = Climb::new(min, max);
        let mut now_ms = 0;
        for (kind, delay_us, wait_ms) in samples {
            now_ms += wait_ms / 20;
            match kind {
                3 if climb.limit() == NONE => climb.begin(delay_us as u32, now_ms),
                0 => climb.handle_overload(delay_us as u32 % 300, wait_ms as u32, now_ms),
                1 => climb.handle_calm(now_ms),
                _ => climb.handle_delay(climb.epoch(), delay_us, now_ms),
            }
            let limit = climb.limit();
            prop_assert!(limit == NONE || (limit >= min.max(1) && limit <= max.max(min).max(1)));
        }
    }

    /// However requests arrive, are answered, end and give up, the counts add up.
    #[test]
    fn places_add_up(events in proptest::collection::vec((0_u8..8, 0_usize..8), 0..300)) {
        let limiter = limiter(3, 3, 5);
        let (mut permits, mut waiting) = (Vec::new(), Vec::<WaitingRequest>::new());
        for (now_ms, (event, index)) in events.into_iter().enumerate() {
            let now_ms = now_ms as u64 * 50;
            let path = [&b"/page"[..], b"/poll", b"/a/b"][index % 3];
            let arrival = Arrival { path, client: None, now_ms };
            match event {
                0..=2 => match limiter.try_acquire(&arrival) {
                    Some(permit) => permits.push((permit, false)),
                    None => waiting.extend(limiter.enqueue(&arrival)),
                },
                3 if !permits.is_empty() => drop(permits.remove(index % permits.len())),
                4 if !waiting.is_empty() => drop(waiting.remove(index % waiting.len())),
                5 if !permits.is_empty() => {
                    let at = index % permits.len();
                    permits[at].0.report(Sample::Answered { delay_us: [2_000, 900_000][index % 2] }, now_ms);
                    permits[at].1 = true;
                }
                6 => limit_to(&limiter, 2),
                _ => {}
            }
            let mut still = Vec::new();
            for mut one in waiting {
                match poll(&mut one, now_ms) {
                    Poll::Ready(permit) => permits.extend(permit.map(|permit| (permit, false))),
                    Poll::Pending => still.push(one),
                }
            }
            waiting = still;
            let status = limiter.status();
            let unanswered = permits.iter().filter(|(_, answered)| !answered).count();
            prop_assert_eq!(status.under_way as usize, permits.len());
            prop_assert_eq!((status.quick.asking + status.slow.asking + status.aged) as usize, unanswered);
            prop_assert_eq!((status.quick.queued + status.slow.queued) as usize, waiting.len());
            prop_assert!(permits.len() <= 3);
        }
        drop((permits, waiting));
        let status = limiter.status();
        prop_assert_eq!((status.under_way, status.quick.asking, status.slow.asking, status.aged), (0, 0, 0, 0));
        prop_assert_eq!(status.paths, []);
        prop_assert_eq!(limiter.extra.load(Ordering::SeqCst), 0);
    }
}
