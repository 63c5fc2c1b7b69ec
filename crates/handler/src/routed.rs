//! The interface between the engine and route handlers, which turn a routed request into a response or a refusal. The
//! engine builds the pages of refusals, so handlers need no pages.

use crate::handler::Request;
use crate::page;
use crate::response::{Body, Head, Response};
use flatout_http::encoding::ContentCoding;
use flatout_http::lines::FieldOp;
use flatout_http::path::{PathFacts, append_local, encode_location, normalize_path};
use flatout_http::request::Method;
use flatout_http::target::Target;
use flatout_os::clock::Now;
use flatout_reason::Outcome;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;

/// A request that a route passes to a handler.
#[derive(Clone, Copy, Debug)]
pub struct RoutedRequest<'a> {
    /// The request.
    pub request: &'a Request<'a>,
    /// The path after rewriting, percent-encoded, with a leading slash.
    pub path: &'a [u8],
    /// The path decoded by `flatout_http::path::decode_path`, without its leading slash.
    pub decoded: &'a [u8],
    /// Properties of the decoded path.
    pub facts: PathFacts,
    /// True if a rewrite has removed a prefix of which the whole path consisted: the client has requested a folder
    /// without its trailing slash, although `path` is `/`.
    pub is_bare: bool,
    /// The prefixes that rewrites have removed from the path, decoded and each with its leading slash.
    pub removed: &'a [u8],
    /// True if a redirect to the path without empty segments replaces any response of the handler, which therefore need
    /// not start any work for one.
    pub is_merged: bool,
    /// The query after rewriting.
    pub query: Option<&'a [u8]>,
    /// The header operations that apply to the response.
    pub policy: &'a Rc<HeaderPolicy>,
    /// The name of the authenticated user.
    pub user: Option<&'a str>,
    /// The name of the site.
    pub site: Option<&'a str>,
    /// The address of the listener that accepted the connection.
    pub server: Option<SocketAddr>,
    /// The host claimed by a trusted proxy, or `None` to use the request's host.
    pub host: Option<&'a [u8]>,
    /// The port claimed by a trusted proxy, or `None` to use the request's port.
    pub port: Option<u16>,
    /// The current time.
    pub now: Now,
}

/// A future that yields a response or a refusal.
pub type PendingResponse = Pin<Box<dyn Future<Output = Result<Response, Refusal>>>>;

/// The result of a route handler.
#[derive(derive_more::Debug)]
pub enum Handling {
    /// The response or refusal is ready.
    Now(Result<Response, Refusal>),
    /// The response requires waiting for a future.
    #[debug("Later")]
    Later(PendingResponse),
    /// The handler does not handle this request, and the next handler may.
    Pass,
}

impl Handling {
    /// Creates a result that requires waiting for `future`.
    pub fn later(future: impl Future<Output = Result<Response, Refusal>> + 'static) -> Self {
        Self::Later(Box::pin(future))
    }
}

impl From<Refusal> for Handling {
    fn from(refusal: Refusal) -> Self {
        Self::Now(Err(refusal))
    }
}

impl From<Response> for Handling {
    fn from(response: Response) -> Self {
        Self::Now(Ok(response))
    }
}

/// A refused or redirected request, from which the page of the response is built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status code.
    pub status: u16,
    /// One sentence for the reader of the page.
    pub text: &'static str,
    /// Additional fields of the response, such as `Allow`, `Location` or `Retry-After`.
    pub fields: Vec<(&'static str, String)>,
    /// The reason, for the access log and the counters.
    pub outcome: Outcome,
}

impl RoutedRequest<'_> {
    /// Returns whether a page that is read at this address lacks the slash to which its relative links refer; see
    /// [`is_bare`](Self::is_bare).
    pub const fn lacks_slash(&self) -> bool {
        self.is_bare && matches!(self.request.head.method, Method::Get | Method::Head)
    }

    /// Returns a redirect with `status` to the same path with a trailing slash. Because the path may have been
    /// rewritten, the redirect uses the path that the client sent.
    pub fn redirect_to_folder(&self, status: u16, outcome: impl Into<Outcome>) -> Refusal {
        let asked = match self.request.head.target {
            Target::Resource { path, .. } if !path.ends_with(b"/") => path,
            _ => self.path,
        };
        let mut local = Vec::with_capacity(asked.len() + 1);
        append_local(&normalize_path(asked), &mut local);
        local.push(b'/');
        Refusal::redirect(status, &local, self.query, outcome)
    }
}

