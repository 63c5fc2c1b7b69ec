//! The block structure of a page's code: which `if` contains a piece of text, and which `end` closes it.
//!
//! Luau's parser reads the whole chunk, so this module does not parse. *If the chunk is valid Luau*, its keywords alone
//! determine the blocks, because keywords are never names and each of them opens or closes a block. Only `if` needs
//! context: it begins either a statement, which has an `end`, or an expression, which has none. The preceding token
//! decides: after a token that needs an operand, `if` is an expression; after a token that can end a statement, it is a
//! statement. Only `>` is ambiguous, because it is a comparison and also closes type parameters. An `if` after `>` is
//! rejected.
//!
//! Two properties ensure that the page's text is always a separate statement. First, a block of code is rejected if it
//! ends where an operand is needed, or inside a head, a function or an expression. Second, the code emitted for text
//! begins with `if true then` and ends with `end`. As an expression, it would need an `else`, so the chunk would not
//! compile.

use super::luau::{Code as LuauCode, LuauToken, LuauTokenKind};
use flatout_config::diagnostic::Span;
use flatout_config::{Code, diagnostic::Report};

/// How code affects the order in which the page's parts run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControlEvent {
    /// The beginning of an `if` statement.
    If,
    /// An `elseif`, or an `else`, which is the last branch.
    Else { last: bool },
    /// The end of the innermost `if` statement.
    EndIf,
    /// The beginning of a loop's body.
    Loop,
    /// A `break` or `continue`.
    Jump,
    /// The end of a loop: its `end` or `until`.
    EndLoop,
}

/// Maximum nesting depth of blocks, as in Luau's parser.
const DEPTH_MAX: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ControlStructure {
    /// An `if` statement.
    If(IfPart),
    /// An `if` expression, up to its `else`. Nothing marks the end of the expression.
    Choice,
    /// A `for` or `while` loop. `pending` is true until its `do`.
    Loop {
        pending: bool,
    },
    Do,
    Repeat,
    Function,
}

/// The part of an `if` statement that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IfPart {
    /// The condition, up to its `then`.
    Condition,
    /// A branch after a `then`.
    Branch,
    /// The branch after the `else`, which no other branch may follow.
    LastBranch,
}

/// The syntax that may follow a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    Statement,
    Operand,
    /// A statement or an operand, after `>`.
    Unclear,
}

/// The open blocks, across all pieces of code of a page.
#[derive(Debug, Default)]
pub(super) struct Structure {
    open: Vec<(ControlStructure, Span)>,
    /// Number of open functions. The code in them does not affect the order of the page's parts.
    functions: usize,
}

impl Structure {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Number of open blocks.
    pub(super) fn depth(&self) -> usize {
        self.open.len()
    }

    /// Reads a block of code. The `base` outermost open blocks belong to the including files.
    pub(super) fn read(
        &mut self,
        (file, text): (u32, &str),
        tokens: &[LuauToken],
        base: usize,
        report: &mut Report,
    ) -> Vec<(ControlEvent, Span)> {
        let mut events = Vec::new();
        let mut behind = Behind::Statement;
        for token in tokens {
            let span = Span::new(file, token.range.start, token.range.end);
            let word = &text[token.range.clone()];
            match self.token(token.kind, word, span, behind, base, &mut events) {
                Ok(next) => behind = next,
                Err(fault) => {
                    fault.tell(report, word, span);
                    return events;
                }
            }
        }
        self.finish(tokens, (file, text), behind, report);
        events
    }

    /// Checks that a block of code ends where a separate statement can follow.
    fn finish(&mut self, tokens: &[LuauToken], (file, text): (u32, &str), behind: Behind, report: &mut Report) {
        let Some(last) = tokens.last() else { return };
        if behind != Behind::Statement {
            let word = &text[last.range.clone()];
            let span = Span::new(file, last.range.start, last.range.end);
            let message = format!("the block ends after `{word}`, within a statement");
            let draft = report.add(Code::StatementUnfinished, span, message);
            if word == "return" {
                draft.note("to end the page here, write: <?lua do return end ?>");
            } else if word == ">" {
                draft.note("write `;` after the type");
            }
            return;
        }
        // Removes open blocks that must not contain text, so that each of them is reported only once.
        while let Some(&(block, span)) = self.open.last() {
            let (code, message) = match block {
                ControlStructure::Function => {
                    (Code::FunctionAround, "this function contains page text, or is not closed")
                }
                ControlStructure::Choice => {
                    (Code::StatementUnfinished, "this `if` is an expression, but has no `else` in its block")
                }
                ControlStructure::If(IfPart::Condition) => {
                    (Code::StatementUnfinished, "`then` is missing in this block")
                }
                ControlStructure::Loop { pending: true } => {
                    (Code::StatementUnfinished, "`do` is missing in this block")
                }
                _ => return,
            };
            report.add(code, span, message);
            self.pop();
        }
    }

