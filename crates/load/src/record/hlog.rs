//! HdrHistogram logs, version 1.3, compatible with the Java library.
//!
//! Comments begin with `#`. Two of them state the start of the log and the base of the times. A line of quoted column
//! names follows. Each row is `[Tag=name,]start,length,largest,histogram`, with times in seconds and the largest value
//! in milliseconds.

use super::Hdr;
use super::hdr::HdrError;
use std::fmt::Write as _;

/// Maximum number of rows in a log. Each row has a histogram of about a quarter of a megabyte.
pub const ROWS_MAX: usize = 4_096;

/// Maximum total number of counts in all histograms of a log, which take 256 MiB.
pub const COUNTS_MAX: usize = 1 << 25;

/// Unit of the largest value, in nanoseconds: a millisecond, as readers of these logs expect.
const MAX_VALUE_UNIT: f64 = 1e6;

/// The line with the names of the columns.
const LEGEND: &str = "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"";

/// One row of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The tag, if any: `response`, `service`, `lag`. Contains no comma, space or line break.
    pub tag: Option<String>,
    /// Start of the interval in seconds: from the log's base if it has one, otherwise from its start or the epoch.
    pub start_s: f64,
    /// Length of the interval, in seconds.
    pub length_s: f64,
    /// Values recorded in the interval.
    pub histogram: Hdr,
}

/// The rows of an HdrHistogram log, and its start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistogramLog {
    /// Time at which the log started, in seconds since the epoch.
    pub started_unix_s: Option<f64>,
    /// Base of the rows' times, in seconds since the epoch.
    pub base_unix_s: Option<f64>,
    /// The rows, in order.
    pub rows: Vec<Row>,
}

/// The reason a string could not be parsed as a log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct LogError {
    /// The line with the error, numbered from 1.
    pub line: usize,
    /// The reason the line could not be parsed.
    pub what: String,
}

impl HistogramLog {
    /// Encodes the log as text.
    pub fn encode(&self) -> String {
        let mut text = String::from("#[Histogram log format version 1.3]\n");
        for (name, value) in [("StartTime", self.started_unix_s), ("BaseTime", self.base_unix_s)] {
            if let Some(value) = value {
                let _infallible = writeln!(text, "#[{name}: {value:.3} (seconds since epoch)]");
            }
        }
        text.push_str(LEGEND);
        text.push('\n');
        for Row { tag, start_s, length_s, histogram } in &self.rows {
            if let Some(tag) = tag {
                let is_fine = |letter: &char| !matches!(letter, ',' | ' ' | '\r' | '\n');
                let _infallible = write!(text, "Tag={},", tag.chars().filter(is_fine).collect::<String>());
            }
            let largest = histogram.histogram().max() as f64 / MAX_VALUE_UNIT;
            let _infallible = writeln!(text, "{start_s:.3},{length_s:.3},{largest:.3},{}", histogram.encode());
        }
        text
    }

    /// Parses a log. Any invalid line is an error.
    pub fn parse(text: &str) -> Result<Self, LogError> {
        let mut log = Self::default();
        let mut counts = 0_usize;
        for (index, line) in text.lines().enumerate() {
            let error = |what: String| LogError { line: index + 1, what };
            let line = line.trim_end_matches('\r');
            if line.is_empty() || line.starts_with('"') {
                continue;
            }
            if let Some(comment) = line.strip_prefix('#') {
                log.parse_comment(comment).map_err(error)?;
                continue;
            }
            if log.rows.len() == ROWS_MAX {
                return Err(error(format!("a log of more than {ROWS_MAX} rows")));
            }
            let row = parse_row(line).map_err(error)?;
            counts = counts.saturating_add(row.histogram.histogram().distinct_values());
            if counts > COUNTS_MAX {
                return Err(error("the log's histograms take too much memory".to_owned()));
            }
            log.rows.push(row);
        }
        Ok(log)
    }

    fn parse_comment(&mut self, comment: &str) -> Result<(), String> {
        let comment = comment.trim();
        if let Some(version) = comment.strip_prefix("[Histogram log format version ") {
            let version = version.trim_end_matches(']');
            let is_known = matches!(version, "1.0" | "1.1" | "1.2" | "1.3");
            return if is_known { Ok(()) } else { Err(format!("log version {version:?} is not supported")) };
        }
        for (name, place) in [("[StartTime:", &mut self.started_unix_s), ("[BaseTime:", &mut self.base_unix_s)] {
            if let Some(rest) = comment.strip_prefix(name) {
                let word = rest.split_whitespace().next().unwrap_or_default();
                *place = Some(parse_seconds(word.trim_end_matches(']'))?);
            }
        }
        Ok(())
    }
}

fn parse_row(line: &str) -> Result<Row, String> {
    let (tag, rest) = match line.strip_prefix("Tag=") {
        None => (None, line),
        Some(rest) => {
            let (tag, rest) = rest.split_once(',').ok_or_else(|| "a tag without a row".to_owned())?;
            (Some(tag.to_owned()), rest)
        }
    };
    let mut fields = rest.split(',');
    let mut field = |name: &str| fields.next().ok_or_else(|| format!("the row has no {name}"));
    let start_s = parse_seconds(field("start")?)?;
    let length_s = parse_seconds(field("length")?)?;
    let largest = field("largest value")?;
    largest.trim().parse::<f64>().map_err(|_| format!("the largest value {largest:?} is not a number"))?;
    let histogram = field("histogram")?.trim();
    if fields.next().is_some() {
        return Err("the row has more than four fields".to_owned());
    }
    let histogram = Hdr::parse(histogram).map_err(|error: HdrError| error.to_string())?;
    Ok(Row { tag, start_s, length_s, histogram })
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.trim().parse().map_err(|_| format!("{text:?} is not a time in seconds"))?;
    // 1e12 s are 30,000 years.
    if (0.0..1e12).contains(&seconds) { Ok(seconds) } else { Err(format!("{text:?} is out of range for a time")) }
}

#[cfg(test)]
mod tests;
