//! ESI Language Specification 1.0 (W3C Note, 2001): `include`, `remove`, `comment`, `try` with `attempt` and `except`,
//! and `<!--esi … -->`.
//!
//! This module does no I/O. [`parse`] turns a template into [`Segment`]s: ranges of it and references. A
//! [`Composition`] requests parts and joins them. The caller fetches parts, resolves references with [`resolve`]
//! (never to another host), and limits nesting ([`EsiLimits::nesting_max`]).
//!
//! **Errors stay visible.** A template is parsed up to the first error; the rest is one literal, sent unchanged, with
//! the reason in [`EsiTemplate::error`]. Readers see nearly the whole page, and its author sees the invalid tag. If the
//! invalid tag is within a `try`, the whole `try` belongs to the rest. Rejecting the page would take a site down over
//! one letter; guessing would hide the error.
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

/// Field line that announces ESI support to origins (Edge Architecture Specification, 2001).
pub const CAPABILITY_LINE: &[u8] = b"Surrogate-Capability: flatout=\"ESI/1.0\"\r\n";

/// Limits on templates.
#[derive(Clone, Copy, Debug)]
pub struct EsiLimits {
    /// Maximum bytes of a template.
    pub page_bytes_max: usize,
    /// Maximum bytes of a tag.
    pub tag_bytes_max: usize,
    /// Maximum tags in a template.
    pub tags_max: usize,
    /// Maximum includes in a template.
    pub includes_max: usize,
    /// Maximum nesting of `try`.
    pub depth_max: usize,
    /// Maximum nesting of parts, enforced by the caller.
    pub nesting_max: usize,
}

impl EsiLimits {
    /// Above the needs of a sensible template.
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
    /// Its segments, in order.
    pub segments: Vec<Segment>,
    /// Number of includes, in both branches of each `try`.
    pub includes: usize,
    /// The first error, and the byte offset of the literal rest.
    pub error: Option<(EsiError, usize)>,
}

/// A segment of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// A range of the template, sent unchanged.
    Literal(Range<usize>),
    /// Content of another resource.
    Include(Include),
    /// Alternative branches: if a required part of the first fails, the second replaces it entirely.
    Try {
        /// The first branch.
        attempt: Vec<Segment>,
        /// The fallback.
        except: Vec<Segment>,
    },
}

/// `<esi:include>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Include {
    /// Reference with decoded entities; see [`resolve`].
    pub src: String,
    /// Alternative reference.
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
