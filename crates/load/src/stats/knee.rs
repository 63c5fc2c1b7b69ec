//! The highest rate at which a requirement is met: a search that says what to measure next.
//!
//! As MLRsearch does for packets (Multiple Loss Ratio search, FD.io CSIT and an IETF draft): short trials find roughly
//! where the knee is, doubling the rate until the requirement is missed and halving the interval by ratio from there; long
//! ones decide. A rate counts as met when [`KneePlan::confirmations`] long trials in a row met the requirement, as missed
//! when one long trial did not. The search ends when the two are no further apart than the precision wanted. Where long
//! trials contradict the short ones, it walks down, or up, in steps that double, and narrows again.
//!
//! The driver asks [`Search::next`] for a [`Trial`], runs it, and tells [`Search::handle`] what came of it.

use crate::plan::Arrival;
use serde::{Deserialize, Serialize};

/// What is wanted of a search. A rate is one of arrivals: of requests where each is one, else of connections or sessions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KneePlan {
    /// Lowest rate of interest, in arrivals a second; the first trial. Above 0.
    pub rate_min: f64,
    /// Highest rate to try, at least `rate_min`.
    pub rate_max: f64,
    /// How far the rates that are met and missed may lie apart, as a share; 0.001 at least.
    pub precision: f64,
    /// Length of a short trial, in nanoseconds.
    pub short_ns: u64,
    /// Length of a long trial, in nanoseconds.
    pub long_ns: u64,
    /// Long trials in a row that must meet the requirement, at least 1.
    pub confirmations: u32,
    /// Trials at the most.
    pub trials_max: u32,
}

impl KneePlan {
    /// From 100 arrivals a second to ten million, to 2 %, by trials of 2 s and of 10 s, confirmed three times.
    pub const DEFAULT: Self = Self {
        rate_min: 100.0,
        rate_max: 10_000_000.0,
        precision: 0.02,
        short_ns: 2_000_000_000,
        long_ns: 10_000_000_000,
        confirmations: 3,
        trials_max: 100,
    };
}

/// One measurement to make.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Arrivals a second to offer.
    pub rate_per_s: f64,
    /// For how long, in nanoseconds.
    pub duration_ns: u64,
    /// Whether it decides, or only shows the way.
    pub is_long: bool,
}

/// What came of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialOutcome {
    /// The requirement was met, and the run is valid.
    Met,
    /// It was not.
    Missed,
    /// The client could not do it, so nothing is known of the server.
    ClientLimited,
}

/// A trial that was made, or that this client could not make.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// What was measured.
    pub trial: Trial,
    /// What came of it.
    pub outcome: TrialOutcome,
}

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KneeEnding {
    /// The knee lies between the two rates.
    Found,
    /// Even the lowest rate missed the requirement.
    BelowLowest,
    /// Even the highest rate met it.
    AboveHighest,
    /// The client could not offer more than the server bore.
    ClientLimited,
    /// The trials allowed were used up.
    Unsettled,
}

impl KneeEnding {
    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::BelowLowest => "below-lowest",
            Self::AboveHighest => "above-highest",
            Self::ClientLimited => "client-limited",
            Self::Unsettled => "unsettled",
        }
    }
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    /// How it ended.
    pub ending: KneeEnding,
    /// The highest rate, in arrivals a second, that met the requirement as often as was wanted.
    pub met_per_s: Option<f64>,
    /// The lowest rate above it that missed it.
    pub missed_per_s: Option<f64>,
    /// How often in a row it had to be met.
    pub confirmations: u32,
    /// All trials, in order.
    pub trials: Vec<TrialRecord>,
}