    /// Checks that all blocks are closed, except for the `base` outermost ones.
    pub(super) fn close(&mut self, base: usize, report: &mut Report) {
        while self.open.len() > base {
            if let Some((block, span)) = self.open.last().copied() {
                let name = match block {
                    ControlStructure::If(_) | ControlStructure::Choice => "if",
                    ControlStructure::Loop { .. } => "loop",
                    ControlStructure::Do => "do",
                    ControlStructure::Repeat => "repeat",
                    ControlStructure::Function => "function",
                };
                let closer = if block == ControlStructure::Repeat { "until" } else { "end" };
                report
                    .add(Code::BlockUnclosed, span, format!("this `{name}` has no `{closer}` in this file"))
                    .note(format!("write <?lua {closer} ?> where it ends"));
            }
            self.pop();
        }
    }

    fn pop(&mut self) -> Option<ControlStructure> {
        let (block, _) = self.open.pop()?;
        if block == ControlStructure::Function {
            self.functions -= 1;
        }
        Some(block)
    }

    fn push(&mut self, block: ControlStructure, span: Span) -> Result<(), StructureFault> {
        if self.open.len() == DEPTH_MAX {
            return Err(StructureFault::Deep);
        }
        if block == ControlStructure::Function {
            self.functions += 1;
        }
        self.open.push((block, span));
        Ok(())
    }

    fn token(
        &mut self,
        kind: LuauTokenKind,
        word: &str,
        span: Span,
        behind: Behind,
        base: usize,
        events: &mut Vec<(ControlEvent, Span)>,
    ) -> Result<Behind, StructureFault> {
        Ok(match kind {
            LuauTokenKind::Word => return self.word(word, span, behind, base, events),
            LuauTokenKind::Literal | LuauTokenKind::Close => Behind::Statement,
            LuauTokenKind::LiteralOpen | LuauTokenKind::Open => Behind::Operand,
            LuauTokenKind::Mark => match word {
                "..." | ";" | "?" => Behind::Statement,
                ">" => Behind::Unclear,
                _ => Behind::Operand,
            },
        })
    }

    fn word(
        &mut self,
        word: &str,
        span: Span,
        behind: Behind,
        base: usize,
        events: &mut Vec<(ControlEvent, Span)>,
    ) -> Result<Behind, StructureFault> {
        let outside = self.functions == 0;
        let mut tell = |event| {
            if outside {
                events.push((event, span));
            }
        };
        let top = (self.open.len() > base).then(|| self.open.last().map(|(block, _)| *block)).flatten();
        Ok(match word {
            "if" => match behind {
                Behind::Unclear => return Err(StructureFault::Unclear),
                Behind::Operand => {
                    self.push(ControlStructure::Choice, span)?;
                    Behind::Operand
                }
                Behind::Statement => {
                    self.push(ControlStructure::If(IfPart::Condition), span)?;
                    tell(ControlEvent::If);
                    Behind::Operand
                }
            },
            "then" => match top {
                Some(ControlStructure::Choice) => Behind::Operand,
                Some(ControlStructure::If(IfPart::Condition)) => {
                    self.set(ControlStructure::If(IfPart::Branch));
                    Behind::Statement
                }
                _ => return Err(StructureFault::Stray),
            },
            "else" => match top {
                // The last branch ends with the expression, which nothing marks.
                Some(ControlStructure::Choice) => {
                    self.pop();
                    Behind::Operand
                }
                Some(ControlStructure::If(IfPart::Branch)) => {
                    self.set(ControlStructure::If(IfPart::LastBranch));
                    tell(ControlEvent::Else { last: true });
                    Behind::Statement
                }
                _ => return Err(StructureFault::Stray),
            },
            "elseif" => match top {
                Some(ControlStructure::Choice) => Behind::Operand,
                Some(ControlStructure::If(IfPart::Branch)) => {
                    self.set(ControlStructure::If(IfPart::Condition));
                    tell(ControlEvent::Else { last: false });
                    Behind::Operand
                }
                _ => return Err(StructureFault::Stray),
            },
            "for" | "while" => {
                self.push(ControlStructure::Loop { pending: true }, span)?;
                Behind::Operand
            }
            "do" => {
                if top == Some(ControlStructure::Loop { pending: true }) {
                    self.set(ControlStructure::Loop { pending: false });
                    tell(ControlEvent::Loop);
                } else {
                    self.push(ControlStructure::Do, span)?;
                }
                Behind::Statement
            }
            "repeat" => {
                self.push(ControlStructure::Repeat, span)?;
                tell(ControlEvent::Loop);
                Behind::Statement
            }
            "function" => {
                self.push(ControlStructure::Function, span)?;
                Behind::Operand
            }
            "end" => {
                match top {
                    Some(ControlStructure::If(IfPart::Branch | IfPart::LastBranch)) => tell(ControlEvent::EndIf),
                    Some(ControlStructure::Loop { pending: false }) => tell(ControlEvent::EndLoop),
                    Some(ControlStructure::Do | ControlStructure::Function) => {}
                    _ => return Err(StructureFault::Stray),
                }
                self.pop();
                Behind::Statement
            }
            "until" => {
                if top != Some(ControlStructure::Repeat) {
                    return Err(StructureFault::Stray);
                }
                tell(ControlEvent::EndLoop);
                self.pop();
                Behind::Operand
            }
            // `continue` can also be a name. Treating it as a jump is only stricter.
            "break" | "continue" => {
                tell(ControlEvent::Jump);
                Behind::Statement
            }
            "and" | "or" | "not" | "in" | "return" | "local" => Behind::Operand,
            _ => Behind::Statement,
        })
    }

