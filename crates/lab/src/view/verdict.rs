//! What a result says, in words: one sentence first, then the reasons.

use super::units;
use flatout_load::plan::Plan;
use flatout_load::report::{RunReport, StepReport};

/// How the sentence is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// The figures hold, and nothing failed.
    Good,
    /// The figures hold, and something failed or a requirement was missed.
    Failed,
    /// The figures must not be believed.
    Invalid,
}

/// A verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// How it is meant.
    pub tone: Tone,
    /// Whether the figures can be believed, in one sentence.
    pub headline: String,
    /// What they say, in one or two sentences.
    pub figures: String,
    /// Every reason behind the headline, with its numbers.
    pub reasons: Vec<String>,
}

/// The verdict on a run.
pub fn of(report: &RunReport) -> Verdict {
    let many = report.steps.len() > 1;
    let at =
        |step: &StepReport| if many { format!("step {} ({}): ", step.step + 1, load(step)) } else { String::new() };
    let mut reasons = Vec::new();
    for step in &report.steps {
        for invalid in &step.invalid {
            reasons.push(format!(
                "{}{}: {} ({})",
                at(step),
                invalid.reason.name(),
                invalid.text,
                invalid.reason.text()
            ));
        }
    }
    let invalid = reasons.len();
    for step in &report.steps {
        reasons.extend(step.failing.iter().map(|reason| format!("{}{}", at(step), reason.text)));
    }
    let missed = report.thresholds.iter().filter(|outcome| !outcome.met);
    reasons.extend(missed.clone().map(|outcome| {
        let found = outcome.found.as_deref().unwrap_or("no such value");
        let step = if many { format!("step {}: ", outcome.step + 1) } else { String::new() };
        format!("{step}required {}, found {found}", outcome.text)
    }));
    let (tone, headline) = if invalid > 0 {
        let steps = report.steps.iter().filter(|step| !step.invalid.is_empty()).count() as u64;
        let which = match (many, steps == report.steps.len() as u64) {
            (true, false) => format!("the figures of {}", units::plural(steps, "step", "steps")),
            _ => "these figures".to_owned(),
        };
        (Tone::Invalid, format!("Invalid: do not believe {which}."))
    } else if missed.clone().next().is_some() {
        let count = units::plural(missed.count() as u64, "requirement was", "requirements were");
        (Tone::Failed, format!("Valid, but {count} missed."))
    } else if report.steps.iter().any(|step| !step.failing.is_empty()) {
        (Tone::Failed, "Valid, but requests failed.".to_owned())
    } else {
        (Tone::Good, "Valid: the figures can be believed.".to_owned())
    };
    Verdict { tone, headline, figures: figures(report), reasons }
}

/// What was offered in a step, in short: `500 requests/s`, `64 connections`.
pub fn load(step: &StepReport) -> String {
    load_of(&step.plan)
}

/// What a plan offers, in short.
pub fn load_of(plan: &Plan) -> String {
    match plan.offered_per_s() {
        Some(rate) => format!("{} requests/s", units::figure(rate)),
        None => units::plural(u64::from(plan.connections), "connection", "connections"),
    }
}

/// Share of what was offered below which a server is said not to have kept up; as the rate that makes a run valid.
const KEPT_UP_SHARE: f64 = 0.98;

fn figures(report: &RunReport) -> String {
    let [step] = &report.steps[..] else { return sweep(report) };
    let answered = format!("{} answers/s", units::figure(step.responses_per_s));
    let how = if let Some(rate) = step.offered.rate_per_s {
        format!("Of {} requests/s offered, {answered} came", units::figure(rate))
    } else {
        let connections = u64::from(step.offered.connections);
        format!("{} brought {answered}", units::plural(connections, "connection", "connections"))
    };
    let times = step.response.map_or_else(String::new, |response| {
        let [p50, p99] = [response.p50_ns, response.p99_ns].map(|ns| units::duration(ns as f64));
        format!(": half of them within {p50}, 99 of 100 within {p99}")
    });
    let errors = if step.error_share > 0.0 {
        format!(" {} of all requests failed or were refused.", units::percent(step.error_share))
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
    let Some(best) = best else { return format!("{range} The server kept up with none of them.") };
    let p99 = best.response.map_or_else(String::new, |response| {
        format!(", with 99 of 100 answers within {}", units::duration(response.p99_ns as f64))
    });
    let rate = units::figure(best.responses_per_s);
    let what = if best.offered.rate_per_s.is_some() { "The most that was kept up with was" } else { "The most was" };
    format!("{range} {what} {rate} answers/s at {}{p99}.", load(best))
}

#[cfg(test)]
mod tests;
