//! The static text of a page.

/// Static segments, which are slices of one string.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    bytes: Vec<u8>,
    /// The offset at which each segment ends.
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

    /// Returns the range in [`Segments::bytes`] of the segment with this number.
    pub fn range(&self, number: usize) -> Option<std::ops::Range<usize>> {
        let end = *self.ends.get(number)? as usize;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        Some(start..end)
    }

    /// Returns the segment with this number.
    pub fn get(&self, number: usize) -> Option<&[u8]> {
        self.range(number).map(|range| &self.bytes[range])
    }

    /// Takes the bytes, so that they can be put into a shared allocation. The ranges remain valid for them.
    pub fn take_bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Adds a segment and returns its number.
    pub(super) fn add(&mut self, segment: &[u8]) -> usize {
        self.bytes.extend_from_slice(segment);
        // A page is at most 4 MiB, so 32 bits suffice.
        self.ends.push(self.bytes.len() as u32);
        self.ends.len() - 1
    }
}
