//! One version of a file: its identity, and its representations, plain and encoded.

use crate::encode::{ENCODE_BYTES_MAX, ENCODE_BYTES_MIN, REVISION};
use crate::media::{content_type, is_compressible};
use crate::outcome::FileOutcome;
use crate::representation::{Common, Representation, RepresentationContent};
use crate::rules::FileRules;
use crate::services::{Services, VersionFacts};
use flatout_handler::routed::HeaderPolicy;
use flatout_http::encoding::ContentCoding;
use flatout_os::file::{FileIdentity, OpenFile};
use flatout_os::root::{Named, Root};
use rustix::io::pread;
use std::cell::OnceCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

/// Size up to which files are cached in memory, in bytes; larger ones stay in the page cache and are sent by
/// sendfile. 64 KiB covers nearly all texts of a site.
pub(crate) const MEMORY_BYTES_MAX: u64 = 64 * 1024;

/// Attempts to read a file that changes meanwhile.
const READS_MAX: u32 = 4;

/// Before Linux 6.13 two writes within one tick (up to 10 ms) leave equal timestamps. A version read sooner than this
/// after its last change may be followed by one with the same identity.
const SETTLED_NS: i128 = 50_000_000;

/// Parameters of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loading<'a> {
    pub(crate) root: &'a Root,
    pub(crate) rules: &'a FileRules,
    pub(crate) policy: &'a Rc<HeaderPolicy>,
    pub(crate) services: &'a Services,
    /// The precise wall clock, in nanoseconds since 1970.
    pub(crate) unix_ns: i128,
}

/// The metadata of a file, sufficient to validate a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileMetadata {
    /// Position of the file among the index names; 0 for other files.
    pub(crate) index_at: usize,
    pub(crate) identity: FileIdentity,
    /// Precompressed files that are not older.
    pub(crate) beside: Vec<(ContentCoding, FileIdentity)>,
}

/// One version.
#[derive(Debug)]
pub(crate) struct Version {
    /// The metadata at load; `None` for generated content.
    pub(crate) seen: Option<FileMetadata>,
    /// True if a later write certainly changes the identity.
    pub(crate) settled: bool,
    pub(crate) common: Common,
    pub(crate) plain: Representation,
    /// Existing or possible codings, in the server's order of preference.
    offered: Vec<ContentCoding>,
    /// In the order of `ContentCoding::ALL` without the first; `None` inside if not worthwhile.
    encoded: [OnceCell<Option<Representation>>; 3],
    facts: Arc<VersionFacts>,
}

/// The state of an encoding.
#[derive(Debug)]
pub(crate) enum EncodingState<'a> {
    /// Available.
    Ready(&'a Representation),
    /// It can be created.
    Possible,
    /// Not available.
    Useless,
}

impl Version {
    /// Loads the file `name` with the metadata `seen`. The result is one consistent version: either all bytes were
    /// read between two checks with the same identity, or the descriptor of that identity is held.
    pub(crate) fn load(loading: &Loading<'_>, name: &[u8], seen: &FileMetadata) -> Result<Self, FileOutcome> {
        let (content, identity) = read_content(loading.root, name)?;
        let mut seen = seen.clone();
        seen.identity = identity;
        let rules = loading.rules;
        let mut settled = is_settled(&identity, loading.unix_ns);
        let unix_ns = (!settled).then_some(loading.unix_ns);
        let etag = make_etag(&identity, unix_ns);
        let content_type = content_type(name);
        let modified_s = i64::try_from(identity.modified_ns.div_euclid(1_000_000_000)).unwrap_or(0);
        // A time in the future is replaced by the change time, which is the same at every load.
        let changed_s = i64::try_from(identity.changed_ns.div_euclid(1_000_000_000)).unwrap_or(0).max(0);
        let last_modified_s = if identity.modified_ns > loading.unix_ns { changed_s } else { modified_s.max(0) };
        let (cache_control, expires_s) = rules.freshness(&content_type);
        let offers = is_compressible(&content_type) && rules.offers_codings();
        let common = Common {
            content_type,
            last_modified_s,
            last_modified: Common::format_date(last_modified_s),
            cache_control,
            expires_s,
            vary: offers.then_some("Accept-Encoding"),
            policy: Rc::clone(loading.policy),
        };
        let facts = if settled { loading.services.facts(identity) } else { Arc::default() };
        let encoded: [OnceCell<Option<Representation>>; 3] = Default::default();
        let mut offered = Vec::new();
        // Precompressed files that vanish or change meanwhile are left out; the next validation notices.
        for (coding, looked) in &seen.beside {
            let Ok((content, found)) = read_content(loading.root, &name_beside(name, *coding)) else { continue };
            let Some(cell) = encoded.get((*coding as usize).wrapping_sub(1)).filter(|_| found == *looked) else {
                continue;
            };
            let beside_settled = is_settled(&found, loading.unix_ns);
            settled &= beside_settled;
            let tag = make_etag(&found, (!beside_settled).then_some(loading.unix_ns));
            let digests =
                if beside_settled { Arc::clone(&loading.services.facts(found).digests) } else { Arc::default() };
            let tag = format!("{tag}-{}", coding.name());
            let kept_as = beside_settled.then_some(found);
            let beside = Representation::new(&common, *coding, tag, found.size_bytes, content, digests, kept_as);
            if cell.set(Some(beside)).is_ok() {
                offered.push(*coding);
            }
        }
        if offers && (ENCODE_BYTES_MIN..=rules.encode_bytes_max.min(ENCODE_BYTES_MAX)).contains(&identity.size_bytes) {
            offered
                .extend(rules.compress.iter().filter(|coding| !offered.contains(coding)).copied().collect::<Vec<_>>());
        }
        let kept_as = is_settled(&identity, loading.unix_ns).then_some(identity);
        let digests = Arc::clone(&facts.digests);
        let size_bytes = identity.size_bytes;
        let plain = Representation::new(&common, ContentCoding::Identity, etag, size_bytes, content, digests, kept_as);
        Ok(Self { seen: Some(seen), settled, common, plain, offered, encoded, facts })
    }

