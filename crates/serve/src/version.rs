//! A version of a file: its identity, and its plain and encoded representations.

use crate::digests::Digests;
use crate::encode::{self, ENCODE_BYTES_MAX, ENCODE_BYTES_MIN};
use crate::entity_tag;
use crate::lazy::LazyValue;
use crate::media::{is_compressible, read_beginning, served_type};
use crate::outcome::FileOutcome;
use crate::representation::{Common, Representation, RepresentationContent};
use crate::rules::FileRules;
use crate::services::{LazyEncoding, Services};
use flatout_config::model::Compression;
use flatout_handler::routed::HeaderPolicy;
use flatout_http::encoding::ContentCoding;
use flatout_os::file::{ContentSample, FileIdentity, OpenFile};
use flatout_os::root::{Named, Root};
use rustix::io::{Errno, pread};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

/// Maximum size of a file whose content is cached in memory, in bytes. Larger files stay in the page cache and are sent
/// by `sendfile`. 64 KiB is enough for nearly all text files of a site.
pub(crate) const MEMORY_BYTES_MAX: u64 = 64 * 1024;

/// Maximum number of attempts to read a file that keeps changing.
const READS_MAX: u32 = 4;

/// Minimum age of a file's last change for a version to be settled, in nanoseconds. Before Linux 6.13, two writes
/// within one tick (up to 10 ms) leave equal timestamps, so a younger version and its successor may have the same
/// identity.
const SETTLED_NS: i128 = 50_000_000;

/// The same for file systems that store change times in seconds.
const COARSELY_SETTLED_NS: i128 = 2 * SECOND_NS;

/// Minimum age of a file for its date to be sent without an entity tag, in nanoseconds. A younger file may change again
/// in the same second (RFC 9110 §8.8.2.2).
const DATED_NS: i128 = 2 * SECOND_NS;

const SECOND_NS: i128 = 1_000_000_000;

/// The parameters of [`Version::load`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loading<'a> {
    pub(crate) root: &'a Root,
    pub(crate) rules: &'a FileRules,
    pub(crate) policy: &'a Rc<HeaderPolicy>,
    pub(crate) services: &'a Services,
    /// Time from the precise wall clock, in nanoseconds since 1970.
    pub(crate) unix_ns: i128,
}

/// The metadata of a file from which a version can be validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileMetadata {
    /// Position of the file's name in the list of index files, or 0 for other files.
    pub(crate) index_at: usize,
    pub(crate) identity: FileIdentity,
    /// Precompressed files that are not older than the file.
    pub(crate) beside: Vec<(ContentCoding, FileIdentity)>,
}

/// A version of a file, or generated content.
#[derive(Debug)]
pub(crate) struct Version {
    /// The metadata when the version was loaded, or `None` for generated content.
    pub(crate) seen: Option<FileMetadata>,
    /// True if any later write is certain to change the identity.
    pub(crate) settled: bool,
    /// True if a representation has no tag before the digest of its file is known.
    awaits_digest: bool,
    pub(crate) common: Common,
    /// The file as it is stored, which may be encoded. Such a file has no other encodings.
    pub(crate) plain: Representation,
    /// Encodings in the server's order of preference. Each coding occurs once.
    offered: Vec<OfferedEncoding>,
}

/// An encoding that exists or can be created.
#[derive(Debug)]
pub(crate) struct OfferedEncoding {
    pub(crate) coding: ContentCoding,
    /// The encoding, if it exists. The inner value is `None` if encoding does not make the content smaller.
    cell: OnceCell<Option<Representation>>,
    /// How the encoding is created, or `None` for a precompressed file.
    pub(crate) encoder: Option<(Compression, LazyEncoding)>,
}

impl OfferedEncoding {
    fn new(compression: Compression, encoding: LazyEncoding) -> Self {
        Self { coding: compression.coding, cell: OnceCell::new(), encoder: Some((compression, encoding)) }
    }
}

/// The availability of an encoding.
#[derive(Debug)]
pub(crate) enum EncodingState<'a> {
    /// The encoding exists.
    Ready(&'a Representation),
    /// The encoding can be created.
    Possible,
    /// The encoding does not make the content smaller, or no file descriptor is available for it.
    Useless,
}

