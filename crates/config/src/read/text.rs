//! Strings with variables, such as `https://{host}{uri}`.

use super::reader::Reader;
use super::shape::nearest;
use crate::code::Code;
use crate::diagnostic::Span;
use crate::model::{Text, TextPart, Variable};
use crate::syntax::Value;

const VARIABLES: &[(Variable, &str)] = &[
    (Variable::Client, "client"),
    (Variable::Host, "host"),
    (Variable::HostPort, "host_port"),
    (Variable::Path, "path"),
    (Variable::Uri, "uri"),
    (Variable::Query, "query"),
    (Variable::Scheme, "scheme"),
    (Variable::Rest, "rest"),
];

/// Names of variables in other servers, each with flatout's name for the variable.
const ELSEWHERE: &[(&str, &str)] = &[
    ("uri", "path"),
    ("document_uri", "path"),
    ("request_uri", "uri"),
    ("host", "host"),
    ("server_name", "host"),
    ("http_host", "host_port"),
    ("args", "query"),
    ("query_string", "query"),
    ("is_args", "query"),
    ("scheme", "scheme"),
    ("remote_addr", "client"),
    ("remote", "client"),
    ("remote_host", "client"),
    ("http.request.host", "host"),
    ("http.request.uri", "uri"),
    ("http.request.uri.path", "path"),
    ("http.request.uri.query", "query"),
    ("http.request.scheme", "scheme"),
    ("http.request.remote.host", "client"),
];

impl Reader<'_> {
    /// Reports that `written`, with the variable name `name`, is unknown, with a suggestion. `allowed` are the
    /// variables that the setting accepts.
    fn unknown_variable(&mut self, span: Span, written: &str, name: &str, allowed: &[&str]) {
        let elsewhere = ELSEWHERE.iter().find(|(other, _)| *other == name).map(|(_, here)| *here);
        let capture = (!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())).then_some("rest");
        let near = elsewhere.or(capture).filter(|here| allowed.contains(here)).or_else(|| nearest(name, allowed));
        let is_known = VARIABLES.iter().any(|(_, known)| *known == name);
        let what = if is_known && written.starts_with('{') { "cannot be used here" } else { "is not a variable" };
        let draft = self.report.add(Code::VariableUnknown, span, format!("`{written}` {what}"));
        if let Some(near) = near.filter(|_| !is_known || !written.starts_with('{')) {
            draft.label(format!("did you mean {{{near}}}?"));
        }
        draft.note(format!("allowed here: {}", allowed.join(", ")));
    }

    /// Returns true if `text` contains no variable in nginx's syntax, such as `$uri` or `$1`, and reports it otherwise.
    /// Any other dollar sign is an ordinary character.
    fn has_no_dollar(&mut self, span: Span, text: &str, allowed: &[&str]) -> bool {
        for (at, _) in text.match_indices('$') {
            let name: String =
                text[at + 1..].chars().take_while(|char| char.is_ascii_alphanumeric() || *char == '_').collect();
            let is_capture = name.len() == 1 && name.bytes().all(|byte| byte.is_ascii_digit());
            if is_capture || ELSEWHERE.iter().any(|(other, _)| *other == name) {
                self.unknown_variable(span, &format!("${name}"), &name, allowed);
                return false;
            }
        }
        true
    }

    /// Returns true if all variables in a field value are allowed. Braces around anything but a name are ordinary
    /// characters, because field values may contain JSON.
    pub(super) fn check_field_text(&mut self, span: Span, value: &str, without: &[&str]) -> bool {
        let names: Vec<&str> = VARIABLES.iter().map(|(_, name)| *name).filter(|name| !without.contains(name)).collect();
        for part in field_parts(value) {
            if let FieldPart::Variable(name) = part
                && !names.contains(&name)
            {
                self.unknown_variable(span, &format!("{{{name}}}"), name, &names);
                return false;
            }
        }
        self.has_no_dollar(span, value, &names)
    }

    /// Reads a string with variables in braces. Literal braces are written twice.
    pub(super) fn template(&mut self, value: &Value) -> Option<Text> {
        let text = self.line(value)?;
        self.parse_template(value.span, &text)
    }

    pub(super) fn parse_template(&mut self, span: Span, text: &str) -> Option<Text> {
        let names: Vec<&str> = VARIABLES.iter().map(|(_, name)| *name).collect();
        if !self.has_no_dollar(span, text, &names) {
            return None;
        }
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
                let message = format!("`{}` has no matching brace", &rest[..1]);
                let draft = self.report.add(Code::VariableUnknown, span, message);
                draft.note("write a variable as {host}, and a literal brace as {{ or }}");
                return None;
            };
            let Some((variable, _)) = VARIABLES.iter().find(|(_, known)| *known == name) else {
                self.unknown_variable(span, &format!("{{{name}}}"), name, &names);
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

/// A part of a field value.
enum FieldPart<'a> {
    Literal(&'a str),
    /// The name of a variable, without its braces.
    Variable(&'a str),
}

/// Splits `value` into parts. A name in double braces, such as `{{host}}`, stands for the literal characters `{host}`.
fn field_parts(value: &str) -> Vec<FieldPart<'_>> {
    let is_name = |name: &str| {
        name.starts_with(|char: char| char.is_ascii_lowercase())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'.'))
    };
    let mut parts = Vec::new();
    let (mut rest, mut from) = (value, 0);
    while let Some(at) = rest[from..].find('{').map(|at| from + at) {
        let name = rest[at + 1..].split_once('}').map(|(name, _)| name);
        let escaped = rest[at + 1..].strip_prefix('{').and_then(|inner| inner.split_once("}}")).map(|(name, _)| name);
        if let Some(name) = escaped.filter(|name| is_name(name)) {
            parts.push(FieldPart::Literal(&rest[..=at]));
            parts.push(FieldPart::Literal(&rest[at + 2..at + 3 + name.len()]));
            (rest, from) = (&rest[at + 4 + name.len()..], 0);
        } else if let Some(name) = name.filter(|name| is_name(name)) {
            parts.push(FieldPart::Literal(&rest[..at]));
            parts.push(FieldPart::Variable(name));
            (rest, from) = (&rest[at + 2 + name.len()..], 0);
        } else {
            from = at + 1;
        }
    }
    parts.push(FieldPart::Literal(rest));
    parts
}

