//! A file written neatly: four spaces a level, one space between values, at most one empty line in a row.
//!
//! It works on tokens, and keeps each as it was written: comments, quotes and numbers stay what they are.

use crate::diagnostic::{Diagnostics, Report, Texts};
use crate::syntax::{Kind, Token, parse_document, scan};

const INDENT: &str = "    ";

/// Formats a text. One that cannot be read is not touched: the diagnostics say why.
pub fn format(name: &str, text: &str) -> Result<String, Diagnostics> {
    let mut report = Report::new();
    let mut texts = Texts::default();
    let file = texts.add(name.to_owned(), text.to_owned());
    parse_document(file, text, &mut report);
    let tokens = scan(file, text, &mut Report::new());
    if !report.is_empty() {
        return Err(report.finish(&texts));
    }
    let broken = blocks_over_lines(&tokens);
    let mut formatter = Formatter { text, out: String::new(), line: String::new(), ..Formatter::default() };
    for (index, token) in tokens.iter().enumerate() {
        let next = tokens.get(index + 1).map(|token| token.kind);
        formatter.take(*token, next, broken[index]);
    }
    formatter.end_line();
    Ok(formatter.out)
}

/// For each brace, whether its block has lines of its own; for all else, false.
fn blocks_over_lines(tokens: &[Token]) -> Vec<bool> {
    let mut broken = vec![false; tokens.len()];
    let mut open: Vec<(usize, bool)> = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        match token.kind {
            Kind::Open => open.push((index, false)),
            Kind::Close => {
                if let Some((start, over_lines)) = open.pop() {
                    broken[start] = over_lines;
                    broken[index] = over_lines;
                    if let (Some(outer), true) = (open.last_mut(), over_lines) {
                        outer.1 = true;
                    }
                }
            }
            Kind::Newline | Kind::LineComment => {
                if let Some(inner) = open.last_mut() {
                    inner.1 = true;
                }
            }
            _ => {}
        }
    }
    broken
}

#[derive(Default)]
struct Formatter<'a> {
    text: &'a str,
    out: String,
    line: String,
    depth: usize,
    /// Whether the line goes on from the last by `\`.
    continues: bool,
    /// Whether an empty line is wanted before the next.
    blank: bool,
    /// Whether the last line opened a block, so that no empty line follows.
    opened: bool,
    last: Option<Kind>,
    /// Where the last token ended in the source: `/-` keeps the space behind it, or its absence.
    last_end: usize,
}

impl Formatter<'_> {
    fn take(&mut self, token: Token, next: Option<Kind>, broken: bool) {
        let content = &self.text[token.start..token.end];
        match token.kind {
            Kind::Newline => {
                if self.line.is_empty() {
                    self.blank = !self.out.is_empty() && !self.opened && !self.continues;
                } else {
                    self.end_line();
                }
            }
            Kind::Semicolon => {
                let needless =
                    matches!(next, None | Some(Kind::Newline | Kind::Close | Kind::LineComment | Kind::Semicolon));
                if !needless && !matches!(self.last, Some(Kind::Open)) && !self.line.is_empty() {
                    self.line.push(';');
                }
            }
            Kind::Open => {
                self.append("{", token.kind);
                self.depth += 1;
                if broken && next != Some(Kind::LineComment) {
                    self.end_line_of(self.depth - 1);
                    self.opened = true;
                }
            }
            Kind::Close => {
                if broken {
                    self.end_line();
                }
                self.depth = self.depth.saturating_sub(1);
                if self.line.is_empty() {
                    self.blank = false;
                }
                // `{}` stays what it is.
                if self.last == Some(Kind::Open) && !self.line.is_empty() {
                    self.line.push('}');
                    self.last = Some(Kind::Close);
                } else {
                    self.append("}", token.kind);
                }
            }
            Kind::Continuation => {
                self.append(content.trim_end(), token.kind);
                self.end_line();
                self.continues = true;
            }
            Kind::LineComment => {
                let after_open = self.last == Some(Kind::Open);
                self.append(content.trim_end(), token.kind);
                if after_open {
                    self.end_line_of(self.depth.saturating_sub(1));
                    self.opened = true;
                }
            }
            kind => {
                let parted = self.last == Some(Kind::Slashdash) && self.last_end < token.start;
                if parted && !self.line.is_empty() {
                    self.line.push(' ');
                }
                self.append(content, kind);
            }
        }
        self.last_end = token.end;
        if !matches!(token.kind, Kind::Semicolon) || self.line.ends_with(';') {
            self.last = Some(token.kind);
        }
    }

    fn append(&mut self, content: &str, kind: Kind) {
        let touches = matches!(kind, Kind::Equals | Kind::ParenClose)
            || matches!(self.last, Some(Kind::Equals | Kind::ParenOpen | Kind::ParenClose | Kind::Slashdash));
        if !self.line.is_empty() && !touches {
            self.line.push(' ');
        }
        self.line.push_str(content);
    }

    fn end_line(&mut self) {
        self.end_line_of(self.depth);
    }

    /// Writes the line with its indentation. A line that closes what it opened stands where it opened.
    fn end_line_of(&mut self, depth: usize) {
        if self.line.is_empty() {
            return;
        }
        if self.blank {
            self.out.push('\n');
        }
        let levels = depth + usize::from(self.continues);
        for _ in 0..levels {
            self.out.push_str(INDENT);
        }
        self.out.push_str(self.line.trim_end());
        self.out.push('\n');
        self.line.clear();
        (self.blank, self.opened, self.continues) = (false, false, false);
    }
}
