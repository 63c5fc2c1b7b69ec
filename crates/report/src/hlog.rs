//! A result's histograms as an HdrHistogram log.

use super::series::times;
use flatout_load::record::hlog::{HistogramLog, Row};
use flatout_load::report::RunReport;

/// Returns the log, with three rows per step, tagged `response`, `service` and `lag`.
pub fn log(report: &RunReport) -> HistogramLog {
    let start_ns = report.steps.first().map_or(0, |step| step.record.series.start_ns);
    let rows = report.steps.iter().flat_map(|step| {
        times(step).map(|(name, histogram, _)| Row {
            tag: Some(name.to_owned()),
            start_s: step.record.measured_from_ns.saturating_sub(start_ns) as f64 / 1e9,
            length_s: step.elapsed_ns as f64 / 1e9,
            histogram: histogram.clone(),
        })
    });
    // The times of rows are relative to the start of the run, which other readers need to know.
    let begun_unix_s = Some(report.begun_unix_ms as f64 / 1e3);
    HistogramLog { started_unix_s: begun_unix_s, base_unix_s: begun_unix_s, rows: rows.collect() }
}

#[cfg(test)]
mod tests {
    use super::log;
    use crate::tests::fixture;
    use flatout_load::record::hlog::HistogramLog;

    #[test]
    fn the_log_comes_back_as_it_was() {
        let report = fixture::single();
        let written = log(&report);
        let read = HistogramLog::parse(&written.encode()).unwrap();
        let tags: Vec<_> = read.rows.iter().map(|row| row.tag.as_deref().unwrap()).collect();
        assert_eq!(tags, ["response", "service", "lag"]);
        assert_eq!(read.rows[0].histogram, report.steps[0].record.response);
        assert!((read.rows[0].length_s - 6.0).abs() < 1e-3);
        assert!((read.started_unix_s.unwrap() - 1_795_265_627.0).abs() < 1e-3);
    }
}
