//! Servers to forward to: `https://origin.example:8443`, or a port of this machine.

use super::parse::{digits, host_fault};
use crate::model::Origin;
use flatout_http::url::{default_port, format_authority, parse_port, split_port, strip_brackets};

/// Why a text names no server to forward to: what is wrong with it, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginFault {
    /// The problem.
    pub what: String,
    /// A correct spelling, if one is known.
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

/// How an origin is written, for those who wrote it otherwise.
pub(super) const FORM: &str =
    "an origin is \"http://127.0.0.1:3000\" or \"https://origin.example\"; \":3000\" is a port of this machine";

/// Reads a server to forward to: `http` or `https`, a host and perhaps a port, and nothing after it. A host with a port and
/// without a scheme means http; `:3000` and `3000` are port 3000 of this machine.
///
/// # Errors
/// With what is wrong, and mostly what to write instead.
pub fn parse_origin(text: &str) -> Result<Origin, OriginFault> {
    if text.is_empty() {
        return Err(OriginFault::new("an empty text is not a valid origin"));
    }
    if let Some(port) = local_port(text) {
        return port.map(|port| Origin { host: "127.0.0.1".into(), port, ..plain() });
    }
    if text.starts_with("unix:") || text.starts_with(['/', '.']) {
        return Err(OriginFault::new(format!(
            "`{text}` looks like a Unix socket, and origins are reached over TCP only"
        ))
        .with("have the origin listen on 127.0.0.1 with a port"));
    }
    let Some((scheme, rest)) = text.split_once("://").or_else(|| names_port(text).then_some(("http", text))) else {
        return Err(OriginFault::new(format!("`{text}` has no scheme")).with(format!("write http://{text}")));
    };
    let secure = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        "h2c" => return Err(scheme_fault(scheme).with("write http://… and switch `http2` on")),
        "ws" => return Err(scheme_fault(scheme).with("write http://…: WebSocket goes through http")),
        "wss" => return Err(scheme_fault(scheme).with("write https://…: WebSocket goes through https")),
        _ => return Err(scheme_fault(scheme)),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, behind) = rest.split_at(end);
    // People copy addresses with a trailing slash, which does not count as a path.
    if !behind.is_empty() && behind != "/" {
        let what = if behind.starts_with('/') { "a path" } else { "more than a host" };
        return Err(OriginFault::new(format!("`{text}` has {what} after the host"))
            .with(format!("write {scheme}://{authority}, and change paths by `rewrite`")));
    }
    if let Some((_, host)) = authority.rsplit_once('@') {
        return Err(OriginFault::new("an origin has no user and no password").with(format!(
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

/// `:3000` and `3000`; `None` when it is neither.
fn local_port(text: &str) -> Option<Result<u16, OriginFault>> {
    match text.strip_prefix(':') {
        Some(port) => Some(port_number(port)),
        None => text.bytes().all(|byte| byte.is_ascii_digit()).then(|| port_number(text)),
    }
}

/// Returns true if `text` is a host with a port and nothing else: `localhost:3000`.
fn names_port(text: &str) -> bool {
    let (host, port) = split_port(text);
    !host.is_empty() && !host.contains(['/', '?', '#', '@']) && port.is_some_and(|port| digits(port).is_some())
}

fn port_number(text: &str) -> Result<u16, OriginFault> {
    parse_port(text).ok_or_else(|| {
        OriginFault::new(format!("`{text}` is not a valid port")).with("a port is a number from 1 to 65535")
    })
}

/// A host without brackets, in lower case.
fn check_host(host: &str, scheme: &str) -> Result<String, OriginFault> {
    if host.is_empty() {
        return Err(OriginFault::new("there is no host").with(format!("write {scheme}://127.0.0.1:3000")));
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

/// The origin as it would be written: scheme, host, and the port unless it is the scheme's own.
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
    fn what_is_wrong_is_said_with_what_would_be_right() {
        for (text, what, advice) in [
            ("", "empty", ""),
            ("localhost:3000/app", "no scheme", "write http://localhost:3000/app"),
            ("a.example", "no scheme", "write http://a.example"),
            ("http://a/app", "a path", "write http://a, and"),
            ("http://a?x", "more than a host", "write http://a, and"),
            ("http://u:p@a:1", "no user", "write http://a:1, and"),
            ("http://::1", "brackets", "write http://[::1]:3000"),
            ("http://[::1", "not a valid host name", "brackets"),
            ("http://[fe80::1%eth0]:1", "not a valid host name", "brackets"),
            ("http://", "no host", "http://127.0.0.1:3000"),
            ("http://:3000", "no host", ""),
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
