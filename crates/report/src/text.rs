//! A run as text: the verdict, the figures, failures, costs.
//!
//! A run of one step is shown line by line; a sweep as a table with one row per step.

use super::figures::{add_errors, add_responses, busy_wait, percentiles};
use super::page::TextPage;
use super::plan_words;
use super::style::{Style, Weight};
use super::verdict::{self, Tone, Verdict};
use flatout_load::report::{Percentiles, RunReport, StepReport};
use flatout_units::show;

/// A run, ready to print.
pub fn print(report: &RunReport, style: Style) -> String {
    let mut page = TextPage::new(style);
    let plan = report.steps.first().map(|step| plan_words::of(&step.plan)).unwrap_or_default();
    let title = style.paint(Weight::Strong, &report.label);
    page.plain(&format!("{title}   {}", style.paint(Weight::Faint, &format!("{}, {plan}", report.protocol))));
    page.plain("");
    add_verdict(&mut page, report);
    page.plain("");
    match &report.steps[..] {
        [step] => add_step(&mut page, step),
        steps => add_steps(&mut page, steps),
    }
    for outcome in &report.thresholds {
        let weight = if outcome.met && outcome.unsound.is_empty() { Weight::Good } else { Weight::Bad };
        let found = outcome.found.as_deref().unwrap_or("no such value");
        let met = match (outcome.unsound.is_empty(), outcome.met) {
            (false, _) => "not certain",
            (true, true) => "met",
            (true, false) => "MISSED",
        };
        let uncertain = verdict::uncertain(outcome);
        let step = outcome.step + 1;
        page.painted(weight, &format!("  required {}: {met}, found {found} (step {step}){uncertain}", outcome.text));
    }
    if let Some(limit) = &report.limit {
        let share = format!(
            "{} of the machine's limit, {} {} ({})",
            show::percent(limit.share),
            show::figure(limit.value),
            limit.unit,
            limit.words
        );
        page.named("limit", "", &share);
    }
    for (name, finding) in &report.findings {
        if let Some(sentence) = finding.get("sentence").or(finding.get("text")).and_then(|sentence| sentence.as_str()) {
            page.named(name, sentence, "");
        }
    }
    page.plain("");
    let machine = &report.machine;
    let cores = show::plural(machine.cores as u64, "core", "cores");
    page.painted(
        Weight::Faint,
        &format!(
            "  {}, {cores}, {}, Linux {}, seed {}",
            machine.cpu_model,
            show::bytes(machine.memory_bytes as f64),
            machine.kernel,
            report.seed
        ),
    );
    page.finish()
}

fn add_verdict(page: &mut TextPage, report: &RunReport) {
    let Verdict { tone, headline, figures, reasons } = verdict::of(report);
    let weight = match tone {
        Tone::Good => Weight::Good,
        Tone::Partly | Tone::Failed => Weight::Warning,
        Tone::Invalid => Weight::Bad,
    };
    page.painted(weight, &format!("  {headline}"));
    page.plain(&format!("  {figures}"));
    for reason in reasons {
        page.painted(weight, &format!("  - {reason}"));
    }
    let notes = report.steps.iter().flat_map(|step| &step.notes);
    for note in notes {
        page.painted(Weight::Warning, &format!("  note: {}", note.text));
    }
}

