//! A clock that stands still until it is advanced, for tests and simulations.

use crate::entered::Entered;
use rustix::time::{ClockId, clock_gettime};
use std::cell::RefCell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// A clock that shows the time of its creation until it is advanced. Clones share it.
#[derive(Clone, Debug)]
pub struct SettableClock {
    begun: Instant,
    begun_monotonic_ns: u64,
    begun_unix_ns: i128,
    advanced_ns: Arc<AtomicU64>,
    stepped_ns: Arc<AtomicI64>,
    /// The clock's timers; `None` if timers follow the kernel's clock.
    timers: Option<Arc<Mutex<Vec<TimerEntry>>>>,
}

/// A timer that ticks when its clock is advanced. Entries are reused.
#[derive(Debug, Default)]
struct TimerEntry {
    in_use: bool,
    /// When the timer ticks next, in nanoseconds on the monotonic clock; `None` if it is stopped.
    next_ns: Option<u64>,
    /// Interval between ticks in nanoseconds; 0 if the timer ticks only once.
    interval_ns: u64,
    has_ticked: bool,
    waker: Option<Waker>,
}

thread_local! {
    static CURRENT: RefCell<Option<SettableClock>> = const { RefCell::new(None) };
}

impl SettableClock {
    /// Creates a clock that shows the system's current time.
    pub fn new() -> Self {
        let (monotonic, wall) = (clock_gettime(ClockId::Monotonic), clock_gettime(ClockId::Realtime));
        let ns = |seconds: i64, nanoseconds: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        Self {
            begun: Instant::now(),
            begun_monotonic_ns: u64::try_from(ns(monotonic.tv_sec, monotonic.tv_nsec)).unwrap_or(0),
            begun_unix_ns: ns(wall.tv_sec, wall.tv_nsec),
            advanced_ns: Arc::default(),
            stepped_ns: Arc::default(),
            timers: None,
        }
    }

    /// Creates a clock for a simulation. The clock begins at `unix_s` and at the same monotonic time in every run.
    /// Timers that are created on a thread that has entered the clock tick when the clock is advanced.
    pub fn simulating(unix_s: i64) -> Self {
        Self {
            begun: Instant::now(),
            begun_monotonic_ns: 1_000_000_000_000,
            begun_unix_ns: i128::from(unix_s) * 1_000_000_000,
            timers: Some(Arc::default()),
            ..Self::new()
        }
    }

    /// Replaces the system's clocks on this thread until the returned value is dropped.
    pub fn enter(&self) -> Entered<Self> {
        Entered::new(&CURRENT, self.clone())
    }

    /// The clock that this thread has entered, for passing on to a thread that this one starts.
    pub fn current() -> Option<Self> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Advances the monotonic clock and the wall clock.
    pub fn advance(&self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.advanced_ns.fetch_add(ns, Ordering::SeqCst);
        self.tick();
    }

    /// Steps only the wall clock, forward or back, as an administrator or NTP does.
    pub fn step_wall(&self, seconds: i64) {
        self.stepped_ns.fetch_add(seconds.saturating_mul(1_000_000_000), Ordering::SeqCst);
    }

    /// Time until the next tick of any of the clock's timers. Returns `None` if no timer is set.
    pub fn until_next_tick(&self) -> Option<Duration> {
        let now_ns = self.monotonic_ns();
        let next_ns = self.with_timers(|timers| timers.iter().filter_map(|timer| timer.next_ns).min())??;
        Some(Duration::from_nanos(next_ns.saturating_sub(now_ns)))
    }

    /// Wakes the tasks that wait for timers that are due.
    fn tick(&self) {
        let now_ns = self.monotonic_ns();
        let due = self.with_timers(|timers| {
            let is_due = |timer: &&mut TimerEntry| timer.next_ns.is_some_and(|next_ns| next_ns <= now_ns);
            let tick = |timer: &mut TimerEntry| {
                timer.has_ticked = true;
                // Missed ticks count as one, and later ticks keep their phase.
                timer.next_ns = match (timer.next_ns, timer.interval_ns) {
                    (Some(next_ns), interval_ns) if interval_ns > 0 => {
                        Some(next_ns + ((now_ns - next_ns) / interval_ns + 1) * interval_ns)
                    }
                    _ => None,
                };
                timer.waker.take()
            };
            timers.iter_mut().filter(is_due).filter_map(tick).collect::<Vec<_>>()
        });
        due.into_iter().flatten().for_each(Waker::wake);
    }

