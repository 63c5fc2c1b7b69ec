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

/// Fields specific to a connection and its framing (RFC 9110 §7.6.1).
const OF_A_CONNECTION: [&str; 7] =
    ["connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"];

/// Returns whether the field `name` (case-insensitive) is specific to a connection and its framing. Such fields are
/// neither copied to another message nor configurable.
pub fn is_of_a_connection(name: &[u8]) -> bool {
    OF_A_CONNECTION.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
}

/// Names that no [`FieldOp`] changes: they determine the framing or the content.
const FRAMING: [&str; 9] = [
    "content-length",
    "content-range",
    "transfer-encoding",
    "connection",
    "date",
    "content-encoding",
    "trailer",
    "upgrade",
    "age",
];

/// Iterates over `lines`: each line with its CR LF, and its name.
pub fn each_line(lines: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    lines.split_inclusive(|&byte| byte == b'\n').filter_map(|line| {
        let colon = memchr(b':', line)?;
        Some((&line[..colon], line))
    })
}

/// Appends `lines` to `output` with `changes` applied. Ignores changes to framing fields and values with control
/// characters.
pub fn write_changed(lines: &[u8], changes: &[FieldOp], output: &mut Vec<u8>) {
    if changes.is_empty() {
        output.extend_from_slice(lines);
        return;
    }
    for (name, line) in each_line(lines) {
        let dropped = changes.iter().any(|change| match change {
            FieldOp::Set(changed, _) | FieldOp::Remove(changed) => {
                !is_framing(changed) && name.eq_ignore_ascii_case(changed.as_bytes())
            }
            FieldOp::Add(..) => false,
        });
        if !dropped {
            output.extend_from_slice(line);
        }
    }
    for (index, change) in changes.iter().enumerate() {
        let (FieldOp::Set(name, value) | FieldOp::Add(name, value)) = change else { continue };
        // Skip a field that a later operation replaces or removes.
        let undone = changes[index + 1..].iter().any(|later| match later {
            FieldOp::Set(changed, _) | FieldOp::Remove(changed) => changed.eq_ignore_ascii_case(name),
            FieldOp::Add(..) => false,
        });
        let is_safe = !value.bytes().any(|byte| (byte < b' ' && byte != b'\t') || byte == 0x7f);
        if !undone && is_safe && !is_framing(name) && is_token(name.as_bytes()) {
            write_line(name.as_bytes(), value.as_bytes(), output);
        }
    }
}

fn is_framing(name: &str) -> bool {
    FRAMING.iter().any(|framing| framing.eq_ignore_ascii_case(name))
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
    use super::{FieldOp, is_of_a_connection, write_changed};

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
    }

    #[test]
    fn fields_of_a_connection_are_known_in_any_case() {
        assert!(is_of_a_connection(b"Transfer-Encoding") && is_of_a_connection(b"te"));
        assert!(!is_of_a_connection(b"t") && !is_of_a_connection(b"content-length"));
    }
}
