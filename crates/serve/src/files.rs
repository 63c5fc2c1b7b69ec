//! The `files` handler, which serves the files below a folder. Each worker has an instance for each `files` step.

use crate::answer::{Means, answer};
use crate::cache::{Cache, CacheLimits, Checked};
use crate::choice::{EncodingChoice, choose};
use crate::file_request::{FileRequest, KeptQuestion};
use crate::hidden::{HiddenSource, SourceNames};
use crate::lazy::{LazyState, LazyValue};
use crate::listing::{self, ListingQuery};
use crate::media::{is_compressible, stored_type};
use crate::outcome::FileOutcome;
use crate::rules::FileRules;
pub use crate::services::Services;
use crate::thread_pool::Urgency;
use crate::version::{EncodingState, FileMetadata, Loading, Version, look_beside};
use flatout_config::model::{self, TextPart, TryTarget, Variable};
use flatout_handler::response::{Body, Response};
use flatout_handler::routed::{Handling, HeaderPolicy, Refusal, RoutedRequest};
use flatout_http::encoding::ContentCoding;
use flatout_http::host::split_port;
use flatout_http::path::{PathFacts, decode_path};
use flatout_http::request::Method;
use flatout_http::status::reason;
use flatout_http::target::Target;
use flatout_net::task_deadlines::{DeadlineTable, DeadlineTimer};
use flatout_os::clock::{self, Now};
use flatout_os::random;
use flatout_os::root::{Named, OpenFault, Root};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const ALLOW: &str = "GET, HEAD, OPTIONS";

/// Time that is subtracted from the file check interval, in milliseconds, so that a change is visible within the
/// interval. It covers the tick of the coarse clock and the time to send the response.
const CHECK_SLACK_MS: u64 = 50;

/// Validation interval of an unsettled version in a watched folder, in milliseconds.
const UNSETTLED_MS: u64 = 100;

/// Maximum time for which a request waits for an encoding, in milliseconds.
const ENCODING_WAIT_MS: u64 = 50;

/// Interval between scans for waits that have timed out, in milliseconds.
const SWEEP_INTERVAL_MS: u64 = 10;

/// The state that all `files` steps of a worker share: a cache of file versions with common limits.
#[derive(Debug)]
pub struct FileStore {
    services: Arc<Services>,
    limits: CacheLimits,
    cache: RefCell<Cache>,
    /// The cache key of the current request: the decoded path, followed by the numbers of the step and the policy.
    key: RefCell<Vec<u8>>,
    parts_answered: Cell<u64>,
    /// Deadlines of the requests that wait for an encoding.
    deadlines: Rc<DeadlineTable>,
}

impl FileStore {
    /// Creates an empty store.
    pub fn new(limits: CacheLimits, services: Arc<Services>) -> Rc<Self> {
        let cache = RefCell::new(Cache::new(limits));
        Rc::new(Self {
            services,
            limits,
            cache,
            key: RefCell::default(),
            // Nobody can put a boundary that separates parts into a file.
            parts_answered: Cell::new(random::bytes().map_or(0, u64::from_le_bytes)),
            deadlines: Rc::default(),
        })
    }

    /// Removes the versions of steps and policies that are no longer in force.
    pub fn retain(&self, has_step: impl Fn(u32) -> bool, has_policy: impl Fn(u32) -> bool) {
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte));
        self.cache.borrow_mut().retain(|key| {
            let (step, policy) = key[key.len().saturating_sub(8)..].split_at(4);
            has_step(number(step)) && has_policy(number(policy))
        });
    }

    fn means<'a>(&'a self, rules: &'a FileRules, now: Now) -> Means<'a> {
        Means { rules, services: &self.services, parts_answered: &self.parts_answered, now }
    }
}

/// A `files` step.
#[derive(Debug)]
pub struct Files {
    id: u32,
    root: Arc<Root>,
    rules: Rc<FileRules>,
    file_check_interval_ms: u64,
    /// Number of changes below the root that the kernel has reported, or `None` if the root is not watched.
    epoch: Option<Arc<AtomicU64>>,
    /// Names whose content is hidden, or `None` if no scripts or active pages run in this folder.
    sources: Option<Arc<SourceNames>>,
    store: Rc<FileStore>,
}

