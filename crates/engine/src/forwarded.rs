//! Resolution of the original client of a request that was forwarded by a trusted proxy.

use flatout_config::model::{TrustedProxy, is_trusted};
use flatout_handler::Request;
use flatout_http::forwarded::{ClientClaim, Sender, read_claim};
use flatout_http::host::split_port;

/// A request to which the claims of a trusted proxy have been applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResolvedRequest<'a> {
    /// The request, with the client's address and protocol.
    pub(crate) request: Request<'a>,
    /// The host in the client's request, if the proxy specified it.
    pub(crate) host: Option<&'a [u8]>,
    /// The port in the client's request, if the proxy specified it.
    pub(crate) port: Option<u16>,
}

/// Applies the claims in Forwarded and X-Forwarded-… fields if `request` comes from a proxy in `trusted`. Otherwise,
/// ignores them.
pub(crate) fn resolve_forwarded<'a>(request: &Request<'a>, trusted: &[TrustedProxy]) -> ResolvedRequest<'a> {
    let mut told = ResolvedRequest { request: *request, host: None, port: None };
    if !is_trusted(trusted, request.sender()) {
        return told;
    }
    let claim = read_claim(request.head.fields, |address| is_trusted(trusted, Sender::Ip(address)));
    match claim.client {
        ClientClaim::Nothing => {}
        // The request is that of another client from now on, which is not a peer of a Unix socket.
        ClientClaim::Unknown => (told.request.client, told.request.unix) = (None, false),
        ClientClaim::At(client) => (told.request.client, told.request.unix) = (Some(client), false),
    }
    told.request.secure = claim.secure.unwrap_or(request.secure);
    told.host = claim.host;
    told.port = claim.port.or_else(|| {
        let (_, port) = split_port(claim.host?);
        let port = port.and_then(|port| std::str::from_utf8(port).ok()?.parse().ok());
        port.or(Some(if told.request.secure { 443 } else { 80 }))
    });
    told
}

#[cfg(test)]
mod tests {
    use super::resolve_forwarded;
    use flatout_config::model::{Cidr, TrustedProxy};
    use flatout_handler::Request;
    use flatout_handler::content::Offers;
    use flatout_http::forwarded::Sender;
    use flatout_http::head::FieldStorage;
    use flatout_http::limits::Limits;
    use flatout_http::request::parse_request_head;

    /// Resolves client, scheme, host and port of a request with `lines` that arrives from `from`.
    fn told(from: &str, lines: &str) -> (Option<String>, bool, Option<String>, Option<u16>) {
        let text = format!("GET / HTTP/1.1\r\nHost: inner:81\r\n{lines}\r\n");
        let mut storage = FieldStorage::new();
        let head = parse_request_head(text.as_bytes(), &Limits::DEFAULT, &mut storage).unwrap().unwrap();
        let unix = from == "unix";
        let request = Request {
            head: &head,
            client: from.parse().ok(),
            unix,
            secure: false,
            listener: 0,
            offers: &Offers::new(),
        };
        let trusted = [Cidr { address: "10.0.0.0".parse().unwrap(), bits: 8 }.into(), TrustedProxy::Unix];
        let told = resolve_forwarded(&request, &trusted);
        // A client that a proxy has named or hidden is no peer of a Unix socket.
        let is_peer = unix && !lines.contains("or: 192.0.2.1") && !lines.contains("unknown");
        assert_eq!(told.request.sender() == Sender::Unix, is_peer, "{from} {lines}");
        let client = told.request.client.map(|client| client.ip().to_string());
        (client, told.request.secure, told.host.map(|host| String::from_utf8_lossy(host).into_owned()), told.port)
    }

    #[test]
    fn only_the_trusted_are_believed() {
        let lines = "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: outer\r\n";
        let client = |client: &str| Some(client.to_owned());
        assert_eq!(told("198.51.100.1:5", lines), (client("198.51.100.1"), false, None, None));
        assert_eq!(told("nobody knows", lines), (None, false, None, None));
        let outer = Some("outer".to_owned());
        assert_eq!(told("10.0.0.1:5", lines), (client("192.0.2.1"), true, outer.clone(), Some(443)));
        assert_eq!(told("[::ffff:10.0.0.1]:5", lines), (client("192.0.2.1"), true, outer, Some(443)));
        assert_eq!(told("10.0.0.1:5", ""), (client("10.0.0.1"), false, None, None));
        assert_eq!(told("10.0.0.1:5", "Forwarded: for=unknown\r\n"), (None, false, None, None));
        assert_eq!(told("unix", ""), (None, false, None, None));
        assert_eq!(told("unix", "Forwarded: for=unknown\r\n"), (None, false, None, None));
        assert_eq!(told("unix", lines), told("10.0.0.1:5", lines));
        let host = "Forwarded: host=\"[2001:db8::1]:8443\";proto=https\r\n";
        assert_eq!(told("10.0.0.1:5", host), (client("10.0.0.1"), true, Some("[2001:db8::1]:8443".into()), Some(8443)));
        let port = "X-Forwarded-Port: 444\r\nX-Forwarded-Host: outer:5\r\n";
        assert_eq!(told("10.0.0.1:5", port).3, Some(444));
    }
}
