//! Comparison of B with A, as a sentence.
//!
//! A difference counts as shown if the confidence interval of the ratio excludes 1 and the difference exceeds the noise
//! floor. The noise floor is the far end of the interval of A against A, measured in the same order of runs, because
//! variation of the machine must not be attributed to B.

use super::Interval;
use crate::judge::{FigureVerdict, InvalidReason};
use serde::{Deserialize, Serialize};

/// The compared measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measure {
    /// Name of the measure in a sentence about B: `p99 response time`, `CPU per request`. Unused for rates.
    pub name: String,
    /// The kind of measure, which determines whether more or less is better.
    pub kind: MeasureKind,
}

/// The kind of a measure, which determines whether more or less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MeasureKind {
    /// A rate: more is better.
    Rate,
    /// A time or a cost: less is better.
    Cost,
}

impl Measure {
    /// Creates the measure of the response rate.
    pub fn rate() -> Self {
        Self { name: "rate".to_owned(), kind: MeasureKind::Rate }
    }

    /// Creates a measure of a time or a cost with this name.
    pub fn cost(name: &str) -> Self {
        Self { name: name.to_owned(), kind: MeasureKind::Cost }
    }
}

/// Result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// B is better.
    Better,
    /// B is worse.
    Worse,
    /// No difference was shown.
    NoDifference,
}

/// A comparison of B with A by one measure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The compared measure.
    pub measure: Measure,
    /// B's figure divided by A's.
    pub ratio: Interval,
    /// Confidence level of the interval, 0 to 1.
    pub level: f64,
    /// A's figure divided by A's figure from other runs, if measured.
    pub same: Option<Interval>,
    /// The result: B is better, B is worse, or no difference was shown.
    pub finding: Finding,
}

impl Comparison {
    /// Evaluates B's figure divided by A's. `same` is A's figure divided by A's from other runs, in the same order of
    /// runs.
    pub fn of(measure: Measure, ratio: Interval, level: f64, same: Option<Interval>) -> Self {
        let change = ratio.estimate - 1.0;
        let is_shown = !ratio.contains(1.0) && change.abs() > noise_floor(same.as_ref());
        let finding = match (is_shown, (change > 0.0) == (measure.kind == MeasureKind::Rate)) {
            (false, _) => Finding::NoDifference,
            (true, true) => Finding::Better,
            (true, false) => Finding::Worse,
        };
        Self { measure, ratio, level, same, finding }
    }

    /// Returns the largest difference of A from itself, as a share; `None` if it was not measured.
    pub fn noise_floor(&self) -> Option<f64> {
        self.same.as_ref().map(|same| noise_floor(Some(same)))
    }

    /// Returns whether A seemed to differ from itself. If so, something other than the subject varies with the order of
    /// runs.
    pub fn is_unfair(&self) -> bool {
        self.same.is_some_and(|same| !same.contains(1.0))
    }

    /// Returns the result as a sentence.
    pub fn sentence(&self) -> String {
        let percent = |share: f64| format!("{:.1}", 100.0 * share);
        // Avoid "-0.0".
        let percent = |share: f64| percent(share).replace("-0.0", "0.0");
        let level = 100.0 * self.level;
        let change = self.ratio.map(|ratio| ratio - 1.0);
        if self.finding == Finding::NoDifference {
            let (low, high) = (percent(change.low), percent(change.high));
            let what = match self.measure.kind {
                MeasureKind::Rate => "B's rate".to_owned(),
                MeasureKind::Cost => format!("B's {}", self.measure.name),
            };
            let estimate = percent(change.estimate);
            let floor = match self.noise_floor() {
                Some(floor) if !self.ratio.contains(1.0) => {
                    format!("; A compared with itself differs by up to {} %", percent(floor))
                }
                _ => String::new(),
            };
            return format!(
                "no difference shown: {what} differs by {estimate} % from A's ({level:.0} % CI {low} to {high}){floor}"
            );
        }
        let less = change.estimate < 0.0;
        let size = if less { change.map(|change| -change) } else { change };
        let sizes = format!("{level:.0} % CI {} to {}", percent(size.low), percent(size.high));
        let estimate = percent(size.estimate);
        match (self.measure.kind, less) {
            (MeasureKind::Rate, false) => format!("B is {estimate} % faster ({sizes})"),
            (MeasureKind::Rate, true) => format!("B is {estimate} % slower ({sizes})"),
            (MeasureKind::Cost, false) => format!("B's {} is {estimate} % higher ({sizes})", self.measure.name),
            (MeasureKind::Cost, true) => format!("B's {} is {estimate} % lower ({sizes})", self.measure.name),
        }
    }
}

