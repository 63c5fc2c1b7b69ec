//! The static text of a page.

/// Static segments: slices of one text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    bytes: Vec<u8>,
    /// End of each segment.
    ends: Vec<u32>,
}

impl Segments {
    /// Number of segments.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are no segments.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All segments, concatenated.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The range of the segment of this number in [`Segments::bytes`].
    pub fn range(&self, number: usize) -> Option<std::ops::Range<usize>> {
        let end = *self.ends.get(number)? as usize;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        Some(start..end)
    }

    /// The segment of this number.
    pub fn get(&self, number: usize) -> Option<&[u8]> {
        self.range(number).map(|range| &self.bytes[range])
    }

    /// Takes the bytes, for a shared allocation; the ranges remain valid for them.
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
