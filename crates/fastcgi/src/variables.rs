//! The CGI variables of a request (RFC 3875 §4.1), and additional variables that PHP expects.
//!
//! The variable for a request field is `HTTP_` and its name in upper case, with underscores instead of hyphens
//! (§4.1.18). Two names must not map to the same variable, or a client could override a field that another component
//! has set. Names that contain an underscore, or anything else but letters, digits and hyphens, are therefore omitted.
//! If underscores are allowed, the name without an underscore takes precedence.
//!
//! `Proxy` is omitted because programs interpret `HTTP_PROXY` (CVE-2016-5385, "httpoxy").

use crate::params::encode_pair;
use flatout_http::host::split_port;
use flatout_http::lines::FORBIDDEN_IN_STREAMS;
use flatout_http::request::RequestHead;
use flatout_http::target::Target;
use std::net::SocketAddr;

/// The request and connection data from which the variables are derived.
#[derive(Clone, Copy, Debug)]
pub struct VariableInput<'a> {
    /// The head of the request.
    pub head: &'a RequestHead<'a>,
    /// The client's address.
    pub client: Option<SocketAddr>,
    /// True if the client used TLS.
    pub secure: bool,
    /// The configured address of the listener, if any.
    pub server: Option<SocketAddr>,
    /// The port that the client has requested, as reported by a trusted proxy.
    pub port: Option<u16>,
    /// The name of the site, for requests without a host.
    pub site: Option<&'a str>,
    /// The user that this server has authenticated.
    pub user: Option<&'a str>,
    /// The prefixes that earlier steps have removed from the path, decoded.
    pub removed: &'a [u8],
    /// The decoded path that earlier steps have produced, with its leading slash.
    pub path: &'a [u8],
    /// The encoded query that earlier steps have produced.
    pub query: Option<&'a [u8]>,
    /// The root as seen by the application server, without a trailing slash.
    pub root: &'a [u8],
    /// The script's name relative to the root, without a leading slash.
    pub script: &'a [u8],
    /// The part of the path after the script's name.
    pub path_info: &'a [u8],
    /// Length of the content in bytes; `None` if there is no content. Empty content has length 0.
    pub content_length: Option<u64>,
    /// The configured variables, which replace variables of the request with the same name.
    pub env: &'a [(String, String)],
    /// True if fields whose names contain underscores are passed on.
    pub underscores: bool,
}

/// Fields that are omitted, besides [`FORBIDDEN_IN_STREAMS`]. Two of them have separate variables, one is dangerous, and
/// the others belong to the connection (RFC 9110 §7.6.1), whose framing is not visible to the script.
const LEFT_OUT: [&str; 8] =
    ["content-length", "content-type", "expect", "host", "proxy", "proxy-authorization", "te", "trailer"];

