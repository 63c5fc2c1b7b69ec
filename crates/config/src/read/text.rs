//! Texts with variables: `https://{host}{uri}`.

use super::Reader;
use super::shape::nearest;
use crate::code::Code;
use crate::diagnostic::Span;
use crate::model::{Text, TextPart, Variable};
use crate::syntax::Value;

const VARIABLES: &[(Variable, &str)] = &[
    (Variable::Host, "host"),
    (Variable::HostPort, "host_port"),
    (Variable::Path, "path"),
    (Variable::Uri, "uri"),
    (Variable::Query, "query"),
    (Variable::Scheme, "scheme"),
    (Variable::Rest, "rest"),
];

impl Reader<'_> {
    /// A text in which braces hold variables; braces that are meant are doubled.
    pub(super) fn template(&mut self, value: &Value) -> Option<Text> {
        let text = self.line(value)?;
        self.parse_template(value.span, &text)
    }

    pub(super) fn parse_template(&mut self, span: Span, text: &str) -> Option<Text> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            rest = &rest[at..];
            if rest.starts_with("{{") || rest.starts_with("}}") {
                literal.push_str(&rest[..1]);
                rest = &rest[2..];
                continue;
            }
            let name = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
            let Some((name, behind)) = name else {
                let message = format!("`{}` stands alone", &rest[..1]);
                let draft = self.report.add(Code::VariableUnknown, span, message);
                draft.note("a variable stands in braces, {host}; a brace that is meant is written twice, {{");
                return None;
            };
            let Some((variable, _)) = VARIABLES.iter().find(|(_, known)| *known == name) else {
                let names: Vec<&str> = VARIABLES.iter().map(|(_, name)| *name).collect();
                let near = nearest(name, &names);
                let draft = self.report.add(Code::VariableUnknown, span, format!("unknown variable `{{{name}}}`"));
                if let Some(near) = near {
                    draft.label(format!("did you mean {{{near}}}?"));
                }
                draft.note(format!("allowed here: {}", names.join(", ")));
                return None;
            };
            if !literal.is_empty() {
                parts.push(TextPart::Literal(std::mem::take(&mut literal)));
            }
            parts.push(TextPart::Variable(*variable));
            rest = behind;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(TextPart::Literal(literal));
        }
        Some(Text { parts })
    }
}

/// The text as it would be written.
pub(crate) fn encode_text(text: &Text) -> String {
    let encode = |part: &TextPart| match part {
        TextPart::Literal(literal) => literal.replace('{', "{{").replace('}', "}}"),
        TextPart::Variable(variable) => {
            let name = VARIABLES.iter().find(|(known, _)| known == variable).map_or("", |(_, name)| *name);
            format!("{{{name}}}")
        }
    };
    text.parts.iter().map(encode).collect()
}
