//! Stored field lines: selection and parsing.

use flatout_http::head::{FieldStorage, Fields, parse_fields};
use flatout_http::limits::Limits;
use flatout_http::lines::is_of_a_connection;
use flatout_http::token::trim;

/// Maximum size of the stored field lines in bytes, the same as the limit for a response head from an origin.
pub const LINES_BYTES_MAX: usize = Limits::CLIENT.head_bytes_max;

/// Proxy authentication fields, and HTTP2-Settings: hop-by-hop fields that are not stored (RFC 9111 §3.1, RFC 9110
/// §7.6.1).
const OF_A_HOP: [&str; 4] =
    ["proxy-authenticate", "proxy-authentication-info", "proxy-authorization", "http2-settings"];

/// Fields that are not stored because they are generated for each response or obsolete (Warning: RFC 9111 §5.5).
const OF_AN_ANSWER: [&str; 3] = ["age", "content-length", "warning"];

/// Fields that are always stored because they are required to interpret the stored response, even if Connection or a
/// directive names them. A sender must not list them in Connection (RFC 9110 §7.6.1).
const KEPT_ALWAYS: [&str; 3] = ["cache-control", "content-encoding", "vary"];

/// Calls `read` with the fields in `lines`, which have the format of `Stored::lines`: `Name: value` and CR LF. Returns
/// `None` if the lines violate the grammar.
pub fn with_fields<T>(lines: &[u8], read: impl FnOnce(&Fields<'_>) -> T) -> Option<T> {
    let mut section = Vec::with_capacity(lines.len() + 2);
    section.extend_from_slice(lines);
    section.extend_from_slice(b"\r\n");
    let mut storage = FieldStorage::new();
    let fields = parse_fields(&section, &Limits::CLIENT, &mut storage).ok()?;
    Some(read(&fields))
}

/// Selects the fields of a response that are not stored.
pub(crate) struct Dropped<'a> {
    /// The response's fields, of which Connection names further fields to drop.
    fields: Fields<'a>,
    /// Lower-case field names listed in the directives.
    named: &'a [Box<[u8]>],
    /// True for a 206 or a 304, of which Content-Range and Trailer are dropped because they concern only that message.
    partial: bool,
    /// True to drop Set-Cookie.
    cookies: bool,
}

impl<'a> Dropped<'a> {
    pub(crate) const fn new(fields: Fields<'a>, named: &'a [Box<[u8]>], partial: bool, cookies: bool) -> Self {
        Self { fields, named, partial, cookies }
    }

    /// Returns whether the field called `name` is dropped.
    pub(crate) fn contains(&self, name: &str) -> bool {
        let is = |other: &&str| name.eq_ignore_ascii_case(other);
        if KEPT_ALWAYS.iter().any(is) {
            return false;
        }
        // RFC 9110 §6.6.2: Trailer is not a hop-by-hop field.
        (is_of_a_connection(name.as_bytes()) && (self.partial || !name.eq_ignore_ascii_case("trailer")))
            || OF_A_HOP.iter().any(is)
            || OF_AN_ANSWER.iter().any(is)
            || (self.partial && name.eq_ignore_ascii_case("content-range"))
            || (self.cookies && name.eq_ignore_ascii_case("set-cookie"))
            || self.named.iter().any(|named| name.as_bytes().eq_ignore_ascii_case(named))
            || self
                .fields
                .all("connection")
                .flat_map(|line| line.split(|&byte| byte == b','))
                .any(|option| name.as_bytes().eq_ignore_ascii_case(trim(option)))
    }
}

#[cfg(test)]
mod tests {
    use super::{Dropped, with_fields};

    /// RFC 9111 §3.1.
    #[test]
    fn fields_that_are_not_stored() {
        let named = [Box::from(&b"x-named"[..])];
        with_fields(b"Connection: close, X-Hop, Vary\r\nConnection:x-hop2\r\n", |fields| {
            let dropped = Dropped::new(*fields, &named, false, true);
            for name in ["X-Hop", "x-hop2", "Close", "X-NAMED", "Set-Cookie", "Age", "TE", "Upgrade", "Warning"] {
                assert!(dropped.contains(name), "{name}");
            }
            for name in
                ["Date", "Content-Range", "Cache-Control", "Vary", "Set-Cookie2", "X", "Content-Type", "Trailer"]
            {
                assert!(!dropped.contains(name), "{name}");
            }
            for name in ["content-range", "trailer"] {
                assert!(Dropped::new(*fields, &named, true, false).contains(name), "{name}");
            }
            assert!(!Dropped::new(*fields, &[], true, false).contains("set-cookie"));
        })
        .unwrap();
        assert_eq!(with_fields(b"no colon\r\n", |_| ()), None);
        assert_eq!(with_fields(b"a: b", |_| ()), None);
    }
}
