//! The recorder of `explain`, which describes the actions of a request and prevents those that would have effects
//! outside this process.

use super::Walk;
use super::action::Action;
use crate::explain::{Explanation, PhpExplanation, ProxyExplanation, StepExplanation};
use crate::host::Match;
use crate::spec::{FilesSpec, OpenedFolder, PageSpec, SiteSpec};
use crate::step::{Kind, Mismatch, Step};
use crate::text::Template;
use flatout_cache::reason::NoStore;
use flatout_cache::request::CacheRequest;
use flatout_config::model::{EncodedExtension, FieldOp, Place, TryTarget};
use flatout_fastcgi::Meaning;
use flatout_handler::Reply;
use flatout_http::encoding::ContentCoding;
use flatout_http::path::{SLASH_IN_SEGMENT, decode_path};
use flatout_os::root::{Named, Root};
use flatout_proxy::explain::Sought;
use flatout_proxy::{CacheStep, ProxyStep};
use flatout_serve::media::{read_beginning, served_type};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Effect of a step on the request.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
pub(crate) enum Effect {
    /// The route applies.
    #[display("matches")]
    Matched,
    /// The route does not apply.
    #[display("does not match: {}", _0.text())]
    NotMatched(Mismatch),
    /// The effect of any other step, as text.
    #[display("{_0}")]
    Said(String),
}

/// Records the actions of a request. While it is in use, no counters change, no password is verified, no origin or
/// program receives a request, and steps that the index would skip are examined too.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) explanation: Explanation,
    /// Header operations that were applied, each with the place of its step.
    pub(crate) changes: Vec<(Place, FieldOp)>,
}

impl Recorder {
    pub(super) fn record_site(&mut self, site: &SiteSpec, matched: Match) {
        let why = match matched {
            Match::Exact => "it has the requested host name",
            Match::Suffix => "it has the longest `*.` name that matches the host",
            Match::Any => "no other site matches the host name, and this one is `*`",
            Match::OnlySite => "the request has no host, and the listener has only this site",
        };
        self.explanation.site = Some((site.hosts.join(" "), why, site.place.clone()));
    }

    pub(super) fn record_page(&mut self, page: &PageSpec) {
        self.explanation.page = Some((page.path.trim_start_matches('/').to_owned(), page.place.clone()));
    }

