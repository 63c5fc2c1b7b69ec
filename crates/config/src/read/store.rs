//! What is kept of origins' answers, for all sites together: memory, and folders on disks.

use super::Reader;
use super::shape::{Block, Shape, property};
use crate::code::Code;
use crate::model::StoreBudget;
use crate::syntax::Node;
use std::path::PathBuf;

const SHAPE: Shape = Shape {
    arguments: (0, 0),
    properties: &["memory", "hot-objects"],
    block: Block::Optional,
    example: "store memory=\"256MiB\" hot-objects=1000000 { disk \"/var/cache/flatout\" \"10GiB\" }",
};
const DISK: Shape = Shape { arguments: (2, 2), ..Shape::value("disk \"/var/cache/flatout\" \"10GiB\"") };

/// Volumes of one machine.
const DISKS_MAX: usize = 64;

/// Bytes in memory: below, hardly anything would stay; above lie no machines.
pub(crate) const MEMORY_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 44;

/// Objects in memory.
pub(crate) const HOT_OBJECTS: std::ops::RangeInclusive<u64> = 1..=1_000_000_000;

/// Bytes of one folder.
pub(crate) const DISK_BYTES: std::ops::RangeInclusive<u64> = 1 << 24..=1 << 50;

pub(super) fn read(reader: &mut Reader<'_>, node: &Node) -> StoreBudget {
    reader.shape(node, &SHAPE);
    let mut budget = StoreBudget::default();
    if node.properties.is_empty() && node.children.is_none() && node.arguments.is_empty() {
        let draft = reader.report.add(Code::PropertyMissing, node.span, "`store` needs memory, hot-objects or a disk");
        draft.note(format!("as in: {}", SHAPE.example));
    }
    if let Some(memory) = property(node, "memory")
        && let Some(memory) = reader.size(&memory.value, MEMORY_BYTES)
    {
        budget.memory_bytes_max = memory;
    }
    if let Some(objects) = property(node, "hot-objects")
        && let Some(objects) = reader.number(&objects.value, HOT_OBJECTS)
    {
        budget.hot_objects_max = objects;
    }
    for child in node.children.iter().flatten() {
        if child.name != "disk" {
            reader.unknown(child, &["disk"]);
        } else if let Some(disk) = disk(reader, child, &budget.disks) {
            budget.disks.push(disk);
        }
    }
    budget
}

fn disk(reader: &mut Reader<'_>, node: &Node, known: &[(PathBuf, u64)]) -> Option<(PathBuf, u64)> {
    if !reader.shape(node, &DISK) {
        return None;
    }
    let (path, size) = (reader.path(&node.arguments[0]), reader.size(&node.arguments[1], DISK_BYTES));
    let (path, size) = (path?, size?);
    // One within another would count its bytes twice, and clear them away as nobody's.
    if let Some((other, _)) = known.iter().find(|(other, _)| path.starts_with(other) || other.starts_with(&path)) {
        let message = format!("{} and {} are not two volumes", other.display(), path.display());
        reader.report.add(Code::Contradiction, node.arguments[0].span, message).label("one folder for each volume");
        return None;
    }
    if known.len() == DISKS_MAX {
        reader.report.add(Code::NumberBounds, node.span, format!("more than {DISKS_MAX} disks"));
        return None;
    }
    Some((path, size))
}