fn add_step(page: &mut TextPage, step: &StepReport) {
    let counts = &step.record.counts;
    let offered = step.offered.rate_per_s.map_or_else(String::new, |rate| format!("of {} offered", show::figure(rate)));
    page.named("responses/s", &show::figure(step.responses_per_s), &offered);
    page.named(
        "received",
        &format!("{}/s", show::bytes(step.bytes_in_per_s)),
        &format!("{} in all", show::bytes(counts.bytes_in() as f64)),
    );
    for (name, times, what) in [
        ("response", &step.response, "from the intended start to the last byte"),
        ("service", &step.service, "from the client's act to the last byte"),
        ("lag", &step.lag, "how late the client acted"),
    ] {
        match times {
            Some(times) if name == "response" => {
                let of = verdict::unanswered(step).map_or_else(String::new, |of| format!("; {of}"));
                page.figures(name, &percentiles(page.style(), times), &format!("{what}{of}"));
            }
            Some(times) if step.plan.is_open() => page.figures(name, &percentiles(page.style(), times), what),
            None if name == "response" => page.named(name, "-", "there was no response"),
            _ => {}
        }
    }
    for (name, phase) in [
        ("  resolve", &step.phases.resolve),
        ("  connect", &step.phases.connect),
        ("  TLS", &step.phases.tls),
        ("  wait", &step.phases.wait),
        ("  transfer", &step.phases.transfer),
    ] {
        if let Some(phase) = phase {
            page.figures(name, &percentiles(page.style(), phase), &show::count(phase.count));
        }
    }
    add_responses(page, step, format!("of {} begun", show::count(counts.requests_begun)));
    add_errors(page, step);
    if step.tally.dropped > 0 {
        page.named(
            "never begun",
            &show::count(step.tally.dropped),
            "arrivals that waited too long for a free connection",
        );
    }
    if let Some(cost_ns) = step.client.cpu_ns_per_response {
        let busy = format!("busiest thread {} busy{}", show::percent(step.client.busy_share), busy_wait(step));
        page.named("client CPU", &format!("{} a response", show::duration(cost_ns)), &busy);
    }
    if let Some((server, cost_ns)) = step.server.and_then(|server| Some((server, server.cpu_ns_per_response?))) {
        let cores = format!("{:.2} cores used, {}", server.cores_used, server.cpu_clock.words());
        page.named("server CPU", &format!("{} a response", show::duration(cost_ns)), &cores);
    }
    if let Some(kernel) = step.kernel.filter(|kernel| kernel.tcp_retransmits + kernel.listen_overflows > 0) {
        let words = format!(
            "{} TCP retransmits, {} listen overflows",
            show::count(kernel.tcp_retransmits),
            show::count(kernel.listen_overflows)
        );
        page.named("kernel", &words, "of the whole machine");
    }
    for agent in &step.client.agents {
        let sign = if agent.skew_ns < 0 { "-" } else { "" };
        let skew = format!("began {sign}{} late", show::duration(agent.skew_ns.unsigned_abs() as f64));
        let state = if agent.lost { "LOST" } else { "whole" };
        let words = format!("{}   {skew}, {} busy, {state}", agent.name, show::percent(agent.busy_share));
        page.named("agent", &show::count(agent.responses), &words);
    }
}

fn add_steps(page: &mut TextPage, steps: &[StepReport]) {
    page.painted(
        Weight::Faint,
        &format!(
            "  {:>18}{:>12}{:>11}{:>11}{:>11}{:>11}{:>10}  {}",
            "offered", "responses/s", "p50", "p90", "p99", "max", "failed", "verdict"
        ),
    );
    for step in steps {
        let time = |pick: fn(&Percentiles) -> u64| {
            step.response.as_ref().map_or_else(|| "-".to_owned(), |times| show::duration(pick(times) as f64))
        };
        let short = verdict::short(step);
        let verdict = if step.invalid.is_empty() { short } else { page.style().paint(Weight::Bad, &short) };
        page.plain(&format!(
            "  {:>18}{:>12}{:>11}{:>11}{:>11}{:>11}{:>10}  {verdict}",
            verdict::load(step),
            show::figure(step.responses_per_s),
            time(|times| times.p50_ns),
            time(|times| times.p90_ns),
            time(|times| times.p99_ns),
            time(|times| times.max_ns),
            show::percent(step.error_share),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::print;
    use crate::fixture;
    use crate::style::Style;

    #[test]
    fn one_step_is_told_line_by_line() {
        let text = print(&fixture::failing(), Style::PLAIN);
        for line in [
            "failing   HTTP/1.1, open loop, 50.0 connections/s, equal gaps, at most 1,000 connections, one request a connection",
            "  responses/s      48.0   of 50.0 offered",
            "  response         p50 635 µs",
            "  responses        288   2xx 288   of 300 begun",
            "  errors           12 connreset   the peer reset the connection (epipe 12)",
            "  Some CPU @ 2 GHz, 2 cores, 16.0 GiB, Linux 6.12.0, seed 42",
        ] {
            assert!(text.lines().any(|found| found.starts_with(line)), "no line {line:?} in\n{text}");
        }
        let response = text.lines().find(|line| line.starts_with("  response ")).unwrap();
        assert!(response.ends_with("to the last byte; of the 288 requests with a response; 12 had none"), "{response}");
        assert!(!print(&fixture::single(), Style::PLAIN).contains("had none"));
        let coloured = print(&fixture::failing(), Style::COLOURED);
        assert!(coloured.contains('\x1b') && !text.contains('\x1b'));
    }

    #[test]
    fn a_sweep_is_a_table() {
        let text = print(&fixture::sweep("sweep", 10), Style::PLAIN);
        let rows: Vec<&str> =
            text.lines().filter(|line| line.contains("requests/s") && line.ends_with("sound")).collect();
        assert_eq!(rows.len(), 9, "{text}");
        for words in [
            "  not p50, p99: client-saturated",
            "required p99<20ms: MISSED",
            "The highest rate with p99 < 50 ms is 800",
        ] {
            assert!(text.contains(words), "no {words:?} in\n{text}");
        }
    }
}
