//! Joining of code branches: the context after they meet.
//!
//! The rule: after an `if`, and at the end of every iteration of a loop, all paths must lead to the same context.
//! Small differences are represented as unknowns: the state of a script, whether a URL has begun, whether a name has
//! ended. An insertion that depends on an unknown does not compile. Any other difference is an error where the
//! branches meet.
//!
//! The join of two contexts is an upper bound of both: whatever the tokenizer or an insertion does with it is valid
//! for both.

use super::context::{Context, HtmlState, Name, Tag};
use super::script::Language;

impl Context {
    /// The context after two branches; `None` if they are incompatible.
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
                    Follows::Anything => HtmlState::Gap,
                    Follows::NoEquals => HtmlState::Separator(true),
                    Follows::End => HtmlState::Separator(false),
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
            // Neither of the two languages.
            joined.tag.language = Some(Language::Other);
            joined.tag.kept = self.tag.kept.clone();
        }
        if self.reference != other.reference {
            // An open reference is the stricter case.
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

/// The bytes that may follow in a tag with the same meaning after either branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Follows {
    Anything,
    /// After a name and white space: `=` would still belong to the name.
    NoEquals,
    /// After a name: only bytes that end it.
    End,
}

impl Follows {
    /// `None` if the state is not one between the names and values of a tag.
    fn of(state: HtmlState) -> Option<Self> {
        Some(match state {
            HtmlState::Gap | HtmlState::AfterValue => Self::Anything,
            HtmlState::AfterName | HtmlState::Separator(true) => Self::NoEquals,
            HtmlState::TagName | HtmlState::AttributeName | HtmlState::Separator(false) => Self::End,
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
