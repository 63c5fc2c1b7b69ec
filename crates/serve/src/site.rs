//! From a request to a response.

use crate::cache::{Cache, CacheLimits};
use crate::outcome::Outcome;
use crate::root::{Named, Root};
use crate::version::Version;
use flatout_http::conditional::{Precondition, decide_precondition, if_range_holds};
use flatout_http::path::{PathFacts, decode_path};
use flatout_http::range::{RangeDecision, decide_range};
use flatout_http::refusal::Refusal;
use flatout_http::request::{Asked, Method, RequestHead};
use flatout_http::target::Target;
use flatout_net::clock::Now;
use flatout_net::handler::{Handler, Reply, Request};
use flatout_net::page::page_response;
use flatout_net::response::{Body, Head, Response};
use rustix::time::{ClockId, clock_gettime};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

const ALLOW: &str = "GET, HEAD, OPTIONS";

/// What the owner of a site may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteOptions {
    /// Whether names that begin with a dot are served.
    pub hidden: bool,
    /// For how long what is known of a file is believed without a look, in milliseconds.
    pub recheck_ms: u64,
    /// Bounds of the metadata cache.
    pub cache_limits: CacheLimits,
}

impl SiteOptions {
    /// What `flatout serve` uses. A change is promised to be seen within a second: the rest of it is left for the
    /// tick of the coarse clock and for the answer itself.
    pub const DEFAULT: Self = Self { hidden: false, recheck_ms: 950, cache_limits: CacheLimits::DEFAULT };
}

impl Default for SiteOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A folder of files, as one worker serves it.
#[derive(Debug)]
pub struct Site {
    root: Arc<Root>,
    options: SiteOptions,
    cache: RefCell<Cache>,
    /// The decoded path of the request at hand.
    path: RefCell<Vec<u8>>,
}

impl Site {
    /// The site below `root`.
    pub fn new(root: Arc<Root>, options: SiteOptions) -> Self {
        let cache = RefCell::new(Cache::new(options.cache_limits));
        Self { root, options, cache, path: RefCell::new(Vec::new()) }
    }

    fn handle_read(&self, head: &RequestHead<'_>, raw_path: &[u8], query: Option<&[u8]>, now: Now) -> Response {
        let mut path = self.path.borrow_mut();
        let facts = match decode_path(raw_path, &mut path) {
            Ok(facts) => facts,
            // The request is well-formed, so the connection goes on. A broken encoding was refused with its target.
            Err(refusal) => {
                let outcome = if refusal == Refusal::TargetNul { Outcome::TargetNul } else { Outcome::DotSegment };
                return page(refusal.status(), refusal.text(), outcome);
            }
        };
        if let Some(response) = self.refuse_path(facts, raw_path, query) {
            return response;
        }
        match self.find(&path, now) {
            Ok((version, outcome)) => answer(&version, head, now, outcome),
            Err(Missing::Folder) => redirect(&[raw_path, b"/"].concat(), query, Outcome::FolderSlash),
            Err(Missing::Outcome(outcome)) => missing(outcome),
        }
    }

    /// Paths that name nothing here, whatever the folder holds.
    fn refuse_path(&self, facts: PathFacts, raw_path: &[u8], query: Option<&[u8]>) -> Option<Response> {
        if facts.hidden_segment && !self.options.hidden {
            return Some(missing(Outcome::HiddenName));
        }
        if facts.encoded_slash {
            return Some(missing(Outcome::NotFound));
        }
        if facts.empty_segment {
            // Merged, the path begins with one slash only, so it cannot be read as another host's address.
            let mut merged = raw_path.to_vec();
            merged.dedup_by(|next, previous| *next == b'/' && *previous == b'/');
            return Some(redirect(&merged, query, Outcome::SlashesMerged));
        }
        None
    }

    /// The current version of the file at `path`, believed for `recheck_ms` without a look.
    fn find(&self, path: &[u8], now: Now) -> Result<(Rc<Version>, Outcome), Missing> {
        let mut cache = self.cache.borrow_mut();
        if let Some((version, checked_ms)) = cache.get(path) {
            let version = Rc::clone(version);
            if now.monotonic_ms.saturating_sub(checked_ms) < self.options.recheck_ms && version.is_sendable() {
                return Ok((version, Outcome::Hit));
            }
            if version.settled && self.identify(path) == Ok(Named::File(version.identity)) {
                cache.set_checked(path, now.monotonic_ms);
                return Ok((version, Outcome::Checked));
            }
            cache.remove(path);
        }
        match self.identify(path) {
            Ok(Named::File(_)) => {}
            Ok(Named::Folder) if path.is_empty() || path.ends_with(b"/") => return Err(Outcome::NoIndex.into()),
            Ok(Named::Folder) => return Err(Missing::Folder),
            // The folder may be there without an index, or not at all.
            Err(Outcome::NotFound) if self.root.identify(path) == Ok(Named::Folder) => {
                return Err(Outcome::NoIndex.into());
            }
            Err(outcome) => return Err(outcome.into()),
        }
        let version = Rc::new(Version::load(&self.root, &file_name(path), read_unix_ns())?);
        cache.insert(path, Rc::clone(&version), now.monotonic_ms);
        Ok((version, Outcome::Loaded))
    }

