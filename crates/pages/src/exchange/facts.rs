//! A copy of the request, in one buffer.

use std::net::SocketAddr;

/// A range of the copied bytes. The size of a head is limited far below 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    pub(crate) fn of(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

/// Appends `more` to `bytes` and returns its range.
pub(crate) fn append(bytes: &mut Vec<u8>, more: &[u8]) -> Span {
    let start = bytes.len() as u32;
    bytes.extend_from_slice(more);
    Span { start, end: bytes.len() as u32 }
}

/// A copy of the request, because a page may wait for longer than the connection's buffer exists.
#[derive(Debug, Default)]
pub struct RequestFacts {
    bytes: Vec<u8>,
    method: Span,
    path: Span,
    query: Option<Span>,
    /// Name and value of each field line.
    fields: Vec<(Span, Span)>,
    client: Option<SocketAddr>,
    secure: bool,
    /// The host that a trusted proxy has reported, if any. It takes precedence over the Host field.
    host: Option<Span>,
}

impl RequestFacts {
    /// Copies a request: its method, the path as sent (RFC 3986 §3.3, not decoded), the query without its question
    /// mark, and the field lines in order.
    pub fn set<'a>(
        &mut self,
        method: &str,
        path: &[u8],
        query: Option<&[u8]>,
        fields: impl Iterator<Item = (&'a str, &'a [u8])>,
        client: Option<SocketAddr>,
        secure: bool,
    ) {
        self.clear();
        self.method = append(&mut self.bytes, method.as_bytes());
        self.path = append(&mut self.bytes, path);
        self.query = query.map(|query| append(&mut self.bytes, query));
        for (name, value) in fields {
            let name = append(&mut self.bytes, name.as_bytes());
            let value = append(&mut self.bytes, value);
            self.fields.push((name, value));
        }
        self.client = client;
        self.secure = secure;
    }

    /// Sets the host that a trusted proxy has reported.
    pub fn set_host(&mut self, host: &[u8]) {
        self.host = Some(append(&mut self.bytes, host));
    }

    /// Clears the request.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.fields.clear();
        self.method = Span::default();
        self.path = Span::default();
        self.query = None;
        self.client = None;
        self.secure = false;
        self.host = None;
    }

    /// The method, as sent.
    pub fn method(&self) -> &[u8] {
        self.method.of(&self.bytes)
    }

    /// The path, as sent and not decoded.
    pub fn path(&self) -> &[u8] {
        self.path.of(&self.bytes)
    }

    /// The query without its question mark; `None` if the target has no query.
    pub fn query(&self) -> Option<&[u8]> {
        self.query.map(|query| query.of(&self.bytes))
    }

    /// The value of the first field line with this name, ignoring case.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields().find_map(|(known, value)| known.eq_ignore_ascii_case(name.as_bytes()).then_some(value))
    }

    /// Name and value of all field lines, in order.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|(name, value)| (name.of(&self.bytes), value.of(&self.bytes)))
    }

    /// The requested host, with its port if the request specifies one.
    pub fn host(&self) -> Option<&[u8]> {
        match self.host {
            Some(host) => Some(host.of(&self.bytes)),
            None => self.field("host"),
        }
    }

    /// The client's address.
    pub const fn client(&self) -> Option<SocketAddr> {
        self.client
    }

    /// Returns whether the client uses TLS.
    pub const fn secure(&self) -> bool {
        self.secure
    }
}
