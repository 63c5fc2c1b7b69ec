//! Merging the results of all agents: counts are added, histograms are merged, and the verdict is computed again.

use super::coordinator::AgentResult;
use flatout_load::report::step::StepFacts;
use flatout_load::report::{AgentReport, ClientReport, Reason, RunReport, StepReport};

/// The reason results cannot be merged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// No agent sent a result. Contains the name of the first agent and why it failed.
    #[error("no agent returned a result: {0}")]
    Nothing(String),
    /// An agent's record is malformed. Contains the agent's name and the reason.
    #[error("the result from agent {0} cannot be read: {1}")]
    Unreadable(String, String),
    /// Two agents ran different tasks. Contains their names.
    #[error("agents {0} and {1} ran different tasks")]
    Different(String, String),
}

/// Merges the results of all agents into one report. If agents were lost, the report is invalid, but contains the
/// results of the others.
///
/// # Errors
/// Fails if there is nothing to merge, or if the results do not belong together.
pub fn merge(results: &[AgentResult]) -> Result<RunReport, MergeError> {
    let mut parts: Vec<(&AgentResult, RunReport)> = Vec::new();
    for result in results.iter().filter(|result| result.lost.is_none()) {
        let unreadable = |why: String| MergeError::Unreadable(result.name.clone(), why);
        let text = std::str::from_utf8(&result.record).map_err(|error| unreadable(error.to_string()))?;
        parts.push((result, RunReport::parse(text).map_err(|error| unreadable(error.to_string()))?));
    }
    if parts.is_empty() {
        let lost = results.iter().find_map(|result| Some((result, result.lost.as_ref()?)));
        let why = lost.map_or_else(
            || "none arrived".to_owned(),
            |(result, (loss, words))| format!("{}: {} {words}", result.name, loss.text()),
        );
        return Err(MergeError::Nothing(why.trim_end().to_owned()));
    }
    // An agent that failed at a later level reports the failure with its last complete level. Only the levels that all
    // agents have are merged.
    let (levels, most) = parts.iter().fold((usize::MAX, 0), |(least, most), (_, report)| {
        (least.min(report.steps.len()), most.max(report.steps.len()))
    });
    let says_why = |report: &RunReport| report.steps.last().is_some_and(|step| step.evidence.part_missing.is_some());
    let whole = parts.iter().find(|(_, report)| report.steps.len() == most);
    let silent = parts.iter().find(|(_, report)| report.steps.len() < most && !says_why(report));
    if let (Some((whole, _)), Some((silent, _))) = (whole, silent) {
        return Err(MergeError::Different(whole.name.clone(), silent.name.clone()));
    }
    let mut whole = parts[0].1.clone();
    whole.agents = results.len() as u32;
    whole.threads = parts.iter().map(|(_, report)| report.threads).sum();
    // The limit and the findings apply to one machine only.
    whole.limit = None;
    whole.findings = serde_json::Map::new();
    let steps: Result<Vec<StepReport>, MergeError> = (0..levels).map(|index| step(index, &parts, results)).collect();
    whole.steps = steps?;
    Ok(whole)
}

