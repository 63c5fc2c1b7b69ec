//! Responses without a file: error pages, redirects and texts, each with the header steps in force.

use crate::outcome::{Outcome, PAGES_BASE, PHP_BASE, PROXY_BASE};
use flatout_config::model::Respond;
use flatout_net::page::page_response;
use flatout_net::response::{Body, Response};
use flatout_proxy::Refused;
use flatout_serve::files::{ErrorAnswer, HeaderPolicy};

/// Methods allowed on read-only resources.
pub(crate) const ALLOW: &str = "GET, HEAD, OPTIONS";

/// An error without a page so far.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) status: u16,
    pub(crate) text: &'static str,
    pub(crate) fields: Vec<(&'static str, String)>,
    /// Its index into the outcomes.
    pub(crate) outcome: u8,
}

impl Failure {
    pub(crate) const fn new(status: u16, text: &'static str, outcome: Outcome) -> Self {
        Self { status, text, fields: Vec::new(), outcome: outcome.index() }
    }

    /// A failure whose outcome belongs to `flatout-serve`.
    pub(crate) const fn served(status: u16, text: &'static str, outcome: flatout_serve::outcome::Outcome) -> Self {
        Self { status, text, fields: Vec::new(), outcome: outcome as u8 }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }
}

impl From<ErrorAnswer> for Failure {
    fn from(error: ErrorAnswer) -> Self {
        Self { status: error.status, text: error.text, fields: error.fields, outcome: error.outcome as u8 }
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        let outcome = PROXY_BASE as u8 + refused.outcome.index();
        Self { status: refused.status, text: refused.text, fields: refused.fields, outcome }
    }
}

impl From<flatout_pages::Refused> for Failure {
    fn from(refused: flatout_pages::Refused) -> Self {
        let outcome = PAGES_BASE as u8 + refused.outcome.index();
        Self { status: refused.status, text: refused.text, fields: refused.fields, outcome }
    }
}

impl From<flatout_fastcgi::Refused> for Failure {
    fn from(refused: flatout_fastcgi::Refused) -> Self {
        let outcome = PHP_BASE as u8 + refused.outcome.index();
        Self { status: refused.status, text: refused.text, fields: refused.fields, outcome }
    }
}

/// The built-in page for `failure`.
pub(crate) fn error_page(failure: &Failure, policy: &HeaderPolicy) -> Response {
    let fields: Vec<(&str, &str)> = failure.fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let response = page_response(failure.status, failure.text, &fields, failure.outcome);
    if policy.fields.is_empty() {
        return response;
    }
    let length = response.body.len().to_string();
    let mut all = vec![("Content-Type", "text/html; charset=utf-8"), ("Content-Length", length.as_str())];
    all.extend(fields);
    Response::new(failure.status, policy.head(failure.status, &all), response.body, failure.outcome)
}

/// The response to `failure` with `content` as its page.
pub(crate) fn custom_error_page(
    failure: &Failure,
    content_type: &str,
    content: Body,
    policy: &HeaderPolicy,
) -> Response {
    let length = content.len().to_string();
    let mut fields = vec![("Content-Type", content_type), ("Content-Length", length.as_str())];
    fields.extend(failure.fields.iter().map(|(name, value)| (*name, value.as_str())));
    Response::new(failure.status, policy.head(failure.status, &fields), content, failure.outcome)
}

/// A redirect to `location`, which must be a valid field value.
pub(crate) fn redirect(status: u16, location: &str, policy: &HeaderPolicy, outcome: u8) -> Response {
    let page = page_response(status, "The page is elsewhere.", &[("Location", location)], outcome);
    if policy.fields.is_empty() {
        return page;
    }
    let length = page.body.len().to_string();
    let fields =
        [("Content-Type", "text/html; charset=utf-8"), ("Content-Length", length.as_str()), ("Location", location)];
    Response::new(status, policy.head(status, &fields), page.body, outcome)
}

/// The response of a `respond` step.
pub(crate) fn respond(respond: &Respond, policy: &HeaderPolicy) -> Response {
    let outcome = Outcome::Responded.index();
    text(respond.status, &respond.content_type, respond.body.as_bytes(), policy, outcome)
}

/// A response with `content`. 204 and 304 have none (RFC 9110 §15.3.5, §15.4.5).
pub(crate) fn text(status: u16, content_type: &str, content: &[u8], policy: &HeaderPolicy, outcome: u8) -> Response {
    if !flatout_http::status::has_content(status) {
        return Response::new(status, policy.head(status, &[]), Body::Empty, outcome);
    }
    let length = content.len().to_string();
    let mut fields = vec![("Content-Length", length.as_str())];
    if !content.is_empty() && !content_type.is_empty() {
        fields.insert(0, ("Content-Type", content_type));
    }
    let body = if content.is_empty() { Body::Empty } else { Body::Bytes(content.into()) };
    Response::new(status, policy.head(status, &fields), body, outcome)
}

/// A 204 with `fields`.
pub(crate) fn no_content(fields: &[(&str, &str)], policy: &HeaderPolicy, outcome: u8) -> Response {
    Response::new(204, policy.head(204, fields), Body::Empty, outcome)
}
