//! Selection of the site for a request's host.
//!
//! Each listener has its own table, because a site is served only on its own listeners. An exact name takes precedence
//! over the longest matching `*.` name, which takes precedence over `*`. If no name matches, the response is a 421 (RFC
//! 9110 §15.5.20), so DNS rebinding to a name that is not configured fails. `*` configures a default site. A request
//! without Host, which only HTTP/1.0 permits, is handled by the site `*` or by the listener's only site.

use flatout_http::host::split_port;
use flatout_os::random::HashState;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Maximum length of a host name in text form with a trailing dot, in bytes (RFC 1035 §2.3.4).
const HOST_BYTES_MAX: usize = 254;

/// The kind of name by which a site was selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    /// A name that equals the host.
    Exact,
    /// A name that begins with `*.`.
    Suffix,
    /// The name `*`.
    Any,
    /// The request has no host, and the listener has only one site.
    OnlySite,
}

/// The sites of a listener, by host name.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostTable {
    exact: HashMap<Box<[u8]>, u32, HashState>,
    /// Names that begin with `*.`, without it.
    suffixes: HashMap<Box<[u8]>, u32, HashState>,
    any: Option<u32>,
    /// The sites, in configuration order.
    pub(crate) sites: Vec<u32>,
}

impl HostTable {
    /// Adds `site` under the name `host`. If a different site already has that name, returns it as an error.
    pub(crate) fn insert(&mut self, host: &str, site: u32) -> Result<(), u32> {
        if self.sites.last() != Some(&site) {
            self.sites.push(site);
        }
        if host == "*" {
            return match self.any.replace(site) {
                Some(other) if other != site => Err(other),
                _ => Ok(()),
            };
        }
        let (lists, name) = match host.strip_prefix("*.") {
            Some(suffix) => (&mut self.suffixes, suffix),
            None => (&mut self.exact, host),
        };
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        match lists.entry(name.into_bytes().into()) {
            Entry::Vacant(entry) => {
                entry.insert(site);
                Ok(())
            }
            Entry::Occupied(entry) if *entry.get() == site => Ok(()),
            Entry::Occupied(entry) => Err(*entry.get()),
        }
    }

    /// Returns the site for `host`, which may include a port, and how it was selected.
    #[inline]
    pub(crate) fn find(&self, host: Option<&[u8]>) -> Option<(u32, Match)> {
        let any = self.any.map(|site| (site, Match::Any));
        let Some(host) = host else {
            return any.or(match self.sites[..] {
                [only] => Some((only, Match::OnlySite)),
                _ => None,
            });
        };
        if self.exact.is_empty() && self.suffixes.is_empty() {
            return any;
        }
        let (name, _) = split_port(host);
        let mut buffer = [0; HOST_BYTES_MAX];
        let Some(lower) = buffer.get_mut(..name.len()) else { return any };
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        let lower = lower.strip_suffix(b".").unwrap_or(lower);
        if let Some(&site) = self.exact.get(lower) {
            return Some((site, Match::Exact));
        }
        if !self.suffixes.is_empty() {
            let mut rest = lower;
            while let Some(dot) = rest.iter().position(|&byte| byte == b'.') {
                rest = &rest[dot + 1..];
                if let Some(&site) = self.suffixes.get(rest) {
                    return Some((site, Match::Suffix));
                }
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::{HostTable, Match};

    #[test]
    fn the_most_particular_name_wins() {
        let mut table = HostTable::default();
        for (site, host) in
            [(0, "example.com"), (0, "127.0.0.1"), (0, "[::1]"), (1, "*.example.com"), (2, "*.b.example.com")]
        {
            assert_eq!(table.insert(host, site), Ok(()));
        }
        let find = |table: &HostTable, host: &str| table.find(Some(host.as_bytes()));
        assert_eq!(find(&table, "EXAMPLE.com:8080"), Some((0, Match::Exact)));
        assert_eq!(find(&table, "example.com."), Some((0, Match::Exact)));
        assert_eq!(find(&table, "[::1]:80"), Some((0, Match::Exact)));
        assert_eq!(find(&table, "127.0.0.1:80"), Some((0, Match::Exact)));
        assert_eq!(find(&table, "a.example.com"), Some((1, Match::Suffix)));
        assert_eq!(find(&table, "x.a.example.com"), Some((1, Match::Suffix)));
        assert_eq!(find(&table, "x.a.b.example.com"), Some((2, Match::Suffix)));
        assert_eq!(find(&table, "b.example.com"), Some((1, Match::Suffix)));
        assert_eq!(find(&table, "badexample.com"), None);
        assert_eq!(find(&table, "com"), None);
        assert_eq!(find(&table, &"a.".repeat(200)), None);
        assert_eq!(table.find(None), None);
        assert_eq!(table.insert("*.B.example.com.", 3), Err(2));
        assert_eq!(table.insert("*", 4), Ok(()));
        assert_eq!(find(&table, "other"), Some((4, Match::Any)));
        assert_eq!(table.find(None), Some((4, Match::Any)));
    }

    #[test]
    fn without_a_host_an_only_site_is_meant() {
        let mut table = HostTable::default();
        assert_eq!(table.find(None), None);
        table.insert("a", 7).unwrap();
        table.insert("b", 7).unwrap();
        assert_eq!(table.find(None), Some((7, Match::OnlySite)));
        assert_eq!(table.find(Some(b"c")), None);
    }
}
