//! A text report under construction, made of named figures and tables.

use crate::style::{Style, Weight};
use std::fmt::Write as _;

/// Width of the names at the left, in columns.
const NAME_WIDTH: usize = 15;

/// A text report for a terminal, built line by line.
#[derive(Debug)]
pub struct TextPage {
    text: String,
    style: Style,
}

impl TextPage {
    /// Creates an empty page.
    pub const fn new(style: Style) -> Self {
        Self { text: String::new(), style }
    }

    /// Returns the style of the text.
    pub const fn style(&self) -> Style {
        self.style
    }

    /// Adds a line with a name, its figure, and an explanation in a fainter colour.
    pub fn named(&mut self, name: &str, figure: &str, explanation: &str) {
        self.figures(name, &self.style.paint(Weight::Strong, figure), explanation);
    }

    /// Adds a line like [`Self::named`], with figures that already contain colours.
    pub fn figures(&mut self, name: &str, figures: &str, explanation: &str) {
        let gap = if figures.is_empty() || explanation.is_empty() { "" } else { "   " };
        let explanation = self.style.paint(Weight::Faint, explanation);
        self.plain(&format!("  {name:<NAME_WIDTH$}  {figures}{gap}{explanation}"));
    }

    /// Adds a line unchanged.
    pub fn plain(&mut self, text: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{text}");
    }

    /// Adds a line, emphasised if `weight` is not `None`.
    pub fn painted(&mut self, weight: impl Into<Option<Weight>>, text: &str) {
        match weight.into() {
            Some(weight) => self.plain(&self.style.paint(weight, text)),
            None => self.plain(text),
        }
    }

    /// Adds a table whose first row is the header. The first `words` columns are aligned left, the others right. A row
    /// with fewer cells, such as a reason instead of figures, does not affect the column widths.
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

    /// Returns the finished text.
    pub fn finish(self) -> String {
        self.text
    }
}
