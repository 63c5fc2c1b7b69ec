//! Builds the tree from tokens, with a message for every common mistake.

use super::{Annotation, DEPTH_MAX, Node, Property, Scalar, TEXT_BYTES_MAX, Token, TokenKind, Value, scan};
use crate::code::Code;
use crate::diagnostic::{Draft, Report, Span};

/// Parses a document. If the report contains errors afterwards, the tree must not be used.
pub fn parse_document(file: u32, text: &str, report: &mut Report) -> Vec<Node> {
    if text.len() > TEXT_BYTES_MAX {
        report.add(Code::TooLarge, Span::new(file, 0, 0), "the text is larger than 16 MiB");
        return Vec::new();
    }
    let tokens = scan(file, text, report);
    let mut parser = Parser { file, text, tokens, at: 0, frames: Vec::new(), crooked: None, line_start: 0, report };
    parser.document()
}

struct OpenBlock {
    /// The setting that the block belongs to; `None` at the top level and for a block without a name.
    node: Option<Node>,
    /// True if `/-` disables the setting.
    node_dropped: bool,
    block_dropped: bool,
    /// The settings in the block so far.
    nodes: Vec<Node>,
    /// The span of the opening brace.
    open: Span,
    /// The indentation of the line that contains the brace.
    indent: usize,
}

pub(super) struct Parser<'a> {
    pub(super) file: u32,
    pub(super) text: &'a str,
    tokens: Vec<Token>,
    at: usize,
    frames: Vec<OpenBlock>,
    /// The first block whose closing brace is indented differently from its opening line.
    crooked: Option<Span>,
    /// The offset at which the line of the last token begins.
    line_start: usize,
    pub(super) report: &'a mut Report,
}

/// A setting under construction, and whether `/-` disables it.
struct Open {
    node: Node,
    dropped: bool,
}

