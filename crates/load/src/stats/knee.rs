//! Search for the highest rate that meets a requirement.
//!
//! As in MLRsearch for packets (Multiple Loss Ratio search, FD.io CSIT and an IETF draft), short trials locate the
//! knee: they double the rate until the requirement is missed, then halve the interval by ratio. Long trials decide. On
//! a shared machine, single trials are unreliable, so none decides alone:
//!
//! - A trial that says nothing about the server is repeated, up to [`INVALID_MAX`] times at the same rate.
//! - A rate counts as missed when at least [`MISSED_MIN`] trials at that rate missed the requirement, and at least as
//!   many missed it as met it.
//! - A rate counts as met when one short trial, or [`KneePlan::confirmations`] long trials in a row, met the
//!   requirement.
//! - When the two rates are close enough, long trials above the missed rate must also miss, and one more trial at the
//!   met rate must meet the requirement. If either contradicts earlier results, the search widens and continues. After
//!   [`CONTRADICTIONS_MAX`] contradictions, it ends without a figure.
//!
//! The driver calls [`KneeSearch::next`] for a [`Trial`], runs the trial, and passes the result to
//! [`KneeSearch::handle`].

use crate::plan::ArrivalUnit;
use serde::{Deserialize, Serialize};

/// Settings of a search. Rates count arrivals: requests if each arrival is one request, otherwise connections or
/// sessions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KneePlan {
    /// Lowest rate in arrivals per second, which is also the rate of the first trial. Above 0.
    pub rate_min: f64,
    /// Highest rate in arrivals per second, at least `rate_min`.
    pub rate_max: f64,
    /// Largest accepted distance between the met and missed rates, as a share; at least 0.001.
    pub precision: f64,
    /// Length of a short trial, in nanoseconds.
    pub short_ns: u64,
    /// Length of a long trial, in nanoseconds.
    pub long_ns: u64,
    /// Number of consecutive long trials that must meet the requirement, at least 1.
    pub confirmations: u32,
    /// Maximum number of trials.
    pub trials_max: u32,
}

impl KneePlan {
    /// The default settings: 100 to ten million arrivals per second, to within 2 %, with trials of 2 s and 10 s,
    /// confirmed three times.
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

/// A measurement to make.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Offered arrivals per second.
    pub rate_per_s: f64,
    /// Length of the trial, in nanoseconds.
    pub duration_ns: u64,
    /// True if the trial decides about a rate; false if it only guides the search.
    pub is_long: bool,
}

/// The result of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialOutcome {
    /// The requirement was met. Response times include the client's own delays, so they are an upper bound: if they
    /// meet the requirement although the client was late, the trial still counts.
    Met,
    /// The server missed the requirement.
    Missed,
    /// The trial says nothing about the server: the client was the limit, or other processes used the machine.
    Invalid,
}

/// A trial and its result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// The rate and length of the trial.
    pub trial: Trial,
    /// The result of the trial.
    pub outcome: TrialOutcome,
}

flatout_reason::reasons! {
    /// The end of a search.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum KneeEnding { name, }
    /// The knee lies between the two rates.
    Found, "found";
    /// Even the lowest rate missed the requirement.
    BelowLowest, "below-lowest";
    /// Even the highest rate met the requirement.
    AboveHighest, "above-highest";
    /// The client could not offer a rate at which the server misses the requirement.
    ClientLimited, "client-limited";
    /// The knee lies between the two rates, but they are further apart than requested, because the client or other
    /// processes were the limit at the rates in between.
    Between, "between";
    /// Trials at the same rates contradicted each other, so there is no figure to report.
    Contradictory, "contradictory";
    /// The search was interrupted, or reached its maximum number of trials.
    Unsettled, "unsettled";
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    /// The end of the search.
    pub ending: KneeEnding,
    /// Highest rate, in arrivals per second, that met the requirement as often as required.
    pub met_per_s: Option<f64>,
    /// Lowest rate above it, in arrivals per second, that missed the requirement.
    pub missed_per_s: Option<f64>,
    /// Number of consecutive long trials that had to meet the requirement.
    pub confirmations: u32,
    /// All trials, in order.
    pub trials: Vec<TrialRecord>,
}