    /// Records `action`. Returns `Continue` if it may be performed. Otherwise, returns the reply that replaces it, if
    /// any.
    pub(super) fn record(&mut self, walk: &Walk<'_>, step: &Step, action: &Action<'_>) -> ControlFlow<Option<Reply>> {
        let mut flow = ControlFlow::Continue(());
        let responds_elsewhere = || ControlFlow::Break(Some(Reply::later(std::future::pending())));
        let text = match action {
            Action::Enter(..) => return self.add_row(walk, step, Effect::Matched, flow),
            Action::Skip(_, mismatch) => return self.add_row(walk, step, Effect::NotMatched(*mismatch), flow),
            Action::Refuse(_) => return flow,
            Action::RefuseAmbiguous => {
                "ambiguous: refused, because another spelling of the path, or the plain name of its script or page, leads elsewhere"
                    .to_owned()
            }
            Action::MergeSlashes => "the path has an empty segment".to_owned(),
            Action::Change(change) => {
                self.add_changes(walk, *change);
                // A response that no step creates also has the fields of `cors`, which have their own row.
                if !matches!(step.kind, Kind::Header(_)) {
                    return flow;
                }
                "applies to all later steps".to_owned()
            }
            Action::UsePage(_) | Action::UseCache(_) => "applies to all later steps".to_owned(),
            Action::Hint(_) => "added".to_owned(),
            Action::KeepPath => "does not apply: the path does not begin with this prefix".to_owned(),
            Action::Rewrite { path, .. } => format!("the path is now {}", String::from_utf8_lossy(path)),
            Action::Access { allowed, rule } => {
                let verdict = if *allowed { "allowed" } else { "denied" };
                match rule {
                    Some(rule) => format!("{verdict} by rule {}", rule + 1),
                    None => format!("{verdict}, because no rule matches the address"),
                }
            }
            Action::Count(table) => {
                flow = ControlFlow::Break(None);
                let limit = table.limit();
                let (requests, period_ms, burst) = (limit.requests, limit.period_ms, limit.burst);
                format!("{requests} requests in {period_ms} ms, {burst} at once; this request is not counted")
            }
            Action::Cors { change, allowed, .. } => {
                self.add_changes(walk, *change);
                let text = match (allowed, walk.request.head.fields.first("origin")) {
                    (true, _) => "allowed",
                    (false, Some(_)) => "the origin is not allowed",
                    (false, None) => "the request has no Origin",
                };
                text.to_owned()
            }
            Action::Authenticate(..) => {
                flow = ControlFlow::Break(None);
                "requires a user name and password; assumed to be correct".to_owned()
            }
            Action::Files { spec, .. } => {
                self.add_files(walk, spec);
                format!("looks in {}", spec.settings.root.display())
            }
            Action::PassOn(refusal) => format!("{}: passes the request to the next step", refusal.text),
            Action::Redirect { status, location, .. } => format!("responds with {status} to {location}"),
            Action::Respond(_, settings) => format!("responds with {}", settings.status),
            Action::Metrics => "responds with the metrics".to_owned(),
            Action::Forward(proxy, cache) => {
                flow = responds_elsewhere();
                self.explanation.proxy = Some(explain_forwarding(walk, step, proxy, *cache));
                format!("forwards to {}", proxy.describe())
            }
            Action::RunPage(folder) => {
                if let Some(name) = folder.name_of(&walk.decoded, walk.facts) {
                    flow = responds_elsewhere();
                    self.explanation.runs = true;
                    self.explanation.outcome = ("page", "An active page responds; its code determines the response.");
                    format!("runs {}", folder.step().folder().join(name).display())
                } else {
                    flow = ControlFlow::Break(None);
                    "no page has this name: passes the request to the next step".to_owned()
                }
            }
            Action::RunScript(_, php) => match php.step.find(&walk.decoded) {
                Meaning::Pass(reason) => format!("{}: passes the request to the next step", reason.text()),
                Meaning::Slash => "redirects to the folder's path with a trailing slash".to_owned(),
                Meaning::Script(script, rest) => {
                    flow = responds_elsewhere();
                    self.explanation.runs = true;
                    self.explanation.outcome = ("php", "A script responds; its code determines the response.");
                    // Only in the process that serves.
                    let is_in_force = walk.live.spec.accelerator.events().has_listener();
                    let state = is_in_force.then(|| php.step.describe_state());
                    self.explanation.php = Some(PhpExplanation { server: php.step.describe(), state, unknown: None });
                    let path_info = walk.decoded.get(rest).unwrap_or_default();
                    let path_info = String::from_utf8_lossy(path_info).replace(char::from(SLASH_IN_SEGMENT), "/");
                    let suffix = if path_info.is_empty() { String::new() } else { format!(", PATH_INFO {path_info}") };
                    format!("runs {} on {}{suffix}", php.step.show_file(&script), php.step.describe())
                }
            },
        };
        self.add_row(walk, step, Effect::Said(text), flow)
    }

    /// Adds a row for `step`, and returns `flow`.
    fn add_row<F>(&mut self, walk: &Walk<'_>, step: &Step, effect: Effect, flow: F) -> F {
        let (place, written) = (step.place.clone(), step.written.to_string());
        self.explanation.steps.push(StepExplanation { place, depth: walk.depth, written, effect });
        flow
    }

    fn add_changes(&mut self, walk: &Walk<'_>, change: u32) {
        if let Some(change) = walk.live.spec.changes.get(change as usize) {
            self.changes.extend(change.fields.iter().map(|field| (change.place.clone(), field.clone())));
        }
    }