impl Parser<'_> {
    fn document(&mut self) -> Vec<Node> {
        self.push_frame(None, false, false, Span::new(self.file, 0, 0));
        let mut dropped = None;
        while let Some(token) = self.next() {
            match token.kind {
                TokenKind::Newline | TokenKind::LineComment | TokenKind::BlockComment | TokenKind::Continuation => {}
                TokenKind::Semicolon => {
                    self.add(Code::Syntax, token, "there is no setting before this `;`");
                }
                TokenKind::Slashdash => {
                    self.dangling(dropped.replace(token));
                }
                TokenKind::Close => {
                    self.dangling(dropped.take());
                    self.close(token);
                }
                TokenKind::Open => {
                    dropped = None;
                    self.add(Code::NameMissing, token, "this block has no name")
                        .label("write the name of the setting before the brace, on the same line");
                    self.open(None, token, true);
                }
                _ => {
                    self.at -= 1;
                    if let Some(open) = self.name(dropped.take().is_some()) {
                        self.entries(open);
                    }
                }
            }
            if self.frames.len() > DEPTH_MAX + 1 {
                let message = format!("blocks are nested deeper than {DEPTH_MAX} levels");
                let span = self.frames.last().map_or_else(Span::default, |frame| frame.open);
                self.report.add(Code::TooDeep, span, message);
                return Vec::new();
            }
        }
        self.dangling(dropped);
        self.end()
    }

    /// Reports a `/-` that nothing follows.
    fn dangling(&mut self, slashdash: Option<Token>) {
        if let Some(token) = slashdash {
            self.add(Code::Syntax, token, "nothing follows this `/-`, so it disables nothing");
        }
    }

    /// Handles the end of the document. Reports a block that is still open.
    fn end(&mut self) -> Vec<Node> {
        // An unclosed string or comment may have swallowed closing braces.
        let swallowed = self.report.has_in(Code::QuoteUnclosed, Span::new(self.file, 0, 0));
        if self.frames.len() > 1 && !swallowed {
            let innermost = self.frames.last().map_or_else(Span::default, |frame| frame.open);
            let span = self.crooked.unwrap_or(innermost);
            let draft = self.report.add(Code::BraceUnclosed, span, "this block is never closed");
            draft.label("this `{` has no matching `}`");
            if self.crooked.is_some() {
                draft.note("judging by the indentation, this is the block that is not closed");
            }
        }
        self.frames.drain(..).next().map_or_else(Vec::new, |frame| frame.nodes)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).copied()?;
        self.at += 1;
        self.pass(token);
        Some(token)
    }

    /// Updates the offset at which the line begins. Searching for it at each brace would take quadratic time in a
    /// hostile file.
    fn pass(&mut self, token: Token) {
        match token.kind {
            TokenKind::Newline | TokenKind::Continuation => self.line_start = token.end,
            TokenKind::BlockComment | TokenKind::Quoted => {
                if let Some(at) = self.content(token).rfind('\n') {
                    self.line_start = token.start + at + 1;
                }
            }
            _ => {}
        }
    }

    /// The next token other than block comments and line continuations.
    fn peek(&self) -> Option<Token> {
        let rest = self.tokens.get(self.at..)?;
        rest.iter().find(|token| !matches!(token.kind, TokenKind::BlockComment | TokenKind::Continuation)).copied()
    }

    fn skip_to_peeked(&mut self) {
        while let Some(token) = self.tokens.get(self.at)
            && matches!(token.kind, TokenKind::BlockComment | TokenKind::Continuation)
        {
            let token = *token;
            self.at += 1;
            self.pass(token);
        }
    }

    pub(super) fn span(&self, token: Token) -> Span {
        Span::new(self.file, token.start, token.end)
    }

    pub(super) fn content(&self, token: Token) -> &str {
        &self.text[token.start..token.end]
    }

    pub(super) fn add(&mut self, code: Code, token: Token, message: impl Into<String>) -> &mut Draft {
        let span = self.span(token);
        self.report.add(code, span, message)
    }

    fn push_frame(&mut self, node: Option<Node>, node_dropped: bool, block_dropped: bool, open: Span) {
        let line = &self.text[self.line_start..];
        let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
        self.frames.push(OpenBlock { node, node_dropped, block_dropped, nodes: Vec::new(), open, indent });
    }

    fn open(&mut self, open: Option<Open>, token: Token, block_dropped: bool) {
        let span = self.span(token);
        let (node, dropped) = open.map_or((None, true), |open| (Some(open.node), open.dropped));
        self.push_frame(node, dropped, block_dropped, span);
    }

    /// Adds a finished setting to the block that contains it.
    fn attach(&mut self, open: Open) {
        if let (Some(frame), false) = (self.frames.last_mut(), open.dropped) {
            frame.nodes.push(open.node);
        }
    }

    fn close(&mut self, token: Token) {
        if self.frames.len() < 2 {
            self.add(Code::BraceStray, token, "this `}` has no matching `{`");
            return;
        }
        let Some(frame) = self.frames.pop() else { return };
        let before = self.text.get(self.line_start..token.start).unwrap_or("");
        let indent = before.len() - before.trim_start_matches([' ', '\t']).len();
        if self.crooked.is_none() && indent == before.len() && indent != frame.indent {
            self.crooked = Some(frame.open);
        }
        let Some(mut node) = frame.node else { return };
        if !frame.block_dropped {
            node.children = Some(frame.nodes);
        }
        self.behind_block(Open { node, dropped: frame.node_dropped }, frame.block_dropped);
    }

    /// Handles what follows a block: possibly another block, if either is disabled, and then the end of the setting.
    fn behind_block(&mut self, open: Open, block_dropped: bool) {
        self.skip_to_peeked();
        match self.peek() {
            Some(token) if token.kind == TokenKind::Slashdash => {
                self.at += 1;
                self.skip_to_peeked();
                match self.next() {
                    Some(brace) if brace.kind == TokenKind::Open => return self.open(Some(open), brace, true),
                    _ => {
                        self.add(Code::Syntax, token, "after a block, `/-` can only disable another block");
                    }
                }
            }
            None => {}
            // The previous block was disabled, so this one applies.
            Some(token) if token.kind == TokenKind::Open && block_dropped && open.node.children.is_none() => {
                self.skip_to_peeked();
                self.at += 1;
                return self.open(Some(open), token, false);
            }
            Some(token) => match token.kind {
                TokenKind::Semicolon => {
                    self.skip_to_peeked();
                    self.at += 1;
                }
                TokenKind::Newline | TokenKind::Close | TokenKind::LineComment => {}
                _ => {
                    self.add(Code::Syntax, token, "a block must be followed by a newline")
                        .label("this begins another setting: put it on a new line, or put `;` before it");
                }
            },
        }
        self.attach(open);
    }

    /// Reads the name of a setting.
    fn name(&mut self, dropped: bool) -> Option<Open> {
        let token = self.next()?;
        match token.kind {
            TokenKind::Word | TokenKind::Quoted => {}
            TokenKind::ParenOpen => {
                self.add(Code::AnnotationUnknown, token, "an annotation in parentheses is not allowed before a name");
                self.skip_parentheses();
                return None;
            }
            _ => {
                let message = format!("a setting cannot begin with `{}`", self.content(token));
                self.add(Code::Syntax, token, message);
                return None;
            }
        }
        let value = self.scalar(token, true);
        let (span, Scalar::Text(name)) = (self.span(token), value) else {
            return None;
        };
        let node = Node { name, span, arguments: Vec::new(), properties: Vec::new(), children: None };
        Some(Open { node, dropped })
    }

    /// Reads everything after the name, up to the end of the setting or the beginning of its block.
    fn entries(&mut self, mut open: Open) {
        // The offset at which the last value ends, because two values must not touch.
        let mut touched = open.node.span.end as usize;
        let mut slashdash: Option<Token> = None;
        loop {
            self.skip_to_peeked();
            let Some(token) = self.next() else {
                self.dangling(slashdash);
                return self.attach(open);
            };
            match token.kind {
                // The part that `/-` disables may be on the next line.
                TokenKind::Newline | TokenKind::LineComment if slashdash.is_some() => {}
                TokenKind::Newline | TokenKind::Semicolon | TokenKind::LineComment => {
                    self.dangling(slashdash);
                    return self.attach(open);
                }
                TokenKind::Close => {
                    self.at -= 1;
                    self.dangling(slashdash);
                    return self.attach(open);
                }
                TokenKind::Open => return self.open(Some(open), token, slashdash.is_some()),
                TokenKind::Slashdash => {
                    if token.start == touched {
                        self.touching(token);
                    }
                    self.dangling(slashdash.replace(token));
                }
                TokenKind::ParenClose => {
                    self.add(Code::Syntax, token, "this `)` has no matching `(`");
                }
                TokenKind::Equals => self.stray_equals(token, &open),
                TokenKind::ParenOpen if token.start == touched => self.call(&open),
                _ => {
                    if token.start == touched {
                        self.touching(token);
                    }
                    self.entry(token, &mut open, slashdash.take().is_some());
                }
            }
            // No space is required after `/-`.
            touched = if slashdash.is_some() { usize::MAX } else { self.tokens[self.at - 1].end };
        }
    }

    fn stray_equals(&mut self, token: Token, open: &Open) {
        let behind_name = open.node.arguments.is_empty() && open.node.properties.is_empty();
        let name = open.node.name.clone();
        let draft = self.add(Code::EqualsStray, token, "this `=` is not allowed here");
        if behind_name {
            draft.label(format!("write the value of `{name}` without `=`"));
        }
    }

    fn touching(&mut self, token: Token) {
        if self.content(token).starts_with(',') {
            return;
        }
        self.add(Code::Syntax, token, "a space is needed between two values");
    }

    /// Reports a call such as `env("X")`, which is not valid KDL but a common mistake.
    fn call(&mut self, open: &Open) {
        let word = open.node.arguments.last().map(|value| (value.span, self.text_of(value.span).to_owned()));
        let (span, word) = word.unwrap_or((open.node.span, open.node.name.clone()));
        let argument = self.peek().filter(|next| next.kind == TokenKind::Quoted || next.kind == TokenKind::Word);
        let argument = argument.map_or_else(String::new, |next| self.content(next).trim_matches('"').to_owned());
        self.skip_parentheses();
        let span = Span { end: self.tokens[self.at - 1].end as u32, ..span };
        let draft = self.report.add(Code::CallForm, span, format!("KDL has no functions such as `{word}(…)`"));
        match Annotation::of(&word) {
            Some(annotation) => draft.label(format!("write ({})\"{argument}\"", annotation.name())),
            None => draft.note("the annotations are (env)\"NAME\", (env)\"NAME:-default\" and (file)\"path\""),
        };
    }

    fn text_of(&self, span: Span) -> &str {
        &self.text[span.start as usize..span.end as usize]
    }

    /// Skips tokens up to and including `)`, or to the end of the line.
    fn skip_parentheses(&mut self) {
        while let Some(token) = self.tokens.get(self.at) {
            match token.kind {
                TokenKind::Newline
                | TokenKind::Semicolon
                | TokenKind::Open
                | TokenKind::Close
                | TokenKind::LineComment => return,
                TokenKind::ParenClose => {
                    self.at += 1;
                    return;
                }
                _ => self.at += 1,
            }
        }
    }

    /// Reads a value or a property.
    fn entry(&mut self, token: Token, open: &mut Open, dropped: bool) {
        let is_key = matches!(token.kind, TokenKind::Word | TokenKind::Quoted);
        if is_key && self.peek().is_some_and(|next| next.kind == TokenKind::Equals) {
            let name = self.scalar(token, true);
            self.skip_to_peeked();
            let Some(equals) = self.next() else { return };
            self.skip_to_peeked();
            let Some(first) = self.peek().filter(|next| {
                matches!(next.kind, TokenKind::Word | TokenKind::Quoted | TokenKind::Keyword | TokenKind::ParenOpen)
            }) else {
                let name = self.content(token).to_owned();
                self.add(Code::Syntax, equals, format!("a value is missing after `{name}=`"));
                return;
            };
            self.at += 1;
            let value = self.value(first);
            if let (Scalar::Text(name), Some(value), false) = (name, value, dropped) {
                open.node.properties.push(Property { name, span: self.span(token), value });
            }
            return;
        }
        if let (Some(value), false) = (self.value(token), dropped) {
            open.node.arguments.push(value);
        }
    }

    /// Reads a value, with its annotation if it has one.
    fn value(&mut self, token: Token) -> Option<Value> {
        if token.kind != TokenKind::ParenOpen {
            let scalar = self.scalar(token, false);
            return Some(Value { scalar, annotation: None, span: self.span(token) });
        }
        let (inside, line_start) = (self.at, self.line_start);
        self.skip_to_peeked();
        let Some(name) = self.next() else {
            self.add(Code::AnnotationUnknown, token, "this parenthesis is never closed");
            return None;
        };
        self.skip_to_peeked();
        let close = self.next();
        let annotation = Annotation::of(self.content(name));
        let closed = close.is_some_and(|close| close.kind == TokenKind::ParenClose);
        if !closed || annotation.is_none() {
            let message = match name.kind {
                TokenKind::Word if closed => format!("unknown annotation `({})`", self.content(name)),
                _ => "this is not a valid annotation".to_owned(),
            };
            let draft = self.add(Code::AnnotationUnknown, if closed { name } else { token }, message);
            draft.note("allowed here: (env), (file)");
            if !closed {
                (self.at, self.line_start) = (inside, line_start);
                self.skip_parentheses();
                return None;
            }
        }
        self.skip_to_peeked();
        let value =
            self.peek().filter(|next| matches!(next.kind, TokenKind::Word | TokenKind::Quoted | TokenKind::Keyword));
        let Some(value) = value else {
            self.add(Code::ValueMissing, token, "a value is missing after the annotation")
                .note("as in (env)\"NAME\" or (file)\"path\"");
            return None;
        };
        self.at += 1;
        let scalar = self.scalar(value, false);
        let span = Span::new(self.file, token.start, value.end);
        annotation.map(|annotation| Value { scalar, annotation: Some(annotation), span })
    }
}
