//! A request that is looked up: its key, and all that its answer will need.

use crate::esi::is_asked_for;
use crate::exchange::Ask;
use crate::ranges::RangeFetch;
use crate::rules::CacheStep;
use crate::step::ProxyStep;
use crate::store::Key;
use flatout_cache::request::CacheRequest;
use flatout_cache::stored::{Extent, Flags, Stored};
use flatout_config::model::FieldOp;
use flatout_http::head::FieldStorage;
use flatout_http::status::has_content;
use flatout_net::origin::Incoming;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// What stands between a realm and the rest of a key: no host name has it.
const REALM_END: u8 = b'\n';

/// What stands behind the key in the key of a fetch.
pub(crate) const FETCH_KEY_END: u8 = 0;

const ENCODING: &[u8] = b"content-encoding";

/// A request that is looked up.
pub(crate) struct Query {
    pub(crate) ask: Ask,
    pub(crate) step: Arc<ProxyStep>,
    pub(crate) cache: Arc<CacheStep>,
    pub(crate) key: Key,
    pub(crate) changes: Rc<[FieldOp]>,
    pub(crate) changes_id: u32,
    pub(crate) shows_status: bool,
    /// Whether a cookie of the request may tell its visitor from others.
    pub(crate) names_visitor: bool,
    /// What the last answer met said in Vary, when none is stored yet.
    pub(crate) vary: RefCell<Option<Box<str>>>,
    /// What was answered with, when that asks for ESI and ESI is done.
    pub(crate) template: RefCell<Option<Template>>,
    /// Held while the whole response is fetched although a range is requested.
    pub(crate) range_fetch: RefCell<Option<RangeFetch>>,
}

/// An answer that asks for ESI.
pub(crate) enum Template {
    /// These are its field lines; its whole content is the answer's, and no condition or range was looked at.
    Page(Vec<u8>),
    /// It is compressed, and so cannot be looked through.
    Encoded,
}

impl Query {
    /// Whether the answer `stored` is a page that has to be put together.
    pub(crate) fn is_template(&self, stored: &Stored) -> bool {
        self.template.replace(None);
        let asks = self.cache.esi && stored.flags.any(Flags::ESI) && stored.extent == Extent::Whole;
        if !asks || !has_content(stored.status) {
            return false;
        }
        let is_encoded =
            flatout_http::lines::each_line(&stored.lines).any(|(name, _)| name.eq_ignore_ascii_case(ENCODING));
        if is_encoded {
            self.template.replace(Some(Template::Encoded));
        }
        !is_encoded
    }

    /// The same of an answer that is not kept.
    pub(crate) fn is_template_here(&self, incoming: &Incoming) -> bool {
        self.template.replace(None);
        let mut storage = FieldStorage::new();
        let fields = incoming.fields(&mut storage);
        if !self.cache.esi || matches!(incoming.status, 101 | 204 | 206 | 304) || !is_asked_for(fields) {
            return false;
        }
        let is_encoded = fields.first("content-encoding").is_some();
        if is_encoded {
            self.template.replace(Some(Template::Encoded));
        }
        !is_encoded
    }

    /// Shows the request to `look`, as the cache core wants it.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&CacheRequest<'_>) -> T) -> T {
        let (path, query) = self.ask.path_and_query();
        self.ask.request.with(|request| {
            let forwarding = self.step.forwarding(request.client.map(|client| client.ip()));
            let cache_request = CacheRequest {
                method: request.head.method.as_str(),
                secure: request.secure,
                authority: crate::forward::effective_host(request.head).unwrap_or_default(),
                path,
                query,
                fields: request.head.fields,
                has_content: request.offers.has_content(),
                forwarding: &forwarding,
            };
            look(&cache_request)
        })
    }

    /// The hash under which it is remembered that requests like this one do not wait for one another.
    pub(crate) fn marker_hash(&self) -> u64 {
        audience_hash(self.key.hash(), self.names_visitor)
    }

    /// Whether the origin is asked for the whole although a range is requested.
    pub(crate) fn fetches_whole(&self) -> bool {
        self.range_fetch.borrow().is_some()
    }

    /// What the keys of its fetches begin with.
    pub(crate) fn fetch_prefix(&self) -> Vec<u8> {
        let mut key = self.key.as_bytes().to_vec();
        key.push(FETCH_KEY_END);
        key
    }

    /// The key of another resource of the same realm.
    pub(crate) fn in_realm(&self, key: &[u8]) -> Vec<u8> {
        let mut whole = Vec::with_capacity(self.step.realm.len() + 1 + key.len());
        begin_key(&self.step.realm, &mut whole);
        whole.extend_from_slice(key);
        whole
    }
}

/// What is remembered of a key for requests that name their visitor is not remembered for all others: a page that is
/// private for those who have logged in may be one page for everybody else.
pub(crate) const fn audience_hash(hash: u64, names_visitor: bool) -> u64 {
    // Any constant with bits of either kind in all bytes would do: this is 2^64 divided by the golden ratio.
    if names_visitor { hash ^ 0x9e37_79b9_7f4a_7c15 } else { hash }
}

/// Begins a key of `realm`.
pub(crate) fn begin_key(realm: &str, output: &mut Vec<u8>) {
    output.extend_from_slice(realm.as_bytes());
    output.push(REALM_END);
}

/// The realm of a key.
pub(crate) fn realm_of(key: &[u8]) -> &[u8] {
    &key[..key.iter().position(|&byte| byte == REALM_END).unwrap_or(0)]
}

/// Where the host, path and query stand in a key.
pub(crate) fn locator(key: &[u8]) -> Range<usize> {
    let realm_end = key.iter().position(|&byte| byte == REALM_END).map_or(0, |end| end + 1);
    let scheme_end = key[realm_end..].windows(3).position(|window| window == b"://").map_or(0, |at| at + 3);
    realm_end + scheme_end..key.len()
}

#[cfg(test)]
mod tests {
    use super::{begin_key, locator};

    #[test]
    fn the_locator_stands_behind_realm_and_scheme() {
        let mut key = Vec::new();
        begin_key("*.example#1", &mut key);
        key.extend_from_slice(b"https://a.example:81/b?c=http://d");
        assert_eq!(&key[locator(&key)], b"a.example:81/b?c=http://d");
    }
}