impl Knee {
    /// The sentence, for a requirement as it was written and rates of these arrivals.
    pub fn sentence(&self, requirement: &str, arrival: Arrival) -> String {
        let times = if self.confirmations == 1 { "once".to_owned() } else { format!("{} times", self.confirmations) };
        match (self.ending, self.met_per_s, self.missed_per_s) {
            (KneeEnding::Found, Some(met), Some(missed)) => {
                format!(
                    "{requirement} holds up to {met:.0} {arrival} (confirmed {times}), and no longer at {missed:.0}"
                )
            }
            (KneeEnding::AboveHighest, Some(met), _) => {
                format!("{requirement} holds at {met:.0} {arrival}, the highest rate that was to be tried")
            }
            (KneeEnding::BelowLowest, _, Some(missed)) => {
                format!(
                    "{requirement} does not hold even at {missed:.0} {arrival}, the lowest rate that was to be tried"
                )
            }
            (KneeEnding::ClientLimited, Some(met), _) => format!(
                "{requirement} holds at {met:.0} {arrival} (confirmed {times}); more this client cannot offer, so the knee lies higher"
            ),
            (_, Some(met), _) => {
                format!("{requirement} holds at {met:.0} {arrival} (confirmed {times}); where it ends is not settled")
            }
            (_, None, _) => format!("at what rate {requirement} holds is not settled"),
        }
    }
}

/// A search under way.
#[derive(Clone, Debug)]
pub struct Search {
    plan: KneePlan,
    stage: Stage,
    /// Highest rate that short trials found met.
    hinted: Option<f64>,
    /// Highest rate confirmed by long trials.
    met: Option<f64>,
    missed: Option<Missed>,
    /// How often in a row long trials contradicted what was expected, for steps that double.
    surprises: u32,
    trials: Vec<TrialRecord>,
}

/// A rate that missed the requirement.
#[derive(Clone, Copy, Debug)]
struct Missed {
    rate: f64,
    by_long: bool,
    by_client: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// Doubling, by short trials.
    Climb(f64),
    /// Halving the interval, by short trials.
    Narrow(f64),
    /// Long trials at a rate, of which so many have met.
    Confirm {
        rate: f64,
        met: u32,
    },
    Done(KneeEnding),
}

/// Precision below which noise alone would decide.
const PRECISION_MIN: f64 = 0.001;

impl Search {
    /// A search; what makes no sense in the plan is replaced by what does.
    pub fn new(plan: KneePlan) -> Self {
        let or = |value: f64, default: f64| if value.is_finite() && value > 0.0 { value } else { default };
        let rate_min = or(plan.rate_min, KneePlan::DEFAULT.rate_min);
        let plan = KneePlan {
            rate_min,
            rate_max: or(plan.rate_max, KneePlan::DEFAULT.rate_max).max(rate_min),
            precision: or(plan.precision, KneePlan::DEFAULT.precision).max(PRECISION_MIN),
            confirmations: plan.confirmations.max(1),
            ..plan
        };
        let stage = Stage::Climb(plan.rate_min);
        Self { plan, stage, hinted: None, met: None, missed: None, surprises: 0, trials: Vec::new() }
    }

    /// What to measure next; the same until it is handled, and nothing when the search is over.
    pub fn next(&self) -> Option<Trial> {
        let (rate_per_s, is_long) = match self.stage {
            Stage::Climb(rate) | Stage::Narrow(rate) => (rate, false),
            Stage::Confirm { rate, .. } => (rate, true),
            Stage::Done(_) => return None,
        };
        let duration_ns = if is_long { self.plan.long_ns } else { self.plan.short_ns };
        Some(Trial { rate_per_s, duration_ns, is_long })
    }

