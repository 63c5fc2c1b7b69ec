//! Field lines as bytes, each with its CR LF, and header operations.

use crate::date::parse_date;
use crate::encoding::ContentCoding;
use crate::token::is_token;
use memchr::memchr;

/// Kind of a header operation. All code that parses, prints or applies operations is driven by these values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FieldOpKind {
    /// The word for this kind in a configuration.
    pub word: &'static str,
    /// True if the operation has a value, which becomes a new field line.
    pub has_value: bool,
    /// True if the operation removes the existing fields with its name.
    pub removes: bool,
}

impl FieldOpKind {
    /// Replaces all fields with the operation's name.
    pub const SET: Self = Self { word: "set", has_value: true, removes: true };
    /// Adds a field line.
    pub const ADD: Self = Self { word: "add", has_value: true, removes: false };
    /// Removes all fields with the operation's name.
    pub const REMOVE: Self = Self { word: "remove", has_value: false, removes: true };

    /// All kinds.
    pub const ALL: [Self; 3] = [Self::SET, Self::ADD, Self::REMOVE];
}

/// A header operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldOp {
    /// The effect of the operation.
    pub kind: FieldOpKind,
    name: String,
    value: String,
    /// True if a lifetime is also set in responses with an error status.
    always: bool,
}

impl FieldOp {
    /// Creates an operation of any kind. Kinds without a value ignore `value`.
    pub const fn new(kind: FieldOpKind, name: String, value: String) -> Self {
        Self { kind, name, value, always: false }
    }

    /// The same operation, which also sets a lifetime in responses with an error status.
    #[must_use]
    pub fn always(self) -> Self {
        Self { always: true, ..self }
    }

    /// Returns whether the operation was made by [`always`](Self::always).
    pub const fn is_always(&self) -> bool {
        self.always
    }

    /// Returns whether the operation gives a response a lifetime in shared caches: a positive `max-age` or `s-maxage`,
    /// `immutable`, or a date in Expires. A value that also restricts caches (`private`, `no-store`, `no-cache`) counts
    /// as a restriction.
    pub fn sets_lifetime(&self) -> bool {
        let name = self.name.as_bytes();
        self.value().is_some_and(|value| {
            name.eq_ignore_ascii_case(b"expires") && parse_date(value.as_bytes()).is_some_and(|date| date > LONG_AGO_S)
                || is_any_of(name, &LIFETIMES) && gives_lifetime(value)
        })
    }

    /// Returns the coding if the operation sets Content-Encoding, which declares how the content of a route is stored.
    pub fn coding(&self) -> Option<ContentCoding> {
        if self.kind != FieldOpKind::SET || !is_coding_field(self.name.as_bytes()) {
            return None;
        }
        ContentCoding::from_name(self.value.as_bytes()).filter(|&coding| coding != ContentCoding::Identity)
    }

    /// Returns whether the operation applies to a response with `status`. A lifetime and a content coding are meant for
    /// the content of a route, not for the errors in its place, which would be kept as long, and are not encoded.
    pub fn applies_to(&self, status: u16) -> bool {
        if self.coding().is_some() {
            return matches!(status, 200 | 203 | 206);
        }
        status < 400 || self.always || !self.sets_lifetime()
    }

    /// Returns whether the operation changes a response with `status`. `is_encoded` is true if the response already has
    /// a Content-Encoding, which its handler knows best.
    fn changes(&self, status: u16, is_encoded: bool) -> bool {
        self.is_permitted() && self.applies_to(status) && !(is_encoded && self.coding().is_some())
    }

    /// Creates an operation that replaces all fields called `name`.
    pub const fn set(name: String, value: String) -> Self {
        Self::new(FieldOpKind::SET, name, value)
    }

    /// Creates an operation that adds a field line.
    pub const fn add(name: String, value: String) -> Self {
        Self::new(FieldOpKind::ADD, name, value)
    }

