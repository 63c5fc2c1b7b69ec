//! What came of looking for a file.

use crate::outcome::Outcome;
use crate::policy::Policy;
use flatout_http::path::{PathFacts, encode_location};
use flatout_net::handler::Reply;
use flatout_net::page::page_response;
use flatout_net::response::{Body, Response};

/// Which file is asked for: the path may have been rewritten.
#[derive(Clone, Copy, Debug)]
pub struct Location<'a> {
    /// The path, still encoded; begins with `/`.
    pub path: &'a [u8],
    /// The query.
    pub query: Option<&'a [u8]>,
    /// What `decode_path` makes of the path, from whoever has decoded it already.
    pub decoded: Option<(&'a [u8], PathFacts)>,
}

/// What came of looking for a file.
#[derive(Debug)]
pub enum Found {
    /// The answer.
    Reply(Reply),
    /// An error, without a page yet: the caller may have one of its own, or go on elsewhere.
    Error(ErrorAnswer),
}

/// An error answer that has no content yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorAnswer {
    /// The status.
    pub status: u16,
    /// One sentence for people.
    pub text: &'static str,
    /// Fields that belong to it (`Allow`, `Retry-After`).
    pub fields: Vec<(&'static str, String)>,
    /// Its name for the log.
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

    /// The error of `outcome`, for a name that stands for no file we serve. It says no more than a visitor may know:
    /// a hidden name, a link that leads out and a name that is not there look the same.
    pub(crate) fn missing(outcome: Outcome) -> Self {
        const TRY_AGAIN: &str = "The file cannot be read at this moment. Please try again.";
        match outcome {
            Outcome::Forbidden => Self::new(403, "This file may not be read.", outcome),
            Outcome::NoDescriptor | Outcome::FileUnsettled | Outcome::WorkshopFull => {
                Self::new(503, TRY_AGAIN, outcome).with("Retry-After", "1")
            }
            Outcome::FileFailed => Self::new(500, "The file could not be read.", outcome),
            _ => Self::new(404, "Nothing here has this name.", outcome),
        }
    }

    /// Whether it only says that nothing is here, so that another step may know better: what `pass` passes on.
    pub const fn is_absence(&self) -> bool {
        self.status == 404 || self.status == 405
    }

    /// The answer with our own page.
    pub fn respond(&self, policy: &Policy) -> Response {
        let fields: Vec<(&str, &str)> = self.fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        page(self.status, self.text, &fields, policy, self.outcome)
    }
}

/// Our own page, with the header steps of `policy`.
fn page(status: u16, text: &str, fields: &[(&str, &str)], policy: &Policy, outcome: Outcome) -> Response {
    let mut response = page_response(status, text, fields, outcome as u8);
    if !policy.fields.is_empty() {
        let length = response.body.len().to_string();
        let mut all = vec![("Content-Type", "text/html; charset=utf-8"), ("Content-Length", length.as_str())];
        all.extend_from_slice(fields);
        response.head = policy.head(status, &all);
    }
    response
}

/// 301 to `path` with the query kept.
pub(crate) fn redirect(path: &[u8], query: Option<&[u8]>, outcome: Outcome, policy: &Policy) -> Response {
    let mut location = encode_location(path);
    if let Some(query) = query {
        location.push('?');
        location.push_str(&encode_location(query));
    }
    page(301, "The address is a little different.", &[("Location", &location)], policy, outcome)
}

/// 204 with `fields`.
pub(crate) fn no_content(fields: &[(&str, &str)], policy: &Policy, outcome: Outcome) -> Response {
    Response::new(204, policy.head(204, fields), Body::Empty, outcome as u8)
}
