//! A plain or encoded representation of a version: its entity tag, heads and content.

use crate::digests::Digests;
use crate::lazy::LazyValue;
use crate::services::{Encoded, EncodedContent, VersionSource};
use flatout_handler::response::{Body, FileBody, Head, Segment};
use flatout_handler::routed::HeaderPolicy;
use flatout_handler::shared::SharedBytes;
use flatout_http::conditional::Validators;
use flatout_http::date::format_date;
use flatout_http::digest::DigestAlgorithm;
use flatout_http::encoding::ContentCoding;
use flatout_os::file::{FileIdentity, OpenFile};
use std::cell::RefCell;
use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::Arc;

/// The properties that all representations of a version share.
#[derive(Debug)]
pub(crate) struct Common {
    /// Value of the Content-Type field, with the charset.
    pub(crate) content_type: String,
    /// Last-Modified in seconds since 1970, or `None` if the file has no date. It is never later than the time when the
    /// version was loaded (RFC 9110 §8.8.2.1).
    pub(crate) last_modified_s: Option<i64>,
    /// See [`Validators::date_is_strong`].
    pub(crate) date_is_strong: bool,
    /// The value of Last-Modified, as an HTTP date.
    pub(crate) last_modified: Option<String>,
    pub(crate) cache_control: Option<String>,
    /// The time from the response to Expires, in seconds.
    pub(crate) expires_s: Option<u32>,
    /// The value of Vary.
    pub(crate) vary: Option<&'static str>,
    pub(crate) policy: Rc<HeaderPolicy>,
}

impl Common {
    pub(crate) fn format_date(unix_s: i64) -> String {
        String::from_utf8_lossy(&format_date(unix_s)).into_owned()
    }
}

/// A representation of a version.
#[derive(Debug)]
pub(crate) struct Representation {
    pub(crate) coding: ContentCoding,
    /// The entity tag without its quotes, or `None` if the representation has none, or none yet.
    pub(crate) etag: Option<String>,
    pub(crate) size_bytes: u64,
    pub(crate) ok_head: Head,
    pub(crate) not_modified_head: Head,
    /// The digests of the content, which may not have been computed yet.
    pub(crate) digests: Arc<LazyValue<Digests>>,
    /// The key of its digests in the digest store, or `None` if they are not stored.
    pub(crate) kept_as: Option<FileIdentity>,
    content: RepresentationContent,
    /// The extra lines of the last response. The next response probably has the same.
    extra: RefCell<Option<(Extra, Rc<[u8]>)>>,
}

#[derive(Debug)]
pub(crate) enum RepresentationContent {
    Memory(SharedBytes),
    File(Rc<OpenFile>),
}

/// The field lines that a response has in addition to its prebuilt head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extra {
    /// The value of Expires, in seconds since 1970.
    pub(crate) expires_unix_s: Option<i64>,
    pub(crate) repr_digest: Option<DigestAlgorithm>,
    pub(crate) content_digest: Option<DigestAlgorithm>,
    pub(crate) content_md5: bool,
}

impl Representation {
    pub(crate) fn new(
        common: &Common,
        coding: ContentCoding,
        etag: Option<String>,
        size_bytes: u64,
        content: RepresentationContent,
        digests: Arc<LazyValue<Digests>>,
        kept_as: Option<FileIdentity>,
    ) -> Self {
        let quoted = etag.as_deref().map(quote);
        let length = size_bytes.to_string();
        let mut fields = vec![("Content-Type", common.content_type.as_str()), ("Content-Length", &length)];
        fields.extend(encoding_field(coding));
        let shared = SharedFields::new(common, quoted.as_deref());
        shared.add_to(&mut fields);
        let ok_head = common.policy.head(200, &fields);
        let not_modified_head = common.policy.head(304, &[shared.validators, shared.others].concat());
        let extra = RefCell::default();
        Self { coding, etag, size_bytes, ok_head, not_modified_head, digests, kept_as, content, extra }
    }

    /// Creates the representation of an encoding that the thread pool has created. Returns `None` if no file descriptor
    /// is available.
    pub(crate) fn adopt(
        common: &Common,
        coding: ContentCoding,
        etag: Option<String>,
        encoded: &Encoded,
    ) -> Option<Self> {
        let content = match &encoded.content {
            EncodedContent::Memory(bytes) => RepresentationContent::Memory(SharedBytes::from(&bytes[..])),
            EncodedContent::File(fd, identity) => {
                RepresentationContent::File(Rc::new(OpenFile::new(fd.try_clone().ok()?, *identity, None)))
            }
        };
        Some(Self::new(common, coding, etag, encoded.size_bytes, content, Arc::clone(&encoded.digests), None))
    }

