//! Colour, where it helps and is wanted.

use std::io::IsTerminal;

/// How text is set off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// The figure a reader looks for first.
    Strong,
    /// What explains a figure.
    Faint,
    /// What went well.
    Good,
    /// What went wrong.
    Bad,
    /// What a reader should know.
    Warning,
}

/// Whether text is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    coloured: bool,
}

impl Style {
    /// Text as it is.
    pub const PLAIN: Self = Self { coloured: false };

    /// Text with terminal colours.
    pub const COLOURED: Self = Self { coloured: true };

    /// Colour if `stream` is a terminal and `NO_COLOR` is not set to anything (no-color.org).
    pub fn of(stream: &impl IsTerminal) -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { coloured: stream.is_terminal() && !unwanted }
    }

    /// Sets text off.
    pub fn paint(self, weight: Weight, text: &str) -> String {
        if !self.coloured || text.is_empty() {
            return text.to_owned();
        }
        let code = match weight {
            Weight::Strong => "1",
            Weight::Faint => "2",
            Weight::Good => "32",
            Weight::Bad => "1;31",
            Weight::Warning => "33",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

#[cfg(test)]
mod tests {
    use super::{Style, Weight};

    #[test]
    fn plain_text_stays_as_it_is() {
        assert_eq!(Style::PLAIN.paint(Weight::Bad, "x"), "x");
        assert_eq!(Style::COLOURED.paint(Weight::Faint, "x"), "\x1b[2mx\x1b[0m");
        assert_eq!(Style::COLOURED.paint(Weight::Faint, ""), "");
    }
}
