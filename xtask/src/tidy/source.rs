//! Rust source as tokens and comments: enough to see words in code without seeing them in strings.
//!
//! Not a parser. It knows what a token is, which tokens stand below `#[cfg(test)]`, and how braces match;
//! each rule looks for its own short sequence of tokens.

use std::ops::Range;

/// One token and the line it begins on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    /// What it is.
    pub(crate) kind: Kind,
    /// Counted from 1.
    pub(crate) line: usize,
}

/// The kinds of tokens that rules tell apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name or a keyword.
    Word(String),
    /// One character of punctuation.
    Mark(char),
    /// A string literal's content, escapes left as written.
    Text(String),
    /// The content of a character or byte literal, escapes left as written.
    Character(String),
    /// A number or a lifetime: nothing any rule looks at.
    Other,
}

/// A `//` line or one line of a block comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Comment {
    /// Counted from 1.
    pub(crate) line: usize,
    /// With its slashes.
    pub(crate) text: String,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function<'s> {
    /// The name after `fn`.
    pub(crate) name: &'s str,
    /// Its tokens, from `fn` to the closing brace.
    pub(crate) tokens: Range<usize>,
    /// The line of `fn`, counted from 1.
    pub(crate) line: usize,
    /// The number of lines from `fn` to the closing brace.
    pub(crate) lines: usize,
}

/// A file's tokens and comments.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// In order.
    pub(crate) tokens: Vec<Token>,
    /// In order.
    pub(crate) comments: Vec<Comment>,
    /// True if each token stands in an item marked `#[cfg(test)]` or `#[test]`.
    pub(crate) test_mask: Vec<bool>,
    /// The number of lines.
    pub(crate) lines: usize,
}

impl Token {
    /// Returns true if it is this word.
    pub(crate) fn is_word(&self, word: &str) -> bool {
        matches!(&self.kind, Kind::Word(own) if own == word)
    }

    /// Returns true if it is this mark.
    pub(crate) fn is_mark(&self, mark: char) -> bool {
        self.kind == Kind::Mark(mark)
    }
}

impl Source {
    /// Reads a file's text.
    pub(crate) fn read(text: &str) -> Self {
        let mut reader = Reader { rest: text, line: 1, source: Self::default() };
        while reader.step() {}
        let mut source = reader.source;
        source.test_mask = source.find_test_items();
        source.lines = text.lines().count();
        source
    }

    fn find_test_items(&self) -> Vec<bool> {
        let mut mask = vec![false; self.tokens.len()];
        let mut at = 0;
        while at < self.tokens.len() {
            let Some(attribute_end) = self.test_attribute(at) else {
                at += 1;
                continue;
            };
            let end = self.item_end(attribute_end);
            mask[at..end].fill(true);
            at = end;
        }
        mask
    }

    /// The index just past a test-only attribute that begins at `at`.
    fn test_attribute(&self, at: usize) -> Option<usize> {
        let end = self.attribute(at)?;
        let inside = &self.tokens[at + 2..end - 1];
        let is_test = match inside {
            [only] => only.is_word("test"),
            [name, ..] if name.is_word("cfg") => {
                inside.iter().any(|token| token.is_word("test")) && !inside.iter().any(|token| token.is_word("not"))
            }
            _ => false,
        };
        is_test.then_some(end)
    }

