//! A cacheable request, with its key and everything needed to respond to it.

use crate::esi::is_asked_for;
use crate::exchange::UpstreamRequest;
use crate::ranges::RangeFetch;
use crate::rules::CacheStep;
use crate::searches::{SearchRule, is_allowed};
use crate::step::ProxyStep;
use flatout_cache::key::write_key;
use flatout_cache::reason::Lookup;
use flatout_cache::request::CacheRequest;
use flatout_cache::stored::{Extent, Flags, Stored};
use flatout_handler::routed::HeaderPolicy;
use flatout_http::head::FieldStorage;
use flatout_http::status::has_content;
use flatout_store::ObjectKey;
use flatout_upstream::origin::Incoming;
use std::cell::{Cell, RefCell};
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
    /// The rule by which `key` was written; `None` if it is an ordinary key.
    pub(crate) search: Option<Arc<SearchRule>>,
    pub(crate) policy: Rc<HeaderPolicy>,
    pub(crate) shows_status: bool,
    /// True if any cookie of the request may identify the visitor.
    pub(crate) names_visitor: bool,
    /// Names in Vary learned from the response of a shared fetch, while no response is stored.
    pub(crate) vary: RefCell<Option<Box<str>>>,
    /// The template, if ESI is enabled and the response requests ESI processing.
    pub(crate) template: RefCell<Option<EsiSource>>,
    /// Present while the whole response is fetched on behalf of a range request.
    pub(crate) range_fetch: RefCell<Option<RangeFetch>>,
    /// Reason for which the request was last forwarded, or `None` if it was not forwarded.
    pub(crate) forwarded: Cell<Option<Lookup>>,
}

/// A response that requests ESI processing.
pub(crate) enum EsiSource {
    /// A template, with its field lines. The response contains the whole content; conditions and ranges are not
    /// evaluated.
    Page(Vec<u8>),
    /// The content is encoded, so it cannot be parsed.
    Encoded,
}

impl Query {
    /// Creates a query whose client does not receive Cache-Status and is not identified by a cookie.
    pub(crate) fn new(
        ask: UpstreamRequest,
        step: &Arc<ProxyStep>,
        cache: &Arc<CacheStep>,
        (key, search): (ObjectKey, Option<Arc<SearchRule>>),
        policy: &Rc<HeaderPolicy>,
    ) -> Self {
        Self {
            ask,
            step: Arc::clone(step),
            cache: Arc::clone(cache),
            key,
            search,
            policy: Rc::clone(policy),
            shows_status: false,
            names_visitor: false,
            vary: RefCell::default(),
            template: RefCell::default(),
            range_fetch: RefCell::default(),
            forwarded: Cell::new(None),
        }
    }

    /// Returns whether the stored response `stored` is a template to compose. If it is an encoded template, records
    /// that.
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

    /// Returns whether `incoming`, a response that is not stored, is a template to compose. If it is an encoded
    /// template, records that.
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

    /// Calls `look` with the request in the form that `flatout_cache` requires.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&CacheRequest<'_>) -> T) -> T {
        let (path, query) = self.ask.path_and_query();
        self.ask.request.with(|request| {
            let forwarding = self.step.forwarding(request.sender());
            let cache_request = CacheRequest {
                method: request.head.method.as_str(),
                secure: request.secure,
                authority: request.head.host.unwrap_or_default(),
                path,
                query,
                fields: request.head.fields,
                has_content: request.offers.has_content(),
                forwarding: &forwarding,
            };
            look(&cache_request)
        })
    }

    /// Returns the hash under which the hit-for-miss marker for this request is stored.
    pub(crate) fn marker_hash(&self) -> u64 {
        audience_hash(self.key.hash(), self.names_visitor)
    }

    /// Returns whether the whole response is fetched on behalf of this range request.
    pub(crate) fn fetches_whole(&self) -> bool {
        self.range_fetch.borrow().is_some()
    }

    /// Returns the ordinary key of the request, which contains the whole query.
    pub(crate) fn plain_key(&self) -> Vec<u8> {
        self.in_realm(&self.with(|request| {
            let mut key = Vec::new();
            write_key(request, &self.cache.rules, &mut key);
            key
        }))
    }

    /// Returns whether `stored`, the response to another request with the same key, may be used for this one. If the
    /// key does not contain the whole query, that depends on the No-Vary-Search of the response.
    pub(crate) fn has_search_of(&self, stored: &Stored) -> bool {
        self.search.is_none() || is_allowed(self.search.as_deref(), stored)
    }

    /// Returns the prefix of the keys of all fetches for this cache key.
    pub(crate) fn fetch_prefix(&self) -> Vec<u8> {
        let mut key = self.key.as_bytes().to_vec();
        key.push(FETCH_KEY_END);
        key
    }

    /// Returns `key`, the key of any resource, within the same realm.
    pub(crate) fn in_realm(&self, key: &[u8]) -> Vec<u8> {
        let mut whole = Vec::new();
        self.step.begin_key(&self.cache, &mut whole);
        whole.extend_from_slice(key);
        whole
    }
}

/// Returns the hash of the marker for requests that identify their visitor, or for all other requests. The markers are
/// separate, since a page that is private for logged-in visitors may be shared among all others.
pub(crate) const fn audience_hash(hash: u64, names_visitor: bool) -> u64 {
    // Any constant with well-mixed bits works. This is 2^64 divided by the golden ratio.
    if names_visitor { hash ^ 0x9e37_79b9_7f4a_7c15 } else { hash }
}
