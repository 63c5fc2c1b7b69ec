//! Protocol upgrades (RFC 9110 §7.8), mainly WebSocket (RFC 6455).

use super::elements;
use flatout_config::model::Proxy;
use flatout_http::framing::{Framing, Version};
use flatout_http::head::Fields;
use flatout_http::request::RequestHead;
use flatout_http::token::{is_token, trim};

/// Returns the value of Upgrade if the upgrade is forwarded: upgrades are enabled, the request is HTTP/1.1 without
/// content, Connection names Upgrade, there is one such line, and every protocol in it is a token other than HTTP or
/// TLS: `h2c` to an origin would permit request smuggling past the proxy.
///
/// Otherwise the request is forwarded without Upgrade, as any server may ignore it.
pub fn asks<'a>(head: &RequestHead<'a>, settings: &Proxy) -> Option<&'a [u8]> {
    if !settings.upgrades || head.version != Version::Http11 || head.framing != Framing::None {
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

/// Returns whether a 101 with `fields` accepts the upgrade `asked`. If not, the origin is at fault
/// ([`UpgradeInvalid`](crate::outcome::ForwardOutcome::UpgradeInvalid)): an unexpected tunnel would let a client send
/// requests that bypass the proxy.
pub fn agrees(asked: &[u8], fields: Fields<'_>) -> bool {
    let mut chosen = elements(fields, "upgrade").peekable();
    let offered = |protocol: &[u8]| {
        asked.split(|&byte| byte == b',').map(trim).any(|offered| offered.eq_ignore_ascii_case(protocol))
    };
    names_upgrade(fields) && chosen.peek().is_some() && chosen.all(offered)
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