/// The reason a lookup found no version to serve.
#[derive(Debug)]
enum Missing {
    /// The path names a folder, but does not end with a slash.
    Slash,
    Outcome(FileOutcome),
}

impl From<OpenFault> for Missing {
    fn from(fault: OpenFault) -> Self {
        Self::Outcome(fault.into())
    }
}

impl From<FileOutcome> for Missing {
    fn from(outcome: FileOutcome) -> Self {
        Self::Outcome(outcome)
    }
}

/// The result of a successful lookup.
#[derive(Clone, Copy)]
struct CacheLookup {
    /// True if a cached version was used without validation.
    is_hit: bool,
    /// The outcome for the log.
    outcome: FileOutcome,
}

impl From<FileOutcome> for CacheLookup {
    fn from(outcome: FileOutcome) -> Self {
        Self { is_hit: outcome == FileOutcome::Hit, outcome }
    }
}

impl Files {
    /// Creates the step with the number `id`, which is unique within an engine, for the folder `root`, which all
    /// workers share. `epoch` changes when the kernel reports a change below the root. Without `epoch`, files are
    /// validated every `file_check_interval_ms`.
    pub fn new(
        id: u32,
        root: Arc<Root>,
        settings: &model::Files,
        file_check_interval_ms: u64,
        epoch: Option<Arc<AtomicU64>>,
        store: &Rc<FileStore>,
    ) -> Self {
        let rules = Rc::new(FileRules::new(settings, store.limits.bytes_max));
        Self { id, root, rules, file_check_interval_ms, epoch, sources: None, store: Rc::clone(store) }
    }

    /// Returns the same step with the names in `sources` hidden.
    #[must_use]
    pub fn hiding(self, sources: Option<Arc<SourceNames>>) -> Self {
        Self { sources, ..self }
    }

    /// Looks up the file that `routed` requests, and returns the response or the refusal.
    pub fn handle(&self, routed: &RoutedRequest<'_>) -> Handling {
        match (routed.request.head.method, routed.request.head.target) {
            (Method::Get | Method::Head, Target::Resource { .. }) => self.read(routed),
            (Method::Options, _) => {
                let head = routed.policy.head(204, &[("Allow", ALLOW)]);
                Response::new(204, head, Body::Empty, FileOutcome::Options).into()
            }
            (Method::Known(_), _) => {
                const TEXT: &str = "This address supports only GET and HEAD.";
                Refusal::new(405, TEXT, FileOutcome::MethodNotAllowed).with("Allow", ALLOW).into()
            }
            _ => Refusal::new(501, "This server does not support that method.", FileOutcome::MethodUnknown).into(),
        }
    }

    fn read(&self, routed: &RoutedRequest<'_>) -> Handling {
        let mut key = self.store.key.borrow_mut();
        key.clear();
        key.extend_from_slice(routed.decoded);
        let facts = routed.facts;
        if !self.rules.tries_before.is_empty() {
            if let Some(found) = self.try_others(&self.rules.tries_before, routed.decoded, &mut key, routed) {
                return found;
            }
            key.clear();
            key.extend_from_slice(routed.decoded);
        }
        let path_bytes = key.len();
        let missing = if let Some(outcome) = self.refuse_path(facts) {
            outcome
        } else {
            self.add_numbers(&mut key, routed.policy);
            match self.find(&key, path_bytes, routed.policy, routed.now) {
                // The links in the page of a folder are relative to its address with the slash.
                Ok(_) if routed.is_bare => return routed.redirect_to_folder(301, FileOutcome::FolderSlash).into(),
                Ok((version, outcome)) => return self.answer_with(&version, &key, routed, outcome.into()),
                Err(Missing::Slash) if self.passes_folder(routed.decoded) => FileOutcome::NoIndex,
                Err(Missing::Slash) => return routed.redirect_to_folder(301, FileOutcome::FolderSlash).into(),
                Err(Missing::Outcome(outcome)) => outcome,
            }
        };
        key.truncate(path_bytes);
        if missing == FileOutcome::NoIndex && self.rules.listing.is_some() {
            if routed.is_bare {
                return routed.redirect_to_folder(301, FileOutcome::FolderSlash).into();
            }
            return self.list(&key, routed);
        }
        // A hidden name, and a link that leads out of the root, must look like a missing file. This includes the try
        // list.
        let refusal = Refusal::from(missing);
        if refusal.status == 404
            && let Some(found) = self.try_others(&self.rules.tries_after, routed.decoded, &mut key, routed)
        {
            return found;
        }
        refusal.into()
    }

