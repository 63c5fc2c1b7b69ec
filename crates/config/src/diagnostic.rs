//! Diagnostics: the mistake, its place and the remedy, as values, as text for people and as JSON for programs.
//!
//! While a configuration is read, mistakes are collected as drafts that refer to the source texts by offset. At the
//! end, they are sorted by place, limited in number, and given their source lines, so that a [`Diagnostic`] is
//! independent of the texts.

mod json;
mod render;
mod text;

pub use render::Style;
pub use text::{Span, Texts};

use crate::code::Code;
use crate::model::Place;
use crate::source::Sources;
use crate::syntax::FILE_BYTES_MAX;
use std::path::Path;

/// The maximum number of diagnostics shown; further diagnostics are only counted. Users fix a few and validate again.
pub const SHOWN_MAX: usize = 50;

/// The maximum number of drafts, which bounds the memory that a hostile file can cause to be used.
const DRAFTS_MAX: usize = 1_000;

/// The maximum length of a message in characters; enough for every list of allowed settings.
const MESSAGE_CHARACTERS_MAX: usize = 300;

/// A mistake, with its place and its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The kind of the mistake.
    pub code: Code,
    /// Description of the mistake, in one line.
    pub message: String,
    /// Where the mistake is.
    pub place: Place,
    /// The source lines that the diagnostic points at; `None` if there is no source text.
    pub excerpt: Option<Excerpt>,
    /// The text after the carets; may be empty.
    pub label: String,
    /// Other places that explain the mistake, such as the first of two equal settings.
    pub related: Vec<Related>,
    /// Notes that state the remedy or the permitted values.
    pub notes: Vec<String>,
}

/// Another place that explains a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Related {
    /// Where the related item is.
    pub place: Place,
    /// The source lines at this place.
    pub excerpt: Option<Excerpt>,
    /// How this place is related to the mistake.
    pub label: String,
}

/// A source line, with the part that the diagnostic points at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The previous line, unless it is blank.
    pub before: Option<String>,
    /// The line itself, shortened to fit on a screen.
    pub line: String,
    /// The number of characters before the first caret.
    pub caret_start: usize,
    /// The number of carets.
    pub caret_width: usize,
}

/// All diagnostics of a configuration, sorted by place. Never empty when returned as an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.render(Style::Plain))]
pub struct Diagnostics {
    /// The first [`SHOWN_MAX`] diagnostics.
    pub list: Vec<Diagnostic>,
    /// The number of further diagnostics.
    pub more: usize,
}

impl Diagnostics {
    /// Creates a list with a single diagnostic that shows no source line.
    pub fn of(code: Code, place: Place, message: impl Into<String>) -> Self {
        let diagnostic = Diagnostic {
            code,
            message: message.into(),
            place,
            excerpt: None,
            label: String::new(),
            related: Vec::new(),
            notes: Vec::new(),
        };
        Self { list: vec![diagnostic], more: 0 }
    }

    /// Creates a list with a single diagnostic for a mistake that is found after reading, at a place that a
    /// [`crate::model`] value recorded. The file is read again to obtain the source line. If the place has no line, as
    /// for settings from flags, or if the file no longer exists, no line is shown.
    pub fn at(code: Code, place: &Place, message: impl Into<String>, sources: &dyn Sources) -> Self {
        let mut found = Self::of(code, place.clone(), message);
        let content = sources.read(Path::new(&place.file), FILE_BYTES_MAX).ok().filter(|_| place.line > 0);
        if let (Some(Ok(text)), Some(first)) = (content.map(String::from_utf8), found.list.first_mut()) {
            first.excerpt = Texts::excerpt_at(text, place);
        }
        found
    }

    /// The number of diagnostics, including those that are only counted.
    pub fn count(&self) -> usize {
        self.list.len() + self.more
    }
}

/// A diagnostic under construction.
#[derive(Debug)]
pub struct Draft {
    code: Code,
    span: Span,
    message: String,
    label: String,
    related: Vec<(Span, String)>,
    notes: Vec<String>,
}

impl Draft {
    /// Sets the text after the carets.
    pub fn label(&mut self, label: impl Into<String>) -> &mut Self {
        self.label = label.into();
        self
    }

    /// Sets the label to a suggestion of the name that was probably meant, if `near` contains one.
    pub fn meant(&mut self, near: Option<&str>) -> &mut Self {
        if let Some(near) = near {
            self.label = format!("did you mean `{near}`?");
        }
        self
    }

    /// Adds a note that says what to do or what is allowed.
    pub fn note(&mut self, note: impl Into<String>) -> &mut Self {
        self.notes.push(note.into());
        self
    }

    /// Adds another place that explains the mistake.
    pub fn related(&mut self, span: Span, label: impl Into<String>) -> &mut Self {
        self.related.push((span, label.into()));
        self
    }
}

