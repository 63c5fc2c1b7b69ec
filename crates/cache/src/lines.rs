//! Stored field lines: selection and parsing.

use flatout_http::head::{FieldStorage, Fields, parse_fields};
use flatout_http::limits::Limits;
use flatout_http::lines::is_of_a_connection;
use flatout_http::token::trim;

/// Maximum bytes of stored field lines, the same as for a response head from an origin.
pub const LINES_BYTES_MAX: usize = Limits::CLIENT.head_bytes_max;

/// Authentication fields of one hop, and one more connection field; none is stored (RFC 9111 §3.1, RFC 9110 §7.6.1).
const OF_A_HOP: [&str; 4] =
    ["proxy-authenticate", "proxy-authentication-info", "proxy-authorization", "http2-settings"];

/// Fields that are generated for each response, or are obsolete (Warning: RFC 9111 §5.5).
const OF_AN_ANSWER: [&str; 3] = ["age", "content-length", "warning"];

/// Fields that are required to interpret the stored response; neither Connection nor a directive removes them. A
/// sender must not list them (RFC 9110 §7.6.1).
const KEPT_ALWAYS: [&str; 3] = ["cache-control", "content-encoding", "vary"];

/// Calls `read` with the fields in `lines`, each `Name: value` and CR LF, as in `Stored::lines`. Returns `None` if
/// they break the grammar.
pub fn with_fields<T>(lines: &[u8], read: impl FnOnce(&Fields<'_>) -> T) -> Option<T> {
    let mut section = Vec::with_capacity(lines.len() + 2);
    section.extend_from_slice(lines);
    section.extend_from_slice(b"\r\n");
    let mut storage = FieldStorage::new();
    let fields = parse_fields(&section, &Limits::CLIENT, &mut storage).ok()?;
    Some(read(&fields))
}

/// Appends one line.
pub(crate) fn write_line(name: &str, value: &[u8], output: &mut Vec<u8>) {
    output.extend_from_slice(name.as_bytes());
    output.extend_from_slice(b": ");
    output.extend_from_slice(value);
    output.extend_from_slice(b"\r\n");
}

/// Fields of a response that are not stored.
pub(crate) struct Dropped<'a> {
    /// The response's fields, for the names in its Connection.
    fields: Fields<'a>,
    /// Lower-case field names from the directives.
    named: &'a [Box<[u8]>],
    /// True to drop Content-Range.
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
        is_of_a_connection(name.as_bytes())
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
    fn what_is_not_kept() {
        let named = [Box::from(&b"x-named"[..])];
        with_fields(b"Connection: close, X-Hop, Vary\r\nConnection:x-hop2\r\n", |fields| {
            let dropped = Dropped::new(*fields, &named, false, true);
            for name in ["X-Hop", "x-hop2", "Close", "X-NAMED", "Set-Cookie", "Age", "TE", "Upgrade", "Warning"] {
                assert!(dropped.contains(name), "{name}");
            }
            for name in ["Date", "Content-Range", "Cache-Control", "Vary", "Set-Cookie2", "X", "Content-Type"] {
                assert!(!dropped.contains(name), "{name}");
            }
            assert!(Dropped::new(*fields, &named, true, false).contains("content-range"));
            assert!(!Dropped::new(*fields, &[], true, false).contains("set-cookie"));
        })
        .unwrap();
        assert_eq!(with_fields(b"no colon\r\n", |_| ()), None);
        assert_eq!(with_fields(b"a: b", |_| ()), None);
    }
}
