//! Texts with variables, made for one request: addresses to redirect or rewrite to.
//!
//! What comes of it is fit for a field value and for a request target, whatever the request held. Host, path and
//! query were checked byte by byte when the request was parsed, and stay encoded as they came; a literal is encoded
//! here, once, when the configuration is put to use.

use flatout_config::model::{Text, TextPart, Variable};
use flatout_http::token::{PATH, QUERY, is};

/// What a text may take from a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variables<'a> {
    /// Host with its port; `None` when the request has none and the site has no name of its own.
    pub(crate) host_port: Option<&'a [u8]>,
    /// The path as it came.
    pub(crate) path: &'a [u8],
    /// The query as it came.
    pub(crate) query: Option<&'a [u8]>,
    /// Whether it came over TLS.
    pub(crate) secure: bool,
    /// What the route's last star stands for, still encoded.
    pub(crate) rest: &'a [u8],
}

/// A text whose literals are encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    parts: Vec<TextPart>,
}

/// The request names no host, and the text needs one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostMissing;

impl Template {
    pub(crate) fn new(text: &Text) -> Self {
        let encode = |part: &TextPart| match part {
            TextPart::Literal(literal) => TextPart::Literal(encode_literal(literal)),
            variable @ TextPart::Variable(_) => variable.clone(),
        };
        Self { parts: text.parts.iter().map(encode).collect() }
    }

    /// The whole text, when it takes nothing from a request.
    pub(crate) fn literal(&self) -> Option<String> {
        let literal = |part: &TextPart| match part {
            TextPart::Literal(literal) => Some(literal.clone()),
            TextPart::Variable(_) => None,
        };
        self.parts.iter().map(literal).collect()
    }

    /// The variable that the text begins with.
    pub(crate) fn first_variable(&self) -> Option<Variable> {
        match self.parts.first() {
            Some(TextPart::Variable(variable)) => Some(*variable),
            _ => None,
        }
    }

    /// Whether it is a path of the same site, as it is written.
    pub(crate) fn is_path(&self) -> bool {
        match self.parts.first() {
            Some(TextPart::Literal(literal)) => literal.starts_with('/') && !literal.starts_with("//"),
            _ => false,
        }
    }

    pub(crate) fn render(&self, variables: &Variables<'_>) -> Result<String, HostMissing> {
        let mut text = Vec::new();
        for part in &self.parts {
            match part {
                TextPart::Literal(literal) => text.extend_from_slice(literal.as_bytes()),
                TextPart::Variable(variable) => append(&mut text, *variable, variables)?,
            }
        }
        // All of it is ASCII: the parser of targets and hosts lets nothing else pass.
        text.retain(u8::is_ascii_graphic);
        Ok(String::from_utf8(text).unwrap_or_default())
    }
}

fn append(text: &mut Vec<u8>, variable: Variable, variables: &Variables<'_>) -> Result<(), HostMissing> {
    match variable {
        Variable::HostPort => text.extend_from_slice(variables.host_port.ok_or(HostMissing)?),
        Variable::Host => {
            let (host, _) = crate::host::split_port(variables.host_port.ok_or(HostMissing)?);
            text.extend_from_slice(host);
        }
        Variable::Path => text.extend_from_slice(variables.path),
        Variable::Uri => {
            text.extend_from_slice(variables.path);
            if let Some(query) = variables.query {
                text.push(b'?');
                text.extend_from_slice(query);
            }
        }
        Variable::Query => text.extend_from_slice(variables.query.unwrap_or_default()),
        Variable::Scheme => text.extend_from_slice(if variables.secure { b"https" } else { b"http" }),
        Variable::Rest => text.extend_from_slice(variables.rest),
    }
    Ok(())
}

/// What a URI may not hold becomes percent-encoded; what is encoded already stays.
fn encode_literal(literal: &str) -> String {
    let mut encoded = String::with_capacity(literal.len());
    for (at, &byte) in literal.as_bytes().iter().enumerate() {
        let digits = literal.as_bytes().get(at + 1..at + 3);
        let is_encoding = byte == b'%' && digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        if is(byte, PATH | QUERY) || is_encoding || matches!(byte, b'#' | b'[' | b']') {
            encoded.push(char::from(byte));
        } else {
            push_encoded(&mut encoded, byte);
        }
    }
    encoded
}

