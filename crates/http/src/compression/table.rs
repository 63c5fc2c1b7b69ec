//! The dynamic table of an HPACK or QPACK decoder (RFC 7541 §2.3, RFC 9204 §3.2).

use std::collections::VecDeque;

/// Number of bytes added to the size of an entry's name and value (RFC 7541 §4.1, RFC 9204 §3.2.1).
pub(crate) const ENTRY_OVERHEAD_BYTES: usize = 32;

/// An entry of the dynamic table: a name and, directly after it, a value.
#[derive(Clone, Copy, Debug)]
struct DynamicEntry {
    /// Position of the name: the number of bytes inserted before it since the table was created.
    at: u64,
    name_bytes: u32,
    value_bytes: u32,
}

impl DynamicEntry {
    const fn size(self) -> usize {
        self.name_bytes as usize + self.value_bytes as usize + ENTRY_OVERHEAD_BYTES
    }
}

/// The dynamic table of a decoder. Evicted bytes are reclaimed once they make up half of the buffer.
#[derive(Clone, Debug)]
pub(crate) struct DynamicTable {
    entries: VecDeque<DynamicEntry>,
    /// Names and values of the entries, oldest first. Bytes of evicted entries may precede them.
    bytes: Vec<u8>,
    /// Position of the first byte of `bytes`, as in [`DynamicEntry::at`].
    bytes_at: u64,
    size_bytes: usize,
    size_bytes_max: usize,
}

impl DynamicTable {
    pub(crate) const fn new(size_bytes_max: usize) -> Self {
        Self { entries: VecDeque::new(), bytes: Vec::new(), bytes_at: 0, size_bytes: 0, size_bytes_max }
    }

    /// Returns the maximum size, in bytes.
    pub(crate) const fn size_bytes_max(&self) -> usize {
        self.size_bytes_max
    }

    /// Returns the name and value of the entry at `index`. Index 0 is the newest entry.
    pub(crate) fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let entry = self.entries.get(self.entries.len().checked_sub(index + 1)?)?;
        let start = (entry.at - self.bytes_at) as usize;
        let (name, rest) = self.bytes[start..].split_at(entry.name_bytes as usize);
        Some((name, &rest[..entry.value_bytes as usize]))
    }

    /// Inserts an entry after evicting the oldest entries to make room. An entry larger than the table empties it (RFC
    /// 7541 §4.4).
    pub(crate) fn insert(&mut self, name: &[u8], value: &[u8]) {
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

    /// Changes the maximum size, in bytes, and evicts entries that no longer fit.
    pub(crate) fn resize(&mut self, size_bytes_max: usize) {
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
