//! A text report under construction: lines of a name and its figures, and tables.

use crate::style::{Style, Weight};
use std::fmt::Write as _;

/// Width of the names at the left.
const NAME_WIDTH: usize = 15;

/// A report for a terminal, line by line.
#[derive(Debug)]
pub struct TextPage {
    text: String,
    style: Style,
}

impl TextPage {
    /// An empty page.
    pub const fn new(style: Style) -> Self {
        Self { text: String::new(), style }
    }

    /// The style of its text.
    pub const fn style(&self) -> Style {
        self.style
    }

    /// A name, its figure, and an explanation in the background.
    pub fn named(&mut self, name: &str, figure: &str, explanation: &str) {
        self.figures(name, &self.style.paint(Weight::Strong, figure), explanation);
    }

    /// As [`Self::named`], with figures that are painted already.
    pub fn figures(&mut self, name: &str, figures: &str, explanation: &str) {
        let gap = if figures.is_empty() || explanation.is_empty() { "" } else { "   " };
        let explanation = self.style.paint(Weight::Faint, explanation);
        self.plain(&format!("  {name:<NAME_WIDTH$}  {figures}{gap}{explanation}"));
    }

    /// A line as it is.
    pub fn plain(&mut self, text: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{text}");
    }

    /// A line, emphasised if there is a weight.
    pub fn painted(&mut self, weight: impl Into<Option<Weight>>, text: &str) {
        match weight.into() {
            Some(weight) => self.plain(&self.style.paint(weight, text)),
            None => self.plain(text),
        }
    }

    /// A table whose first row is the header. The first `words` columns are aligned left, the others right. A row with
    /// fewer cells, such as a reason in place of figures, does not widen its columns.
    pub fn table(&mut self, rows: &[Vec<String>], words: usize) {
        let columns = rows.first().map_or(0, Vec::len);
        let wide = |column: usize| {
            let cells = rows.iter().filter(|row| row.len() == columns).filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(wide).collect();
        for (index, row) in rows.iter().enumerate() {
            let mut line = String::from(" ");
            for (column, cell) in row.iter().enumerate() {
                let width = widths.get(column).copied().unwrap_or(0);
                let _ =
                    if column < words { write!(line, " {cell:<width$} ") } else { write!(line, " {cell:>width$} ") };
            }
            self.painted((index == 0).then_some(Weight::Faint), line.trim_end());
        }
    }

    /// The finished text.
    pub fn finish(self) -> String {
        self.text
    }
}