    /// Takes what came of the trial that was next.
    pub fn handle(&mut self, outcome: TrialOutcome) {
        let Some(trial) = self.next() else { return };
        self.trials.push(TrialRecord { trial, outcome });
        let met = outcome == TrialOutcome::Met;
        let by_client = outcome == TrialOutcome::ClientLimited;
        self.stage = match self.stage {
            Stage::Climb(rate) | Stage::Narrow(rate) => {
                if met {
                    self.hinted = Some(rate);
                } else {
                    self.missed = Some(Missed { rate, by_long: false, by_client });
                }
                self.decide_short()
            }
            Stage::Confirm { rate, met: before } => {
                if met && before + 1 < self.plan.confirmations {
                    // A rate that short trials missed may yet prove sound; then nothing above it is known.
                    self.missed = self.missed.filter(|missed| missed.rate > rate);
                    Stage::Confirm { rate, met: before + 1 }
                } else {
                    if met {
                        self.met = Some(rate);
                        self.missed = self.missed.filter(|missed| missed.rate > rate);
                    } else {
                        self.missed = Some(Missed { rate, by_long: true, by_client });
                    }
                    self.decide_long(met)
                }
            }
            done @ Stage::Done(_) => done,
        };
        if self.trials.len() >= self.plan.trials_max as usize && !matches!(self.stage, Stage::Done(_)) {
            self.stage = Stage::Done(KneeEnding::Unsettled);
        }
    }

    fn decide_short(&self) -> Stage {
        match (self.hinted, self.missed) {
            // The lowest rate must be missed for certain before the search gives up.
            (None, _) => Stage::Confirm { rate: self.plan.rate_min, met: 0 },
            (Some(hinted), None) if hinted >= self.plan.rate_max => Stage::Confirm { rate: hinted, met: 0 },
            (Some(hinted), None) => Stage::Climb((2.0 * hinted).min(self.plan.rate_max)),
            (Some(hinted), Some(missed)) if self.is_close(hinted, missed.rate) => {
                Stage::Confirm { rate: hinted, met: 0 }
            }
            (Some(hinted), Some(missed)) => Stage::Narrow((hinted * missed.rate).sqrt()),
        }
    }

    fn decide_long(&mut self, met: bool) -> Stage {
        let confirm = |rate: f64| Stage::Confirm { rate, met: 0 };
        match (self.met, self.missed) {
            (None, None) => confirm(self.plan.rate_min),
            (None, Some(missed)) if missed.rate <= self.plan.rate_min => {
                Stage::Done(if missed.by_client { KneeEnding::ClientLimited } else { KneeEnding::BelowLowest })
            }
            (None, Some(missed)) => {
                let rate = missed.rate / self.surprise_step();
                confirm(rate.max(self.plan.rate_min))
            }
            (Some(met), None) if met >= self.plan.rate_max => Stage::Done(KneeEnding::AboveHighest),
            (Some(met), None) => {
                let rate = met * self.surprise_step();
                confirm(rate.min(self.plan.rate_max))
            }
            (Some(rate), Some(missed)) if self.is_close(rate, missed.rate) => {
                if missed.by_long {
                    let ending = if missed.by_client { KneeEnding::ClientLimited } else { KneeEnding::Found };
                    Stage::Done(ending)
                } else {
                    confirm(missed.rate)
                }
            }
            (Some(rate), Some(missed)) => {
                self.surprises = 0;
                // Short trials have narrowed already; what they found is tried before the middle.
                match self.hinted.filter(|hinted| !met && *hinted > rate && *hinted < missed.rate) {
                    Some(hinted) => confirm(hinted),
                    None => confirm((rate * missed.rate).sqrt()),
                }
            }
        }
    }

    /// The factor of a step in a direction that nothing is known of: the precision first, and twice as much each time.
    fn surprise_step(&mut self) -> f64 {
        let step = 1.0 + self.plan.precision * f64::from(1_u32 << self.surprises.min(20));
        self.surprises += 1;
        step
    }

    /// Whether two rates are as near as wanted, rounding aside.
    fn is_close(&self, low: f64, high: f64) -> bool {
        high / low <= 1.0 + self.plan.precision * (1.0 + 1e-9)
    }

    /// What the search found so far; it is over when [`Search::next`] gives nothing. A search that is broken off is
    /// unsettled.
    pub fn knee(&self) -> Knee {
        let ending = match self.stage {
            Stage::Done(ending) => ending,
            _ => KneeEnding::Unsettled,
        };
        Knee {
            ending,
            met_per_s: self.met,
            missed_per_s: self.missed.map(|missed| missed.rate),
            confirmations: self.plan.confirmations,
            trials: self.trials.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
