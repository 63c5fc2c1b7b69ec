//! What of a page never changes.

/// Static segments: slices of one text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    bytes: Vec<u8>,
    /// Where each segment ends.
    ends: Vec<u32>,
}

impl Segments {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All of them, one behind the other.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where in [`Segments::bytes`] the segment of this number lies.
    pub fn range(&self, number: usize) -> Option<std::ops::Range<usize>> {
        let end = *self.ends.get(number)? as usize;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        Some(start..end)
    }

    /// The segment of this number.
    pub fn get(&self, number: usize) -> Option<&[u8]> {
        self.range(number).map(|range| &self.bytes[range])
    }

    /// Takes the bytes out, for a shared allocation; the ranges stay right for them.
    pub fn take_bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Adds a segment, and returns its number.
    pub(super) fn add(&mut self, segment: &[u8]) -> usize {
        self.bytes.extend_from_slice(segment);
        // A page is at most 4 MiB.
        self.ends.push(self.bytes.len() as u32);
        self.ends.len() - 1
    }
}
