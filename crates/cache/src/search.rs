//! No-Vary-Search: differences between queries that do not affect the response (draft-ietf-httpbis-no-vary-search).

use crate::key::{write_origin, write_query};
use crate::request::CacheRequest;
use crate::rules::Rules;
use flatout_http::head::Fields;
use flatout_http::percent;
use flatout_http::structured::parse_dictionary;
use sfv::{BareItem, InnerList, ListEntry};

/// A valid No-Vary-Search that differs from the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoVarySearch {
    /// True if the order of parameters with different names does not matter.
    pub key_order: bool,
    /// Parameters to ignore.
    pub ignored: Ignored,
}

/// Query parameters to ignore, by decoded name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// The parameters with these names.
    Params(Vec<Vec<u8>>),
    /// All parameters except those with these names.
    Except(Vec<Vec<u8>>),
}

/// Maximum number of names in No-Vary-Search. A field with more names is treated as absent.
pub const NAMES_MAX: usize = 64;

/// Parses No-Vary-Search. Returns `None` if it is absent, invalid, or equal to the default.
pub fn parse_search(fields: &Fields<'_>) -> Option<NoVarySearch> {
    let mut key_order = false;
    let (mut all, mut params, mut except) = (false, Vec::new(), None);
    for (key, value) in parse_dictionary(fields.all("no-vary-search"))? {
        match (key.as_str(), value) {
            ("key-order", ListEntry::Item(item)) => key_order = item.bare_item.as_boolean()?,
            ("params", ListEntry::Item(item)) => all = item.bare_item.as_boolean()?,
            ("params", ListEntry::InnerList(names)) => params = read_names(names)?,
            ("except", ListEntry::InnerList(names)) => except = Some(read_names(names)?),
            // If a value has the wrong type, the default applies instead of the whole field.
            ("key-order" | "except", _) => return None,
            _ => {}
        }
    }
    let ignored = match (all, except) {
        (true, except) => Ignored::Except(except.unwrap_or_default()),
        (false, None) => Ignored::Params(params),
        // `except` requires `params`.
        (false, Some(_)) => return None,
    };
    let says_something = key_order || ignored != Ignored::Params(Vec::new());
    says_something.then_some(NoVarySearch { key_order, ignored })
}

fn read_names(names: InnerList) -> Option<Vec<Vec<u8>>> {
    if names.items.len() > NAMES_MAX {
        return None;
    }
    let name = |value| match value {
        BareItem::String(name) => Some(decode(name.as_str().as_bytes())),
        _ => None,
    };
    names.items.into_iter().map(|item| name(item.bare_item)).collect()
}

/// Appends to `output` the key under which responses with `search` are stored: like that of
/// [`write_key`](crate::key::write_key), but with the query in a canonical form.
///
/// A driver remembers the latest `search` of each [path key](write_path_key). If there is one, it looks up this key
/// first, and uses a stored response only if its `search` is equal.
pub fn write_search_key(request: &CacheRequest<'_>, search: &NoVarySearch, rules: &Rules, output: &mut Vec<u8>) {
    write_path_key(request, output);
    // A path or query contains no space, so this differs from every ordinary key.
    output.extend_from_slice(SEARCH_MARK);
    let mut query = Vec::new();
    write_query(request.query, &rules.query, &mut query);
    let mut parameters: Vec<_> = query
        .split(|&byte| byte == b'&')
        .filter(|parameter| !parameter.is_empty())
        .map(|parameter| {
            let equals = parameter.iter().position(|&byte| byte == b'=').unwrap_or(parameter.len());
            (decode(&parameter[..equals]), decode(parameter.get(equals + 1..).unwrap_or_default()))
        })
        .filter(|(name, _)| match &search.ignored {
            Ignored::Params(names) => !names.contains(name),
            Ignored::Except(names) => names.contains(name),
        })
        .collect();
    if search.key_order {
        // Stable sort: the order of parameters with the same name still matters.
        parameters.sort_by(|(one, _), (other, _)| one.cmp(other));
    }
    for (name, value) in parameters {
        for (part, end) in [(name, b'='), (value, b'&')] {
            // Encode consistently, so that equal names and values have equal keys.
            output.extend_from_slice(percent::encode(&part, |byte| byte.is_ascii_alphanumeric()).as_bytes());
            output.push(end);
        }
    }
}

/// Separator between the path and the canonical query in a [search key](write_search_key).
const SEARCH_MARK: &[u8] = b" ?";

/// Returns the beginning of all [search keys](write_search_key) for the path of `key`, an ordinary key or the end of one.
pub fn search_prefix(key: &[u8]) -> Vec<u8> {
    let path_end = key.iter().position(|&byte| matches!(byte, b'?' | b' ')).unwrap_or(key.len());
    [&key[..path_end], SEARCH_MARK].concat()
}

