//! The order of a listing. Folders come before files, and names are in natural order.

use super::entry::ListingEntry;
use std::cmp::Ordering;

flatout_reason::reasons! {
    /// The sort key of a listing.
    #[derive(Default)]
    pub(crate) enum By { name, }
    /// The name, in natural order.
    #[default]
    Name, "name";
    /// The size of files. Folders have no size and are sorted by name.
    Size, "size";
    /// The time of the last modification.
    Time, "time";
}

/// The order of a listing. Folders always come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListingOrder {
    /// The sort key. Entries with equal keys are sorted by name, ascending.
    pub(crate) by: By,
    /// True if the last name, the largest size or the newest time comes first.
    pub(crate) descending: bool,
}

/// Sorts `entries` by `order`. No two entries of a folder are equal, so the result is deterministic.
pub(super) fn sort(entries: &mut [ListingEntry], order: ListingOrder) {
    entries.sort_unstable_by(|a, b| {
        let names = || compare_names(a, b);
        let wished = match order.by {
            By::Name => names(),
            By::Size => a.size_bytes().cmp(&b.size_bytes()),
            By::Time => a.modified_s.cmp(&b.modified_s),
        };
        let wished = if order.descending { wished.reverse() } else { wished };
        b.is_folder().cmp(&a.is_folder()).then(wished).then_with(names)
    });
}

/// Compares names in natural order, ignoring case. Names that are then equal are compared by bytes, so that no two
/// compare as equal.
fn compare_names(a: &ListingEntry, b: &ListingEntry) -> Ordering {
    compare_naturally(a.key.as_bytes(), b.key.as_bytes()).then_with(|| a.name.cmp(&b.name))
}

/// Compares byte by byte, but compares runs of digits, of any length, by their numeric values.
fn compare_naturally(mut a: &[u8], mut b: &[u8]) -> Ordering {
    loop {
        let ordering = match (a, b) {
            ([first, rest_a @ ..], [second, rest_b @ ..]) => {
                if first.is_ascii_digit() && second.is_ascii_digit() {
                    let (number_a, number_b);
                    (number_a, a) = split_number(a);
                    (number_b, b) = split_number(b);
                    number_a.len().cmp(&number_b.len()).then_with(|| number_a.cmp(number_b))
                } else {
                    (a, b) = (rest_a, rest_b);
                    first.cmp(second)
                }
            }
            _ => return a.len().cmp(&b.len()),
        };
        if ordering.is_ne() {
            return ordering;
        }
    }
}

/// Returns the leading digits of `text` without leading zeros, and the text after them.
fn split_number(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    (&digits[zeros..], rest)
}

#[cfg(test)]
mod tests {
    use super::{By, ListingOrder, compare_names, sort};
    use crate::listing::entry::{EntryKind, ListingEntry};
    use std::cmp::Ordering;

    fn file(name: &str, size_bytes: u64, modified_s: i64) -> ListingEntry {
        ListingEntry::new(name.as_bytes(), EntryKind::File { size_bytes }, modified_s)
    }

    fn names(entries: &[ListingEntry]) -> Vec<String> {
        entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect()
    }

    #[test]
    fn natural_order() {
        let sorted = [
            "",
            "1",
            "1a",
            "2",
            "02b",
            "10",
            "99999999999999999999998",
            "99999999999999999999999",
            "A",
            "a",
            "a1b2",
            "a1b10",
            "B",
            "file",
            "file02",
            "file2",
            "file2.txt",
            "File10",
            "file10",
            "zebra",
            "\u{c4}pfel",
            "\u{e4}pfel2",
        ];
        for (at, a) in sorted.iter().enumerate() {
            for (other, b) in sorted.iter().enumerate() {
                assert_eq!(compare_names(&file(a, 0, 0), &file(b, 0, 0)), at.cmp(&other), "{a} {b}");
            }
        }
        let (a, b) =
            (ListingEntry::new(b"\xfe", EntryKind::Folder, 0), ListingEntry::new(b"\xff", EntryKind::Folder, 0));
        assert_eq!(compare_names(&a, &b), Ordering::Less);
    }

    #[test]
    fn folders_come_first_in_every_order() {
        let mut entries = vec![
            file("a", 3, 10),
            file("b", 1, 30),
            file("c", 3, 20),
            ListingEntry::new(b"y", EntryKind::Folder, 1),
            ListingEntry::new(b"z", EntryKind::Folder, 2),
        ];
        for (by, descending, expected) in [
            (By::Name, false, "yzabc"),
            (By::Name, true, "zycba"),
            (By::Size, false, "yzbac"),
            (By::Size, true, "yzacb"),
            (By::Time, false, "yzacb"),
            (By::Time, true, "zybca"),
        ] {
            sort(&mut entries, ListingOrder { by, descending });
            assert_eq!(names(&entries).concat(), expected, "{by:?} {descending}");
        }
    }
}
