//! No-Vary-Search: which differences between queries do not matter (draft-ietf-httpbis-no-vary-search).

use crate::request::CacheRequest;
use crate::rules::Rules;
use flatout_http::head::Fields;

/// A valid No-Vary-Search that says something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// Whether the order of parameters with different names does not matter.
    pub key_order: bool,
    /// Which parameters do not matter.
    pub ignored: Ignored,
}

/// Which parameters of a query do not matter. The names are as they are after decoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// These.
    Params(Vec<Vec<u8>>),
    /// All but these.
    Except(Vec<Vec<u8>>),
}

/// Reads No-Vary-Search. `None`: it is absent, invalid, or says nothing beyond the default.
pub fn parse_search(fields: &Fields<'_>) -> Option<Search> {
    let _ = fields;
    unimplemented!()
}

/// Appends the key under which answers with `search` are found: as [`write_key`](crate::key::write_key), with the
/// query in the one form that all its equals have.
///
/// A driver remembers for each [path key](write_path_key) the last `search` that came; with one, it looks up this key,
/// and takes what it finds only when that has the same `search`.
pub fn write_search_key(request: &CacheRequest<'_>, search: &Search, rules: &Rules, output: &mut Vec<u8>) {
    let _ = (request, search, rules, output);
    unimplemented!()
}

/// Appends the key without any query.
pub fn write_path_key(request: &CacheRequest<'_>, output: &mut Vec<u8>) {
    let _ = (request, output);
    unimplemented!()
}
