//! Mapping from the lines of a chunk to the files of the page.

use super::{FILE_BYTES_MAX, Files};
use flatout_config::diagnostic::{Report, Span, Texts};
use flatout_config::model::Place;
use flatout_config::{Code, Diagnostics};

/// Maps each line of a chunk to its source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineMap {
    /// The files' names relative to the folder, by number.
    files: Vec<String>,
    /// The source of each line of the chunk.
    origins: Vec<LineOrigin>,
    /// True if the page contains code.
    has_code: bool,
}

/// The source of a line of the chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineOrigin {
    /// The number of the file.
    pub(super) file: u32,
    /// The line in the file, counted from 1.
    pub(super) line: u32,
    /// The column in the file at which the chunk's line starts, counted from 1.
    pub(super) column: u32,
}

impl LineMap {
    pub(super) fn new(files: Vec<String>, origins: Vec<LineOrigin>, has_code: bool) -> Self {
        Self { files, origins, has_code }
    }

    /// Returns the source of line `line` of the chunk, counted from 1. The file's name is relative to the folder.
    pub fn place(&self, line: u32) -> Option<Place> {
        let origin = self.origins.get((line as usize).checked_sub(1)?)?;
        let file = self.files.get(origin.file as usize)?.clone();
        Some(Place { file, line: origin.line, column: origin.column })
    }

    /// Returns the same table with the files' display names, which `show` returns.
    #[must_use]
    pub fn shown(&self, show: impl Fn(&str) -> String) -> Self {
        Self { files: self.files.iter().map(|name| show(name)).collect(), ..self.clone() }
    }

    /// Creates a diagnostic for an error in line `line` of the chunk, which shows the source line of the page; the file
    /// is read again for this. `code` is [`Code::LuauBad`] for an error in compiling, and [`Code::PageFailed`] for an
    /// error in running.
    pub fn blame(&self, line: u32, code: Code, message: &str, files: &dyn Files) -> Diagnostics {
        let (mut texts, mut report) = (Texts::default(), Report::new());
        let Some(place) = self.place(line) else {
            let file = texts.add(self.files.first().map_or_else(String::new, |name| files.show(name)), String::new());
            report.add(code, Span::new(file, 0, 0), message);
            return report.finish(&texts);
        };
        let content = files.read(&place.file, FILE_BYTES_MAX).unwrap_or_default();
        let text = String::from_utf8(content).unwrap_or_default();
        let row = text.split('\n').nth(place.line as usize - 1).unwrap_or_default();
        let skipped = row.char_indices().nth(place.column as usize - 1).map_or(row.len(), |(at, _)| at);
        let meant = row[skipped..].split("?>").next().unwrap_or_default().trim_end().len();
        let shown = files.show(&place.file);
        if text.is_empty() {
            // The file no longer exists, but its name and the line number are still valid.
            return Diagnostics::of(code, Place { file: shown, ..place }, message);
        }
        let file = texts.add(shown, text);
        let start = texts.offset(file, place.line as usize, 1) + skipped;
        report.add(code, Span::new(file, start, start + meant), message);
        report.finish(&texts)
    }

    /// Number of lines in the chunk.
    pub fn len(&self) -> usize {
        self.origins.len()
    }

    /// Returns whether the chunk has no lines.
    pub fn is_empty(&self) -> bool {
        self.origins.is_empty()
    }

    pub(super) fn is_static(&self) -> bool {
        !self.has_code
    }
}
