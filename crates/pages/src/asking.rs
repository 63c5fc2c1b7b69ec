//! A request for a page, and what became of it.

use crate::outcome::Outcome;
use flatout_config::model::FieldOp;
use flatout_http::path::PathFacts;
use flatout_net::clock::Now;
use flatout_net::handler::Request;
use flatout_net::response::Response;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;

/// Changes of the answer's fields that header steps make.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Their number, unique among combinations of steps on this worker.
    pub id: u32,
    /// The changes, in the order to make them.
    pub fields: Rc<[FieldOp]>,
}

/// A request for a page.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// The request.
    pub request: &'a Request<'a>,
    /// The host that a trusted neighbour says was asked for; `None`: the request's own.
    pub host: Option<&'a [u8]>,
    /// Its path as it is after rewriting, encoded; begins with `/`.
    pub path: &'a [u8],
    /// The path decoded, without its first slash, and what is to be known of it.
    pub decoded: (&'a [u8], PathFacts),
    /// Its query after rewriting.
    pub query: Option<&'a [u8]>,
    /// What header steps change of the answer.
    pub changes: &'a Changes,
    /// Now.
    pub now: Now,
}

/// Why there is no answer, for whoever makes error pages.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The status.
    pub status: u16,
    /// One sentence for the visitor.
    pub text: &'static str,
    /// Fields for the page.
    pub fields: Vec<(&'static str, String)>,
    /// The reason.
    pub outcome: Outcome,
}

impl Refused {
    /// The refusal for `outcome`. Visitors are told no more than that it is not their fault.
    pub(crate) fn new(outcome: Outcome) -> Self {
        let status = outcome.status();
        let mut fields = vec![("Cache-Control", "no-store".to_owned())];
        if status == 503 {
            fields.push(("Retry-After", "1".to_owned()));
        }
        let text = match status {
            // The sentences of refusals are for visitors as well: what they sent was not what the page takes.
            400..=499 => "What you sent is not what this page takes.",
            503 | 507 => "This page takes too much at this moment. Please try again.",
            _ => "This page has an error, which is not yours. Whoever runs the site can find it in the log.",
        };
        Self { status, text, fields, outcome }
    }
}

/// An answer that is being made.
pub type Making = Pin<Box<dyn Future<Output = Result<Response, Refused>>>>;

/// What became of a request.
pub enum Handled {
    /// The answer.
    Reply(Response),
    /// The answer, later.
    Later(Making),
    /// None.
    Refused(Refused),
    /// No page has this name: another step may know it.
    NoPage,
}

impl fmt::Debug for Handled {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reply(response) => formatter.debug_tuple("Reply").field(response).finish(),
            Self::Later(_) => formatter.write_str("Later"),
            Self::Refused(refused) => formatter.debug_tuple("Refused").field(refused).finish(),
            Self::NoPage => formatter.write_str("NoPage"),
        }
    }
}
