//! A network in a suite's file.

use super::Placed;
use flatout_config::model::Place;

/// Two hosts and a link between them, made of network namespaces.
#[derive(Clone, Debug, Default)]
pub struct Testbed {
    /// Its name.
    pub name: String,
    /// Its place in the file.
    pub place: Place,
    /// Its description.
    pub about: String,
    /// Largest packet of the link, in bytes; may name a variable.
    pub mtu: Option<Placed>,
    /// Rate of the link in each direction, such as `100mbit`; may name a variable.
    pub rate: Option<Placed>,
    /// Added on the way in each direction, such as `1ms`.
    pub delay: Option<Placed>,
    /// Share of a core's time that servers have, such as `0.04`; may name a variable.
    pub cpu: Option<Placed>,
    /// Hosts: 1 (servers and clients share one) or 2.
    pub hosts: u8,
}
