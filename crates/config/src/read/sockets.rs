//! `sockets`: how sockets are opened and used. Nobody needs it to serve; it is there to measure what each feature is worth.

use super::Reader;
use super::process::value;
use super::shape::{Block, Seen, Shape};
use crate::model::Sockets;
use crate::syntax::Node;

const SOCKETS: Shape = Shape {
    arguments: (0, 0),
    properties: &[],
    block: Block::Needed,
    example: "sockets { defer-accept #false; accept-batch 1 }",
};
const FLAG: Shape = Shape::value("defer-accept #false");
const NUMBER: Shape = Shape::value("backlog 128");

const NAMES: &[&str] =
    &["reuseport", "defer-accept", "nodelay", "quickack", "sendfile", "backlog", "accept-batch", "busy-poll-us"];

/// The kernel takes a backlog up to net.core.somaxconn, which is at most 65,535 where it is not raised on purpose.
const BACKLOG_MAX: u64 = 65_535;
/// More accepts than this in a row would keep open connections waiting for milliseconds.
const ACCEPT_BATCH_MAX: u64 = 4096;
/// A worker that polls for longer than this serves nobody else.
const BUSY_POLL_US_MAX: u64 = 1000;

pub(super) fn read(reader: &mut Reader<'_>, node: &Node) -> Sockets {
    let mut sockets = Sockets::default();
    reader.shape(node, &SOCKETS);
    let mut seen = Seen::default();
    for child in node.children.iter().flatten() {
        let name = child.name.as_str();
        if !NAMES.contains(&name) {
            reader.unknown(child, NAMES);
            continue;
        }
        if !reader.first(&mut seen, child) {
            continue;
        }
        match name {
            "backlog" => number(reader, child, 1..=BACKLOG_MAX, &mut sockets.backlog),
            "accept-batch" => number(reader, child, 1..=ACCEPT_BATCH_MAX, &mut sockets.accept_batch),
            "busy-poll-us" => number(reader, child, 0..=BUSY_POLL_US_MAX, &mut sockets.busy_poll_us),
            "reuseport" => flag(reader, child, &mut sockets.reuseport),
            "defer-accept" => flag(reader, child, &mut sockets.defer_accept),
            "nodelay" => flag(reader, child, &mut sockets.nodelay),
            "quickack" => flag(reader, child, &mut sockets.quickack),
            _ => flag(reader, child, &mut sockets.sendfile),
        }
    }
    sockets
}

fn flag(reader: &mut Reader<'_>, node: &Node, target: &mut bool) {
    if let Some(flag) = value(reader, node, &FLAG).and_then(|value| reader.flag(value)) {
        *target = flag;
    }
}

fn number(reader: &mut Reader<'_>, node: &Node, bounds: std::ops::RangeInclusive<u64>, target: &mut u32) {
    if let Some(number) = value(reader, node, &NUMBER).and_then(|value| reader.number(value, bounds)) {
        // The bounds are far below what fits.
        *target = number as u32;
    }
}
