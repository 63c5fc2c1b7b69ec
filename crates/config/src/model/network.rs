//! Networks of clients.

use std::net::IpAddr;

/// The clients that a rule applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// All clients.
    All,
    /// Clients in a network.
    Cidr(Cidr),
}

/// A network in CIDR notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, derive_more::Display)]
#[display("{address}/{bits}")]
pub struct Cidr {
    /// The network's address, whose bits after the prefix are 0.
    pub address: IpAddr,
    /// The length of the prefix in bits.
    pub bits: u8,
}

impl Cidr {
    /// Returns true if `address` is in the network. An IPv4-mapped IPv6 address, which dual-stack sockets report,
    /// counts as an IPv4 address (RFC 4291 §2.5.5.2).
    pub fn contains(&self, address: IpAddr) -> bool {
        // `::ffff:10.0.0.0/104` is 10.0.0.0/8.
        let (base, bits) = match (self.address, self.address.to_canonical()) {
            (IpAddr::V6(_), IpAddr::V4(base)) if self.bits >= 96 => (IpAddr::V4(base), self.bits - 96),
            (base, _) => (base, self.bits),
        };
        match (base, address.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
                (base.to_bits() ^ address.to_bits()) & mask == 0
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
                (base.to_bits() ^ address.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}
