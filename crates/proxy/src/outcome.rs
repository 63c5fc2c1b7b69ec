//! Why each answer of a proxy was what it was.

/// Why an answer was what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// Nothing can be asked.
    OriginNone,
}

impl Outcome {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::OriginNone];
    /// The names, in the order of the table.
    pub const NAMES: &'static [&'static str] = &["origin_none"];

    /// What it means.
    pub const fn text(self) -> &'static str {
        "No origin can be asked: 502."
    }
}
