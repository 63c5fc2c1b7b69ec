//! ESI Language Specification 1.0 (W3C Note, 2001): `include`, `remove`, `comment`, `try` with `attempt` and `except`,
//! and `<!--esi … -->`.
//!
//! This module does no I/O. [`parse`] turns a template into [`Segment`]s, which are literal ranges and references. A
//! [`Composition`] requests parts and joins them. The caller fetches parts, resolves references with [`resolve`] (which
//! refuses other hosts), and limits nesting ([`EsiLimits::nesting_max`]).
//!
//! **Errors stay visible.** A template is parsed up to the first error. The remainder is a single literal that is sent
//! unchanged, and the reason is in [`EsiTemplate::error`]. Visitors see most of the page, and its author sees the
//! invalid tag. If the invalid tag is within a `try`, the remainder begins with that `try`. Rejecting the page would
//! take a site down over a typo; guessing would hide the error.
//!
//! | file | contents |
//! |---|---|
//! | [`token`] | tokenizer: text and tags |
//! | `attributes` | tag attributes |
//! | `page` | parser: tokens to segments |
//! | [`error`] | errors by name |
//! | `reference` | resolution of references |
//! | [`compose`] | composition of a page from its parts |

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

/// Limits on templates.
#[derive(Clone, Copy, Debug)]
pub struct EsiLimits {
    /// Maximum size of a template in bytes.
    pub page_bytes_max: usize,
    /// Maximum size of a tag in bytes.
    pub tag_bytes_max: usize,
    /// Maximum number of tags in a template.
    pub tags_max: usize,
    /// Maximum number of includes in a template.
    pub includes_max: usize,
    /// Maximum nesting depth of `try`.
    pub depth_max: usize,
    /// Maximum nesting depth of parts, enforced by the caller.
    pub nesting_max: usize,
}

impl EsiLimits {
    /// Default limits, above the needs of any sensible template.
    pub const DEFAULT: Self = Self {
        page_bytes_max: 4 * 1024 * 1024,
        tag_bytes_max: 4 * 1024,
        tags_max: 4_096,
        includes_max: 256,
        depth_max: 8,
        nesting_max: 5,
    };
}

/// A parsed template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EsiTemplate {
    /// The segments, in order.
    pub segments: Vec<Segment>,
    /// Number of includes, counting both branches of each `try`.
    pub includes: usize,
    /// The first error, and the byte offset at which the unparsed remainder begins.
    pub error: Option<(EsiError, usize)>,
}

/// A segment of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// A range of the template, sent unchanged.
    Literal(Range<usize>),
    /// A reference to another resource, whose content replaces the segment.
    Include(Include),
    /// Two alternative branches. If a required part of the first fails, the second replaces the first entirely.
    Try {
        /// The first branch.
        attempt: Vec<Segment>,
        /// The fallback branch.
        except: Vec<Segment>,
    },
}

/// `<esi:include>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Include {
    /// Reference with decoded entities; see [`resolve`].
    pub src: String,
    /// Reference to use if `src` fails.
    pub alt: Option<String>,
    /// `onerror="continue"`: if all references fail, the include is omitted.
    pub continue_on_error: bool,
}

/// Returns whether a response requests ESI: Surrogate-Control has `content="ESI/1.0"`, alone or among other
/// capabilities.
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