impl VariableInput<'_> {
    /// Appends all variables to `output`.
    pub fn write(&self, output: &mut Vec<u8>) {
        let mut put = |name: &str, value: &[u8]| {
            if !self.env.iter().any(|(own, _)| own == name) {
                encode_pair(name.as_bytes(), value, output);
            }
        };
        put("GATEWAY_INTERFACE", b"CGI/1.1");
        put("SERVER_SOFTWARE", b"flatout");
        put("SERVER_PROTOCOL", self.head.version.as_str().as_bytes());
        put("REQUEST_METHOD", self.head.method.as_str().as_bytes());
        put("REQUEST_SCHEME", if self.secure { b"https" } else { b"http" });
        if self.secure {
            put("HTTPS", b"on");
        }
        // PHP's CGI refuses to run without this variable, which indicates that a server has selected the script.
        put("REDIRECT_STATUS", b"200");
        self.write_names(&mut put);
        self.write_path(&mut put);
        let content_type = self.head.fields.first("content-type");
        put("CONTENT_TYPE", content_type.unwrap_or_default());
        put("CONTENT_LENGTH", self.content_length.map_or_else(String::new, |length| length.to_string()).as_bytes());
        if let Some(user) = self.user {
            put("AUTH_TYPE", b"Basic");
            put("REMOTE_USER", user.as_bytes());
        }
        self.write_fields(&mut put);
        for (name, value) in self.env {
            encode_pair(name.as_bytes(), value.as_bytes(), output);
        }
    }

    /// Writes the variables that describe the client, the server and the host.
    fn write_names(&self, put: &mut impl FnMut(&str, &[u8])) {
        let authority = self.head.host;
        let (name, port) = split_port(authority.unwrap_or_default());
        let name = if name.is_empty() { self.site.unwrap_or_default().as_bytes() } else { name };
        put("SERVER_NAME", name);
        let default_port = if self.secure { 443 } else { 80 };
        let listening = self.server.map(|server| server.port()).filter(|&port| port != 0);
        let port = match (self.port, port) {
            (Some(told), _) => told.to_string(),
            (None, Some(port)) if !port.is_empty() => String::from_utf8_lossy(port).into_owned(),
            // A host without a port implies the default port of the scheme (RFC 9110 §4.2).
            _ if authority.is_some() => default_port.to_string(),
            _ => listening.unwrap_or(default_port).to_string(),
        };
        put("SERVER_PORT", port.as_bytes());
        if let Some(server) = self.server {
            put("SERVER_ADDR", server.ip().to_canonical().to_string().as_bytes());
        }
        if let Some(client) = self.client {
            let address = client.ip().to_canonical().to_string();
            put("REMOTE_ADDR", address.as_bytes());
            put("REMOTE_HOST", address.as_bytes());
            // Proxies report the client's address, usually without a port.
            if client.port() != 0 {
                put("REMOTE_PORT", client.port().to_string().as_bytes());
            }
        }
        if let Some(authority) = authority {
            put("HTTP_HOST", authority);
        }
    }

    /// Writes the variables that describe the request target.
    fn write_path(&self, put: &mut impl FnMut(&str, &[u8])) {
        put("QUERY_STRING", self.query.unwrap_or_default());
        // Front controllers need the target as the client sent it, before rewriting.
        let mut uri = Vec::new();
        if let Target::Resource { path, query, .. } = self.head.target {
            uri.extend_from_slice(path);
            if let Some(query) = query {
                uri.push(b'?');
                uri.extend_from_slice(query);
            }
        }
        put("REQUEST_URI", &uri);
        // With a removed prefix, as for a folder behind an alias, these are the paths at which clients find the script.
        put("DOCUMENT_URI", &[self.removed, self.path].concat());
        put("DOCUMENT_ROOT", self.root);
        put("SCRIPT_NAME", &[self.removed, b"/", self.script].concat());
        put("SCRIPT_FILENAME", &[self.root, b"/", self.script].concat());
        put("PATH_INFO", self.path_info);
        if !self.path_info.is_empty() {
            put("PATH_TRANSLATED", &[self.root, self.path_info].concat());
        }
    }

    /// Writes the variables of the request fields. The values of fields with the same name are joined in order.
    fn write_fields(&self, put: &mut impl FnMut(&str, &[u8])) {
        let fields = self.head.fields;
        let mut variable = String::with_capacity(64);
        for (index, (name, value)) in fields.iter().enumerate() {
            let same = |other: &str| other.eq_ignore_ascii_case(name);
            let is_left_out = |others: &[&str]| others.iter().any(|&other| is_same_variable(other, name));
            if !self.has_variable(name) || is_left_out(&FORBIDDEN_IN_STREAMS) || is_left_out(&LEFT_OUT) {
                continue;
            }
            let has_underscore = |name: &str| name.contains('_');
            let is_replaced = || {
                fields.iter().enumerate().any(|(other_index, (other, _))| {
                    let comes_first = !has_underscore(other) || other_index < index;
                    comes_first && !same(other) && self.has_variable(other) && is_same_variable(other, name)
                })
            };
            if has_underscore(name) && is_replaced() {
                continue;
            }
            if fields.iter().take(index).any(|(other, _)| same(other)) {
                continue;
            }
            variable.clear();
            variable.push_str("HTTP_");
            variable.extend(name.chars().map(|char| if char == '-' { '_' } else { char.to_ascii_uppercase() }));
            let mut others = fields.iter().skip(index + 1).filter(|(other, _)| same(other)).peekable();
            if others.peek().is_none() {
                put(&variable, value);
                continue;
            }
            // RFC 6265bis §4.2.1 defines the separator for cookies, and RFC 9110 §5.3 that for other fields.
            let separator: &[u8] = if same("cookie") { b"; " } else { b", " };
            let mut joined = value.to_vec();
            for (_, value) in others {
                joined.extend_from_slice(separator);
                joined.extend_from_slice(value);
            }
            put(&variable, &joined);
        }
    }

    /// Returns whether a field called `name` may become a variable.
    fn has_variable(&self, name: &str) -> bool {
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' && self.underscores)
    }
}

/// Returns whether fields with these names become the same variable.
fn is_same_variable(first: &str, second: &str) -> bool {
    let letter = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    first.bytes().map(letter).eq(second.bytes().map(letter))
}

#[cfg(test)]
mod tests;