    fn set(&mut self, block: ControlStructure) {
        if let Some(last) = self.open.last_mut() {
            last.0 = block;
        }
    }
}

/// Checks that a piece of code is a single expression. It is emitted in parentheses. If the chunk is valid Luau, the
/// content of matching parentheses at this place is one expression, unless it is empty.
pub(super) fn check_expression((file, text): (u32, &str), code: &LuauCode, report: &mut Report) {
    let mut structure = Structure::new();
    let (mut brackets, mut behind) = (0_usize, Behind::Operand);
    let mut ignored = Vec::new();
    for token in &code.tokens {
        let span = Span::new(file, token.range.start, token.range.end);
        let word = &text[token.range.clone()];
        match token.kind {
            LuauTokenKind::Open => brackets += 1,
            LuauTokenKind::Close => brackets = brackets.saturating_sub(1),
            LuauTokenKind::Mark if brackets == 0 && structure.depth() == 0 && matches!(word, "," | ";" | "=") => {
                report
                    .add(Code::ExpressionBad, span, format!("`{word}` is not allowed in an insertion"))
                    .note("an insertion must contain one expression; put statements into <?lua … ?>");
                return;
            }
            _ => {}
        }
        match structure.token(token.kind, word, span, behind, 0, &mut ignored) {
            Ok(next) => behind = next,
            Err(fault) => return fault.tell(report, word, span),
        }
    }
    let range = code.tokens.first().zip(code.tokens.last());
    let range = range.map_or(code.range.clone(), |(first, last)| first.range.start..last.range.end);
    let span = Span::new(file, range.start, range.end);
    if code.tokens.is_empty() {
        report.add(Code::ExpressionBad, span, "this insertion is empty").label("an expression is missing here");
    } else if behind == Behind::Operand || structure.depth() > 0 {
        report.add(Code::ExpressionBad, span, "the expression is not finished");
    }
}

#[derive(Clone, Copy, Debug)]
enum StructureFault {
    Stray,
    Unclear,
    Deep,
}

impl StructureFault {
    fn tell(self, report: &mut Report, word: &str, span: Span) {
        match self {
            Self::Stray => {
                report
                    .add(Code::BlockStray, span, format!("this `{word}` has no matching block"))
                    .note("a file must close what it opens");
            }
            Self::Unclear => {
                report
                    .add(Code::StatementUnfinished, span, "`if` after `>` may be a statement or an expression")
                    .note("write `;` before a statement, or parentheses around an expression");
            }
            Self::Deep => {
                report.add(Code::PageTangled, span, format!("blocks are nested deeper than {DEPTH_MAX} levels"));
            }
        }
    }
}