    /// The functions outside tests, including those inside other functions.
    pub(crate) fn functions(&self) -> impl Iterator<Item = Function<'_>> {
        self.tokens.iter().enumerate().filter_map(|(at, token)| {
            let Kind::Word(name) = &self.tokens.get(at + 1)?.kind else { return None };
            if self.test_mask[at] || !token.is_word("fn") {
                return None;
            }
            let last = self.closing(self.body(at)?);
            let (tokens, line) = (at..last + 1, token.line);
            Some(Function { name, tokens, line, lines: self.tokens[last].line + 1 - line })
        })
    }

    /// The functions outside tests that are not inside another function.
    pub(crate) fn outer_functions(&self) -> impl Iterator<Item = Function<'_>> {
        let mut end = 0;
        self.functions().filter(move |function| {
            let is_outer = function.tokens.start >= end;
            if is_outer {
                end = function.tokens.end;
            }
            is_outer
        })
    }

    /// The index just past an outer attribute that begins at `at`.
    pub(crate) fn attribute(&self, at: usize) -> Option<usize> {
        let opens = self.tokens.get(at)?.is_mark('#') && self.tokens.get(at + 1)?.is_mark('[');
        opens.then(|| self.closing(at + 1) + 1)
    }

    /// The index just past the item that begins at `at`: its semicolon or its closing brace.
    fn item_end(&self, mut at: usize) -> usize {
        while let Some(end) = self.attribute(at) {
            at = end;
        }
        while let Some(token) = self.tokens.get(at) {
            match token.kind {
                Kind::Mark(';') => return at + 1,
                Kind::Mark('{') => return (self.closing(at) + 1).min(self.tokens.len()),
                Kind::Mark('(' | '[') => at = self.closing(at) + 1,
                _ => at += 1,
            }
        }
        self.tokens.len()
    }

    /// The first line of each doc comment, outer or inner.
    pub(crate) fn doc_openings(&self) -> impl Iterator<Item = (usize, &str)> {
        let doc = |comment: &Comment| {
            let marks = ["///", "//!"].into_iter().find(|marks| comment.text.starts_with(marks))?;
            (!comment.text.starts_with("////")).then_some(marks)
        };
        let mut before = None;
        self.comments.iter().filter_map(move |comment| {
            let text = &comment.text[doc(comment)?.len()..];
            let opens = before.is_none_or(|before| before + 1 != comment.line);
            before = Some(comment.line);
            opens.then_some((comment.line, text.trim()))
        })
    }

    /// Doc comments of one line, each with the index of the token that follows it.
    pub(crate) fn doc_lines(&self) -> impl Iterator<Item = (usize, &str, usize)> {
        let is_doc = |line: usize| {
            let found = self.comments.binary_search_by_key(&line, |comment| comment.line);
            found.is_ok_and(|at| self.comments[at].text.starts_with("///"))
        };
        let lines = self.comments.iter().filter_map(|comment| {
            let text = comment.text.strip_prefix("///").filter(|text| !text.starts_with('/'))?;
            Some((comment.line, text.trim()))
        });
        lines.filter(move |(line, _)| !is_doc(line - 1) && !is_doc(line + 1)).map(|(line, text)| {
            let mut at = self.tokens.partition_point(|token| token.line <= line);
            while let Some(end) = self.attribute(at) {
                at = end;
            }
            (line, text, at)
        })
    }

    /// The index of the brace that opens the body of the item at `at`; `None` if a semicolon ends it first.
    pub(crate) fn body(&self, mut at: usize) -> Option<usize> {
        loop {
            match self.tokens.get(at)?.kind {
                Kind::Mark(';') => return None,
                Kind::Mark('{') => return Some(at),
                Kind::Mark('(' | '[') => at = self.closing(at) + 1,
                _ => at += 1,
            }
        }
    }

    /// The index of the mark that closes the bracket at `open`; the end of the file if none does.
    pub(crate) fn closing(&self, open: usize) -> usize {
        let mut depth = 0_usize;
        for (index, token) in self.tokens.iter().enumerate().skip(open) {
            match token.kind {
                Kind::Mark('(' | '[' | '{') => depth += 1,
                Kind::Mark(')' | ']' | '}') => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return index;
                    }
                }
                _ => {}
            }
        }
        self.tokens.len().saturating_sub(1)
    }

    /// Returns true if the words and marks of `pattern` stand at `at`. Marks are single characters.
    pub(crate) fn matches(&self, at: usize, pattern: &[&str]) -> bool {
        pattern.iter().enumerate().all(|(offset, wanted)| {
            self.tokens.get(at + offset).is_some_and(|token| match &token.kind {
                Kind::Word(word) => word == wanted,
                Kind::Mark(mark) => wanted.chars().eq([*mark]),
                Kind::Text(_) | Kind::Character(_) | Kind::Other => false,
            })
        })
    }
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
    source: Source,
}

