//! The response in progress: status, field lines and cache policy. The content is in [`super::output`].

use super::facts::{Span, append};

/// A page's statement about caching its response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CachePolicy {
    /// Lifetime in shared caches, in seconds.
    pub max_age_s: u32,
    /// Names by which it can be purged.
    pub tags: Vec<String>,
}

/// Status and field lines so far.
#[derive(Debug)]
pub struct Draft {
    /// The status, by default 200.
    pub status: u16,
    /// The cache policy; `None` if the page has not set any.
    pub cache: Option<CachePolicy>,
    bytes: Vec<u8>,
    fields: Vec<(Span, Span)>,
}

impl Default for Draft {
    fn default() -> Self {
        Self { status: 200, cache: None, bytes: Vec::new(), fields: Vec::new() }
    }
}

impl Draft {
    /// Resets it.
    pub fn clear(&mut self) {
        self.status = 200;
        self.cache = None;
        self.bytes.clear();
        self.fields.clear();
    }

    /// Appends a field line. The caller guarantees that the name is a token and the value has no control characters
    /// (RFC 9110 §5.5).
    pub fn add_field(&mut self, name: &[u8], value: &[u8]) {
        let name = append(&mut self.bytes, name);
        let value = append(&mut self.bytes, value);
        self.fields.push((name, value));
    }

    /// Removes all lines `name`, ignoring case.
    pub fn remove_field(&mut self, name: &[u8]) {
        let bytes = &self.bytes;
        self.fields.retain(|(known, _)| !known.of(bytes).eq_ignore_ascii_case(name));
    }

    /// Replaces all lines `name` by one.
    pub fn set_field(&mut self, name: &[u8], value: &[u8]) {
        if !self.fields.is_empty() {
            self.remove_field(name);
        }
        self.add_field(name, value);
    }

    /// The first line `name`.
    pub fn field(&self, name: &[u8]) -> Option<&[u8]> {
        self.fields().find_map(|(known, value)| known.eq_ignore_ascii_case(name).then_some(value))
    }

    /// All lines as name and value, in order of insertion.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|(name, value)| (name.of(&self.bytes), value.of(&self.bytes)))
    }

    /// Bytes held, which count against the run's memory limit.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.len() + self.fields.len() * size_of::<(Span, Span)>()
    }
}