impl Refusal {
    /// Creates a redirect with `status` to `path`, which keeps the query.
    fn redirect(status: u16, path: &[u8], query: Option<&[u8]>, outcome: impl Into<Outcome>) -> Self {
        let mut location = encode_location(path);
        if let Some(query) = query {
            location.push('?');
            location.push_str(&encode_location(query));
        }
        Self::new(status, "The address of this page is slightly different.", outcome).with("Location", location)
    }

    /// Creates a refusal without additional fields.
    pub fn new(status: u16, text: &'static str, outcome: impl Into<Outcome>) -> Self {
        Self { status, text, fields: Vec::new(), outcome: outcome.into() }
    }

    /// Builds the response, with header operations from `policy`. `page` is a media type and content to use instead of
    /// the built-in page.
    pub fn respond(&self, page: Option<(&str, Body)>, policy: &HeaderPolicy) -> Response {
        let (content_type, content) = page.unwrap_or_else(|| {
            ("text/html; charset=utf-8", Body::Bytes(page::page(self.status, self.text).into_bytes().into()))
        });
        let length = content.len().to_string();
        let mut fields = vec![("Content-Type", content_type), ("Content-Length", length.as_str())];
        fields.extend(self.fields.iter().map(|(name, value)| (*name, value.as_str())));
        Response::new(self.status, policy.head(self.status, &fields), content, self.outcome)
    }

    /// Adds a field to the response.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }
}

/// The header operations that apply where a request reached its handler. They are part of prebuilt heads, so each
/// combination of operations has a number.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct HeaderPolicy {
    /// The number of this policy, unique within an engine.
    pub id: u32,
    /// The operations, in order.
    pub fields: Rc<[FieldOp]>,
}

impl HeaderPolicy {
    /// Builds a head for `status` from `fields` with the operations applied.
    pub fn head(&self, status: u16, fields: &[(&str, &str)]) -> Head {
        Head::with_operations(status, fields, &self.fields)
    }

    /// Returns the content coding that the operations declare, in which the content of the route is stored.
    pub fn coding(&self) -> Option<ContentCoding> {
        self.fields.iter().filter_map(FieldOp::coding).next_back()
    }

    /// Returns the same policy without a content coding, for generated content.
    #[must_use]
    pub fn without_coding(self: &Rc<Self>) -> Rc<Self> {
        if self.coding().is_none() {
            return Rc::clone(self);
        }
        let fields = self.fields.iter().filter(|operation| operation.coding().is_none()).cloned().collect();
        Rc::new(Self { id: self.id, fields })
    }

