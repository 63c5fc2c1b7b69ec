//! What an answer says of how it came about: Age and Cache-Status.

use crate::fill::{FillHead, Use};
use flatout_cache::reason::{Lookup, NoStore};
use flatout_cache::status::{CacheStatus, Fwd};
use flatout_http::lines::write_line;
use std::rc::Rc;

/// The name of this cache in Cache-Status.
pub(crate) const IDENTIFIER: &str = "flatout";

/// What an answer says of how it came about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    pub(crate) reason: Lookup,
    /// Why it was forwarded; `None` for a hit.
    pub(crate) fwd: Option<Fwd>,
    pub(crate) fwd_status: Option<u16>,
    pub(crate) stored: bool,
    pub(crate) collapsed: bool,
    /// Why the answer is not kept, when it is not.
    pub(crate) why: Option<NoStore>,
}

impl Note {
    /// A hit.
    pub(crate) const fn hit(reason: Lookup) -> Self {
        Self { reason, fwd: None, fwd_status: None, stored: false, collapsed: false, why: None }
    }

    /// The same for what is kept and may be used for this reason.
    pub(crate) const fn of_use(self, how: Use) -> Self {
        let (reason, fwd_status) = match how {
            Use::Validated | Use::ValidatedOnce => (Lookup::HitValidated, Some(304)),
            Use::InsteadOfError => (Lookup::HitIfError, None),
        };
        Self { reason, fwd_status, ..self }
    }

    /// The same for content that is still coming, and will be kept unless its length says otherwise.
    pub(crate) const fn of_fill(self, head: &FillHead) -> Self {
        Self { stored: head.unkept.is_none(), why: head.unkept, ..self }
    }

    /// The reason's name: why it is not stored, if that is known, as it says more than that nothing was found.
    pub(crate) fn detail(&self) -> &'static str {
        self.why.map_or(self.reason.name(), NoStore::name)
    }

    /// What a log says of storing a response that is being fetched.
    pub(crate) fn stored_as(&self) -> &'static str {
        self.why.map_or("storing", NoStore::name)
    }

    /// The lines of Age and Cache-Status for an answer that is `age_s` old.
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
