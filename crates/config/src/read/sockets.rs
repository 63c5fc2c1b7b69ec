//! `sockets`: how sockets are opened and used. Nobody needs it to serve; it is there to measure what each feature is worth.

use super::setting::{Group, Setting};
use super::shape::Shape;
use crate::model::Sockets;

const FLAG: &str = "defer-accept #false";
const NUMBER: &str = "backlog 128";

/// The kernel takes a backlog up to net.core.somaxconn, which is at most 65,535 where it is not raised on purpose.
const BACKLOG_MAX: u64 = 65_535;
/// More accepts than this in a row would keep open connections waiting for milliseconds.
const ACCEPT_BATCH_MAX: u64 = 4096;
/// A worker that polls for longer than this serves nobody else.
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
        Setting::number("busy-poll-us", NUMBER, 0..=BUSY_POLL_US_MAX, |sockets| &mut sockets.busy_poll_us),
    ],
};
