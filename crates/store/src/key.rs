//! The form of a cache key: a realm, then scheme, host, path and query.

use std::ops::Range;

/// Separator of the realm and the rest of a key: no host name contains it.
const REALM_END: u8 = b'\n';

/// Starts a key in `realm`.
pub fn begin_key(realm: &str, output: &mut Vec<u8>) {
    output.extend_from_slice(realm.as_bytes());
    output.push(REALM_END);
}

/// Realm of a key.
pub fn realm_of(key: &[u8]) -> &[u8] {
    &key[..key.iter().position(|&byte| byte == REALM_END).unwrap_or(0)]
}

/// Range of host, path and query in a key.
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
        begin_key("*.example#1", &mut key);
        key.extend_from_slice(b"https://a.example:81/b?c=http://d");
        assert_eq!(&key[locator(&key)], b"a.example:81/b?c=http://d");
    }
}
