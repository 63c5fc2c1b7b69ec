//! Age and Cache-Status of a response.

use crate::fill::{FillHead, Use};
use flatout_cache::reason::{Lookup, NoStore};
use flatout_cache::status::{CacheStatus, Fwd};
use flatout_http::lines::write_line;
use std::rc::Rc;

/// Name of this cache in Cache-Status.
pub(crate) const IDENTIFIER: &str = "flatout";

/// Input to Age and Cache-Status.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    pub(crate) reason: Lookup,
    /// Reason for forwarding; `None` for a hit.
    pub(crate) fwd: Option<Fwd>,
    pub(crate) fwd_status: Option<u16>,
    pub(crate) stored: bool,
    pub(crate) collapsed: bool,
    /// Reason for not storing the response, if it is not stored.
    pub(crate) why: Option<NoStore>,
}

impl Note {
    /// Note for a hit.
    pub(crate) const fn hit(reason: Lookup) -> Self {
        Self { reason, fwd: None, fwd_status: None, stored: false, collapsed: false, why: None }
    }

    /// Note for a request forwarded because of `reason`.
    pub(crate) const fn forwarded(reason: Lookup) -> Self {
        Self { fwd: reason.fwd(), ..Self::hit(reason) }
    }

    /// Note for a stored response used for this reason.
    pub(crate) const fn of_use(self, how: Use) -> Self {
        let (reason, fwd_status) = match how {
            Use::Validated | Use::ValidatedOnce => (Lookup::HitValidated, Some(304)),
            Use::InsteadOfError => (Lookup::HitIfError, None),
        };
        Self { reason, fwd_status, ..self }
    }

    /// Note for arriving content that will be stored unless its length forbids it.
    pub(crate) const fn of_fill(self, head: &FillHead) -> Self {
        Self { stored: head.unkept.is_none(), why: head.unkept, ..self }
    }

    /// Name of the reason: why the response is not stored, if known, since that is more specific than a miss.
    pub(crate) fn detail(&self) -> &'static str {
        self.why.map_or(self.reason.name(), NoStore::name)
    }

    /// Storage result for the log, of a response that is being fetched.
    pub(crate) fn stored_as(&self) -> &'static str {
        self.why.map_or("storing", NoStore::name)
    }

    /// The lines of Age and Cache-Status for a response of age `age_s`.
    pub(crate) fn lines(&self, age_s: Option<u32>, ttl_s: Option<i64>, shows_status: bool) -> Rc<[u8]> {
        let mut lines = Vec::with_capacity(96);
        self.write_lines(age_s, ttl_s, shows_status, &mut lines);
        lines.into()
    }

    /// Appends the same lines.
    pub(crate) fn write_lines(&self, age_s: Option<u32>, ttl_s: Option<i64>, shows_status: bool, lines: &mut Vec<u8>) {
        if let Some(age_s) = age_s {
            write_line(b"Age", age_s.to_string().as_bytes(), lines);
        }
        if shows_status {
            lines.extend_from_slice(b"Cache-Status: ");
            let status = CacheStatus {
                identifier: IDENTIFIER,
                fwd: self.fwd,
                fwd_status: self.fwd_status,
                stored: self.stored,
                collapsed: self.collapsed,
                ttl_s,
                key: None,
                detail: self.detail(),
            };
            status.write(lines);
            lines.extend_from_slice(b"\r\n");
        }
    }
}
