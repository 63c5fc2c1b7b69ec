//! The verdict on a result, in words: a sentence, followed by the reasons.

use super::style::Weight;
use flatout_load::judge::threshold::ThresholdOutcome;
use flatout_load::judge::{Figure, InvalidReason, Soundness};
use flatout_load::plan::Plan;
use flatout_load::report::{RunReport, StepReport};
use flatout_units::show;
use std::fmt::Write as _;

/// The tone of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// The figures are valid, and nothing failed.
    Good,
    /// Some figures are valid and some are not.
    Partly,
    /// The figures are valid, but something failed or a requirement was missed.
    Failed,
    /// No figure is valid.
    Invalid,
}

/// The verdict on a result, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The tone, which determines the colour.
    pub tone: Tone,
    /// States in one sentence whether the figures are valid.
    pub headline: String,
    /// The most important figures, in one or two sentences.
    pub figures: String,
    /// All reasons for the headline, with the numbers.
    pub reasons: Vec<String>,
}

/// Returns the emphasis of a verdict with this tone.
pub const fn weight(tone: Tone) -> Weight {
    match tone {
        Tone::Good => Weight::Good,
        Tone::Partly | Tone::Failed => Weight::Warning,
        Tone::Invalid => Weight::Bad,
    }
}

/// Returns the verdict on a run.
pub fn of(report: &RunReport) -> Verdict {
    let many = report.steps.len() > 1;
    let at =
        |step: &StepReport| if many { format!("step {} ({}): ", step.step + 1, load(step)) } else { String::new() };
    let mut reasons = Vec::new();
    for step in &report.steps {
        for invalid in &step.invalid {
            reasons.push(format!(
                "{}{}: {}. {}: {}.",
                at(step),
                invalid.reason.name(),
                invalid.text,
                touched(step, invalid.reason),
                invalid.reason.remedy()
            ));
        }
    }
    for step in &report.steps {
        reasons.extend(step.failing.iter().map(|reason| format!("{}{}", at(step), reason.text)));
    }
    let missed = report.thresholds.iter().filter(|outcome| !outcome.met);
    reasons.extend(missed.map(|outcome| {
        let found = outcome.found.as_deref().unwrap_or("no such value");
        let step = if many { format!("step {}: ", outcome.step + 1) } else { String::new() };
        format!("{step}required {}, found {found}{}", outcome.text, uncertain(outcome))
    }));
    let (tone, headline) = headline(report);
    Verdict { tone, headline, figures: figures(report), reasons }
}

/// Returns the tone of the verdict on a run, and the sentence that states whether the figures are valid.
pub fn headline(report: &RunReport) -> (Tone, String) {
    let many = report.steps.len() > 1;
    let missed = report.thresholds.iter().filter(|outcome| !outcome.met).count() as u64;
    let count = |is: fn(&StepReport) -> bool| report.steps.iter().filter(|step| is(step)).count() as u64;
    let (worthless, touched) = (count(|step| !step.has_sound()), count(|step| !step.invalid.is_empty()));
    if worthless > 0 {
        let which = match (many, worthless == report.steps.len() as u64) {
            (true, false) => format!("the figures of {}", show::plural(worthless, "step", "steps")),
            _ => "these figures".to_owned(),
        };
        (Tone::Invalid, format!("Invalid: do not rely on {which}."))
    } else if report.steps.iter().all(|step| step.record.counts.successes() == 0 && step.error_share > 0.0) {
        (Tone::Failed, "No request succeeded.".to_owned())
    } else if touched > 0 {
        let headline = match &report.steps[..] {
            [step] => format!("Partly valid: {}.", worth(step)),
            _ => format!("Partly valid: not every figure of {} is valid.", show::plural(touched, "step", "steps")),
        };
        (Tone::Partly, headline)
    } else if missed > 0 {
        let count = show::plural(missed, "requirement was", "requirements were");
        (Tone::Failed, format!("Valid, but {count} not met."))
    } else if report.steps.iter().any(|step| !step.failing.is_empty()) {
        (Tone::Failed, "Valid, but requests failed.".to_owned())
    } else {
        (Tone::Good, "Valid: the figures are reliable.".to_owned())
    }
}

/// Returns the display name of a figure.
pub const fn label(figure: Figure) -> &'static str {
    match figure {
        Figure::Rate => "requests/s",
        Figure::Median => "p50",
        Figure::Tail => "p99",
        Figure::ServerCpu => "server CPU",
        Figure::ClientCpu => "client CPU",
        Figure::Counts => "counts",
    }
}

