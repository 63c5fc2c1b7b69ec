//! Compiled steps: everything is resolved, and built in advance where possible.

use crate::auth::Auth;
use crate::cors::Cors;
use crate::index::Index;
use crate::pattern::{Key, PathPattern, match_value};
use crate::rate::RateTable;
use crate::text::Template;
use flatout_config::model::{self, Place};
use flatout_http::request::{Method, RequestHead};
use flatout_http::target::Target;
use std::ops::Range;
use std::sync::Arc;

/// Steps in configuration order.
#[derive(Debug, Default)]
pub(crate) struct Block {
    pub(crate) steps: Box<[Step]>,
    pub(crate) index: Index,
}

impl Block {
    pub(crate) fn new(steps: Vec<Step>) -> Self {
        let index = Index::new(steps.iter().map(|step| match &step.kind {
            Kind::Route(route) => route.keys(),
            _ => None,
        }));
        Self { steps: steps.into(), index }
    }
}

#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) place: Place,
    /// Its text in the configuration, without secrets; of a route, only its conditions.
    pub(crate) written: Box<str>,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Route(Route),
    /// By its index in [`crate::spec::Spec`]'s changes.
    Header(u32),
    BasicAuth {
        /// Unique within the configuration.
        id: u32,
        auth: Arc<Auth>,
    },
    Access(model::Access),
    RateLimit(Arc<RateTable>),
    Cors(Cors),
    /// By its index among the hints.
    EarlyHints(u32),
    Rewrite(Rewrite),
    /// By its index among the pages.
    ErrorPage(u32),
    /// By its index among the files.
    Files {
        index: u32,
        pass: bool,
    },
    Redirect {
        /// Unique among redirects and responds.
        id: u32,
        to: Template,
        status: u16,
        /// The whole address, if it does not depend on the request.
        literal: Option<String>,
    },
    Respond {
        id: u32,
        respond: model::Respond,
    },
    Metrics,
    /// By its index among the cache rules.
    Cache(u32),
    /// By its index among the proxies.
    Proxy(u32),
    /// By its index among the active pages.
    Pages(u32),
    /// By its index among the application servers.
    Php(u32),
}

#[derive(Debug)]
pub(crate) enum Rewrite {
    /// With its leading slash, without a trailing one.
    StripPrefix(String),
    To(Template),
}

/// Methods as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Methods(u16);

impl Methods {
    const NAMES: [&'static str; 8] = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH", "TRACE"];

    const fn bit(method: &str) -> u16 {
        let mut index = 0;
        while index < Self::NAMES.len() {
            if equal(Self::NAMES[index], method) {
                return 1 << index;
            }
            index += 1;
        }
        0
    }

    /// A method unknown to this server matches no request, because these requests are rejected before any route.
    fn new(names: &[String]) -> Self {
        let mut bits = names.iter().fold(0, |bits, name| bits | Self::bit(name));
        // RFC 9110 §9.3.2: HEAD is GET without the content, so steps that guard or handle GET do so for HEAD.
        if bits & Self::bit("GET") != 0 {
            bits |= Self::bit("HEAD");
        }
        Self(bits)
    }

    fn contains(self, method: &Method<'_>) -> bool {
        let bit = match method {
            Method::Get => 1,
            Method::Head => 2,
            Method::Options => 4,
            Method::Known(name) => Self::bit(name),
            Method::Connect | Method::Unknown(_) => 0,
        };
        self.0 & bit != 0
    }
}

const fn equal(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut index = 0;
    while index < one.len() && index < other.len() && one[index] == other[index] {
        index += 1;
    }
    index == one.len() && index == other.len()
}

#[derive(Debug)]
struct FieldMatcher {
    name: String,
    values: Vec<String>,
}

impl FieldMatcher {
    fn matches(&self, head: &RequestHead<'_>) -> bool {
        let fits = |value: &[u8]| {
            self.values.is_empty() || self.values.iter().any(|pattern| match_value(pattern.as_bytes(), value))
        };
        if self.name.eq_ignore_ascii_case("host") {
            // As in the site's selection: the authority of an absolute-form precedes Host (RFC 9112 §3.2.2), and
            // HTTP/2 has the host outside the fields.
            let authority = match head.target {
                Target::Resource { authority, .. } => authority,
                Target::Authority(_) | Target::Asterisk => None,
            };
            return authority.or(head.host).is_some_and(fits);
        }
        let mut named = head.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(&self.name));
        named.any(|(_, value)| fits(value))
    }
}

/// A block with conditions.
#[derive(Debug)]
pub(crate) struct Route {
    methods: Option<Methods>,
    paths: Vec<Vec<PathPattern>>,
    fields: Vec<FieldMatcher>,
    pub(crate) block: Block,
}

/// Why a route does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    Method,
    Path,
    Field,
}

impl Mismatch {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Method => "the method differs",
            Self::Path => "the path differs",
            Self::Field => "a field is missing or has another value",
        }
    }
}

impl Route {
    pub(crate) fn new(matchers: &[model::Matcher], block: Block) -> Self {
        let (mut methods, mut paths, mut fields) = (None, Vec::new(), Vec::new());
        for matcher in matchers {
            match matcher {
                model::Matcher::Path(patterns) => {
                    paths.push(patterns.iter().map(|pattern| PathPattern::new(pattern)).collect());
                }
                model::Matcher::Method(names) => {
                    let Methods(known) = methods.unwrap_or(Methods(u16::MAX));
                    methods = Some(Methods(known & Methods::new(names).0));
                }
                model::Matcher::Header { name, values } => {
                    fields.push(FieldMatcher { name: name.clone(), values: values.clone() });
                }
            }
        }
        Self { methods, paths, fields, block }
    }

    /// Returns whether it matches every request.
    pub(crate) const fn is_unconditional(&self) -> bool {
        self.methods.is_none() && self.paths.is_empty() && self.fields.is_empty()
    }

    fn keys(&self) -> Option<Vec<Key>> {
        self.paths.first().map(|patterns| patterns.iter().map(PathPattern::key).collect())
    }

    /// Matches `head` with the decoded `path`; returns the part that the last star matched, if there is a path
    /// condition.
    #[inline]
    pub(crate) fn match_request(&self, head: &RequestHead<'_>, path: &[u8]) -> Result<Option<Range<usize>>, Mismatch> {
        if self.methods.is_some_and(|methods| !methods.contains(&head.method)) {
            return Err(Mismatch::Method);
        }
        let mut rest = None;
        for patterns in &self.paths {
            let matched = patterns.iter().find_map(|pattern| pattern.match_path(path));
            rest = Some(matched.ok_or(Mismatch::Path)?);
        }
        if !self.fields.iter().all(|field| field.matches(head)) {
            return Err(Mismatch::Field);
        }
        Ok(rest)
    }
}
