//! The page that lists a folder without an index: what is in it now, as HTML for people or JSON for programs.
//!
//! Reading a folder waits for the disk, so this belongs on a thread that may wait. The work is bounded by
//! `entries_max`: at most [`READ_FACTOR`] times as many names are read and looked at.
//!
//! | file | what it knows |
//! |---|---|
//! | `entry` | one entry: its name for people, its address, its size and time as text |
//! | `order` | natural order, and the order that was asked for |
//! | `wish` | what the query and Accept ask for |
//! | `html` | the page |
//! | `json` | the same for programs |

mod entry;
mod html;
mod json;
mod order;
mod wish;

#[cfg(test)]
mod tests;

use entry::{Entry, Kind};
use flatout_net::root::{OpenFault, Root};
use rustix::fs::{Dir, FileType};

pub(crate) use wish::{Format, Wish};

/// How many names are read for each that is listed at most. What is listed of a larger folder is the first by name
/// of those that were read.
const READ_FACTOR: u64 = 4;

/// What is in a folder, as far as it is listed.
struct Listing<'a> {
    /// The decoded path of the request, from the first slash to the last.
    shown_path: &'a [u8],
    /// In the order that was asked for.
    entries: Vec<Entry>,
    /// How many of those that were read are left out.
    left_out: usize,
    /// Whether every name in the folder was read; otherwise `left_out` is only the least that is missing.
    read_whole: bool,
}

/// Reads the folder `name` (relative, ending with `/`, or empty for the root) below `root` and makes its page.
/// `shown_path` is the decoded path of the request, which begins and ends with `/`. Names that begin with a dot are
/// listed only if `hidden`; links that lead out of the root, devices, pipes and sockets never are.
///
/// `None`: the folder cannot be read any more, or not without leaving out what should be there.
pub(crate) fn make(
    root: &Root,
    name: &[u8],
    shown_path: &[u8],
    hidden: bool,
    entries_max: u32,
    wish: Wish,
) -> Option<Vec<u8>> {
    let (mut entries, read_whole) = read(root, name, hidden, u64::from(entries_max) * READ_FACTOR)?;
    let entries_max = usize::try_from(entries_max).unwrap_or(usize::MAX);
    let left_out = entries.len().saturating_sub(entries_max);
    if left_out > 0 {
        order::sort(&mut entries, order::Order::default());
        entries.truncate(entries_max);
    }
    order::sort(&mut entries, wish.order);
    let listing = Listing { shown_path, entries, left_out, read_whole };
    Some(match wish.format {
        Format::Html => html::page(&listing, wish.order).into_bytes(),
        Format::Json => json::text(&listing).into_bytes(),
    })
}

/// The media type of what [`make`] makes.
pub(crate) fn content_type(wish: Wish) -> &'static str {
    match wish.format {
        Format::Html => "text/html; charset=utf-8",
        Format::Json => "application/json",
    }
}

/// The entries of the folder `name`, of at most `names_max` names, and whether these were all.
fn read(root: &Root, name: &[u8], hidden: bool, names_max: u64) -> Option<(Vec<Entry>, bool)> {
    let mut folder = Dir::new(root.open_folder(name).ok()?).ok()?;
    let mut entries = Vec::new();
    let mut path = name.to_vec();
    let mut names = 0;
    while let Some(found) = folder.read() {
        let found = found.ok()?;
        let own = found.file_name().to_bytes();
        if own == b"." || own == b".." {
            continue;
        }
        if names == names_max {
            return Some((entries, false));
        }
        names += 1;
        if (own.starts_with(b".") && !hidden) || !may_be_listed(found.file_type()) {
            continue;
        }
        // By its whole path below the root, so that a link from here to elsewhere inside is followed.
        path.truncate(name.len());
        path.extend_from_slice(own);
        let stat = match root.stat(&path) {
            Ok(stat) => stat,
            // Every further name would fail alike: no page is better than one that lacks half its entries.
            Err(OpenFault::NoDescriptor) => return None,
            Err(_) => continue,
        };
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Kind::Folder,
            FileType::RegularFile => Kind::File { size_bytes: u64::try_from(stat.st_size).unwrap_or(0) },
            _ => continue,
        };
        entries.push(Entry::new(own, kind, stat.st_mtime));
    }
    Some((entries, true))
}

/// Whether an entry of this type may turn out a file or a folder. Some file systems do not tell the type here.
fn may_be_listed(file_type: FileType) -> bool {
    matches!(file_type, FileType::RegularFile | FileType::Directory | FileType::Symlink | FileType::Unknown)
}
