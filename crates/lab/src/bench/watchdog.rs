//! The watchdog: how long this process did not run, because something had stopped it.
//!
//! A stopped thread (SIGSTOP, a debugger, a frozen cgroup, a paused virtual machine) is neither on a core nor waiting
//! for one, so `schedstat` does not show it. The watchdog sleeps for a short time again and again, and measures by how
//! much each sleep takes longer. From this it subtracts the time for which it was awake but waited for a core, which
//! `cpu-contention` and `client-saturated` report.

use flatout_os::clock::precise_ns;
use flatout_os::procfs::read_sched_time;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Length of one sleep. The part of a stop that falls into the rest of a sleep is not noticed, so a sleep is shorter than
/// [`STOP_NS_MIN`]. A hundred wake-ups per second take about a thousandth of a core.
const SLEEP: Duration = Duration::from_millis(10);

/// Shortest delay of a sleep, without waiting for a core, that counts as a stop, in nanoseconds. `cpulimit -l 50` stops
/// a process for 50 ms at a time, and at least 40 ms of this are noticed. A busy host takes a core from a virtual machine
/// for up to about 26 ms (measured on a VM with two cores, 12 % of whose time its host took).
const STOP_NS_MIN: u64 = 35_000_000;

/// Maximum number of stops that are stored one by one. Further stops extend the last one, so that memory is bounded.
const STOPS_MAX: usize = 65_536;

/// A time for which the process did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "a unit ends the name of each time")]
struct ProcessStop {
    /// The sleep was due to end at this time, in nanoseconds.
    from_ns: u64,
    until_ns: u64,
    /// The part of this time in which the process was stopped, in nanoseconds.
    stopped_ns: u64,
}

/// The times for which the process did not run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessStops(Vec<ProcessStop>);

impl ProcessStops {
    /// Handles the end of a sleep that was due at `due_ns` and ended at `now_ns`, after waiting for a core for `wait_ns`.
    fn handle_wake(&mut self, due_ns: u64, now_ns: u64, wait_ns: u64) {
        let stopped_ns = now_ns.saturating_sub(due_ns).saturating_sub(wait_ns);
        if stopped_ns < STOP_NS_MIN {
            return;
        }
        let is_full = self.0.len() >= STOPS_MAX;
        match self.0.last_mut().filter(|_| is_full) {
            Some(last) => {
                last.until_ns = now_ns;
                last.stopped_ns = last.stopped_ns.saturating_add(stopped_ns);
            }
            None => self.0.push(ProcessStop { from_ns: due_ns, until_ns: now_ns, stopped_ns }),
        }
    }

    /// Returns for how long the process was stopped between two times, in nanoseconds.
    pub(super) fn stopped_ns(&self, from_ns: u64, until_ns: u64) -> u64 {
        let within = |stop: &ProcessStop| {
            let part_ns = stop.until_ns.min(until_ns).saturating_sub(stop.from_ns.max(from_ns));
            let whole_ns = stop.until_ns.saturating_sub(stop.from_ns).max(1);
            (u128::from(stop.stopped_ns) * u128::from(part_ns) / u128::from(whole_ns)) as u64
        };
        self.0.iter().map(within).fold(0, u64::saturating_add)
    }
}

/// The thread that observes whether this process runs.
#[derive(Debug)]
pub(super) struct Watchdog {
    /// Carries no messages: the thread exits when it is dropped.
    ending: Sender<()>,
    thread: JoinHandle<ProcessStops>,
}

impl Watchdog {
    /// Starts observing.
    pub(super) fn begin() -> io::Result<Self> {
        let (ending, ended) = mpsc::channel::<()>();
        let thread = thread::Builder::new().name("watchdog".to_owned()).spawn(move || {
            let wait_ns = || read_sched_time("thread-self").ok().map(|time| time.wait_ns);
            let mut stops = ProcessStops::default();
            let (mut before_ns, mut waited_before_ns) = (precise_ns(), wait_ns());
            loop {
                let slept = ended.recv_timeout(SLEEP);
                // Each reading begins the next period, so that no time is left out.
                let (now_ns, waited_ns) = (precise_ns(), wait_ns());
                let due_ns = before_ns.saturating_add(SLEEP.as_nanos() as u64);
                // Without both readings, it is unknown whether the thread waited for a core.
                if let (Some(waited_ns), Some(waited_before_ns)) = (waited_ns, waited_before_ns) {
                    stops.handle_wake(due_ns, now_ns, waited_ns.saturating_sub(waited_before_ns));
                }
                if !matches!(slept, Err(RecvTimeoutError::Timeout)) {
                    return stops;
                }
                (before_ns, waited_before_ns) = (now_ns, waited_ns);
            }
        })?;
        Ok(Self { ending, thread })
    }

    /// Stops observing. Returns `None` if the thread panicked.
    pub(super) fn end(self) -> Option<ProcessStops> {
        drop(self.ending);
        self.thread.join().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::{ProcessStops, STOP_NS_MIN, STOPS_MAX, Watchdog};
    use flatout_os::clock::precise_ns;

    const MS: u64 = 1_000_000;

    #[test]
    fn only_long_delays_that_are_not_waits_for_a_core_are_stops() {
        let mut stops = ProcessStops::default();
        stops.handle_wake(100 * MS, 100 * MS + STOP_NS_MIN - 1, 0);
        // Threads of the same core ran for half a second.
        stops.handle_wake(200 * MS, 700 * MS, 490 * MS);
        stops.handle_wake(800 * MS, 799 * MS, 0);
        assert_eq!(stops, ProcessStops::default());
        stops.handle_wake(1_000 * MS, 1_000 * MS + STOP_NS_MIN, 0);
        stops.handle_wake(2_000 * MS, 5_000 * MS, 1_000 * MS);
        assert_eq!(stops.stopped_ns(0, u64::MAX), STOP_NS_MIN + 2_000 * MS);
    }

    #[test]
    fn only_the_part_of_a_stop_within_the_interval_is_returned() {
        let mut stops = ProcessStops::default();
        stops.handle_wake(1_000 * MS, 2_000 * MS, 0);
        stops.handle_wake(5_000 * MS, 6_000 * MS, 500 * MS);
        assert_eq!(stops.stopped_ns(0, 1_000 * MS), 0);
        assert_eq!(stops.stopped_ns(1_600 * MS, 5_000 * MS), 400 * MS);
        assert_eq!(stops.stopped_ns(2_000 * MS, 5_500 * MS), 250 * MS);
        assert_eq!(stops.stopped_ns(6_000 * MS, 9_000 * MS), 0);
        assert_eq!(stops.stopped_ns(3_000 * MS, 2_000 * MS), 0);
    }

    #[test]
    fn the_number_of_stored_stops_is_bounded() {
        let mut stops = ProcessStops::default();
        let count = STOPS_MAX as u64 + 10;
        for nth in 0..count {
            stops.handle_wake(nth * 100 * MS, nth * 100 * MS + 50 * MS, 0);
        }
        assert_eq!((stops.0.len(), stops.stopped_ns(0, u64::MAX)), (STOPS_MAX, count * 50 * MS));
    }

    #[test]
    fn a_watchdog_ends_when_it_is_told_to() {
        let begun_ns = precise_ns();
        let watchdog = Watchdog::begin().unwrap();
        let stops = watchdog.end().unwrap();
        // This process may really have been stopped, but not before the watchdog began.
        assert_eq!(stops.stopped_ns(0, begun_ns), 0);
    }
}
