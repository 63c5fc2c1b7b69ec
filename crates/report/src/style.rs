//! Terminal colours, used where they are supported and wanted.

use flatout_load::report::visible::{visible_but, visible_lines};
use std::borrow::Cow;
use std::io::IsTerminal;

/// The emphasis of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Emphasis for the most important figure.
    Strong,
    /// Emphasis for an explanation of a figure.
    Faint,
    /// Emphasis for a success.
    Good,
    /// Emphasis for a failure.
    Bad,
    /// Emphasis for a warning.
    Warning,
}

/// The style of text: coloured or plain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    coloured: bool,
}

impl Style {
    /// Plain text.
    pub const PLAIN: Self = Self { coloured: false };

    /// Text with terminal colours.
    pub const COLOURED: Self = Self { coloured: true };

    /// Chooses colours if `stream` is a terminal and `NO_COLOR` is unset or empty (no-color.org).
    pub fn of(stream: &impl IsTerminal) -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { coloured: stream.is_terminal() && !unwanted }
    }

    /// Emphasises text. Control characters in it are made visible.
    pub fn paint(self, weight: Weight, text: &str) -> String {
        let text = visible_lines(text);
        if !self.coloured || text.is_empty() {
            return text.into_owned();
        }
        let code = match weight {
            Weight::Strong => STRONG,
            Weight::Faint => FAINT,
            Weight::Good => GOOD,
            Weight::Bad => BAD,
            Weight::Warning => WARNING,
        };
        format!("{code}{text}{PLAIN}")
    }
}

const STRONG: &str = "\x1b[1m";
const FAINT: &str = "\x1b[2m";
const GOOD: &str = "\x1b[32m";
const BAD: &str = "\x1b[1;31m";
const WARNING: &str = "\x1b[33m";
const PLAIN: &str = "\x1b[0m";

/// Makes text safe for a terminal. Of the control characters, only line ends, tabs and the lab's own colours remain.
pub fn shown(text: &str) -> Cow<'_, str> {
    visible_but(text, |rest| {
        if rest.starts_with(['\n', '\t']) {
            return Some(1);
        }
        let code = [STRONG, FAINT, GOOD, BAD, WARNING, PLAIN].into_iter().find(|code| rest.starts_with(code));
        code.map(str::len)
    })
}

#[cfg(test)]
mod tests {
    use super::{Style, Weight, shown};

    #[test]
    fn plain_text_stays_as_it_is() {
        assert_eq!(Style::PLAIN.paint(Weight::Bad, "x"), "x");
        assert_eq!(Style::COLOURED.paint(Weight::Faint, "x"), "\x1b[2mx\x1b[0m");
        assert_eq!(Style::COLOURED.paint(Weight::Faint, ""), "");
    }

    #[test]
    fn a_terminal_is_given_no_orders_but_ours() {
        for style in [Style::PLAIN, Style::COLOURED] {
            let painted = style.paint(Weight::Good, "a\x1b[2Jb\n\u{9b}c\u{202e}");
            assert!(painted.contains("a\\u{1b}[2Jb\n\\u{9b}c\\u{202e}"), "{painted:?}");
            let text = format!("x\x1b[2J\x1b[31m\t{painted}\r\n\x1b");
            assert_eq!(shown(&text), format!("x\\u{{1b}}[2J\\u{{1b}}[31m\t{painted}\\u{{d}}\n\\u{{1b}}"));
        }
    }
}