impl Version {
    /// Loads the file `name` with the metadata `seen`. The version is consistent: either all bytes were read between
    /// two checks that found the same identity, or the version holds a descriptor of the file with that identity.
    pub(crate) fn load(loading: &Loading<'_>, name: &[u8], seen: &FileMetadata) -> Result<Self, FileOutcome> {
        let (content, identity) = read_content(loading.root, name)?;
        let mut seen = seen.clone();
        seen.identity = identity;
        let rules = loading.rules;
        let mut settled = is_settled(&identity, loading.unix_ns);
        let digests = if settled { loading.services.digests(identity) } else { Arc::default() };
        let mut etag = make_etag(&content, &identity, settled.then_some(&digests));
        let declared = loading.policy.coding();
        let readable = || beginning_of(&content).filter(|_| declared.is_none());
        let (content_type, by_name) = served_type(name, &rules.encoded, readable);
        let coding = declared.filter(|_| by_name == ContentCoding::Identity).unwrap_or(by_name);
        let is_encoded = coding != ContentCoding::Identity;
        if is_encoded {
            // Clients that have stored the file without its coding must not validate it.
            etag = etag.map(|tag| format!("{tag}-{}", coding.name()));
        }
        let last_modified_s = date_of(&identity, loading.unix_ns)
            .filter(|_| etag.is_some() || loading.unix_ns - identity.modified_ns >= DATED_NS);
        let (cache_control, expires_s) = rules.freshness(&content_type);
        let offers = !is_encoded && is_compressible(&content_type) && rules.offers_codings();
        let common = Common {
            content_type,
            last_modified_s,
            date_is_strong: entity_tag::is_telling(identity.modified_ns),
            last_modified: last_modified_s.map(Common::format_date),
            cache_control,
            expires_s,
            vary: offers.then_some("Accept-Encoding"),
            policy: Rc::clone(loading.policy),
        };
        let is_shared = settled;
        let mut offered: Vec<OfferedEncoding> = Vec::new();
        // Precompressed files that have disappeared or changed in the meantime are left out. The next validation finds
        // the difference.
        for (coding, looked) in seen.beside.iter().filter(|_| offers) {
            let Ok((content, found)) = read_content(loading.root, &name_beside(name, *coding)) else { continue };
            if found != *looked {
                continue;
            }
            let beside_settled = is_settled(&found, loading.unix_ns);
            settled &= beside_settled;
            let digests = if beside_settled { loading.services.digests(found) } else { Arc::default() };
            let tag = make_etag(&content, &found, beside_settled.then_some(&digests));
            let tag = tag.map(|tag| format!("{tag}-{}", coding.name()));
            let kept_as = beside_settled.then_some(found);
            let beside = Representation::new(&common, *coding, tag, found.size_bytes, content, digests, kept_as);
            offered.push(OfferedEncoding { coding: *coding, cell: OnceCell::from(Some(beside)), encoder: None });
        }
        if offers && (ENCODE_BYTES_MIN..=rules.encode_bytes_max.min(ENCODE_BYTES_MAX)).contains(&identity.size_bytes) {
            for &compression in &rules.compress {
                if offered.iter().all(|offer| offer.coding != compression.coding) {
                    let shared = is_shared.then(|| loading.services.encoding(identity, compression));
                    offered.push(OfferedEncoding::new(compression, shared.unwrap_or_default()));
                }
            }
        }
        let kept_as = is_shared.then_some(identity);
        let size_bytes = identity.size_bytes;
        let plain = Representation::new(&common, coding, etag, size_bytes, content, digests, kept_as);
        let mut version = Self { seen: Some(seen), settled, awaits_digest: false, common, plain, offered };
        version.awaits_digest = version.request_digests(loading.services);
        Ok(version)
    }