    fn identify(&self, path: &[u8]) -> Result<Named, Outcome> {
        self.root.identify(&file_name(path))
    }
}

impl Handler for Site {
    const OUTCOMES: &'static [&'static str] = Outcome::NAMES;

    fn handle(&self, request: &Request<'_>, now: Now) -> Reply {
        Reply::Now(self.answer(request.head, now))
    }
}

impl Site {
    fn answer(&self, head: &RequestHead<'_>, now: Now) -> Response {
        match (head.method, head.target) {
            (Method::Get | Method::Head, Target::Resource { path, query, .. }) => {
                self.handle_read(head, path, query, now)
            }
            (Method::Options, _) => respond(204, &[("Allow", ALLOW)], Body::Empty, Outcome::Options),
            (Method::Known(_), _) => page_response(
                405,
                "Files can be read here, and nothing else.",
                &[("Allow", ALLOW)],
                Outcome::MethodNotAllowed as u8,
            ),
            _ => page(501, "This server does not know that method.", Outcome::MethodUnknown),
        }
    }
}

/// Why there is no version.
enum Missing {
    /// The name is a folder's and lacks its slash.
    Folder,
    Outcome(Outcome),
}

impl From<Outcome> for Missing {
    fn from(outcome: Outcome) -> Self {
        Self::Outcome(outcome)
    }
}

/// The name of the file that answers for `path`: a folder's is its index.
fn file_name(path: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    if path.is_empty() || path.ends_with(b"/") { [path, b"index.html"].concat().into() } else { path.into() }
}

/// Only a load reads the wall clock finely: it must not believe a file that is being written at this moment.
fn read_unix_ns() -> i128 {
    let time = clock_gettime(ClockId::Realtime);
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

/// The answer to a GET or HEAD for `version` (RFC 9110 §13.2.2: preconditions first, then the range).
fn answer(version: &Version, head: &RequestHead<'_>, now: Now, outcome: Outcome) -> Response {
    let size_bytes = version.identity.size_bytes;
    if head.asked.any(Asked::CONDITION) {
        match decide_precondition(&head.fields, &version.validators()) {
            Precondition::Proceed => {}
            Precondition::NotModified => {
                let head = version.not_modified_head.clone();
                return Response::new(304, head, Body::Empty, Outcome::NotModified as u8);
            }
            Precondition::Failed => {
                return page(412, "The file is not the version you expect.", Outcome::PreconditionFailed);
            }
        }
    }
    // RFC 9110 §14.2: Range means something for GET only.
    if head.asked.any(Asked::RANGE)
        && head.method == Method::Get
        && if_range_holds(&head.fields, &version.validators(), now.unix_s)
    {
        let range = head.fields.first("range").unwrap_or_default();
        match decide_range(range, size_bytes) {
            RangeDecision::Whole => {}
            RangeDecision::Part { first, last } => return answer_part(version, first, last, outcome),
            RangeDecision::Unsatisfiable => {
                let content_range = format!("bytes */{size_bytes}");
                return page_response(
                    416,
                    "The range lies outside the file.",
                    &[("Content-Range", &content_range)],
                    Outcome::RangeUnsatisfiable as u8,
                );
            }
        }
    }
    Response::new(200, version.ok_head.clone(), version.body(0, size_bytes), outcome as u8)
}

fn answer_part(version: &Version, first: u64, last: u64, outcome: Outcome) -> Response {
    let length = last - first + 1;
    let date = flatout_http::date::format_date(version.last_modified_s);
    let fields = [
        ("Content-Type", version.content_type.as_str()),
        ("Content-Length", &length.to_string()),
        ("Content-Range", &format!("bytes {first}-{last}/{}", version.identity.size_bytes)),
        ("Last-Modified", &String::from_utf8_lossy(&date)),
        ("ETag", &format!("\"{}\"", version.etag)),
        ("Accept-Ranges", "bytes"),
    ];
    respond(206, &fields, version.body(first, length), outcome)
}

fn respond(status: u16, fields: &[(&str, &str)], body: Body, outcome: Outcome) -> Response {
    Response::new(status, Head::new(status, fields), body, outcome as u8)
}

fn page(status: u16, text: &str, outcome: Outcome) -> Response {
    page_response(status, text, &[], outcome as u8)
}

/// 301 to `path`, which holds only what a target may hold, with the query kept.
fn redirect(path: &[u8], query: Option<&[u8]>, outcome: Outcome) -> Response {
    let mut location = String::from_utf8_lossy(path).into_owned();
    if let Some(query) = query {
        location.push('?');
        location.push_str(&String::from_utf8_lossy(query));
    }
    page_response(301, "The address is a little different.", &[("Location", &location)], outcome as u8)
}

/// The page for a name that stands for no file we serve. It says no more than a visitor may know: a hidden name, a
/// link that leads out and a name that is not there look the same.
fn missing(outcome: Outcome) -> Response {
    match outcome {
        Outcome::Forbidden => page(403, "This file may not be read.", outcome),
        Outcome::NoDescriptor | Outcome::FileUnsettled => page_response(
            503,
            "The file cannot be read at this moment. Please try again.",
            &[("Retry-After", "1")],
            outcome as u8,
        ),
        Outcome::FileFailed => page(500, "The file could not be read.", outcome),
        _ => page(404, "Nothing here has this name.", outcome),
    }
}
