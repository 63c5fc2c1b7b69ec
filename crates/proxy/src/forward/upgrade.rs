//! Connections that go on with another protocol (RFC 9110 §7.8, RFC 6455).
use flatout_http::response::ResponseHead;
use flatout_net::handler::Request;

/// Whether the request asks for an upgrade that may be passed on: HTTP/1.1, no content, `Connection: upgrade`, and a
/// protocol that is not another HTTP or TLS (`h2c` is how requests are smuggled).
pub fn asks(_request: &Request<'_>) -> bool {
    unimplemented!()
}

/// Whether a 101 agrees to what the request asked for. Else it is an error of the origin's (`upgrade_invalid`).
pub fn agrees(_request_upgrade: &[u8], _answer: &ResponseHead<'_>) -> bool {
    unimplemented!()
}
