//! Formatting of figures.

use crate::document::Figure;
use crate::measure::Measure;
use flatout_units::show;

/// Formats a value with its unit.
pub(super) fn shown(unit: &str, value: f64) -> String {
    match unit {
        "ns" => show::duration(value),
        "B" => show::bytes(value),
        "B/s" => format!("{}/s", show::bytes(value)),
        "" => show::percent(value),
        "1/s" => show::figure(value),
        other => format!("{} {other}", show::figure(value)),
    }
}

/// Returns the minimum and maximum over several repetitions, and their distance; `None` for a single repetition.
pub(super) fn spread(figure: &Figure) -> Option<String> {
    let ends = || format!("{} to {}", shown(&figure.unit, figure.min), shown(&figure.unit, figure.max));
    match figure.values.len() {
        0 | 1 => None,
        2 => Some(ends()),
        count => {
            let count = count as f64;
            let mean = figure.values.iter().sum::<f64>() / count;
            let squares: f64 = figure.values.iter().map(|value| (value - mean).powi(2)).sum();
            let deviation = (squares / (count - 1.0)).sqrt();
            Some(format!("{}, σ {}", ends(), shown(&figure.unit, deviation)))
        }
    }
}

/// Returns the name of a measure as a heading, such as `responses per second`.
pub(super) fn heading(measure: &str) -> String {
    match measure {
        "requests-per-s" => "responses per second".to_owned(),
        "bytes-per-s" => "bytes per second".to_owned(),
        "connections-per-s" => "connections per second".to_owned(),
        "sustained-per-s" => "correct responses within the timeout per second, under load".to_owned(),
        "goodput-per-s" => "correct responses in time per second".to_owned(),
        "server-cpu-per-request" => "server CPU per response".to_owned(),
        "server-cpu-per-mib" => "server CPU per MiB".to_owned(),
        "requests-per-cpu-s" => "responses per server CPU second".to_owned(),
        "requests-per-all-cpu-s" => "responses per CPU second of all servers".to_owned(),
        "all-cpu-per-request" => "CPU of all servers per response".to_owned(),
        "offered-per-s" => "offered per second".to_owned(),
        other => other.replace('-', " "),
    }
}

/// Returns an explanation of a measure in one sentence.
pub(super) fn explained(measure: &str) -> &'static str {
    Measure::parse(measure).map_or("", Measure::text)
}
