//! A run as text: the verdict, the figures, the failures and the costs.
//!
//! A run with a single step is shown line by line, and a sweep as a table with one row per step.

use super::figures::{add_classes, add_costs, add_figures, add_levels, add_thresholds, per_request};
use super::page::TextPage;
use super::plan_words;
use super::style::{Style, Weight};
use super::verdict::{self, Verdict};
use flatout_load::report::{RunReport, StepReport};
use flatout_units::show;

/// Formats a run for printing.
pub fn print(report: &RunReport, style: Style) -> String {
    let mut page = TextPage::new(style);
    let plan = report.steps.first().map(|step| plan_words::of(&step.plan)).unwrap_or_default();
    let title = style.paint(Weight::Strong, &report.label);
    page.plain(&format!("{title}   {}", style.paint(Weight::Faint, &format!("{}, {plan}", report.protocol))));
    page.plain("");
    add_verdict(&mut page, report);
    page.plain("");
    match &report.steps[..] {
        [step] => add_step(&mut page, report, step),
        steps => add_levels(&mut page, steps),
    }
    add_thresholds(&mut page, report);
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
    page.painted(Weight::Faint, &format!("  {}, seed {}", report.machine, report.seed));
    page.finish()
}

fn add_verdict(page: &mut TextPage, report: &RunReport) {
    let Verdict { tone, headline, figures, reasons } = verdict::of(report);
    let weight = verdict::weight(tone);
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

fn add_step(page: &mut TextPage, report: &RunReport, step: &StepReport) {
    add_figures(page, step, true);
    let server = step.server.and_then(|server| {
        let cores = format!("{:.2} cores used, {}", server.cores_used, server.cpu_clock.words());
        Some((per_request(server.cpu_ns_per_response?), cores))
    });
    add_costs(page, report, step, server);
    add_classes(page, report, step);
    for agent in &step.client.agents {
        let sign = if agent.skew_ns < 0 { "-" } else { "" };
        let skew = format!("started {sign}{} late", show::duration(agent.skew_ns.unsigned_abs() as f64));
        let state = if agent.lost { "LOST" } else { "whole" };
        let words = format!("{}   {skew}, {} busy, {state}", agent.name, show::percent(agent.busy_share));
        page.named("agent", &show::count(agent.responses), &words);
    }
}

#[cfg(test)]
mod tests {
    use super::print;
    use crate::style::Style;
    use crate::tests::fixture;

    #[test]
    fn one_step_is_told_line_by_line() {
        let text = print(&fixture::failing(), Style::PLAIN);
        for line in [
            "failing   HTTP/1.1, open loop, 50.0 connections/s, equal gaps, at most 1,000 connections, one request per connection",
            "  requests/s       48.0   of 50.0 offered, 50.0 started",
            "  latency       ",
            "  responses        288   200 288   of 300 sent",
            "  errors           12 connreset   the peer reset the connection (epipe 12)",
            "  Some CPU @ 2 GHz, 2 cores, 16.0 GiB, Linux 6.12.0, seed 42",
        ] {
            assert!(text.lines().any(|found| found.starts_with(line)), "no line {line:?} in\n{text}");
        }
        let covered = "of 288 responses; 12 requests without a valid response count as slower in the percentiles";
        assert!(text.lines().any(|line| line.trim() == covered), "{text}");
        assert!(!print(&fixture::single(), Style::PLAIN).contains("without a valid response"));
        let coloured = print(&fixture::failing(), Style::COLOURED);
        assert!(coloured.contains('\x1b') && !text.contains('\x1b'));
    }

    #[test]
    fn connections_from_before_the_measurement_are_shown() {
        let connections = |opened, warm_up_ns| {
            let mut report = fixture::single();
            let step = &mut report.steps[0];
            (step.record.counts.connections, step.record.connections.peak) = (opened, 4);
            step.warm_up.elapsed_ns = warm_up_ns;
            let text = print(&report, Style::PLAIN);
            let line = text.lines().find(|line| line.starts_with("  connections ")).unwrap();
            line.split_ascii_whitespace().skip(1).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(connections(300, 0), "300");
        assert_eq!(connections(0, 1), "4 open at once, opened before the measurement");
        assert_eq!(connections(2, 1), "2 opened during the measurement");
    }

    #[test]
    fn a_sweep_is_a_table() {
        let text = print(&fixture::sweep("sweep", 10), Style::PLAIN);
        let rows: Vec<&str> =
            text.lines().filter(|line| line.contains("requests/s") && line.ends_with("valid")).collect();
        assert_eq!(rows.len(), 9, "{text}");
        for words in
            ["  not p50, p99: client-saturated", "NOT MET: p99<20ms: ", "The highest rate with p99 < 50 ms is 800"]
        {
            assert!(text.contains(words), "no {words:?} in\n{text}");
        }
    }
}
