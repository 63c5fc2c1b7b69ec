//! A copy of a request that outlives the handler call, because its response takes time.

use crate::content::Offers;
use crate::handler::Request;
use flatout_http::framing::{Framing, Version};
use flatout_http::head::{FieldStorage, Fields, parse_fields};
use flatout_http::limits::Limits;
use flatout_http::request::{Asked, Method, RequestHead};
use flatout_http::target::Target;
use std::net::SocketAddr;

/// A range of the copied bytes.
#[derive(Clone, Copy, Debug, Default)]
struct ByteSpan {
    start: u32,
    end: u32,
}

#[derive(Clone, Copy, Debug)]
enum OwnedMethod {
    Get,
    Head,
    Options,
    Connect,
    /// POST, PUT, DELETE, PATCH or TRACE.
    Known(ByteSpan),
    Unknown(ByteSpan),
}

#[derive(Clone, Copy, Debug)]
enum Goal {
    Resource { path: ByteSpan, query: Option<ByteSpan> },
    Authority(ByteSpan),
    Asterisk,
}

/// The fields of a copied request.
#[derive(Debug)]
enum OwnedFields {
    /// The field section as received, with the number of its lines. It is parsed again for each use, because most
    /// copies are never used.
    Section(ByteSpan, usize),
    /// The name and value of each field of a request that was not received as HTTP/1.1.
    Lines(Vec<(ByteSpan, ByteSpan)>),
}

/// A copy of a request, with all of its bytes in one allocation.
#[derive(Debug)]
pub struct OwnedRequest {
    bytes: Vec<u8>,
    fields: OwnedFields,
    addendum: ByteSpan,
    method: OwnedMethod,
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
    unix: bool,
    secure: bool,
    listener: u32,
    offers: Offers,
}

/// Copies byte slices into one buffer. Slices of `target` and `section` are not copied a second time.
struct Copier<'a> {
    bytes: Vec<u8>,
    /// The request target, copied at the start of the buffer.
    target: &'a [u8],
    /// The field section, copied after the target.
    section: &'a [u8],
}

impl<'a> Copier<'a> {
    fn new(target: &'a [u8], section: &'a [u8]) -> Self {
        let mut bytes = Vec::with_capacity(target.len() + section.len() + 256);
        bytes.extend_from_slice(target);
        bytes.extend_from_slice(section);
        Self { bytes, target, section }
    }

    /// Returns the range of the copy of `bytes`. Offsets fit in 32 bits, because the limit on heads is far lower.
    fn add(&mut self, bytes: &[u8]) -> ByteSpan {
        let copied = position(self.target, bytes)
            .or_else(|| position(self.section, bytes).map(|start| start + self.target.len()));
        let start = copied.unwrap_or_else(|| {
            self.bytes.extend_from_slice(bytes);
            self.bytes.len() - bytes.len()
        });
        ByteSpan { start: start as u32, end: (start + bytes.len()) as u32 }
    }

    fn add_some(&mut self, bytes: Option<&[u8]>) -> Option<ByteSpan> {
        bytes.map(|bytes| self.add(bytes))
    }
}

/// Returns the offset of `part` in `whole`, if `part` is a slice of the same memory.
fn position(whole: &[u8], part: &[u8]) -> Option<usize> {
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    (start + part.len() <= whole.len()).then_some(start)
}

impl OwnedRequest {
    /// Returns the client's address.
    pub const fn client(&self) -> Option<SocketAddr> {
        self.client
    }

    /// Copies `request` and takes over its content.
    pub fn new(request: &Request<'_>) -> Self {
        Self::with_addendum(request, |_| {})
    }

    /// Copies `request` as in [`Self::new`], with additional bytes that `write` appends to the same allocation.
    pub fn with_addendum(request: &Request<'_>, write: impl FnOnce(&mut Vec<u8>)) -> Self {
        let head = request.head;
        let mut copier = Copier::new(head.target_text, head.fields.section());
        let method = match head.method {
            Method::Get => OwnedMethod::Get,
            Method::Head => OwnedMethod::Head,
            Method::Options => OwnedMethod::Options,
            Method::Connect => OwnedMethod::Connect,
            Method::Known(method) => OwnedMethod::Known(copier.add(method.as_bytes())),
            Method::Unknown(method) => OwnedMethod::Unknown(copier.add(method.as_bytes())),
        };
        let goal = match head.target {
            Target::Resource { path, query } => {
                Goal::Resource { path: copier.add(path), query: copier.add_some(query) }
            }
            Target::Authority(authority) => Goal::Authority(copier.add(authority)),
            Target::Asterisk => Goal::Asterisk,
        };
        let target_text = copier.add(head.target_text);
        let host = copier.add_some(head.host);
        let section = head.fields.section();
        let fields = if section.is_empty() {
            let lines = head.fields.iter();
            OwnedFields::Lines(lines.map(|(name, value)| (copier.add(name.as_bytes()), copier.add(value))).collect())
        } else {
            OwnedFields::Section(copier.add(section), head.fields.len())
        };
        let mut bytes = copier.bytes;
        let start = bytes.len() as u32;
        write(&mut bytes);
        let addendum = ByteSpan { start, end: bytes.len() as u32 };
        Self {
            bytes,
            fields,
            addendum,
            method,
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
            unix: request.unix,
            secure: request.secure,
            listener: request.listener,
            offers: request.offers.carry(),
        }
    }

