//! Luau's string patterns, matched in countable steps.
//!
//! Luau's own matcher recurses and cannot be interrupted within one step; a pattern of sixty characters can keep it
//! busy for minutes. This one parses a pattern once into [`Pattern`], stores backtracking points on an explicit
//! stack, and stops when its budget is used up, to continue later ([`PatternSearch`]). The stack has at most one entry per
//! item of the pattern, so a search needs memory proportional to the pattern only.
//!
//! It matches what Luau matches, with these differences: a malformed pattern is rejected immediately, where Luau does
//! so only when a match reaches the fault; patterns may be nested deeper than Luau's 200 levels; and a pattern is at
//! most [`PATTERN_BYTES_MAX`] long.

mod class;
mod parse;
mod search;

#[cfg(test)]
mod tests;

pub(crate) use class::Set;
pub(crate) use search::{Capture, MatchProgress, PatternSearch};

/// Upper bound of a pattern, in bytes.
pub(crate) const PATTERN_BYTES_MAX: usize = 16 * 1024;

/// Upper bound of captures in a pattern, as in Luau.
pub(crate) const CAPTURES_MAX: usize = 32;

/// The quantifier of an item.
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

/// A parsed pattern.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) items: Vec<Item>,
    /// `^` at the start, where it matches the subject's beginning.
    pub(crate) anchored: bool,
}

impl Pattern {
    /// Parses `text`. With `anchors`, a leading `^` is an anchor; `gmatch` matches it literally.
    pub(crate) fn parse(text: &[u8], anchors: bool) -> Result<Self, String> {
        parse::parse(text, anchors)
    }

    /// Returns whether a text has no special characters of patterns.
    pub(crate) fn is_plain(text: &[u8]) -> bool {
        !text.iter().any(|byte| b"^$*+?.([%-".contains(byte))
    }

    /// The byte that every match begins with, if fixed.
    pub(crate) fn first_byte(&self) -> Option<u8> {
        self.items.iter().find(|item| !matches!(item, Item::Open | Item::Position)).and_then(|item| match item {
            Item::Byte(byte, Repeat::Once | Repeat::MostFromOne) | Item::Balance(byte, _) => Some(*byte),
            _ => None,
        })
    }
}
