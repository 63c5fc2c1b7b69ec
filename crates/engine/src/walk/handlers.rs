//! Steps that answer, and what is answered when something stands against it.

use super::{Trace, Walk, host_needed, method_not_allowed};
use crate::answer::{Failure, custom_error_page, error_page, redirect, respond, text};
use crate::outcome::Outcome;
use crate::spec::PageSpec;
use crate::step::Step;
use crate::text::Template;
use flatout_config::model::{self, Respond, TryTarget};
use flatout_http::framing::{Framing, Version};
use flatout_http::head::Fields;
use flatout_http::path::decode_path;
use flatout_http::request::{Asked, Method, RequestHead};
use flatout_http::status::reason;
use flatout_http::target::Target;
use flatout_net::handler::{Reply, Request};
use flatout_net::response::{Body, Response};
use flatout_serve::files::{Found, Location};

impl<T: Trace> Walk<'_, T> {
    pub(super) fn answer_files(&mut self, step: &Step, index: u32, pass: bool) -> Option<Reply> {
        let live = self.live;
        let files = live.files.get(index as usize)?;
        if let Some(settings) = live.spec.files.get(index as usize) {
            self.trace.step(step, || format!("looks in {}", settings.settings.root.display()));
            if T::TOLD {
                let tries = self.tries(&settings.settings);
                self.trace.file(settings, &self.decoded, &tries);
            }
        }
        let location = Location { path: &self.path, query: self.query.as_deref() };
        match files.handle(self.request, location, &self.policy(), self.now) {
            Found::Reply(reply) => Some(reply),
            Found::Error(error) if pass && matches!(error.status, 404 | 405) => {
                self.trace.step(step, || format!("{}: goes on", error.text));
                self.passed = Some(error.into());
                None
            }
            Found::Error(error) => Some(self.fail(&error.into()).into()),
        }
    }

    /// The paths of the try targets that are files, decoded.
    fn tries(&self, settings: &model::Files) -> Vec<Vec<u8>> {
        let variables = self.variables();
        let render = |target: &TryTarget| match target {
            TryTarget::File(text) => {
                let mut decoded = Vec::new();
                let path = Template::new(text).render(&variables).ok()?;
                let path = path.split('?').next().unwrap_or_default();
                decode_path(path.as_bytes(), &mut decoded).ok().map(|_| decoded)
            }
            TryTarget::Status(_) => None,
        };
        settings.try_targets.iter().filter_map(render).collect()
    }

    pub(super) fn answer_redirect(
        &mut self,
        step: &Step,
        id: u32,
        to: &Template,
        status: u16,
        literal: Option<&str>,
    ) -> Response {
        let (policy, outcome) = (self.policy(), Outcome::Redirected.index());
        if let Some(location) = literal {
            self.trace.step(step, || format!("answers {status} to {location}"));
            return self.live.prebuilt(id, &policy, || redirect(status, location, &policy, outcome));
        }
        match to.render(&self.variables()) {
            Ok(mut location) => {
                if to.is_path() {
                    keep_on_site(&mut location);
                }
                self.trace.step(step, || format!("answers {status} to {location}"));
                redirect(status, &location, &policy, outcome)
            }
            Err(_) => self.fail(&host_needed()),
        }
    }

    pub(super) fn answer_respond(&mut self, step: &Step, id: u32, settings: &Respond) -> Response {
        self.trace.step(step, || format!("answers {}", settings.status));
        let method = self.request.head.method;
        // An error is for whoever comes, however; a text can only be read.
        if settings.status >= 400 {
            if settings.body.is_empty() {
                let outcome = Outcome::Responded;
                return self.fail(&Failure::new(settings.status, sentence(settings.status), outcome));
            }
        } else if method == Method::Options {
            return self.answer_options();
        } else if !matches!(method, Method::Get | Method::Head) {
            return self.fail(&method_not_allowed());
        }
        let policy = self.policy();
        self.live.prebuilt(id, &policy, || respond(settings, &policy))
    }

    pub(super) fn answer_metrics(&mut self, step: &Step) -> Response {
        self.trace.step(step, || "answers with the counters".to_owned());
        match self.request.head.method {
            Method::Get | Method::Head => {}
            Method::Options => return self.answer_options(),
            _ => return self.fail(&method_not_allowed()),
        }
        let content = self.live.spec.metrics.as_ref().map(|metrics| metrics()).unwrap_or_default();
        // What prometheus-client writes.
        let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        text(200, content_type, content.as_bytes(), &self.policy(), Outcome::Metrics.index())
    }

    /// The answer to what went wrong: the page that the site has for it, or a plain one.
    pub(super) fn fail(&mut self, failure: &Failure) -> Response {
        let policy = self.policy();
        let live = self.live;
        let spec = &live.spec;
        let pages: Vec<_> = self.pages.iter().rev().filter_map(|&page| spec.pages.get(page as usize)).collect();
        for page in pages.into_iter().filter(|page| page.statuses.contains(&failure.status)) {
            if let Some(content) = self.read_page(page) {
                self.trace.page(page);
                return custom_error_page(failure, &page.content_type, content, &policy);
            }
        }
        error_page(failure, &policy)
    }

    /// The content of `page`, as it is now; `None` when it cannot be read any more.
    fn read_page(&self, page: &PageSpec) -> Option<Body> {
        let files = self.live.files.get(page.files as usize)?;
        let path = page.path.as_bytes();
        let head = RequestHead {
            method: Method::Get,
            target: Target::Resource { path, query: None, authority: None },
            target_text: path,
            version: Version::Http11,
            host: None,
            fields: Fields::EMPTY,
            framing: Framing::None,
            persistent: true,
            expects_continue: false,
            asked: Asked::default(),
            head_bytes: 0,
        };
        let request = Request { head: &head, ..*self.request };
        let policy = flatout_serve::files::Policy::default().into();
        match files.handle(&request, Location { path, query: None }, &policy, self.now) {
            Found::Reply(Reply::Now(response)) if response.status == 200 => Some(response.body),
            _ => None,
        }
    }
}

/// A path of this site stays one: beginning with two slashes, or what browsers take for them, it would name a host, and
/// `{rest}` and `{query}` are the visitor's.
fn keep_on_site(location: &mut String) {
    if let Some(path) = location.strip_prefix('/') {
        let doubled = path.len() - path.trim_start_matches(['/', '\\']).len();
        location.drain(1..=doubled);
    }
}

/// What a plain page says for a status that was asked for.
const fn sentence(status: u16) -> &'static str {
    match status {
        400..=499 => "This is not for you to have, or not in this way.",
        _ => reason(status),
    }
}
