//! A cacheable request: its key, and the input to its response.

use crate::esi::is_asked_for;
use crate::exchange::UpstreamRequest;
use crate::ranges::RangeFetch;
use crate::rules::CacheStep;
use crate::step::ProxyStep;
use flatout_cache::request::CacheRequest;
use flatout_cache::stored::{Extent, Flags, Stored};
use flatout_handler::routed::HeaderPolicy;
use flatout_http::head::FieldStorage;
use flatout_http::status::has_content;
use flatout_store::ObjectKey;
use flatout_store::key::begin_key;
use flatout_upstream::origin::Incoming;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Separator after the cache key in the key of a fetch.
pub(crate) const FETCH_KEY_END: u8 = 0;

const ENCODING: &[u8] = b"content-encoding";

/// A cacheable request.
pub(crate) struct Query {
    pub(crate) ask: UpstreamRequest,
    pub(crate) step: Arc<ProxyStep>,
    pub(crate) cache: Arc<CacheStep>,
    pub(crate) key: ObjectKey,
    pub(crate) policy: Rc<HeaderPolicy>,
    pub(crate) shows_status: bool,
    /// True if a cookie of the request may identify its visitor.
    pub(crate) names_visitor: bool,
    /// Vary names of the last response found, if none is stored yet.
    pub(crate) vary: RefCell<Option<Box<str>>>,
    /// The template, if the response requests ESI and ESI is enabled.
    pub(crate) template: RefCell<Option<EsiSource>>,
    /// Held while the whole response is fetched for a range request.
    pub(crate) range_fetch: RefCell<Option<RangeFetch>>,
}

/// A response that requests ESI.
pub(crate) enum EsiSource {
    /// Its field lines. The response has its whole content, without evaluation of conditions and ranges.
    Page(Vec<u8>),
    /// It is compressed, so it cannot be parsed.
    Encoded,
}

impl Query {
    /// Creates a query whose client does not see Cache-Status and is not identified by a cookie.
    pub(crate) fn new(
        ask: UpstreamRequest,
        step: &Arc<ProxyStep>,
        cache: &Arc<CacheStep>,
        key: ObjectKey,
        policy: &Rc<HeaderPolicy>,
    ) -> Self {
        Self {
            ask,
            step: Arc::clone(step),
            cache: Arc::clone(cache),
            key,
            policy: Rc::clone(policy),
            shows_status: false,
            names_visitor: false,
            vary: RefCell::default(),
            template: RefCell::default(),
            range_fetch: RefCell::default(),
        }
    }

    /// Returns whether the response `stored` is a template to compose.
    pub(crate) fn is_template(&self, stored: &Stored) -> bool {
        self.template.replace(None);
        let asks = self.cache.esi && stored.flags.any(Flags::ESI) && stored.extent == Extent::Whole;
        if !asks || !has_content(stored.status) {
            return false;
        }
        let is_encoded =
            flatout_http::lines::each_line(&stored.lines).any(|(name, _)| name.eq_ignore_ascii_case(ENCODING));
        if is_encoded {
            self.template.replace(Some(EsiSource::Encoded));
        }
        !is_encoded
    }

    /// The same for a response that is not stored.
    pub(crate) fn is_template_here(&self, incoming: &Incoming) -> bool {
        self.template.replace(None);
        let mut storage = FieldStorage::new();
        let fields = incoming.fields(&mut storage);
        if !self.cache.esi || matches!(incoming.status, 101 | 204 | 206 | 304) || !is_asked_for(fields) {
            return false;
        }
        let is_encoded = fields.first("content-encoding").is_some();
        if is_encoded {
            self.template.replace(Some(EsiSource::Encoded));
        }
        !is_encoded
    }

    /// Calls `look` with the request as the cache core represents it.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&CacheRequest<'_>) -> T) -> T {
        let (path, query) = self.ask.path_and_query();
        self.ask.request.with(|request| {
            let forwarding = self.step.forwarding(request.client.map(|client| client.ip()));
            let cache_request = CacheRequest {
                method: request.head.method.as_str(),
                secure: request.secure,
                authority: request.head.effective_host().unwrap_or_default(),
                path,
                query,
                fields: request.head.fields,
                has_content: request.offers.has_content(),
                forwarding: &forwarding,
            };
            look(&cache_request)
        })
    }

    /// Hash for the marker that requests like this do not wait for one another.
    pub(crate) fn marker_hash(&self) -> u64 {
        audience_hash(self.key.hash(), self.names_visitor)
    }

    /// Returns whether to fetch the whole response for a range request.
    pub(crate) fn fetches_whole(&self) -> bool {
        self.range_fetch.borrow().is_some()
    }

    /// Prefix of the keys of its fetches.
    pub(crate) fn fetch_prefix(&self) -> Vec<u8> {
        let mut key = self.key.as_bytes().to_vec();
        key.push(FETCH_KEY_END);
        key
    }

    /// Key of another resource in the same realm.
    pub(crate) fn in_realm(&self, key: &[u8]) -> Vec<u8> {
        let mut whole = Vec::with_capacity(self.step.realm.len() + 1 + key.len());
        begin_key(&self.step.realm, &mut whole);
        whole.extend_from_slice(key);
        whole
    }
}

/// Separates markers of requests that identify their visitor from those of all others: a page that is private for
/// logged-in visitors may be shared among all others.
pub(crate) const fn audience_hash(hash: u64, names_visitor: bool) -> u64 {
    // Any constant with mixed bits in all bytes works: this is 2^64 divided by the golden ratio.
    if names_visitor { hash ^ 0x9e37_79b9_7f4a_7c15 } else { hash }
}