fn push_encoded(text: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    text.push('%');
    text.push(char::from(DIGITS[usize::from(byte >> 4)]));
    text.push(char::from(DIGITS[usize::from(byte & 15)]));
}

/// A file's name as a segment of a path.
pub(crate) fn encode_segment(name: &[u8]) -> String {
    let mut encoded = String::with_capacity(name.len());
    for &byte in name {
        if is(byte, PATH) && byte != b'/' { encoded.push(char::from(byte)) } else { push_encoded(&mut encoded, byte) }
    }
    encoded
}

/// Where in `raw`, a path with its first slash, the byte stands that is at `decoded` in the path decoded without it.
pub(crate) fn raw_offset(raw: &[u8], decoded: usize) -> usize {
    let mut at = 1.min(raw.len());
    for _ in 0..decoded {
        at += if raw.get(at) == Some(&b'%') { 3 } else { 1 };
    }
    at.min(raw.len())
}

#[cfg(test)]
mod tests {
    use super::{HostMissing, Template, Variables, encode_segment, raw_offset};
    use flatout_config::model::{Text, TextPart, Variable};

    fn text(parts: &[TextPart]) -> Template {
        Template::new(&Text { parts: parts.to_vec() })
    }

    fn literal(text: &str) -> TextPart {
        TextPart::Literal(text.to_owned())
    }

    const VARIABLES: Variables<'_> = Variables {
        host_port: Some(b"Example.com:8443"),
        path: b"/a%20b/c",
        query: Some(b"d=e&f"),
        secure: true,
        rest: b"b/c",
    };

    #[test]
    fn every_variable() {
        let all = [
            (Variable::Host, "Example.com"),
            (Variable::HostPort, "Example.com:8443"),
            (Variable::Path, "/a%20b/c"),
            (Variable::Uri, "/a%20b/c?d=e&f"),
            (Variable::Query, "d=e&f"),
            (Variable::Scheme, "https"),
            (Variable::Rest, "b/c"),
        ];
        for (variable, expected) in all {
            let template = text(&[literal("<"), TextPart::Variable(variable)]);
            assert_eq!(template.render(&VARIABLES).as_deref(), Ok(format!("%3C{expected}").as_str()));
        }
        let none = Variables { query: None, secure: false, host_port: None, ..VARIABLES };
        assert_eq!(text(&[TextPart::Variable(Variable::Uri)]).render(&none).as_deref(), Ok("/a%20b/c"));
        assert_eq!(text(&[TextPart::Variable(Variable::Host)]).render(&none), Err(HostMissing));
    }

    #[test]
    fn literals_are_encoded_and_nothing_breaks_a_line() {
        let template = text(&[literal("https://a/\u{fc} b\r\nX: y?c=%41&100%#d%4")]);
        let encoded = "https://a/%C3%BC%20b%0D%0AX:%20y?c=%41&100%25#d%254";
        assert_eq!(template.literal().as_deref(), Some(encoded));
        let evil = Variables { rest: b"a\r\nSet-Cookie: x", path: b"\xff\0", ..VARIABLES };
        let rendered = text(&[TextPart::Variable(Variable::Rest), TextPart::Variable(Variable::Path)]).render(&evil);
        assert_eq!(rendered.as_deref(), Ok("aSet-Cookie:x"), "were the parser ever wrong");
    }

    #[test]
    fn offsets_and_names() {
        assert_eq!(raw_offset(b"/a%20b/c", 0), 1);
        assert_eq!(raw_offset(b"/a%20b/c", 2), 5);
        assert_eq!(raw_offset(b"/a%20b/c", 99), 8);
        assert_eq!(encode_segment("a b/\u{fc}%.html".as_bytes()), "a%20b%2F%C3%BC%25.html");
    }
}
