//! Tokens of Luau: where a piece of code ends, and whether it is self-contained.
//!
//! The compiler combines the page's code with generated code in one chunk. To make this safe, each piece of the page's
//! code must be self-contained: its strings and long comments end within the piece, its brackets match, and it does not
//! use the reserved functions of the chunk. The tokens are those of Luau's lexer. Their grammar is checked by Luau's
//! parser, which reads the whole chunk; [`super::structure`] relies on that.

use std::ops::Range;

/// The kind of a token, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LuauTokenKind {
    /// A name or a keyword.
    Word,
    /// A number or a string.
    Literal,
    /// A part of an interpolated string up to a `{`, after which an expression must follow.
    LiteralOpen,
    /// An opening bracket: `(`, `[` or `{`.
    Open,
    /// A closing bracket: `)`, `]` or `}`.
    Close,
    /// Any other symbol. An operator of several characters is one token.
    Mark,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LuauToken {
    pub(super) kind: LuauTokenKind,
    pub(super) range: Range<usize>,
}

/// A piece of code in a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Code {
    /// The range of the code, without `<?lua` and `?>`.
    pub(super) range: Range<usize>,
    pub(super) tokens: Vec<LuauToken>,
}

/// The problem with a malformed piece of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LuauFault {
    pub(super) range: Range<usize>,
    pub(super) kind: FaultKind,
    /// Where the code ends, so that reading can resume after it; `None` if unknown.
    pub(super) resume: Option<usize>,
    /// True if an unclosed string or comment extends to the end of the file.
    is_long: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultKind {
    /// There is no `?>` before the end of the file.
    Unclosed,
    /// A string is not closed on its line, or a long string is never closed.
    TextOpen,
    CommentOpen,
    /// A bracket is not closed.
    BracketOpen,
    /// A closing bracket has no matching opening bracket.
    BracketStray,
    /// An interpolated string contains `{{`.
    BraceTwice,
    /// The code contains a character that is invalid in Luau.
    Character,
    /// The code uses a name that is reserved for the chunk.
    NameReserved,
}

/// Maximum nesting depth of brackets; Luau's parser has the same limit.
const BRACKETS_MAX: usize = 200;

/// Scans a piece of code from `start` up to the `?>` that ends it, which is outside of strings and long comments.
pub(super) fn scan(text: &str, start: usize) -> Result<Code, LuauFault> {
    let mut scanner = Scanner { bytes: text.as_bytes(), at: start, tokens: Vec::new(), brackets: Vec::new() };
    let mut fault: Option<LuauFault> = None;
    loop {
        match scanner.step() {
            Ok(true) => {}
            Ok(false) => break,
            Err(found) => {
                // After an unclosed long string or comment, the end of the code is unknown.
                let stops = matches!(found.kind, FaultKind::Unclosed) || found.is_long;
                let first = fault.get_or_insert(found);
                if stops {
                    // The first fault probably explains why the end was not found.
                    return Err(first.clone());
                }
                scanner.recover();
            }
        }
    }
    let end = scanner.at;
    if fault.is_none()
        && let Some(&(_, at)) = scanner.brackets.last()
    {
        fault = Some(LuauFault { range: at..at + 1, kind: FaultKind::BracketOpen, resume: None, is_long: false });
    }
    match fault {
        Some(fault) => Err(LuauFault { resume: Some(end), ..fault }),
        None => Ok(Code { range: start..end, tokens: scanner.tokens }),
    }
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    tokens: Vec<LuauToken>,
    /// The closing character and the position of each open bracket. A '`' stands for a `{` inside an interpolated
    /// string.
    brackets: Vec<(u8, usize)>,
}

