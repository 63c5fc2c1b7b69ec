//! Handling of a request: selects the site by listener and host, decodes the path, and executes the site's steps in
//! order.
//!
//! Routes are matched against the path decoded once and without dot segments. If another server could interpret the
//! path differently, and that interpretation would match different routes, the request is refused (see `readings`).
//! Therefore, no encoding can bypass a route, however the origin interprets the path, which it receives as it was sent.

mod action;
mod error_pages;
mod guard;
mod handlers;
mod https;
mod php;
pub(crate) mod readings;
mod record;
mod rest;

use crate::answer::{ALLOW, no_content, redirect};
use crate::engine::Live;
use crate::forwarded::resolve_forwarded;
use crate::outcome::RouteOutcome;
use crate::spec::{Change, SiteSpec};
use crate::step::{Block, Kind, Route, Step};
use crate::text::render_value;
use action::Action;
use flatout_handler::later::{PagesInForce, Seal, hold};
use flatout_handler::response::{LogFacts, LoggedClient, Response};
use flatout_handler::routed::{Handling, HeaderPolicy, Refusal, RoutedRequest};
use flatout_handler::{LaterResponse, Reply, Request};
use flatout_http::lines::write_line;
use flatout_http::path::PathFacts;
use flatout_http::refusal::Refusal as PathRefusal;
use flatout_http::request::{Method, RequestHead};
use flatout_http::target::Target;
use flatout_os::clock::Now;
use flatout_overload::ClientPermit;
use flatout_proxy::forward::ALLOW_FORWARDED;
use flatout_serve::outcome::FileOutcome;
use https::{is_https, redirect_https};
use readings::{Reading, ambiguous};
pub(crate) use record::{Effect, Recorder};
use rest::Rest;
use std::borrow::Cow;
use std::ops::{ControlFlow, Range};
use std::rc::Rc;

/// Results of password verifications, with which a request is handled again from the beginning.
#[derive(Clone, Debug)]
pub(crate) struct Resumed {
    /// Steps whose password was correct, by number, each with the user.
    right: Vec<(u32, Rc<str>)>,
    /// The step whose password was wrong or could not be verified.
    failed: Option<(u32, guard::PasswordFailure)>,
}

/// Responds to `request`, or records its handling in `recorder`. `resumed` contains the results of the password
/// verifications since the request arrived.
pub(crate) fn answer(
    live: &Rc<Live>,
    request: &Request<'_>,
    now: Now,
    mut recorder: Option<&mut Recorder>,
    resumed: Option<Resumed>,
) -> Reply {
    let listener = live.spec.listeners.get(request.listener as usize);
    let original = resolve_forwarded(request, &live.spec.trusted).request;
    let client = logged_client(request, &original);
    let log = listener.map_or(0, |listener| listener.log);
    let refuse = |failure: Refusal| {
        let mut response = failure.respond(None, &HeaderPolicy::default());
        response.logged = LogFacts { log, client, ..LogFacts::default() };
        Reply::Now(response)
    };
    let head = request.head;
    let early = match (head.method, head.target) {
        (Method::Connect | Method::Unknown(_), _) | (_, Target::Authority(_)) => Some(method_unknown()),
        (Method::Known("TRACE"), _) => Some(trace_not_allowed(ALLOW)),
        _ => None,
    };
    let (path, query) = match head.target {
        // The target of CONNECT does not identify a site.
        Target::Authority(_) => (&b"/"[..], None),
        Target::Asterisk if early.is_some() => (&b"/"[..], None),
        Target::Asterisk => {
            let site = listener.and_then(|listener| live.spec.sites.get(listener.hosts.find(head.host)?.0 as usize));
            let forwards = site.map_or_else(|| live.spec.sites.iter().any(|site| site.forwards), |site| site.forwards);
            let allow = if forwards { ALLOW_FORWARDED } else { ALLOW };
            let mut response = no_content(&[("Allow", allow)], &HeaderPolicy::default(), FileOutcome::Options);
            response.logged = LogFacts { log, client, ..LogFacts::default() };
            return Reply::Now(response);
        }
        Target::Resource { path, query } => (path, query),
    };
    let host = head.host;
    let unknown = || Refusal::new(421, "This server has no site with that name.", RouteOutcome::SiteUnknown);
    let Some(listener) = listener else { return refuse(early.unwrap_or_else(unknown)) };
    if early.is_none()
        && let Some(port) = listener.redirect_https_port
        && !is_https(live, request)
        && let Some(reply) = redirect_https(live, listener, port, host, path, query)
    {
        return match reply {
            Ok(mut response) => {
                response.logged.client = client;
                response.into()
            }
            Err(failure) => refuse(failure),
        };
    }
    let site =
        listener.hosts.find(host).and_then(|(site, matched)| Some((live.spec.sites.get(site as usize)?, matched)));
    let Some((site, matched)) = site else { return refuse(early.unwrap_or_else(unknown)) };
    if let Some(recorder) = &mut recorder {
        recorder.record_site(site, matched);
    }
    let mut scratch = std::mem::take(&mut *live.scratch.borrow_mut());
    scratch.pages.clear();
    let mut walk = Walk {
        live,
        site,
        request,
        original,
        now,
        host,
        path: Cow::Borrowed(path),
        query: query.map(Cow::Borrowed),
        decoded: scratch.decoded,
        rewrites: 0,
        is_bare: false,
        removed: Vec::new(),
        before: Vec::new(),
        rest: None,
        depth: 0,
        policy: 0,
        cache: None,
        facts: PathFacts::default(),
        has_empty_segment: false,
        readings: Vec::new(),
        pages: scratch.pages,
        links: None,
        rendered: Vec::new(),
        user: None,
        passed: None,
        resumed,
        resumed_past: false,
        recorder,
    };
    let reply = match early {
        // Origins may support methods that this server does not know.
        Some(_) if site.forwards && is_extension(head) => walk.run(path),
        Some(_) if site.forwards && head.method == Method::Known("TRACE") => {
            walk.answer_early(&trace_not_allowed(ALLOW_FORWARDED)).into()
        }
        Some(failure) => walk.answer_early(&failure).into(),
        None => walk.run(path),
    };
    let reply = walk.finish(reply);
    let Walk { mut decoded, pages, .. } = walk;
    // Long paths are rare, so do not retain a large buffer.
    decoded.shrink_to(1024);
    *live.scratch.borrow_mut() = crate::engine::Scratch { decoded, pages };
    reply
}

