//! Verdict on each figure of a step: valid, only a bound, or unknown.

use super::validity::{CROWDED_MEDIAN_MAX, CROWDED_RATE_MAX, Evidence, Invalid, InvalidReason, REACHED_SHARE_MIN};
use serde::{Deserialize, Serialize};

flatout_reason::reasons! {
    /// A group of figures that every invalidity reason affects in the same way.
    #[derive(PartialOrd, Ord)]
    pub enum Figure { name, text, }
    Rate,      "rate",       "responses and bytes per second";
    Median,    "p50",        "response times up to the median, and their mean";
    Tail,      "p99",        "response times above the median, up to the longest";
    ServerCpu, "server-cpu", "the server's CPU time per response";
    ClientCpu, "client-cpu", "the client's CPU time per response";
    Counts,    "counts",     "numbers of responses, statuses and errors";
}

crate::by_name! { Figure, "figure" }

/// Validity of a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Soundness {
    /// The figure is valid.
    #[default]
    Sound,
    /// The true value is at least this.
    AtLeast,
    /// The true value is at most this.
    AtMost,
    /// The figure is meaningless.
    Unknown,
}

impl Soundness {
    /// Combines the effects of two reasons on one figure.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Sound, other) => other,
            (one, Self::Sound) => one,
            (Self::AtLeast, Self::AtLeast) => Self::AtLeast,
            (Self::AtMost, Self::AtMost) => Self::AtMost,
            _ => Self::Unknown,
        }
    }

    /// Returns whether the figure is valid.
    pub const fn is_sound(self) -> bool {
        matches!(self, Self::Sound)
    }

    /// Text for users: `valid`, `at least this`.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Sound => "valid",
            Self::AtLeast => "at least this",
            Self::AtMost => "at most this",
            Self::Unknown => "unknown",
        }
    }
}

/// The verdict on one figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FigureVerdict {
    /// The figure that was judged.
    pub figure: Figure,
    /// The validity of the figure: valid, only a bound, or unknown.
    pub soundness: Soundness,
    /// Reasons why the figure is not valid; empty if it is valid.
    pub reasons: Vec<InvalidReason>,
}

impl Default for FigureVerdict {
    fn default() -> Self {
        Self::sound(Figure::Counts)
    }
}

impl FigureVerdict {
    /// Creates the verdict that the figure is valid.
    pub const fn sound(figure: Figure) -> Self {
        Self { figure, soundness: Soundness::Sound, reasons: Vec::new() }
    }

    /// Adds a reason with its effect on the figure. Ignores a reason without an effect.
    pub fn add(&mut self, reason: InvalidReason, effect: Soundness) {
        if effect.is_sound() {
            return;
        }
        self.soundness = self.soundness.and(effect);
        if !self.reasons.contains(&reason) {
            self.reasons.push(reason);
        }
    }

    /// Merges the verdict on the same figure in another part of the run.
    pub fn merge(&mut self, other: &Self) {
        self.soundness = self.soundness.and(other.soundness);
        for reason in &other.reasons {
            if !self.reasons.contains(reason) {
                self.reasons.push(*reason);
            }
        }
    }
}

