//! A request for a page, and its result.

use crate::outcome::Outcome;
use flatout_config::model::FieldOp;
use flatout_http::path::PathFacts;
use flatout_net::clock::Now;
use flatout_net::handler::Request;
use flatout_net::response::Response;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;

/// The header operations for a response.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Their number, unique among combinations of steps on this worker.
    pub id: u32,
    /// The operations, in order.
    pub fields: Rc<[FieldOp]>,
}

/// A request for a page.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// The request.
    pub request: &'a Request<'a>,
    /// The host claimed by a trusted proxy; `None` for the request's own.
    pub host: Option<&'a [u8]>,
    /// Its rewritten path, encoded; begins with `/`.
    pub path: &'a [u8],
    /// The path decoded, without its leading slash, and its properties.
    pub decoded: (&'a [u8], PathFacts),
    /// Its rewritten query.
    pub query: Option<&'a [u8]>,
    /// The header operations for the response.
    pub changes: &'a Changes,
    /// The current time.
    pub now: Now,
}

/// Why there is no response, for the caller's error pages.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The status.
    pub status: u16,
    /// One sentence for the visitor.
    pub text: &'static str,
    /// Additional fields of the error page.
    pub fields: Vec<(&'static str, String)>,
    /// The reason.
    pub outcome: Outcome,
}

impl Refused {
    /// The refusal for `outcome`. Its sentence only tells visitors that they are not at fault.
    pub(crate) fn new(outcome: Outcome) -> Self {
        let status = outcome.status();
        let mut fields = vec![("Cache-Control", "no-store".to_owned())];
        if status == 503 {
            fields.push(("Retry-After", "1".to_owned()));
        }
        let text = match status {
            // Messages of refusals are for visitors as well: the page does not accept their content.
            400..=499 => "What you sent is not what this page takes.",
            503 | 507 => "This page takes too much at this moment. Please try again.",
            _ => "This page has an error, which is not yours. The operator of the site can find it in the log.",
        };
        Self { status, text, fields, outcome }
    }
}

/// A pending response.
pub type Making = Pin<Box<dyn Future<Output = Result<Response, Refused>>>>;

/// The result of handling a request.
pub enum Handled {
    /// The response.
    Reply(Response),
    /// A pending response.
    Later(Making),
    /// No response.
    Refused(Refused),
    /// No page has this name: another step may handle it.
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
