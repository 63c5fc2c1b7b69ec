//! Metadata of stored responses, in the form that the store needs.

use flatout_cache::codec;
use flatout_cache::stored::{Extent, Stored};
use flatout_http::lines::each_line;

/// How long a stale response is retained for validation only, in seconds. An estimate: many visitors return daily.
const VALIDATION_GRACE_S: u32 = 86_400;

/// Maximum length in bytes of a group tag that the decoder accepts.
const GROUP_TAG_BYTES_MAX: usize = 16 * 1024;

/// Maximum length in bytes of a trailer section that the decoder accepts.
const TRAILER_BYTES_MAX: usize = 64 * 1024;

/// Flag in the encoded number of group tags: a trailer section follows the tags.
const HAS_TRAILERS: u16 = 0x8000;

/// Metadata of a stored response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Metadata defined by `flatout_cache`.
    pub stored: Stored,
    /// Tags that represent the response's Cache-Groups (RFC 9875), scoped to its origin.
    pub group_tags: Box<[Box<[u8]>]>,
    /// Trailer section of the whole content, each line `Name: value` and CR LF. Empty if there is none.
    pub trailers: Box<[u8]>,
}

impl Meta {
    /// Returns a copy with the metadata `stored`, updated by a validation. Tags and trailers stay (RFC 9111 §3.2).
    #[must_use]
    pub fn freshened(&self, stored: Stored) -> Self {
        Self { stored, group_tags: self.group_tags.clone(), trailers: self.trailers.clone() }
    }
}

/// Returns the field lines without Trailer, for a message that has no trailers. Each line is `Name: value` and CR LF.
pub fn without_trailer_field(lines: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(lines.len());
    for (name, line) in each_line(lines) {
        if !name.eq_ignore_ascii_case(b"trailer") {
            kept.extend_from_slice(line);
        }
    }
    kept
}

/// A stored response.
pub type StoredResponse = flatout_store::Object<Meta>;

impl flatout_store::Meta for Meta {
    fn encode(&self, into: &mut Vec<u8>) {
        codec::encode(&self.stored, into);
        let marks = if self.trailers.is_empty() { 0 } else { HAS_TRAILERS };
        into.extend_from_slice(&(self.group_tags.len() as u16 & !HAS_TRAILERS | marks).to_le_bytes());
        for tag in &self.group_tags {
            into.extend_from_slice(&(tag.len() as u16).to_le_bytes());
            into.extend_from_slice(tag);
        }
        if !self.trailers.is_empty() {
            into.extend_from_slice(&(self.trailers.len() as u32).to_le_bytes());
            into.extend_from_slice(&self.trailers);
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (stored, used) = codec::decode(bytes).ok()??;
        let mut rest = bytes.get(used..)?;
        let number = |rest: &mut &[u8]| {
            let (number, behind) = rest.split_first_chunk::<2>()?;
            *rest = behind;
            Some(u16::from_le_bytes(*number))
        };
        let marked = number(&mut rest)?;
        let count = marked & !HAS_TRAILERS;
        let mut group_tags = Vec::new();
        for _ in 0..count {
            let length = number(&mut rest).map(usize::from).filter(|length| *length <= GROUP_TAG_BYTES_MAX)?;
            let (tag, behind) = rest.split_at_checked(length)?;
            group_tags.push(tag.into());
            rest = behind;
        }
        let mut trailers = Box::default();
        if marked & HAS_TRAILERS != 0 {
            let (length, behind) = rest.split_first_chunk::<4>()?;
            let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
            let (section, behind) = behind.split_at_checked(length).filter(|_| length <= TRAILER_BYTES_MAX)?;
            trailers = section.into();
            rest = behind;
        }
        rest.is_empty().then(|| Self { stored, group_tags: group_tags.into(), trailers })
    }

    fn each_tag(&self, visit: &mut dyn FnMut(&[u8])) {
        for tag in self.stored.tags.iter() {
            visit(tag);
        }
        for tag in &self.group_tags {
            visit(tag);
        }
    }

    fn useful_until_s(&self) -> u64 {
        u64::try_from(self.stored.useful_until_s(VALIDATION_GRACE_S)).unwrap_or(0)
    }

    fn is_part(&self) -> bool {
        self.stored.extent != Extent::Whole
    }

    fn heap_bytes(&self) -> usize {
        let stored = &self.stored;
        let tags: usize = stored.tags.iter().chain(stored.groups.iter()).map(|tag| tag.len() + 2).sum();
        let groups: usize = self.group_tags.iter().map(|tag| tag.len() + 16).sum();
        stored.lines.len() + stored.vary.len() + stored.variant_key.len() + tags + groups + self.trailers.len()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::Meta;
    use flatout_cache::freshness::LifetimeSource;
    use flatout_cache::stored::{Extent, Flags, Stored};
    use flatout_cache::tags::Tags;
    use flatout_store::Meta as _;

    /// The metadata of a minimal response.
    pub(crate) fn meta() -> Meta {
        let stored = Stored {
            status: 200,
            request_time_s: 0,
            response_time_s: 0,
            date_s: 0,
            age_field_s: 0,
            initial_age_s: 0,
            lifetime_s: 60,
            lifetime_source: LifetimeSource::MaxAge,
            fresh_until_s: 60,
            stale_while_revalidate_s: 0,
            stale_if_error_s: 0,
            flags: Flags::default(),
            etag: None,
            last_modified_s: None,
            vary: "".into(),
            variant_key: Box::default(),
            search: None,
            tags: Tags::default(),
            groups: Tags::default(),
            extent: Extent::Whole,
            lines: Box::default(),
        };
        Meta { stored, group_tags: Box::default(), trailers: Box::default() }
    }

    #[test]
    fn what_is_written_is_read_again_and_nothing_less() {
        for trailers in [&b""[..], b"Digest: 1\r\n"] {
            let mut written = meta();
            written.group_tags = [Box::from(&b"one"[..]), Box::from(&b""[..])].into();
            written.trailers = trailers.into();
            let mut bytes = Vec::new();
            written.encode(&mut bytes);
            assert_eq!(Meta::decode(&bytes), Some(written));
            for length in 0..bytes.len() {
                assert_eq!(Meta::decode(&bytes[..length]), None, "{length}");
            }
            bytes.push(0);
            assert_eq!(Meta::decode(&bytes), None);
        }
    }
}
