//! Lines whose responses have not been sent yet.

use super::line::{Gaps, append_filled};

/// Lines that wait for their responses to end.
#[derive(Clone, Debug, Default)]
pub struct Staged {
    text: Vec<u8>,
    lines: Vec<StagedLine>,
    /// Number of bytes of output sent since the lines were taken from the worker.
    taken: usize,
}

#[derive(Clone, Copy, Debug)]
struct StagedLine {
    /// The number of the log, constant while the process runs.
    log: u32,
    end: usize,
    gaps: Gaps,
    started_ns: u64,
    /// Offset in the output at which the response ends, if the end has already been appended to the output.
    output_end: Option<usize>,
}

/// A line whose response has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedLine<'a> {
    pub(super) log: u32,
    text: &'a [u8],
    bounds: (usize, usize),
    gaps: Gaps,
    ending: &'static str,
    duration_us: u64,
}

impl EndedLine<'_> {
    pub(super) fn append_to(&self, buffer: &mut Vec<u8>) {
        append_filled(buffer, self.text, self.bounds, self.gaps, self.ending, self.duration_us);
    }
}

impl Staged {
    /// Returns whether no line is staged.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub(super) const fn text_mut(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// Completes a line of `log`, which consists of the bytes appended since the previous line.
    pub(super) fn end_line(&mut self, log: u32, gaps: Gaps, started_ns: u64) {
        self.lines.push(StagedLine { log, end: self.text.len(), gaps, started_ns, output_end: None });
    }

    /// Records that the response of the last line ends at the current end of the output, at `output_bytes`.
    pub(super) fn mark(&mut self, output_bytes: usize) {
        if let Some(line) = self.lines.last_mut() {
            line.output_end.get_or_insert(output_bytes);
        }
    }

    /// Records that another `bytes` bytes of the output were sent.
    pub const fn advance(&mut self, bytes: usize) {
        self.taken += bytes;
    }

    /// Returns the lines with their endings: `sent` if the response lies within the sent output, and otherwise
    /// `ending`.
    pub(super) fn ended(&self, ending: &'static str, now_ns: u64) -> impl Iterator<Item = EndedLine<'_>> {
        let mut start = 0;
        self.lines.iter().map(move |line| {
            let bounds = (start, line.end);
            start = line.end;
            let ending = if line.output_end.is_some_and(|end| end <= self.taken) { "sent" } else { ending };
            // 0 means that there was no log when the request began, so the clock was not read.
            let started_ns = if line.started_ns == 0 { now_ns } else { line.started_ns };
            let duration_us = now_ns.saturating_sub(started_ns) / 1000;
            EndedLine { log: line.log, text: &self.text, bounds, gaps: line.gaps, ending, duration_us }
        })
    }

    /// Splits off the lines whose responses do not lie within the first `taken` bytes of output. The offsets of these
    /// lines then count from `taken`.
    pub(super) fn split_off_unsent(&mut self, taken: usize) -> Self {
        let is_sent = |line: &StagedLine| line.output_end.is_some_and(|end| end <= taken);
        // Responses are sent in the order of their lines.
        let count = self.lines.iter().take_while(|line| is_sent(line)).count();
        let text_start = count.checked_sub(1).map_or(0, |last| self.lines[last].end);
        // The lines are copied, so that the part retained for a slow client's responses is no larger than necessary.
        let mut unsent = Self { text: self.text[text_start..].to_vec(), lines: self.lines[count..].to_vec(), taken: 0 };
        self.text.truncate(text_start);
        self.lines.truncate(count);
        for line in &mut unsent.lines {
            line.end -= text_start;
            line.output_end = line.output_end.map(|end| end.saturating_sub(taken));
            for gap in &mut line.gaps {
                // A missing gap remains beyond the end of every line.
                gap.at = gap.at.saturating_sub(text_start);
            }
        }
        unsent
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.lines.clear();
    }

    /// Releases excess memory after an unusually large batch of lines.
    pub(super) fn shrink(&mut self, text_bytes: usize) {
        if self.text.capacity() > text_bytes {
            self.text.shrink_to(text_bytes);
            self.lines.shrink_to(text_bytes / 64);
        }
    }
}