/// Returns the figures of a step, with the validity of each.
pub fn worths(step: &StepReport) -> Vec<(Figure, Soundness)> {
    let has = |figure: &Figure| match figure {
        Figure::ServerCpu => step.server.is_some_and(|server| server.cpu_ns_per_response.is_some()),
        Figure::ClientCpu => step.client.cpu_ns_per_response.is_some(),
        Figure::Median | Figure::Tail => step.response.is_some(),
        Figure::Rate | Figure::Counts => true,
    };
    Figure::ALL.iter().copied().filter(has).map(|figure| (figure, step.soundness(figure))).collect()
}

/// Describes the validity of each figure: `server CPU, counts are valid; requests/s is at least this; p50, p99 are
/// unknown`.
pub fn worth(step: &StepReport) -> String {
    let worths = worths(step);
    let those = |wanted: Soundness| {
        let labels = worths.iter().filter(|(_, soundness)| *soundness == wanted).map(|(figure, _)| label(*figure));
        labels.collect::<Vec<_>>()
    };
    let mut parts = Vec::new();
    for soundness in [Soundness::Sound, Soundness::AtLeast, Soundness::AtMost, Soundness::Unknown] {
        let labels = those(soundness);
        if labels.is_empty() {
            continue;
        }
        let verb = match (soundness, labels.len()) {
            (Soundness::Sound, 1) => "is valid",
            (Soundness::Sound, _) => "are valid",
            (_, 1) => "is",
            _ => "are",
        };
        let worth = if soundness.is_sound() { String::new() } else { format!(" {}", soundness.words()) };
        parts.push(format!("{} {verb}{worth}", labels.join(", ")));
    }
    parts.join("; ")
}

/// Names the figures that a reason affects, in a sentence.
pub fn touched(step: &StepReport, reason: InvalidReason) -> String {
    let touched = worths(step).into_iter().filter(|(figure, _)| step.verdict(*figure).reasons.contains(&reason));
    let labels: Vec<&str> = touched.map(|(figure, _)| label(figure)).collect();
    if labels.is_empty() { "It affects no figure".to_owned() } else { format!("It affects {}", labels.join(", ")) }
}

/// Returns the verdict on a step for a table: `valid`, or the invalid figures with the reasons.
pub fn short(step: &StepReport) -> String {
    if step.record.counts.successes() == 0 && step.error_share > 0.0 {
        return "no request succeeded".to_owned();
    }
    if step.invalid.is_empty() {
        return "valid".to_owned();
    }
    let reasons: Vec<&str> = step.invalid.iter().map(|invalid| invalid.reason.name()).collect();
    let unsound: Vec<&str> =
        worths(step).iter().filter(|(_, worth)| !worth.is_sound()).map(|(figure, _)| label(*figure)).collect();
    match (unsound.is_empty(), step.has_sound()) {
        (true, _) => format!("valid ({})", reasons.join(", ")),
        (false, true) => format!("not {}: {}", unsound.join(", "), reasons.join(", ")),
        (false, false) => format!("INVALID: {}", reasons.join(", ")),
    }
}

/// Returns the note after a requirement whose figure is invalid; empty if the figure is valid.
pub fn uncertain(outcome: &ThresholdOutcome) -> String {
    if outcome.unsound.is_empty() {
        return String::new();
    }
    let names: Vec<&str> = outcome.unsound.iter().map(|reason| reason.name()).collect();
    format!(", which is uncertain: {}", names.join(", "))
}

/// Describes the number of requests of a step: `of 2,000 offered, 2,000 started`.
pub fn asked_for(step: &StepReport) -> String {
    let requests = &step.requests;
    let offered = requests.offered.map_or_else(String::new, |offered| format!("{} offered, ", show::count(offered)));
    format!("of {offered}{} started", show::count(requests.begun))
}

/// Describes which requests the response times cover, if some failed: `of 288 responses; 12 requests without a valid response
/// count as slower in the percentiles`.
pub fn unanswered(step: &StepReport) -> Option<String> {
    let missing = step.requests.failed.saturating_add(step.requests.never_begun);
    if missing.saturating_add(step.requests.unexpected) == 0 {
        return None;
    }
    let mut text = format!("of {} responses", show::count(step.record.response.histogram().len()));
    if missing > 0 {
        let requests = show::plural(missing, "request", "requests");
        let _ = write!(text, "; {requests} without a valid response count as slower in the percentiles");
    }
    if step.requests.unexpected > 0 {
        let count = step.requests.unexpected;
        let (responses, verb) = (show::plural(count, "response", "responses"), if count == 1 { "does" } else { "do" });
        let _ = write!(text, "; {responses} with an unexpected status {verb} not count");
    }
    Some(text)
}

/// The most statuses that are named one by one.
const STATUSES_MAX: usize = 8;

