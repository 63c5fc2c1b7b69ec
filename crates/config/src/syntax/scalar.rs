//! Decodes tokens into values.

use super::grammar::Parser;
use super::{Scalar, Token, TokenKind};
use crate::code::Code;
use crate::diagnostic::Span;
use kdl::{KdlEntry, KdlValue};

impl Parser<'_> {
    /// Decodes a token. If it is invalid, reports it and returns a string: the token's text, or an empty string.
    pub(super) fn scalar(&mut self, token: Token, is_name: bool) -> Scalar {
        let content = self.content(token);
        match token.kind {
            TokenKind::Keyword => match content {
                "#false" => Scalar::Bool(false),
                "#null" => Scalar::Null,
                "#true" => Scalar::Bool(true),
                "#inf" => Scalar::Float(f64::INFINITY),
                "#-inf" => Scalar::Float(f64::NEG_INFINITY),
                _ => Scalar::Float(f64::NAN),
            },
            TokenKind::Quoted => {
                let plain = content.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
                match plain {
                    Some(plain) if !plain.contains(['\\', '"']) => Scalar::Text(plain.to_owned()),
                    _ => self.decode(token),
                }
            }
            _ => self.word(token, is_name),
        }
    }

    fn word(&mut self, token: Token, is_name: bool) -> Scalar {
        let content = self.content(token).to_owned();
        let text = Scalar::Text(content.clone());
        if content.starts_with(',') || content.ends_with(',') {
            self.add(Code::CommaStray, token, "a comma is not allowed here").label("separate values with spaces");
            return text;
        }
        if content.contains(['/', '\\', '[', ']', '#']) || content.starts_with('\'') {
            let bare = content.trim_matches('\'').replace('\\', "/");
            self.add(Code::QuotesMissing, token, format!("`{content}` needs quotes"))
                .label(format!("write \"{bare}\""))
                .note("in KDL, paths, patterns and addresses need double quotes");
            return text;
        }
        if matches!(content.as_str(), "true" | "false" | "null" | "inf" | "-inf" | "nan") {
            self.add(Code::KeywordBare, token, format!("`{content}` needs a `#` before it"))
                .label(format!("write #{content}, or \"{content}\" for a string"));
            return text;
        }
        let digits = content.trim_start_matches(['+', '-']).trim_start_matches('.');
        let is_number = digits.starts_with(|c: char| c.is_ascii_digit()) && content.len() - digits.len() <= 2;
        if !is_number {
            return text;
        }
        if !is_name && let Ok(entry) = KdlEntry::parse(&content) {
            return scalar_of(entry.value());
        }
        self.add(Code::QuotesMissing, token, format!("`{content}` is not a number; a string needs quotes"))
            .label(format!("write \"{content}\""))
            .note("in KDL, a string that begins with a digit needs double quotes: sizes, durations and addresses do");
        text
    }

    /// Decodes strings with escapes, raw strings and multi-line strings with the `kdl` crate.
    fn decode(&mut self, token: Token) -> Scalar {
        let span = self.span(token);
        if self.report.has_at(Code::QuoteUnclosed, span) {
            return Scalar::Text(String::new());
        }
        if let Some((at, escape)) = bad_escape(self.content(token)) {
            let at = token.start + at;
            let span = Span::new(self.file, at, at + escape.len());
            let draft = self.report.add(Code::Syntax, span, format!("`{escape}` is not a valid escape"));
            draft.label("write a backslash twice: \\\\");
            draft.note("or use a raw string: #\"C:\\folder\"#");
            return Scalar::Text(String::new());
        }
        match KdlEntry::parse(self.content(token)) {
            Ok(entry) => scalar_of(entry.value()),
            Err(error) => {
                let first = error.diagnostics.into_iter().next();
                let (start, length) = first.as_ref().map_or((0, 0), |first| (first.span.offset(), first.span.len()));
                let start = (token.start + start).min(token.end.saturating_sub(1));
                let inside = self.text.is_char_boundary(start) && self.text.is_char_boundary(start + length);
                let fits = inside && start + length <= token.end;
                let span = if fits { Span::new(self.file, start, start + length) } else { self.span(token) };
                let draft = self.report.add(Code::Syntax, span, "this string is not valid");
                if let Some(message) = first.as_ref().and_then(|first| first.message.as_deref()) {
                    draft.label(message.trim_end_matches('.').to_lowercase());
                }
                if let Some(help) = first.and_then(|first| first.help) {
                    draft.note(help);
                }
                Scalar::Text(String::new())
            }
        }
    }
}

/// Finds the first escape that KDL does not define, and its offset. The `kdl` crate checks `\u{…}` and escaped white
/// space.
fn bad_escape(content: &str) -> Option<(usize, &str)> {
    if content.starts_with('#') {
        return None;
    }
    let mut at = 0;
    while let Some(found) = content[at..].find('\\') {
        let start = at + found;
        let escaped = content[start + 1..].chars().next()?;
        at = start + 1 + escaped.len_utf8();
        let known = matches!(escaped, 'n' | 'r' | 't' | '\\' | '"' | 'b' | 'f' | 's' | 'u') || escaped.is_whitespace();
        if !known {
            return Some((start, &content[start..at]));
        }
    }
    None
}

fn scalar_of(value: &KdlValue) -> Scalar {
    match value {
        KdlValue::String(text) => Scalar::Text(text.clone()),
        KdlValue::Integer(integer) => Scalar::Integer(*integer),
        KdlValue::Float(float) => Scalar::Float(*float),
        KdlValue::Bool(value) => Scalar::Bool(*value),
        KdlValue::Null => Scalar::Null,
    }
}
