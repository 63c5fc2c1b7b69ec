//! A cell's runs to its figures.

use crate::document::{Cell, Figure, ProcessCost, RunEntry};
use crate::measure::Measure;
use flatout_load::report::RunReport;

/// One run as it stands in the result.
pub(super) fn entry(repetition: u32, path: &str, report: &RunReport, processes: Vec<ProcessCost>) -> RunEntry {
    let invalid = report.steps.iter().flat_map(|step| &step.invalid);
    let failing = report.steps.iter().flat_map(|step| &step.failing);
    let mut entry = RunEntry {
        repetition,
        path: path.to_owned(),
        invalid: invalid.map(|invalid| invalid.text.clone()).collect(),
        failing: failing.map(|reason| reason.text.clone()).collect(),
        processes,
    };
    // A search judges its trials one by one, and those by which it learnt where the client ends are part of it.
    if Measure::KneePerS.value(report, "", &[]).is_some() {
        entry.invalid.clear();
    }
    entry.invalid.dedup();
    entry.failing.dedup();
    entry
}

/// What a run says, measure by measure.
pub(super) fn values(cell: &Cell, report: &RunReport, processes: &[ProcessCost]) -> Vec<(Measure, f64)> {
    let value = |measure: &Measure| Some((*measure, measure.value(report, &cell.server, processes)?));
    Measure::ALL.iter().filter_map(value).collect()
}

/// Adds a run to its cell. One that must not be believed is listed, and in no figure.
pub(super) fn add(cell: &mut Cell, entry: RunEntry, values: Vec<(Measure, f64)>) {
    let is_valid = entry.invalid.is_empty();
    cell.runs.push(entry);
    if !is_valid {
        return;
    }
    for (measure, value) in values {
        let found = cell.figures.iter_mut().find(|figure| figure.measure == measure.name());
        match found {
            Some(figure) => figure.values.push(value),
            None => cell.figures.push(Figure {
                measure: measure.name().to_owned(),
                unit: measure.unit().to_owned(),
                values: vec![value],
                ..Figure::default()
            }),
        }
    }
    for figure in &mut cell.figures {
        (figure.median, figure.min, figure.max) = spread(&figure.values);
    }
}

/// Median, least and greatest.
fn spread(values: &[f64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (Some(least), Some(greatest)) = (sorted.first(), sorted.last()) else { return (0.0, 0.0, 0.0) };
    let middle = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
    (median, *least, *greatest)
}

#[cfg(test)]
mod tests {
    use super::{add, spread};
    use crate::document::{Cell, RunEntry};
    use crate::measure::Measure;

    #[test]
    fn a_median_is_the_middle_or_between_the_two_in_it() {
        assert_eq!(spread(&[3.0, 1.0, 2.0]), (2.0, 1.0, 3.0));
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]), (2.5, 1.0, 4.0));
        assert_eq!(spread(&[]), (0.0, 0.0, 0.0));
    }

    #[test]
    fn a_run_that_must_not_be_believed_is_in_no_figure() {
        let mut cell = Cell::default();
        let values = |value| vec![(Measure::RequestsPerS, value)];
        add(&mut cell, RunEntry::default(), values(10.0));
        add(&mut cell, RunEntry { invalid: vec!["late".to_owned()], ..RunEntry::default() }, values(99.0));
        add(&mut cell, RunEntry::default(), values(20.0));
        assert_eq!((cell.runs.len(), cell.has_invalid()), (3, true));
        let figure = cell.figure("requests-per-s").unwrap();
        assert_eq!((figure.values.as_slice(), figure.median), ([10.0, 20.0].as_slice(), 15.0));
    }
}