    /// Adds the files that a `files` step looks up: those for the path, its index files, and the try targets.
    fn add_files(&mut self, walk: &Walk<'_>, spec: &FilesSpec) {
        let (decoded, root, variables) = (&walk.decoded, spec.settings.root.display(), walk.variables());
        let targets = |targets: &[TryTarget]| {
            let render = |target: &TryTarget| {
                let TryTarget::File(text) = target else { return None };
                let path = Template::new(text).render(&variables).ok()?;
                let path = path.split(|&byte| byte == b'?').next().unwrap_or_default();
                let mut decoded = Vec::new();
                decode_path(path, &mut decoded).ok().map(|_| decoded)
            };
            targets.iter().filter_map(render).collect::<Vec<_>>()
        };
        let (before, after) = spec.settings.split_tries();
        let mut names = targets(before);
        names.push(decoded.clone());
        if decoded.is_empty() || decoded.ends_with(b"/") {
            names.extend(spec.settings.index.iter().map(|index| [decoded, index.as_bytes()].concat()));
        }
        names.extend(targets(after));
        let (path, shown) = (&spec.settings.root, root.to_string());
        let opened = walk.live.spec.folders.iter().find(|folder| folder.path == *path);
        if let Some(is) = opened.and_then(|folder| describe_replaced(&folder.opened()))
            && !self.explanation.replaced.iter().any(|(name, _)| *name == shown)
        {
            self.explanation.replaced.push((shown, is));
        }
        self.explanation.files.extend(names.iter().map(|name| {
            (
                format!("{root}/{}", String::from_utf8_lossy(name)),
                describe_name(&spec.root, name, &spec.settings.encoded),
            )
        }));
    }
}

/// Describes the upstream request, and the state of the store, which contains responses only in a running process.
fn explain_forwarding(
    walk: &Walk<'_>,
    step: &Step,
    proxy: &Arc<ProxyStep>,
    cache: Option<&Arc<CacheStep>>,
) -> ProxyExplanation {
    let (request, path, query) = (walk.request, &*walk.path, walk.query.as_deref());
    let refusal = match cache {
        None => Some(("No cache applies to this request.", "Write a `cache` directive before the `proxy` directive.")),
        Some(cache) => (!cache.is_enabled()).then_some((NoStore::Off.text(), NoStore::Off.change())),
    };
    let kept = cache.zip(request.head.host).and_then(|(cache, authority)| {
        let forwarding = proxy.forwarding(request.sender());
        proxy.without_sticky(request.head.fields, |fields| {
            let request = CacheRequest {
                method: request.head.method.as_str(),
                secure: request.secure,
                authority,
                path,
                query,
                fields,
                has_content: false,
                forwarding: &forwarding,
            };
            walk.live.spec.accelerator.explain(proxy, cache, &Sought { request, now: walk.now })
        })
    });
    // Only in the process that serves.
    let is_in_force = walk.live.spec.accelerator.steps().iter().any(|step| Arc::ptr_eq(step, proxy));
    let standings = if is_in_force { proxy.standings() } else { Vec::new() };
    let mut target = String::from_utf8_lossy(path).into_owned();
    if let Some(query) = query {
        target.push('?');
        target.push_str(&String::from_utf8_lossy(query));
    }
    ProxyExplanation {
        origins: proxy.describe(),
        states: standings.iter().map(|origin| format!("{}: {}", origin.address, origin.text)).collect(),
        balance: proxy.describe_balance(),
        realm: cache.map_or_else(|| proxy.name().to_owned(), |cache| proxy.realm_with(cache)),
        refusal,
        kept,
        unknown: None,
        place: step.place.clone(),
        target,
    }
}

/// Describes why `opened` is still served, if its path names another folder now.
fn describe_replaced(opened: &OpenedFolder) -> Option<String> {
    let why = opened.describe_foreign(&opened.replacement()?);
    Some(match why {
        Some(why) => format!(
            "is another folder now, but the earlier one remains in use, because the new one {why}; to serve it, run \
             flatout reload"
        ),
        None => "is another folder now; the earlier one is in use until flatout opens the new one".to_owned(),
    })
}

/// Describes the file called `name` below `root`, or why it cannot be opened.
fn describe_name(root: &Root, name: &[u8], encoded: &[EncodedExtension]) -> String {
    match root.identify(name) {
        Ok(Named::File(identity)) => {
            let opened = root.open_file(name);
            let beginning = || opened.as_ref().ok().and_then(|(fd, _)| read_beginning(fd));
            let (media, coding) = served_type(name, encoded, beginning);
            let coding = match coding {
                ContentCoding::Identity => String::new(),
                coding => format!(", stored with the coding {}", coding.name()),
            };
            let readable = if opened.is_ok() { "" } else { ", which flatout cannot read" };
            format!("a file of {} bytes, {media}{coding}{readable}", identity.size_bytes)
        }
        Ok(Named::Folder) => "a folder".to_owned(),
        Err(fault) => flatout_serve::outcome::FileOutcome::from(fault)
            .text()
            .split(": ")
            .next()
            .unwrap_or_default()
            .trim_end_matches('.')
            .to_owned(),
    }
}