/// Collects the diagnostics of a configuration, or of another kind of file that is reported in the same style.
#[derive(Debug)]
pub struct Report {
    drafts: Vec<Draft>,
    /// Stands in for all drafts beyond the limit, and is discarded.
    overflow: Draft,
    dropped: usize,
}

impl Default for Report {
    fn default() -> Self {
        Self::new()
    }
}

impl Report {
    /// An empty report.
    pub fn new() -> Self {
        let overflow = Draft {
            code: Code::Syntax,
            span: Span::default(),
            message: String::new(),
            label: String::new(),
            related: Vec::new(),
            notes: Vec::new(),
        };
        Self { drafts: Vec::new(), overflow, dropped: 0 }
    }

    /// Returns true if the report has no diagnostics.
    pub fn is_empty(&self) -> bool {
        self.drafts.is_empty()
    }

    /// Returns true if the limit is reached. Further diagnostics are only counted, so their content does not matter.
    pub(crate) fn is_full(&self) -> bool {
        self.drafts.len() == DRAFTS_MAX
    }

    /// The number of diagnostics so far.
    pub fn count(&self) -> usize {
        self.drafts.len() + self.dropped
    }

    /// Returns true if any diagnostic after the first `count` has a code for which `is_meant` returns true.
    pub(crate) fn has_since(&self, count: usize, is_meant: fn(Code) -> bool) -> bool {
        self.drafts.iter().skip(count).any(|draft| is_meant(draft.code))
    }

    /// Treats the first `count` diagnostics as syntax errors. Of the later ones, keeps only those that are certain
    /// ([`Code::stands_for_itself`]) and not on the same line as a syntax error.
    pub(crate) fn keep_certain_since(&mut self, count: usize, texts: &Texts) {
        let line_of = |span: Span| (span.file, texts.line(span));
        let broken: Vec<_> = self.drafts.iter().take(count).map(|draft| line_of(draft.span)).collect();
        let mut index = 0;
        self.drafts.retain(|draft| {
            index += 1;
            index <= count || draft.code.stands_for_itself() && !broken.contains(&line_of(draft.span))
        });
    }

    /// Returns true if there is already a diagnostic with this code at this place.
    pub fn has_at(&self, code: Code, span: Span) -> bool {
        self.drafts
            .iter()
            .any(|draft| draft.code == code && (draft.span.file, draft.span.start) == (span.file, span.start))
    }

    /// Returns true if there is already a diagnostic with this code in the same source text.
    pub fn has_in(&self, code: Code, span: Span) -> bool {
        self.drafts.iter().any(|draft| draft.code == code && draft.span.file == span.file)
    }

    /// Adds a diagnostic. The caller can add a label, notes and related places to the returned draft.
    pub fn add(&mut self, code: Code, span: Span, message: impl Into<String>) -> &mut Draft {
        let draft =
            Draft { code, span, message: message.into(), label: String::new(), related: Vec::new(), notes: Vec::new() };
        if self.drafts.len() == DRAFTS_MAX {
            self.dropped += 1;
            self.overflow = draft;
            return &mut self.overflow;
        }
        self.drafts.push(draft);
        let last = self.drafts.len() - 1;
        &mut self.drafts[last]
    }

    /// Turns the drafts into diagnostics with their source lines.
    pub fn finish(mut self, texts: &Texts) -> Diagnostics {
        self.drafts.sort_by_key(|draft| (draft.span.file, draft.span.start));
        let more = self.drafts.len().saturating_sub(SHOWN_MAX) + self.dropped;
        let list = self.drafts.into_iter().take(SHOWN_MAX).map(|draft| settle(draft, texts)).collect();
        Diagnostics { list, more }
    }
}

fn settle(draft: Draft, texts: &Texts) -> Diagnostic {
    let related = |(span, label)| Related { place: texts.place(span), excerpt: texts.excerpt(span), label };
    Diagnostic {
        code: draft.code,
        message: shorten(&draft.message),
        place: texts.place(draft.span),
        excerpt: texts.excerpt(draft.span),
        label: shorten(&draft.label),
        related: draft.related.into_iter().map(related).collect(),
        notes: draft.notes.iter().map(|note| shorten(note)).collect(),
    }
}

/// Makes a message printable and limits its length, because the message may quote arbitrary input.
fn shorten(text: &str) -> String {
    let mut shown: String = printable(text).chars().take(MESSAGE_CHARACTERS_MAX).collect();
    if shown.len() < text.len() && text.chars().count() > MESSAGE_CHARACTERS_MAX {
        shown.push('…');
    }
    shown
}

/// Replaces characters that could control a terminal or mislead a reader with U+FFFD.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_mark(c) { '\u{fffd}' } else { c }).collect()
}

/// Returns true for characters that change the writing direction, and for other invisible characters.
pub(crate) fn is_mark(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}
