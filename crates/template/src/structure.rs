//! The block structure of a page's code: which `if` contains a text, and which `end` closes it.
//!
//! Luau's parser reads the whole chunk, so nothing is parsed here: *given that the chunk is valid Luau*, its reserved
//! words alone determine its blocks. They are never names, and each opens or closes a block. Only `if` needs context:
//! it begins a statement, which has an `end`, or an expression, which has none. The preceding token decides: after
//! one that needs an operand it is an expression, after one that can end a statement it is a statement. One token is
//! ambiguous, `>`, which compares and also closes type parameters; an `if` after it is rejected.
//!
//! Two properties ensure that the page's text is always a separate statement. A block of code that ends where an
//! operand is needed, or within a head, a function or an expression, is rejected. And the code emitted for text
//! begins with `if true then` and ends with `end`: as an expression it would need an `else`, so the chunk would not
//! compile.

use super::luau::{Code as LuauCode, LuauToken, LuauTokenKind};
use flatout_config::diagnostic::Span;
use flatout_config::{Code, diagnostic::Report};

/// The effect of code on the order of the page's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControlEvent {
    /// `if`.
    If,
    /// `elseif`, or `else`, which is the last.
    Else { last: bool },
    /// The `end` of an `if`.
    EndIf,
    /// Start of a loop's body.
    Loop,
    /// `break` or `continue`.
    Jump,
    /// The `end` or `until` of a loop.
    EndLoop,
}

/// Upper bound of nested blocks, as in Luau's parser.
const DEPTH_MAX: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ControlStructure {
    /// A statement; its `then` is still to come.
    If {
        pending: bool,
    },
    /// An expression, up to its `else`, after which its end is unmarked.
    Choice,
    /// `for` or `while`; its `do` is still to come.
    Loop {
        pending: bool,
    },
    Do,
    Repeat,
    Function,
}

/// The kind of token that may follow a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    Statement,
    Operand,
    /// Ambiguous: `>`.
    Unclear,
}

/// The open blocks, across all pieces of code of a page.
#[derive(Debug, Default)]
pub(super) struct Structure {
    open: Vec<(ControlStructure, Span)>,
    /// Number of open functions, whose content does not affect the page's text.
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

    /// Reads a block of code. `base` blocks belong to the including files.
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
                draft.note("write `;` after a type");
            }
            return;
        }
        // Removes open blocks that cannot contain text, so that each is reported once.
        while let Some(&(block, span)) = self.open.last() {
            let (code, message) = match block {
                ControlStructure::Function => {
                    (Code::FunctionAround, "this function contains page text, or is not closed")
                }
                ControlStructure::Choice => {
                    (Code::StatementUnfinished, "this `if` is an expression, and has no `else` in its block")
                }
                ControlStructure::If { pending: true } => {
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

    /// Checks that everything opened above `base` blocks is closed.
    pub(super) fn close(&mut self, base: usize, report: &mut Report) {
        while self.open.len() > base {
            if let Some((block, span)) = self.open.last().copied() {
                let name = match block {
                    ControlStructure::If { .. } | ControlStructure::Choice => "if",
                    ControlStructure::Loop { .. } => "loop",
                    ControlStructure::Do => "do",
                    ControlStructure::Repeat => "repeat",
                    ControlStructure::Function => "function",
                };
                let closer = if block == ControlStructure::Repeat { "until" } else { "end" };
                report
                    .add(Code::BlockUnclosed, span, format!("this `{name}` has no `{closer}` in its file"))
                    .note(format!("where it ends, write: <?lua {closer} ?>"));
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
                    self.push(ControlStructure::If { pending: true }, span)?;
                    tell(ControlEvent::If);
                    Behind::Operand
                }
            },
            "then" => match top {
                Some(ControlStructure::Choice) => Behind::Operand,
                Some(ControlStructure::If { pending: true }) => {
                    self.set(ControlStructure::If { pending: false });
                    Behind::Statement
                }
                _ => return Err(StructureFault::Stray),
            },
            "else" => match top {
                // Its last branch ends with the expression, without a mark.
                Some(ControlStructure::Choice) => {
                    self.pop();
                    Behind::Operand
                }
                Some(ControlStructure::If { pending: false }) => {
                    tell(ControlEvent::Else { last: true });
                    Behind::Statement
                }
                _ => return Err(StructureFault::Stray),
            },
            "elseif" => match top {
                Some(ControlStructure::Choice) => Behind::Operand,
                Some(ControlStructure::If { pending: false }) => {
                    self.set(ControlStructure::If { pending: true });
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
                    Some(ControlStructure::If { pending: false }) => tell(ControlEvent::EndIf),
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
            // `continue` can also be a name; treating it as a jump is only stricter.
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

/// Checks that a piece of code is one expression: it is emitted in parentheses, and given that the chunk is valid
/// Luau, the content of matching parentheses there is one, unless empty.
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
                    .note("an insertion contains one expression; put statements into <?lua … ?>");
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
        report.add(Code::ExpressionBad, span, "nothing is inserted here").label("an expression belongs here");
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
                    .add(Code::BlockStray, span, format!("this `{word}` belongs to nothing"))
                    .note("a file must close what it opens");
            }
            Self::Unclear => {
                report
                    .add(Code::StatementUnfinished, span, "`if` after `>` may be a statement or an expression")
                    .note("before a statement, write `;`; around an expression, parentheses");
            }
            Self::Deep => {
                report.add(Code::PageTangled, span, format!("blocks are nested deeper than {DEPTH_MAX} levels"));
            }
        }
    }
}
