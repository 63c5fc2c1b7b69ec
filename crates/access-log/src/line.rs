//! A line in the format of its log, with gaps for values that become known last.

use super::combined::append_combined;
use super::json::JsonForm;
use super::record::{LoggedResponse, Record};
use super::short::{append_milliseconds, append_short};
use super::text::Dates;
use flatout_http::access::{LogFormat, LogSettings};
use flatout_http::token::append_decimal;

/// A value that is known only when the response has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    Ending,
    DurationUs,
    DurationMs,
}

/// The position of a value to be filled in. A position beyond the end of the line means that there is no gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) at: usize,
    pub(super) late: Late,
}

impl Gap {
    pub(super) const NONE: Self = Self { at: usize::MAX, late: Late::Ending };
}

/// The gaps of a line in ascending order, as offsets from the start of the buffer to which the line was appended.
pub(super) type Gaps = [Gap; 2];

/// The format of a log's lines.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Form {
    Combined,
    Short,
    Json(JsonForm),
}

impl Form {
    pub(super) fn new(settings: &LogSettings) -> Self {
        match settings.format {
            LogFormat::Combined => Self::Combined,
            LogFormat::Short => Self::Short,
            LogFormat::Json => Self::Json(JsonForm::new(&settings.fields)),
        }
    }

    /// Appends a line, including its line end, with gaps for late values.
    pub(super) fn append(
        &self,
        text: &mut Vec<u8>,
        dates: &mut Dates,
        record: &Record<'_>,
        answer: &LoggedResponse<'_>,
    ) -> Gaps {
        match self {
            Self::Combined => append_combined(text, dates, record, answer),
            Self::Short => append_short(text, record, answer),
            Self::Json(form) => form.append(text, dates, record, answer),
        }
    }
}

/// Appends `text[start..end]` with the values filled into its gaps.
pub(super) fn append_filled(
    line: &mut Vec<u8>,
    text: &[u8],
    (start, end): (usize, usize),
    gaps: Gaps,
    ending: &str,
    duration_us: u64,
) {
    let mut start = start;
    for gap in gaps {
        if gap.at > end {
            break;
        }
        line.extend_from_slice(&text[start..gap.at]);
        match gap.late {
            Late::Ending => line.extend_from_slice(ending.as_bytes()),
            Late::DurationUs => append_decimal(line, duration_us),
            Late::DurationMs => append_milliseconds(line, duration_us),
        }
        start = gap.at;
    }
    line.extend_from_slice(&text[start..end]);
}