/// Returns the effect of a reason on a figure.
pub fn effect(reason: InvalidReason, figure: Figure, evidence: &Evidence) -> Soundness {
    use Figure::{ClientCpu, Counts, Median, Rate, ServerCpu, Tail};
    use Soundness::{AtLeast, AtMost, Sound, Unknown};
    // If the clock determines the rate and the client kept it, the rate is valid regardless of CPU use.
    let rate_is_kept = evidence.reached_share().is_some_and(|share| share >= REACHED_SHARE_MIN);
    let is_late = |figure| match figure {
        Median => evidence.median_is_late(),
        _ => evidence.tail_is_late(),
    };
    match (reason, figure) {
        // The delay in the client, or the wait for a connection, is part of the time since the intended start.
        (InvalidReason::ScheduleLag | InvalidReason::ConnectionsShort, Median | Tail) if is_late(figure) => AtMost,
        (
            InvalidReason::ClientSaturated
            | InvalidReason::CpuContention
            | InvalidReason::CpuContentionUnknown
            | InvalidReason::ClientStopped,
            Rate,
        ) if rate_is_kept => Sound,
        (InvalidReason::CpuContention | InvalidReason::CpuContentionUnknown, Rate) if evidence.is_rate_contended() => {
            AtLeast
        }
        (InvalidReason::CpuContention | InvalidReason::CpuContentionUnknown, Median)
            if evidence.is_median_contended() =>
        {
            AtMost
        }
        // A stopped process neither sends nor receives, so it delays as a process does that waits for a core.
        (InvalidReason::ClientStopped, Rate) if evidence.stopped_share() > CROWDED_RATE_MAX => AtLeast,
        (InvalidReason::ClientStopped, Median) if evidence.stopped_share() > CROWDED_MEDIAN_MAX => AtMost,
        // The server received less load than planned and might have handled more. The longest waits are missing from
        // the times because they belong to dropped arrivals. The CPU time of children that were not waited for is
        // missing.
        (InvalidReason::ChildrenNotReaped, ServerCpu)
        | (
            InvalidReason::ClientSaturated
            | InvalidReason::ClientStarved
            | InvalidReason::RateNotReached
            | InvalidReason::AgentLost,
            Rate,
        )
        | (InvalidReason::ArrivalsDropped, Rate | Median | Tail)
        // Had the client sent requests while it could not open connections, more would have failed.
        | (InvalidReason::ServerUnreachable, Counts) => AtLeast,
        // What the client could not send had no response, so it counts as slower than everything.
        (InvalidReason::ClientSaturated | InvalidReason::ClientStarved, Median | Tail)
        | (InvalidReason::CpuContention | InvalidReason::CpuContentionUnknown | InvalidReason::ClientStopped, Tail) => {
            AtMost
        }
        (InvalidReason::RateNotReached | InvalidReason::AgentLost, Median | Tail)
        // The requests that the client would have sent are missing from every figure of the server.
        | (
            InvalidReason::ConnectionsNotReached | InvalidReason::ServerUnreachable,
            Rate | Median | Tail | ServerCpu,
        )
        | (InvalidReason::NoSteadyState, Rate | Median | Tail | ServerCpu | ClientCpu)
        | (InvalidReason::ClientStarved, Counts)
        | (InvalidReason::LittlesLaw | InvalidReason::CountsDiffer, _) => Unknown,
        (_, Rate | Median | Tail | ServerCpu | ClientCpu | Counts) => Sound,
    }
}

/// Returns the verdict on one figure for these reasons.
pub fn verdict(figure: Figure, evidence: &Evidence, invalid: &[Invalid]) -> FigureVerdict {
    let mut verdict = FigureVerdict::sound(figure);
    for reason in invalid.iter().map(|invalid| invalid.reason) {
        verdict.add(reason, effect(reason, figure, evidence));
    }
    verdict
}

/// Returns the verdicts on all figures, in the order of [`Figure::ALL`].
pub fn verdicts(evidence: &Evidence, invalid: &[Invalid]) -> Vec<FigureVerdict> {
    Figure::ALL.iter().map(|figure| verdict(*figure, evidence, invalid)).collect()
}

/// Returns the verdicts on the figures that exist: without successful responses, only rate and counts.
pub fn existing(evidence: &Evidence, invalid: &[Invalid]) -> Vec<FigureVerdict> {
    let mut figures = verdicts(evidence, invalid);
    figures.retain(|verdict| evidence.responses > 0 || matches!(verdict.figure, Figure::Rate | Figure::Counts));
    figures
}

#[cfg(test)]
mod tests {
    use super::{Figure, Soundness, effect, verdict, verdicts};
    use crate::judge::validity::{Evidence, Invalid, InvalidReason};

    fn invalid(reasons: &[InvalidReason]) -> Vec<Invalid> {
        reasons.iter().map(|reason| Invalid { reason: *reason, text: String::new() }).collect()
    }

