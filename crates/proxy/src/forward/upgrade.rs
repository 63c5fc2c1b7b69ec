//! Protocol upgrades (RFC 9110 §7.8), mainly WebSocket (RFC 6455).

use super::elements;
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use data_encoding::BASE64;
use flatout_config::model::Proxy;
use flatout_http::framing::{Framing, Version};
use flatout_http::head::Fields;
use flatout_http::lines::write_line;
use flatout_http::request::RequestHead;
use flatout_http::token::{is_token, trim};
use flatout_os::random;

/// Returns the value of Upgrade if the upgrade must be forwarded. That requires that upgrades are enabled, that the
/// request has no content, and that it uses HTTP/1.1 or is an extended CONNECT (RFC 8441) converted to the same form.
/// Connection must name Upgrade, and there must be a single Upgrade line that lists no version of HTTP or TLS:
/// forwarding `h2c` would permit request smuggling past the proxy.
///
/// Otherwise, the request is forwarded without Upgrade, which any server may ignore.
pub fn asks<'a>(head: &RequestHead<'a>, settings: &Proxy) -> Option<&'a [u8]> {
    if !settings.upgrades || head.version < Version::Http11 || head.framing != Framing::None {
        return None;
    }
    let mut lines = head.fields.all("upgrade");
    let (Some(value), None) = (lines.next(), lines.next()) else { return None };
    if !names_upgrade(head.fields) {
        return None;
    }
    let mut protocols = value.split(|&byte| byte == b',').map(trim).peekable();
    protocols.peek()?;
    protocols.all(is_foreign).then_some(value)
}

/// Returns whether a 101 with `fields` accepts one of the protocols in `asked`, the value of the request's Upgrade. If
/// not, the response is invalid ([`UpgradeInvalid`](crate::outcome::ForwardOutcome::UpgradeInvalid)): an unexpected
/// tunnel would let a client send requests that bypass the proxy.
pub fn agrees(asked: &[u8], fields: Fields<'_>) -> bool {
    let mut chosen = elements(fields, "upgrade").peekable();
    let offered = |protocol: &[u8]| {
        asked.split(|&byte| byte == b',').map(trim).any(|offered| offered.eq_ignore_ascii_case(protocol))
    };
    names_upgrade(fields) && chosen.peek().is_some() && chosen.all(offered)
}

/// Key of a WebSocket handshake: 16 random bytes in base64 (RFC 6455 §4.1). The handshake over HTTP/2 has no key (RFC
/// 8441 §5).
#[derive(Clone, Debug)]
pub struct WebSocketKey(String);

impl WebSocketKey {
    /// Generates a key. Returns `None` if the system cannot provide random numbers.
    pub fn random() -> Option<Self> {
        Some(Self(BASE64.encode(&random::bytes::<16>().ok()?)))
    }

    /// Appends the Sec-WebSocket-Key line of an upstream request to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        write_line("Sec-WebSocket-Key", self.0.as_bytes(), out);
    }

    /// Returns whether the Sec-WebSocket-Accept of a 101 with `fields` corresponds to this key.
    pub fn is_accepted(&self, fields: Fields<'_>) -> bool {
        fields.first("sec-websocket-accept") == Some(accept_key(self.0.as_bytes()).as_bytes())
    }
}

/// Returns the value of Sec-WebSocket-Accept for a client's key (RFC 6455 §4.2.2).
pub fn accept_key(key: &[u8]) -> String {
    const MAGIC: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    BASE64.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, MAGIC].concat()).as_ref())
}

fn names_upgrade(fields: Fields<'_>) -> bool {
    elements(fields, "connection").any(|option| option.eq_ignore_ascii_case(b"upgrade"))
}

/// Returns whether `protocol-name ["/" protocol-version]` is a protocol other than HTTP or TLS.
fn is_foreign(protocol: &[u8]) -> bool {
    let mut parts = protocol.splitn(2, |&byte| byte == b'/');
    let name = parts.next().unwrap_or_default();
    let ours: [&[u8]; 5] = [b"h2c", b"h2", b"h3", b"http", b"tls"];
    is_token(name) && parts.next().is_none_or(is_token) && !ours.iter().any(|ours| ours.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::WebSocketKey;
    use flatout_http::head::{Fields, Header};

    #[test]
    fn the_accepted_key_of_rfc_6455() {
        let key = WebSocketKey("dGhlIHNhbXBsZSBub25jZQ==".to_owned());
        let accepts = |value: &str| {
            key.is_accepted(Fields::from_lines(&[Header { name: "Sec-WebSocket-Accept", value: value.as_bytes() }]))
        };
        assert!(accepts("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert!(!accepts("s3pPLMBiTxaQ9kYGzzhZRbK+xOO="));
        assert!(!key.is_accepted(Fields::EMPTY));
    }
}
