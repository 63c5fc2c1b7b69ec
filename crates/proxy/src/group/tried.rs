//! The origins that one request has tried.

/// Attempts that are remembered: the first and ten retries, which is all that the settings allow.
pub const TRIED_MAX: usize = 11;

/// The origins that one request has tried, by index. Lives on the stack.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tried {
    indices: [u16; TRIED_MAX],
    count: u8,
}

impl Tried {
    /// None yet.
    pub const NONE: Self = Self { indices: [0; TRIED_MAX], count: 0 };

    /// Adds the origin of this index. More than [`TRIED_MAX`] are not remembered.
    pub fn add(&mut self, index: usize) {
        if let (Some(place), Ok(index)) = (self.indices.get_mut(usize::from(self.count)), u16::try_from(index)) {
            *place = index;
            self.count += 1;
        }
    }

    /// Whether the origin of this index was tried.
    pub fn contains(&self, index: usize) -> bool {
        self.indices[..self.count()].iter().any(|&tried| usize::from(tried) == index)
    }

    /// How many were.
    pub fn count(&self) -> usize {
        usize::from(self.count)
    }
}
