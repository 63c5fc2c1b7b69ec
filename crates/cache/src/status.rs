//! Cache-Status (RFC 9211): what this cache did, for who looks at the answer.

/// Why a request was forwarded (RFC 9211 §2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fwd {
    /// The cache was left out.
    Bypass,
    /// The method's semantics require it.
    Method,
    /// Nothing is stored for the URI.
    UriMiss,
    /// Something is, but no variant for this request.
    VaryMiss,
    /// Nothing that matches is stored.
    Miss,
    /// A fresh answer is stored, but the request does not want it.
    Request,
    /// A stale answer is stored.
    Stale,
    /// A part is stored, but not the one asked for.
    Partial,
}

/// The member of Cache-Status that is ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheStatus<'a> {
    /// The cache's name: a token or any text.
    pub identifier: &'a str,
    /// Whether it was answered from the store, and otherwise why it was forwarded.
    pub fwd: Option<Fwd>,
    /// The status of the answer to what was forwarded, when it is not the status of this answer.
    pub fwd_status: Option<u16>,
    /// Whether the answer was stored.
    pub stored: bool,
    /// Whether the request shared another one's forwarding.
    pub collapsed: bool,
    /// Seconds of freshness left.
    pub ttl_s: Option<i64>,
    /// The key, when it is to be seen.
    pub key: Option<&'a [u8]>,
    /// The reason's name.
    pub detail: &'a str,
}

impl CacheStatus<'_> {
    /// Appends the member, without the field's name: `flatout; hit; ttl=59; detail=hit_fresh`. Behind the members that
    /// the origin sent, as another line or after a comma.
    pub fn write(&self, output: &mut Vec<u8>) {
        let _ = output;
        unimplemented!()
    }
}