    /// Creates a version of generated content, which was last modified at `last_modified_s`. Its entity tag is a hash
    /// of the content.
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
            last_modified_s: Some(last_modified_s),
            // Another content may have the same date: a listing also depends on the configuration.
            date_is_strong: false,
            last_modified: Some(Common::format_date(last_modified_s)),
            cache_control,
            expires_s,
            vary: Some(if offers { "Accept, Accept-Encoding" } else { "Accept" }),
            policy: policy.without_coding(),
        };
        let etag = Some(entity_tag::of_content(&content));
        let content = RepresentationContent::Memory(content.into());
        let digests = Arc::default();
        let plain = Representation::new(&common, ContentCoding::Identity, etag, size_bytes, content, digests, None);
        let is_worthwhile = (ENCODE_BYTES_MIN..=ENCODE_BYTES_MAX).contains(&size_bytes);
        let offered = rules.compress.iter().filter(|_| is_worthwhile);
        let offered = offered.map(|&compression| OfferedEncoding::new(compression, Arc::default())).collect();
        Self { seen: None, settled: true, awaits_digest: false, common, plain, offered }
    }

    /// Returns the encodings that exist or can be created, in the server's order of preference.
    pub(crate) fn offered(&self) -> &[OfferedEncoding] {
        &self.offered
    }

    /// Returns the encoding in `coding`, or `None` if the coding is not offered.
    pub(crate) fn offer(&self, coding: ContentCoding) -> Option<&OfferedEncoding> {
        self.offered.iter().find(|offer| offer.coding == coding)
    }

    /// Returns the state of `offer`, one of [`Self::offered`]. If the thread pool has completed the encoding since the
    /// last call, adopts it and sets `grown`, because the version then holds more than before.
    pub(crate) fn standing<'a>(&'a self, offer: &'a OfferedEncoding, grown: &mut bool) -> EncodingState<'a> {
        if let (None, Some((compression, encoding))) = (offer.cell.get(), &offer.encoder) {
            let made = match encoding.get() {
                None => return EncodingState::Possible,
                Some(None) => None,
                Some(Some(made)) => {
                    let etag = self.plain.etag.as_ref().map(|tag| format!("{tag}-{}", encode::tag(*compression)));
                    let Some(adopted) = Representation::adopt(&self.common, offer.coding, etag, made) else {
                        return EncodingState::Useless;
                    };
                    Some(adopted)
                }
            };
            *grown = true;
            let _ = offer.cell.set(made);
        }
        match offer.cell.get() {
            Some(Some(representation)) => EncodingState::Ready(representation),
            _ => EncodingState::Useless,
        }
    }

    /// Returns the files that have no tag before their digest is known.
    fn untagged(&self) -> impl Iterator<Item = &Representation> {
        self.representations().filter(|file| file.etag.is_none() && file.kept_as.is_some())
    }

    /// Submits the digests that tags are made from, as far as the thread pool accepts them. Returns whether there are
    /// such tags.
    pub(crate) fn request_digests(&self, services: &Services) -> bool {
        let mut awaits_digest = false;
        for file in self.untagged() {
            awaits_digest = true;
            // If the thread pool refuses the job, the next check of the file submits it again.
            let _ = services.make_digests(&file.digests, file.kept_as, || file.source());
        }
        awaits_digest
    }

    /// Returns whether a representation has no tag, and its digest is neither known nor queued.
    #[inline]
    pub(crate) fn lacks_request(&self) -> bool {
        self.awaits_digest && self.untagged().any(|file| !file.digests.is_begun())
    }

    /// Returns whether a digest has become known since the version was loaded, so that loading it again gives it a tag.
    #[inline]
    pub(crate) fn lacks_known_tag(&self) -> bool {
        self.awaits_digest && self.untagged().any(|file| file.digests.get().is_some())
    }

    fn representations(&self) -> impl Iterator<Item = &Representation> {
        self.offered.iter().filter_map(|offer| offer.cell.get()?.as_ref()).chain([&self.plain])
    }

    /// Returns the approximate memory of the version, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let held = self.representations().map(Representation::memory_bytes).sum::<usize>();
        size_of::<Self>() + held + self.promised() * self.plain.size_bytes as usize
    }

    /// Returns the number of file descriptors counted for the version, including those of encodings in progress.
    pub(crate) fn descriptors(&self) -> usize {
        let promised = if self.plain.size_bytes > MEMORY_BYTES_MAX { self.promised() } else { 0 };
        self.representations().filter(|representation| representation.holds_descriptor()).count() + promised
    }

    /// Returns the number of encodings that were requested for this version and have not been adopted yet. They count
    /// in advance, with their maximum size, because they occupy memory even if no later request adopts them.
    fn promised(&self) -> usize {
        let is_promised = |offer: &&OfferedEncoding| {
            offer.cell.get().is_none() && offer.encoder.as_ref().is_some_and(|(_, encoding)| encoding.is_begun())
        };
        self.offered.iter().filter(is_promised).count()
    }
}