fn step(index: usize, parts: &[(&AgentResult, RunReport)], results: &[AgentResult]) -> Result<StepReport, MergeError> {
    let (first, report) = &parts[0];
    let base = &report.steps[index];
    let different = |other: &AgentResult| MergeError::Different(first.name.clone(), other.name.clone());
    let mut record = base.record.clone();
    let (mut tally, mut client, mut warm_up) = (base.tally, base.client.clone(), base.warm_up);
    let mut elapsed_ns = base.elapsed_ns;
    let mut interrupted = base.evidence.interrupted;
    for (other, report) in &parts[1..] {
        let step = &report.steps[index];
        record.merge(&step.record).map_err(|_| different(other))?;
        tally.merge(&step.tally);
        warm_up.samples += step.warm_up.samples;
        warm_up.elapsed_ns = warm_up.elapsed_ns.max(step.warm_up.elapsed_ns);
        warm_up.steady = match (warm_up.steady, step.warm_up.steady) {
            (Some(one), Some(other)) => Some(one && other),
            (one, other) => one.or(other),
        };
        elapsed_ns = elapsed_ns.max(step.elapsed_ns);
        client.cpu.add(step.client.cpu);
        client.busy_wait_ns += step.client.busy_wait_ns;
        let taken = |client: &ClientReport| client.busy_share + client.wait_share;
        if taken(&step.client) > taken(&client) {
            (client.busy_share, client.wait_share) = (step.client.busy_share, step.client.wait_share);
            client.crowded_share = step.client.crowded_share;
        }
        client.held_back_share = match (client.held_back_share, step.client.held_back_share) {
            (Some(one), Some(other)) => Some(one.max(other)),
            (one, other) => one.or(other),
        };
        client.stopped_ns = client.stopped_ns.max(step.client.stopped_ns);
        let merged = client.loop_lag.histogram.merge(&step.client.loop_lag.histogram);
        merged.map_err(|_| different(other))?;
        client.memory_bytes_peak = client.memory_bytes_peak.max(step.client.memory_bytes_peak);
        client.other_cpu_share = match (client.other_cpu_share, step.client.other_cpu_share) {
            (Some(one), Some(other)) => Some(one.max(other)),
            _ => None,
        };
        interrupted |= step.evidence.interrupted;
    }
    client.loop_lag.summary = client.loop_lag.histogram.percentiles(0);
    client.cpu_ns_per_response =
        (record.counts.successes() > 0).then(|| client.cpu.total_ns() as f64 / record.counts.successes() as f64);
    client.agents = results.iter().map(|result| agent(index, result, parts)).collect();
    let lost = results.iter().filter(|result| result.lost.is_some()).count() as u32;
    let facts = StepFacts {
        step: base.step,
        plan: base.plan.clone(),
        elapsed_ns,
        tally,
        warm_up,
        client,
        // No agent has complete data about the server and its kernel.
        server: None,
        kernel: None,
        reconciliation: None,
        counts_missing: None,
        agents_lost: lost,
        // Agents do not stop when requests fail.
        stopped_early: None,
        interrupted,
        overload: base.evidence.overload,
    };
    let mut step = StepReport::of(record, facts);
    for (part, report) in parts {
        if let Some(what) = &report.steps[index].evidence.part_missing {
            step.add_missing(format!("agent {}: {what}", part.name));
        }
    }
    step.notes.extend(notes(results));
    Ok(step)
}

fn agent(index: usize, result: &AgentResult, parts: &[(&AgentResult, RunReport)]) -> AgentReport {
    let step = parts.iter().find(|(part, _)| part.index == result.index).map(|(_, report)| &report.steps[index]);
    AgentReport {
        name: result.name.clone(),
        skew_ns: result.skew_ns.unwrap_or(0),
        busy_share: step.map_or(0.0, |step| (step.client.busy_share + step.client.wait_share).min(1.0)),
        responses: step.map_or(0, |step| step.record.counts.responses),
        lost: result.lost.is_some(),
    }
}

fn notes(results: &[AgentResult]) -> Vec<Reason> {
    let mut notes = Vec::new();
    let error_ns = results.iter().map(|result| result.skew_error_ns_max).max().unwrap_or(0);
    let error = flatout_units::show::duration(error_ns as f64);
    notes.push(Reason {
        name: "agents-skew".to_owned(),
        text: format!("the agents' clocks are synchronized to ± {error} (half of the fastest round trip)"),
    });
    for result in results {
        if let Some((loss, words)) = &result.lost {
            let text = format!("agent {} was lost: {} {words}", result.name, loss.text());
            notes.push(Reason { name: "agent-lost".to_owned(), text: text.trim_end().to_owned() });
        }
    }
    notes
}

#[cfg(test)]
mod tests;