    /// Returns whether the attempts continue after `folder`, which lacks its slash, as after a missing file: there are
    /// more, and the folder has neither an index nor a listing.
    fn passes_folder(&self, folder: &[u8]) -> bool {
        !self.rules.tries_after.is_empty()
            && self.rules.listing.is_none()
            && matches!(self.look(&[folder, b"/"].concat()), Err(Missing::Outcome(FileOutcome::NoIndex)))
    }

    fn add_numbers(&self, key: &mut Vec<u8>, policy: &HeaderPolicy) {
        key.extend_from_slice(&self.id.to_le_bytes());
        key.extend_from_slice(&policy.id.to_le_bytes());
    }

    /// Returns the outcome if the path can never name a file to serve.
    fn refuse_path(&self, facts: PathFacts) -> Option<FileOutcome> {
        if facts.hidden_segment && !self.rules.hidden {
            return Some(FileOutcome::HiddenName);
        }
        facts.encoded_slash.then_some(FileOutcome::NotFound)
    }

    /// Returns the current version under `key`, whose first `path_bytes` bytes are the path. Validates or loads it if
    /// necessary.
    fn find(
        &self,
        key: &[u8],
        path_bytes: usize,
        policy: &Rc<HeaderPolicy>,
        now: Now,
    ) -> Result<(Rc<Version>, FileOutcome), Missing> {
        let path = &key[..path_bytes];
        let checked = self.checked(now);
        let mut cache = self.store.cache.borrow_mut();
        // If the file has not changed, the next version shares the digests and encodings of this one.
        let mut earlier = None;
        if let Some((version, last)) = cache.get(key) {
            let is_tagged = !version.lacks_known_tag();
            let is_requested = !version.lacks_request() || self.is_recent(last, checked);
            if is_tagged && is_requested && self.holds(last, checked, version.settled) {
                return Ok((Rc::clone(version), FileOutcome::Hit));
            }
            let version = earlier.insert(Rc::clone(version));
            if is_tagged
                && version.settled
                && self.look(path).is_ok_and(|(_, seen)| Some(&seen) == version.seen.as_ref())
            {
                version.request_digests(&self.store.services);
                cache.set_checked(key, checked);
                return Ok((Rc::clone(version), FileOutcome::Checked));
            }
            cache.remove(key);
        }
        let (name, seen) = self.look(path)?;
        let loading = Loading {
            root: &self.root,
            rules: &self.rules,
            policy,
            services: &self.store.services,
            // The coarse clock would not do: a load must recognize a file that is being written at this moment.
            unix_ns: clock::unix_ns(),
        };
        let version = Rc::new(Version::load(&loading, &name, &seen)?);
        drop(earlier);
        cache.insert(key, Rc::clone(&version), checked);
        Ok((version, FileOutcome::Loaded))
    }

    fn checked(&self, now: Now) -> Checked {
        let epoch = self.epoch.as_ref().map_or(0, |epoch| epoch.load(Ordering::Acquire));
        Checked { at_ms: now.monotonic_ms, epoch }
    }

    /// Returns whether a version validated at `last` may be used at `now`. The kernel reports a change only once. A
    /// version loaded immediately after a change is unsettled, and is never encoded unless it is validated and loaded
    /// again.
    fn holds(&self, last: Checked, now: Checked, settled: bool) -> bool {
        let is_recent = self.is_recent(last, now);
        match self.epoch {
            Some(_) if last.epoch != now.epoch => false,
            // The kernel does not watch folders outside the root that links may lead to.
            Some(_) => (settled || last.age_ms(now) < UNSETTLED_MS) && (is_recent || !self.root.trusts_any()),
            None => is_recent,
        }
    }

