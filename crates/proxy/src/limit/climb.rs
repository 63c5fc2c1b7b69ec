//! How high the limit is: climbing the hill of throughput by the gradient of the delay.
//!
//! By Little's law, an origin that is kept full has a throughput of its limit divided by its mean delay. While it has
//! room to spare, a higher limit leaves the delay as it is: the gradient, d ln delay / d ln limit, is 0 and every
//! place adds throughput. Once it has no more, requests queue within it: the gradient is 1, and more places add delay
//! alone. Power, throughput by delay, is best where the gradient is a half (Kleinrock, 1979); the knee is looked for a
//! little above, as an origin that idles is worse than a short queue within it.
//!
//! So while the limit is what holds requests back, it is tried half as high again, or lower by a third, for as many
//! requests as give a fair mean; the delays of both tell on which side of the knee it stands, and the trial stays or is
//! undone. Hill climbing by controlled trials is from .NET's thread pool (Hellerstein, Morrison and Eilebrecht, 2009);
//! the gradient in place of a least delay, which no mixture of quick and slow pages has, from the gradient limit of
//! Netflix's concurrency-limits (2018). When neither way pays, trials rest, a little longer each time.
//!
//! Overload, several answers that do not come in time, lowers the limit at once to seven tenths of what waited
//! (multiplicative decrease and flight size: RFC 5681 §3.1, RFC 9438 §4.6). When there has been no pressure for a
//! while, what was learnt is forgotten step by step, up to where it began.
//!
//! Nothing here reads a clock or is random: the same samples give the same limit.

/// What a request tells about its origin's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// The head of the answer came.
    Answered {
        /// Microseconds from when the request was sent.
        delay_us: u64,
    },
    /// It did not come in time: a connect timeout or a head timeout.
    Overloaded,
    /// It came, and was a 503. While the limit is nearly used up, that means too much; else it is about the page, and
    /// fewer requests would not make it well. Its delay is no measure either way.
    Refused,
    /// Nothing about its delay: a refused connection, a client that went away, an upgrade.
    Nothing,
}

/// Where the limit begins, when its bounds allow it: high enough for sites without trouble never to meet it.
const INITIAL: u32 = 256;

/// A trial multiplies or divides the limit by this.
const STEP: f64 = 1.5;

/// The gradient at which a higher limit is no longer worth its delay.
const KNEE: f64 = 0.7;

/// Samples that give a mean: twice the limit, and within these.
const SAMPLES_MIN: u32 = 32;
const SAMPLES_MAX: u32 = 256;

/// How long one mean may take, and how long the one it is compared with is believed, in milliseconds.
const WINDOW_MS: u64 = 30_000;

/// The shortest and the longest rest after both ways were tried in vain, in milliseconds.
const REST_MIN_MS: u64 = 1_000;
const REST_MAX_MS: u64 = 30_000;

/// Overload is counted for so long, in milliseconds, and lowers the limit once in it.
const OVERLOAD_MS: u64 = 1_000;
/// Requests overloaded in that time that count, at the least, and one of how many.
const OVERLOADED_MIN: u32 = 4;
const OVERLOADED_SHARE: u32 = 8;

/// How long without pressure until the limit is forgotten by one more step, in milliseconds.
const CALM_MS: u64 = 5_000;

/// Where the limit between these bounds begins.
pub(super) fn initial(min: u32, max: u32) -> u32 {
    let min = min.max(1);
    INITIAL.clamp(min, max.max(min))
}

/// Delays of requests that were sent under one limit.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    count: u32,
    sum_us: u64,
    started_ms: u64,
}

/// A limit that was measured: the means compared are about these.
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

/// The limit of one origin.
#[derive(Clone, Debug)]
pub struct Climb {
    min: u32,
    max: u32,
    limit: u32,
    epoch: u32,
    window: Window,
    /// Set while a trial goes on: what it is compared with.
    base: Option<Base>,
    way: Way,
    /// Trials undone since the last that stayed.
    undone: u32,
    rest_ms: u64,
    rest_until_ms: u64,
    pressed_ms: u64,
    overload_since_ms: u64,
    overloaded: u32,
    lowered: bool,
    answered_before: u32,
}

impl Climb {
    /// A limit between these bounds, which are brought into order: 1 or more, and `max` at least `min`.
    pub fn new(min: u32, max: u32) -> Self {
        let min = min.max(1);
        Self {
            min,
            max: max.max(min),
            limit: initial(min, max),
            epoch: 0,
            window: Window::default(),
            base: None,
            way: Way::Up,
            undone: 0,
            rest_ms: 0,
            rest_until_ms: 0,
            pressed_ms: 0,
            overload_since_ms: 0,
            overloaded: 0,
            lowered: false,
            answered_before: 0,
        }
    }

    /// Requests that may wait for the head of their answers.
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// Changes with every change of the limit, so that each delay counts for the limit it was met under.
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// A request that began while the limit was nearly used up, in `epoch`, was answered after `delay_us`.
    pub fn handle_delay(&mut self, epoch: u32, delay_us: u64, now_ms: u64) {
        self.pressed_ms = now_ms;
        if epoch != self.epoch {
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
        if self.window.count < self.limit.saturating_mul(2).clamp(SAMPLES_MIN, SAMPLES_MAX) {
            return;
        }
        let mean_us = self.window.sum_us as f64 / f64::from(self.window.count);
        self.window = Window::default();
        self.handle_mean(mean_us, now_ms);
    }

    fn handle_mean(&mut self, mean_us: f64, now_ms: u64) {
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

    /// The limit one step further, within the bounds.
    fn step(&self, way: Way) -> u32 {
        let stepped = match way {
            Way::Up => (f64::from(self.limit) * STEP).ceil(),
            Way::Down => (f64::from(self.limit) / STEP).floor(),
        };
        (stepped as u32).clamp(self.min, self.max)
    }

    /// A request was not answered in time; `asking` waited for a head when it began. `answered` is a count of answers that goes
    /// on for ever (and around).
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
        // Once in this time: those that were under way together fail together.
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

    /// A request was answered while the limit held nobody back.
    pub fn handle_calm(&mut self, now_ms: u64) {
        let initial = initial(self.min, self.max);
        if self.limit >= initial || now_ms.saturating_sub(self.pressed_ms) < CALM_MS {
            return;
        }
        self.pressed_ms = now_ms;
        self.base = None;
        self.rest_ms = 0;
        self.set_limit(self.step(Way::Up).min(initial));
    }

    fn set_limit(&mut self, limit: u32) {
        self.limit = limit.clamp(self.min, self.max);
        self.epoch = self.epoch.wrapping_add(1);
        self.window = Window::default();
    }
}
