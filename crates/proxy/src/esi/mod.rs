//! Pages made of parts: ESI 1.0.
use flatout_http::head::Fields;
use std::ops::Range;

/// Bounds.
#[derive(Clone, Copy, Debug)]
pub struct EsiLimits {
    /// Bytes of a page; larger ones are not parsed.
    pub page_bytes_max: usize,
    /// Includes of one page.
    pub includes_max: usize,
    /// `try` within `try`.
    pub depth_max: usize,
    /// Bytes of one tag.
    pub tag_bytes_max: usize,
    /// Parts within parts; whoever fetches them counts.
    pub nesting_max: usize,
}

impl EsiLimits {
    /// What a sensible page stays within.
    pub const DEFAULT: Self =
        Self { page_bytes_max: 4 << 20, includes_max: 256, depth_max: 8, tag_bytes_max: 8192, nesting_max: 5 };
}

/// A page, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// What it is made of, in order.
    pub segments: Vec<Segment>,
    /// Includes in all, those of every branch counted.
    pub includes: usize,
    /// What was wrong first, and at which byte: from there on the page is one literal, as it stands.
    pub error: Option<(EsiError, usize)>,
}

/// A piece of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// These bytes of the page, as they stand.
    Literal(Range<usize>),
    /// Another resource's content.
    Include(Include),
    /// The first, and when a part of it cannot be had, the second instead of all of it.
    Try {
        /// Tried.
        attempt: Vec<Segment>,
        /// Instead.
        except: Vec<Segment>,
    },
}

/// `<esi:include>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Include {
    /// Where, entities decoded; see [`resolve`].
    pub src: String,
    /// Where else, when that fails.
    pub alt: Option<String>,
    /// `onerror="continue"`: nothing in its place when that fails as well.
    pub continue_on_error: bool,
}

/// What is wrong with a page or a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EsiError {
    /// See name.
    Unknown,
}

impl EsiError {
    /// The stable name.
    pub const fn name(self) -> &'static str {
        ""
    }
}

/// Parses a page.
pub fn parse(_page: &[u8], _limits: &EsiLimits) -> Page {
    unimplemented!()
}

/// The page's own URL.
#[derive(Clone, Copy, Debug)]
pub struct Base<'a> {
    /// Whether by https.
    pub secure: bool,
    /// Host and port, as in Host.
    pub authority: &'a [u8],
    /// The path, which begins with `/`.
    pub path: &'a [u8],
    /// The query.
    pub query: Option<&'a [u8]>,
}

/// Resolves a reference against the page's URL (RFC 3986 §5.2) to a target in origin-form of the same host; all other
/// hosts, schemes and ports are refused by name.
pub fn resolve(_src: &str, _base: &Base<'_>) -> Result<String, EsiError> {
    unimplemented!()
}

/// Whether the answer asks for ESI: `Surrogate-Control: content="ESI/1.0"` (Edge Architecture Specification).
pub fn is_asked_for(_fields: Fields<'_>) -> bool {
    unimplemented!()
}

/// The line by which origins learn that ESI is done here.
pub const CAPABILITY_LINE: &[u8] = b"Surrogate-Capability: flatout=\"ESI/1.0\"\r\n";
