//! Handlers, and responses to failures.

use super::error_pages::answer_failure;
use super::{Walk, method_not_allowed};
use crate::answer::{redirect, respond, text};
use crate::forwarded::resolve_forwarded;
use crate::metrics::MetricsFormat;
use crate::outcome::RouteOutcome;
use flatout_config::model::{Respond, TrustedProxy};
use flatout_handler::Reply;
use flatout_handler::response::Response;
use flatout_handler::routed::{Handling, Refusal, RoutedRequest};
use flatout_http::path::{encode_location, normalize_path};
use flatout_http::request::Method;
use flatout_http::status::reason;
use flatout_pages::PageFolder;
use flatout_serve::outcome::FileOutcome;

impl Walk<'_> {
    pub(super) fn answer_respond(&mut self, id: u32, settings: &Respond) -> Response {
        let method = self.request.head.method;
        // An error is sent for every method, other content only for GET and HEAD.
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

    pub(super) fn answer_page(&mut self, folder: &PageFolder) -> Option<Reply> {
        let live = self.live;
        self.run_admitted(&folder.step().settings().trusted, |routed| live.pages.handle(folder, routed))
    }

    /// Runs a handler that trusts the proxies in `trusted`, unless the client has too many requests in progress.
    pub(super) fn run_admitted(
        &mut self,
        trusted: &[TrustedProxy],
        handle: impl FnOnce(&RoutedRequest<'_>) -> Handling,
    ) -> Option<Reply> {
        let (policy, told) = (self.policy(), resolve_forwarded(self.request, trusted));
        let permit = match self.admit(|| told.request.client, trusted) {
            Ok(permit) => permit,
            Err(refusal) => return Some(self.fail(&refusal).into()),
        };
        let handling =
            handle(&RoutedRequest { host: told.host, port: told.port, ..self.routed(&told.request, &policy) });
        self.settle_admitted(handling, permit)
    }

    pub(super) fn answer_metrics(&mut self) -> Response {
        match self.request.head.method {
            Method::Get | Method::Head => {}
            Method::Options => return self.answer_options(),
            _ => return self.fail(&method_not_allowed()),
        }
        let format = MetricsFormat::of_accept(self.request.head.fields.all("accept"));
        let content = self.live.spec.metrics.as_ref().map(|metrics| metrics(format)).unwrap_or_default();
        text(200, format.content_type(), content.as_bytes(), &self.policy(), RouteOutcome::Metrics)
    }

    /// Redirects to the client's path without empty segments. The location begins with a single slash, so it cannot be
    /// interpreted as the address of another host.
    pub(super) fn redirect_merged(&self) -> Response {
        let (path, query) = self.requested();
        let mut merged = normalize_path(path).into_owned();
        if let Some(query) = query {
            merged.push(b'?');
            merged.extend_from_slice(query);
        }
        let status = if self.reads() { 301 } else { 308 };
        redirect(status, encode_location(&merged), &self.policy(), FileOutcome::SlashesMerged)
    }

    /// Builds the response to a failure, with an error page of the site or the built-in page.
    pub(super) fn fail(&mut self, refusal: &Refusal) -> Response {
        let policy = self.policy();
        let (response, page) = answer_failure(self.live, &self.pages, &policy, refusal, self.now);
        if let (Some(recorder), Some(page)) = (&mut self.recorder, page) {
            recorder.record_page(page);
        }
        response
    }
}

/// Returns the sentence on the built-in page for a configured status.
const fn sentence(status: u16) -> &'static str {
    match status {
        400..=499 => "The server does not allow this request.",
        _ => reason(status),
    }
}
