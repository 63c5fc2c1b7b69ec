//! What a site is to this crate: something that turns a request head into a response.

use crate::clock::Now;
use crate::response::Response;
use flatout_http::request::RequestHead;

/// Answers requests. One lives on each worker and is never shared between threads.
pub trait Handler: 'static {
    /// The names of all outcomes an answer may have, at most 32; `Response::outcome` is an index into it.
    const OUTCOMES: &'static [&'static str];

    /// Answers the request with `head`. It must not block for longer than a file look-up takes: every connection of
    /// the worker waits meanwhile.
    fn handle(&self, head: &RequestHead<'_>, now: Now) -> Response;

    /// The answer to a request that was refused, or whose sender was too slow, with `status` and one sentence.
    fn handle_error(&self, status: u16, text: &'static str) -> Response {
        crate::page::error_response(status, text)
    }
}
