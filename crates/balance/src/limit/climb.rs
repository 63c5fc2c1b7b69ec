//! Adaptive concurrency limit: hill climbing on throughput by the gradient of the delay.
//!
//! By Little's law, the throughput of a saturated origin is its limit divided by its mean delay. While the origin has
//! spare capacity, a higher limit leaves the delay unchanged: the gradient, d ln delay / d ln limit, is 0, and every
//! permit adds throughput. Without spare capacity, requests queue within the origin: the gradient is 1, and more
//! permits only add delay. Power, throughput divided by delay, is maximal at a gradient of a half (Kleinrock, 1979).
//! The target is slightly higher, since an idle origin is worse than a short queue within it.
//!
//! While requests are waiting because of the limit, a trial raises it by half or lowers it by a third, for enough
//! requests to give a reliable mean. The delays before and during the trial show on which side of the knee the limit
//! is, and the new limit is retained or reverted. Hill climbing by controlled trials comes from the .NET thread pool
//! (Hellerstein, Morrison and Eilebrecht, 2009). The gradient replaces a minimum delay, which a mixture of fast and
//! slow pages does not have; it comes from the gradient limit of Netflix's concurrency-limits (2018). If neither
//! direction is an improvement, trials pause, for longer each time.
//!
//! At first, there is no limit. It begins when requests of the same kind take several times as long among many others as
//! among few (`growth`). If they take as long under the limit as before, their number was not the reason, and the limit
//! ends. Otherwise, it ends when there has been no pressure for a while: it is raised step by step, and then removed.
//! Delays are relative to those of the same kind, so that a mixture of fast and slow pages that changes is no
//! evidence. Waiting alone is none either: long polls take as long alone as among thousands.
//!
//! Overload, that is, several requests that time out although their kind is usually answered and while nothing else is,
//! immediately lowers the limit to seven tenths of the requests waiting for a head (multiplicative decrease and flight
//! size: RFC 5681 §3.1, RFC 9438 §4.6).
//!
//! This module reads no clock and uses no random numbers, so the same samples always give the same limit.

use super::EXTRA_PLACES;
use super::growth::Overload;

/// Observation of an origin's load, from one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// The response head arrived.
    Answered {
        /// Time since the request was sent, in microseconds.
        delay_us: u64,
    },
    /// The response head did not arrive in time. That is evidence only if requests of this kind are usually answered
    /// soon, and others are not answered either.
    Late,
    /// The origin took no new connection in time, or says that it is overloaded.
    Overloaded,
    /// The origin responded with 503. If the limit is nearly reached, this indicates overload; otherwise it concerns
    /// only the page, and fewer requests would not help. The delay is not used.
    Refused,
    /// No information about load, for instance because of a refused connection, a disconnected client or an upgrade.
    Nothing,
}

/// The value that means no limit.
pub(super) const NONE: u32 = u32::MAX;

/// Limit above which it is removed when there is no pressure, unless the bounds exclude it.
const REMOVED: u32 = 256;

/// Factor or divisor that is applied to the limit in a trial.
const STEP: f64 = 1.5;

/// Gradient above which a higher limit is not worth the additional delay.
const KNEE: f64 = 0.7;

/// Minimum and maximum number of samples per mean, which is otherwise twice the limit.
const SAMPLES_MIN: u32 = 32;
const SAMPLES_MAX: u32 = 256;

/// Maximum duration over which a mean is measured, in milliseconds. The mean that it is compared with may be twice as
/// old.
const WINDOW_MS: u64 = 30_000;

/// Minimum and maximum pause after trials in both directions were undone, in milliseconds.
const REST_MIN_MS: u64 = 1_000;
const REST_MAX_MS: u64 = 30_000;

/// Length of a window in which overload is counted, in milliseconds. The limit is lowered at most once per window.
const OVERLOAD_MS: u64 = 1_000;
/// Minimum number of timeouts per window for overload, and the divisor of the number of responses that yields the
/// minimum relative to them.
const OVERLOADED_MIN: u32 = 4;
const OVERLOADED_SHARE: u32 = 8;

/// Number of samples of each mean in the trial of a new limit, and number of such means that must show that it does not
/// help.
const TRIAL_SAMPLES: u32 = 8;
const TRIAL_MEANS: u32 = 2;

