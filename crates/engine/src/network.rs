//! Access control by address and network.

use flatout_config::model::{Access, Network};
use std::net::IpAddr;

/// Converts an IPv4-mapped IPv6 address, as from a dual-stack socket, to IPv4 (RFC 4291 §2.5.5.2). Returns any other
/// address unchanged.
pub(crate) fn normalise(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// Returns whether `client` has access, and the index of the rule that matched, if any. An unknown address may be one that
/// is denied, so that it matches every rule that denies, and of the others only `all`. It is denied if no rule matches.
pub(crate) fn decide_access(access: &Access, client: Option<IpAddr>) -> (bool, Option<usize>) {
    let fits = |is_allowed: bool, network: &Network| match (network, client) {
        (Network::All, _) => true,
        (Network::Cidr(network), Some(client)) => network.contains(client),
        (Network::Cidr(_), None) => !is_allowed,
    };
    match access.rules.iter().position(|(is_allowed, network)| fits(*is_allowed, network)) {
        Some(rule) => (access.rules[rule].0, Some(rule)),
        None => (client.is_some() && access.rules.iter().all(|(allow, _)| !allow), None),
    }
}

#[cfg(test)]
mod tests {
    use super::decide_access;
    use flatout_config::model::{Access, Cidr, Network};

    fn access(rules: &[(bool, &str, u8)]) -> Access {
        let rule = |&(allow, address, bits): &(bool, &str, u8)| {
            let network = match address {
                "all" => Network::All,
                _ => Network::Cidr(Cidr { address: address.parse().unwrap(), bits }),
            };
            (allow, network)
        };
        Access { rules: rules.iter().map(rule).collect() }
    }

    fn allows(access: &Access, client: &str) -> bool {
        decide_access(access, client.parse().ok()).0
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let inner = access(&[(false, "10.0.0.13", 32), (true, "10.0.0.0", 8), (true, "fd00::", 8)]);
        assert!(allows(&inner, "10.1.2.3") && allows(&inner, "::ffff:10.1.2.3") && allows(&inner, "fdab::1"));
        assert!(!allows(&inner, "10.0.0.13") && !allows(&inner, "11.0.0.1") && !allows(&inner, "fe80::1"));
        assert!(!allows(&inner, "nobody knows"));
        let but_one = access(&[(false, "10.0.0.13", 32)]);
        assert!(allows(&but_one, "10.0.0.14") && allows(&but_one, "::1") && !allows(&but_one, "::ffff:a00:d"));
        assert!(!allows(&but_one, "nobody knows"));
        assert!(!allows(&access(&[(false, "all", 0)]), "::1"));
        assert!(allows(&access(&[(true, "all", 0)]), "nobody knows"));
        assert!(!allows(&access(&[(false, "10.0.0.13", 32), (true, "all", 0)]), "nobody knows"));
        assert!(allows(&access(&[]), "::1"));
    }

    #[test]
    fn bits_at_their_bounds() {
        assert!(allows(&access(&[(true, "0.0.0.0", 0)]), "255.1.1.1"));
        assert!(!allows(&access(&[(true, "0.0.0.0", 0)]), "::1"));
        assert!(allows(&access(&[(true, "::", 0)]), "::1"));
        assert!(allows(&access(&[(true, "::ffff:10.0.0.0", 104)]), "10.9.9.9"));
        assert!(!allows(&access(&[(true, "::ffff:10.0.0.0", 104)]), "11.9.9.9"));
        assert!(
            allows(&access(&[(true, "1.2.3.4", 32)]), "1.2.3.4")
                && !allows(&access(&[(true, "1.2.3.4", 32)]), "1.2.3.5")
        );
        assert!(allows(&access(&[(true, "::2", 128)]), "::2") && !allows(&access(&[(true, "::2", 128)]), "::3"));
        assert!(allows(&access(&[(true, "::", 200)]), "::"));
    }
}
