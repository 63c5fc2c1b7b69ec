//! Joining the branches of code: determines the context after them.
//!
//! All paths to the end of an `if`, and to the end of each iteration of a loop, must lead to the same context. Small
//! differences are represented as unknowns: the state of a script, whether a URL has begun, whether a name has ended.
//! An insertion that depends on an unknown does not compile. Any other difference is an error at the place where the
//! branches join.
//!
//! The join of two contexts is an upper bound of both: whatever is valid after the join is valid after both of them.

use super::context::{Context, HtmlState, Name, Tag};
use super::script::Language;

impl Context {
    /// Returns the context after two branches, or `None` if they are incompatible.
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
            // The language is neither of the two, and the link may load code.
            joined.tag.language = Some(Language::Other);
            joined.tag.passive_link = Some(false);
            joined.tag.kept = self.tag.kept.clone();
        }
        if self.reference != other.reference {
            // Being inside a reference is the stricter case.
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

/// Text that may follow in a tag with the same meaning after either branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Follows {
    Anything,
    /// After a name and white space, where `=` would still belong to the name.
    NoEquals,
    /// After a name, where only bytes that end the name may follow.
    End,
}

impl Follows {
    /// Returns `None` if the state is not between the names and values of a tag.
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
    joined.passive_link = match (one.passive_link, two.passive_link) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    };
    joined.content_inserted |= two.content_inserted;
    joined.http_equiv |= two.http_equiv;
    Some(joined)
}
