//! Mapping of a chunk's lines to the page's files.

use super::{FILE_BYTES_MAX, Files};
use flatout_config::diagnostic::{Report, Span, Texts};
use flatout_config::model::Place;
use flatout_config::{Code, Diagnostics};

/// The source of each line of a chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineMap {
    /// The files' names in the folder, by number.
    files: Vec<String>,
    /// By line of the chunk, from 0.
    origins: Vec<LineOrigin>,
    /// True if the page has code.
    has_code: bool,
}

/// The source of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineOrigin {
    /// The file's number.
    pub(super) file: u32,
    /// The line there, from 1.
    pub(super) line: u32,
    /// The column there at which the chunk's line starts, from 1.
    pub(super) column: u32,
}

impl LineMap {
    pub(super) fn new(files: Vec<String>, origins: Vec<LineOrigin>, has_code: bool) -> Self {
        Self { files, origins, has_code }
    }

    /// The source of line `line`, from 1. The file has its name in the folder.
    pub fn place(&self, line: u32) -> Option<Place> {
        let origin = self.origins.get((line as usize).checked_sub(1)?)?;
        let file = self.files.get(origin.file as usize)?.clone();
        Some(Place { file, line: origin.line, column: origin.column })
    }

    /// The same table with the files' display names from `show`.
    #[must_use]
    pub fn shown(&self, show: impl Fn(&str) -> String) -> Self {
        Self { files: self.files.iter().map(|name| show(name)).collect(), ..self.clone() }
    }

    /// A diagnostic of the interpreter's error in line `line` of the chunk, with the line of the page, which is read
    /// again: [`Code::LuauBad`] from compiling, [`Code::PageFailed`] from running.
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
            // The file no longer exists; its name and the line's number are still valid.
            return Diagnostics::of(code, Place { file: shown, ..place }, message);
        }
        let file = texts.add(shown, text);
        let start = texts.offset(file, place.line as usize, 1) + skipped;
        report.add(code, Span::new(file, start, start + meant), message);
        report.finish(&texts)
    }

    /// Number of lines.
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
