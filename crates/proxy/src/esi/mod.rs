//! Pages made of parts: ESI Language Specification 1.0 (W3C Note, 2001), of which there are `include`, `remove`,
//! `comment`, `try` with `attempt` and `except`, and `<!--esi … -->`.
//!
//! Nothing is fetched here. [`parse`] turns a page into a list of [`Segment`]s, ranges of it and references to others;
//! a [`Composition`] says which parts are wanted and puts them together; whoever has a cache and origins fetches them,
//! asks [`resolve`] where a reference leads (never to another host), and counts how deep parts are within parts
//! ([`EsiLimits::nesting_max`]).
//!
//! **What is wrong stays visible.** A page that breaks a rule is understood up to there, and its rest is one literal as
//! it stands, with the reason by name ([`Page::error`]): a reader sees nearly the whole page, and its author sees the tag
//! that was not understood. When the wrong tag stands within a `try`, the whole `try` is part of the rest. To refuse the
//! page would take down a site over one letter; to guess would hide it.
//!
//! | file | what it knows |
//! |---|---|
//! | [`token`] | where text ends and a tag begins, and what a tag is |
//! | `attributes` | what stands within a tag |
//! | `page` | from tags to segments |
//! | [`error`] | what can be wrong, by name |
//! | `reference` | where a reference leads |
//! | [`compose`] | from a page and its parts to what is sent |

mod attributes;
pub mod compose;
pub mod error;
mod page;
mod reference;
pub mod token;

pub use compose::Composition;
pub use error::EsiError;
pub use page::parse;
pub use reference::{Base, resolve};

use flatout_http::head::Fields;
use flatout_http::token::trim;
use std::ops::Range;

/// The line by which origins learn that ESI is done here (Edge Architecture Specification, 2001).
pub const CAPABILITY_LINE: &[u8] = b"Surrogate-Capability: flatout=\"ESI/1.0\"\r\n";

/// Bounds on pages.
#[derive(Clone, Copy, Debug)]
pub struct EsiLimits {
    /// Bytes of a page.
    pub page_bytes_max: usize,
    /// Bytes of one tag.
    pub tag_bytes_max: usize,
    /// Tags of one page.
    pub tags_max: usize,
    /// Includes of one page.
    pub includes_max: usize,
    /// How deep `try` may stand within `try`.
    pub depth_max: usize,
    /// How deep parts may stand within parts; whoever fetches them counts.
    pub nesting_max: usize,
}

impl EsiLimits {
    /// More than a sensible page has.
    pub const DEFAULT: Self = Self {
        page_bytes_max: 4 * 1024 * 1024,
        tag_bytes_max: 4 * 1024,
        tags_max: 4_096,
        includes_max: 256,
        depth_max: 8,
        nesting_max: 5,
    };
}

/// A page, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// What it is made of, in order.
    pub segments: Vec<Segment>,
    /// Includes in all, those of both branches of a `try` counted.
    pub includes: usize,
    /// What was wrong first, and at which byte the literal begins that is the rest of the page.
    pub error: Option<(EsiError, usize)>,
}

/// A piece of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// These bytes of the page, as they stand.
    Literal(Range<usize>),
    /// Another resource's content.
    Include(Include),
    /// One branch; when a part of it cannot be had and may not be missing, the other instead of the whole of it.
    Try {
        /// Comes first.
        attempt: Vec<Segment>,
        /// Comes when that fails.
        except: Vec<Segment>,
    },
}

/// `<esi:include>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Include {
    /// Where it is, entities decoded; see [`resolve`].
    pub src: String,
    /// Where else, when it cannot be had there.
    pub alt: Option<String>,
    /// `onerror="continue"`: when it cannot be had at all, nothing stands in its place.
    pub continue_on_error: bool,
}

/// Whether an answer asks for ESI: a Surrogate-Control with `content="ESI/1.0"`, alone or among other capabilities.
pub fn is_asked_for(fields: Fields<'_>) -> bool {
    let directives = fields.all("surrogate-control").flat_map(|value| value.split(|&byte| byte == b','));
    directives.map(trim).any(|directive| {
        let content = directive
            .strip_prefix(b"content=\"")
            .and_then(|rest| rest.iter().position(|&byte| byte == b'"').map(|end| &rest[..end]));
        content.is_some_and(|content| content.split(|&byte| byte == b' ').any(|capability| capability == b"ESI/1.0"))
    })
}

#[cfg(test)]
mod tests;
