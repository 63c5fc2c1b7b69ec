//! Results of a file lookup.

use crate::outcome::Outcome;
use crate::policy::HeaderPolicy;
use flatout_http::path::{PathFacts, encode_location};
use flatout_net::handler::Reply;
use flatout_net::page::page_response;
use flatout_net::response::{Body, Response};

/// The requested file, whose path may have been rewritten.
#[derive(Clone, Copy, Debug)]
pub struct Location<'a> {
    /// The path, encoded, with a leading slash.
    pub path: &'a [u8],
    /// The query.
    pub query: Option<&'a [u8]>,
    /// The result of `decode_path` for the path, if already computed.
    pub decoded: Option<(&'a [u8], PathFacts)>,
}

/// The result of a file lookup.
#[derive(Debug)]
pub enum FileLookup {
    /// The response.
    Reply(Reply),
    /// An error without a page so far: the caller may use a custom page, or continue elsewhere.
    Error(ErrorAnswer),
}

/// An error response without content so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorAnswer {
    /// The status.
    pub status: u16,
    /// One sentence for the page.
    pub text: &'static str,
    /// Its additional fields (`Allow`, `Retry-After`).
    pub fields: Vec<(&'static str, String)>,
    /// Its outcome for the log.
    pub outcome: Outcome,
}

impl ErrorAnswer {
    pub(crate) const fn new(status: u16, text: &'static str, outcome: Outcome) -> Self {
        Self { status, text, fields: Vec::new(), outcome }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// The error of `outcome`, for a name without a file to serve. It reveals no more than a visitor may know: a
    /// hidden name, a link that leads out and a missing name look the same.
    pub(crate) fn missing(outcome: Outcome) -> Self {
        const TRY_AGAIN: &str = "The file cannot be read at this moment. Please try again.";
        match outcome {
            Outcome::Forbidden => Self::new(403, "This file may not be read.", outcome),
            Outcome::NoDescriptor | Outcome::FileUnsettled | Outcome::ThreadPoolFull => {
                Self::new(503, TRY_AGAIN, outcome).with("Retry-After", "1")
            }
            Outcome::FileFailed => Self::new(500, "The file could not be read.", outcome),
            _ => Self::new(404, "Nothing here has this name.", outcome),
        }
    }

    /// Returns whether it only means that there is no such file, so that another step may handle the request
    /// (`pass`).
    pub const fn is_absence(&self) -> bool {
        self.status == 404 || self.status == 405
    }

    /// The response with the built-in page.
    pub fn respond(&self, policy: &HeaderPolicy) -> Response {
        let fields: Vec<(&str, &str)> = self.fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        page(self.status, self.text, &fields, policy, self.outcome)
    }
}

/// The built-in page, with the header steps of `policy`.
fn page(status: u16, text: &str, fields: &[(&str, &str)], policy: &HeaderPolicy, outcome: Outcome) -> Response {
    let mut response = page_response(status, text, fields, outcome as u8);
    if !policy.fields.is_empty() {
        let length = response.body.len().to_string();
        let mut all = vec![("Content-Type", "text/html; charset=utf-8"), ("Content-Length", length.as_str())];
        all.extend_from_slice(fields);
        response.head = policy.head(status, &all);
    }
    response
}

/// A 301 to `path`, with the query retained.
pub(crate) fn redirect(path: &[u8], query: Option<&[u8]>, outcome: Outcome, policy: &HeaderPolicy) -> Response {
    let mut location = encode_location(path);
    if let Some(query) = query {
        location.push('?');
        location.push_str(&encode_location(query));
    }
    page(301, "The address is a little different.", &[("Location", &location)], policy, outcome)
}

/// A 204 with `fields`.
pub(crate) fn no_content(fields: &[(&str, &str)], policy: &HeaderPolicy, outcome: Outcome) -> Response {
    Response::new(204, policy.head(204, fields), Body::Empty, outcome as u8)
}