/// A measure that is not compared because its figure is invalid for A, for B, or for both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotCompared {
    /// Name of the measure.
    pub measure: String,
    /// Reasons why the figure is invalid for A; empty if it is valid.
    pub a: Vec<InvalidReason>,
    /// Reasons why the figure is invalid for B; empty if it is valid.
    pub b: Vec<InvalidReason>,
    /// Another reason, as the end of a sentence.
    #[serde(default)]
    pub because: Option<String>,
}

/// Largest difference between the shares of failed requests of two sides that are compared. Failures are usually
/// faster, or take longer, than what is compared, and leave the server time for the other requests.
pub const FAILED_SHARE_DIFFERENCE_MAX: f64 = 0.001;

/// Returns why figures of two sides are not compared if their requests failed in different shares: `94.0 % of B's
/// requests failed and 0.0 % of A's, more than 0.1 percentage points apart`. Each side is its name and its share of failed requests, 0 to 1.
pub fn failed_differently(one: (&str, f64), other: (&str, f64)) -> Option<String> {
    let (more, less) = if one.1 >= other.1 { (one, other) } else { (other, one) };
    let percent = |share: f64| 100.0 * share;
    (more.1 - less.1 > FAILED_SHARE_DIFFERENCE_MAX).then(|| {
        format!(
            "{:.1} % of {}'s requests failed and {:.1} % of {}'s, more than {:.1} percentage points apart",
            percent(more.1),
            more.0,
            percent(less.1),
            less.0,
            percent(FAILED_SHARE_DIFFERENCE_MAX)
        )
    })
}

impl NotCompared {
    /// Collects the reasons from the verdicts of all runs of A and B. Returns `None` if the figure is valid in every
    /// run.
    pub fn of(
        measure: &str,
        a: impl Iterator<Item = FigureVerdict>,
        b: impl Iterator<Item = FigureVerdict>,
    ) -> Option<Self> {
        let (mut a, mut b): (Vec<_>, Vec<_>) =
            (a.flat_map(|verdict| verdict.reasons).collect(), b.flat_map(|verdict| verdict.reasons).collect());
        for reasons in [&mut a, &mut b] {
            reasons.sort_unstable();
            reasons.dedup();
        }
        (!a.is_empty() || !b.is_empty()).then(|| Self { measure: measure.to_owned(), a, b, because: None })
    }

    /// Creates the result for a measure that is not compared for another reason, the end of a sentence.
    pub fn because(measure: &str, why: String) -> Self {
        Self { measure: measure.to_owned(), a: Vec::new(), b: Vec::new(), because: Some(why) }
    }

    /// Returns the reasons as a sentence: `rate: not compared, because it does not hold for B (client-saturated)`.
    pub fn sentence(&self) -> String {
        if let Some(why) = &self.because {
            return format!("{}: not compared, because {why}", self.measure);
        }
        let of = |side: &str, reasons: &[InvalidReason]| {
            let names: Vec<&str> = reasons.iter().map(|reason| reason.name()).collect();
            (!names.is_empty()).then(|| format!("{side} ({})", names.join(", ")))
        };
        let sides: Vec<String> = of("A", &self.a).into_iter().chain(of("B", &self.b)).collect();
        format!("{}: not compared, because it is not valid for {}", self.measure, sides.join(" and for "))
    }
}

fn noise_floor(same: Option<&Interval>) -> f64 {
    same.map_or(0.0, |same| (same.low - 1.0).abs().max((same.high - 1.0).abs()))
}

#[cfg(test)]
mod tests {
    use super::{Comparison, Finding, Measure, NotCompared};
    use crate::judge::{Figure, FigureVerdict, InvalidReason, Soundness};
    use crate::random::Random;
    use crate::stats::Interval;
    use crate::stats::bootstrap::Bootstrap;

    fn interval(estimate: f64, low: f64, high: f64) -> Interval {
        Interval { estimate, low, high }
    }