    /// Returns whether the operations allow the field `name`, which is sent outside the prebuilt head.
    pub fn lets_through(&self, name: &str) -> bool {
        !self.fields.iter().any(|change| change.removes(name.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::{HeaderPolicy, Refusal, RoutedRequest};
    use crate::content::Offers;
    use crate::handler::Request;
    use crate::response::Response;
    use flatout_http::head::FieldStorage;
    use flatout_http::limits::Limits;
    use flatout_http::lines::FieldOp;
    use flatout_http::path::PathFacts;
    use flatout_http::request::parse_request_head;
    use flatout_os::clock::Now;
    use flatout_reason::Outcome;
    use std::rc::Rc;

    fn lines(policy: &HeaderPolicy, status: u16, fields: &[(&str, &str)]) -> Vec<String> {
        let mut output = Vec::new();
        policy.head(status, fields).append_to(&mut output, &[b'd'; 29], b"", None);
        let text = String::from_utf8(output).unwrap();
        text.trim_end().split("\r\n").skip(2).map(ToOwned::to_owned).collect()
    }

    fn policy(fields: &[FieldOp]) -> HeaderPolicy {
        HeaderPolicy { id: 1, fields: fields.into() }
    }

    #[test]
    fn fields_are_set_added_and_removed_in_order() {
        let (set, add) = (
            |name: &str, value: &str| FieldOp::set(name.into(), value.into()),
            |name: &str, value: &str| FieldOp::add(name.into(), value.into()),
        );
        let fields = [("Content-Type", "text/html"), ("ETag", "\"a\""), ("Cache-Control", "no-cache")];
        let all = [
            set("cache-control", "max-age=60"),
            add("Link", "<a>"),
            add("Link", "<b>"),
            FieldOp::remove("etag".into()),
            set("X", "1"),
            set("X", "2"),
        ];
        let expected = ["Content-Type: text/html", "cache-control: max-age=60", "Link: <a>", "Link: <b>", "X: 2"];
        assert_eq!(lines(&policy(&all), 200, &fields), expected);
        assert_eq!(lines(&policy(&[]), 200, &fields).len(), 3);
        let removed = policy(&[FieldOp::remove("Expires".into()), add("Repr-Digest", "x")]);
        assert!(!removed.lets_through("expires") && removed.lets_through("Repr-Digest"));
    }

    #[test]
    fn framing_is_not_to_be_changed_and_no_line_is_ended() {
        let fields = [("Content-Type", "text/html"), ("Content-Length", "3")];
        let changes: Vec<FieldOp> = ["Content-Length", "Transfer-Encoding", "Connection", "Date", "Content-Range"]
            .into_iter()
            .flat_map(|name| [FieldOp::set(name.into(), "1".into()), FieldOp::remove(name.into())])
            .chain([FieldOp::set("X".into(), "a\r\nB: c".into()), FieldOp::add("Y Z".into(), "a".into())])
            .collect();
        assert_eq!(lines(&policy(&changes), 200, &fields), ["Content-Type: text/html", "Content-Length: 3"]);
        let typed = policy(&[FieldOp::set("Content-Type".into(), "a/b".into())]);
        assert_eq!(lines(&typed, 200, &fields), ["Content-Length: 3", "Content-Type: a/b"]);
        assert_eq!(lines(&typed, 304, &[("ETag", "\"a\"")]), ["ETag: \"a\""]);
        let parts = [("Content-Type", "multipart/byteranges; boundary=x")];
        assert_eq!(lines(&typed, 206, &parts), ["Content-Type: multipart/byteranges; boundary=x"]);
    }

    fn text(response: &Response) -> String {
        let mut output = Vec::new();
        response.head.append_to(&mut output, &[b'x'; 29], b"", None);
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn pages_declare_their_length() {
        let refusal = Refusal::new(404, "There is nothing at this address.", Outcome::NONE).with("Allow", "GET");
        let response = refusal.respond(None, &HeaderPolicy::default());
        let text = text(&response);
        assert!(text.starts_with("HTTP/1.1 404 Not Found\r\n"), "{text}");
        assert!(text.contains(&format!("\r\nContent-Length: {}\r\n", response.body.len())), "{text}");
        assert!(text.contains("\r\nAllow: GET\r\n"));
    }

    #[test]
    fn a_folder_is_no_host() {
        let mut storage = FieldStorage::new();
        let text = b"GET //a.example?q HTTP/1.1\r\nHost: a\r\n\r\n";
        let head = parse_request_head(text, &Limits::DEFAULT, &mut storage).unwrap().unwrap();
        let request =
            Request { head: &head, client: None, unix: false, secure: false, listener: 0, offers: &Offers::new() };
        let routed = RoutedRequest {
            request: &request,
            path: b"/folder",
            decoded: b"folder",
            facts: PathFacts::default(),
            is_bare: false,
            removed: b"",
            is_merged: false,
            query: Some(b"q"),
            policy: &Rc::default(),
            user: None,
            site: None,
            server: None,
            host: None,
            port: None,
            now: Now::read(),
        };
        let refusal = routed.redirect_to_folder(301, Outcome::NONE);
        assert_eq!(refusal.fields, [("Location", "/a.example/?q".to_owned())]);
    }
}