    /// Returns the validators that preconditions are compared with.
    pub(crate) fn validators<'a>(&'a self, common: &Common) -> Validators<'a> {
        let Common { last_modified_s, date_is_strong, .. } = *common;
        Validators { etag: self.etag.as_deref().map(str::as_bytes), last_modified_s, date_is_strong }
    }

    /// Returns `length` bytes of the content from byte `first` on. The range must be within the representation.
    pub(crate) fn body(&self, first: u64, length: u64) -> Body {
        debug_assert!(first + length <= self.size_bytes);
        match &self.content {
            _ if length == 0 => Body::Empty,
            RepresentationContent::Memory(bytes) => Body::Bytes(bytes.slice(first as usize..(first + length) as usize)),
            RepresentationContent::File(file) => {
                Body::File(FileBody { file: Rc::clone(file), offset: first, bytes: length })
            }
        }
    }

    /// Returns `length` bytes from byte `first` on as a segment of a larger content.
    pub(crate) fn segment(&self, first: u64, length: u64) -> Segment {
        match &self.content {
            RepresentationContent::Memory(bytes) => {
                Segment::Bytes(bytes.slice(first as usize..(first + length) as usize))
            }
            RepresentationContent::File(file) => {
                Segment::File(FileBody { file: Rc::clone(file), offset: first, bytes: length })
            }
        }
    }

    /// Returns whether the content can still be sent as that of this version. This is always true of content in memory.
    /// A file that has been overwritten is a different version, and the response would be truncated.
    pub(crate) fn is_sendable(&self) -> bool {
        match &self.content {
            RepresentationContent::Memory(_) => true,
            RepresentationContent::File(file) => file.is_current(),
        }
    }

    /// Returns the content for the thread pool, as a copy or a duplicated descriptor. Returns `None` if no descriptor
    /// is available.
    pub(crate) fn source(&self) -> Option<VersionSource> {
        Some(match &self.content {
            RepresentationContent::Memory(bytes) => VersionSource::Memory(Arc::from(&bytes[..])),
            RepresentationContent::File(file) => VersionSource::File(file.fd.try_clone().ok()?, file.identity?),
        })
    }

    /// Returns the head of a 206 response with `fields`, which describe the part.
    pub(crate) fn partial_head(&self, common: &Common, fields: &[(&str, &str)]) -> Head {
        let quoted = self.etag.as_deref().map(quote);
        let mut all = fields.to_vec();
        all.extend(encoding_field(self.coding));
        SharedFields::new(common, quoted.as_deref()).add_to(&mut all);
        common.policy.head(206, &all)
    }

    /// Returns the lines of `extra` that the policy allows, without digests that have not been computed yet.
    pub(crate) fn extra_lines(&self, common: &Common, extra: Extra) -> Option<Rc<[u8]>> {
        if extra == Extra::default() {
            return None;
        }
        let mut last = self.extra.borrow_mut();
        if let Some((last, lines)) = &*last
            && *last == extra
        {
            return Some(Rc::clone(lines));
        }
        let (mut text, mut add) = (String::new(), Vec::new());
        if let Some(unix_s) = extra.expires_unix_s {
            add.push(("Expires", Common::format_date(unix_s)));
        }
        if let Some(digests) = self.digests.get() {
            add.extend(extra.content_md5.then(|| ("Content-MD5", digests.md5_value())));
            add.extend(extra.repr_digest.map(|algorithm| ("Repr-Digest", digests.field_value(algorithm))));
            add.extend(extra.content_digest.map(|algorithm| ("Content-Digest", digests.field_value(algorithm))));
        }
        for (name, value) in add.into_iter().filter(|(name, _)| common.policy.lets_through(name)) {
            // Writing to a String cannot fail.
            let _ = write!(text, "{name}: {value}\r\n");
        }
        let lines: Rc<[u8]> = text.into_bytes().into();
        *last = Some((extra, Rc::clone(&lines)));
        Some(lines)
    }

    /// Returns the approximate memory of the representation, in bytes. Content in an unnamed file counts as memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let content = match &self.content {
            RepresentationContent::Memory(bytes) => bytes.len(),
            // Unnamed files have no sample.
            RepresentationContent::File(file) => {
                file.sample().map_or(self.size_bytes as usize, |sample| sample.bytes().len())
            }
        };
        let etag = self.etag.as_ref().map_or(0, String::len);
        size_of::<Self>() + self.ok_head.len() + self.not_modified_head.len() + etag + content
    }

    /// Returns whether the representation holds a file descriptor.
    pub(crate) const fn holds_descriptor(&self) -> bool {
        matches!(self.content, RepresentationContent::File(_))
    }
}

/// Returns Content-Encoding, unless the content is not encoded.
fn encoding_field(coding: ContentCoding) -> Option<(&'static str, &'static str)> {
    (coding != ContentCoding::Identity).then(|| ("Content-Encoding", coding.name()))
}

fn quote(etag: &str) -> String {
    format!("\"{etag}\"")
}

/// The fields that 200, 206 and 304 responses share (RFC 9110 §15.3.7, §15.4.5).
struct SharedFields<'a> {
    validators: Vec<(&'static str, &'a str)>,
    others: Vec<(&'static str, &'a str)>,
}

impl<'a> SharedFields<'a> {
    fn new(common: &'a Common, quoted_etag: Option<&'a str>) -> Self {
        let date = common.last_modified.as_deref().map(|value| ("Last-Modified", value));
        let validators = date.into_iter().chain(quoted_etag.map(|value| ("ETag", value))).collect();
        let cache_control = common.cache_control.as_deref().map(|value| ("Cache-Control", value));
        let others = cache_control.into_iter().chain(common.vary.map(|value| ("Vary", value))).collect();
        Self { validators, others }
    }

    /// Adds the fields of a response with content to `fields`.
    fn add_to(&self, fields: &mut Vec<(&'a str, &'a str)>) {
        fields.extend_from_slice(&self.validators);
        fields.push(("Accept-Ranges", "bytes"));
        fields.extend_from_slice(&self.others);
    }
}