    /// A version of generated content, last modified at `last_modified_s`. Its tag depends on its bytes.
    pub(crate) fn of_content(
        content: Vec<u8>,
        content_type: &str,
        rules: &FileRules,
        policy: &Rc<HeaderPolicy>,
        last_modified_s: i64,
    ) -> Self {
        let (cache_control, expires_s) = rules.freshness(content_type);
        let (offers, size_bytes) = (!rules.compress.is_empty(), content.len() as u64);
        let common = Common {
            content_type: content_type.to_owned(),
            last_modified_s,
            last_modified: Common::format_date(last_modified_s),
            cache_control,
            expires_s,
            vary: Some(if offers { "Accept, Accept-Encoding" } else { "Accept" }),
            policy: Rc::clone(policy),
        };
        let etag = format!("{size_bytes:x}-{:016x}", hash(&[&content]));
        let facts = Arc::<VersionFacts>::default();
        let digests = Arc::clone(&facts.digests);
        let content = RepresentationContent::Memory(content.into());
        let plain = Representation::new(&common, ContentCoding::Identity, etag, size_bytes, content, digests, None);
        let offered = if offers && (ENCODE_BYTES_MIN..=ENCODE_BYTES_MAX).contains(&size_bytes) {
            rules.compress.clone()
        } else {
            Vec::new()
        };
        Self { seen: None, settled: true, common, plain, offered, encoded: Default::default(), facts }
    }

    /// Existing or possible codings, in the server's order of preference.
    pub(crate) fn offered(&self) -> &[ContentCoding] {
        &self.offered
    }

    /// Facts shared with other copies of this version.
    pub(crate) fn facts(&self) -> &VersionFacts {
        &self.facts
    }

