use super::{QueueBound, QueueSettings, RECOVERY_MS, WINDOW_MS_MIN};
use proptest::prelude::*;
use std::collections::VecDeque;

const SETTINGS: QueueSettings = QueueSettings { delay_target_ms: 100, entries_min: 16, entries_max: 4096 };

/// Clients that arrive at a constant rate, each for a service that takes constant time, and leave after `leaves_after_ms`.
struct Simulation {
    service_us: u64,
    leaves_after_ms: u64,
    /// `None`: a queue bounded by its length only.
    control: Option<QueueBound>,
    /// True if the control knows the length of the queue.
    tells_length: bool,
    queue: VecDeque<u64>,
    now_us: u64,
    free_at_us: u64,
    next_arrival_us: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    served_in_time: u64,
    served_late: u64,
    refused: u64,
    wait_ms_max: u64,
}

impl Simulation {
    fn new(service_us: u64, control: Option<QueueBound>) -> Self {
        let queue = VecDeque::new();
        Self {
            service_us,
            leaves_after_ms: 1_000,
            control,
            tells_length: false,
            queue,
            now_us: 0,
            free_at_us: 0,
            next_arrival_us: 0,
        }
    }

    fn bound(&self) -> usize {
        self.control.as_ref().map_or(SETTINGS.entries_max, QueueBound::bound) as usize
    }

    /// Lets `seconds` pass with an arrival each `gap_us`.
    fn run(&mut self, seconds: u64, gap_us: u64) -> Counts {
        let mut counts = Counts::default();
        let end_us = self.now_us + seconds * 1_000_000;
        self.next_arrival_us = self.now_us;
        while self.now_us < end_us {
            if self.next_arrival_us <= self.free_at_us || self.queue.is_empty() {
                self.now_us = self.next_arrival_us.max(self.now_us);
                self.next_arrival_us += gap_us;
                if self.queue.len() < self.bound() {
                    self.queue.push_back(self.now_us);
                } else {
                    counts.refused += 1;
                }
                if self.free_at_us > self.now_us {
                    continue;
                }
            }
            self.now_us = self.now_us.max(self.free_at_us);
            let Some(arrived_us) = self.queue.pop_front() else { continue };
            self.free_at_us = self.now_us + self.service_us;
            let wait_ms = (self.free_at_us - arrived_us) / 1_000;
            counts.wait_ms_max = counts.wait_ms_max.max(wait_ms);
            if wait_ms <= self.leaves_after_ms {
                counts.served_in_time += 1;
            } else {
                counts.served_late += 1;
            }
            let (now_ms, is_empty) = (self.free_at_us / 1_000, self.queue.is_empty());
            if let Some(control) = &mut self.control {
                if is_empty {
                    control.handle_empty(now_ms);
                } else {
                    control.handle_saturated(1, now_ms, || self.tells_length.then_some(self.queue.len() as u32));
                }
            }
        }
        counts
    }
}

#[test]
fn a_queue_bounded_by_length_alone_serves_only_those_who_have_left() {
    // 2,000 a second are served, 5,000 arrive.
    let mut simulation = Simulation::new(500, None);
    simulation.run(3, 200);
    let counts = simulation.run(5, 200);
    assert_eq!(counts.served_in_time, 0);
    assert!(counts.served_late > 9_000, "{counts:?}");
}

#[test]
fn bounded_by_time_it_serves_at_full_speed_whatever_arrives() {
    for service_us in [100, 430, 2_000, 10_000] {
        for times in [2, 5, 10] {
            for tells_length in [false, true] {
                let mut simulation = Simulation::new(service_us, Some(QueueBound::new(SETTINGS)));
                simulation.tells_length = tells_length;
                simulation.run(2, service_us / times);
                let counts = simulation.run(5, service_us / times);
                let capacity = 5_000_000 / service_us;
                let case = format!("{service_us} us at {times} x, {tells_length}: {counts:?}");
                assert!(counts.served_in_time * 100 >= capacity * 99, "{case}");
                assert_eq!(counts.served_late, 0, "{case}");
                let expected_ms = SETTINGS.delay_target_ms.max(u64::from(SETTINGS.entries_min) * service_us / 1_000);
                assert!(counts.wait_ms_max <= expected_ms * if tells_length { 3 } else { 2 }, "{case}");
            }
        }
    }
}

