//! The static table, and the dynamic table of a decoder (RFC 7541 §2.3, Appendix A).

use std::collections::VecDeque;

/// Overhead of an entry of the dynamic table, in bytes (RFC 7541 §4.1).
const ENTRY_OVERHEAD_BYTES: usize = 32;

/// Number of entries of the static table.
pub(super) const STATIC_ENTRIES: usize = 61;

/// The static table; index 1 is the first entry.
pub(super) const STATIC_TABLE: [(&str, &str); STATIC_ENTRIES] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// An entry of the dynamic table: a name and, directly after it, a value.
#[derive(Clone, Copy, Debug)]
struct DynamicEntry {
    /// Position of the name, counted from the first byte ever inserted.
    at: u64,
    name_bytes: u32,
    value_bytes: u32,
}

impl DynamicEntry {
    const fn size(self) -> usize {
        self.name_bytes as usize + self.value_bytes as usize + ENTRY_OVERHEAD_BYTES
    }
}

/// The dynamic table of a decoder. Evicted bytes are reclaimed when they are half of the buffer.
#[derive(Clone, Debug)]
pub(super) struct DynamicTable {
    entries: VecDeque<DynamicEntry>,
    /// Names and values of the entries, oldest first, after those of evicted entries.
    bytes: Vec<u8>,
    /// Position of the first byte of `bytes`.
    bytes_at: u64,
    size_bytes: usize,
    size_bytes_max: usize,
}

impl DynamicTable {
    pub(super) const fn new(size_bytes_max: usize) -> Self {
        Self { entries: VecDeque::new(), bytes: Vec::new(), bytes_at: 0, size_bytes: 0, size_bytes_max }
    }

    /// The name and the value at `index`, counted from the newest entry.
    pub(super) fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let entry = self.entries.get(self.entries.len().checked_sub(index + 1)?)?;
        let start = (entry.at - self.bytes_at) as usize;
        let (name, rest) = self.bytes[start..].split_at(entry.name_bytes as usize);
        Some((name, &rest[..entry.value_bytes as usize]))
    }

    /// Inserts an entry and evicts the oldest ones for it. An entry that exceeds the table empties it (RFC 7541 §4.4).
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8]) {
        let size = name.len() + value.len() + ENTRY_OVERHEAD_BYTES;
        self.evict_to(self.size_bytes_max.saturating_sub(size));
        if size > self.size_bytes_max {
            return;
        }
        let at = self.bytes_at + self.bytes.len() as u64;
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.entries.push_back(DynamicEntry { at, name_bytes: name.len() as u32, value_bytes: value.len() as u32 });
        self.size_bytes += size;
    }

    /// Changes the maximum size.
    pub(super) fn resize(&mut self, size_bytes_max: usize) {
        self.size_bytes_max = size_bytes_max;
        self.evict_to(size_bytes_max);
    }

    fn evict_to(&mut self, size_bytes: usize) {
        while self.size_bytes > size_bytes
            && let Some(entry) = self.entries.pop_front()
        {
            self.size_bytes -= entry.size();
        }
        let end = self.bytes_at + self.bytes.len() as u64;
        let start = self.entries.front().map_or(end, |entry| entry.at);
        let evicted = (start - self.bytes_at) as usize;
        if evicted * 2 >= self.bytes.len() {
            self.bytes.drain(..evicted);
            self.bytes_at = start;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::DynamicTable;

    #[test]
    fn the_newest_entry_has_the_lowest_index_and_the_oldest_is_evicted() {
        let mut table = DynamicTable::new(100);
        table.insert(b"a", b"1");
        table.insert(b"bb", b"");
        let entry = |name, value| -> Option<(&[u8], &[u8])> { Some((name, value)) };
        assert_eq!((table.get(0), table.get(1), table.get(2)), (entry(b"bb", b""), entry(b"a", b"1"), None));
        table.insert(b"c", b"3");
        assert_eq!((table.get(1), table.get(2), table.size_bytes), (entry(b"bb", b""), None, 68));
        table.resize(34);
        assert_eq!((table.get(0), table.get(1)), (entry(b"c", b"3"), None));
        table.insert(b"too", b"large");
        assert_eq!((table.get(0), table.size_bytes), (None, 0));
    }

    #[test]
    fn a_full_table_holds_at_most_twice_its_size() {
        let mut table = DynamicTable::new(4096);
        for number in 0..10_000 {
            let value = format!("{number}");
            table.insert(b"x-number", value.as_bytes());
            assert_eq!(table.get(0), Some((&b"x-number"[..], value.as_bytes())));
            assert!(table.bytes.len() <= 8192 && table.size_bytes <= 4096);
        }
    }
}
