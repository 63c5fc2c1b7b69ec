//! The latest No-Vary-Search of each path.
//!
//! A rule determines the key under which requests are looked up. It stays when a response lacks the field, because
//! responses stored under it must still be invalidated.

use flatout_cache::search::NoVarySearch;
use flatout_cache::stored::Stored;
use flatout_os::random::HashState;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Maximum number of paths whose rule is remembered. At the limit, the map is cleared; later responses refill it.
const RULES_MAX: usize = 65_536;

/// The rule of a path.
#[derive(Debug)]
pub(crate) struct SearchRule {
    /// The latest No-Vary-Search.
    pub(crate) search: NoVarySearch,
    /// Time since which the path has had a rule, in seconds since 1970. Responses requested earlier may have been
    /// invalidated while it had none, such as before a restart.
    since_s: i64,
}

impl SearchRule {
    /// Returns whether a response stored under a key of this rule may be used.
    fn allows(&self, stored: &Stored) -> bool {
        stored.search.as_ref() == Some(&self.search) && stored.request_time_s >= self.since_s
    }
}

/// Returns whether `stored` may be used if it was found under a key of `rule`, or under an ordinary key if `rule` is
/// `None`.
pub(crate) fn is_allowed(rule: Option<&SearchRule>, stored: &Stored) -> bool {
    match rule {
        None => stored.search.is_none(),
        Some(rule) => rule.allows(stored),
    }
}

/// Rules by path key (the cache key without the query).
#[derive(Debug, Default)]
pub(crate) struct SearchRules {
    rules: RwLock<HashMap<Box<[u8]>, Arc<SearchRule>, HashState>>,
    has_any: AtomicBool,
}

impl SearchRules {
    /// Returns the rule for `path_key`.
    pub(crate) fn find(&self, path_key: impl FnOnce() -> Vec<u8>) -> Option<Arc<SearchRule>> {
        if !self.has_any.load(Ordering::Acquire) {
            return None;
        }
        self.rules.read().unwrap_or_else(PoisonError::into_inner).get(&path_key()[..]).cloned()
    }

    /// Updates the rule for `path_key` from the response `stored`, if it has a No-Vary-Search.
    pub(crate) fn learn(&self, path_key: impl FnOnce() -> Vec<u8>, stored: &Stored) {
        let Some(search) = &stored.search else { return };
        let key = path_key();
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        let since_s = match rules.get(&key[..]) {
            Some(known) if known.search == *search => return,
            Some(known) => known.since_s,
            None => stored.request_time_s,
        };
        if rules.len() >= RULES_MAX {
            rules.clear();
        }
        rules.insert(key.into(), Arc::new(SearchRule { search: search.clone(), since_s }));
        self.has_any.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::{SearchRules, is_allowed};
    use crate::meta::tests::meta;
    use flatout_cache::search::{Ignored, NoVarySearch};
    use flatout_cache::stored::Stored;

    fn stored(ignored: Option<&str>, request_time_s: i64) -> Stored {
        let ignored = ignored.map(|name| Ignored::Params(vec![name.into()]));
        let search = ignored.map(|ignored| NoVarySearch { key_order: false, ignored });
        Stored { search, request_time_s, ..meta().stored }
    }

    #[test]
    fn a_response_without_the_field_leaves_the_rule() {
        let rules = SearchRules::default();
        let find = || rules.find(|| b"/a".to_vec());
        rules.learn(|| b"/a".to_vec(), &stored(None, 5));
        assert!(find().is_none());
        rules.learn(|| b"/a".to_vec(), &stored(Some("u"), 5));
        rules.learn(|| b"/a".to_vec(), &stored(None, 6));
        assert_eq!(find().map(|rule| rule.search.clone()), stored(Some("u"), 0).search);
        assert!(rules.find(|| b"/b".to_vec()).is_none());
    }

    #[test]
    fn only_responses_stored_under_the_same_rule_are_used() {
        let rules = SearchRules::default();
        let rule = |stored: &Stored| {
            rules.learn(|| b"/a".to_vec(), stored);
            rules.find(|| b"/a".to_vec())
        };
        assert!(is_allowed(None, &stored(None, 0)) && !is_allowed(None, &stored(Some("u"), 9)));
        let first = rule(&stored(Some("u"), 5));
        let is_first = |stored: &Stored| is_allowed(first.as_deref(), stored);
        assert!(is_first(&stored(Some("u"), 5)) && !is_first(&stored(Some("v"), 5)) && !is_first(&stored(None, 5)));
        // From before the path had a rule.
        assert!(!is_first(&stored(Some("u"), 4)));
        let second = rule(&stored(Some("v"), 7));
        let is_second = |stored: &Stored| is_allowed(second.as_deref(), stored);
        assert!(is_second(&stored(Some("v"), 5)) && !is_second(&stored(Some("u"), 7)));
    }
}
