//! Splits a document into tokens. Comments are tokens too, so that the formatter can preserve them.

use crate::code::Code;
use crate::diagnostic::{Report, Span};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// Unquoted characters: a name, a number, or a string that should be quoted.
    Word,
    /// A string in any of the four quoted forms.
    Quoted,
    /// One of `#true`, `#false`, `#null`, `#inf`, `#-inf`, `#nan`.
    Keyword,
    Newline,
    Semicolon,
    Open,
    Close,
    ParenOpen,
    ParenClose,
    Equals,
    /// The marker `/-`, which disables the setting, value or block after it.
    Slashdash,
    /// A comment that begins with `//`, without its newline.
    LineComment,
    BlockComment,
    /// A line continuation: from the `\` up to and including the newline.
    Continuation,
}

/// A token and its byte range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Returns true for a newline (KDL 2 specification, section 3.18).
pub(crate) fn is_newline(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{0b}' | '\u{0c}' | '\u{2028}' | '\u{2029}')
}

/// Returns true for white space (KDL 2 specification, section 3.17).
fn is_space(c: char) -> bool {
    matches!(c, '\t' | ' ' | '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}')
}

/// Returns true for a character that a document must not contain (KDL 2 specification, section 3.19).
fn is_forbidden(c: char) -> bool {
    matches!(c, '\0'..='\u{08}' | '\u{0e}'..='\u{1f}' | '\u{7f}' | '\u{200e}' | '\u{200f}'
        | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

const KEYWORDS: [&str; 6] = ["#true", "#false", "#null", "#inf", "#-inf", "#nan"];

/// Splits a document into tokens. Reports mistakes and continues after them.
pub(crate) fn scan(file: u32, text: &str, report: &mut Report) -> Vec<Token> {
    let start = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let mut scanner = Scanner { file, text, at: start, tokens: Vec::new(), report };
    scanner.find_forbidden(start);
    while scanner.step() {}
    scanner.tokens
}

struct Scanner<'a> {
    file: u32,
    text: &'a str,
    at: usize,
    tokens: Vec<Token>,
    report: &'a mut Report,
}

impl Scanner<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn span(&self, start: usize, end: usize) -> Span {
        Span::new(self.file, start, end)
    }

    fn take(&mut self, kind: TokenKind, length: usize) {
        let start = self.at;
        self.at += length;
        self.tokens.push(Token { kind, start, end: self.at });
    }

    fn find_forbidden(&mut self, start: usize) {
        for (at, c) in self.text[start..].char_indices().filter(|(_, c)| is_forbidden(*c)) {
            let at = start + at;
            let message = format!("forbidden character U+{:04X}", c as u32);
            self.report
                .add(Code::CharacterBad, Span::new(self.file, at, at + c.len_utf8()), message)
                .note("in strings, write control and bidirectional formatting characters as escapes: \"\\u{7f}\"");
        }
    }

    fn step(&mut self) -> bool {
        let rest = self.rest();
        let Some(c) = rest.chars().next() else {
            return false;
        };
        match c {
            '\r' if rest.starts_with("\r\n") => self.take(TokenKind::Newline, 2),
            c if is_newline(c) => self.take(TokenKind::Newline, c.len_utf8()),
            c if is_space(c) || is_forbidden(c) => self.at += c.len_utf8(),
            ';' => self.take(TokenKind::Semicolon, 1),
            '{' => self.take(TokenKind::Open, 1),
            '}' => self.take(TokenKind::Close, 1),
            '(' => self.take(TokenKind::ParenOpen, 1),
            ')' => self.take(TokenKind::ParenClose, 1),
            '=' => self.take(TokenKind::Equals, 1),
            '"' => self.quoted(0),
            '#' => self.hash(),
            '/' if rest.starts_with("//") => self.take(TokenKind::LineComment, line_length(rest)),
            '/' if rest.starts_with("/-") => self.take(TokenKind::Slashdash, 2),
            '/' if rest.starts_with("/*") => self.block_comment(),
            '\\' => self.continuation(),
            _ => self.word(),
        }
        true
    }

    fn block_comment(&mut self) {
        let (mut depth, mut length) = (0_usize, 0);
        let rest = self.rest();
        let bytes = rest.as_bytes();
        loop {
            match bytes.get(length..length + 2) {
                Some(b"/*") => (depth, length) = (depth + 1, length + 2),
                Some(b"*/") => (depth, length) = (depth - 1, length + 2),
                Some(_) => length += 1,
                None => break,
            }
            if depth == 0 {
                return self.take(TokenKind::BlockComment, length);
            }
        }
        let span = self.span(self.at, self.at + 2);
        self.report.add(Code::QuoteUnclosed, span, "this comment is never closed").label("no `*/` follows");
        let length = self.rest().len();
        self.take(TokenKind::BlockComment, length);
    }

    /// Scans a line continuation: `\`, white space, an optional comment, and the newline.
    fn continuation(&mut self) {
        let rest = self.rest();
        let behind = rest[1..].trim_start_matches(is_space);
        let length = rest.len() - behind.len();
        if behind.is_empty() || behind.starts_with("//") || behind.starts_with(is_newline) {
            let line = line_length(behind);
            let newline = if behind[line..].starts_with("\r\n") {
                2
            } else {
                behind[line..].chars().next().map_or(0, char::len_utf8)
            };
            return self.take(TokenKind::Continuation, length + line + newline);
        }
        self.word();
    }

    fn hash(&mut self) {
        let rest = self.rest();
        let hashes = rest.len() - rest.trim_start_matches('#').len();
        if rest[hashes..].starts_with('"') {
            return self.quoted(hashes);
        }
        let length = rest.find(|c| ends_word(c) || c == '/').unwrap_or(rest.len());
        let word = &rest[..length];
        if KEYWORDS.contains(&word) {
            return self.take(TokenKind::Keyword, length);
        }
        let lower = word.to_ascii_lowercase();
        let span = self.span(self.at, self.at + length);
        if let Some(keyword) = KEYWORDS.iter().find(|keyword| strsim::damerau_levenshtein(keyword, &lower) <= 1) {
            let message = format!("unknown keyword `{word}`");
            self.report.add(Code::KeywordBare, span, message).label(format!("did you mean `{keyword}`?"));
            return self.take(TokenKind::Keyword, length);
        }
        let span = self.span(self.at, self.at + 1);
        self.report
            .add(Code::CommentForm, span, "`#` does not begin a comment")
            .label("write `//` instead")
            .note("`#` begins a keyword (`#true`) or a raw string (#\"…\"#)");
        let length = line_length(self.rest());
        self.take(TokenKind::LineComment, length);
    }

    fn quoted(&mut self, hashes: usize) {
        let rest = &self.rest()[hashes..];
        let multiline = rest.starts_with("\"\"\"") && !(hashes == 0 && rest.starts_with("\"\"\"\""));
        // In a raw string, three quotes that are not followed by a newline are part of the content, or an error that
        // the `kdl` crate reports.
        let quotes = if multiline { "\"\"\"" } else { "\"" };
        let closing = format!("{quotes}{}", "#".repeat(hashes));
        let mut at = quotes.len();
        let end = loop {
            let Some(c) = rest[at..].chars().next() else {
                break None;
            };
            if rest[at..].starts_with(&closing) {
                break Some(at + closing.len());
            }
            if !multiline && is_newline(c) {
                break None;
            }
            at += c.len_utf8();
            if c == '\\' && hashes == 0 {
                at += escape_length(&rest[at..]);
            }
        };
        if let Some(end) = end {
            return self.take(TokenKind::Quoted, hashes + end);
        }
        let (start, length) = (self.at, hashes + at.min(rest.len()));
        let span = self.span(start, start + hashes + quotes.len());
        let draft = self.report.add(Code::QuoteUnclosed, span, "this string is never closed");
        if multiline {
            draft.label(format!("no {closing} follows"));
        } else {
            draft.label(format!("no {closing} on this line"));
            draft.note("a multi-line string must begin with three quotes and a newline");
        }
        self.take(TokenKind::Quoted, length);
    }

    /// Scans unquoted characters as far as the author probably intended. This includes complete paths and URLs, so that
    /// a single message covers them.
    fn word(&mut self) {
        let rest = self.rest();
        let mut length = 0;
        while let Some(c) = rest[length..].chars().next() {
            let tail = &rest[length..];
            let is_url = tail.starts_with("//") && rest[..length].ends_with(':');
            let is_comment = tail.starts_with("//") && !is_url || tail.starts_with("/*") && closes_in_line(tail);
            if ends_word(c) || length > 0 && is_comment {
                break;
            }
            length += c.len_utf8();
        }
        let length = length.max(rest.chars().next().map_or(0, char::len_utf8));
        self.take(TokenKind::Word, length);
    }
}

/// Returns the length of an escape after its `\`. An escape may consist of white space with newlines, which yields no
/// characters.
fn escape_length(behind: &str) -> usize {
    let is_blank = |c: char| is_space(c) || is_newline(c);
    match behind.chars().next() {
        Some(c) if is_blank(c) => behind.len() - behind.trim_start_matches(is_blank).len(),
        Some(c) => c.len_utf8(),
        None => 0,
    }
}

fn closes_in_line(tail: &str) -> bool {
    tail[..line_length(tail)].contains("*/")
}

fn ends_word(c: char) -> bool {
    is_space(c) || is_newline(c) || is_forbidden(c) || matches!(c, ';' | '{' | '}' | '(' | ')' | '=' | '"')
}

fn line_length(text: &str) -> usize {
    text.find(is_newline).unwrap_or(text.len())
}
