//! The source texts of a configuration, and places in them.

use super::{Excerpt, printable};
use crate::model::Place;
use std::cell::Cell;

/// The maximum number of characters shown of a line. A longer line is shortened around the relevant place.
const LINE_CHARACTERS_MAX: usize = 100;

/// A byte range of a source text. Texts are at most 1 MiB, so 32 bits suffice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The index of the text.
    pub file: u32,
    /// The offset of the first byte.
    pub start: u32,
    /// The offset after the last byte.
    pub end: u32,
}

impl Span {
    /// The range from byte `start` to before byte `end` of the text with index `file`.
    pub fn new(file: u32, start: usize, end: usize) -> Self {
        Self { file, start: start as u32, end: end as u32 }
    }
}

/// All source texts that have been read.
#[derive(Debug, Default)]
pub struct Texts {
    list: Vec<Text>,
    /// The last place that was looked up, from which the next lookup continues counting. Most places are looked up in
    /// order, and a hostile file may be a single line of 1 MiB, whose characters must not be counted from the beginning
    /// each time.
    last: Cell<Counted>,
}

/// The number of characters between the beginning of a line and an offset in it.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    file: u32,
    line_start: usize,
    offset: usize,
    characters: usize,
}

#[derive(Debug)]
struct Text {
    name: String,
    content: String,
    /// The offset at which each line begins.
    lines: Vec<usize>,
}

impl Texts {
    /// The number of the line in which `span` begins, counted from 0.
    pub(crate) fn line(&self, span: Span) -> usize {
        self.list.get(span.file as usize).map_or(0, |text| text.line_of(span.start as usize))
    }

    /// Adds a source text and returns its index.
    pub fn add(&mut self, name: String, text: String) -> u32 {
        let starts = text.match_indices('\n').map(|(at, _)| at + 1);
        let lines = std::iter::once(0).chain(starts).collect();
        self.list.push(Text { name, content: text, lines });
        (self.list.len() - 1) as u32
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// The total length of all texts, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.list.iter().map(|text| text.content.len()).sum()
    }

    /// The text with index `file`; an empty string if there is none.
    pub fn text(&self, file: u32) -> &str {
        self.list.get(file as usize).map_or("", |text| text.content.as_str())
    }

    /// Converts a line and a column, both counted from 1, to a byte offset. Columns count bytes.
    pub fn offset(&self, file: u32, line: usize, column: usize) -> usize {
        let Some(text) = self.list.get(file as usize) else { return 0 };
        let start = text.lines.get(line.saturating_sub(1)).copied().unwrap_or(0);
        let mut at = (start + column.saturating_sub(1)).min(text.content.len());
        while !text.content.is_char_boundary(at) {
            at -= 1;
        }
        at
    }

    /// Returns the excerpt for the word at `place` in `content`.
    pub(crate) fn excerpt_at(content: String, place: &Place) -> Option<Excerpt> {
        let mut texts = Self::default();
        let file = texts.add(String::new(), content);
        let text = texts.list.first()?;
        let line = (place.line as usize).checked_sub(1).filter(|line| *line < text.lines.len())?;
        let skipped = text.line(line).char_indices().nth((place.column as usize).saturating_sub(1));
        let start = text.lines[line] + skipped.map_or(0, |(at, _)| at);
        let word = text.content[start..].find(|c: char| c.is_whitespace() || matches!(c, '{' | ';')).unwrap_or(0);
        texts.excerpt(Span::new(file, start, start + word))
    }

    /// Returns the line and column at which `span` begins, counted from 1. Columns count characters.
    pub fn place(&self, span: Span) -> Place {
        let Some(text) = self.list.get(span.file as usize) else {
            return Place::default();
        };
        if text.content.is_empty() {
            // There is no line to point at: the file may have been unreadable.
            return Place { file: text.name.clone(), line: 0, column: 0 };
        }
        let line = text.line_of(span.start as usize);
        let (line_start, offset) = (text.lines[line], span.start as usize);
        let last = self.last.get();
        let follows = (last.file, last.line_start) == (span.file, line_start) && last.offset <= offset;
        let (from, counted) = if follows { (last.offset, last.characters) } else { (line_start, 0) };
        let characters = counted + text.content.get(from..offset).map_or(0, |between| between.chars().count());
        self.last.set(Counted { file: span.file, line_start, offset, characters });
        Place { file: text.name.clone(), line: line as u32 + 1, column: characters as u32 + 1 }
    }

