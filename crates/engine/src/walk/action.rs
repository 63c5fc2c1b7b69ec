//! Decision about the action of each step, based only on the request and the configuration.
//!
//! Deciding has no side effects and, apart from rendered text and paths, does not allocate. `Walk::obey` performs the
//! actions, and `explain` records them.

use super::{Rest, Walk, host_needed, is_extension, method_unknown};
use crate::auth::Auth;
use crate::cors::Cors;
use crate::network::decide_access;
use crate::rate::RateTable;
use crate::spec::{FilesSpec, PhpSpec};
use crate::step::{Kind, Mismatch, Rewrite, Route, Step};
use crate::text::{HostMissing, Template, Variables};
use flatout_config::model::Respond;
use flatout_handler::routed::Refusal;
use flatout_http::path::{Readings, encode_location, normalize_path, raw_offset};
use flatout_http::target::Target;
use flatout_pages::PageFolder;
use flatout_proxy::{CacheStep, ProxyStep};
use flatout_serve::files::Files;
use std::borrow::Cow;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// Action of a step for a request.
#[derive(Debug)]
pub(crate) enum Action<'w> {
    /// The route does not match.
    Skip(&'w Route, Mismatch),
    /// The route matches. If it has a path condition, its last star matched this range of the decoded path.
    Enter(&'w Route, Option<Range<usize>>),
    /// Respond with 400, because the result of this step depends on how a server interprets the path.
    RefuseAmbiguous,
    /// Refuse the request, which the step cannot handle.
    Refuse(Refusal),
    /// Redirect to this path and query, with empty segments removed.
    MergeSlashes(&'w [u8], Option<&'w [u8]>),
    /// Apply the header operations with this index.
    Change(u32),
    /// Add early hints.
    Hint(&'w Rc<Vec<String>>),
    /// Use the error page with this index.
    UsePage(u32),
    /// Use the `cache` step with this index.
    UseCache(u32),
    /// Do nothing, because the path does not have the prefix to remove.
    KeepPath,
    /// Continue with this path, and with this query unless it is `None`. An empty query removes the query. `removed`
    /// is the prefix that was removed, or empty. `is_bare` is
    /// true if the path consisted only of the prefix that was removed.
    Rewrite { path: Vec<u8>, query: Option<Vec<u8>>, removed: &'w str, is_bare: bool },
    /// Admit or deny the client's address, according to the rule with this index if one matches.
    Access { allowed: bool, rule: Option<usize> },
    /// Count the request against a rate limit.
    Count(&'w RateTable),
    /// Apply the header operations with this index, and respond if the request is a preflight request.
    Cors { cors: &'w Cors, change: u32, allowed: bool },
    /// Verify the password for the step with this number.
    Authenticate(u32, &'w Arc<Auth>),
    /// Respond with a file. If `pass` is true and the file is missing, continue with later steps.
    Files { files: &'w Files, spec: &'w FilesSpec, pass: bool },
    /// Continue with later steps after this refusal.
    PassOn(Refusal),
    /// Redirect to `location`. A borrowed location does not depend on the request, and `id` identifies its prebuilt
    /// response.
    Redirect { id: u32, status: u16, location: Cow<'w, str> },
    /// Respond with fixed text, whose prebuilt response has this number.
    Respond(u32, &'w Respond),
    /// Respond with the metrics.
    Metrics,
    /// Forward the request, or respond from the cache.
    Forward(&'w Arc<ProxyStep>, Option<&'w Arc<CacheStep>>),
    /// Run an active page of this folder.
    RunPage(&'w PageFolder),
    /// Run a script of the application server with this index.
    RunScript(u32, &'w PhpSpec),
}

impl<'w> Walk<'w> {
    /// Decides the action of `step` for the request in its current state.
    pub(super) fn decide(&self, step: &'w Step) -> Option<Action<'w>> {
        let (live, head) = (&**self.live, self.request.head);
        if self.site.forwards
            && let Some(action) = self.decide_unusual(step)
        {
            return Some(action);
        }
        Some(match &step.kind {
            Kind::Route(route) => match route.match_request(head, &self.decoded) {
                matched if self.is_ambiguous(route, matched.is_ok()) => Action::RefuseAmbiguous,
                Ok(rest) => Action::Enter(route, rest),
                Err(mismatch) => Action::Skip(route, mismatch),
            },
            Kind::Header(change) => Action::Change(*change),
            Kind::EarlyHints(hints) => Action::Hint(live.hints.get(*hints as usize)?),
            Kind::ErrorPage(page) => Action::UsePage(*page),
            Kind::Rewrite(rewrite) => self.decide_rewrite(rewrite),
            Kind::Access(access) => {
                let (allowed, rule) = decide_access(access, self.client());
                Action::Access { allowed, rule }
            }
            Kind::RateLimit(table) => Action::Count(table),
            Kind::Cors(cors) => {
                let (change, allowed) = cors.decide(head);
                Action::Cors { cors, change: cors.first_change + change, allowed }
            }
            Kind::BasicAuth { id, auth } => Action::Authenticate(*id, auth),
            Kind::Files { index, pass } => {
                let (files, spec) = (live.files.get(*index as usize)?, live.spec.files.get(*index as usize)?);
                Action::Files { files, spec, pass: *pass }
            }
            Kind::Redirect { id, to, status, literal } => match self.location(to, literal.as_deref()) {
                Ok(location) => Action::Redirect { id: *id, status: *status, location },
                Err(HostMissing) => Action::Refuse(host_needed()),
            },
            Kind::Respond { id, respond } => Action::Respond(*id, respond),
            Kind::Metrics => Action::Metrics,
            Kind::Cache(rules) => Action::UseCache(*rules),
            Kind::Proxy(index) => {
                let cache = self.cache.and_then(|cache| live.spec.cache_steps.get(cache as usize));
                Action::Forward(live.spec.proxies.get(*index as usize)?, cache)
            }
            Kind::Pages(_) if self.evades_route_to_page() => Action::RefuseAmbiguous,
            Kind::Pages(index) => Action::RunPage(live.active.get(*index as usize)?),
            Kind::Php(index) => match live.spec.php.get(*index as usize)? {
                php if self.is_ambiguous_for(php) || self.evades_route_to_script(&php.step) => Action::RefuseAmbiguous,
                php => Action::RunScript(*index, php),
            },
        })
    }

    /// Decides the action for a request that only an origin can handle as it is, at a step that is not a `proxy` step.
    /// Returns `None` for all other requests.
    fn decide_unusual(&self, step: &Step) -> Option<Action<'w>> {
        let changes_target = match &step.kind {
            Kind::Rewrite(rewrite) => self.strip_literally(rewrite).is_none(),
            Kind::Php(_) => true,
            _ => false,
        };
        let responds = matches!(
            step.kind,
            Kind::Files { .. } | Kind::Redirect { .. } | Kind::Respond { .. } | Kind::Metrics | Kind::Pages(_)
        );
        // Scripts are not included here, since they may support more methods, such as those of WebDAV.
        if responds && is_extension(self.request.head) {
            return Some(Action::Refuse(method_unknown()));
        }
        match self.request.head.target {
            Target::Resource { path, query, .. } if (responds || changes_target) && self.facts.empty_segment => {
                Some(Action::MergeSlashes(path, query))
            }
            _ => None,
        }
    }

    /// Returns the Location of a redirect to `to`, or `literal` if it does not depend on the request.
    fn location(&self, to: &Template, literal: Option<&'w str>) -> Result<Cow<'w, str>, HostMissing> {
        if let Some(literal) = literal {
            return Ok(Cow::Borrowed(literal));
        }
        let mut location = encode_location(&to.render(&self.variables())?);
        if to.is_path() {
            keep_on_site(&mut location);
        }
        Ok(Cow::Owned(location))
    }

    /// Returns the values of the variables for the request.
    pub(super) fn variables(&self) -> Variables<'_> {
        let (path, query) = match self.request.head.target {
            Target::Resource { path, query, .. } => (path, query),
            _ => (&b"/"[..], None),
        };
        let rest = self.rest.as_ref().map_or(Cow::Borrowed(&b""[..]), |Rest { rewrites, part }| {
            let part_of = |path: &[u8]| raw_offset(path, part.start)..raw_offset(path, part.end);
            match normalize_path(self.before.get(*rewrites as usize).unwrap_or(&self.path)) {
                Cow::Borrowed(path) => Cow::Borrowed(&path[part_of(path)]),
                Cow::Owned(path) => Cow::Owned(path[part_of(&path)].to_vec()),
            }
        });
        let host_port = self.host.or(self.site.name.as_deref().map(str::as_bytes));
        Variables { client: self.client(), host_port, path, query, secure: self.original.secure, rest }
    }

    /// Returns what follows the prefix that `rewrite` removes, if the path has empty segments and literally begins with
    /// the prefix. An origin may distinguish such paths, as image servers do whose paths contain a URL, so what follows
    /// stays as the client sent it. Dot segments could lead out of the prefix, and so could what servers read differently.
    fn strip_literally(&self, rewrite: &Rewrite) -> Option<&[u8]> {
        let Rewrite::StripPrefix(prefix) = rewrite else { return None };
        let prefix = prefix.strip_prefix('/').unwrap_or(prefix).as_bytes();
        let rest = self.path.strip_prefix(b"/")?.strip_prefix(prefix)?;
        let is_unambiguous = !self.facts.dot_segment && self.facts.readings == Readings::NONE;
        let is_kept = self.facts.empty_segment && is_unambiguous && !prefix.is_empty();
        (is_kept && rest.starts_with(b"/")).then_some(rest)
    }

    fn decide_rewrite(&self, rewrite: &'w Rewrite) -> Action<'w> {
        let literal = self.strip_literally(rewrite);
        let mut path = match rewrite {
            Rewrite::StripPrefix(prefix) => {
                let prefix = prefix.strip_prefix('/').unwrap_or(prefix).as_bytes();
                let begins = |path: &[u8]| {
                    let rest = path.strip_prefix(prefix);
                    !prefix.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
                };
                let applies = begins(&self.decoded);
                if self.readings.iter().any(|other| other.is_of_servers() && begins(&other.decoded) != applies) {
                    return Action::RefuseAmbiguous;
                }
                if !applies {
                    return Action::KeepPath;
                }
                if let Some(rest) = literal {
                    rest.to_vec()
                } else {
                    let path = normalize_path(&self.path);
                    path[raw_offset(&path, prefix.len())..].to_vec()
                }
            }
            Rewrite::To(template) => match template.render(&self.variables()) {
                Ok(text) => text,
                Err(HostMissing) => return Action::Refuse(host_needed()),
            },
        };
        // After another rewrite, the client's own path says nothing about a folder.
        let is_bare = path.is_empty() && self.rewrites == 0 && matches!(rewrite, Rewrite::StripPrefix(_));
        if let Some(fragment) = path.iter().position(|&byte| byte == b'#') {
            path.truncate(fragment);
        }
        let mut query = None;
        if let Some(mark) = path.iter().position(|&byte| byte == b'?') {
            let mut written = path.split_off(mark + 1);
            path.pop();
            let has_query = matches!(rewrite, Rewrite::To(template) if template.has_query());
            if let Some(requested) = self.query.as_deref()
                && !(has_query || requested.is_empty() || written.is_empty())
            {
                written.push(b'&');
                written.extend_from_slice(requested);
            }
            query = Some(written);
        }
        if !path.starts_with(b"/") {
            path.insert(0, b'/');
        }
        if literal.is_none() {
            path.dedup_by(|next, previous| *next == b'/' && *previous == b'/');
        }
        let removed = if let Rewrite::StripPrefix(prefix) = rewrite { prefix.as_str() } else { "" };
        Action::Rewrite { path, query, removed, is_bare }
    }
}

/// Ensures that a Location that begins with a slash stays on this site. If it began with two slashes, or characters
/// that browsers interpret as slashes, it would name a host, and the client controls `{rest}` and `{query}`.
fn keep_on_site(location: &mut String) {
    if let Some(path) = location.strip_prefix('/') {
        let doubled = path.len() - path.trim_start_matches(['/', '\\']).len();
        location.drain(1..=doubled);
    }
}
