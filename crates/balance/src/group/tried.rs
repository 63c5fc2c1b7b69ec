//! Origins that a request has tried.

/// Maximum remembered attempts: the first and ten retries, the maximum in the configuration.
pub const TRIED_MAX: usize = 11;

/// Origins that one request has tried, by index. Lives on the stack.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tried {
    indices: [u16; TRIED_MAX],
    count: u8,
}

impl Tried {
    /// The empty set.
    pub const NONE: Self = Self { indices: [0; TRIED_MAX], count: 0 };

    /// Adds the origin with this index, unless there are already [`TRIED_MAX`].
    pub fn add(&mut self, index: usize) {
        if let (Some(place), Ok(index)) = (self.indices.get_mut(usize::from(self.count)), u16::try_from(index)) {
            *place = index;
            self.count += 1;
        }
    }

    /// Returns whether the origin with this index was tried.
    pub fn contains(&self, index: usize) -> bool {
        self.indices[..self.count()].iter().any(|&tried| usize::from(tried) == index)
    }

    /// Number of origins tried.
    pub fn count(&self) -> usize {
        usize::from(self.count)
    }
}
