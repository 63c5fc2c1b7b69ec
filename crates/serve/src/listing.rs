//! The listing of a folder that has no index file, as HTML or JSON.
//!
//! Reading a folder blocks on the disk, so call [`make`] on a thread that may block. `entries_max` limits the work: at
//! most [`READ_FACTOR`] times as many names are read.
//!
//! | file | content |
//! |---|---|
//! | `entry` | an entry: name, address, size and time |
//! | `order` | natural order, and the requested sort order |
//! | `query` | the requested format and order, from the query string and Accept |
//! | `html` | the HTML page |
//! | `json` | the JSON document |

mod entry;
mod html;
mod json;
mod order;
mod query;

#[cfg(test)]
mod tests;

use entry::{EntryKind, ListingEntry};
use flatout_os::root::{OpenFault, Root};
use rustix::fs::{Dir, FileType};

pub(crate) use query::{Format, ListingQuery};

/// Maximum number of names read, as a multiple of the maximum number of listed entries. The listing of a larger folder
/// has the first names, in natural order, among those read.
const READ_FACTOR: u64 = 4;

/// The listed content of a folder.
struct Listing<'a> {
    /// The decoded path of the request, with a leading and a trailing slash.
    shown_path: &'a [u8],
    /// The listed entries, in the requested order.
    entries: Vec<ListingEntry>,
    /// Number of entries that were read but are not listed.
    left_out: usize,
    /// True if every name in the folder was read. Otherwise, `left_out` is a lower bound.
    read_whole: bool,
}

/// Reads the folder `name` below `root` and creates its listing. `name` is relative and ends with `/`, or is empty for
/// the root. `shown_path` is the decoded path of the request, which begins and ends with `/`. Names with a leading dot
/// are listed only if `hidden` is true. Devices, pipes, sockets and links that lead out of the root are never listed.
///
/// Returns the listing's bytes and the time of its last change, in seconds since 1970: the latest modification time of
/// the folder and its entries that is not after `unix_s`. Unless the folder changes, all workers get the same time.
/// Returns `None` if the folder cannot be opened, or if reading it fails.
pub(crate) fn make(
    root: &Root,
    name: &[u8],
    shown_path: &[u8],
    hidden: bool,
    entries_max: u32,
    query: ListingQuery,
    unix_s: i64,
) -> Option<(Vec<u8>, i64)> {
    let FolderEntries { mut entries, read_whole, modified_s } =
        read(root, name, hidden, u64::from(entries_max) * READ_FACTOR)?;
    let times = entries.iter().map(|entry| entry.modified_s).chain([modified_s]);
    let modified_s = times.filter(|&modified_s| modified_s <= unix_s).max().unwrap_or(0).max(0);
    let entries_max = usize::try_from(entries_max).unwrap_or(usize::MAX);
    let left_out = entries.len().saturating_sub(entries_max);
    if left_out > 0 {
        order::sort(&mut entries, order::ListingOrder::default());
        entries.truncate(entries_max);
    }
    order::sort(&mut entries, query.order);
    let listing = Listing { shown_path, entries, left_out, read_whole };
    let content = match query.format {
        Format::Html => html::page(&listing, query.order),
        Format::Json => json::text(&listing),
    };
    Some((content.into_bytes(), modified_s))
}

/// Returns the media type of the content that [`make`] creates.
pub(crate) fn content_type(query: ListingQuery) -> &'static str {
    match query.format {
        Format::Html => "text/html; charset=utf-8",
        Format::Json => "application/json",
    }
}

struct FolderEntries {
    entries: Vec<ListingEntry>,
    /// True if every name in the folder was read.
    read_whole: bool,
    /// The folder's modification time, when a name was last added or removed, in seconds since 1970.
    modified_s: i64,
}

/// Returns the entries of the folder `name`. Reads at most `names_max` names.
fn read(root: &Root, name: &[u8], hidden: bool, names_max: u64) -> Option<FolderEntries> {
    let mut folder = Dir::new(root.open_folder(name).ok()?).ok()?;
    let modified_s = folder.stat().ok()?.st_mtime;
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
            return Some(FolderEntries { entries, read_whole: false, modified_s });
        }
        names += 1;
        if (own.starts_with(b".") && !hidden) || !may_be_listed(found.file_type()) {
            continue;
        }
        // The complete path below the root is used, so that a link to another folder below the root is followed.
        path.truncate(name.len());
        path.extend_from_slice(own);
        let stat = match root.stat(&path) {
            Ok(stat) => stat,
            // All further names would fail too, and no listing is better than an incomplete one.
            Err(OpenFault::NoDescriptor) => return None,
            Err(_) => continue,
        };
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => EntryKind::Folder,
            FileType::RegularFile => EntryKind::File { size_bytes: u64::try_from(stat.st_size).unwrap_or(0) },
            _ => continue,
        };
        entries.push(ListingEntry::new(own, kind, stat.st_mtime));
    }
    Some(FolderEntries { entries, read_whole: true, modified_s })
}

/// Returns whether an entry of this type may be a file or a folder. Some file systems do not report the type when a
/// folder is read.
fn may_be_listed(file_type: FileType) -> bool {
    matches!(file_type, FileType::RegularFile | FileType::Directory | FileType::Symlink | FileType::Unknown)
}