    fn part(&self, span: ByteSpan) -> &[u8] {
        self.bytes.get(span.start as usize..span.end as usize).unwrap_or_default()
    }

    /// Returns the text in `span`, which was copied from a string.
    fn text(&self, span: ByteSpan) -> &str {
        std::str::from_utf8(self.part(span)).unwrap_or_default()
    }

    /// Returns the content and the channel for interim responses that were taken over from the request.
    pub const fn offers(&self) -> &Offers {
        &self.offers
    }

    /// Returns the additional bytes that [`Self::with_addendum`] stored.
    pub fn addendum(&self) -> &[u8] {
        self.part(self.addendum)
    }

    /// Returns the method.
    pub fn method(&self) -> &str {
        self.parsed_method().as_str()
    }

    fn parsed_method(&self) -> Method<'_> {
        match self.method {
            OwnedMethod::Get => Method::Get,
            OwnedMethod::Head => Method::Head,
            OwnedMethod::Options => Method::Options,
            OwnedMethod::Connect => Method::Connect,
            OwnedMethod::Known(method) => Method::Known(self.text(method)),
            OwnedMethod::Unknown(method) => Method::Unknown(self.text(method)),
        }
    }

    /// Rebuilds the request and calls `look` with it.
    pub fn with<T>(&self, look: impl FnOnce(&Request<'_>) -> T) -> T {
        let mut storage = FieldStorage::new();
        let fields = match &self.fields {
            OwnedFields::Lines(lines) => {
                let count = lines.len();
                storage.fill(lines.iter().map(|(name, value)| (self.text(*name), self.part(*value))), count)
            }
            OwnedFields::Section(section, count) => {
                let limits = Limits { fields_max: *count, ..Limits::DEFAULT };
                // These bytes were valid when the request was received.
                parse_fields(self.part(*section), &limits, &mut storage).unwrap_or(Fields::EMPTY)
            }
        };
        let head = RequestHead {
            method: self.parsed_method(),
            target: match self.goal {
                Goal::Resource { path, query } => {
                    Target::Resource { path: self.part(path), query: query.map(|query| self.part(query)) }
                }
                Goal::Authority(authority) => Target::Authority(self.part(authority)),
                Goal::Asterisk => Target::Asterisk,
            },
            target_text: self.part(self.target_text),
            version: self.version,
            host: self.host.map(|host| self.part(host)),
            fields,
            framing: self.framing,
            persistent: self.persistent,
            expects_continue: self.expects_continue,
            asked: self.asked,
            head_bytes: self.head_bytes,
        };
        look(&Request {
            head: &head,
            client: self.client,
            unix: self.unix,
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
    use flatout_http::head::{FieldStorage, Fields, Header};
    use flatout_http::limits::Limits;
    use flatout_http::request::{RequestHead, parse_request_head};

    #[test]
    fn a_copy_shows_what_was_copied() {
        let many: String = (0..40).map(|index| format!("X-{index}: {index}\r\n")).collect();
        for text in [
            "GET /a%20b?c HTTP/1.1\r\nHost: a.example:81\r\nIf-None-Match: \"x\"\r\nA: b\r\n\r\n".to_owned(),
            "POST http://h.example/ HTTP/1.1\r\nHost: h.example:80\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
                .to_owned(),
            "OPTIONS * HTTP/1.0\r\n\r\n".to_owned(),
            "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n".to_owned(),
            format!("BREW / HTTP/1.1\r\nHost: a\r\n{many}\r\n"),
        ] {
            let mut storage = FieldStorage::new();
            let head = parse_request_head(text.as_bytes(), &Limits::DEFAULT, &mut storage).unwrap().unwrap();
            let offers = Offers::new();
            let request =
                Request { head: &head, client: "[::1]:9".parse().ok(), unix: false, secure: true, listener: 3, offers: &offers };
            let owned = OwnedRequest::with_addendum(&request, |bytes| bytes.extend_from_slice(b"more"));
            assert_eq!((owned.method(), owned.addendum()), (head.method.as_str(), &b"more"[..]));
            owned.with(|copy| {
                assert_eq!(format!("{:?}", copy.head), format!("{head:?}"), "{text}");
                assert_eq!((copy.client, copy.secure, copy.listener), (request.client, true, 3));
                assert_eq!(copy.head.fields.section(), head.fields.section());
            });
            let lines: Vec<_> = head.fields.iter().map(|(name, value)| Header { name, value }).collect();
            let head = RequestHead { fields: Fields::from_lines(&lines), ..head };
            OwnedRequest::new(&Request { head: &head, ..request }).with(|copy| {
                assert_eq!(format!("{:?}", copy.head), format!("{head:?}"), "{text}");
            });
        }
    }
}
