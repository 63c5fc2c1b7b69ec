//! The formatter: four spaces per level, one space between values, and at most one blank line in a row.
//!
//! Works on tokens and keeps the text of each token, so comments, quotes and numbers do not change.

use crate::diagnostic::{Diagnostics, Report, Texts};
use crate::syntax::{Token, TokenKind, parse_document, scan};

const INDENT: &str = "    ";

/// Formats a configuration file. If it has syntax errors, returns them as diagnostics instead.
pub fn format(name: &str, text: &str) -> Result<String, Diagnostics> {
    let mut report = Report::new();
    let mut texts = Texts::default();
    let file = texts.add(name.to_owned(), text.to_owned());
    parse_document(file, text, &mut report);
    if !report.is_empty() {
        return Err(report.finish(&texts));
    }
    let tokens = scan(file, text, &mut Report::new());
    let broken = blocks_over_lines(&tokens);
    let mut formatter = Formatter { text, out: String::new(), line: String::new(), ..Formatter::default() };
    for (index, token) in tokens.iter().enumerate() {
        let next = tokens.get(index + 1).map(|token| token.kind);
        formatter.take(*token, next, broken[index]);
    }
    formatter.end_line();
    Ok(formatter.out)
}

/// For each token, returns whether it is a brace of a block that spans several lines.
fn blocks_over_lines(tokens: &[Token]) -> Vec<bool> {
    let mut broken = vec![false; tokens.len()];
    let mut open: Vec<(usize, bool)> = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        match token.kind {
            TokenKind::Open => open.push((index, false)),
            TokenKind::Close => {
                if let Some((start, over_lines)) = open.pop() {
                    broken[start] = over_lines;
                    broken[index] = over_lines;
                    if let (Some(outer), true) = (open.last_mut(), over_lines) {
                        outer.1 = true;
                    }
                }
            }
            TokenKind::Newline | TokenKind::LineComment => {
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
    /// True if the current line continues the previous one, which ended with `\`.
    continues: bool,
    /// True if a blank line precedes the next token.
    blank: bool,
    /// True if the previous line opened a block, in which case no blank line follows.
    opened: bool,
    last: Option<TokenKind>,
    /// The offset at which the last token ends in the source; determines whether a space follows `/-`.
    last_end: usize,
}

impl Formatter<'_> {
    fn take(&mut self, token: Token, next: Option<TokenKind>, broken: bool) {
        let content = &self.text[token.start..token.end];
        match token.kind {
            TokenKind::Newline => {
                if self.line.is_empty() {
                    // A blank line after a continued line ends the setting, so it stays.
                    self.blank = !self.out.is_empty() && !self.opened;
                    self.continues = false;
                } else {
                    self.end_line();
                }
            }
            TokenKind::Semicolon => {
                let needless = matches!(
                    next,
                    None | Some(TokenKind::Newline | TokenKind::Close | TokenKind::LineComment | TokenKind::Semicolon)
                );
                if !needless && !matches!(self.last, Some(TokenKind::Open)) && (!self.line.is_empty() || self.continues)
                {
                    self.line.push(';');
                }
            }
            TokenKind::Open => {
                self.append("{", token.kind);
                self.depth += 1;
                if broken && next != Some(TokenKind::LineComment) {
                    self.end_line_of(self.depth - 1);
                    self.opened = true;
                }
            }
            TokenKind::Close => {
                if broken {
                    self.end_line();
                }
                self.depth = self.depth.saturating_sub(1);
                if self.line.is_empty() {
                    (self.blank, self.continues) = (false, false);
                }
                // `{}` stays on one line.
                if self.last == Some(TokenKind::Open) && !self.line.is_empty() {
                    self.line.push('}');
                    self.last = Some(TokenKind::Close);
                } else {
                    self.append("}", token.kind);
                }
            }
            TokenKind::Continuation => {
                self.append(content.trim_end(), token.kind);
                self.end_line();
                self.continues = true;
            }
            TokenKind::LineComment => {
                let after_open = self.last == Some(TokenKind::Open);
                self.append(content.trim_end(), token.kind);
                if after_open {
                    self.end_line_of(self.depth.saturating_sub(1));
                    self.opened = true;
                }
            }
            kind => {
                let parted = self.last == Some(TokenKind::Slashdash) && self.last_end < token.start;
                if parted && !self.line.is_empty() {
                    self.line.push(' ');
                }
                self.append(content, kind);
            }
        }
        self.last_end = token.end;
        if !matches!(token.kind, TokenKind::Semicolon) || self.line.ends_with(';') {
            self.last = Some(token.kind);
        }
    }

    fn append(&mut self, content: &str, kind: TokenKind) {
        let touches = matches!(kind, TokenKind::Equals | TokenKind::ParenClose)
            || matches!(
                self.last,
                Some(TokenKind::Equals | TokenKind::ParenOpen | TokenKind::ParenClose | TokenKind::Slashdash)
            );
        if !self.line.is_empty() && !touches {
            self.line.push(' ');
        }
        self.line.push_str(content);
    }

    fn end_line(&mut self) {
        self.end_line_of(self.depth);
    }

    /// Writes the line with its indentation. A line with a closing brace is indented like the line with the opening
    /// brace.
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

#[cfg(test)]
mod tests {
    use super::format;
    use crate::diagnostic::Report;
    use crate::syntax::{TokenKind, scan};
    use proptest::prelude::*;

    #[test]
    fn forms_that_are_easily_broken() {
        for (untidy, neat) in [
            ("", ""),
            ("\n\n// only a comment\n\n\n", "// only a comment\n"),
            ("\u{feff}a   1\r\n\r\n\r\nb\t2", "a 1\n\nb 2\n"),
            ("a{b 1;c 2}", "a { b 1; c 2 }\n"),
            ("a {}\nb { }", "a {}\nb {}\n"),
            ("a {\n\n\nb\n\n\n}", "a {\n    b\n}\n"),
            ("a { b\n c }", "a {\n    b\n    c\n}\n"),
            ("a { // why\n b }", "a { // why\n    b\n}\n"),
            ("a {\n} // end\nb", "a {\n} // end\nb\n"),
            ("a 1 // behind\n// before b\nb", "a 1 // behind\n// before b\nb\n"),
            ("a /* within */ 1 /* end */", "a /* within */ 1 /* end */\n"),
            ("a k = 1 ( env ) \"X\"", "a k=1 (env)\"X\"\n"),
            ("a \\ // goes on\n 1 \\\n2\nb", "a \\ // goes on\n    1 \\\n    2\nb\n"),
            ("/-  a 1\nb /-2 /- 3", "/- a 1\nb /-2 /- 3\n"),
            ("a \"\"\"\n      x\n    y\n    \"\"\"\nb", "a \"\"\"\n      x\n    y\n    \"\"\"\nb\n"),
            ("a 1;\nb 2 ; c 3 ;", "a 1\nb 2; c 3\n"),
            ("a { b { c\n} }", "a {\n    b {\n        c\n    }\n}\n"),
        ] {
            let formatted = format("test.kdl", untidy).unwrap();
            assert_eq!(formatted, neat, "{untidy:?}");
            assert_eq!(format("test.kdl", &formatted).unwrap(), formatted, "{untidy:?}");
        }
    }

    /// All tokens except white space and redundant semicolons.
    fn tokens(text: &str) -> Vec<String> {
        let tokens = scan(0, text, &mut Report::new()).into_iter();
        let tokens = tokens.filter(|token| !matches!(token.kind, TokenKind::Newline | TokenKind::Semicolon));
        tokens.map(|token| text[token.start..token.end].trim_end().replace("\r\n", "\n")).collect()
    }

    const PIECES: &[&str] = &[
        "a",
        " 1",
        " k=2",
        "\n",
        ";",
        " {",
        "}",
        " // c\n",
        " /* d */ ",
        "\n\n\n",
        " \\\n",
        "/- ",
        " \"t\"",
        "{\n",
        "\n}\n",
        "  ",
        "b",
        " (env)\"X\"",
        "\r\n",
    ];

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_token_is_lost_and_twice_is_once(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..20)) {
            let text = pieces.concat();
            if let Ok(formatted) = format("test.kdl", &text) {
                prop_assert_eq!(tokens(&formatted), tokens(&text), "{:?}", formatted);
                prop_assert_eq!(format("test.kdl", &formatted).unwrap(), formatted.clone());
                let twin = |text: &str| crate::adapt::kdl_to_json("test.kdl", text).unwrap();
                prop_assert_eq!(twin(&formatted), twin(&text), "{:?}", formatted);
            }
        }
    }
}
