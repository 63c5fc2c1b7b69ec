//! Emission of the chunk, the segments and the line table of a page.

use super::lines::{LineMap, LineOrigin};
use super::part::TemplatePart;
use super::segments::Segments;
use super::walk::Chosen;
use super::{CompiledPage, Escape, SEGMENT_FUNCTION};
use flatout_config::diagnostic::{Span, Texts};

/// Emits the compiled page.
pub(super) fn emit(parts: &[TemplatePart], chosen: &[Chosen], texts: &Texts, names: Vec<String>) -> CompiledPage {
    let has_code = parts.iter().any(|part| matches!(part, TemplatePart::Insert { .. } | TemplatePart::Block(_)));
    let mut writer = ChunkWriter {
        texts,
        segments: Segments::default(),
        chunk: String::new(),
        origins: Vec::new(),
        pending: Vec::new(),
        pending_at: Span::default(),
    };
    // An included file with code gets a block for its variables; one without code needs none.
    let mut with_blocks = blocks_within(parts).into_iter();
    let mut open = Vec::new();
    for part in parts {
        match *part {
            TemplatePart::Text(span) => writer.text(span),
            TemplatePart::Insert { code, number } => {
                let chosen = chosen.get(number).copied().unwrap_or_default();
                if chosen.line_break {
                    writer.pending.push(b'\n');
                }
                writer.flush();
                writer.insert(code, chosen.escape.unwrap_or(Escape::Text));
            }
            TemplatePart::Block(span) => {
                writer.flush();
                writer.source(span);
                writer.line_end();
            }
            TemplatePart::Enter(span) => {
                let with_block = with_blocks.next().unwrap_or(false);
                open.push(with_block);
                if with_block {
                    writer.flush();
                    writer.line("if true then", span);
                }
            }
            TemplatePart::Leave(span) => {
                if open.pop() == Some(true) {
                    writer.flush();
                    writer.line("end", span);
                }
            }
        }
    }
    writer.flush();
    CompiledPage {
        segments: writer.segments,
        chunk: writer.chunk,
        lines: LineMap::new(names, writer.origins, has_code),
    }
}

/// For each included file, in order, returns whether it contains statements.
fn blocks_within(parts: &[TemplatePart]) -> Vec<bool> {
    let (mut found, mut open) = (Vec::new(), Vec::new());
    for part in parts {
        match part {
            TemplatePart::Enter(_) => {
                open.push(found.len());
                found.push(false);
            }
            TemplatePart::Leave(_) => {
                open.pop();
            }
            TemplatePart::Block(_) => {
                for &number in &open {
                    found[number] = true;
                }
            }
            _ => {}
        }
    }
    found
}

struct ChunkWriter<'a> {
    texts: &'a Texts,
    segments: Segments,
    chunk: String,
    origins: Vec<LineOrigin>,
    /// Literal text that is not part of a segment yet, and its position below.
    pending: Vec<u8>,
    pending_at: Span,
}

impl ChunkWriter<'_> {
    fn text(&mut self, span: Span) {
        if self.pending.is_empty() {
            self.pending_at = span;
        }
        let text = self.texts.text(span.file).get(span.start as usize..span.end as usize);
        self.pending.extend_from_slice(text.unwrap_or_default().as_bytes());
    }

    fn flush(&mut self) {
        if !self.pending.is_empty() {
            let number = self.segments.add(&self.pending);
            self.pending.clear();
            // `if true then … end` is a statement in any position, and the Luau compiler removes the condition.
            self.line(&format!("if true then {SEGMENT_FUNCTION}({number}) end"), self.pending_at);
        }
    }

    fn insert(&mut self, code: Span, escape: Escape) {
        self.chunk.push_str("if true then ");
        self.chunk.push_str(escape.name());
        self.chunk.push_str("((");
        self.source(code);
        // The closing parentheses are on a new line, because the expression may end in a comment.
        self.line_end();
        self.line(")) end", Span::new(code.file, code.end as usize, code.end as usize));
    }

    /// Appends source of the page. Its last line is not ended.
    fn source(&mut self, span: Span) {
        let source = self.texts.text(span.file).get(span.start as usize..span.end as usize).unwrap_or_default();
        let mut at = span.start as usize;
        for (number, line) in source.split('\n').enumerate() {
            if number > 0 {
                self.line_end();
            }
            let blank = line.len() - line.trim_start().len();
            self.origin(Span::new(span.file, at + blank, at + blank));
            self.chunk.push_str(line);
            at += line.len() + 1;
        }
    }

    fn line(&mut self, text: &str, at: Span) {
        self.origin(at);
        self.chunk.push_str(text);
        self.line_end();
    }

    fn line_end(&mut self) {
        self.chunk.push('\n');
    }

    /// Records the source position of the chunk's current line.
    fn origin(&mut self, at: Span) {
        let place = self.texts.place(at);
        self.origins.push(LineOrigin { file: at.file, line: place.line, column: place.column });
    }
}
