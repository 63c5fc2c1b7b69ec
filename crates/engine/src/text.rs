//! Text with variables that is rendered for each request: targets of redirects and rewrites.
//!
//! The result is valid in a request target, whatever the request contains. For a Location, further encoding is needed
//! (`flatout_http::path::encode_location`). The host, path and query were validated byte by byte when the request was
//! parsed, and are used unchanged. Literals are encoded once, when the configuration is compiled.

use flatout_config::model::{Text, TextPart, Variable};
use flatout_http::percent::{self, decode_first, push_encoded};
use flatout_http::token::{PATH, is};
use std::borrow::Cow;
use std::net::IpAddr;

/// Values of the variables for a request.
#[derive(Clone, Debug)]
pub(crate) struct Variables<'a> {
    /// The client's address.
    pub(crate) client: Option<IpAddr>,
    /// The host, with its port if the request has one. `None` if the request has no host and the site has no exact
    /// name.
    pub(crate) host_port: Option<&'a [u8]>,
    /// The path as received.
    pub(crate) path: &'a [u8],
    /// The query as received.
    pub(crate) query: Option<&'a [u8]>,
    /// True if the request came over TLS.
    pub(crate) secure: bool,
    /// The part of the path that the route's last star matched, still encoded, and with its empty segments.
    pub(crate) rest: Cow<'a, [u8]>,
    /// True if `rest` begins with the slash after a segment. Otherwise, an initial slash is an empty segment.
    pub(crate) rest_has_slash: bool,
}

/// Text with variables, whose literals are percent-encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    parts: Vec<TextPart>,
}

/// Error that a variable needs a host but the request has none.
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

    /// Returns the whole text, if it does not depend on the request.
    pub(crate) fn literal(&self) -> Option<String> {
        let literal = |part: &TextPart| match part {
            TextPart::Literal(literal) => Some(literal.clone()),
            TextPart::Variable(_) => None,
        };
        self.parts.iter().map(literal).collect()
    }

    /// Returns whether the text, without a query, is always the path `/` followed by `path`.
    pub(crate) fn is_always_path(&self, path: &[u8]) -> bool {
        let mut literal = String::new();
        for part in &self.parts {
            let TextPart::Literal(text) = part else { return false };
            match text.split_once('?') {
                None => literal.push_str(text),
                Some((text, _)) => {
                    literal.push_str(text);
                    break;
                }
            }
        }
        literal.strip_prefix('/').unwrap_or(&literal).as_bytes() == path
    }

    /// Returns the first part of the text, if it is a variable.
    pub(crate) fn first_variable(&self) -> Option<Variable> {
        match self.parts.first() {
            Some(TextPart::Variable(variable)) => Some(*variable),
            _ => None,
        }
    }

    /// Returns whether the text includes the request's query explicitly.
    pub(crate) fn has_query(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, TextPart::Variable(Variable::Query | Variable::Uri)))
    }

    /// Returns whether the text, before a query, includes what the star of a route matched.
    pub(crate) fn has_rest_in_path(&self) -> bool {
        let begins_query = |part: &TextPart| matches!(part, TextPart::Literal(text) if text.contains('?'));
        let mut path = self.parts.iter().take_while(|part| !begins_query(part));
        path.any(|part| *part == TextPart::Variable(Variable::Rest))
    }

    /// Returns whether the text is a path on the same site.
    pub(crate) fn is_path(&self) -> bool {
        match self.parts.first() {
            Some(TextPart::Literal(literal)) => literal.starts_with('/') && !literal.starts_with("//"),
            Some(TextPart::Variable(variable)) => matches!(variable, Variable::Path | Variable::Uri),
            None => false,
        }
    }

    /// Renders the text. Before a query, a slash at the end of a part and one at the beginning of the next are one slash,
    /// except for the slash of an empty segment with which the match of a star begins.
    pub(crate) fn render(&self, variables: &Variables<'_>) -> Result<Vec<u8>, HostMissing> {
        let mut text = Vec::new();
        for part in &self.parts {
            let start = text.len();
            match part {
                TextPart::Literal(literal) => text.extend_from_slice(literal.as_bytes()),
                TextPart::Variable(variable) => append(&mut text, *variable, variables)?,
            }
            let (before, added) = text.split_at(start);
            let has_slash = *part != TextPart::Variable(Variable::Rest) || variables.rest_has_slash;
            if has_slash && before.ends_with(b"/") && added.starts_with(b"/") && !before.contains(&b'?') {
                text.remove(start);
            }
        }
        // Targets and hosts cannot contain such bytes, but remove anything that could end a line or a word.
        text.retain(|byte| byte.is_ascii_graphic() || !byte.is_ascii());
        Ok(text)
    }
}