impl Scanner<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        // NUL bytes are rejected everywhere, so NUL can represent the end.
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn fault(&self, start: usize, kind: FaultKind) -> LuauFault {
        LuauFault {
            range: start..self.at.max(start + 1).min(self.bytes.len().max(start)),
            kind,
            resume: None,
            is_long: false,
        }
    }

    /// Skips to where the code probably continues: the next line, or the end of the piece.
    fn recover(&mut self) {
        while self.at < self.bytes.len() && self.peek(0) != b'\n' && !(self.peek(0) == b'?' && self.peek(1) == b'>') {
            self.at += 1;
        }
    }

    fn push(&mut self, kind: LuauTokenKind, start: usize) {
        self.tokens.push(LuauToken { kind, range: start..self.at });
    }

    /// Reads one token or white space. Returns false at the end of the piece.
    fn step(&mut self) -> Result<bool, LuauFault> {
        let start = self.at;
        let byte = self.peek(0);
        if start >= self.bytes.len() {
            return Err(LuauFault { range: start..start, kind: FaultKind::Unclosed, resume: None, is_long: false });
        }
        match byte {
            b'?' if self.peek(1) == b'>' => return Ok(false),
            b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c => self.at += 1,
            b'-' if self.peek(1) == b'-' => self.comment()?,
            b'"' | b'\'' => {
                self.quoted(byte)?;
                self.push(LuauTokenKind::Literal, start);
            }
            b'`' => self.interpolated(start)?,
            b'[' => {
                let level = self.separator();
                match level {
                    Some(level) => {
                        self.long(level, FaultKind::TextOpen, start)?;
                        self.push(LuauTokenKind::Literal, start);
                    }
                    None if self.at == start + 1 => self.open(b']', start)?,
                    None => return Err(self.fault(start, FaultKind::Character)),
                }
            }
            b'(' => {
                self.at += 1;
                self.open(b')', start)?;
            }
            b'{' => {
                self.at += 1;
                self.open(b'}', start)?;
            }
            b')' | b']' | b'}' => self.close(byte, start)?,
            b'.' if self.peek(1).is_ascii_digit() => self.number(),
            b'0'..=b'9' => self.number(),
            _ if is_word(byte) => {
                while is_word(self.peek(0)) || self.peek(0).is_ascii_digit() {
                    self.at += 1;
                }
                if is_reserved(&self.bytes[start..self.at]) {
                    return Err(self.fault(start, FaultKind::NameReserved));
                }
                self.push(LuauTokenKind::Word, start);
            }
            // This may be an attribute with parameters, whose brackets must not be mistaken for a long string.
            b'@' if self.peek(1) == b'[' => {
                self.at += 2;
                return Err(self.fault(start, FaultKind::Character));
            }
            _ if byte.is_ascii_graphic() => {
                const LONG: [&[u8]; 9] = [b"...", b"..=", b"//=", b"..", b"//", b"==", b"~=", b"::", b"->"];
                let rest = &self.bytes[start..];
                let two = matches!(byte, b'<' | b'>' | b'+' | b'-' | b'*' | b'/' | b'%' | b'^') && self.peek(1) == b'=';
                let long = LONG.iter().find(|mark| rest.starts_with(mark)).map(|mark| mark.len());
                self.at += long.unwrap_or(if two { 2 } else { 1 });
                self.push(LuauTokenKind::Mark, start);
            }
            _ => {
                self.at += 1;
                return Err(self.fault(start, FaultKind::Character));
            }
        }
        Ok(true)
    }

    fn open(&mut self, closer: u8, start: usize) -> Result<(), LuauFault> {
        if self.brackets.len() == BRACKETS_MAX {
            return Err(self.fault(start, FaultKind::BracketOpen));
        }
        self.brackets.push((closer, start));
        self.push(LuauTokenKind::Open, start);
        Ok(())
    }

    fn close(&mut self, byte: u8, start: usize) -> Result<(), LuauFault> {
        self.at += 1;
        match self.brackets.last() {
            Some(&(closer, _)) if closer == byte => {
                self.brackets.pop();
                self.push(LuauTokenKind::Close, start);
                Ok(())
            }
            Some(&(b'`', opened)) if byte == b'}' => {
                self.brackets.pop();
                self.section(opened)
            }
            _ => Err(self.fault(start, FaultKind::BracketStray)),
        }
    }

    /// Reads `[`, any number of `=` and a second `[`, or the same with `]`. Returns the number of `=`, or `None` if the
    /// second bracket is missing. The second bracket is not consumed.
    fn separator(&mut self) -> Option<usize> {
        let bracket = self.peek(0);
        self.at += 1;
        let mut level = 0;
        while self.peek(0) == b'=' {
            self.at += 1;
            level += 1;
        }
        (self.peek(0) == bracket).then_some(level)
    }

    /// Reads a long string or comment from its second bracket to its end.
    fn long(&mut self, level: usize, open: FaultKind, start: usize) -> Result<(), LuauFault> {
        self.at += 1;
        while self.at < self.bytes.len() {
            match self.peek(0) {
                b']' => {
                    if self.separator() == Some(level) {
                        self.at += 1;
                        return Ok(());
                    }
                }
                0 => return Err(self.character()),
                _ => self.at += 1,
            }
        }
        self.at = start + 2 + level;
        Err(LuauFault { is_long: true, ..self.fault(start, open) })
    }

    fn character(&mut self) -> LuauFault {
        let start = self.at;
        self.at += 1;
        self.fault(start, FaultKind::Character)
    }

    fn comment(&mut self) -> Result<(), LuauFault> {
        let start = self.at;
        self.at += 2;
        if self.peek(0) == b'[' {
            let after = self.at;
            if let Some(level) = self.separator() {
                return self.long(level, FaultKind::CommentOpen, start);
            }
            self.at = after;
        }
        // A short comment also ends at the end of the piece, so that `<?lua -- a note ?>` works.
        while self.at < self.bytes.len() {
            match self.peek(0) {
                b'\n' | b'\r' => break,
                b'?' if self.peek(1) == b'>' => break,
                0 => return Err(self.character()),
                _ => self.at += 1,
            }
        }
        Ok(())
    }

    /// Reads a backslash in a string and the characters that it escapes.
    fn backslash(&mut self) {
        self.at += 1;
        match self.peek(0) {
            b'\r' => {
                self.at += 1;
                if self.peek(0) == b'\n' {
                    self.at += 1;
                }
            }
            b'z' => {
                self.at += 1;
                while matches!(self.peek(0), b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c) {
                    self.at += 1;
                }
            }
            0 => {}
            _ => self.at += 1,
        }
    }

    fn quoted(&mut self, quote: u8) -> Result<(), LuauFault> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.peek(0) {
                0 | b'\r' | b'\n' => return Err(self.fault(start, FaultKind::TextOpen)),
                b'\\' => self.backslash(),
                byte => {
                    self.at += 1;
                    if byte == quote {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn interpolated(&mut self, start: usize) -> Result<(), LuauFault> {
        self.at += 1;
        self.section(start)
    }

    /// Reads a section of an interpolated string, up to its end or a `{` in it.
    fn section(&mut self, opened: usize) -> Result<(), LuauFault> {
        let start = self.at - 1;
        loop {
            match self.peek(0) {
                0 | b'\r' | b'\n' => return Err(self.fault(opened, FaultKind::TextOpen)),
                b'\\' if self.peek(1) == b'u' && self.peek(2) == b'{' => self.at += 3,
                b'\\' => self.backslash(),
                b'{' => {
                    self.at += 1;
                    if self.peek(0) == b'{' {
                        return Err(self.fault(self.at - 1, FaultKind::BraceTwice));
                    }
                    if self.brackets.len() == BRACKETS_MAX {
                        return Err(self.fault(opened, FaultKind::BracketOpen));
                    }
                    self.brackets.push((b'`', opened));
                    self.push(LuauTokenKind::LiteralOpen, start);
                    return Ok(());
                }
                byte => {
                    self.at += 1;
                    if byte == b'`' {
                        self.push(LuauTokenKind::Literal, start);
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Reads a number like Luau's lexer, which accepts everything that looks like a number and validates it later.
    fn number(&mut self) {
        let start = self.at;
        self.at += 1;
        while self.peek(0).is_ascii_digit() || matches!(self.peek(0), b'.' | b'_') {
            self.at += 1;
        }
        if matches!(self.peek(0), b'e' | b'E') {
            self.at += 1;
            if matches!(self.peek(0), b'+' | b'-') {
                self.at += 1;
            }
        }
        while is_word(self.peek(0)) || self.peek(0).is_ascii_digit() {
            self.at += 1;
        }
        self.push(LuauTokenKind::Literal, start);
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
}

/// Returns whether a word consists of two underscores and a lowercase letter, like the functions for segments and
/// [`super::Escape`].
fn is_reserved(word: &[u8]) -> bool {
    matches!(word, [b'_', b'_', letter] if letter.is_ascii_lowercase())
}
