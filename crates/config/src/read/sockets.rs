//! `sockets`: socket options, which can be set in order to measure their effects. No site needs them.

use super::setting::{Group, Setting};
use super::shape::Shape;
use crate::model::Sockets;

const FLAG: &str = "defer-accept #false";
const NUMBER: &str = "backlog 128";

/// The largest backlog. The kernel limits a backlog to net.core.somaxconn, which is rarely larger than this.
const BACKLOG_MAX: u64 = 65_535;
/// The largest number of accepts in a row. More would delay open connections by milliseconds.
const ACCEPT_BATCH_MAX: u64 = 4096;
/// The largest limit of unsent bytes. The kernel's send buffers are smaller unless configured otherwise.
const NOT_SENT_BYTES_MAX: u64 = 1 << 30;
/// The longest busy polling, in microseconds. A worker that polls for longer delays its other connections.
const BUSY_POLL_US_MAX: u64 = 1000;

/// `sockets`.
pub(super) const SOCKETS: Group<Sockets> = Group {
    shape: Shape::none("sockets { defer-accept #false; accept-batch 1 }").has_block(),
    properties: &[],
    block: &[
        Setting::flag("reuseport", FLAG, |sockets| &mut sockets.reuseport),
        Setting::flag("defer-accept", FLAG, |sockets| &mut sockets.defer_accept),
        Setting::flag("nodelay", FLAG, |sockets| &mut sockets.nodelay),
        Setting::flag("quickack", FLAG, |sockets| &mut sockets.quickack),
        Setting::flag("sendfile", FLAG, |sockets| &mut sockets.sendfile),
        Setting::number("backlog", NUMBER, 1..=BACKLOG_MAX, |sockets| &mut sockets.backlog),
        Setting::number("accept-batch", NUMBER, 1..=ACCEPT_BATCH_MAX, |sockets| &mut sockets.accept_batch),
        Setting::size("not-sent-max", "not-sent-max \"64KiB\"", 0..=NOT_SENT_BYTES_MAX, |sockets| {
            &mut sockets.not_sent_bytes_max
        }),
        Setting::number("busy-poll-us", NUMBER, 0..=BUSY_POLL_US_MAX, |sockets| &mut sockets.busy_poll_us),
    ],
};