/// How many times as long as expected requests must take for a new limit not to help.
const USELESS: f64 = 4.0;

/// Time without pressure after which the limit is raised a step, in milliseconds.
const CALM_MS: u64 = 5_000;

/// Delays of requests sent under the same limit.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    count: u32,
    sum_us: u64,
    started_ms: u64,
}

/// A limit and its mean delay, for comparison.
#[derive(Clone, Copy, Debug)]
struct Base {
    limit: u32,
    mean_us: f64,
    measured_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

impl Way {
    const fn other(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
        }
    }
}

/// Adaptive concurrency limit of an origin.
#[derive(Clone, Debug)]
pub struct Climb {
    min: u32,
    max: u32,
    limit: u32,
    epoch: u32,
    window: Window,
    /// The limit before the current trial, if there is one.
    base: Option<Base>,
    way: Way,
    /// Number of trials undone since the last one that was kept.
    undone: u32,
    rest_ms: u64,
    rest_until_ms: u64,
    pressed_ms: u64,
    overload_since_ms: u64,
    overloaded: u32,
    lowered: bool,
    answered_before: u32,
    /// The trial of the limit itself, until it has helped.
    trial: Option<LimitTrial>,
}

/// Trial of a limit that has begun.
#[derive(Clone, Copy, Debug)]
struct LimitTrial {
    /// Expected mean delay relative to those among few requests, in thousandths.
    expected_thousandths: f64,
    /// Number of means that show that the limit does not help.
    useless: u32,
}

impl Climb {
    /// Creates a limit that will be between these bounds, but does not exist yet. `min` is at least 1, and `max` at
    /// least `min`.
    pub fn new(min: u32, max: u32) -> Self {
        let min = min.max(1);
        Self {
            min,
            max: max.max(min),
            limit: NONE,
            epoch: 0,
            window: Window::default(),
            base: None,
            // Begin with a lower limit: a limit that is too high delays responses, whereas one that is too low only
            // reduces throughput for a moment.
            way: Way::Down,
            undone: 0,
            rest_ms: 0,
            rest_until_ms: 0,
            pressed_ms: 0,
            overload_since_ms: 0,
            overloaded: 0,
            lowered: false,
            answered_before: 0,
            trial: None,
        }
    }

    /// Returns the maximum number of requests that may wait for a response head; `u32::MAX` if there is no limit.
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// Begins with a limit of about `limit`, because delays have grown with the number of requests.
    pub fn begin(&mut self, limit: u32, now_ms: u64) {
        self.pressed_ms = now_ms;
        self.base = None;
        self.way = Way::Down;
        self.undone = 0;
        self.rest_ms = 0;
        self.rest_until_ms = 0;
        self.set_limit(limit);
    }

    /// Begins with the limit that follows from growing delays. It ends again if it does not help.
    pub(super) fn try_limit(&mut self, overload: Overload, now_ms: u64) {
        self.begin(overload.limit, now_ms);
        // If the origin works on so many at a time, requests take this many times as long as alone.
        let expected = f64::from(self.limit + EXTRA_PLACES) * overload.ratio / f64::from(overload.asking.max(1));
        self.trial = Some(LimitTrial { expected_thousandths: expected.max(1.0) * 1_000.0, useless: 0 });
    }

    /// Returns whether it is not certain yet that the limit helps.
    pub(super) const fn is_on_trial(&self) -> bool {
        self.trial.is_some()
    }

