//! The response in progress: status, field lines and cache policy. The content is in [`super::output`].

use super::facts::{Span, append};

/// What a page says about how long its answer may be kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CachePolicy {
    /// Seconds for which a shared cache may use it.
    pub max_age_s: u32,
    /// Names by which it can be thrown out.
    pub tags: Vec<String>,
}

/// Status and field lines as the page has set them so far.
#[derive(Debug)]
pub struct Draft {
    /// The status; 200 unless the page says otherwise.
    pub status: u16,
    /// How long the answer may be kept; `None`: the page did not say.
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
    /// As new.
    pub fn clear(&mut self) {
        self.status = 200;
        self.cache = None;
        self.bytes.clear();
        self.fields.clear();
    }

    /// Adds a field line. Whoever calls has made sure that the name is a token and the value has no control characters
    /// (RFC 9110 §5.5).
    pub fn add_field(&mut self, name: &[u8], value: &[u8]) {
        let name = append(&mut self.bytes, name);
        let value = append(&mut self.bytes, value);
        self.fields.push((name, value));
    }

    /// Takes all lines called `name` away, whatever their case.
    pub fn remove_field(&mut self, name: &[u8]) {
        let bytes = &self.bytes;
        self.fields.retain(|(known, _)| !known.of(bytes).eq_ignore_ascii_case(name));
    }

    /// Sets the one field line called `name`.
    pub fn set_field(&mut self, name: &[u8], value: &[u8]) {
        if !self.fields.is_empty() {
            self.remove_field(name);
        }
        self.add_field(name, value);
    }

    /// The first line called `name`.
    pub fn field(&self, name: &[u8]) -> Option<&[u8]> {
        self.fields().find_map(|(known, value)| known.eq_ignore_ascii_case(name).then_some(value))
    }

    /// All lines as name and value, in the order in which they were added.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|(name, value)| (name.of(&self.bytes), value.of(&self.bytes)))
    }

    /// Bytes held, which count against the run's memory.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.len() + self.fields.len() * size_of::<(Span, Span)>()
    }
}
