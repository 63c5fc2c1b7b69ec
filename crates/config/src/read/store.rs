//! `store`: the memory and the disk folders of the cache, shared by all sites.

use super::reader::Reader;
use super::setting::{Group, Setting};
use super::shape::Shape;
use crate::code::Code;
use crate::encode::writer::path;
use crate::model::StoreBudget;
use crate::syntax::Node;
use flatout_units::quantity::{self, exact_size};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// The maximum number of volumes on disk.
const DISKS_MAX: usize = 64;

/// The bounds of the memory budget, in bytes. Less than 1 MiB would hold hardly anything, and no machine has more than
/// 16 TiB.
const MEMORY_BYTES: RangeInclusive<u64> = 1 << 20..=1 << 44;

/// The bounds of the maximum number of objects in memory.
pub const MEMORY_OBJECTS: RangeInclusive<u64> = 1..=1_000_000_000;

/// The bounds of a volume's budget, in bytes.
const DISK_BYTES: RangeInclusive<u64> = 1 << 24..=1 << 50;

/// `store`.
pub(super) const STORE: Group<StoreBudget> = Group {
    shape: Shape::none("store memory=\"256MiB\" memory-objects=1000000 { disk \"/var/cache/flatout\" \"10GiB\" }")
        .may_have_block()
        .needs("memory, memory-objects or a disk"),
    properties: &[
        Setting::size("memory", "", MEMORY_BYTES, |budget| &mut budget.memory_bytes_max),
        Setting::number("memory-objects", "", MEMORY_OBJECTS, |budget| &mut budget.memory_objects_max),
    ],
    block: &[Setting::custom(
        "disk",
        Shape::value("disk \"/var/cache/flatout\" \"10GiB\"").takes(2, 2),
        disk,
        |writer, name, store| {
            for (folder, bytes_max) in &store.disks {
                writer.begin(name).text(&path(folder)).text(&exact_size(*bytes_max)).end();
            }
        },
    )
    .repeated()],
};

fn disk(reader: &mut Reader<'_>, node: &Node, store: &mut StoreBudget) {
    let (path, size) = (reader.path(&node.arguments[0]), reader.size(&node.arguments[1], DISK_BYTES));
    let (Some(path), Some(size)) = (path, size) else { return };
    if let Some(other) = overlapping(&store.disks, &path) {
        let message = format!("the volumes {} and {} must not overlap", other.display(), path.display());
        reader
            .report
            .add(Code::Contradiction, node.arguments[0].span, message)
            .label("use a separate folder for each volume");
    } else if store.disks.len() == DISKS_MAX {
        reader.report.add(Code::NumberBounds, node.span, format!("more than {DISKS_MAX} disks"));
    } else {
        store.disks.push((path, size));
    }
}

/// Finds a known folder that contains `path` or is inside it. In overlapping folders, bytes would count twice, and each
/// volume would delete the other's files.
fn overlapping<'k>(known: &'k [(PathBuf, u64)], path: &Path) -> Option<&'k Path> {
    let folders = known.iter().map(|(folder, _)| folder.as_path());
    folders.into_iter().find(|other| path.starts_with(other) || other.starts_with(path))
}

/// Parses a memory budget such as `256MiB` from the command line.
///
/// # Errors
/// A message if the string is not a size or is out of bounds.
pub fn parse_memory(text: &str) -> Result<u64, String> {
    parse_size(text, &MEMORY_BYTES)
}

/// Parses a volume of the form `DIR=SIZE` from the command line.
///
/// # Errors
/// A message if the string does not have this form, or if the size is out of bounds.
pub fn parse_disk(text: &str) -> Result<(PathBuf, u64), String> {
    let (folder, size) = text.rsplit_once('=').ok_or("a disk is a folder and its maximum size: DIR=10GiB")?;
    if folder.is_empty() {
        return Err("the folder before the `=` is missing".to_owned());
    }
    Ok((folder.into(), parse_size(size, &DISK_BYTES)?))
}

fn parse_size(text: &str, bounds: &RangeInclusive<u64>) -> Result<u64, String> {
    let size = quantity::parse_size(text).map_err(|_| "a size is a number with a unit: 512MiB, 10GiB, 1TB")?;
    if bounds.contains(&size) {
        return Ok(size);
    }
    Err(format!("it must be between {} and {}", exact_size(*bounds.start()), exact_size(*bounds.end())))
}

/// Returns the problem if these volumes cannot be used together, for messages about the command line.
pub fn disks_fault(disks: &[(PathBuf, u64)]) -> Option<String> {
    if disks.len() > DISKS_MAX {
        return Some(format!("more than {DISKS_MAX} disks"));
    }
    disks.iter().enumerate().find_map(|(index, (folder, _))| {
        let other = overlapping(&disks[..index], folder)?;
        Some(format!("the volumes {} and {} must not overlap", other.display(), folder.display()))
    })
}