impl Reader<'_> {
    /// Takes one token, comment or blank; false at the end.
    fn step(&mut self) -> bool {
        let Some(first) = self.rest.chars().next() else {
            return false;
        };
        let may_open_string = matches!(first, '"' | 'r' | 'b' | 'c');
        if first.is_whitespace() {
            self.advance(self.rest.len() - self.rest.trim_start().len());
        } else if self.rest.starts_with("//") {
            let length = self.rest.find('\n').unwrap_or(self.rest.len());
            self.comment(length);
        } else if self.rest.starts_with("/*") {
            self.comment(block_comment_length(self.rest));
        } else if may_open_string && let Some((prefix, hashes)) = raw_string_opening(self.rest) {
            let closing = format!("\"{}", "#".repeat(hashes));
            let body = &self.rest[prefix..];
            let length = body.find(&closing).unwrap_or(body.len());
            let text = body[..length].to_owned();
            self.push(Kind::Text(text), (prefix + length + closing.len()).min(self.rest.len()));
        } else if may_open_string && let Some(prefix) = string_opening(self.rest) {
            let length = escaped_length(&self.rest[prefix..], b'"');
            let text = self.rest[prefix..prefix + length].to_owned();
            self.push(Kind::Text(text), (prefix + length + 1).min(self.rest.len()));
        } else if first == '\'' || self.rest.starts_with("b'") {
            let length = quote_length(self.rest);
            let literal = self.rest[..length].trim_start_matches('b');
            let content = literal.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
            let kind = content.map_or(Kind::Other, |content| Kind::Character(content.to_owned()));
            self.push(kind, length);
        } else if first.is_ascii_digit() {
            self.push(Kind::Other, word_length(self.rest));
        } else if first.is_alphabetic() || first == '_' {
            let raw = if self.rest.starts_with("r#") { 2 } else { 0 };
            let name = &self.rest[raw..];
            let length = word_length(name);
            let name = name[..length].to_owned();
            self.push(Kind::Word(name), raw + length);
        } else {
            self.push(Kind::Mark(first), first.len_utf8());
        }
        true
    }

    fn comment(&mut self, length: usize) {
        for (offset, text) in self.rest[..length].lines().enumerate() {
            let (line, text) = (self.line + offset, text.to_owned());
            self.source.comments.push(Comment { line, text });
        }
        self.advance(length);
    }

    fn push(&mut self, kind: Kind, length: usize) {
        let line = self.line;
        self.source.tokens.push(Token { kind, line });
        self.advance(length);
    }

    fn advance(&mut self, length: usize) {
        self.line += self.rest[..length].bytes().filter(|byte| *byte == b'\n').count();
        self.rest = &self.rest[length..];
    }
}

/// The length of the name or number that a text begins with. Letters beyond ASCII are rare and count as one.
fn word_length(text: &str) -> usize {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || !byte.is_ascii();
    text.as_bytes().iter().position(|byte| !is_part(byte)).unwrap_or(text.len())
}

fn block_comment_length(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// The length of `r##"`, `br"` and the like, and how many hashes it has.
fn raw_string_opening(text: &str) -> Option<(usize, usize)> {
    let after = ["r", "br", "cr"].iter().find_map(|prefix| text.strip_prefix(prefix))?;
    let body = after.trim_start_matches('#');
    let hashes = after.len() - body.len();
    body.starts_with('"').then(|| (text.len() - body.len() + 1, hashes))
}

fn string_opening(text: &str) -> Option<usize> {
    ["\"", "b\"", "c\""].iter().find(|opening| text.starts_with(**opening)).map(|opening| opening.len())
}

/// How far it is to the closing quote, past escapes.
fn escaped_length(text: &str, quote: u8) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            byte if byte == quote => return at,
            _ => {}
        }
    }
    text.len()
}