    /// Returns whether the file check interval has not passed between `last` and `now`.
    fn is_recent(&self, last: Checked, now: Checked) -> bool {
        last.age_ms(now) < self.file_check_interval_ms.saturating_sub(CHECK_SLACK_MS)
    }

    /// Returns the name and the metadata of the file that is currently served for `path`.
    fn look(&self, path: &[u8]) -> Result<(Vec<u8>, FileMetadata), Missing> {
        if !path.is_empty() && !path.ends_with(b"/") {
            let source = self.source(path);
            if source == Some(HiddenSource::Script) {
                return Err(FileOutcome::SourceHidden.into());
            }
            return match self.root.identify(path) {
                Ok(Named::File(_)) if source.is_some() => Err(FileOutcome::NotFound.into()),
                Ok(Named::File(identity)) => Ok((path.to_vec(), self.seen(path, 0, identity))),
                Ok(Named::Folder) => Err(Missing::Slash),
                Err(outcome) => Err(outcome.into()),
            };
        }
        for (index_at, index) in self.rules.index.iter().enumerate() {
            let name = [path, index].concat();
            match self.root.identify(&name) {
                Ok(Named::File(identity)) => {
                    return match self.source(&name) {
                        Some(HiddenSource::Script) => Err(FileOutcome::SourceHidden.into()),
                        Some(HiddenSource::Page) => Err(FileOutcome::NotFound.into()),
                        None => {
                            let seen = self.seen(&name, index_at, identity);
                            Ok((name, seen))
                        }
                    };
                }
                Ok(Named::Folder) | Err(OpenFault::NotFound) => {}
                Err(outcome) => return Err(outcome.into()),
            }
        }
        // The folder exists but has no index, or it does not exist.
        match self.root.identify(path) {
            Ok(Named::Folder) => Err(FileOutcome::NoIndex.into()),
            Ok(Named::File(_)) => Err(FileOutcome::NotFound.into()),
            Err(outcome) => Err(outcome.into()),
        }
    }

    /// Returns the kind of source that `name` is, if it is hidden. All lookups call this, including those of index
    /// files and try lists, because the source of a program is never served.
    fn source(&self, name: &[u8]) -> Option<HiddenSource> {
        self.sources.as_ref()?.hides(name)
    }

    fn seen(&self, name: &[u8], index_at: usize, identity: flatout_os::file::FileIdentity) -> FileMetadata {
        let is_worthwhile = || {
            let (content_type, coding) = stored_type(name, &self.rules.encoded);
            coding == ContentCoding::Identity && is_compressible(&content_type)
        };
        let looks = !self.rules.precompressed.is_empty() && is_worthwhile();
        let codings = if looks { &self.rules.precompressed[..] } else { &[] };
        FileMetadata { index_at, identity, beside: look_beside(&self.root, name, &identity, codings) }
    }