    /// Creates an operation that removes all fields called `name`.
    pub const fn remove(name: String) -> Self {
        Self::new(FieldOpKind::REMOVE, name, String::new())
    }

    /// Returns the name of the field that the operation changes.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the value of the new field line, or `None` if the operation adds no line.
    pub fn value(&self) -> Option<&str> {
        self.kind.has_value.then_some(&self.value)
    }

    /// Returns whether the operation removes existing fields called `name`, ignoring case.
    pub fn removes(&self, name: &[u8]) -> bool {
        self.kind.removes && name.eq_ignore_ascii_case(self.name.as_bytes())
    }

    /// Returns whether the operation may change a response: its field is not [fixed](is_fixed), or it sets a
    /// [coding](Self::coding), and its name and value form a valid field line.
    pub fn is_permitted(&self) -> bool {
        let is_safe = |value: &str| !value.bytes().any(|byte| (byte < b' ' && byte != b'\t') || byte == 0x7f);
        let name = self.name.as_bytes();
        (!is_fixed(name) || self.coding().is_some()) && is_token(name) && self.value().is_none_or(is_safe)
    }
}

/// Fields specific to an HTTP/1.1 connection, in lower case. HTTP/2 and HTTP/3 do not allow them (RFC 9113 §8.2.2,
/// RFC 9114 §4.2).
pub const FORBIDDEN_IN_STREAMS: [&str; 5] =
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

/// Returns whether `name` is one of [`FORBIDDEN_IN_STREAMS`], ignoring case.
pub fn is_forbidden_in_streams(name: &[u8]) -> bool {
    is_any_of(name, &FORBIDDEN_IN_STREAMS)
}

/// Returns whether the field `name` is specific to a connection and its framing (RFC 9110 §7.6.1), ignoring case. Such
/// fields are neither copied to another message nor configurable.
pub fn is_of_a_connection(name: &[u8]) -> bool {
    is_forbidden_in_streams(name) || is_any_of(name, &["te", "trailer"])
}

/// Fields with directives for caches.
const LIFETIMES: [&str; 4] = ["cache-control", "cdn-cache-control", "flatout-cache-control", "surrogate-control"];

/// The end of 1999 in seconds since 1970. Earlier dates in Expires are a custom for "already expired".
const LONG_AGO_S: i64 = 946_684_800;

/// Returns whether the directives in `value` give a response a lifetime in shared caches.
fn gives_lifetime(value: &str) -> bool {
    let mut gives = false;
    for directive in value.split(',') {
        let (name, argument) = directive.split_once('=').unwrap_or((directive, ""));
        let is = |other: &str| name.trim().eq_ignore_ascii_case(other);
        if is("private") || is("no-store") || is("no-cache") {
            return false;
        }
        let seconds = || argument.trim().trim_matches('"').parse::<u64>().unwrap_or(0);
        gives |= is("immutable") || (is("max-age") || is("s-maxage")) && seconds() > 0;
    }
    gives
}

/// Further response fields that only the server writes, because they determine the content or its age.
const FIXED: [&str; 5] = ["age", "content-encoding", "content-length", "content-range", "date"];

/// Returns whether a [`FieldOp`] must not change the response field `name`, ignoring case. Content-Encoding may be set,
/// though, to a [coding](FieldOp::coding).
pub fn is_fixed(name: &[u8]) -> bool {
    is_of_a_connection(name) || is_any_of(name, &FIXED)
}

/// Returns whether `name` is Content-Encoding, ignoring case.
pub fn is_coding_field(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"content-encoding")
}

fn is_any_of(name: &[u8], names: &[&str]) -> bool {
    names.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
}