fn method_unknown() -> Refusal {
    Refusal::new(501, "This server does not support that method.", FileOutcome::MethodUnknown)
}

/// Returns whether the method is unknown to this server, but may be known to an origin, and the target is a resource.
fn is_extension(head: &RequestHead<'_>) -> bool {
    matches!((head.method, head.target), (Method::Unknown(_), Target::Resource { .. }))
}

pub(crate) fn method_not_allowed() -> Refusal {
    let text = "This address supports only GET and HEAD.";
    Refusal::new(405, text, FileOutcome::MethodNotAllowed).with("Allow", ALLOW)
}

/// Returns the refusal of TRACE, which would disclose fields added by proxies and is therefore not forwarded either.
/// `allow` lists the supported methods.
fn trace_not_allowed(allow: &str) -> Refusal {
    Refusal::new(405, "This server does not allow TRACE.", FileOutcome::MethodNotAllowed).with("Allow", allow)
}

/// Returns the client of a request for the log, if `original` is the request as its client sent it.
fn logged_client(request: &Request<'_>, original: &Request<'_>) -> LoggedClient {
    match (original.client, request.client) {
        (Some(client), peer) if peer.is_none_or(|peer| peer.ip() != client.ip()) => LoggedClient::At(client.ip()),
        (None, Some(_)) => LoggedClient::Unknown,
        _ => LoggedClient::Peer,
    }
}

fn host_needed() -> Refusal {
    Refusal::new(400, "The request must name a host.", RouteOutcome::HostNeeded)
}

/// State of a request that is being handled.
pub(crate) struct Walk<'w> {
    live: &'w Rc<Live>,
    site: &'w SiteSpec,
    request: &'w Request<'w>,
    /// The request as its client sent it, according to the proxies that all sites trust.
    original: Request<'w>,
    now: Now,
    host: Option<&'w [u8]>,
    /// The current path, percent-encoded.
    path: Cow<'w, [u8]>,
    query: Option<Cow<'w, [u8]>>,
    /// The current path, decoded and without its leading slash.
    decoded: Vec<u8>,
    /// Number of rewrites. `before` contains the path before each of them.
    rewrites: u32,
    before: Vec<Cow<'w, [u8]>>,
    /// True if the last rewrite has removed a prefix of which the whole path consisted.
    is_bare: bool,
    /// The prefixes that rewrites have removed.
    removed: Vec<u8>,
    rest: Option<Rest>,
    /// Number of routes that enclose the current step.
    depth: usize,
    /// Node of the header steps in force, in [`crate::policy::Policies`].
    policy: u32,
    /// Index of the `cache` step in force.
    cache: Option<u32>,
    /// Properties of the decoded path.
    facts: PathFacts,
    /// True if the path that the client sent has an empty segment.
    has_empty_segment: bool,
    /// Other interpretations of the path. Usually empty.
    readings: Vec<Reading>,
    /// Indices of the error pages in force. If there are several for a status, the last one applies.
    pages: Vec<u32>,
    links: Option<Rc<Vec<String>>>,
    /// Response fields whose values depend on the request.
    rendered: Vec<(&'w str, Vec<u8>)>,
    user: Option<Rc<str>>,
    /// The failure of the last `files` step with `pass`.
    passed: Option<Refusal>,
    resumed: Option<Resumed>,
    /// True if handling has passed the point at which it was suspended for a password verification.
    resumed_past: bool,
    /// Recorder; present if the request is explained rather than handled.
    recorder: Option<&'w mut Recorder>,
}

