//! Compiled steps, in which references are resolved and responses prebuilt where possible.

use crate::auth::Auth;
use crate::cors::Cors;
use crate::index::Index;
use crate::pattern::{Key, PathPattern, match_value};
use crate::rate::RateTable;
use crate::text::Template;
use flatout_config::model::{self, Place};
use flatout_http::host::split_port;
use flatout_http::request::{Method, RequestHead};
use std::ops::Range;
use std::sync::Arc;

/// Steps in configuration order, with an index by path.
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
    /// The step in configuration syntax, without secrets. For a route, only its conditions.
    pub(crate) written: Box<str>,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Route(Route),
    /// A `header` step, as an index into `changes` of [`crate::spec::Spec`].
    Header(u32),
    BasicAuth {
        /// Number that is unique within the configuration.
        id: u32,
        auth: Arc<Auth>,
    },
    Access(model::Access),
    RateLimit(Arc<RateTable>),
    Cors(Cors),
    /// An `early-hints` step, as an index into `hints` of the spec.
    EarlyHints(u32),
    Rewrite(Rewrite),
    /// An `error-page` step, as an index into `pages` of the spec.
    ErrorPage(u32),
    /// A `files` step, as an index into `files` of the spec.
    Files {
        index: u32,
        pass: bool,
    },
    Redirect {
        /// Number that is unique among `redirect` and `respond` steps.
        id: u32,
        to: Template,
        status: u16,
        /// The whole location, if it does not depend on the request.
        literal: Option<String>,
    },
    Respond {
        id: u32,
        respond: model::Respond,
    },
    Metrics,
    /// A `cache` step, as an index into `cache_steps` of the spec.
    Cache(u32),
    /// A `proxy` step, as an index into `proxies` of the spec.
    Proxy(u32),
    /// A `pages` or `page` step, as an index into `active` of the spec.
    Pages(u32),
    /// A `php` step, as an index into `php` of the spec.
    Php(u32),
}

#[derive(Debug)]
pub(crate) enum Rewrite {
    /// The prefix, with a leading slash but no trailing slash.
    StripPrefix(String),
    To(Template),
}

/// Set of methods, as bits.
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

    /// Creates the set of the methods called `names`. Methods unknown to this server are ignored, because a request
    /// with such a method is rejected before any route.
    fn new(names: &[String]) -> Self {
        let mut bits = names.iter().fold(0, |bits, name| bits | Self::bit(name));
        // RFC 9110 §9.3.2: HEAD is GET without the content, so steps that guard or handle GET apply to HEAD too.
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
            // It may come from the target, and in HTTP/2 it is not among the fields. As in the selection of the site, case
            // and a final dot are not significant, nor is the port, unless the pattern has one.
            return head.host.is_some_and(|host| {
                let host = host.to_ascii_lowercase();
                let (name, _) = split_port(&host);
                fits(&host) || fits(name.strip_suffix(b".").unwrap_or(name))
            });
        }
        let mut named = head.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(&self.name));
        named.any(|(_, value)| fits(value))
    }
}

/// A block of steps with conditions.
#[derive(Debug)]
pub(crate) struct Route {
    methods: Option<Methods>,
    paths: Vec<Vec<PathPattern>>,
    fields: Vec<FieldMatcher>,
    pub(crate) block: Block,
}

flatout_reason::reasons! {
    /// Reason why a route does not match.
    pub(crate) enum Mismatch { text, }
    Method, "the method differs";
    Path, "the path differs";
    Field, "a field is missing or has another value";
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
                    let is_host = name.eq_ignore_ascii_case("host");
                    let value = |value: &String| if is_host { value.to_ascii_lowercase() } else { value.clone() };
                    fields.push(FieldMatcher { name: name.clone(), values: values.iter().map(value).collect() });
                }
            }
        }
        Self { methods, paths, fields, block }
    }

    /// Returns whether the route matches every request.
    pub(crate) const fn is_unconditional(&self) -> bool {
        self.methods.is_none() && self.paths.is_empty() && self.fields.is_empty()
    }

    fn keys(&self) -> Option<Vec<Key>> {
        self.paths.first().map(|patterns| patterns.iter().map(PathPattern::key).collect())
    }

    /// Matches a request with the decoded `path`. If there is a path condition, returns the range of the path that the
    /// last star matched.
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
