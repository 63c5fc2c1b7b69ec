//! Steps that answer, and what is answered when something stands against it.

use super::pages::answer_failure;
use super::{Effect, Trace, Walk, host_needed, method_not_allowed};
use crate::answer::{redirect, respond, text};
use crate::explain::Forwarding;
use crate::forwarded::resolve_forwarded;
use crate::metrics::MetricsFormat;
use crate::outcome::RouteOutcome;
use crate::step::Step;
use crate::text::Template;
use flatout_config::model::{self, Respond, TryTarget};
use flatout_http::path::{decode_path, encode_location};
use flatout_http::request::Method;
use flatout_http::status::reason;
use flatout_net::handler::Reply;
use flatout_net::response::Response;
use flatout_net::routed::{Handling, Refusal, RoutedRequest};
use std::sync::Arc;

impl<T: Trace> Walk<'_, T> {
    pub(super) fn answer_files(&mut self, step: &Step, index: u32, pass: bool) -> Option<Reply> {
        let live = self.live;
        let files = live.files.get(index as usize)?;
        if let Some(settings) = live.spec.files.get(index as usize) {
            self.trace.step(step, || Effect::said(format!("looks in {}", settings.settings.root.display())));
            if T::TOLD {
                let tries = self.tries(&settings.settings);
                self.trace.file(settings, &self.decoded, &tries);
            }
        }
        match files.handle(&self.routed(self.request, &self.policy())) {
            Handling::Now(Err(refusal)) if pass && matches!(refusal.status, 404 | 405) => {
                self.trace.step(step, || Effect::said(format!("{}: goes on", refusal.text)));
                self.passed = Some(refusal);
                None
            }
            handling => self.settle(handling),
        }
    }

    /// The paths of the try targets that are files, decoded.
    fn tries(&self, settings: &model::Files) -> Vec<Vec<u8>> {
        let variables = self.variables();
        let render = |target: &TryTarget| match target {
            TryTarget::File(text) => {
                let mut decoded = Vec::new();
                let path = Template::new(text).render(&variables).ok()?;
                let path = path.split(|&byte| byte == b'?').next().unwrap_or_default();
                decode_path(path, &mut decoded).ok().map(|_| decoded)
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
        let (policy, outcome) = (self.policy(), RouteOutcome::Redirected);
        if let Some(location) = literal {
            self.trace.step(step, || Effect::said(format!("responds with {status} to {location}")));
            return self.live.prebuilt(id, &policy, || redirect(status, location, &policy, outcome));
        }
        match to.render(&self.variables()) {
            Ok(location) => {
                let mut location = encode_location(&location);
                if to.is_path() {
                    keep_on_site(&mut location);
                }
                self.trace.step(step, || Effect::said(format!("responds with {status} to {location}")));
                redirect(status, location, &policy, outcome)
            }
            Err(_) => self.fail(&host_needed()),
        }
    }

    pub(super) fn answer_respond(&mut self, step: &Step, id: u32, settings: &Respond) -> Response {
        self.trace.step(step, || Effect::said(format!("answers {}", settings.status)));
        let method = self.request.head.method;
        // An error is for every method; a text can only be read.
        if settings.status >= 400 {
            if settings.body.is_empty() {
                let outcome = RouteOutcome::Responded;
                return self.fail(&Refusal::new(settings.status, sentence(settings.status), outcome));
            }
        } else if method == Method::Options {
            return self.answer_options();
        } else if !matches!(method, Method::Get | Method::Head) {
            return self.fail(&method_not_allowed());
        }
        let policy = self.policy();
        self.live.prebuilt(id, &policy, || respond(settings, &policy))
    }

    pub(super) fn answer_proxy(&mut self, step: &Step, index: u32) -> Option<Reply> {
        let live = self.live;
        let proxy = live.spec.proxies.get(index as usize)?;
        let cache = self.cache.and_then(|cache| live.spec.cache_steps.get(cache as usize));
        self.trace.step(step, || Effect::said(format!("asks {}", proxy.describe())));
        if T::TOLD {
            self.trace.forward(step, || Forwarding {
                step: Arc::clone(proxy),
                cache: cache.cloned(),
                path: self.path.to_vec(),
                query: self.query.as_deref().map(<[u8]>::to_vec),
                place: step.place.clone(),
            });
            // Nobody is asked.
            return Some(Reply::later(std::future::pending()));
        }
        let handling = live.proxy.handle(proxy, cache, &self.routed(self.request, &self.policy()));
        self.settle(handling)
    }

    pub(super) fn answer_page(&mut self, step: &Step, index: u32) -> Option<Reply> {
        let live = self.live;
        let folder = live.active.get(index as usize)?;
        let facts = self.facts;
        if T::TOLD {
            let name = folder.name_of(&self.decoded, facts);
            self.trace.step(step, || match &name {
                Some(name) => Effect::Said(format!("runs {}", folder.step().folder().join(name).display())),
                None => Effect::said("no page has this name: passes on"),
            });
            // Nothing is run.
            return name.map(|_| {
                self.trace.run(("page", "An active page responds; its code determines the response."));
                Reply::later(std::future::pending())
            });
        }
        let (policy, told) = (self.policy(), resolve_forwarded(self.request, &folder.step().settings().trusted));
        let routed = RoutedRequest { host: told.host, port: told.port, ..self.routed(&told.request, &policy) };
        let handling = live.pages.handle(folder, &routed);
        self.settle(handling)
    }

    pub(super) fn answer_metrics(&mut self, step: &Step) -> Response {
        self.trace.step(step, || Effect::said("responds with the metrics"));
        match self.request.head.method {
            Method::Get | Method::Head => {}
            Method::Options => return self.answer_options(),
            _ => return self.fail(&method_not_allowed()),
        }
        let format = MetricsFormat::of_accept(self.request.head.fields.all("accept"));
        let content = self.live.spec.metrics.as_ref().map(|metrics| metrics(format)).unwrap_or_default();
        text(200, format.content_type(), content.as_bytes(), &self.policy(), RouteOutcome::Metrics)
    }

    /// The answer to what went wrong: the page that the site has for it, or a plain one.
    pub(super) fn fail(&mut self, refusal: &Refusal) -> Response {
        let policy = self.policy();
        let (response, page) = answer_failure(self.live, &self.pages, &policy, refusal, self.now);
        if let Some(page) = page.and_then(|page| self.live.spec.pages.get(page as usize)) {
            self.trace.page(page);
        }
        response
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

/// The text of a plain page for a requested status.
const fn sentence(status: u16) -> &'static str {
    match status {
        400..=499 => "This is not for you to have, or not in this way.",
        _ => reason(status),
    }
}