impl<'w> Walk<'w> {
    fn run(&mut self, path: &[u8]) -> Reply {
        if let Err(refusal) = self.read_path(path) {
            self.enter_unasked(&self.site.block);
            return self.refuse_path(refusal).into();
        }
        // If the path may be for another server, which may distinguish empty segments, the handler that responds decides.
        self.has_empty_segment = self.facts.empty_segment;
        if self.has_empty_segment && !self.site.keeps_empty_segments {
            self.enter_unasked(&self.site.block);
            return self.redirect_merged().into();
        }
        let site = self.site;
        if let Some(reply) = self.walk_block(&site.block) {
            return reply;
        }
        let failure = self.passed.take().unwrap_or_else(unrouted);
        if self.request.head.method == Method::Options {
            return self.answer_options().into();
        }
        self.fail(&failure).into()
    }

    /// Responds to a request that reaches no step.
    fn answer_early(&mut self, failure: &Refusal) -> Response {
        self.enter_unasked(&self.site.block);
        self.fail(failure)
    }

    /// Applies the steps before the first handler that concern every response of the site, however it is created:
    /// unconditional header steps, such as those for HSTS, and error pages. Returns whether a handler was reached.
    fn enter_unasked(&mut self, block: &'w Block) -> bool {
        block.steps.iter().any(|step| {
            match &step.kind {
                Kind::Header(change) => return self.obey(step, Action::Change(*change)).is_some(),
                // Browsers check CORS for each response of a redirect chain.
                Kind::Cors(cors) => {
                    let change = cors.first_change + cors.decide(self.request.head).0;
                    return self.obey(step, Action::Change(change)).is_some();
                }
                Kind::ErrorPage(page) => self.pages.push(*page),
                Kind::Route(route) if route.is_unconditional() => return self.enter_unasked(&route.block),
                Kind::Files { pass: false, .. }
                | Kind::Redirect { .. }
                | Kind::Respond { .. }
                | Kind::Metrics
                | Kind::Proxy(_) => return true,
                _ => {}
            }
            false
        })
    }

    /// Responds to a request whose path is invalid and must not reach any step.
    fn refuse_path(&mut self, refusal: PathRefusal) -> Response {
        match self.request.head.method {
            Method::Options => self.answer_options(),
            // If the site forwards requests, any method may be valid, so report the path.
            method if self.site.forwards || matches!(method, Method::Get | Method::Head) => {
                self.fail(&path_refused(refusal))
            }
            _ => self.fail(&method_not_allowed()),
        }
    }

    /// Returns whether the method is GET or HEAD.
    const fn reads(&self) -> bool {
        matches!(self.request.head.method, Method::Get | Method::Head)
    }

    /// Returns whether a file is requested by a path with an empty segment.
    const fn is_merged(&self) -> bool {
        self.has_empty_segment && self.reads()
    }

    /// Returns the path and the query that the client has sent.
    const fn requested(&self) -> (&'w [u8], Option<&'w [u8]>) {
        match self.request.head.target {
            Target::Resource { path, query } => (path, query),
            _ => (b"/", None),
        }
    }

    fn answer_options(&mut self) -> Response {
        no_content(&[("Allow", ALLOW)], &self.policy(), FileOutcome::Options)
    }

    /// Returns the request in the form that handlers receive.
    fn routed<'a>(&'a self, request: &'a Request<'a>, policy: &'a Rc<HeaderPolicy>) -> RoutedRequest<'a> {
        RoutedRequest {
            request,
            path: &self.path,
            decoded: &self.decoded,
            facts: self.facts,
            is_bare: self.is_bare,
            removed: &self.removed,
            is_merged: self.is_merged(),
            query: self.query.as_deref(),
            policy,
            user: self.user.as_deref(),
            site: self.site.name.as_deref(),
            server: self.live.spec.listeners.get(request.listener as usize).and_then(|on| on.address.as_ref()?.ip()),
            host: None,
            port: None,
            now: self.now,
        }
    }

