//! A request that outlives its turn because its response takes time.

use crate::content::Offers;
use crate::handler::Request;
use flatout_http::framing::{Framing, Version};
use flatout_http::head::{Fields, Header};
use flatout_http::request::{Asked, Method, RequestHead};
use flatout_http::target::Target;
use std::net::SocketAddr;

/// Fields that need no heap when the request is lent to a handler.
const FIELDS_INLINE: usize = 24;

/// A part of the copied bytes.
#[derive(Clone, Copy, Debug, Default)]
struct ByteSpan {
    start: u32,
    end: u32,
}

#[derive(Clone, Copy, Debug)]
enum Goal {
    Resource { path: ByteSpan, query: Option<ByteSpan>, authority: Option<ByteSpan> },
    Authority(ByteSpan),
    Asterisk,
}

/// A copy of a request: one allocation for its bytes, one for its fields.
#[derive(Debug)]
pub struct OwnedRequest {
    bytes: Vec<u8>,
    /// Name and value of each field.
    fields: Vec<(ByteSpan, ByteSpan)>,
    method: ByteSpan,
    /// True if this server knows the method.
    known: bool,
    goal: Goal,
    target_text: ByteSpan,
    version: Version,
    host: Option<ByteSpan>,
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

/// Appends copies of bytes to one buffer.
struct Copier(Vec<u8>);

impl Copier {
    /// Offsets fit in 32 bits, as heads are bounded far below that.
    fn add(&mut self, bytes: &[u8]) -> ByteSpan {
        let start = self.0.len() as u32;
        self.0.extend_from_slice(bytes);
        ByteSpan { start, end: self.0.len() as u32 }
    }

    fn add_some(&mut self, bytes: Option<&[u8]>) -> Option<ByteSpan> {
        bytes.map(|bytes| self.add(bytes))
    }
}

impl OwnedRequest {
    /// A copy of `request`; it takes over the content.
    pub fn new(request: &Request<'_>) -> Self {
        let head = request.head;
        let mut copier = Copier(Vec::with_capacity(head.head_bytes.clamp(64, 4096) * 2));
        let method = copier.add(head.method.as_str().as_bytes());
        let goal = match head.target {
            Target::Resource { path, query, authority } => Goal::Resource {
                path: copier.add(path),
                query: copier.add_some(query),
                authority: copier.add_some(authority),
            },
            Target::Authority(authority) => Goal::Authority(copier.add(authority)),
            Target::Asterisk => Goal::Asterisk,
        };
        let target_text = copier.add(head.target_text);
        let host = copier.add_some(head.host);
        let fields = head.fields.iter().map(|(name, value)| (copier.add(name.as_bytes()), copier.add(value))).collect();
        Self {
            bytes: copier.0,
            fields,
            method,
            known: !matches!(head.method, Method::Unknown(_)),
            goal,
            target_text,
            version: head.version,
            host,
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

    fn part(&self, span: ByteSpan) -> &[u8] {
        self.bytes.get(span.start as usize..span.end as usize).unwrap_or_default()
    }

    /// The bytes were copied from text.
    fn text(&self, span: ByteSpan) -> &str {
        std::str::from_utf8(self.part(span)).unwrap_or_default()
    }

    /// The content and the channel for interim responses, taken over from the request.
    pub const fn offers(&self) -> &Offers {
        &self.offers
    }

    /// The method.
    pub fn method(&self) -> &str {
        self.text(self.method)
    }

    /// Calls `look` with the request.
    pub fn with<T>(&self, look: impl FnOnce(&Request<'_>) -> T) -> T {
        let mut inline = [Header { name: "", value: b"" }; FIELDS_INLINE];
        let mut overflow = Vec::new();
        let lines = if self.fields.len() <= FIELDS_INLINE {
            &mut inline[..self.fields.len()]
        } else {
            overflow.resize(self.fields.len(), Header { name: "", value: b"" });
            &mut overflow[..]
        };
        for (line, (name, value)) in lines.iter_mut().zip(&self.fields) {
            *line = Header { name: self.text(*name), value: self.part(*value) };
        }
        let head = RequestHead {
            method: match self.method() {
                "GET" => Method::Get,
                "HEAD" => Method::Head,
                "OPTIONS" => Method::Options,
                "CONNECT" => Method::Connect,
                known if self.known => Method::Known(known),
                unknown => Method::Unknown(unknown),
            },
            target: match self.goal {
                Goal::Resource { path, query, authority } => Target::Resource {
                    path: self.part(path),
                    query: query.map(|query| self.part(query)),
                    authority: authority.map(|authority| self.part(authority)),
                },
                Goal::Authority(authority) => Target::Authority(self.part(authority)),
                Goal::Asterisk => Target::Asterisk,
            },
            target_text: self.part(self.target_text),
            version: self.version,
            host: self.host.map(|host| self.part(host)),
            fields: Fields::from_lines(lines),
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
    use crate::content::Offers;
    use crate::handler::Request;
    use flatout_http::head::FieldStorage;
    use flatout_http::limits::Limits;
    use flatout_http::request::parse_request_head;

    #[test]
    fn a_copy_shows_what_was_copied() {
        let many: String = (0..40).map(|index| format!("X-{index}: {index}\r\n")).collect();
        for text in [
            "GET /a%20b?c HTTP/1.1\r\nHost: a.example:81\r\nIf-None-Match: \"x\"\r\nA: b\r\n\r\n".to_owned(),
            "POST http://h.example/ HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
                .to_owned(),
            "OPTIONS * HTTP/1.0\r\n\r\n".to_owned(),
            "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n".to_owned(),
            format!("BREW / HTTP/1.1\r\nHost: a\r\n{many}\r\n"),
        ] {
            let mut storage = FieldStorage::new();
            let head = parse_request_head(text.as_bytes(), &Limits::DEFAULT, &mut storage).unwrap().unwrap();
            let offers = Offers::new();
            let request =
                Request { head: &head, client: "[::1]:9".parse().ok(), secure: true, listener: 3, offers: &offers };
            let owned = OwnedRequest::new(&request);
            assert_eq!(owned.method(), head.method.as_str());
            owned.with(|copy| {
                assert_eq!(format!("{:?}", copy.head), format!("{head:?}"), "{text}");
                assert_eq!((copy.client, copy.secure, copy.listener), (request.client, true, 3));
            });
        }
    }
}