    fn with_timers<T>(&self, act: impl FnOnce(&mut Vec<TimerEntry>) -> T) -> Option<T> {
        self.timers.as_ref().map(|timers| act(&mut timers.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn monotonic_ns(&self) -> u64 {
        self.begun_monotonic_ns + self.advanced_ns()
    }

    fn advanced_ns(&self) -> u64 {
        self.advanced_ns.load(Ordering::SeqCst)
    }
}

impl Default for SettableClock {
    fn default() -> Self {
        Self::new()
    }
}

fn read<T>(pick: impl FnOnce(&SettableClock) -> T) -> Option<T> {
    CURRENT.with_borrow(|current| current.as_ref().map(pick))
}

pub(crate) fn now() -> Option<Instant> {
    read(|clock| clock.begun + Duration::from_nanos(clock.advanced_ns()))
}

pub(crate) fn monotonic_ns() -> Option<u64> {
    read(SettableClock::monotonic_ns)
}

pub(crate) fn unix_ns() -> Option<i128> {
    read(|clock| {
        let stepped_ns = clock.stepped_ns.load(Ordering::SeqCst);
        clock.begun_unix_ns + i128::from(clock.advanced_ns()) + i128::from(stepped_ns)
    })
}

/// Advances the thread's settable clock instead of pausing. Returns false if the thread uses the system's clocks.
pub(crate) fn sleep(duration: Duration) -> bool {
    read(|clock| clock.advance(duration)).is_some()
}

/// A timer of a simulation's clock.
#[derive(Debug)]
pub(crate) struct SettableTimer {
    clock: SettableClock,
    index: usize,
}

impl SettableTimer {
    /// Creates a stopped timer. Returns `None` if timers follow the kernel's clock.
    pub(crate) fn new() -> Option<Self> {
        let clock = SettableClock::current()?;
        let index = clock.with_timers(|timers| {
            let free = timers.iter().position(|timer| !timer.in_use);
            let index = free.unwrap_or_else(|| {
                timers.push(TimerEntry::default());
                timers.len() - 1
            });
            timers[index] = TimerEntry { in_use: true, ..TimerEntry::default() };
            index
        })?;
        Some(Self { clock, index })
    }

    /// Makes the timer tick after `delay_ns`, and then every `interval_ns` if that is not 0. If `delay_ns` is `None`,
    /// stops it.
    pub(crate) fn set(&self, delay_ns: Option<u64>, interval_ns: u64) {
        let now_ns = self.clock.monotonic_ns();
        self.with_entry(|timer| {
            timer.next_ns = delay_ns.map(|delay_ns| now_ns.saturating_add(delay_ns));
            timer.interval_ns = interval_ns;
            timer.has_ticked = false;
        });
    }

    /// Ready if the timer has ticked since it was last ready.
    pub(crate) fn poll_tick(&self, context: &Context<'_>) -> Poll<()> {
        let ticked = self.with_entry(|timer| {
            let has_ticked = std::mem::take(&mut timer.has_ticked);
            if !has_ticked {
                timer.waker = Some(context.waker().clone());
            }
            has_ticked
        });
        if ticked == Some(true) { Poll::Ready(()) } else { Poll::Pending }
    }

    fn with_entry<T>(&self, act: impl FnOnce(&mut TimerEntry) -> T) -> Option<T> {
        self.clock.with_timers(|timers| act(&mut timers[self.index]))
    }
}

impl Drop for SettableTimer {
    fn drop(&mut self) {
        // The waker may hold the last reference to a task, and dropping that task may drop another timer.
        let waker = self.with_entry(|timer| std::mem::take(timer).waker);
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use super::SettableClock;
    use crate::clock::{Now, now, precise_ns, since, sleep, unix_ms, unix_ns};
    use crate::timer::Timer;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake, Waker};
    use std::time::Duration;

    #[test]
    fn all_clocks_stand_still_until_they_are_advanced() {
        let clock = SettableClock::new();
        let entered = clock.enter();
        let read = || (Now::read(), now(), precise_ns(), unix_ms(), unix_ns());
        let before = read();
        assert_eq!(read(), before);
        clock.advance(Duration::from_secs(3));
        sleep(Duration::from_secs(4));
        let after = read();
        assert_eq!(after.0.monotonic_ms - before.0.monotonic_ms, 7000);
        assert_eq!(after.0.unix_s - before.0.unix_s, 7);
        assert_eq!(since(before.1), Duration::from_secs(7));
        assert_eq!((after.2 - before.2, after.3 - before.3, after.4 - before.4), (7_000_000_000, 7000, 7_000_000_000));
        drop(entered);
        assert!(since(before.1) < Duration::from_secs(7), "the system's clock is back");
    }

    #[test]
    fn timers_of_a_simulation_tick_as_its_clock_is_advanced() {
        let clock = SettableClock::simulating(1_000);
        let _entered = clock.enter();
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let context = &mut Context::from_waker(&waker);
        let timer = Timer::new().unwrap();
        assert_eq!(clock.until_next_tick(), None);
        timer.set_interval(100).unwrap();
        assert!(timer.poll_tick(context).is_pending());
        clock.advance(Duration::from_millis(99));
        assert_eq!((clock.until_next_tick(), wakes.0.load(Ordering::SeqCst)), (Some(Duration::from_millis(1)), 0));
        // Two ticks pass, and count as one.
        clock.advance(Duration::from_millis(101));
        assert_eq!((clock.until_next_tick(), wakes.0.load(Ordering::SeqCst)), (Some(Duration::from_millis(100)), 1));
        assert!(timer.poll_tick(context).is_ready() && timer.poll_tick(context).is_pending());
        timer.set_once(Duration::from_secs(2)).unwrap();
        clock.step_wall(-30);
        clock.advance(Duration::from_secs(2));
        assert!(timer.poll_tick(context).is_ready());
        assert_eq!((clock.until_next_tick(), unix_ms()), (None, 972_200));
        timer.set_interval(100).unwrap();
        drop(timer);
        assert_eq!(clock.until_next_tick(), None);
    }

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_thread_has_the_clock_that_entered_it() {
        let clock = SettableClock::new();
        let _entered = clock.enter();
        clock.advance(Duration::from_hours(1));
        let here = now();
        let elsewhere = std::thread::spawn(|| (SettableClock::current().is_none(), now())).join().unwrap();
        assert!(elsewhere.0 && elsewhere.1 < here);
        let current = SettableClock::current().unwrap();
        let entered = std::thread::spawn(move || {
            let _entered = current.enter();
            now()
        });
        assert_eq!(entered.join().unwrap(), here);
    }
}
