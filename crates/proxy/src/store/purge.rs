//! Purges by generation: nothing is searched for when an answer is looked up, and nothing can be forgotten.

/// What is purged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purge {
    /// All variants of this key (the whole key's bytes).
    Key(Vec<u8>),
    /// Everything whose locator (`host[:port]/path[?query]`) is one of these bytes: one address under any scheme.
    Url(Vec<u8>),
    /// Everything whose locator begins with these bytes. Without a slash it is a host.
    Prefix(Vec<u8>),
    /// Everything of this `host[:port]`.
    Host(Vec<u8>),
    /// Everything with this tag.
    Tag(Vec<u8>),
    /// Everything.
    All,
}

/// What a purge met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgeCount {
    /// Stored objects that it names, in memory, on disks or both.
    pub matched: u64,
    /// Volumes that could not write the purge down. Their content is dropped for good, so that no restart brings it back.
    pub volumes_dropped: u32,
}

/// What has become of an object since it was fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purged {
    /// Nothing.
    No,
    /// It is stale from the moment of the purge on: it may be validated, and served where stale answers may.
    Soft,
    /// It must not be used.
    Hard,
}

/// A tag as objects remember it. Not keyed: the same on every disk and after every restart.
pub(crate) fn tag_hash(_tag: &[u8]) -> u64 {
    unimplemented!()
}
