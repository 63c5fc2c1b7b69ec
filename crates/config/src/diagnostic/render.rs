//! The text form of diagnostics.

use super::{Diagnostic, Diagnostics, Excerpt};
use crate::model::Place;
use std::fmt::Write as _;

/// The column in which the code is printed after the message, if the message is short enough.
const CODE_COLUMN: usize = 66;

/// How text is printed: plain, or with the colours of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Plain text, for files and pipes.
    Plain,
    /// With colours, for terminals (ECMA-48 escape sequences).
    Colour,
}

impl Style {
    fn paint(self, colour: &str, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Colour => format!("\x1b[{colour}m{text}\x1b[0m"),
        }
    }
}

const RED: &str = "1;31";
const BOLD: &str = "1";
const DIM: &str = "2";
const CYAN: &str = "36";

impl Diagnostics {
    /// Formats all diagnostics as text, each with its place, its source line and its notes.
    pub fn render(&self, style: Style) -> String {
        let mut text = String::new();
        for diagnostic in &self.list {
            if !text.is_empty() {
                text.push('\n');
            }
            render_one(&mut text, diagnostic, style);
        }
        if self.more > 0 {
            let errors = if self.more == 1 { "error" } else { "errors" };
            let _ = writeln!(text, "\nand {} more {errors}", self.more);
        }
        text
    }
}

fn render_one(text: &mut String, diagnostic: &Diagnostic, style: Style) {
    let width = "error: ".len() + diagnostic.message.chars().count();
    let gap = " ".repeat(CODE_COLUMN.saturating_sub(width).max(2));
    let code = style.paint(DIM, &format!("[{}]", diagnostic.code.id()));
    let _ = writeln!(text, "{} {}{gap}{code}", style.paint(RED, "error:"), style.paint(BOLD, &diagnostic.message));
    render_place(text, &diagnostic.place);
    if let Some(excerpt) = &diagnostic.excerpt {
        render_excerpt(text, excerpt, diagnostic.place.line, &diagnostic.label, RED, style);
    } else if !diagnostic.label.is_empty() {
        let _ = writeln!(text, "  {}", diagnostic.label);
    }
    for related in &diagnostic.related {
        render_place(text, &related.place);
        if let Some(excerpt) = &related.excerpt {
            let alone = Excerpt { before: None, ..excerpt.clone() };
            render_excerpt(text, &alone, related.place.line, &related.label, CYAN, style);
        }
    }
    for note in &diagnostic.notes {
        let _ = writeln!(text, "  {note}");
    }
    let _ = writeln!(text, "  {}", style.paint(DIM, &format!("flatout help {}", diagnostic.code.id())));
}

fn render_place(text: &mut String, place: &Place) {
    if place.file.is_empty() {
        return;
    }
    let _ = match place.line {
        0 => writeln!(text, "  {}", place.file),
        line => writeln!(text, "  {}:{line}:{}", place.file, place.column),
    };
}

fn render_excerpt(text: &mut String, excerpt: &Excerpt, line: u32, label: &str, colour: &str, style: Style) {
    let width = line.to_string().len();
    let mut show = |number: &str, content: &str| {
        let margin = style.paint(DIM, &format!("  {number:>width$} |"));
        let _ = writeln!(text, "{margin}{}{content}", if content.is_empty() { "" } else { " " });
    };
    if let Some(before) = &excerpt.before {
        show(&(line - 1).to_string(), before.trim_end());
    }
    show(&line.to_string(), excerpt.line.trim_end());
    let carets = "^".repeat(excerpt.caret_width);
    let pointed = if label.is_empty() { carets } else { format!("{carets} {label}") };
    show("", &format!("{}{}", " ".repeat(excerpt.caret_start), style.paint(colour, &pointed)));
}