    /// The state of the encoding in `coding`. Adopts one that was created since the last call, and then sets `grown`,
    /// as the version holds more than before.
    pub(crate) fn standing(&self, coding: ContentCoding, grown: &mut bool) -> EncodingState<'_> {
        let Some(cell) = self.encoded.get((coding as usize).wrapping_sub(1)) else {
            return EncodingState::Ready(&self.plain);
        };
        if cell.get().is_none() {
            let made = match self.facts.encoded(coding).and_then(|slot| slot.get()) {
                None => return EncodingState::Possible,
                Some(None) => None,
                Some(Some(made)) => {
                    let etag = format!("{}-{}{REVISION}", self.plain.etag, coding.name());
                    let Some(adopted) = Representation::adopt(&self.common, coding, etag, made) else {
                        return EncodingState::Useless;
                    };
                    Some(adopted)
                }
            };
            *grown = true;
            let _ = cell.set(made);
        }
        match cell.get() {
            Some(Some(representation)) => EncodingState::Ready(representation),
            _ => EncodingState::Useless,
        }
    }

    fn representations(&self) -> impl Iterator<Item = &Representation> {
        self.encoded.iter().filter_map(|cell| cell.get()?.as_ref()).chain([&self.plain])
    }

    /// The version's approximate memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let held = self.representations().map(Representation::memory_bytes).sum::<usize>();
        size_of::<Self>() + held + self.promised() * self.plain.size_bytes as usize
    }

    /// Number of the version's descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        let promised = if self.plain.size_bytes > MEMORY_BYTES_MAX { self.promised() } else { 0 };
        self.representations().filter(|representation| representation.holds_descriptor()).count() + promised
    }

    /// Encodings requested for this version and not adopted yet. They count in advance, with their maximum size, as
    /// they occupy memory even if no later request adopts them.
    fn promised(&self) -> usize {
        let codings = ContentCoding::ALL.iter().filter_map(|&coding| {
            let cell = self.encoded.get((coding as usize).checked_sub(1)?)?;
            (cell.get().is_none() && self.facts.encoded(coding)?.is_begun()).then_some(())
        });
        codings.count()
    }
}

/// Looks up precompressed files in `codings` for the file `name`. An older one does not belong to this version.
pub(crate) fn look_beside(
    root: &Root,
    name: &[u8],
    identity: &FileIdentity,
    codings: &[ContentCoding],
) -> Vec<(ContentCoding, FileIdentity)> {
    let mut beside = Vec::new();
    for &coding in codings {
        if let Ok(Named::File(found)) = root.identify(&name_beside(name, coding))
            && found.modified_ns >= identity.modified_ns
        {
            beside.push((coding, found));
        }
    }
    beside
}

fn name_beside(name: &[u8], coding: ContentCoding) -> Vec<u8> {
    let ending: &[u8] = match coding {
        ContentCoding::Identity => b"",
        ContentCoding::Brotli => b".br",
        ContentCoding::Zstd => b".zst",
        ContentCoding::Gzip => b".gz",
    };
    [name, ending].concat()
}

/// Uses the change time only: every write sets it, and it cannot be set to the future.
fn is_settled(identity: &FileIdentity, unix_ns: i128) -> bool {
    unix_ns - identity.changed_ns >= SETTLED_NS
}

fn read_content(root: &Root, name: &[u8]) -> Result<(RepresentationContent, FileIdentity), FileOutcome> {
    for _ in 0..READS_MAX {
        let (fd, identity) = root.open_file(name)?;
        if identity.size_bytes > MEMORY_BYTES_MAX {
            return Ok((RepresentationContent::File(Rc::new(OpenFile::new(fd, identity))), identity));
        }
        let content = read_all(&fd, identity.size_bytes)?;
        let after = FileIdentity::read(&fd).map_err(|_| FileOutcome::FileFailed)?;
        if after == identity && content.len() as u64 == identity.size_bytes {
            return Ok((RepresentationContent::Memory(content.into()), identity));
        }
    }
    Err(FileOutcome::FileUnsettled)
}

/// Reads up to `size_bytes` and checks for more: a file that has grown is another version.
fn read_all(fd: &OwnedFd, size_bytes: u64) -> Result<Vec<u8>, FileOutcome> {
    let mut content = vec![0; size_bytes as usize];
    let mut read = 0;
    while read < content.len() {
        match pread(fd, &mut content[read..], read as u64) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Err(FileOutcome::FileFailed),
        }
    }
    content.truncate(read);
    Ok(content)
}

/// A strong entity tag: the size, and a hash of everything that identifies a version.
///
/// An unsettled version may share its identity with the next one, so the time of its load distinguishes them: a tag
/// never identifies two contents (RFC 9110 §8.8.1).
fn make_etag(identity: &FileIdentity, loaded_unix_ns: Option<i128>) -> String {
    let mut parts = vec![
        identity.device.to_le_bytes().to_vec(),
        identity.inode.to_le_bytes().to_vec(),
        identity.modified_ns.to_le_bytes().to_vec(),
        identity.changed_ns.to_le_bytes().to_vec(),
    ];
    parts.extend(loaded_unix_ns.map(|unix_ns| unix_ns.to_le_bytes().to_vec()));
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    format!("{:x}-{:016x}", identity.size_bytes, hash(&parts))
}

/// FNV-1a: the inputs come from the kernel or this process, not from visitors, and two versions of one file only need
/// to differ, not to resist an attacker.
fn hash(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
pub(crate) mod tests;