    #[test]
    fn sentences_say_what_was_shown() {
        let same = Some(interval(1.001, 0.992, 1.010));
        let rate = |ratio| Comparison::of(Measure::rate(), ratio, 0.95, same);
        let p99 = |ratio| Comparison::of(Measure::cost("p99 response time"), ratio, 0.95, same);
        for (comparison, finding, sentence) in [
            (rate(interval(1.071, 1.059, 1.083)), Finding::Better, "B is 7.1 % faster (95 % CI 5.9 to 8.3)"),
            (rate(interval(0.929, 0.917, 0.941)), Finding::Worse, "B is 7.1 % slower (95 % CI 5.9 to 8.3)"),
            (
                p99(interval(0.80, 0.75, 0.85)),
                Finding::Better,
                "B's p99 response time is 20.0 % lower (95 % CI 15.0 to 25.0)",
            ),
            (
                p99(interval(1.20, 1.15, 1.25)),
                Finding::Worse,
                "B's p99 response time is 20.0 % higher (95 % CI 15.0 to 25.0)",
            ),
            (
                rate(interval(1.0001, 0.994, 1.006)),
                Finding::NoDifference,
                "no difference shown: B's rate differs by 0.0 % from A's (95 % CI -0.6 to 0.6)",
            ),
            // The interval shows a difference, but it is no larger than the difference of A from itself.
            (
                p99(interval(0.993, 0.990, 0.996)),
                Finding::NoDifference,
                "no difference shown: B's p99 response time differs by -0.7 % from A's (95 % CI -1.0 to -0.4); A compared with itself differs by up to 1.0 %",
            ),
        ] {
            assert_eq!((comparison.sentence().as_str(), comparison.finding), (sentence, finding));
            assert!(!comparison.is_unfair());
        }
        let unfair = Comparison::of(Measure::rate(), interval(1.5, 1.4, 1.6), 0.95, Some(interval(1.1, 1.05, 1.15)));
        assert!(unfair.is_unfair() && unfair.finding == Finding::Better);
        assert!((unfair.noise_floor().unwrap() - 0.15).abs() < 1e-12);
    }

    #[test]
    fn a_figure_that_does_not_hold_on_either_side_is_not_compared() {
        let with = |reasons: &[InvalidReason]| {
            let mut verdict = FigureVerdict::sound(Figure::Rate);
            for reason in reasons {
                verdict.add(*reason, Soundness::AtLeast);
            }
            verdict
        };
        let (sound, saturated) = (with(&[]), with(&[InvalidReason::ClientSaturated]));
        let both = with(&[InvalidReason::ClientSaturated, InvalidReason::CpuContention]);
        let of = |a: &[&FigureVerdict], b: &[&FigureVerdict]| {
            let (a, b) = (a.iter().copied().cloned(), b.iter().copied().cloned());
            NotCompared::of("rate", a, b).map(|left_out| left_out.sentence())
        };
        assert_eq!(of(&[&sound, &sound], &[&sound]), None);
        assert_eq!(
            of(&[&sound], &[&sound, &saturated]).as_deref(),
            Some("rate: not compared, because it is not valid for B (client-saturated)")
        );
        assert_eq!(
            of(&[&saturated, &saturated], &[&both]).as_deref(),
            Some(
                "rate: not compared, because it is not valid for A (client-saturated) and for B (client-saturated, cpu-contention)"
            )
        );
    }

    #[test]
    fn nothing_is_told_of_a_difference_that_is_not_there() {
        let (mut shown, mut found) = (0, 0);
        for trial in 0..300 {
            let mut random = Random::stream(6, 0, trial);
            let mut pairs = |speed: f64| -> Vec<(f64, f64)> {
                (0..10)
                    .map(|_| {
                        let machine = 1.0 + 0.05 * random.next_normal();
                        let mut run = |rate: f64| rate * machine * (1.0 + 0.01 * random.next_normal());
                        (run(1000.0), run(1000.0 * speed))
                    })
                    .collect()
            };
            let bootstrap = Bootstrap { resamples: 500, ..Bootstrap::new(trial) };
            let same = bootstrap.ratio(&pairs(1.0));
            let judge = |pairs: &[(f64, f64)]| {
                Comparison::of(Measure::rate(), bootstrap.ratio(pairs).unwrap(), 0.95, same).finding
            };
            shown += u32::from(judge(&pairs(1.0)) != Finding::NoDifference);
            found += u32::from(judge(&pairs(1.05)) == Finding::Better);
        }
        assert!(shown <= 15, "{shown} of 300 differences were none");
        assert!(found >= 290, "{found} of 300 differences were found");
    }
}
