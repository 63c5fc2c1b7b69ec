//! Memory over time: the memory of each server's processes after each measurement, in the order of the measurements.

use crate::document::{Cell, SuiteReport};
use flatout_report::chart::{Axis, Chart, LOOKS, Line, Quantity, Side};
use flatout_report::html::figure;
use maud::{Markup, html};

/// Maximum number of lines in the chart.
const SERVERS_MAX: usize = LOOKS - 1;

/// Number of bytes per MiB.
const MIB: f64 = 1_048_576.0;

/// Returns the chart, if there are enough values for a line.
pub(super) fn section(report: &SuiteReport) -> Markup {
    let lines = lines(report);
    html! { @if !lines.is_empty() { section {
        h2 { "Memory during the run" }
        (figure(&chart(lines), "Resident memory of all processes of a server after each of its measurements; shared pages count in each process. Servers are restarted for every step, and whenever their configuration changes."))
    } } }
}

fn lines(report: &SuiteReport) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for step in report.steps.iter().filter(|step| step.absent.is_none()) {
        for cell in &step.cells {
            let found = lines.iter().position(|line| line.name == cell.server);
            let index = match found {
                Some(index) => index,
                None if lines.len() == SERVERS_MAX => continue,
                None => {
                    let look = lines.len();
                    let name = cell.server.clone();
                    let points = Vec::new();
                    lines.push(Line { name, look, side: Side::Left, is_dashed: false, is_marked: false, points });
                    look
                }
            };
            let points = &mut lines[index].points;
            for bytes in memory_of(cell) {
                points.push((points.len() as f64 + 1.0, bytes as f64 / MIB));
            }
        }
    }
    lines.retain(|line| line.points.len() > 1);
    lines
}

/// Returns the memory of the cell's own server after each of the cell's runs, in bytes.
fn memory_of(cell: &Cell) -> impl Iterator<Item = u64> {
    let processes = cell.runs.iter().flat_map(|run| &run.processes);
    processes.filter(|cost| cost.server == cell.server && cost.memory_bytes > 0).map(|cost| cost.memory_bytes)
}

fn chart(lines: Vec<Line>) -> Chart {
    let x =
        Axis::linear("measurement", Quantity::Count, lines.iter().flat_map(|line| &line.points).map(|point| point.0));
    let left = Axis::linear("MiB", Quantity::Count, lines.iter().flat_map(|line| &line.points).map(|point| point.1));
    let title = "Memory by measurement".to_owned();
    Chart { title, x, left, right: None, cells: Vec::new(), lines }
}

#[cfg(test)]
mod tests {
    use super::section;
    use crate::document::{Cell, ProcessCost, RunEntry, StepEntry, SuiteReport};

    #[test]
    fn every_measurement_of_a_server_is_a_point_in_order() {
        let run = |server: &str, memory_bytes| RunEntry {
            processes: vec![
                ProcessCost { server: server.to_owned(), memory_bytes, ..ProcessCost::default() },
                ProcessCost { server: "behind".to_owned(), memory_bytes: 9 << 40, ..ProcessCost::default() },
            ],
            ..RunEntry::default()
        };
        let cell = |server: &str, runs: &[u64]| Cell {
            server: server.to_owned(),
            runs: runs.iter().map(|bytes| run(server, *bytes)).collect(),
            ..Cell::default()
        };
        let step = |cells| StepEntry { cells, ..StepEntry::default() };
        let mut report = SuiteReport::default();
        report.steps.push(step(vec![cell("a", &[1 << 20]), cell("once", &[1 << 20])]));
        assert!(section(&report).into_string().is_empty(), "one point is not a line");
        report.steps.push(step(vec![cell("a", &[2 << 20, 3 << 20])]));
        let found: Vec<(f64, f64)> = super::lines(&report).remove(0).points;
        assert_eq!(found, [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]);
        let page = section(&report).into_string();
        assert!(page.contains("Memory during the run") && page.contains("<svg"), "{page}");
    }
}