/// Applies `operations`, in order, to the `fields` of a response with `status` and returns the new fields. Skips
/// operations on [fixed](is_fixed) fields, those whose value contains control characters, those that do not
/// [apply to](FieldOp::applies_to) the status, and [codings](FieldOp::coding) of a response that has one.
pub fn apply_operations<'a>(
    status: u16,
    fields: &[(&'a str, &'a str)],
    operations: &'a [FieldOp],
) -> Vec<(&'a str, &'a str)> {
    let mut fields = fields.to_vec();
    let is_encoded = fields.iter().any(|(name, _)| is_coding_field(name.as_bytes()));
    for operation in operations.iter().filter(|operation| operation.changes(status, is_encoded)) {
        fields.retain(|(name, _)| !operation.removes(name.as_bytes()));
        fields.extend(operation.value().map(|value| (operation.name(), value)));
    }
    fields
}

/// Iterates over `lines`, yielding the name of each line and the whole line with its CR LF.
pub fn each_line(lines: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    lines.split_inclusive(|&byte| byte == b'\n').filter_map(|line| {
        let colon = memchr(b':', line)?;
        Some((&line[..colon], line))
    })
}

/// Appends `lines` of a response with `status` to `output`, with `changes` applied as in [`apply_operations`].
pub fn write_changed(status: u16, lines: &[u8], changes: &[FieldOp], output: &mut Vec<u8>) {
    if changes.is_empty() {
        output.extend_from_slice(lines);
        return;
    }
    let is_encoded = changes.iter().any(|change| change.coding().is_some())
        && each_line(lines).any(|(name, _)| is_coding_field(name));
    let applies = |change: &FieldOp| change.changes(status, is_encoded);
    for (name, line) in each_line(lines) {
        if !changes.iter().any(|change| change.removes(name) && applies(change)) {
            output.extend_from_slice(line);
        }
    }
    for (name, value) in new_fields(changes, applies) {
        write_line(name, value.as_bytes(), output);
    }
}

/// Returns the fields that `operations` add to a message, in order. Leaves out fields that a later operation replaces
/// or removes, and ignores operations that `is_permitted` rejects.
pub fn new_fields(
    operations: &[FieldOp],
    is_permitted: impl Fn(&FieldOp) -> bool,
) -> impl Iterator<Item = (&str, &str)> {
    operations.iter().enumerate().filter_map(move |(index, operation)| {
        let is_undone = || {
            operations[index + 1..].iter().any(|later| later.removes(operation.name.as_bytes()) && is_permitted(later))
        };
        let value = operation.value().filter(|_| is_permitted(operation) && !is_undone())?;
        Some((operation.name(), value))
    })
}