    /// Returns the line in which `span` begins, with the part to point at.
    pub(crate) fn excerpt(&self, span: Span) -> Option<Excerpt> {
        let text = self.list.get(span.file as usize)?;
        let line = text.line_of(span.start as usize);
        let content = text.line(line);
        if text.content.is_empty() {
            return None;
        }
        let from = (span.start as usize).saturating_sub(text.lines[line]);
        let to = ((span.end as usize).saturating_sub(text.lines[line])).min(content.len());
        let caret_start = content.get(..from).unwrap_or(content).chars().count();
        let caret_width = content.get(from..to).map_or(1, |meant| meant.chars().count().max(1));
        let before = line.checked_sub(1).map(|before| text.line(before)).filter(|before| !before.trim().is_empty());
        let before = before.map(|before| cut(before, 0).0);
        let (line, skipped) = cut(content, caret_start);
        let shift = if skipped == 0 { 0 } else { skipped - 1 };
        let caret_start = caret_start - shift;
        let caret_width = caret_width.min((LINE_CHARACTERS_MAX + 1).saturating_sub(caret_start)).max(1);
        Some(Excerpt { before, line, caret_start, caret_width })
    }
}

impl Text {
    fn line_of(&self, offset: usize) -> usize {
        self.lines.partition_point(|start| *start <= offset).saturating_sub(1)
    }

    fn line(&self, line: usize) -> &str {
        let start = self.lines[line];
        let end = self.lines.get(line + 1).copied().unwrap_or(self.content.len());
        self.content.get(start..end).unwrap_or("").trim_end_matches(['\n', '\r'])
    }
}

/// Returns the part of a line around the character `around` that is shown, and the number of characters left out before
/// it. An ellipsis marks each end at which characters are left out.
fn cut(line: &str, around: usize) -> (String, usize) {
    let skipped = around.saturating_sub(LINE_CHARACTERS_MAX * 3 / 4);
    let mut shown = String::new();
    let mut rest = line.chars().skip(skipped);
    if skipped > 0 {
        shown.push('…');
    }
    shown.extend(rest.by_ref().take(LINE_CHARACTERS_MAX).map(|c| if c == '\t' { ' ' } else { c }));
    if rest.next().is_some() {
        shown.push('…');
    }
    (printable(&shown), skipped)
}

#[cfg(test)]
mod tests {
    use super::{Place, Span, Texts};

    #[test]
    fn a_place_counts_characters_and_an_excerpt_has_the_line_before() {
        let mut texts = Texts::default();
        let file = texts.add("a.kdl".into(), "eins\r\nzwei ü drei\n".into());
        let span = Span::new(file, 14, 18);
        let place = texts.place(span);
        assert_eq!((place.line, place.column), (2, 8));
        let excerpt = texts.excerpt(span).unwrap();
        assert_eq!(excerpt.before.as_deref(), Some("eins"));
        assert_eq!((excerpt.line.as_str(), excerpt.caret_start, excerpt.caret_width), ("zwei ü drei", 7, 4));
    }

    #[test]
    fn a_long_line_is_cut_around_the_caret() {
        let mut texts = Texts::default();
        let line = format!("{}X{}", "a".repeat(500), "b".repeat(500));
        let file = texts.add("a.kdl".into(), line);
        let excerpt = texts.excerpt(Span::new(file, 500, 501)).unwrap();
        assert_eq!(excerpt.line.chars().nth(excerpt.caret_start), Some('X'));
        assert!(excerpt.line.chars().count() <= 102 && excerpt.caret_width == 1);
        let whole = texts.excerpt(Span::new(file, 0, 1001)).unwrap();
        assert!(whole.caret_width <= 101);
    }

    #[test]
    fn a_place_that_is_remembered_finds_its_word() {
        let place = |line, column| Place { file: String::new(), line, column };
        let text = "site {\n  ü files \".\"\n}\n";
        let excerpt = Texts::excerpt_at(text.into(), &place(2, 5)).unwrap();
        assert_eq!((excerpt.line.as_str(), excerpt.caret_start, excerpt.caret_width), ("  ü files \".\"", 4, 5));
        assert_eq!(Texts::excerpt_at(text.into(), &place(9, 1)), None);
        assert_eq!(Texts::excerpt_at(text.into(), &place(0, 0)), None);
        assert!(Texts::excerpt_at(text.into(), &place(1, 99)).is_some());
    }

    #[test]
    fn the_end_and_an_empty_text_have_places_too() {
        let mut texts = Texts::default();
        let empty = texts.add("empty.kdl".into(), String::new());
        assert_eq!(texts.place(Span::new(empty, 0, 0)).line, 0);
        assert_eq!(texts.excerpt(Span::new(empty, 0, 0)), None);
        let file = texts.add("a.kdl".into(), "a\n".into());
        assert_eq!(texts.place(Span::new(file, 2, 2)).line, 2);
        assert!(texts.excerpt(Span::new(file, 2, 2)).is_some());
    }
}