/// Appends the key of `request` without the query to `output`.
pub fn write_path_key(request: &CacheRequest<'_>, output: &mut Vec<u8>) {
    write_origin(request.secure, request.authority, output);
    output.extend_from_slice(request.path);
}

/// Decodes `application/x-www-form-urlencoded`, but leaves invalid UTF-8 unchanged. Fewer queries are equal as a
/// result, never more.
fn decode(bytes: &[u8]) -> Vec<u8> {
    let spaced: Vec<u8> = bytes.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect();
    percent::decode(&spaced).collect()
}

#[cfg(test)]
mod tests {
    use super::{Ignored, NoVarySearch, parse_search, search_prefix, write_search_key};
    use crate::lines::with_fields;
    use crate::request::CacheRequest;
    use crate::rules::Rules;
    use flatout_http::head::Fields;

    fn search(value: &str) -> Option<NoVarySearch> {
        with_fields(format!("No-Vary-Search: {value}\r\n").as_bytes(), parse_search).unwrap()
    }

    fn names(text: &str) -> Vec<Vec<u8>> {
        text.split(',').filter(|name| !name.is_empty()).map(|name| name.as_bytes().to_vec()).collect()
    }

    /// The examples of the draft's section on parsing.
    #[test]
    fn values_of_the_field() {
        let params = |text, key_order| Some(NoVarySearch { key_order, ignored: Ignored::Params(names(text)) });
        let except = |text, key_order| Some(NoVarySearch { key_order, ignored: Ignored::Except(names(text)) });
        for (value, expected) in [
            ("key-order", params("", true)),
            ("params", except("", false)),
            ("params=(\"a\" \"b\")", params("a,b", false)),
            ("params, except=(\"x\")", except("x", false)),
            ("key-order, params, except=(\"x\")", except("x", true)),
            ("key-order=?0, params=(\"a%20b\")", params("a b", false)),
            ("params=(\"a\"), foo=1", params("a", false)),
            ("", None),
            ("key-order=?0", None),
            ("params=()", None),
            ("params=(a)", None),
            ("params=1", None),
            ("key-order=(\"a\")", None),
            ("except=(\"a\")", None),
            ("params=(\"a\"), except=(\"b\")", None),
            ("params, except", None),
            ("params, except=(a)", None),
            ("params=(\"a\"", None),
            ("Key-Order", None),
        ] {
            assert_eq!(search(value), expected, "{value}");
        }
    }

    fn key(search: &NoVarySearch, query: Option<&str>) -> String {
        let request = CacheRequest {
            method: "GET",
            secure: false,
            authority: b"h",
            path: b"/p",
            query: query.map(str::as_bytes),
            fields: Fields::EMPTY,
            has_content: false,
            forwarding: &crate::request::AsReceived,
        };
        let mut output = Vec::new();
        write_search_key(&request, search, &Rules::default(), &mut output);
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn queries_that_are_equal_and_that_are_not() {
        for (value, one, other, equal) in [
            ("key-order", "a=1&b=2", "b=2&a=1", true),
            ("key-order", "a=1&a=2", "a=2&a=1", false),
            ("params=(\"a\")", "a=1&b=2", "b=2&a=9&a", true),
            ("params=(\"a\")", "b=2&c=3", "c=3&b=2", false),
            ("params=(\"a b\")", "a%20b=1&c", "c&a+b=2", true),
            ("params", "a=1", "b=2", true),
            ("params, except=(\"a\")", "a=1&b=2", "c=3&a=1", true),
            ("params, except=(\"a\")", "a=1", "a=2", false),
            ("key-order", "a=%41&&b", "b=&a=A", true),
            ("key-order", "a=%3D&b", "a==&b", true),
            ("key-order", "a=%26b", "a=&b", false),
            ("key-order", "a=%", "a=%25", true),
        ] {
            let search = search(value).unwrap();
            assert_eq!(key(&search, Some(one)) == key(&search, Some(other)), equal, "{value}: {one} and {other}");
        }
        let all = search("params").unwrap();
        assert_eq!(key(&all, None), key(&all, Some("x=1")));
        assert_eq!(key(&all, None), "http://h/p ?");
    }

    #[test]
    fn the_search_keys_of_a_path_begin_alike() {
        let search = search("params=(\"a\")").unwrap();
        for ordinary in ["http://h/p", "http://h/p?b=1", "http://h/p?b=1?c", "http://h/p ?b=1&"] {
            assert_eq!(search_prefix(ordinary.as_bytes()), b"http://h/p ?", "{ordinary}");
            assert!(key(&search, Some("b=1")).as_bytes().starts_with(&search_prefix(ordinary.as_bytes())));
        }
        assert!(!b"http://h/path ?b=1&".starts_with(&search_prefix(b"http://h/p")));
    }
}
