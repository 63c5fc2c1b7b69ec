//! Luau's string patterns, matched in steps that can be counted.
//!
//! Luau's own matcher is recursive and cannot be interrupted within a match; a pattern of sixty characters can keep it
//! busy for minutes. This implementation parses a pattern once into [`Pattern`], keeps backtracking points on an
//! explicit stack, and stops when its budget is used up, to continue later ([`PatternSearch`]). The stack has at most
//! one entry per item of the pattern, so a search needs memory proportional to the length of the pattern.
//!
//! It matches what Luau matches, with these differences: a malformed pattern is rejected immediately, whereas Luau
//! rejects it only when a match reaches the mistake; patterns may be nested deeper than Luau's 200 levels; and a
//! pattern is at most [`PATTERN_BYTES_MAX`] long.

mod class;
mod parse;
mod search;

#[cfg(test)]
mod tests;

pub(crate) use class::Set;
pub(crate) use search::{Capture, MatchProgress, PatternSearch};

/// Maximum length of a pattern, in bytes.
pub(crate) const PATTERN_BYTES_MAX: usize = 16 * 1024;

/// Maximum number of captures in a pattern, as in Luau.
pub(crate) const CAPTURES_MAX: usize = 32;

/// The quantifier of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    Once,
    /// Zero or one: `?`.
    Optional,
    /// As many as possible, from zero: `*`.
    Most,
    /// As many as possible, from one: `+`.
    MostFromOne,
    /// As few as possible, from zero: `-`.
    Least,
}

/// An item of a pattern.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    /// A specific byte.
    Byte(u8, Repeat),
    /// Any byte.
    Any(Repeat),
    /// Any byte in a set.
    OneOf(Box<Set>, Repeat),
    /// The beginning of a capture: `(`.
    Open,
    /// A position capture: `()`.
    Position,
    /// The end of the capture with this number: `)`.
    Close(u8),
    /// The text of the capture with this number: `%1`.
    Back(u8),
    /// A range that is balanced with respect to two bytes: `%bxy`.
    Balance(u8, u8),
    /// A boundary between bytes outside and inside a set: `%f[set]`.
    Frontier(Box<Set>),
    /// The end of the string: `$` at the end of the pattern.
    End,
}

/// A parsed pattern.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) items: Vec<Item>,
    /// True if the pattern begins with the anchor `^`, so it matches only at the offset at which the search starts.
    pub(crate) anchored: bool,
}

impl Pattern {
    /// Parses a pattern. If `anchors` is true, a leading `^` is an anchor; `gmatch` matches it literally.
    pub(crate) fn parse(text: &[u8], anchors: bool) -> Result<Self, String> {
        parse::parse(text, anchors)
    }

    /// Returns whether `text` contains none of the characters that are special in patterns.
    pub(crate) fn is_plain(text: &[u8]) -> bool {
        !text.iter().any(|byte| b"^$*+?.([%-".contains(byte))
    }

    /// Returns the byte with which every match begins, if it is always the same.
    pub(crate) fn first_byte(&self) -> Option<u8> {
        self.items.iter().find(|item| !matches!(item, Item::Open | Item::Position)).and_then(|item| match item {
            Item::Byte(byte, Repeat::Once | Repeat::MostFromOne) | Item::Balance(byte, _) => Some(*byte),
            _ => None,
        })
    }
}