    /// Turns a handler's result into a reply. Returns `None` if the handler passes the request to the next step.
    fn settle(&mut self, handling: Handling) -> Option<Reply> {
        self.settle_admitted(handling, None)
    }

    /// Turns a handler's result into a reply that holds `permit` until the response has been sent. Returns `None` if
    /// the handler passes the request to the next step.
    fn settle_admitted(&mut self, handling: Handling, permit: Option<ClientPermit>) -> Option<Reply> {
        match handling {
            Handling::Pass => None,
            Handling::Now(Ok(mut response)) => {
                hold(&mut response, permit);
                Some(response.into())
            }
            Handling::Now(Err(refusal)) => Some(self.fail(&refusal).into()),
            Handling::Later(pending) => {
                let site = Rc::clone(self.live);
                let pages = PagesInForce { site, numbers: self.pages.clone(), policy: self.policy(), now: self.now };
                Some(Reply::Later(LaterResponse::of_handler(pending, pages, permit)))
            }
        }
    }

    fn policy(&self) -> Rc<HeaderPolicy> {
        Rc::clone(self.live.policies.borrow().policy(self.policy))
    }

    fn walk_block(&mut self, block: &'w Block) -> Option<Reply> {
        if self.recorder.is_some() || !self.readings.is_empty() {
            // Do not use the index, which would skip steps that must be recorded or that match another interpretation
            // of the path.
            return block.steps.iter().find_map(|step| self.walk_step(step));
        }
        let mut rewrites = self.rewrites;
        let mut candidates = block.index.candidates(&self.decoded, 0);
        while let Some(index) = candidates.next() {
            if let Some(reply) = self.walk_step(block.steps.get(index as usize)?) {
                return Some(reply);
            }
            if self.rewrites != rewrites {
                if !self.readings.is_empty() {
                    return block.steps.iter().skip(index as usize + 1).find_map(|step| self.walk_step(step));
                }
                rewrites = self.rewrites;
                candidates = block.index.candidates(&self.decoded, index + 1);
            }
        }
        None
    }

    fn walk_step(&mut self, step: &'w Step) -> Option<Reply> {
        let action = self.decide(step)?;
        self.obey(step, action)
    }

    /// Performs `action`, the action of `step`. Returns the reply, if the action responds.
    fn obey(&mut self, step: &'w Step, action: Action<'w>) -> Option<Reply> {
        if let Some(recorder) = self.recorder.take() {
            let flow = recorder.record(self, step, &action);
            self.recorder = Some(recorder);
            if let ControlFlow::Break(reply) = flow {
                return reply;
            }
        }
        let response = match action {
            Action::Skip(route, _) => {
                self.note_skipped(route);
                return None;
            }
            Action::KeepPath | Action::Access { allowed: true, .. } => return None,
            Action::Enter(route, rest) => return self.enter(route, rest),
            Action::RefuseAmbiguous => self.fail(&ambiguous()),
            Action::Refuse(refusal) => self.fail(&refusal),
            Action::MergeSlashes => self.redirect_merged(),
            Action::Change(change) => {
                self.add_change(change);
                return None;
            }
            Action::Hint(hints) => {
                self.links = Some(match self.links.take() {
                    None => Rc::clone(hints),
                    Some(before) => Rc::new(before.iter().chain(hints.iter()).cloned().collect()),
                });
                return None;
            }
            Action::UsePage(page) => {
                self.pages.push(page);
                return None;
            }
            Action::UseCache(rules) => {
                self.cache = Some(rules);
                return None;
            }
            Action::Rewrite { path, query, removed, is_bare } => {
                self.is_bare = is_bare;
                self.removed.extend_from_slice(removed.as_bytes());
                self.rewrite(path, query)?
            }
            Action::Access { allowed: false, .. } => {
                self.fail(&Refusal::new(403, "Access denied.", RouteOutcome::AccessDenied))
            }
            Action::Count(table) => self.check_rate(table)?,
            Action::Cors { cors, change, allowed } => {
                self.add_change(change);
                self.preflight(cors, allowed)?
            }
            Action::Authenticate(id, auth) => return self.check_password(id, auth),
            Action::Files { files, pass, .. } => match files.handle(&self.routed(self.request, &self.policy())) {
                Handling::Now(Err(refusal)) if pass && matches!(refusal.status, 404 | 405) => {
                    return self.obey(step, Action::PassOn(refusal));
                }
                // Each file has only one address.
                Handling::Now(Ok(_)) | Handling::Later(_) if self.is_merged() => self.redirect_merged(),
                handling => return self.settle(handling),
            },
            Action::PassOn(refusal) => {
                self.passed = Some(refusal);
                return None;
            }
            Action::Redirect { id, status, location } => {
                let (policy, outcome) = (self.policy(), RouteOutcome::Redirected);
                match location {
                    Cow::Borrowed(location) => {
                        self.live.prebuilt(id, &policy, || redirect(status, location, &policy, outcome))
                    }
                    Cow::Owned(location) => redirect(status, location, &policy, outcome),
                }
            }
            Action::Respond(id, respond) => self.answer_respond(id, respond),
            Action::Metrics => self.answer_metrics(),
            Action::Forward(proxy, cache) => {
                let trusted = proxy.trusted();
                let permit = match self.admit(|| resolve_forwarded(self.request, trusted).request.client, trusted) {
                    Ok(permit) => permit,
                    Err(refusal) => return Some(self.fail(&refusal).into()),
                };
                let handling = self.live.proxy.handle(proxy, cache, &self.routed(self.request, &self.policy()));
                return self.settle_admitted(handling, permit);
            }
            Action::RunPage(folder) => return self.answer_page(folder),
            Action::RunScript(index, php) => return self.answer_php(index, php),
        };
        Some(response.into())
    }

