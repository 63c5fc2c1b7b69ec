//! Branches of code that come together: what is known of the place behind them.
//!
//! The rule: behind an `if`, and at the end of every round of a loop, whichever way was taken must have led to the same
//! place. Small differences are kept as what is not known: in which state a script is, whether a URL has begun, whether
//! a name has ended. An insertion that would need to know does not compile. Any other difference is an error where the
//! branches meet.
//!
//! The join of two places describes no place that either does not: whatever the tokenizer or an insertion makes of it
//! holds for both.

use super::context::{Context, Name, State, Tag};
use super::script::Language;

impl Context {
    /// The place behind two branches; nothing when they end in different ones.
    pub(super) fn join(&self, other: &Self) -> Option<Self> {
        if self.is_same(other) {
            return Some(self.clone());
        }
        let mut joined = self.clone();
        joined.comment = match (self.comment, other.comment) {
            (one, two) if one == two => one,
            (0, some) | (some, 0) => some,
            _ => return None,
        };
        if self.depth != other.depth {
            return None;
        }
        if let (Some(one), Some(two)) = (Follows::of(self.state), Follows::of(other.state)) {
            joined.tag = join_tags(&self.tag, &other.tag)?;
            if self.tag.slash != other.tag.slash {
                return None;
            }
            if self.state != other.state || self.tag.attribute != other.tag.attribute {
                joined.tag.attribute = Name::default();
                joined.state = match one.max(two) {
                    Follows::Anything => State::Gap,
                    Follows::NoEquals => State::Separator(true),
                    Follows::End => State::Separator(false),
                };
            }
            return Some(joined);
        }
        if self.state != other.state {
            return None;
        }
        joined.tag = join_tags(&self.tag, &other.tag)?;
        if self.tag.attribute != other.tag.attribute || self.tag.value != other.tag.value {
            return None;
        }
        if self.tag.kept != other.tag.kept {
            // Neither language.
            joined.tag.language = Some(Language::Other);
            joined.tag.kept = self.tag.kept.clone();
        }
        if self.reference != other.reference {
            // An open one is the stricter.
            joined.reference =
                if self.is_within_reference() { self.reference.clone() } else { other.reference.clone() };
            if joined.tag.value.is_some() {
                return None;
            }
        }
        joined.script = match (&self.script, &other.script) {
            (Some(one), Some(two)) => Some(one.join(two)),
            (None, None) => None,
            _ => return None,
        };
        joined.url = self.url.join(other.url);
        joined.first = self.first && other.first;
        Some(joined)
    }
}

/// What may follow in a tag, so that it means the same whatever stands in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Follows {
    Anything,
    /// A name stands in front, and white space: `=` would still be its.
    NoEquals,
    /// A name stands in front: only what ends it.
    End,
}

impl Follows {
    /// Nothing when the state is not one between the names and values of a tag.
    fn of(state: State) -> Option<Self> {
        Some(match state {
            State::Gap | State::AfterValue => Self::Anything,
            State::AfterName | State::Separator(true) => Self::NoEquals,
            State::TagName | State::AttributeName | State::Separator(false) => Self::End,
            _ => return None,
        })
    }
}

fn join_tags(one: &Tag, two: &Tag) -> Option<Tag> {
    if one.name != two.name || one.is_end != two.is_end {
        return None;
    }
    let mut joined = one.clone();
    joined.language = if one.language == two.language { one.language } else { Some(Language::Other) };
    joined.content_inserted |= two.content_inserted;
    joined.http_equiv |= two.http_equiv;
    Some(joined)
}