/// Parses the variables in a field value. Returns `None` if the value contains no variables or escaped braces.
pub fn parse_field_text(value: &str) -> Option<Text> {
    value.find('{')?;
    let mut literal = String::new();
    let mut parts = Vec::new();
    for part in field_parts(value) {
        match part {
            FieldPart::Literal(text) => literal.push_str(text),
            FieldPart::Variable(name) => match VARIABLES.iter().find(|(_, known)| *known == name) {
                Some((variable, _)) => {
                    if !literal.is_empty() {
                        parts.push(TextPart::Literal(std::mem::take(&mut literal)));
                    }
                    parts.push(TextPart::Variable(*variable));
                }
                // This cannot happen for a configuration that has been read without errors.
                None => literal.extend(["{", name, "}"]),
            },
        }
    }
    if parts.is_empty() && literal == value {
        return None;
    }
    if !literal.is_empty() {
        parts.push(TextPart::Literal(literal));
    }
    Some(Text { parts })
}

/// Returns true if `text` always yields a path: it begins with exactly one slash, because `//host` would be another
/// site, or with the requested path.
pub(super) fn is_path(text: &Text) -> bool {
    match &text.parts[..] {
        [TextPart::Literal(literal)] => literal.starts_with('/') && !literal.starts_with("//"),
        [TextPart::Literal(literal), next, ..] => {
            let joins = matches!(next, TextPart::Variable(Variable::Path | Variable::Uri));
            literal.starts_with('/') && !literal.starts_with("//") && (literal.len() > 1 || !joins)
        }
        [TextPart::Variable(Variable::Path | Variable::Uri), ..] => true,
        _ => false,
    }
}

/// Formats a string with variables as it is written in a configuration.
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

#[cfg(test)]
mod tests {
    use super::parse_field_text;
    use crate::model::{TextPart, Variable};

    #[test]
    fn field_values_hold_variables_and_json() {
        for plain in ["", "a", "{\"a\":{\"b\":[1]}}", "{", "}", "{}", "{A}", "a{b c}"] {
            assert_eq!(parse_field_text(plain), None, "{plain}");
        }
        let literal = |text: &str| TextPart::Literal(text.to_owned());
        let parts = |value: &str| parse_field_text(value).unwrap().parts;
        assert_eq!(parts("{host}"), [TextPart::Variable(Variable::Host)]);
        assert_eq!(
            parts("a{client}; {\"b\":{path}}"),
            [
                literal("a"),
                TextPart::Variable(Variable::Client),
                literal("; {\"b\":"),
                TextPart::Variable(Variable::Path),
                literal("}"),
            ]
        );
        assert_eq!(parts("{{host}} {{"), [literal("{host} {{")]);
    }
}
