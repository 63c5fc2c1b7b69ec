//! Origin addresses: `https://origin.example:8443`, or a port on this machine.

use super::parse::{digits, host_fault};
use super::reader::Reader;
use crate::code::Code;
use crate::model::Origin;
use crate::syntax::{Scalar, Value};
use flatout_http::url::{default_port, format_authority, parse_port, split_port, strip_brackets};

/// The reason why a string is not a valid origin, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginFault {
    /// Description of the problem.
    pub what: String,
    /// A correct way to write the value, if known.
    pub advice: Option<String>,
}

impl OriginFault {
    fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), advice: None }
    }

    fn with(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }
}

/// The expected form of an origin, for messages.
const FORM: &str =
    "an origin is \"http://127.0.0.1:3000\" or \"https://origin.example\"; \":3000\" is a port on this machine";

/// Reads an origin from a string or a port number.
pub(super) fn read_origin(reader: &mut Reader<'_>, value: &Value) -> Option<Origin> {
    let text = match (&value.scalar, value.annotation) {
        (Scalar::Integer(port), None) => port.to_string(),
        _ => reader.line(value)?,
    };
    match parse_origin(&text) {
        Ok(origin) => Some(origin),
        Err(fault) => {
            let draft = reader.report.add(Code::ForwardBad, value.span, fault.what);
            if let Some(advice) = fault.advice {
                draft.label(advice);
            }
            draft.note(FORM);
            None
        }
    }
}

/// Parses an origin: `http` or `https`, a host, optionally a port, and nothing after it. A host with a port but no
/// scheme means http. `:3000` and `3000` mean port 3000 on this machine.
///
/// # Errors
/// A description of the problem and, if possible, what to write instead.
pub fn parse_origin(text: &str) -> Result<Origin, OriginFault> {
    if text.is_empty() {
        return Err(OriginFault::new("an empty string is not a valid origin"));
    }
    if let Some(port) = local_port(text) {
        return port.map(|port| Origin { host: "127.0.0.1".into(), port, ..plain() });
    }
    if text.starts_with("unix:") || text.starts_with(['/', '.']) {
        return Err(OriginFault::new(format!(
            "`{text}` looks like a Unix socket, but flatout connects to origins only over TCP"
        ))
        .with("make the origin listen on a port on 127.0.0.1"));
    }
    let Some((scheme, rest)) = text.split_once("://").or_else(|| names_port(text).then_some(("http", text))) else {
        return Err(OriginFault::new(format!("`{text}` has no scheme")).with(format!("write http://{text}")));
    };
    let secure = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        "h2c" => return Err(scheme_fault(scheme).with("write http://… and set http2 #true")),
        "ws" => return Err(scheme_fault(scheme).with("write http://…: WebSocket uses http")),
        "wss" => return Err(scheme_fault(scheme).with("write https://…: WebSocket uses https")),
        _ => return Err(scheme_fault(scheme)),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, behind) = rest.split_at(end);
    // URLs are often copied with a trailing slash, so a slash does not count as a path.
    if !behind.is_empty() && behind != "/" {
        let what = if behind.starts_with('/') { "a path" } else { "a query or a fragment" };
        return Err(OriginFault::new(format!("`{text}` has {what} after the host"))
            .with(format!("write {scheme}://{authority}, and change paths with `rewrite`")));
    }
    if let Some((_, host)) = authority.rsplit_once('@') {
        return Err(OriginFault::new("an origin cannot contain a user name or a password").with(format!(
            "write {scheme}://{host}, and send the password with request-header \"Authorization\" \"…\""
        )));
    }
    let (host, port) = split_port(authority);
    let port = match port {
        None => default_port(secure),
        Some(port) => port_number(port)?,
    };
    let host = check_host(host, scheme)?;
    Ok(Origin { secure, host, port, ..plain() })
}

fn plain() -> Origin {
    Origin { secure: false, host: String::new(), port: 80, weight: 1, backup: false }
}

fn scheme_fault(scheme: &str) -> OriginFault {
    OriginFault::new(format!("`{scheme}` is neither http nor https"))
}

/// Parses `:3000` or `3000`. Returns `None` for any other form.
fn local_port(text: &str) -> Option<Result<u16, OriginFault>> {
    match text.strip_prefix(':') {
        Some(port) => Some(port_number(port)),
        None => text.bytes().all(|byte| byte.is_ascii_digit()).then(|| port_number(text)),
    }
}