    /// Executes the steps of `route`. `part` is the range of the path that its last star matched, if it has a path
    /// condition.
    fn enter(&mut self, route: &'w Route, part: Option<Range<usize>>) -> Option<Reply> {
        let outer = self.rest.clone();
        if let Some(part) = part {
            self.rest = Some(Rest::new(&self.decoded, part, self.rewrites));
        }
        self.depth += 1;
        let reply = self.walk_block(&route.block);
        self.depth -= 1;
        self.rest = outer;
        reply
    }

    /// Replaces the path, and the query unless it is `None`. Returns a response if the path is invalid.
    fn rewrite(&mut self, path: Vec<u8>, query: Option<Vec<u8>>) -> Option<Response> {
        if let Some(query) = query {
            // An empty query after `?` removes the request's query.
            self.query = (!query.is_empty()).then(|| query.into());
        }
        self.rewrites = self.rewrites.wrapping_add(1);
        let read = self.read_path(&path);
        self.before.push(std::mem::replace(&mut self.path, path.into()));
        Some(self.fail(&path_refused(read.err()?)))
    }

    fn add_change(&mut self, change: u32) {
        if let Some(changes) = self.live.spec.changes.get(change as usize) {
            self.policy = self.live.policies.borrow_mut().extend(self.policy, change, &changes.fields);
            if !(changes.rendered.is_empty() && self.rendered.is_empty()) {
                self.render_fields(changes);
            }
        }
    }

    #[cold]
    fn render_fields(&mut self, changes: &'w Change) {
        for change in &changes.fields {
            self.rendered.retain(|(name, _)| !change.removes(name.as_bytes()));
        }
        let variables = self.variables();
        let rendered = changes.rendered.iter().map(|(name, text)| (name.as_str(), render_value(text, &variables)));
        let rendered: Vec<_> = rendered.collect();
        self.rendered.extend(rendered);
    }

    /// Adds early hints, rendered fields and log data to the reply.
    fn finish(&self, reply: Reply) -> Reply {
        match reply {
            Reply::Now(mut response) => {
                self.seal().put_on(&mut response);
                Reply::Now(response)
            }
            Reply::Later(response) => Reply::Later(response.with_seal(self.seal())),
        }
    }

    fn rendered_lines(&self) -> Vec<u8> {
        let mut lines = Vec::new();
        for (name, value) in &self.rendered {
            write_line(name, value, &mut lines);
        }
        lines
    }

    fn seal(&self) -> Seal {
        let site = self.live.site_name(self.site);
        Seal {
            facts: LogFacts {
                log: self.site.log,
                client: logged_client(self.request, &self.original),
                site,
                user: self.user.clone(),
                cache: None,
            },
            links: self.links.clone(),
            lines: self.rendered_lines(),
        }
    }
}

fn path_refused(refusal: PathRefusal) -> Refusal {
    let outcome = if refusal == PathRefusal::TargetNul { FileOutcome::TargetNul } else { FileOutcome::PathAboveRoot };
    Refusal::new(refusal.status(), refusal.text(), outcome)
}

fn unrouted() -> Refusal {
    Refusal::new(404, "There is nothing at this address.", RouteOutcome::Unrouted)
}
