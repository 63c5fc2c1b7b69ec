//! Where each line of a chunk comes from.

use flatout_config::model::Place;

/// The lines of a chunk, in the files of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// The files as they are shown, by number.
    files: Vec<String>,
    /// By line of the chunk, from 0.
    origins: Vec<Origin>,
    /// Whether the page has code at all.
    has_code: bool,
}

/// Where a line of the chunk comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// The file's number.
    pub(super) file: u32,
    /// The line there, from 1.
    pub(super) line: u32,
    /// The column there where the line of the chunk begins, from 1.
    pub(super) column: u32,
}

impl Lines {
    pub(super) fn new(files: Vec<String>, origins: Vec<Origin>, has_code: bool) -> Self {
        Self { files, origins, has_code }
    }

    /// Where the line `line`, from 1, of the chunk comes from.
    pub fn place(&self, line: u32) -> Option<Place> {
        let origin = self.origins.get((line as usize).checked_sub(1)?)?;
        let file = self.files.get(origin.file as usize)?.clone();
        Some(Place { file, line: origin.line, column: origin.column })
    }

    /// How many lines the chunk has.
    pub fn len(&self) -> usize {
        self.origins.len()
    }

    /// Whether the chunk has none.
    pub fn is_empty(&self) -> bool {
        self.origins.is_empty()
    }

    pub(super) fn is_static(&self) -> bool {
        !self.has_code
    }
}
