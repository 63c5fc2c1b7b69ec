//! Generation of Age and Cache-Status for a response.

use crate::fill::{FillHead, Use};
use flatout_cache::reason::{Lookup, NoStore};
use flatout_cache::status::{CacheStatus, Fwd};
use flatout_http::lines::write_line;
use std::rc::Rc;

/// Name of this cache in Cache-Status.
pub(crate) const IDENTIFIER: &str = "flatout";

/// Data from which Age and Cache-Status are generated.
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
    /// Creates a note for a hit.
    pub(crate) const fn hit(reason: Lookup) -> Self {
        Self { reason, fwd: None, fwd_status: None, stored: false, collapsed: false, why: None }
    }

    /// Creates a note for a request forwarded because of `reason`.
    pub(crate) const fn forwarded(reason: Lookup) -> Self {
        Self { fwd: reason.fwd(), ..Self::hit(reason) }
    }

    /// Returns the note for a request that was served the stored response for the reason `how`.
    pub(crate) const fn of_use(self, how: Use) -> Self {
        let (reason, fwd_status) = match how {
            Use::Validated | Use::ValidatedOnce => (Lookup::HitValidated, Some(304)),
            Use::InsteadOfError => (Lookup::HitIfError, None),
        };
        Self { reason, fwd_status, ..self }
    }

    /// Returns the note for a response that will be stored unless its length or a lack of space forbids that.
    pub(crate) const fn of_fill(self, head: &FillHead) -> Self {
        Self { stored: head.storage.unkept.is_none(), why: head.storage.unkept, ..self }
    }

    /// Returns the name of the reason for not storing the response, if there is one, since it is more specific;
    /// otherwise that of the lookup result.
    pub(crate) fn detail(&self) -> &'static str {
        self.why.map_or(self.reason.name(), NoStore::name)
    }

    /// Returns the lines of Age and Cache-Status. Each is omitted if `age_s` is `None` or `shows_status` is false,
    /// respectively.
    pub(crate) fn lines(&self, age_s: Option<u32>, ttl_s: Option<i64>, shows_status: bool) -> Rc<[u8]> {
        let mut lines = Vec::with_capacity(96);
        self.write_lines(age_s, ttl_s, shows_status, &mut lines);
        lines.into()
    }

    /// Appends the lines that [`lines`](Self::lines) returns to the buffer.
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