/// The length of a character literal or a lifetime.
fn quote_length(text: &str) -> usize {
    let prefix = if text.starts_with('b') { 2 } else { 1 };
    let body = &text[prefix..];
    let mut chars = body.chars();
    match (chars.next(), chars.next()) {
        (Some('\\'), _) => (prefix + escaped_length(body, b'\'') + 1).min(text.len()),
        (Some(c), Some('\'')) => prefix + c.len_utf8() + 1,
        _ => (prefix + word_length(body).max(1)).min(text.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let source = Source::read(text);
        let words = source.tokens.into_iter().filter_map(|token| match token.kind {
            Kind::Word(word) => Some(word),
            _ => None,
        });
        words.collect()
    }

    #[test]
    fn words_in_strings_comments_and_characters_are_not_words() {
        let text = r##"let a = "fs"; // fs
            /* fs /* fs */ fs */ let b = r#"fs "fs"#; let c = 'f'; let d: &'fs u8 = b"\"fs"; '\''; done"##;
        let expected = ["let", "a", "let", "b", "let", "c", "let", "d", "u8", "done"];
        assert_eq!(words(text), expected);
    }

    #[test]
    fn lines_are_counted_through_strings_and_comments() {
        let source = Source::read("a\n\"x\ny\"\n/* 1\n2 */ b // c\n");
        let lines: Vec<usize> = source.tokens.iter().map(|token| token.line).collect();
        assert_eq!(lines, [1, 2, 5]);
        let comments: Vec<usize> = source.comments.iter().map(|c| c.line).collect();
        assert_eq!(comments, [4, 5, 5]);
    }

    #[test]
    fn test_items_are_masked_whole_and_nothing_else_is() {
        let text = "use a; #[cfg(test)] #[allow(x)] mod tests { fn b() { c } } fn d() {} \
                    #[cfg(not(test))] fn e() {} #[cfg(test)] mod f; #[test] fn g() {}";
        let source = Source::read(text);
        let kept: Vec<String> = (source.tokens.iter().zip(&source.test_mask))
            .filter_map(|(token, masked)| match &token.kind {
                Kind::Word(word) if !masked => Some(word.clone()),
                _ => None,
            })
            .collect();
        assert_eq!(kept, ["use", "a", "fn", "d", "cfg", "not", "test", "fn", "e"]);
    }

    #[test]
    fn characters_have_a_content_and_lifetimes_have_none() {
        let source = Source::read(r"'a' b'\'' '\\' 'b b'[' '");
        let contents: Vec<Option<&str>> = (source.tokens.iter())
            .map(|token| match &token.kind {
                Kind::Character(content) => Some(content.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(contents, [Some("a"), Some(r"\'"), Some(r"\\"), None, Some("["), None]);
    }

    #[test]
    fn functions_have_their_bodies_and_outer_ones_their_inner_ones() {
        let text = "fn a(b: [u8; 2]) -> u8;\nfn c() {\n    fn d() {}\n}\n#[test]\nfn e() {}\nfn f() {}\n";
        let source = Source::read(text);
        let found: Vec<(&str, usize, usize)> = source.functions().map(|f| (f.name, f.line, f.lines)).collect();
        assert_eq!(found, [("c", 2, 3), ("d", 3, 1), ("f", 7, 1)]);
        let outer: Vec<&str> = source.outer_functions().map(|f| f.name).collect();
        assert_eq!(outer, ["c", "f"]);
    }

    #[test]
    fn unfinished_source_does_not_loop_or_panic() {
        for text in ["\"abc", "/* abc", "r#\"abc", "'", "b'", "fn a(", "#[cfg(test)", "r#"] {
            let source = Source::read(text);
            assert_eq!(source.test_mask.len(), source.tokens.len(), "{text}");
        }
    }
}
