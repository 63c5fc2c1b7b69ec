//! The response in progress: status, header fields and cache policy. The content is in [`super::output`].

use super::facts::{Span, append};

/// The caching policy that a page sets for its response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CachePolicy {
    /// Lifetime in shared caches, in seconds.
    pub max_age_s: u32,
    /// Tags by which the stored response can be purged.
    pub tags: Vec<String>,
}

flatout_reason::defaults! {
    /// The status and the header fields so far.
    #[derive(Debug)]
    pub struct Draft {
        /// The status code, by default 200.
        pub status: u16 = 200,
        /// True if the client may request ranges of the complete response.
        pub ranges: bool,
        /// The cache policy; `None` if the page has not set any.
        pub cache: Option<CachePolicy>,
        bytes: Vec<u8>,
        fields: Vec<(Span, Span)>,
    }
}

impl Draft {
    /// Resets the draft.
    pub fn clear(&mut self) {
        self.status = 200;
        self.ranges = false;
        self.cache = None;
        self.bytes.clear();
        self.fields.clear();
    }

    /// Appends a field line. The caller must ensure that the name is a token and that the value contains no control
    /// characters (RFC 9110 §5.5).
    pub fn add_field(&mut self, name: &[u8], value: &[u8]) {
        let name = append(&mut self.bytes, name);
        let value = append(&mut self.bytes, value);
        self.fields.push((name, value));
    }

    /// Removes all lines with this name, ignoring case.
    pub fn remove_field(&mut self, name: &[u8]) {
        let bytes = &self.bytes;
        self.fields.retain(|(known, _)| !known.of(bytes).eq_ignore_ascii_case(name));
    }

    /// Replaces all lines with this name with a single line.
    pub fn set_field(&mut self, name: &[u8], value: &[u8]) {
        if !self.fields.is_empty() {
            self.remove_field(name);
        }
        self.add_field(name, value);
    }

    /// The value of the first line with this name, ignoring case.
    pub fn field(&self, name: &[u8]) -> Option<&[u8]> {
        self.fields().find_map(|(known, value)| known.eq_ignore_ascii_case(name).then_some(value))
    }

    /// Name and value of all field lines, in order of insertion.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|(name, value)| (name.of(&self.bytes), value.of(&self.bytes)))
    }

    /// Number of bytes held, which count towards the run's memory limit.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.len() + self.fields.len() * size_of::<(Span, Span)>()
    }
}
