//! The reader's inputs and its report, which every block gets.

use crate::diagnostic::{Report, Span, Texts};
use crate::model::Place;
use crate::source::Sources;
use std::path::{Path, PathBuf};

/// The inputs of the reader other than the tree, and its report.
pub(crate) struct Reader<'a> {
    pub(super) report: &'a mut Report,
    pub(super) texts: &'a Texts,
    pub(super) paths: &'a [PathBuf],
    pub(super) sources: &'a dyn Sources,
    /// Returns where the setting with this name belongs, if it is allowed anywhere.
    pub(super) home_of: fn(&str) -> Option<&'static str>,
    /// The contents of the files that `(file)` values have referred to so far.
    pub(super) secrets: Vec<String>,
}

impl Reader<'_> {
    pub(super) fn place(&self, span: Span) -> Place {
        self.texts.place(span)
    }

    /// Resolves a path relative to the file that mentions it.
    pub(super) fn resolve(&self, span: Span, path: &str) -> PathBuf {
        let file = self.paths.get(span.file as usize);
        file.and_then(|file| file.parent()).unwrap_or(Path::new("")).join(path)
    }
}