fn append(text: &mut Vec<u8>, variable: Variable, variables: &Variables<'_>) -> Result<(), HostMissing> {
    match variable {
        Variable::Client => {
            if let Some(client) = variables.client {
                text.extend_from_slice(client.to_canonical().to_string().as_bytes());
            }
        }
        Variable::HostPort => text.extend_from_slice(variables.host_port.ok_or(HostMissing)?),
        Variable::Host => {
            let (host, _) = flatout_http::host::split_port(variables.host_port.ok_or(HostMissing)?);
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
        Variable::Rest => text.extend_from_slice(&variables.rest),
    }
    Ok(())
}

/// Renders `text` as a field value. Nothing is encoded, and an unknown host is rendered as an empty string.
pub(crate) fn render_value(text: &Text, variables: &Variables<'_>) -> Vec<u8> {
    let mut value = Vec::new();
    for part in &text.parts {
        match part {
            TextPart::Literal(literal) => value.extend_from_slice(literal.as_bytes()),
            TextPart::Variable(variable) => drop(append(&mut value, *variable, variables)),
        }
    }
    // Values from the request cannot contain such bytes, but remove anything that could end a line.
    value.retain(|byte| !byte.is_ascii_control());
    value
}

/// Percent-encodes characters that a URI must not contain. Existing percent-encodings are unchanged.
fn encode_literal(literal: &str) -> String {
    let mut encoded = String::with_capacity(literal.len());
    for (at, &byte) in literal.as_bytes().iter().enumerate() {
        let is_encoding = decode_first(&literal.as_bytes()[at..]).is_some();
        if is(byte, PATH) || is_encoding || matches!(byte, b'?' | b'#' | b'[' | b']') {
            encoded.push(char::from(byte));
        } else {
            push_encoded(&mut encoded, byte);
        }
    }
    encoded
}

/// Encodes the name of a file as a path segment.
pub(crate) fn encode_segment(name: &[u8]) -> String {
    percent::encode(name, |byte| is(byte, PATH) && byte != b'/')
}

#[cfg(test)]
mod tests {
    use super::{HostMissing, Template, Variables, encode_segment, render_value};
    use flatout_config::model::{Text, TextPart, Variable};
    use std::borrow::Cow;
    use std::net::{IpAddr, Ipv4Addr};

    fn text(parts: &[TextPart]) -> Template {
        Template::new(&Text { parts: parts.to_vec() })
    }

    fn literal(text: &str) -> TextPart {
        TextPart::Literal(text.to_owned())
    }

    const VARIABLES: Variables<'_> = Variables {
        client: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        host_port: Some(b"Example.com:8443"),
        path: b"/a%20b/c",
        query: Some(b"d=e&f"),
        secure: true,
        rest: Cow::Borrowed(b"b/c"),
        rest_has_slash: false,
    };

    #[test]
    fn every_variable() {
        let all = [
            (Variable::Client, "127.0.0.1"),
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
            assert_eq!(template.render(&VARIABLES).as_deref(), Ok(format!("%3C{expected}").as_bytes()));
        }
        let none = Variables { query: None, secure: false, host_port: None, ..VARIABLES };
        assert_eq!(text(&[TextPart::Variable(Variable::Uri)]).render(&none).as_deref(), Ok(&b"/a%20b/c"[..]));
        assert_eq!(text(&[TextPart::Variable(Variable::Host)]).render(&none), Err(HostMissing));
    }

    #[test]
    fn slashes_between_parts_are_one() {
        let joined = |parts: &[TextPart], variables: &Variables<'_>| {
            String::from_utf8(text(parts).render(variables).unwrap()).unwrap()
        };
        let (path, rest) = (TextPart::Variable(Variable::Path), TextPart::Variable(Variable::Rest));
        let doubled = Variables { path: b"//a//b/", rest: b"/c//d"[..].into(), ..VARIABLES };
        assert_eq!(joined(&[literal("/x//y/"), path.clone(), literal("/z")], &doubled), "/x//y//a//b/z");
        assert_eq!(joined(&[literal("/x?y=/"), path], &doubled), "/x?y=///a//b/");
        assert_eq!(joined(&[literal("/x/"), rest.clone()], &doubled), "/x//c//d", "an empty segment");
        assert_eq!(joined(&[literal("/x/"), rest], &Variables { rest_has_slash: true, ..doubled }), "/x/c//d");
    }

    #[test]
    fn literals_are_encoded_and_nothing_breaks_a_line() {
        let template = text(&[literal("https://a/\u{fc} b\r\nX: y?c=%41&100%#d%4")]);
        let encoded = "https://a/%C3%BC%20b%0D%0AX:%20y?c=%41&100%25#d%254";
        assert_eq!(template.literal().as_deref(), Some(encoded));
        let evil = Variables { rest: b"a\r\nSet-Cookie: x"[..].into(), path: b"\x7f\0", ..VARIABLES };
        let rendered = text(&[TextPart::Variable(Variable::Rest), TextPart::Variable(Variable::Path)]).render(&evil);
        assert_eq!(rendered.as_deref(), Ok(&b"aSet-Cookie:x"[..]), "were the parser ever wrong");
    }

    #[test]
    fn values_of_fields_are_not_encoded() {
        let value = Text { parts: vec![literal("a <"), TextPart::Variable(Variable::Uri), literal(">")] };
        let odd = Variables { path: b"/[\"]\xc3\xbc", ..VARIABLES };
        assert_eq!(render_value(&value, &odd), "a </[\"]\u{fc}?d=e&f>".as_bytes());
        let hostless = Variables { host_port: None, ..VARIABLES };
        assert_eq!(render_value(&Text { parts: vec![TextPart::Variable(Variable::Host)] }, &hostless), b"");
    }

    #[test]
    fn the_rest_in_a_query_is_not_in_the_path() {
        let (rest, query) = (TextPart::Variable(Variable::Rest), TextPart::Literal("/index.php?page=".into()));
        assert!(text(&[TextPart::Literal("/x/".into()), rest.clone()]).has_rest_in_path());
        assert!(text(&[rest.clone(), query.clone()]).has_rest_in_path());
        assert!(!text(&[query, rest]).has_rest_in_path());
    }

    #[test]
    fn names() {
        assert_eq!(encode_segment("a b/\u{fc}%.html".as_bytes()), "a%20b%2F%C3%BC%25.html");
    }
}