/// Returns true if `text` consists of a host and a port and nothing else, such as `localhost:3000`.
fn names_port(text: &str) -> bool {
    let (host, port) = split_port(text);
    !host.is_empty() && !host.contains(['/', '?', '#', '@']) && port.is_some_and(|port| digits(port).is_some())
}

fn port_number(text: &str) -> Result<u16, OriginFault> {
    parse_port(text).ok_or_else(|| {
        OriginFault::new(format!("`{text}` is not a valid port")).with("a port is a number from 1 to 65535")
    })
}

/// Validates a host and returns it without brackets and in lower case.
fn check_host(host: &str, scheme: &str) -> Result<String, OriginFault> {
    if host.is_empty() {
        return Err(OriginFault::new("the host is missing").with(format!("write {scheme}://127.0.0.1:3000")));
    }
    if host.contains('*') {
        return Err(OriginFault::new(format!("`{host}` is not a single host")));
    }
    if host.parse::<std::net::Ipv6Addr>().is_ok() {
        let fault = OriginFault::new("write an IPv6 address in brackets");
        return Err(fault.with(format!("write {scheme}://[{host}]:3000")));
    }
    if let Some(fault) = host_fault(host) {
        return Err(OriginFault::new(format!("`{host}` is not a valid host name")).with(fault));
    }
    let host = strip_brackets(host);
    Ok(host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase())
}

/// Formats an origin as a URL, without the port if it is the scheme's default.
pub fn show_origin(origin: &Origin) -> String {
    let scheme = if origin.secure { "https" } else { "http" };
    format!("{scheme}://{}", format_authority(origin.secure, &origin.host, origin.port))
}

#[cfg(test)]
mod tests {
    use super::{parse_origin, show_origin};

    #[test]
    fn origins_are_read_and_shown() {
        for (text, shown) in [
            (":3000", "http://127.0.0.1:3000"),
            ("3000", "http://127.0.0.1:3000"),
            ("80", "http://127.0.0.1"),
            ("localhost:3000", "http://localhost:3000"),
            ("127.0.0.1:80", "http://127.0.0.1"),
            ("[::1]:3000", "http://[::1]:3000"),
            ("http://a.example", "http://a.example"),
            ("HTTPS://A.Example.:443", "https://a.example"),
            ("https://a:80", "https://a:80"),
            ("http://[2001:DB8::1]:3000", "http://[2001:db8::1]:3000"),
            ("http://[::1]", "http://[::1]"),
            ("http://my_app:8080", "http://my_app:8080"),
        ] {
            let origin = parse_origin(text).unwrap();
            assert_eq!(show_origin(&origin), shown, "{text}");
            assert_eq!(parse_origin(shown), Ok(origin), "{text}");
        }
    }

    #[test]
    fn mistakes_are_reported_with_a_correction() {
        for (text, what, advice) in [
            ("", "empty", ""),
            ("localhost:3000/app", "no scheme", "write http://localhost:3000/app"),
            ("a.example", "no scheme", "write http://a.example"),
            ("http://a/app", "a path", "write http://a, and"),
            ("http://a?x", "a query or a fragment", "write http://a, and"),
            ("http://u:p@a:1", "user name or a password", "write http://a:1, and"),
            ("http://::1", "brackets", "write http://[::1]:3000"),
            ("http://[::1", "not a valid host name", "brackets"),
            ("http://[fe80::1%eth0]:1", "not a valid host name", "brackets"),
            ("http://", "the host is missing", "http://127.0.0.1:3000"),
            ("http://:3000", "the host is missing", ""),
            ("http://a:", "not a valid port", "1 to 65535"),
            ("http://a:0", "not a valid port", "1 to 65535"),
            (":0", "not a valid port", "1 to 65535"),
            (":http", "not a valid port", "1 to 65535"),
            (":", "not a valid port", "1 to 65535"),
            ("65536", "not a valid port", "1 to 65535"),
            ("http://a:+1", "not a valid port", ""),
            ("http://*.a", "not a single host", ""),
            ("http://a b", "not a valid host name", "letters"),
            ("http://ü", "not a valid host name", "xn--"),
            ("unix:/run/app.sock", "Unix socket", "127.0.0.1"),
            ("/run/app.sock", "Unix socket", "127.0.0.1"),
            ("ftp://a", "neither http nor https", ""),
            ("wss://a", "neither http nor https", "https://…"),
            ("h2c://a", "neither http nor https", "http2"),
        ] {
            let fault = parse_origin(text).unwrap_err();
            assert!(fault.what.contains(what), "{text}: {fault:?}");
            assert!(fault.advice.unwrap_or_default().contains(advice), "{text}");
        }
    }
}
