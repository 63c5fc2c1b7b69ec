//! Decides which senders are trusted proxies.

use super::Cidr;
use flatout_http::forwarded::Sender;
use std::net::IpAddr;

/// An entry of `trusted-proxies`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, derive_more::Display, derive_more::From)]
pub enum TrustedProxy {
    /// The clients in this network.
    Network(Cidr),
    /// The peers of connections to Unix sockets.
    #[display("unix")]
    Unix,
}

/// Returns true if `sender` is one of `proxies`. A sender without an address is one only if it is the peer of a Unix
/// socket: a client that a proxy hides is none.
pub fn is_trusted(proxies: &[TrustedProxy], sender: Sender) -> bool {
    proxies.iter().any(|proxy| match (proxy, sender) {
        (TrustedProxy::Network(network), Sender::Ip(client)) => network.contains(client),
        (TrustedProxy::Unix, Sender::Unix) => true,
        _ => false,
    })
}

/// Returns true if `client` is in one of `networks`. An IPv4-mapped IPv6 address, which dual-stack sockets report,
/// counts as an IPv4 address (RFC 4291 §2.5.5.2).
pub fn is_listed(networks: &[Cidr], client: Option<IpAddr>) -> bool {
    client.is_some_and(|client| networks.iter().any(|network| network.contains(client)))
}

#[cfg(test)]
mod tests {
    use super::super::Cidr;
    use super::{TrustedProxy, is_listed, is_trusted};
    use flatout_http::forwarded::Sender;

    #[test]
    fn networks_of_both_families() {
        for (network, bits, client, expected) in [
            ("10.0.0.0", 8, "10.1.2.3", true),
            ("10.0.0.0", 8, "::ffff:10.1.2.3", true),
            ("::ffff:10.0.0.0", 104, "10.1.2.3", true),
            ("10.0.0.0", 8, "11.0.0.0", false),
            ("0.0.0.0", 0, "255.1.1.1", true),
            ("0.0.0.0", 0, "::1", false),
            ("::1", 128, "::1", true),
            ("::1", 128, "::2", false),
            ("fd00::", 8, "fdab::1", true),
            ("::", 0, "2001:db8::1", true),
        ] {
            let network = Cidr { address: network.parse().unwrap(), bits };
            let client = client.parse().unwrap();
            assert_eq!(is_listed(&[network], Some(client)), expected, "{network:?} {client}");
            assert_eq!(is_trusted(&[network.into()], Sender::Ip(client)), expected, "{network:?} {client}");
        }
        assert!(!is_listed(&[], Some("::1".parse().unwrap())));
        assert!(!is_listed(&[Cidr { address: "::".parse().unwrap(), bits: 0 }], None));
    }

    #[test]
    fn a_hidden_client_is_no_peer_of_a_unix_socket() {
        let everyone = Cidr { address: "0.0.0.0".parse().unwrap(), bits: 0 };
        let (unix, network) = (TrustedProxy::Unix, TrustedProxy::Network(everyone));
        assert!(is_trusted(&[network, unix], Sender::Unix) && !is_trusted(&[network], Sender::Unix));
        assert!(!is_trusted(&[network, unix], Sender::Unknown));
        assert!(!is_trusted(&[unix], Sender::Ip("127.0.0.1".parse().unwrap())));
    }
}
