//! Networks of clients, and the proxies that are trusted.

use super::parse::{self, NetworkError};
use super::reader::Reader;
use super::shape::Shape;
use crate::code::Code;
use crate::model::{Cidr, Network, TrustedProxy};
use crate::syntax::Value;

/// `trusted-proxies`: networks, or Unix sockets, whose forwarded information about the client is trusted.
pub(super) const TRUST: Shape = Shape::values(1, "trusted-proxies \"10.0.0.0/8\" \"2001:db8::/32\"");

/// Reads a network, or `"all"`.
pub(super) fn network(reader: &mut Reader<'_>, value: &Value) -> Option<Network> {
    let text = reader.line(value)?;
    read_network(reader, value, &text)
}

/// Reads the network `text`, which is `value` or a part of it.
fn read_network(reader: &mut Reader<'_>, value: &Value, text: &str) -> Option<Network> {
    if text == "all" {
        return Some(Network::All);
    }
    match parse::network(text) {
        Ok(cidr) => Some(Network::Cidr(cidr)),
        Err(fault) => {
            let draft = reader.report.add(Code::NetworkBad, value.span, format!("`{text}` is not a valid network"));
            if let NetworkError::HostBits(cidr) = fault {
                draft.label(format!("did you mean \"{}/{}\"?", cidr.address, cidr.bits));
            }
            draft.note(
                "write a network as \"10.0.0.0/8\" or \"2001:db8::/32\", an address as \"192.0.2.1\", and every client as \"all\"",
            );
            None
        }
    }
}

/// Reads an entry of `trusted-proxies`: a network, or `"unix"`.
pub(super) fn trusted_proxy(reader: &mut Reader<'_>, value: &Value) -> Option<TrustedProxy> {
    if reader.line(value)? == "unix" {
        return Some(TrustedProxy::Unix);
    }
    listed_network(reader, value).map(TrustedProxy::Network)
}

/// Reads a network in a list. There is no keyword for all clients; users can write `0.0.0.0/0` and `::/0`.
pub(super) fn listed_network(reader: &mut Reader<'_>, value: &Value) -> Option<Cidr> {
    let text = reader.line(value)?;
    read_listed_network(reader, value, &text)
}

/// Reads the network `text`, which is `value` or a part of it, as [`listed_network`] does.
pub(super) fn read_listed_network(reader: &mut Reader<'_>, value: &Value, text: &str) -> Option<Cidr> {
    match read_network(reader, value, text)? {
        Network::Cidr(cidr) => Some(cidr),
        Network::All => {
            let message = "list the networks: `all` is not allowed here";
            let draft = reader.report.add(Code::NetworkBad, value.span, message);
            draft.note("flatout trusts these networks, so list only those that you control");
            None
        }
    }
}