/// Looks up the precompressed files in `codings` for the file `name`. Leaves out those that are older than the file,
/// because they do not belong to this version. Some tools copy the time of the file without the fraction of a second.
pub(crate) fn look_beside(
    root: &Root,
    name: &[u8],
    identity: &FileIdentity,
    codings: &[ContentCoding],
) -> Vec<(ContentCoding, FileIdentity)> {
    let mut beside = Vec::new();
    for &coding in codings {
        if let Ok(Named::File(found)) = root.identify(&name_beside(name, coding))
            && (found.modified_ns >= identity.modified_ns
                || found.modified_ns == identity.modified_ns.div_euclid(SECOND_NS) * SECOND_NS)
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

/// Returns whether the version with `identity` is settled at `unix_ns`. Uses only the change time, because every write
/// sets it and no program can set it to another time.
fn is_settled(identity: &FileIdentity, unix_ns: i128) -> bool {
    let is_coarse = identity.changed_ns % SECOND_NS == 0;
    unix_ns - identity.changed_ns >= if is_coarse { COARSELY_SETTLED_NS } else { SETTLED_NS }
}

/// Returns the date of the file in seconds since 1970, or `None` if its modification time is not a date. Caches would
/// take such a file for one that never changes.
fn date_of(identity: &FileIdentity, unix_ns: i128) -> Option<i64> {
    // A modification time in the future is replaced by the change time, which is the same at every load.
    let is_future = identity.modified_ns > unix_ns;
    let date_ns = if is_future { identity.changed_ns } else { identity.modified_ns };
    entity_tag::is_date(date_ns).then(|| i64::try_from(date_ns.div_euclid(SECOND_NS)).unwrap_or(0))
}

/// Returns the first bytes of `content`, or `None` if they cannot be read.
fn beginning_of(content: &RepresentationContent) -> Option<Cow<'_, [u8]>> {
    match content {
        RepresentationContent::Memory(bytes) => Some(Cow::Borrowed(bytes)),
        RepresentationContent::File(file) => read_beginning(&*file.fd),
    }
}

fn read_content(root: &Root, name: &[u8]) -> Result<(RepresentationContent, FileIdentity), FileOutcome> {
    for attempt in 1..=READS_MAX {
        let (fd, identity) = root.open_file(name)?;
        if identity.size_bytes > MEMORY_BYTES_MAX {
            let sample = match ContentSample::read(&fd, identity.size_bytes) {
                Ok(sample) => sample,
                Err(Errno::NODATA) => continue,
                Err(_) => return Err(FileOutcome::FileFailed),
            };
            // The sample must be of the same version. A log may grow all the time.
            let is_same = FileIdentity::read(&fd).is_ok_and(|after| after == identity);
            let file = OpenFile::new(fd, identity, Some(sample));
            if is_same || attempt == READS_MAX && file.is_intact() {
                return Ok((RepresentationContent::File(Rc::new(file)), identity));
            }
            continue;
        }
        let content = read_all(&fd, identity.size_bytes)?;
        let after = FileIdentity::read(&fd).map_err(|_| FileOutcome::FileFailed)?;
        if after == identity && content.len() as u64 == identity.size_bytes {
            return Ok((RepresentationContent::Memory(content.into()), identity));
        }
    }
    Err(FileOutcome::FileUnsettled)
}

/// Reads up to `size_bytes` bytes. The result is shorter if the file has been truncated.
fn read_all(fd: &OwnedFd, size_bytes: u64) -> Result<Vec<u8>, FileOutcome> {
    let mut content = vec![0; size_bytes as usize];
    let mut read = 0;
    while read < content.len() {
        match pread(fd, &mut content[read..], read as u64) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(Errno::INTR) => {}
            Err(_) => return Err(FileOutcome::FileFailed),
        }
    }
    content.truncate(read);
    Ok(content)
}

/// Returns the entity tag of `content`, or `None` if it has none yet. `digests` are those of a settled file, which are
/// not computed here.
fn make_etag(
    content: &RepresentationContent,
    identity: &FileIdentity,
    digests: Option<&Arc<LazyValue<Digests>>>,
) -> Option<String> {
    match content {
        RepresentationContent::Memory(bytes) => Some(entity_tag::of_content(bytes)),
        RepresentationContent::File(file) => {
            let digests = digests?;
            if entity_tag::is_telling(identity.modified_ns) {
                return Some(entity_tag::of_time(identity, file.sample()?));
            }
            Some(entity_tag::of_digests(identity.size_bytes, digests.get()?))
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
