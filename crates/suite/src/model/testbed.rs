//! A testbed in a suite's file: a simulated network.

use super::Placed;
use flatout_config::model::Place;

/// Two hosts and a link between them, implemented with network namespaces.
#[derive(Clone, Debug, Default)]
pub struct Testbed {
    /// Name of the testbed.
    pub name: String,
    /// Place of the testbed in the file.
    pub place: Place,
    /// Description of the testbed.
    pub about: String,
    /// MTU of the link in bytes. May contain a variable.
    pub mtu: Option<Placed>,
    /// Rate of the link in each direction, such as `100mbit`. May contain a variable.
    pub rate: Option<Placed>,
    /// Delay of the link in each direction, such as `1ms`.
    pub delay: Option<Placed>,
    /// Kernel settings of both hosts, such as `net.ipv4.tcp_sack=0`. May contain variables.
    pub sysctls: Vec<Placed>,
    /// Share of a core that each server may use, such as `0.04`. May contain a variable.
    pub cpu: Option<Placed>,
    /// Number of hosts: 1, which servers and clients share, or 2.
    pub hosts: u8,
}