    /// Ends the limit.
    pub(super) fn end(&mut self) {
        self.limit = NONE;
        self.trial = None;
        self.base = None;
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Returns a number that changes with every change of the limit, so that each delay is attributed to the limit
    /// under which it was measured.
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Handles a response that took `delay_us`, relative to others of its kind, to a request that began in `epoch` when
    /// the limit was nearly reached.
    pub fn handle_delay(&mut self, epoch: u32, delay_us: u64, now_ms: u64) {
        self.pressed_ms = now_ms;
        if epoch != self.epoch || self.limit == NONE {
            return;
        }
        if self.window.count > 0 && now_ms.saturating_sub(self.window.started_ms) > WINDOW_MS {
            self.window = Window::default();
        }
        if self.window.count == 0 {
            self.window.started_ms = now_ms;
        }
        self.window.count += 1;
        self.window.sum_us = self.window.sum_us.saturating_add(delay_us.max(1));
        let needed = match self.trial {
            Some(_) => TRIAL_SAMPLES,
            None => self.limit.saturating_mul(2).clamp(SAMPLES_MIN, SAMPLES_MAX),
        };
        if self.window.count < needed {
            return;
        }
        let mean_us = self.window.sum_us as f64 / f64::from(self.window.count);
        self.window = Window::default();
        self.handle_mean(mean_us, now_ms);
    }

    fn handle_mean(&mut self, mean_us: f64, now_ms: u64) {
        if let Some(trial) = &mut self.trial {
            if mean_us <= USELESS * trial.expected_thousandths {
                self.trial = None;
                return;
            }
            trial.useless += 1;
            // The next mean is that of requests that begin from now on, so that one stall of the origin decides nothing.
            self.epoch = self.epoch.wrapping_add(1);
            if trial.useless >= TRIAL_MEANS {
                self.end();
            }
            return;
        }
        if let Some(base) = self.base.take()
            && now_ms.saturating_sub(base.measured_ms) <= 2 * WINDOW_MS
        {
            let gradient = (mean_us / base.mean_us).ln() / (f64::from(self.limit) / f64::from(base.limit)).ln();
            let pays = match self.way {
                Way::Up => gradient < KNEE,
                Way::Down => gradient > KNEE,
            };
            if !pays {
                self.set_limit(base.limit);
                self.way = self.way.other();
                self.undone += 1;
                if self.undone >= 2 {
                    self.undone = 0;
                    self.rest_ms = (self.rest_ms * 2).clamp(REST_MIN_MS, REST_MAX_MS);
                    self.rest_until_ms = now_ms.saturating_add(self.rest_ms);
                }
                return;
            }
            self.undone = 0;
            self.rest_ms = 0;
        }
        if now_ms < self.rest_until_ms {
            return;
        }
        let base = Base { limit: self.limit, mean_us, measured_ms: now_ms };
        let next = [self.way, self.way.other()].into_iter().find(|&way| self.step(way) != self.limit);
        if let Some(way) = next {
            self.way = way;
            self.set_limit(self.step(way));
            self.base = Some(base);
        }
    }

    /// Returns the next limit in a direction, within the bounds.
    fn step(&self, way: Way) -> u32 {
        let stepped = match way {
            Way::Up => (f64::from(self.limit) * STEP).ceil(),
            Way::Down => (f64::from(self.limit) / STEP).floor(),
        };
        (stepped as u32).clamp(self.min, self.max)
    }

    /// Handles a timeout of a request. `asking` is the number of requests that were waiting for a head when it began,
    /// and `answered` is a wrapping count of all responses.
    pub fn handle_overload(&mut self, asking: u32, answered: u32, now_ms: u64) {
        self.pressed_ms = now_ms;
        if self.overloaded == 0 || now_ms.saturating_sub(self.overload_since_ms) > OVERLOAD_MS {
            self.overload_since_ms = now_ms;
            self.overloaded = 0;
            self.lowered = false;
            self.answered_before = answered;
        }
        self.overloaded += 1;
        let needed = (answered.wrapping_sub(self.answered_before) / OVERLOADED_SHARE).max(OVERLOADED_MIN);
        // Lower the limit only once per window, since requests in progress at the same time fail together.
        if self.overloaded < needed || self.lowered {
            return;
        }
        self.lowered = true;
        let flight = self.limit.min(asking);
        self.base = None;
        self.way = Way::Up;
        self.undone = 0;
        self.rest_until_ms = now_ms.saturating_add(REST_MIN_MS);
        self.set_limit((f64::from(flight) * 0.7) as u32);
    }

    /// Handles a response to a request that began when the limit was not nearly reached.
    pub fn handle_calm(&mut self, now_ms: u64) {
        if self.limit == NONE || now_ms.saturating_sub(self.pressed_ms) < CALM_MS {
            return;
        }
        self.pressed_ms = now_ms;
        self.base = None;
        self.rest_ms = 0;
        if self.limit >= REMOVED.clamp(self.min, self.max) {
            self.end();
        } else {
            self.set_limit(self.step(Way::Up));
        }
    }

    fn set_limit(&mut self, limit: u32) {
        self.trial = None;
        self.limit = limit.clamp(self.min, self.max);
        self.epoch = self.epoch.wrapping_add(1);
        self.window = Window::default();
    }
}