impl Knee {
    /// Returns the result as a sentence, for a requirement as written and rates in this unit.
    pub fn sentence(&self, requirement: &str, arrival: ArrivalUnit) -> String {
        let times = if self.confirmations == 1 { "once".to_owned() } else { format!("{} times", self.confirmations) };
        match (self.ending, self.met_per_s, self.missed_per_s) {
            (KneeEnding::Found, Some(met), Some(missed)) => {
                format!("{requirement} is met up to {met:.0} {arrival} (confirmed {times}) and not met at {missed:.0}")
            }
            (KneeEnding::AboveHighest, Some(met), _) => {
                format!("{requirement} is met at {met:.0} {arrival}, the highest rate allowed")
            }
            (KneeEnding::BelowLowest, _, Some(missed)) => {
                format!("{requirement} is not met even at {missed:.0} {arrival}, the lowest rate allowed")
            }
            (KneeEnding::Between, Some(met), Some(missed)) => format!(
                "{requirement} is met at {met:.0} {arrival} (confirmed {times}) and not met at {missed:.0}; the knee \
                 is between these rates, where this client or other processes were the bottleneck"
            ),
            (KneeEnding::ClientLimited, Some(met), _) => format!(
                "{requirement} is met at {met:.0} {arrival} (confirmed {times}); this client cannot offer more, so the \
                 knee is higher"
            ),
            (KneeEnding::ClientLimited, ..) => {
                format!("the highest rate for {requirement} is unknown: the client was the bottleneck at every rate")
            }
            (KneeEnding::Contradictory, ..) => format!(
                "the highest rate for {requirement} is unknown: trials at the same rate contradict each other; try longer trials (--duration) or a quieter machine"
            ),
            _ => format!("the highest rate for {requirement} is unknown after {} trials", self.trials.len()),
        }
    }
}

/// Number of invalid trials at one rate after which the client counts as unable to offer that rate.
pub const INVALID_MAX: u32 = 3;

/// Minimum number of trials, short or long, that must miss the requirement before a rate counts as missed.
pub const MISSED_MIN: u32 = 2;

/// Number of contradictions after which a search ends without a figure.
pub const CONTRADICTIONS_MAX: u32 = 4;

/// Distance of the last check above the missed rate, in multiples of the precision.
const CHECK_STEPS: f64 = 4.0;

/// Smallest accepted precision, as a share. With a finer precision, noise alone would decide.
const PRECISION_MIN: f64 = 0.001;

/// A search in progress.
#[derive(Clone, Debug)]
pub struct KneeSearch {
    plan: KneePlan,
    stage: Stage,
    /// Results of the trials at the current stage's rate.
    votes: Votes,
    /// Highest rate that met the requirement in short trials.
    hinted: Option<f64>,
    /// Highest rate that met the requirement in long trials.
    met: Option<f64>,
    missed: Option<Missed>,
    /// Number of consecutive long trials that contradicted expectations, by which steps are doubled.
    surprises: u32,
    /// Number of times that the last check contradicted earlier trials.
    contradictions: u32,
    trials: Vec<TrialRecord>,
}

/// A rate at which trials missed the requirement.
#[derive(Clone, Copy, Debug)]
struct Missed {
    rate: f64,
    by_long: bool,
    by_client: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// Short trials double the rate.
    Climb(f64),
    /// Short trials halve the interval.
    Narrow(f64),
    /// Long trials decide about a rate.
    Confirm(f64),
    /// The last check: a long trial above the missed rate must miss.
    CheckMissed(f64),
    /// The last check: a long trial at the met rate must meet.
    CheckMet(f64),
    Done(KneeEnding),
}

/// Results of the trials at one rate.
#[derive(Clone, Copy, Debug, Default)]
struct Votes {
    met: u32,
    met_in_a_row: u32,
    missed: u32,
    invalid: u32,
}

