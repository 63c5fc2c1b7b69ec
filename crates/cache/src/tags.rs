//! Tags and cache groups, which name sets of responses that are purged together.

use crate::key::write_origin;
use crate::request::CacheRequest;
use flatout_http::head::Fields;
use flatout_http::structured::parse_list;
use sfv::{BareItem, Item, ListEntry};

/// Maximum number of tags per response.
pub const TAGS_MAX: usize = 256;
/// Maximum length of a tag in bytes.
pub const TAG_BYTES_MAX: usize = 1024;
/// Maximum number of groups per response. RFC 9875 §2.1 requires support for at least 128.
pub const GROUPS_MAX: usize = 128;
/// Maximum length of a group name in bytes. RFC 9875 §2.1 requires support for at least 128.
pub const GROUP_BYTES_MAX: usize = 256;

/// Bounded list of unique names in order of appearance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags(Box<[u8]>);

impl Tags {
    /// Iterates over the names.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let (length, tail) = rest.split_first_chunk::<2>()?;
            let (name, tail) = tail.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
            rest = tail;
            Some(name)
        })
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the list contains `name`.
    pub fn contains(&self, name: &[u8]) -> bool {
        self.iter().any(|known| known == name)
    }

    /// Returns the encoded names, each preceded by its length as a little-endian u16.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Decodes the output of [`Tags::as_bytes`]. Returns `None` if it is invalid.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut tags = Adding::default();
        let mut rest = bytes;
        while !rest.is_empty() {
            let (length, tail) = rest.split_first_chunk::<2>()?;
            let (name, tail) = tail.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
            if name.is_empty() || !tags.add(name, TAGS_MAX, TAG_BYTES_MAX) {
                return None;
            }
            rest = tail;
        }
        (tags.bytes == bytes).then(|| tags.finish())
    }
}

#[derive(Default)]
struct Adding {
    bytes: Vec<u8>,
    /// Offset of each name in `bytes`, and its length.
    places: Vec<(usize, usize)>,
}

impl Adding {
    /// Adds `name` unless it is present. Returns false if the name is too long or the list is full.
    fn add(&mut self, name: &[u8], count_max: usize, bytes_max: usize) -> bool {
        if self.places.iter().any(|&(start, length)| self.bytes[start..start + length] == *name) {
            return true;
        }
        let Ok(length) = u16::try_from(name.len()) else { return false };
        if self.places.len() == count_max || name.len() > bytes_max {
            return false;
        }
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.places.push((self.bytes.len(), name.len()));
        self.bytes.extend_from_slice(name);
        true
    }

    fn finish(self) -> Tags {
        Tags(self.bytes.into())
    }
}

/// Parses the tags in the fields called `names`, separated by spaces (Surrogate-Key) or commas (Cache-Tag). Returns
/// `None` if a limit is exceeded: the response could not be purged by all its tags, so it is not stored.
pub fn parse_tags(fields: &Fields<'_>, names: &[String]) -> Option<Tags> {
    let mut tags = Adding::default();
    for (line, value) in fields.iter() {
        if !names.iter().any(|name| line.eq_ignore_ascii_case(name)) {
            continue;
        }
        for tag in value.split(|byte| matches!(byte, b' ' | b'\t' | b',')).filter(|tag| !tag.is_empty()) {
            if !tags.add(tag, TAGS_MAX, TAG_BYTES_MAX) {
                return None;
            }
        }
    }
    Some(tags.finish())
}

/// Parses the strings of the structured list `name`: Cache-Groups or Cache-Group-Invalidation (RFC 9875 §2, §3). A list
/// that violates the grammar (RFC 9651 §4.2) or has members of a different type is treated as absent. Names that exceed
/// the limits are dropped.
pub fn parse_groups(fields: &Fields<'_>, name: &'static str) -> Tags {
    let lines = fields.iter().filter(|(line, _)| line.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    let mut groups = Adding::default();
    for member in parse_list(lines).unwrap_or_default() {
        let ListEntry::Item(Item { bare_item: BareItem::String(group), .. }) = member else { return Tags::default() };
        if !group.as_str().is_empty() {
            groups.add(group.as_str().as_bytes(), GROUPS_MAX, GROUP_BYTES_MAX);
        }
    }
    groups.finish()
}

/// Appends the tag that represents `group` to `output`. The tag includes the request's origin, since groups are scoped
/// to an origin (RFC 9875 §2). It begins with a space, unlike tags from a response.
pub fn write_group_tag(request: &CacheRequest<'_>, group: &[u8], output: &mut Vec<u8>) {
    output.push(b' ');
    write_origin(request.secure, request.authority, output);
    output.push(b' ');
    output.extend_from_slice(group);
}

#[cfg(test)]
mod tests {
    use super::{GROUPS_MAX, TAG_BYTES_MAX, TAGS_MAX, Tags, parse_groups, parse_tags};
    use crate::lines::with_fields;

    fn tags(lines: &str) -> Option<Vec<String>> {
        let names = ["Surrogate-Key".to_owned(), "Cache-Tag".to_owned()];
        let tags = with_fields(lines.as_bytes(), |fields| parse_tags(fields, &names)).unwrap()?;
        assert_eq!(Tags::from_bytes(tags.as_bytes()), Some(tags.clone()));
        Some(tags.iter().map(|tag| String::from_utf8_lossy(tag).into_owned()).collect())
    }

    #[test]
    fn tags_of_either_kind() {
        assert_eq!(tags("Surrogate-Key: a b  c\r\ncache-tag: d, e,b\r\nX: z\r\n").unwrap(), ["a", "b", "c", "d", "e"]);
        assert_eq!(tags("X: z\r\n").unwrap(), [""; 0]);
        let many = |count: usize| (0..count).map(|number| format!("t{number} ")).collect::<String>();
        assert_eq!(tags(&format!("Surrogate-Key: {}\r\n", many(TAGS_MAX))).unwrap().len(), TAGS_MAX);
        assert_eq!(tags(&format!("Surrogate-Key: {}\r\n", many(TAGS_MAX + 1))), None);
        assert!(tags(&format!("Cache-Tag: {}\r\n", "x".repeat(TAG_BYTES_MAX))).is_some());
        assert_eq!(tags(&format!("Cache-Tag: {}\r\n", "x".repeat(TAG_BYTES_MAX + 1))), None);
    }

    /// RFC 9875 §2.
    #[test]
    fn groups_are_strings() {
        let groups = |value: &str| {
            let lines = format!("Cache-Groups: {value}\r\n");
            let groups = with_fields(lines.as_bytes(), |fields| parse_groups(fields, "cache-groups")).unwrap();
            groups.iter().map(|group| String::from_utf8_lossy(group).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(groups("\"a b\", \"C\";x, \"\\\"\""), ["a b", "C", "\""]);
        assert_eq!(groups("a"), [""; 0]);
        assert_eq!(groups("\"a\", 1"), [""; 0]);
        assert_eq!(groups("\"a\","), [""; 0]);
        let many: Vec<_> = (0..200).map(|number| format!("\"{number}\"")).collect();
        assert_eq!(groups(&many.join(", ")).len(), GROUPS_MAX);
    }

    #[test]
    fn bytes_that_are_no_tags() {
        for bytes in [&b"\x01"[..], b"\x02\0a", b"\0\0", b"\x01\0a\x01\0a", b"\x01\0ab"] {
            assert_eq!(Tags::from_bytes(bytes), None, "{bytes:?}");
        }
    }
}