    /// Returns the response with `version`, which is stored under `key`.
    fn answer_with(
        &self,
        version: &Rc<Version>,
        key: &[u8],
        routed: &RoutedRequest<'_>,
        looked: CacheLookup,
    ) -> Handling {
        let outcome = looked.outcome;
        let question = FileRequest::from(routed.request.head);
        let mut grown = false;
        let choice = choose(version, &question, &self.store.services, &mut grown);
        if grown {
            self.store.cache.borrow_mut().recount(key);
        }
        let means = self.store.means(&self.rules, routed.now);
        match choice {
            EncodingChoice::Take(representation, other) => {
                if looked.is_hit && !representation.is_sendable() {
                    // The file has been overwritten in place, so there is a newer version.
                    self.store.cache.borrow_mut().remove(key);
                    let path_bytes = key.len().saturating_sub(8);
                    return match self.find(key, path_bytes, routed.policy, routed.now) {
                        Ok((version, found)) => {
                            // The version is not a hit now, so this does not recurse further.
                            let outcome = if outcome == FileOutcome::Hit { found } else { outcome };
                            self.answer_with(&version, key, routed, CacheLookup { is_hit: false, outcome })
                        }
                        Err(Missing::Slash) => routed.redirect_to_folder(301, FileOutcome::FolderSlash).into(),
                        Err(Missing::Outcome(outcome)) => Refusal::from(outcome).into(),
                    };
                }
                // The outcome of the encoding replaces only these two. Others, such as that of a fallback, take
                // precedence.
                let outcome =
                    other.filter(|_| matches!(outcome, FileOutcome::Hit | FileOutcome::Checked)).unwrap_or(outcome);
                Handling::Now(answer(&means, version, representation, &question, outcome))
            }
            EncodingChoice::Wait(coding, slot) => {
                let waiting = EncodingWait {
                    store: Rc::clone(&self.store),
                    rules: Rc::clone(&self.rules),
                    version: Rc::clone(version),
                    key: key.to_vec(),
                    question: KeptQuestion::new(&question),
                    now: routed.now,
                };
                Handling::later(async move {
                    let mut timer = DeadlineTimer::new(&waiting.store.deadlines);
                    timer.begin(ENCODING_WAIT_MS);
                    waiting.store.deadlines.keep_swept(SWEEP_INTERVAL_MS);
                    // If the encoding is not ready by then, the response is the plain file.
                    let _ = timer.bound(slot.ended()).await;
                    waiting.answer(coding)
                })
            }
        }
    }

    /// Returns the response with the first of `targets` that exists.
    fn try_others(
        &self,
        targets: &[TryTarget],
        asked: &[u8],
        key: &mut Vec<u8>,
        routed: &RoutedRequest<'_>,
    ) -> Option<Handling> {
        for target in targets {
            let text = match target {
                TryTarget::Status(status) => {
                    return Some(Refusal::new(*status, reason(*status), FileOutcome::TryStatus).into());
                }
                TryTarget::File(text) => text,
            };
            key.clear();
            for part in &text.parts {
                match part {
                    TextPart::Literal(literal) => key.extend_from_slice(literal.as_bytes()),
                    TextPart::Variable(variable) => add_variable(key, *variable, asked, routed),
                }
            }
            // Names below the root have no leading slash.
            let slashes = key.iter().take_while(|&&byte| byte == b'/').count();
            key.drain(..slashes);
            if !self.may_name(key) {
                continue;
            }
            let path_bytes = key.len();
            self.add_numbers(key, routed.policy);
            if let Ok((version, outcome)) = self.find(key, path_bytes, routed.policy, routed.now) {
                let outcome = CacheLookup { is_hit: outcome == FileOutcome::Hit, outcome: FileOutcome::Fallback };
                return Some(self.answer_with(&version, key, routed, outcome));
            }
        }
        None
    }

    /// Returns whether a path built from an entry in a try list may be served.
    fn may_name(&self, path: &[u8]) -> bool {
        let segments: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
        segments.iter().enumerate().all(|(at, segment)| match *segment {
            b"." | b".." => false,
            b".well-known" if at == 0 => true,
            [b'.', ..] => self.rules.hidden,
            [] => at + 1 == segments.len(),
            other => !other.contains(&0),
        })
    }

