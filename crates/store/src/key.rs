//! Structure of a cache key: the realm, followed by scheme, host, path and query.

use std::ops::Range;

/// Separator between the realm and the rest of a key. Cannot occur in a host name.
const REALM_END: u8 = b'\n';

/// Appends the beginning of a key in `realm` to `output`.
pub fn begin_key(realm: &str, output: &mut Vec<u8>) {
    output.extend_from_slice(realm.as_bytes());
    output.push(REALM_END);
}

/// Returns the realm of a key.
pub fn realm_of(key: &[u8]) -> &[u8] {
    &key[..key.iter().position(|&byte| byte == REALM_END).unwrap_or(0)]
}

/// Returns the range of the locator (host, path and query) in a key.
pub fn locator(key: &[u8]) -> Range<usize> {
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
        begin_key("*.example~1a2b3c4d", &mut key);
        key.extend_from_slice(b"https://a.example:81/b?c=http://d");
        assert_eq!(&key[locator(&key)], b"a.example:81/b?c=http://d");
    }
}