/// Returns the number of responses for each status, and whether the status is expected. With many statuses, and in
/// results of earlier versions, these are the numbers by status class, separately for expected and unexpected ones.
pub fn statuses(step: &StepReport) -> Vec<(String, u64, bool)> {
    let statuses = step.record.statuses.iter();
    let statuses: Vec<_> =
        statuses.map(|(status, count)| (status.to_string(), count, step.plan.expected.contains(status))).collect();
    if (1..=STATUSES_MAX).contains(&statuses.len()) {
        return statuses;
    }
    let counts = &step.record.counts;
    let classes = (1..).zip(counts.status_classes.into_iter().zip(counts.unexpected_classes));
    let classes = classes.flat_map(|(class, (all, unexpected))| {
        let name = format!("{class}xx");
        // The other responses with 1xx are interim.
        let expected = if class == 1 { 0 } else { all.saturating_sub(unexpected) };
        [(name.clone(), expected, true), (name, unexpected, false)]
    });
    let others = [("other".to_owned(), counts.other_statuses, false)];
    classes.chain(others).filter(|(_, count, _)| *count > 0).collect()
}

/// Describes the delay of late responses: `after the measurement interval, the last one 6.01 s after it`.
pub fn lateness(step: &StepReport) -> String {
    format!("after the measurement interval, the last one {} after it", show::duration(step.requests.drain_ns as f64))
}

/// Describes the offered load of a step: `500 requests/s`, `64 connections`.
pub fn load(step: &StepReport) -> String {
    load_of(&step.plan)
}

/// Describes the load that a plan offers.
pub fn load_of(plan: &Plan) -> String {
    match plan.offered_per_s() {
        Some(rate) => format!("{} requests/s", show::figure(rate)),
        None => show::plural(u64::from(plan.connections), "connection", "connections"),
    }
}

/// Smallest share of the offered rate at which a server keeps up; the same share as for a valid run.
const KEPT_UP_SHARE: f64 = 0.98;

fn figures(report: &RunReport) -> String {
    let [step] = &report.steps[..] else { return sweep(report) };
    let answered = format!("{} responses/s", show::figure(step.responses_per_s));
    let how = if let Some(rate) = step.offered.rate_per_s {
        format!("At {} requests/s offered: {answered}", show::figure(rate))
    } else {
        let connections = u64::from(step.offered.connections);
        format!("{}: {answered}", show::plural(connections, "connection", "connections"))
    };
    let times = step.response.map_or_else(String::new, |response| {
        let within = |ns: u64| show::duration(ns as f64);
        match (response.p50_ns, response.p99_ns) {
            (Some(p50), Some(p99)) => {
                format!(", half of them within {}, 99 of 100 within {}", within(p50), within(p99))
            }
            (Some(p50), None) => {
                format!(", half within {}, but fewer than 99 of 100 requests got a response", within(p50))
            }
            (None, _) => ", but fewer than half of the requests got a response".to_owned(),
        }
    });
    let errors = if step.error_share > 0.0 {
        format!(" {} of all requests failed.", show::percent(step.error_share))
    } else {
        String::new()
    };
    format!("{how}{times}.{errors}")
}

fn offered(step: &StepReport) -> f64 {
    step.offered.rate_per_s.unwrap_or(f64::from(step.offered.connections))
}

fn sweep(report: &RunReport) -> String {
    let by_load = |one: &&StepReport, other: &&StepReport| offered(one).total_cmp(&offered(other));
    let (Some(first), Some(last)) = (report.steps.iter().min_by(by_load), report.steps.iter().max_by(by_load)) else {
        return "There are no steps in this result.".to_owned();
    };
    let range = format!("{} steps from {} to {}.", report.steps.len(), load(first), load(last));
    let kept_up = |step: &&StepReport| {
        step.offered.rate_per_s.is_none_or(|rate| step.responses_per_s >= KEPT_UP_SHARE * rate)
            && step.error_share < 0.01
    };
    let best =
        report.steps.iter().filter(kept_up).max_by(|one, other| one.responses_per_s.total_cmp(&other.responses_per_s));
    let Some(best) = best else { return format!("{range} The server did not keep up with any of these loads.") };
    let p99 = best.response.and_then(|response| response.p99_ns).map_or_else(String::new, |p99_ns| {
        format!(", with 99 of 100 responses within {}", show::duration(p99_ns as f64))
    });
    let rate = show::figure(best.responses_per_s);
    let what = if best.offered.rate_per_s.is_some() {
        "The highest rate with which the server kept up is"
    } else {
        "The highest rate is"
    };
    format!("{range} {what} {rate} responses/s at {}{p99}.", load(best))
}

#[cfg(test)]
mod tests;
