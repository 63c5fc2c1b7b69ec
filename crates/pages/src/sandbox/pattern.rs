//! Luau's string patterns, matched in steps that can be counted.
//!
//! Luau's own matcher recurses and cannot be interrupted within one step of it; a pattern of sixty characters can keep
//! it busy for minutes. This one reads a pattern once into [`Pattern`], keeps what it may have to come back to on a
//! stack of its own, and stops when its budget is used up, to go on later ([`Search`]). The stack has at most one entry
//! for each item of the pattern, so a search needs memory for its pattern only, whatever the subject is.
//!
//! What it matches is what Luau matches, but for this: a malformed pattern is refused at once, where Luau does so
//! only when a match gets as far as the fault; a pattern may be nested deeper than Luau's 200 steps; and a pattern is at
//! most [`PATTERN_BYTES_MAX`] long.

mod class;
mod parse;
mod search;

#[cfg(test)]
mod tests;

pub(crate) use class::Set;
pub(crate) use search::{Capture, Progress, Search};

/// Bytes of a pattern.
pub(crate) const PATTERN_BYTES_MAX: usize = 16 * 1024;

/// Captures of a pattern, as in Luau.
pub(crate) const CAPTURES_MAX: usize = 32;

/// How often an item may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    Once,
    /// `?`
    Optional,
    /// `*`
    Most,
    /// `+`
    MostFromOne,
    /// `-`
    Least,
}

/// One item of a pattern.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    /// This byte.
    Byte(u8, Repeat),
    /// Any byte.
    Any(Repeat),
    /// A byte of a set.
    OneOf(Box<Set>, Repeat),
    /// `(`
    Open,
    /// `()`
    Position,
    /// `)`, which closes this capture.
    Close(u8),
    /// `%1`
    Back(u8),
    /// `%bxy`
    Balance(u8, u8),
    /// `%f[set]`
    Frontier(Box<Set>),
    /// `$` at the end.
    End,
}

/// A pattern, read.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) items: Vec<Item>,
    /// `^` in front, where it means the subject's beginning.
    pub(crate) anchored: bool,
}

impl Pattern {
    /// Reads `text`. With `anchors`, a `^` in front is an anchor; `gmatch` takes it for itself.
    pub(crate) fn parse(text: &[u8], anchors: bool) -> Result<Self, String> {
        parse::parse(text, anchors)
    }

    /// Whether a text has no characters that mean something in patterns.
    pub(crate) fn is_plain(text: &[u8]) -> bool {
        !text.iter().any(|byte| b"^$*+?.([%-".contains(byte))
    }

    /// The byte that every match begins with, when there is one.
    pub(crate) fn first_byte(&self) -> Option<u8> {
        self.items.iter().find(|item| !matches!(item, Item::Open | Item::Position)).and_then(|item| match item {
            Item::Byte(byte, Repeat::Once | Repeat::MostFromOne) | Item::Balance(byte, _) => Some(*byte),
            _ => None,
        })
    }
}