    /// Returns the listing of the folder at `path`, which is read on another thread and cached for as long as a file's
    /// metadata.
    fn list(&self, path: &[u8], routed: &RoutedRequest<'_>) -> Handling {
        let Some(settings) = self.rules.listing else {
            return Refusal::from(FileOutcome::NoIndex).into();
        };
        if routed.is_merged {
            let head = routed.policy.head(200, &[]);
            return Response::new(200, head, Body::Empty, FileOutcome::Listing).into();
        }
        let listing_query = ListingQuery::parse(routed.query, routed.request.head.fields.all("accept"));
        let mut key = path.to_vec();
        // A file name cannot contain NUL, so no file has this key.
        key.extend_from_slice(b"\0list");
        key.extend_from_slice(&listing_query.key());
        self.add_numbers(&mut key, routed.policy);
        let known = match self.store.cache.borrow_mut().get(&key) {
            Some((version, last)) if self.holds(last, self.checked(routed.now), version.settled) => {
                Some(Rc::clone(version))
            }
            _ => None,
        };
        if let Some(version) = known {
            return self.answer_with(&version, &key, routed, FileOutcome::Listing.into());
        }
        let slot = Arc::<LazyValue<Option<(Vec<u8>, i64)>>>::default();
        let LazyState::Yours(making) = slot.begin() else {
            return Refusal::from(FileOutcome::ThreadPoolFull).into();
        };
        let shown = request_path(routed);
        let (root, name, hidden) = (Arc::clone(&self.root), path.to_vec(), self.rules.hidden);
        let unix_s = routed.now.unix_s;
        let submitted = self.store.services.thread_pool.submit(Urgency::Prompt, move || {
            making.start();
            making.finish(listing::make(&root, &name, &shown, hidden, settings.entries_max, listing_query, unix_s));
        });
        if submitted.is_err() {
            return Refusal::from(FileOutcome::ThreadPoolFull).into();
        }
        let (store, rules, policy) = (Rc::clone(&self.store), Rc::clone(&self.rules), Rc::clone(routed.policy));
        let (question, now, checked) =
            (KeptQuestion::new(&FileRequest::from(routed.request.head)), routed.now, self.checked(routed.now));
        Handling::later(async move {
            slot.ended().await;
            let Some(Some((content, modified_s))) = slot.get() else {
                return Err(FileOutcome::FileFailed.into());
            };
            let content_type = listing::content_type(listing_query);
            let version = Rc::new(Version::of_content(content.clone(), content_type, &rules, &policy, *modified_s));
            store.cache.borrow_mut().insert(&key, Rc::clone(&version), checked);
            let means = store.means(&rules, now);
            question.ask(|question| answer(&means, &version, &version.plain, question, FileOutcome::ListingRead))
        })
    }
}

/// A response that waits for its encoding.
struct EncodingWait {
    store: Rc<FileStore>,
    rules: Rc<FileRules>,
    version: Rc<Version>,
    key: Vec<u8>,
    question: KeptQuestion,
    now: Now,
}

impl EncodingWait {
    fn answer(&self, coding: ContentCoding) -> Result<Response, Refusal> {
        let mut grown = false;
        let standing = self.version.offer(coding).map(|offer| self.version.standing(offer, &mut grown));
        let (representation, outcome) = match standing {
            Some(EncodingState::Ready(representation)) => (representation, FileOutcome::EncodedFirst),
            // The encoding took too long or failed.
            Some(EncodingState::Possible) => (&self.version.plain, FileOutcome::EncodingPending),
            Some(EncodingState::Useless) | None => (&self.version.plain, FileOutcome::Loaded),
        };
        if grown {
            self.store.cache.borrow_mut().recount(&self.key);
        }
        let means = self.store.means(&self.rules, self.now);
        self.question.ask(|question| answer(&means, &self.version, representation, question, outcome))
    }
}

/// Returns the decoded path of the client's request, for display.
fn request_path(routed: &RoutedRequest<'_>) -> Vec<u8> {
    let path = match routed.request.head.target {
        Target::Resource { path, .. } if path.ends_with(b"/") => path,
        _ => routed.path,
    };
    let mut decoded = Vec::new();
    // The path was decoded successfully before.
    let _ = decode_path(path, &mut decoded);
    decoded.insert(0, b'/');
    decoded
}

/// Appends the value of `variable` in an entry of a try list.
fn add_variable(key: &mut Vec<u8>, variable: Variable, asked: &[u8], routed: &RoutedRequest<'_>) {
    match variable {
        Variable::Path | Variable::Uri => {
            key.push(b'/');
            key.extend_from_slice(asked);
        }
        Variable::Host | Variable::HostPort => {
            let host = routed.request.head.host.unwrap_or_default();
            let name = if variable == Variable::Host { split_port(host).0 } else { host };
            key.extend(name.iter().map(u8::to_ascii_lowercase));
        }
        Variable::Scheme => key.extend_from_slice(if routed.request.secure { b"https" } else { b"http" }),
        Variable::Query => key.extend_from_slice(routed.query.unwrap_or_default()),
        // The configuration rejects these variables in try lists.
        Variable::Client | Variable::Rest => {}
    }
}
