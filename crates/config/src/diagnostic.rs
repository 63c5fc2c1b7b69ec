//! Diagnostics: the mistake, its place and the remedy, as values, as text for people and as JSON for programs.
//!
//! While a configuration is read, mistakes are gathered as drafts that point into texts by offset. At the end they are
//! sorted by place, bounded in number, and given their lines, so that a [`Diagnostic`] stands by itself.

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

/// Diagnostics shown at most; the rest is counted. A person mends a few and asks again.
pub const SHOWN_MAX: usize = 50;

/// Drafts held at most while reading: a hostile file must not grow memory without bound.
const DRAFTS_MAX: usize = 1_000;

/// Characters of a message: enough for every list of what is allowed.
const MESSAGE_CHARACTERS_MAX: usize = 300;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Its kind.
    pub code: Code,
    /// The mistake, in one line.
    pub message: String,
    /// Where.
    pub place: Place,
    /// The lines meant, when there is a text.
    pub excerpt: Option<Excerpt>,
    /// The text after the caret; may be empty.
    pub label: String,
    /// Other places that belong to it.
    pub related: Vec<Related>,
    /// The remedy, or the permitted values.
    pub notes: Vec<String>,
}

/// Another place that belongs to a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Related {
    /// Where.
    pub place: Place,
    /// Its lines.
    pub excerpt: Option<Excerpt>,
    /// Its relation to the mistake.
    pub label: String,
}

/// A line with what is meant in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The line before, when it holds something.
    pub before: Option<String>,
    /// The line itself, cut to what fits on a screen.
    pub line: String,
    /// Characters before the caret.
    pub caret_start: usize,
    /// Carets.
    pub caret_width: usize,
}

/// All mistakes of a configuration, in the order of their places. Never empty when it is an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics {
    /// The first of them.
    pub list: Vec<Diagnostic>,
    /// How many more there are.
    pub more: usize,
}

impl Diagnostics {
    /// A single one that concerns no line.
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

    /// A single one, found after reading, at a place that a [`crate::model`] value remembers: the line is read again.
    /// A place without a line, as settings from flags have, and a file that is gone, are shown without it.
    pub fn at(code: Code, place: &Place, message: impl Into<String>, sources: &dyn Sources) -> Self {
        let mut found = Self::of(code, place.clone(), message);
        let content = sources.read(Path::new(&place.file), FILE_BYTES_MAX).ok().filter(|_| place.line > 0);
        if let (Some(Ok(text)), Some(first)) = (content.map(String::from_utf8), found.list.first_mut()) {
            first.excerpt = Texts::excerpt_at(text, place);
        }
        found
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.list.len() + self.more
    }
}

impl std::fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.render(Style::Plain))
    }
}

impl std::error::Error for Diagnostics {}

/// A mistake while it is gathered.
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
    /// Sets what stands behind the caret.
    pub fn label(&mut self, label: impl Into<String>) -> &mut Self {
        self.label = label.into();
        self
    }

    /// Adds what to do, or what is allowed.
    pub fn note(&mut self, note: impl Into<String>) -> &mut Self {
        self.notes.push(note.into());
        self
    }

    /// Adds another place that belongs to it.
    pub fn related(&mut self, span: Span, label: impl Into<String>) -> &mut Self {
        self.related.push((span, label.into()));
        self
    }
}

/// Mistakes while they are gathered: of a configuration, or of another text whose mistakes are told in the same style.
#[derive(Debug)]
pub struct Report {
    drafts: Vec<Draft>,
    /// Takes what comes when there is no more room.
    overflow: Draft,
    dropped: usize,
}

impl Default for Report {
    fn default() -> Self {
        Self::new()
    }
}

impl Report {
    /// None yet.
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

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.drafts.is_empty()
    }

    /// Returns true if there is no more room: what comes is only counted, so its words need no care.
    pub(crate) fn is_full(&self) -> bool {
        self.drafts.len() == DRAFTS_MAX
    }

    /// How many there are by now.
    pub fn count(&self) -> usize {
        self.drafts.len() + self.dropped
    }

    /// Returns true if a kind for which `is_meant` holds is among those after the first `count`.
    pub(crate) fn has_since(&self, count: usize, is_meant: fn(Code) -> bool) -> bool {
        self.drafts.iter().skip(count).any(|draft| is_meant(draft.code))
    }

    /// Of those after the first `count`, which are of syntax, keeps what stands for itself and not on a line with one of these.
    pub(crate) fn keep_certain_since(&mut self, count: usize, texts: &Texts) {
        let line_of = |span: Span| (span.file, texts.line(span));
        let broken: Vec<_> = self.drafts.iter().take(count).map(|draft| line_of(draft.span)).collect();
        let mut index = 0;
        self.drafts.retain(|draft| {
            index += 1;
            index <= count || draft.code.stands_for_itself() && !broken.contains(&line_of(draft.span))
        });
    }

    /// Returns true if one of this kind begins here already.
    pub fn has_at(&self, code: Code, span: Span) -> bool {
        self.drafts
            .iter()
            .any(|draft| draft.code == code && (draft.span.file, draft.span.start) == (span.file, span.start))
    }

    /// Returns true if there is one of this kind in the same text.
    pub fn has_in(&self, code: Code, span: Span) -> bool {
        self.drafts.iter().any(|draft| draft.code == code && draft.span.file == span.file)
    }

    /// Adds one; label, notes and other places can be put to what is returned.
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

    /// Gives the drafts their lines.
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

/// A text of a message, which may quote what was read: printable, and no longer than a few lines.
fn shorten(text: &str) -> String {
    let mut shown: String = printable(text).chars().take(MESSAGE_CHARACTERS_MAX).collect();
    if shown.len() < text.len() && text.chars().count() > MESSAGE_CHARACTERS_MAX {
        shown.push('…');
    }
    shown
}

/// A text without what could steer a terminal or mislead its reader.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_mark(c) { '\u{fffd}' } else { c }).collect()
}

/// Marks that change the direction of writing, and other characters that only pretend to be nothing.
pub(crate) fn is_mark(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}