#[test]
fn at_less_than_its_speed_nothing_is_refused() {
    for share in [50, 90, 99] {
        let mut simulation = Simulation::new(500, Some(QueueBound::new(SETTINGS)));
        let counts = simulation.run(10, 500 * 100 / share);
        assert_eq!((counts.refused, counts.served_late), (0, 0), "{share} %");
        assert!(!simulation.control.unwrap().is_limiting());
    }
}

#[test]
fn a_burst_shorter_than_a_window_is_served_whole() {
    let mut simulation = Simulation::new(50, Some(QueueBound::new(SETTINGS)));
    // 400 at once take 20 ms.
    for _ in 0..400 {
        simulation.queue.push_back(0);
    }
    let counts = simulation.run(1, 2_000_000);
    assert_eq!((counts.refused, counts.served_late), (0, 0));
    assert!(counts.served_in_time > 400);
    assert!(!simulation.control.unwrap().is_limiting());
}

#[test]
fn a_queue_that_is_served_within_the_target_is_no_overload() {
    let mut bound = QueueBound::new(SETTINGS);
    // A hundred are served in 100 ms, and ninety wait all the time.
    for now_ms in 0..500 {
        bound.handle_saturated(1, now_ms, || Some(90));
        assert!(!bound.is_limiting());
    }
    // Many more: the bound follows them downwards.
    for waiting in (100..1_000_u32).rev() {
        bound.handle_saturated(1, 1_500 - u64::from(waiting), || Some(waiting));
        assert!(bound.bound() >= 90);
    }
    assert!(bound.bound() <= 110, "{}", bound.bound());
}

#[test]
fn the_bound_recovers_within_a_second_of_the_end() {
    let mut bound = QueueBound::new(SETTINGS);
    for now_ms in 0..200 {
        bound.handle_saturated(1, now_ms, || None);
    }
    assert_eq!(bound.bound(), 100);
    let mut now_ms = 200;
    while bound.is_limiting() {
        now_ms += 10;
        bound.handle_empty(now_ms);
    }
    assert!(now_ms - 200 <= 7 * RECOVERY_MS, "{now_ms}");
}

#[test]
fn a_slow_server_is_measured_over_a_longer_time() {
    let mut bound = QueueBound::new(SETTINGS);
    // 20 a second.
    for now_ms in (0..1_000).step_by(50) {
        bound.handle_saturated(1, now_ms, || None);
    }
    assert_eq!(bound.bound(), SETTINGS.entries_min);
    assert!((bound.rate_per_s - 20.0).abs() < 2.0, "{}", bound.rate_per_s);
}

proptest! {
    #[test]
    fn the_bound_stays_within_its_limits(
        reports in prop::collection::vec((any::<bool>(), 0..5_000_u32, 0..2_000_u64), 0..200),
    ) {
        let mut bound = QueueBound::new(SETTINGS);
        let mut now_ms = 0_u64;
        for (saturated, count, step_ms) in reports {
            now_ms += step_ms;
            if saturated { bound.handle_saturated(count, now_ms, || None) } else { bound.handle_empty(now_ms) }
            prop_assert!((SETTINGS.entries_min..=SETTINGS.entries_max).contains(&bound.bound()));
        }
    }

    #[test]
    fn any_clock_is_borne(times in prop::collection::vec(any::<u64>(), 0..50)) {
        let mut bound = QueueBound::new(SETTINGS);
        for now_ms in times {
            bound.handle_saturated(u32::MAX, now_ms, || None);
            bound.handle_empty(now_ms);
        }
        prop_assert!(bound.bound() >= SETTINGS.entries_min && WINDOW_MS_MIN > 0);
    }
}
