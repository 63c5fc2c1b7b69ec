//! Tags and groups: names under which answers are purged together.

use crate::request::CacheRequest;
use flatout_http::head::Fields;

/// Tags of one answer at the most.
pub const TAGS_MAX: usize = 256;
/// Bytes of one tag at the most.
pub const TAG_BYTES_MAX: usize = 1024;
/// Groups of one answer at the most. RFC 9875 §2.1 asks for 128 at least.
pub const GROUPS_MAX: usize = 128;
/// Bytes of one group's name at the most. RFC 9875 §2.1 asks for 128 at least.
pub const GROUP_BYTES_MAX: usize = 256;

/// A bounded list of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags(Box<[u8]>);

impl Tags {
    /// Every name.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::empty()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Reads the tags in the fields called `names`: separated by spaces, as in Surrogate-Key, or commas, as in Cache-Tag.
/// `None`: more, or longer ones, than are kept; such an answer cannot be purged by all of its tags, and so is not kept.
pub fn parse_tags(fields: &Fields<'_>, names: &[String]) -> Option<Tags> {
    let _ = (fields, names);
    unimplemented!()
}

/// Reads the strings in the structured list `name`: Cache-Groups or Cache-Group-Invalidation (RFC 9875 §2, §3). One
/// that breaks its grammar counts as absent (RFC 9651 §4.2); what goes over the limits is left out.
pub fn parse_groups(fields: &Fields<'_>, name: &'static str) -> Tags {
    let _ = (fields, name);
    unimplemented!()
}

/// Appends the tag that stands for `group` of the request's origin: groups of different origins are different
/// (RFC 9875 §2).
pub fn write_group_tag(request: &CacheRequest<'_>, group: &[u8], output: &mut Vec<u8>) {
    let _ = (request, group, output);
    unimplemented!()
}
