//! Set of the origins that a request has tried.

/// Maximum number of attempts remembered: the first attempt, and ten retries, which is the maximum in the
/// configuration.
pub const TRIED_MAX: usize = 11;

/// Set of the origins that a request has tried, by index. Needs no heap allocation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tried {
    indices: [u16; TRIED_MAX],
    count: u8,
}

impl Tried {
    /// The empty set.
    pub const NONE: Self = Self { indices: [0; TRIED_MAX], count: 0 };

    /// Adds the origin with this index, unless the set already has [`TRIED_MAX`] entries.
    pub fn add(&mut self, index: usize) {
        if let (Some(place), Ok(index)) = (self.indices.get_mut(usize::from(self.count)), u16::try_from(index)) {
            *place = index;
            self.count += 1;
        }
    }

    /// Returns whether the origin with this index has been tried.
    pub fn contains(&self, index: usize) -> bool {
        self.indices[..self.count()].iter().any(|&tried| usize::from(tried) == index)
    }

    /// Returns the number of attempts.
    pub fn count(&self) -> usize {
        usize::from(self.count)
    }
}
