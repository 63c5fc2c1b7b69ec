//! Decides which clients are trusted proxies.

use super::Cidr;
use std::net::IpAddr;

/// Returns true if `client` is in one of `networks`. An IPv4-mapped IPv6 address, which dual-stack sockets report,
/// counts as an IPv4 address (RFC 4291 §2.5.5.2).
pub fn is_trusted(networks: &[Cidr], client: Option<IpAddr>) -> bool {
    client.is_some_and(|client| networks.iter().any(|network| network.contains(client)))
}

#[cfg(test)]
mod tests {
    use super::super::Cidr;
    use super::is_trusted;

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
            assert_eq!(is_trusted(&[network], Some(client.parse().unwrap())), expected, "{network:?} {client}");
        }
        assert!(!is_trusted(&[], Some("::1".parse().unwrap())));
        assert!(!is_trusted(&[Cidr { address: "::".parse().unwrap(), bits: 0 }], None));
    }
}