impl Votes {
    /// Adds a result. Returns the verdict when `met_min` consecutive trials met the requirement, when at least
    /// [`MISSED_MIN`] trials and no fewer than met it missed it, or when [`INVALID_MAX`] trials were invalid. Returns
    /// `None` if more trials are needed.
    fn add(&mut self, outcome: TrialOutcome, met_min: u32) -> Option<TrialOutcome> {
        match outcome {
            TrialOutcome::Met => {
                self.met += 1;
                self.met_in_a_row += 1;
            }
            TrialOutcome::Missed => {
                self.met_in_a_row = 0;
                self.missed += 1;
            }
            TrialOutcome::Invalid => self.invalid += 1,
        }
        if self.met_in_a_row >= met_min {
            Some(TrialOutcome::Met)
        } else if self.missed >= MISSED_MIN.max(self.met) {
            Some(TrialOutcome::Missed)
        } else if self.invalid >= INVALID_MAX {
            Some(TrialOutcome::Invalid)
        } else {
            None
        }
    }
}

impl KneeSearch {
    /// Creates a search. Invalid settings are replaced by the defaults.
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
        Self {
            plan,
            stage: Stage::Climb(plan.rate_min),
            votes: Votes::default(),
            hinted: None,
            met: None,
            missed: None,
            surprises: 0,
            contradictions: 0,
            trials: Vec::new(),
        }
    }

    /// Returns the next trial, which stays the same until its result is handled; `None` at the end of the search.
    pub fn next(&self) -> Option<Trial> {
        let (rate_per_s, is_long) = match self.stage {
            Stage::Climb(rate) | Stage::Narrow(rate) => (rate, false),
            Stage::Confirm(rate) | Stage::CheckMissed(rate) | Stage::CheckMet(rate) => (rate, true),
            Stage::Done(_) => return None,
        };
        let duration_ns = if is_long { self.plan.long_ns } else { self.plan.short_ns };
        Some(Trial { rate_per_s, duration_ns, is_long })
    }

    /// Handles the result of the next trial.
    pub fn handle(&mut self, outcome: TrialOutcome) {
        let Some(trial) = self.next() else { return };
        self.trials.push(TrialRecord { trial, outcome });
        let met_min = if matches!(self.stage, Stage::Confirm(_)) { self.plan.confirmations } else { 1 };
        if let Some(verdict) = self.votes.add(outcome, met_min) {
            self.votes = Votes::default();
            self.stage = self.decide(verdict);
        }
        if self.trials.len() >= self.plan.trials_max as usize && !matches!(self.stage, Stage::Done(_)) {
            self.stage = Stage::Done(KneeEnding::Unsettled);
        }
    }

    fn decide(&mut self, verdict: TrialOutcome) -> Stage {
        let met = verdict == TrialOutcome::Met;
        let by_client = verdict == TrialOutcome::Invalid;
        match self.stage {
            Stage::Climb(rate) | Stage::Narrow(rate) => {
                if met {
                    self.hinted = Some(rate);
                } else {
                    self.missed = Some(Missed { rate, by_long: false, by_client });
                }
                self.decide_short()
            }
            Stage::Confirm(rate) => {
                if met {
                    self.met = Some(rate);
                    // Long trials may meet a rate that short trials missed; then nothing is known above it.
                    self.missed = self.missed.filter(|missed| missed.rate > rate);
                } else {
                    self.missed = Some(Missed { rate, by_long: true, by_client });
                }
                self.decide_long(met)
            }
            Stage::CheckMissed(rate) if met => {
                // The server did not cause the miss at the lower rate, so short trials continue from here.
                (self.hinted, self.missed) = (Some(rate), None);
                self.contradicted().unwrap_or(Stage::Climb((2.0 * rate).min(self.plan.rate_max)))
            }
            Stage::CheckMissed(_) => Stage::CheckMet(self.met.unwrap_or(self.plan.rate_min)),
            Stage::CheckMet(_) if met => Stage::Done(KneeEnding::Found),
            Stage::CheckMet(rate) => {
                (self.met, self.hinted) = (None, None);
                self.missed = Some(Missed { rate, by_long: true, by_client });
                self.contradicted().unwrap_or_else(|| self.decide_long(false))
            }
            done @ Stage::Done(_) => done,
        }
    }

    /// Counts a contradiction. At the limit, returns the end of the search.
    fn contradicted(&mut self) -> Option<Stage> {
        self.contradictions += 1;
        (self.contradictions >= CONTRADICTIONS_MAX).then_some(Stage::Done(KneeEnding::Contradictory))
    }

    fn decide_short(&self) -> Stage {
        match (self.hinted, self.missed) {
            // Long trials must miss the lowest rate before the search gives up.
            (None, _) => Stage::Confirm(self.plan.rate_min),
            (Some(hinted), None) if hinted >= self.plan.rate_max => Stage::Confirm(hinted),
            (Some(hinted), None) => Stage::Climb((2.0 * hinted).min(self.plan.rate_max)),
            (Some(hinted), Some(missed)) if self.is_close(hinted, missed.rate) => Stage::Confirm(hinted),
            (Some(hinted), Some(missed)) => Stage::Narrow((hinted * missed.rate).sqrt()),
        }
    }

    fn decide_long(&mut self, met: bool) -> Stage {
        match (self.met, self.missed) {
            (None, None) => Stage::Confirm(self.plan.rate_min),
            (None, Some(missed)) if missed.rate <= self.plan.rate_min => {
                Stage::Done(if missed.by_client { KneeEnding::ClientLimited } else { KneeEnding::BelowLowest })
            }
            (None, Some(missed)) => {
                let rate = missed.rate / self.surprise_step();
                Stage::Confirm(rate.max(self.plan.rate_min))
            }
            (Some(met), None) if met >= self.plan.rate_max => Stage::Done(KneeEnding::AboveHighest),
            (Some(met), None) => {
                let rate = met * self.surprise_step();
                Stage::Confirm(rate.min(self.plan.rate_max))
            }
            (Some(rate), Some(missed)) if self.is_close(rate, missed.rate) => match missed {
                Missed { by_long: false, rate, .. } => Stage::Confirm(rate),
                Missed { by_client: true, .. } => Stage::Done(KneeEnding::ClientLimited),
                Missed { rate, .. } => {
                    let above = rate * (1.0 + CHECK_STEPS * self.plan.precision);
                    Stage::CheckMissed(above.min(self.plan.rate_max))
                }
            },
            (Some(rate), Some(missed)) => {
                self.surprises = 0;
                // Try the rate that short trials found before the middle.
                match self.hinted.filter(|hinted| !met && *hinted > rate && *hinted < missed.rate) {
                    Some(hinted) => Stage::Confirm(hinted),
                    None => Stage::Confirm((rate * missed.rate).sqrt()),
                }
            }
        }
    }

    /// Returns the factor of a step in an unexplored direction. The step is the precision at first, and doubles each
    /// time.
    fn surprise_step(&mut self) -> f64 {
        let step = 1.0 + self.plan.precision * f64::from(1_u32 << self.surprises.min(20));
        self.surprises += 1;
        step
    }

    /// Returns whether two rates differ by at most the precision, apart from rounding errors.
    fn is_close(&self, low: f64, high: f64) -> bool {
        high / low <= 1.0 + self.plan.precision * (1.0 + 1e-9)
    }

    /// Returns the lowest rate above `rate` at which a trial missed the requirement.
    fn lowest_miss_above(&self, rate: f64) -> Option<f64> {
        let missed = self.trials.iter().filter(|record| record.outcome == TrialOutcome::Missed);
        missed.map(|record| record.trial.rate_per_s).filter(|missed| *missed > rate).min_by(f64::total_cmp)
    }

    /// Returns the result so far, which is final after [`KneeSearch::next`] has returned `None`. An interrupted search
    /// is unsettled.
    pub fn knee(&self) -> Knee {
        let ending = match self.stage {
            Stage::Done(ending) => ending,
            _ => KneeEnding::Unsettled,
        };
        // It is better to return no figure than a figure that the trials contradict.
        let has_figure = !matches!(ending, KneeEnding::Contradictory | KneeEnding::Unsettled);
        let met = self.met.filter(|_| has_figure);
        let missed = self.missed.map(|missed| missed.rate).filter(|_| has_figure);
        let (ending, missed) = match (ending, self.lowest_miss_above(met.unwrap_or(0.0))) {
            // The client did offer a higher rate, and the server missed the requirement at that rate.
            (KneeEnding::ClientLimited, Some(miss)) if met.is_some() => (KneeEnding::Between, Some(miss)),
            (KneeEnding::ClientLimited, Some(_)) => (KneeEnding::Unsettled, None),
            (ending, _) => (ending, missed),
        };
        Knee {
            ending,
            met_per_s: met,
            missed_per_s: missed,
            confirmations: self.plan.confirmations,
            trials: self.trials.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
