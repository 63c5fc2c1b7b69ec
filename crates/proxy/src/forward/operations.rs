//! Configured header operations.

use super::names::{FieldClass, Name};
use flatout_config::model::{FieldOp, Text, TextPart, Variable};
use flatout_config::parse_field_text;
use flatout_handler::Request;
use flatout_http::host::split_port;
use flatout_http::lines::{new_fields, write_line};
use flatout_http::target::Target;
use std::net::IpAddr;

/// Header operations, in configuration order. Operations on hop-by-hop and framing fields have no effect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operations<'a>(pub(super) &'a [FieldOp]);

impl Operations<'_> {
    /// Returns whether an existing field called `name` is removed.
    pub(super) fn remove(self, name: &str) -> bool {
        self.0.iter().any(|operation| operation.removes(name.as_bytes())) && is_free(name)
    }

    /// Appends to `out` the fields that are set or added, unless a later operation removes them. `host` is the host of
    /// `request`, and `client` returns its client.
    pub(super) fn write(
        self,
        request: &Request<'_>,
        client: &dyn Fn() -> Option<IpAddr>,
        host: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) {
        for (name, value) in new_fields(self.0, |operation| is_free(operation.name())) {
            match parse_field_text(value) {
                None => write_line(name, value.as_bytes(), out),
                Some(text) => write_line(name, &render(&text, request, client, host), out),
            }
        }
    }
}

/// Returns the value of `text` for `request`, with all variables replaced.
fn render(text: &Text, request: &Request<'_>, client: &dyn Fn() -> Option<IpAddr>, host: Option<&[u8]>) -> Vec<u8> {
    let (path, query) = match request.head.target {
        Target::Resource { path, query, .. } => (path, query),
        Target::Authority(_) | Target::Asterisk => (&b""[..], None),
    };
    let mut value = Vec::new();
    for part in &text.parts {
        match part {
            TextPart::Literal(literal) => value.extend_from_slice(literal.as_bytes()),
            TextPart::Variable(Variable::Client) => {
                if let Some(client) = client() {
                    value.extend_from_slice(client.to_canonical().to_string().as_bytes());
                }
            }
            TextPart::Variable(Variable::Host) => {
                value.extend_from_slice(split_port(host.unwrap_or_default()).0);
            }
            TextPart::Variable(Variable::HostPort) => value.extend_from_slice(host.unwrap_or_default()),
            TextPart::Variable(Variable::Path) => value.extend_from_slice(path),
            TextPart::Variable(Variable::Uri) => {
                value.extend_from_slice(path);
                if let Some(query) = query {
                    value.push(b'?');
                    value.extend_from_slice(query);
                }
            }
            TextPart::Variable(Variable::Query) => value.extend_from_slice(query.unwrap_or_default()),
            TextPart::Variable(Variable::Scheme) => {
                value.extend_from_slice(if request.secure { b"https" } else { b"http" });
            }
            // The configuration does not permit this variable here, because its value depends on the route.
            TextPart::Variable(Variable::Rest) => {}
        }
    }
    value
}

/// Returns whether `value` contains a variable whose value is not part of the cache key. The host and scheme are part
/// of each key; the path and query in the key may differ from those received.
pub(super) fn names_request(value: &str) -> bool {
    let is_keyed = |part: &TextPart| {
        use Variable::{Host, HostPort, Scheme};
        matches!(part, TextPart::Literal(_) | TextPart::Variable(Host | HostPort | Scheme))
    };
    parse_field_text(value).is_some_and(|text| !text.parts.iter().all(is_keyed))
}

pub(super) fn is_free(name: &str) -> bool {
    !matches!(Name::new(name).kind, FieldClass::HopByHop | FieldClass::Te | FieldClass::Length)
}
