//! Decision about the action of each step, based only on the request and the configuration.
//!
//! Deciding has no side effects and, apart from rendered text and paths, does not allocate. `Walk::obey` performs the
//! actions, and `explain` records them.

use super::rest::{Rest, after_prefix};
use super::{Walk, host_needed, is_extension, method_unknown};
use crate::auth::Auth;
use crate::cors::Cors;
use crate::network::decide_access;
use crate::rate::RateTable;
use crate::spec::{FilesSpec, PhpSpec};
use crate::step::{Kind, Mismatch, Rewrite, Route, Step};
use crate::text::{HostMissing, Template, Variables};
use flatout_config::model::Respond;
use flatout_fastcgi::Meaning;
use flatout_handler::routed::Refusal;
use flatout_http::path::encode_location;
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
    /// Redirect to the client's path without its empty segments.
    MergeSlashes,
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
        if is_extension(head) && responds_itself(step) {
            return Some(Action::Refuse(method_unknown()));
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
            Kind::Pages(index) => match live.active.get(*index as usize)? {
                folder if self.evades_route_to_page(folder) => Action::RefuseAmbiguous,
                folder if self.has_empty_segment && folder.name_of(&self.decoded, self.facts).is_some() => {
                    Action::MergeSlashes
                }
                folder => Action::RunPage(folder),
            },
            Kind::Php(index) => match live.spec.php.get(*index as usize)? {
                php if self.is_ambiguous_for(php) || self.evades_route_to_script(&php.step) => Action::RefuseAmbiguous,
                php if self.has_empty_segment && matches!(php.step.find(&self.decoded), Meaning::Script(..)) => {
                    Action::MergeSlashes
                }
                php => Action::RunScript(*index, php),
            },
        })
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
        let (path, query) = self.requested();
        let rest = self.rest.as_ref().map_or(Cow::Borrowed(&b""[..]), |rest| rest.of(self.path_of(rest)));
        let rest_has_slash = self.rest.as_ref().is_some_and(|rest| rest.has_slash);
        let host_port = self.host.or(self.site.name.as_deref().map(str::as_bytes));
        Variables { client: self.client(), host_port, path, query, secure: self.original.secure, rest, rest_has_slash }
    }

    /// Returns the path that `rest` is a part of, percent-encoded.
    fn path_of(&self, rest: &Rest) -> &[u8] {
        self.before.get(rest.rewrites as usize).unwrap_or(&self.path)
    }

    fn is_rest_ambiguous(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.is_ambiguous(self.path_of(rest)))
    }

    fn decide_rewrite(&self, rewrite: &'w Rewrite) -> Action<'w> {
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
                let rest = after_prefix(&self.path, &self.decoded, self.facts, prefix.len());
                let Some(rest) = rest else { return Action::RefuseAmbiguous };
                rest.to_vec()
            }
            Rewrite::To(template) if template.has_rest_in_path() && self.is_rest_ambiguous() => {
                return Action::RefuseAmbiguous;
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
        let removed = if let Rewrite::StripPrefix(prefix) = rewrite { prefix.as_str() } else { "" };
        Action::Rewrite { path, query, removed, is_bare }
    }
}

/// Returns whether `step` responds to requests itself and supports only methods that this server knows. Scripts may
/// support more, such as those of WebDAV.
const fn responds_itself(step: &Step) -> bool {
    matches!(
        step.kind,
        Kind::Files { .. } | Kind::Redirect { .. } | Kind::Respond { .. } | Kind::Metrics | Kind::Pages(_)
    )
}

/// Ensures that a Location that begins with a slash stays on this site. If it began with two slashes, or characters
/// that browsers interpret as slashes, it would name a host, and the client controls `{rest}` and `{query}`.
fn keep_on_site(location: &mut String) {
    if let Some(path) = location.strip_prefix('/') {
        let doubled = path.len() - path.trim_start_matches(['/', '\\']).len();
        location.drain(1..=doubled);
    }
}
