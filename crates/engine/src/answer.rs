//! Responses that need no file: redirects and fixed text. The header steps in force are applied to them.

use crate::outcome::RouteOutcome;
use flatout_config::model::Respond;
use flatout_handler::response::{Body, Response};
use flatout_handler::routed::{HeaderPolicy, Refusal};
use flatout_reason::Outcome;
use std::rc::Rc;

/// Value of Allow for read-only resources.
pub(crate) const ALLOW: &str = "GET, HEAD, OPTIONS";

/// Builds a redirect to `location`, which must be a valid field value.
pub(crate) fn redirect(
    status: u16,
    location: impl Into<String>,
    policy: &HeaderPolicy,
    outcome: impl Into<Outcome>,
) -> Response {
    Refusal::new(status, "This page has moved.", outcome).with("Location", location).respond(None, policy)
}

/// Builds the response of a `respond` step.
pub(crate) fn respond(respond: &Respond, policy: &Rc<HeaderPolicy>) -> Response {
    let outcome = RouteOutcome::Responded;
    text(respond.status, &respond.content_type, respond.body.as_bytes(), policy, outcome)
}

/// Builds a response with `content`, which is not encoded, and omitted in a 204 or 304 (RFC 9110 §15.3.5, §15.4.5).
pub(crate) fn text(
    status: u16,
    content_type: &str,
    content: &[u8],
    policy: &Rc<HeaderPolicy>,
    outcome: impl Into<Outcome>,
) -> Response {
    let policy = policy.without_coding();
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

/// Builds a 204 with `fields`.
pub(crate) fn no_content(fields: &[(&str, &str)], policy: &HeaderPolicy, outcome: impl Into<Outcome>) -> Response {
    Response::new(204, policy.head(204, fields), Body::Empty, outcome)
}