    /// Returns the validity of each figure, in the order rate, p50, p99, server CPU, client CPU, counts.
    fn soundness(evidence: &Evidence, reasons: &[InvalidReason]) -> Vec<Soundness> {
        verdicts(evidence, &invalid(reasons)).into_iter().map(|verdict| verdict.soundness).collect()
    }

    fn late() -> Evidence {
        Evidence {
            responses: 10_000,
            lag_p50_ns: 50_000,
            response_p50_ns: 1_000_000,
            lag_p99_ns: 9_000_000,
            response_p99_ns: 10_000_000,
            ..Evidence::default()
        }
    }

    #[test]
    fn a_saturated_client_leaves_bounds_and_costs() {
        use Soundness::{AtLeast, AtMost, Sound};
        let closed = soundness(&Evidence::default(), &[InvalidReason::ClientSaturated]);
        assert_eq!(closed, [AtLeast, AtMost, AtMost, Sound, Sound, Sound]);
        // In an open loop, the rate is the offered rate.
        let kept = Evidence { offered_per_s: Some(1.0), visits: 10, ..Evidence::default() };
        assert_eq!(soundness(&kept, &[InvalidReason::ClientSaturated])[0], Sound);
        let verdict = verdict(Figure::Rate, &Evidence::default(), &invalid(&[InvalidReason::ClientSaturated]));
        assert_eq!(verdict.reasons, [InvalidReason::ClientSaturated]);
    }

    #[test]
    fn lag_affects_the_times_that_it_is_large_relative_to() {
        use Soundness::{AtMost, Sound};
        let found = soundness(&late(), &[InvalidReason::ScheduleLag]);
        assert_eq!(found, [Sound, Sound, AtMost, Sound, Sound, Sound], "p50 holds and p99 does not");
    }

    #[test]
    fn a_stopped_client_affects_figures_by_how_long_it_was_stopped() {
        use Soundness::{AtLeast, AtMost, Sound};
        let stopped = |percent: u64| Evidence {
            elapsed_ns: 10_000_000_000,
            responses: 48,
            client_stopped_ns: percent * 100_000_000,
            ..Evidence::default()
        };
        let found = |evidence: &Evidence| soundness(evidence, &[InvalidReason::ClientStopped])[..3].to_vec();
        assert_eq!(found(&stopped(2)), [Sound, Sound, AtMost]);
        assert_eq!(found(&stopped(9)), [AtLeast, Sound, AtMost]);
        assert_eq!(found(&stopped(37)), [AtLeast, AtMost, AtMost]);
        // In an open loop, the client catches up after a stop.
        let kept = Evidence { offered_per_s: Some(4.8), visits: 48, ..stopped(37) };
        assert_eq!(found(&kept), [Sound, AtMost, AtMost]);
    }

    #[test]
    fn bounds_of_two_directions_say_nothing() {
        let both = [InvalidReason::ClientSaturated, InvalidReason::ArrivalsDropped];
        let found = soundness(&Evidence::default(), &both);
        assert_eq!(found[..3], [Soundness::AtLeast, Soundness::Unknown, Soundness::Unknown]);
    }

    #[test]
    fn what_was_not_measured_takes_nothing_from_what_was() {
        for reason in InvalidReason::ALL.iter().copied() {
            let touched = Figure::ALL.iter().any(|figure| !effect(reason, *figure, &late()).is_sound());
            let is_of_a_part = matches!(
                reason,
                InvalidReason::NotMeasured
                    | InvalidReason::CountsMissing
                    | InvalidReason::StoppedEarly
                    | InvalidReason::Interrupted
            );
            assert!(touched != is_of_a_part, "{reason:?}");
            assert!(!is_of_a_part || reason.is_of_a_part());
        }
        let nothing = soundness(&Evidence::default(), &[InvalidReason::CountsDiffer]);
        assert!(nothing.iter().all(|soundness| *soundness == Soundness::Unknown));
    }
}
