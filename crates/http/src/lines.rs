//! Field lines as bytes, each with its CR LF, and header operations.

use crate::token::is_token;
use memchr::memchr;

/// Header operation on a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldOp {
    /// Replaces all fields of this name.
    Set(String, String),
    /// Adds a field line.
    Add(String, String),
    /// Removes all fields of this name.
    Remove(String),
}

impl FieldOp {
    /// The name of the field.
    pub fn name(&self) -> &str {
        let (Self::Set(name, _) | Self::Add(name, _) | Self::Remove(name)) = self;
        name
    }

    /// The value of the new field line; `None` for a removal.
    pub fn value(&self) -> Option<&str> {
        match self {
            Self::Set(_, value) | Self::Add(_, value) => Some(value),
            Self::Remove(_) => None,
        }
    }

    /// Returns whether it removes existing fields called `name` (case-insensitive).
    pub fn removes(&self, name: &[u8]) -> bool {
        !matches!(self, Self::Add(..)) && name.eq_ignore_ascii_case(self.name().as_bytes())
    }

    /// Returns whether a response permits it: the field is not [fixed](is_fixed), and its line is one valid line.
    fn is_permitted(&self) -> bool {
        let is_safe = |value: &str| !value.bytes().any(|byte| (byte < b' ' && byte != b'\t') || byte == 0x7f);
        let name = self.name().as_bytes();
        !is_fixed(name) && is_token(name) && self.value().is_none_or(is_safe)
    }
}

/// Fields specific to a connection and its framing (RFC 9110 §7.6.1).
const OF_A_CONNECTION: [&str; 7] =
    ["connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"];

/// Returns whether the field `name` (case-insensitive) is specific to a connection and its framing. Such fields are
/// neither copied to another message nor configurable.
pub fn is_of_a_connection(name: &[u8]) -> bool {
    is_any_of(name, &OF_A_CONNECTION)
}

/// Further response fields that only the server writes, as they determine the content or its age.
const FIXED: [&str; 5] = ["age", "content-encoding", "content-length", "content-range", "date"];

/// Returns whether no [`FieldOp`] changes the response field `name` (case-insensitive).
pub fn is_fixed(name: &[u8]) -> bool {
    is_of_a_connection(name) || is_any_of(name, &FIXED)
}

fn is_any_of(name: &[u8], names: &[&str]) -> bool {
    names.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
}

/// `fields` of a response after `operations`, in order. Skips operations on [fixed](is_fixed) fields and values with
/// control characters.
pub fn apply_operations<'a>(fields: &[(&'a str, &'a str)], operations: &'a [FieldOp]) -> Vec<(&'a str, &'a str)> {
    let mut fields = fields.to_vec();
    for operation in operations.iter().filter(|operation| operation.is_permitted()) {
        fields.retain(|(name, _)| !operation.removes(name.as_bytes()));
        fields.extend(operation.value().map(|value| (operation.name(), value)));
    }
    fields
}

/// Iterates over `lines`: each line with its CR LF, and its name.
pub fn each_line(lines: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    lines.split_inclusive(|&byte| byte == b'\n').filter_map(|line| {
        let colon = memchr(b':', line)?;
        Some((&line[..colon], line))
    })
}

/// Appends `lines` to `output` with `changes` applied, as [`apply_operations`] does.
pub fn write_changed(lines: &[u8], changes: &[FieldOp], output: &mut Vec<u8>) {
    if changes.is_empty() {
        output.extend_from_slice(lines);
        return;
    }
    for (name, line) in each_line(lines) {
        if !changes.iter().any(|change| change.removes(name) && change.is_permitted()) {
            output.extend_from_slice(line);
        }
    }
    for (index, change) in changes.iter().enumerate() {
        let name = change.name().as_bytes();
        // Skip a field that a later operation replaces or removes.
        let is_undone = || changes[index + 1..].iter().any(|later| later.removes(name) && later.is_permitted());
        if let Some(value) = change.value()
            && change.is_permitted()
            && !is_undone()
        {
            write_line(name, value.as_bytes(), output);
        }
    }
}

/// Appends one line.
pub fn write_line(name: &[u8], value: &[u8], output: &mut Vec<u8>) {
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
        let set = |name: &str, value: &str| FieldOp::Set(name.into(), value.into());
        let add = |name: &str, value: &str| FieldOp::Add(name.into(), value.into());
        let changes = [
            set("etag", "\"b\""),
            add("Link", "<a>"),
            FieldOp::Remove("X".into()),
            set("Content-Length", "9"),
            set("Y", "1"),
            set("Y", "2"),
            add("Z", "a\r\nB: c"),
        ];
        let mut output = Vec::new();
        write_changed(b"ETag: \"a\"\r\nContent-Length: 3\r\nX: 1\r\nLink: <b>\r\n", &changes, &mut output);
        let expected = "Content-Length: 3\r\nLink: <b>\r\netag: \"b\"\r\nLink: <a>\r\nY: 2\r\n";
        assert_eq!(String::from_utf8_lossy(&output), expected);
        let fields = [("ETag", "\"a\""), ("Content-Length", "3"), ("X", "1"), ("Link", "<b>")];
        let pairs = apply_operations(&fields, &changes);
        let pairs: String = pairs.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        assert_eq!(pairs, expected);
        for name in ["Age", "Content-Encoding", "Content-Range", "Transfer-Encoding", "Connection", "date", "X Y"] {
            let changes = [set(name, "1"), add(name, "2"), FieldOp::Remove(name.into())];
            assert_eq!(apply_operations(&[(name, "0")], &changes), [(name, "0")]);
        }
    }

    #[test]
    fn fields_of_a_connection_are_known_in_any_case() {
        assert!(is_of_a_connection(b"Transfer-Encoding") && is_of_a_connection(b"te"));
        assert!(!is_of_a_connection(b"t") && !is_of_a_connection(b"content-length"));
    }
}
