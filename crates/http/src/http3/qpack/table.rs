//! The static table of QPACK (RFC 9204 Appendix A).

/// Number of entries of the static table.
pub(super) const STATIC_ENTRIES: usize = 99;

/// The static table; index 0 is the first entry.
#[rustfmt::skip]
pub(super) const STATIC_TABLE: [(&str, &str); STATIC_ENTRIES] = [
    (":authority", ""),
    (":path", "/"),
    ("age", "0"),
    ("content-disposition", ""),
    ("content-length", "0"),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("referer", ""),
    ("set-cookie", ""),
    (":method", "CONNECT"),
    (":method", "DELETE"),
    (":method", "GET"),
    (":method", "HEAD"),
    (":method", "OPTIONS"),
    (":method", "POST"),
    (":method", "PUT"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "103"),
    (":status", "200"),
    (":status", "304"),
    (":status", "404"),
    (":status", "503"),
    ("accept", "*/*"),
    ("accept", "application/dns-message"),
    ("accept-encoding", "gzip, deflate, br"),
    ("accept-ranges", "bytes"),
    ("access-control-allow-headers", "cache-control"),
    ("access-control-allow-headers", "content-type"),
    ("access-control-allow-origin", "*"),
    ("cache-control", "max-age=0"),
    ("cache-control", "max-age=2592000"),
    ("cache-control", "max-age=604800"),
    ("cache-control", "no-cache"),
    ("cache-control", "no-store"),
    ("cache-control", "public, max-age=31536000"),
    ("content-encoding", "br"),
    ("content-encoding", "gzip"),
    ("content-type", "application/dns-message"),
    ("content-type", "application/javascript"),
    ("content-type", "application/json"),
    ("content-type", "application/x-www-form-urlencoded"),
    ("content-type", "image/gif"),
    ("content-type", "image/jpeg"),
    ("content-type", "image/png"),
    ("content-type", "text/css"),
    ("content-type", "text/html; charset=utf-8"),
    ("content-type", "text/plain"),
    ("content-type", "text/plain;charset=utf-8"),
    ("range", "bytes=0-"),
    ("strict-transport-security", "max-age=31536000"),
    ("strict-transport-security", "max-age=31536000; includesubdomains"),
    ("strict-transport-security", "max-age=31536000; includesubdomains; preload"),
    ("vary", "accept-encoding"),
    ("vary", "origin"),
    ("x-content-type-options", "nosniff"),
    ("x-xss-protection", "1; mode=block"),
    (":status", "100"),
    (":status", "204"),
    (":status", "206"),
    (":status", "302"),
    (":status", "400"),
    (":status", "403"),
    (":status", "421"),
    (":status", "425"),
    (":status", "500"),
    ("accept-language", ""),
    ("access-control-allow-credentials", "FALSE"),
    ("access-control-allow-credentials", "TRUE"),
    ("access-control-allow-headers", "*"),
    ("access-control-allow-methods", "get"),
    ("access-control-allow-methods", "get, post, options"),
    ("access-control-allow-methods", "options"),
    ("access-control-expose-headers", "content-length"),
    ("access-control-request-headers", "content-type"),
    ("access-control-request-method", "get"),
    ("access-control-request-method", "post"),
    ("alt-svc", "clear"),
    ("authorization", ""),
    ("content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"),
    ("early-data", "1"),
    ("expect-ct", ""),
    ("forwarded", ""),
    ("if-range", ""),
    ("origin", ""),
    ("purpose", "prefetch"),
    ("server", ""),
    ("timing-allow-origin", "*"),
    ("upgrade-insecure-requests", "1"),
    ("user-agent", ""),
    ("x-forwarded-for", ""),
    ("x-frame-options", "deny"),
    ("x-frame-options", "sameorigin"),
];

/// Length of the longest name in the static table, in bytes.
const NAME_BYTES_MAX: usize = 32;

/// Index of the entries by the length of their names, so that a name is compared with only a few entries.
struct LengthIndex {
    /// Indexes of the entries, sorted by the length of their names.
    entries: [u8; STATIC_ENTRIES],
    /// Position in `entries` at which the entries of each length begin.
    starts: [u8; NAME_BYTES_MAX + 2],
}

static LENGTH_INDEX: LengthIndex = LengthIndex::build();

impl LengthIndex {
    const fn build() -> Self {
        let mut index = Self { entries: [0; STATIC_ENTRIES], starts: [0; NAME_BYTES_MAX + 2] };
        let (mut count, mut length) = (0, 0);
        while length <= NAME_BYTES_MAX {
            index.starts[length] = count as u8;
            let mut at = 0;
            while at < STATIC_ENTRIES {
                if STATIC_TABLE[at].0.len() == length {
                    index.entries[count] = at as u8;
                    count += 1;
                }
                at += 1;
            }
            length += 1;
        }
        index.starts[length] = count as u8;
        assert!(count == STATIC_ENTRIES, "a name is longer than the longest");
        index
    }
}

/// Returns the index of the static entry that equals the field or has its name. The second value is true if the whole
/// field is equal.
pub(super) fn find_static(name: &[u8], value: &[u8]) -> Option<(usize, bool)> {
    let &[start, end] = LENGTH_INDEX.starts.get(name.len()..name.len() + 2)? else { return None };
    let mut found = None;
    for &at in &LENGTH_INDEX.entries[usize::from(start)..usize::from(end)] {
        let (other, text) = STATIC_TABLE[usize::from(at)];
        if other.as_bytes() != name {
            continue;
        }
        if text.as_bytes() == value {
            return Some((usize::from(at), true));
        }
        found.get_or_insert((usize::from(at), false));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{STATIC_TABLE, find_static};

    #[test]
    fn every_entry_is_found() {
        for (at, (name, value)) in STATIC_TABLE.iter().enumerate() {
            assert_eq!(find_static(name.as_bytes(), value.as_bytes()), Some((at, true)), "{name}: {value}");
            let first = STATIC_TABLE.iter().position(|(other, _)| other == name).unwrap();
            assert_eq!(find_static(name.as_bytes(), b"another value"), Some((first, false)), "{name}");
        }
        assert_eq!(find_static(b"", b""), None);
        assert_eq!(find_static(b"x-unknown", b""), None);
        assert_eq!(find_static(&[b'a'; 33], b""), None);
        assert_eq!(find_static(&[b'a'; 1000], b""), None);
    }
}
