//! A request that outlives the turn it came in, because a password is being verified.

use flatout_http::framing::{Framing, Version};
use flatout_http::head::{Fields, Header};
use flatout_http::request::{Asked, Method, RequestHead};
use flatout_http::target::Target;
use flatout_net::content::Offers;
use flatout_net::handler::Request;
use std::net::SocketAddr;

#[derive(Debug)]
enum OwnedTarget {
    Resource { path: Vec<u8>, query: Option<Vec<u8>>, authority: Option<Vec<u8>> },
    Authority(Vec<u8>),
    Asterisk,
}

/// A copy of a request.
#[derive(Debug)]
pub(crate) struct OwnedRequest {
    method: String,
    /// Whether the method is one that this server knows.
    known: bool,
    target: OwnedTarget,
    target_text: Vec<u8>,
    version: Version,
    host: Option<Vec<u8>>,
    fields: Vec<(String, Vec<u8>)>,
    framing: Framing,
    persistent: bool,
    expects_continue: bool,
    asked: Asked,
    head_bytes: usize,
    client: Option<SocketAddr>,
    secure: bool,
    listener: u32,
    offers: Offers,
}

impl OwnedRequest {
    pub(crate) fn new(request: &Request<'_>) -> Self {
        let head = request.head;
        let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        Self {
            method: head.method.as_str().to_owned(),
            known: !matches!(head.method, Method::Unknown(_)),
            target: match head.target {
                Target::Resource { path, query, authority } => {
                    OwnedTarget::Resource { path: path.to_vec(), query: owned(query), authority: owned(authority) }
                }
                Target::Authority(authority) => OwnedTarget::Authority(authority.to_vec()),
                Target::Asterisk => OwnedTarget::Asterisk,
            },
            target_text: head.target_text.to_vec(),
            version: head.version,
            host: owned(head.host),
            fields: head.fields.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect(),
            framing: head.framing,
            persistent: head.persistent,
            expects_continue: head.expects_continue,
            asked: head.asked,
            head_bytes: head.head_bytes,
            client: request.client,
            secure: request.secure,
            listener: request.listener,
            offers: request.offers.carry(),
        }
    }

    /// Shows the request to `look`.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&Request<'_>) -> T) -> T {
        let lines: Vec<Header<'_>> = self.fields.iter().map(|(name, value)| Header { name, value }).collect();
        let head = RequestHead {
            method: match self.method.as_str() {
                "GET" => Method::Get,
                "HEAD" => Method::Head,
                "OPTIONS" => Method::Options,
                "CONNECT" => Method::Connect,
                known if self.known => Method::Known(known),
                unknown => Method::Unknown(unknown),
            },
            target: match &self.target {
                OwnedTarget::Resource { path, query, authority } => {
                    Target::Resource { path, query: query.as_deref(), authority: authority.as_deref() }
                }
                OwnedTarget::Authority(authority) => Target::Authority(authority),
                OwnedTarget::Asterisk => Target::Asterisk,
            },
            target_text: &self.target_text,
            version: self.version,
            host: self.host.as_deref(),
            fields: Fields::from_lines(&lines),
            framing: self.framing,
            persistent: self.persistent,
            expects_continue: self.expects_continue,
            asked: self.asked,
            head_bytes: self.head_bytes,
        };
        look(&Request {
            head: &head,
            client: self.client,
            secure: self.secure,
            listener: self.listener,
            offers: &self.offers,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::OwnedRequest;
    use flatout_http::head::FieldStorage;
    use flatout_http::limits::Limits;
    use flatout_http::request::parse_request_head;
    use flatout_net::content::Offers;
    use flatout_net::handler::Request;

    #[test]
    fn the_copy_is_the_request() {
        for text in [
            "GET /a?b HTTP/1.1\r\nHost: h\r\nA: b\r\nRange: bytes=0-\r\n\r\n",
            "POST http://x/ HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n",
            "OPTIONS * HTTP/1.0\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\nHost: h\r\n\r\n",
            "BREW / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        ] {
            let mut storage = FieldStorage::new();
            let head = parse_request_head(text.as_bytes(), &Limits::DEFAULT, &mut storage).unwrap().unwrap();
            let request = Request {
                head: &head,
                client: "[::1]:9".parse().ok(),
                secure: true,
                listener: 3,
                offers: &Offers::new(),
            };
            let copy = OwnedRequest::new(&request);
            copy.with(|again| assert_eq!(format!("{again:?}"), format!("{request:?}")));
        }
    }
}