/// Appends one field line, with its CR LF, to `output`.
pub fn write_line(name: impl AsRef<[u8]>, value: &[u8], output: &mut Vec<u8>) {
    let name = name.as_ref();
    output.reserve(name.len() + value.len() + b": \r\n".len());
    output.extend_from_slice(name);
    output.extend_from_slice(b": ");
    output.extend_from_slice(value);
    output.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::{FieldOp, apply_operations, is_of_a_connection, write_changed};

    #[test]
    fn changes_are_made_in_order_and_framing_stays() {
        let set = |name: &str, value: &str| FieldOp::set(name.into(), value.into());
        let add = |name: &str, value: &str| FieldOp::add(name.into(), value.into());
        let changes = [
            set("etag", "\"b\""),
            add("Link", "<a>"),
            FieldOp::remove("X".into()),
            set("Content-Length", "9"),
            set("Y", "1"),
            set("Y", "2"),
            add("Z", "a\r\nB: c"),
        ];
        let mut output = Vec::new();
        write_changed(200, b"ETag: \"a\"\r\nContent-Length: 3\r\nX: 1\r\nLink: <b>\r\n", &changes, &mut output);
        let expected = "Content-Length: 3\r\nLink: <b>\r\netag: \"b\"\r\nLink: <a>\r\nY: 2\r\n";
        assert_eq!(String::from_utf8_lossy(&output), expected);
        let fields = [("ETag", "\"a\""), ("Content-Length", "3"), ("X", "1"), ("Link", "<b>")];
        let pairs = apply_operations(200, &fields, &changes);
        let pairs: String = pairs.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        assert_eq!(pairs, expected);
        for name in ["Age", "Content-Encoding", "Content-Range", "Transfer-Encoding", "Connection", "date", "X Y"] {
            let changes = [set(name, "1"), add(name, "2"), FieldOp::remove(name.into())];
            assert_eq!(apply_operations(200, &[(name, "0")], &changes), [(name, "0")]);
        }
    }

    #[test]
    fn a_coding_is_set_where_there_is_none() {
        let set = |name: &str, value: &str| FieldOp::set(name.into(), value.into());
        let outer = set("Content-Encoding", "gzip");
        let inner = set("content-encoding", "br");
        let both = [outer.clone(), inner];
        let is_set = [("content-encoding", "br")];
        for (status, fields, operations, expected) in [
            (200, &[][..], &both[..], &is_set[..]),
            (206, &[], &both, &is_set),
            (200, &[("CONTENT-ENCODING", "zstd")], &both, &[("CONTENT-ENCODING", "zstd")]),
            (204, &[], &both, &[]),
            (304, &[], &both, &[]),
            (404, &[], &both, &[]),
            (200, &[], &[set("Content-Encoding", "aes128gcm")], &[]),
            (200, &[], &[set("Content-Encoding", "identity")], &[]),
            (200, &[], &[FieldOp::add("Content-Encoding".into(), "br".into())], &[]),
        ] {
            assert_eq!(apply_operations(status, fields, operations), expected, "{status} {fields:?} {operations:?}");
            let text = |fields: &[(&str, &str)]| {
                fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect::<String>()
            };
            let mut output = Vec::new();
            write_changed(status, text(fields).as_bytes(), operations, &mut output);
            assert_eq!(String::from_utf8_lossy(&output), text(expected), "{status} {fields:?} {operations:?}");
        }
    }

    #[test]
    fn a_lifetime_is_for_responses_that_succeed() {
        let set = |name: &str, value: &str| FieldOp::set(name.into(), value.into());
        for (name, value, is_lifetime) in [
            ("Cache-Control", "max-age=31536000, immutable", true),
            ("cache-control", "public, S-MAXAGE=60", true),
            ("Expires", "Thu, 01 Jan 2037 00:00:00 GMT", true),
            ("CDN-Cache-Control", "max-age=60", true),
            ("cache-control", "private, max-age=60", false),
            ("Cache-Control", "max-age=0, must-revalidate", false),
            ("Cache-Control", "private, no-store", false),
            ("Cache-Control", "NO-CACHE=\"a\", max-age=60", false),
            ("Cache-Control", "max-age={query}", false),
            ("Surrogate-Control", "content=\"ESI/1.0\"", false),
            ("Expires", "0", false),
            ("Expires", "Mon, 26 Jul 1997 05:00:00 GMT", false),
            ("X-Frame-Options", "DENY", false),
        ] {
            let once = [set(name, value)];
            let always = [set(name, value).always()];
            for (status, operations, applies) in [
                (200, &once, true),
                (304, &once, true),
                (399, &once, true),
                (404, &once, !is_lifetime),
                (503, &once, !is_lifetime),
                (404, &always, true),
            ] {
                let what = format!("{name}: {value} in {status}");
                let fields = apply_operations(status, &[(name, "old")], operations);
                assert_eq!(fields, [(name, if applies { value } else { "old" })], "{what}");
                let mut output = Vec::new();
                write_changed(status, format!("{name}: old\r\n").as_bytes(), operations, &mut output);
                let expected = format!("{name}: {}\r\n", if applies { value } else { "old" });
                assert_eq!(String::from_utf8_lossy(&output), expected, "{what}");
            }
        }
        assert!(!FieldOp::remove("Cache-Control".into()).sets_lifetime());
    }

    #[test]
    fn fields_of_a_connection_are_known_in_any_case() {
        assert!(is_of_a_connection(b"Transfer-Encoding") && is_of_a_connection(b"te"));
        assert!(!is_of_a_connection(b"t") && !is_of_a_connection(b"content-length"));
    }
}
