//! One version of a file: its identity, and its representations, plain and encoded.

use crate::encode::{ENCODE_BYTES_MAX, ENCODE_BYTES_MIN, REVISION};
use crate::media::{content_type, is_compressible};
use crate::outcome::Outcome;
use crate::policy::Policy;
use crate::representation::{Common, Content, Representation};
use crate::rules::Rules;
use crate::services::{Facts, Services};
use flatout_http::encoding::ContentCoding;
use flatout_net::file::{FileIdentity, OpenFile};
use flatout_net::root::{Named, Root};
use rustix::io::pread;
use std::cell::OnceCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

/// Files up to this size are kept in memory; larger ones stay in the page cache and go out by sendfile. 64 KiB holds
/// nearly all of a site's texts.
pub(crate) const MEMORY_BYTES_MAX: u64 = 64 * 1024;

/// A file that changes while it is read is read again so many times.
const READS_MAX: u32 = 4;

/// Before Linux 6.13 two writes within one tick (up to 10 ms) leave the same times. A version read sooner than this
/// after its last change may be followed by one that looks the same.
const SETTLED_NS: i128 = 50_000_000;

/// Where and how a version is loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loading<'a> {
    pub(crate) root: &'a Root,
    pub(crate) rules: &'a Rules,
    pub(crate) policy: &'a Rc<Policy>,
    pub(crate) services: &'a Services,
    /// The wall clock, finely.
    pub(crate) unix_ns: i128,
}

/// What a look at a file sees: enough to tell whether a version still holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Which of a folder's index files it is; 0 for other files.
    pub(crate) index_at: usize,
    pub(crate) identity: FileIdentity,
    /// Encodings that lie beside the file, and are not older.
    pub(crate) beside: Vec<(ContentCoding, FileIdentity)>,
}

/// One version.
#[derive(Debug)]
pub(crate) struct Version {
    /// What was seen when it was loaded; `None` for content that was made here.
    pub(crate) seen: Option<Seen>,
    /// Whether a later write is sure to change the identity.
    pub(crate) settled: bool,
    pub(crate) common: Common,
    pub(crate) plain: Representation,
    /// Codings that there are or may be, the server's favourite first.
    offered: Vec<ContentCoding>,
    /// In the order of `ContentCoding::ALL` without the first; `None` inside: not worth it.
    encoded: [OnceCell<Option<Representation>>; 3],
    facts: Arc<Facts>,
}

/// How an encoding stands.
#[derive(Debug)]
pub(crate) enum Standing<'a> {
    /// At hand.
    Ready(&'a Representation),
    /// It may be made.
    Possible,
    /// There is none to be had.
    Useless,
}

impl Version {
    /// Loads the file `name`, of which `seen` is known. What is returned is one version: either all bytes were read
    /// between two looks that saw the same identity, or the descriptor of that identity is held.
    pub(crate) fn load(loading: &Loading<'_>, name: &[u8], seen: &Seen) -> Result<Self, Outcome> {
        let (content, identity) = read_content(loading.root, name)?;
        let mut seen = seen.clone();
        seen.identity = identity;
        let rules = loading.rules;
        let mut settled = is_settled(&identity, loading.unix_ns);
        let unix_ns = (!settled).then_some(loading.unix_ns);
        let etag = make_etag(&identity, unix_ns);
        let content_type = content_type(name);
        let modified_s = i64::try_from(identity.modified_ns.div_euclid(1_000_000_000)).unwrap_or(0);
        // A time in the future gives way to the change time, which stays the same from load to load.
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
        // What vanishes or changes between the look and here is left out; the next look sees it.
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

    /// A version of content that was made here, at `unix_s`. Its tag is that of its bytes.
    pub(crate) fn of_content(
        content: Vec<u8>,
        content_type: &str,
        rules: &Rules,
        policy: &Rc<Policy>,
        unix_s: i64,
    ) -> Self {
        let (cache_control, expires_s) = rules.freshness(content_type);
        let (offers, size_bytes) = (!rules.compress.is_empty(), content.len() as u64);
        let common = Common {
            content_type: content_type.to_owned(),
            last_modified_s: unix_s,
            last_modified: Common::format_date(unix_s),
            cache_control,
            expires_s,
            vary: Some(if offers { "Accept, Accept-Encoding" } else { "Accept" }),
            policy: Rc::clone(policy),
        };
        let etag = format!("{size_bytes:x}-{:016x}", hash(&[&content]));
        let facts = Arc::<Facts>::default();
        let digests = Arc::clone(&facts.digests);
        let content = Content::Memory(content.into());
        let plain = Representation::new(&common, ContentCoding::Identity, etag, size_bytes, content, digests, None);
        let offered = if offers && (ENCODE_BYTES_MIN..=ENCODE_BYTES_MAX).contains(&size_bytes) {
            rules.compress.clone()
        } else {
            Vec::new()
        };
        Self { seen: None, settled: true, common, plain, offered, encoded: Default::default(), facts }
    }

    /// Codings that there are or may be, the server's favourite first.
    pub(crate) fn offered(&self) -> &[ContentCoding] {
        &self.offered
    }

    /// What this version knows with others of the same content.
    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// How the encoding in `coding` stands. One that was made since the last time is taken over here: `grown` is then
    /// set, as the version holds more than before.
    pub(crate) fn standing(&self, coding: ContentCoding, grown: &mut bool) -> Standing<'_> {
        let Some(cell) = self.encoded.get((coding as usize).wrapping_sub(1)) else {
            return Standing::Ready(&self.plain);
        };
        if cell.get().is_none() {
            let made = match self.facts.encoded(coding).and_then(|slot| slot.get()) {
                None => return Standing::Possible,
                Some(None) => None,
                Some(Some(made)) => {
                    let etag = format!("{}-{}{REVISION}", self.plain.etag, coding.name());
                    let Some(adopted) = Representation::adopt(&self.common, coding, etag, made) else {
                        return Standing::Useless;
                    };
                    Some(adopted)
                }
            };
            *grown = true;
            let _ = cell.set(made);
        }
        match cell.get() {
            Some(Some(representation)) => Standing::Ready(representation),
            _ => Standing::Useless,
        }
    }

    fn representations(&self) -> impl Iterator<Item = &Representation> {
        self.encoded.iter().filter_map(|cell| cell.get()?.as_ref()).chain([&self.plain])
    }

    /// Bytes of memory that the version holds, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        let held = self.representations().map(Representation::memory_bytes).sum::<usize>();
        size_of::<Self>() + held + self.promised() * self.plain.size_bytes as usize
    }

    /// Descriptors that the version holds.
    pub(crate) fn descriptors(&self) -> usize {
        let promised = if self.plain.size_bytes > MEMORY_BYTES_MAX { self.promised() } else { 0 };
        self.representations().filter(|representation| representation.holds_descriptor()).count() + promised
    }

    /// Encodings that were begun for this version and are not taken over yet. They are counted before they are there,
    /// at the most they can be: perhaps nobody asks again, and they are held all the same.
    fn promised(&self) -> usize {
        let codings = ContentCoding::ALL.iter().filter_map(|&coding| {
            let cell = self.encoded.get((coding as usize).checked_sub(1)?)?;
            (cell.get().is_none() && self.facts.encoded(coding)?.is_begun()).then_some(())
        });
        codings.count()
    }
}

/// Looks for the encodings in `codings` beside the file `name`. An older one is not of this version.
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

/// The change time alone: every write sets it, and nobody can set it to the future.
fn is_settled(identity: &FileIdentity, unix_ns: i128) -> bool {
    unix_ns - identity.changed_ns >= SETTLED_NS
}

fn read_content(root: &Root, name: &[u8]) -> Result<(Content, FileIdentity), Outcome> {
    for _ in 0..READS_MAX {
        let (fd, identity) = root.open_file(name)?;
        if identity.size_bytes > MEMORY_BYTES_MAX {
            return Ok((Content::File(Rc::new(OpenFile::new(fd, identity))), identity));
        }
        let content = read_all(&fd, identity.size_bytes)?;
        let after = FileIdentity::read(&fd).map_err(|_| Outcome::FileFailed)?;
        if after == identity && content.len() as u64 == identity.size_bytes {
            return Ok((Content::Memory(content.into()), identity));
        }
    }
    Err(Outcome::FileUnsettled)
}

/// Reads up to `size_bytes` and looks for more: a file that has grown is another version.
fn read_all(fd: &OwnedFd, size_bytes: u64) -> Result<Vec<u8>, Outcome> {
    let mut content = vec![0; size_bytes as usize];
    let mut read = 0;
    while read < content.len() {
        match pread(fd, &mut content[read..], read as u64) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Err(Outcome::FileFailed),
        }
    }
    content.truncate(read);
    Ok(content)
}

/// A strong entity tag: the size, and a hash of all that tells one version from another.
///
/// A version that is not settled may share its identity with the next one, so the time of its loading tells them
/// apart: a tag never stands for two contents (RFC 9110 §8.8.1).
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

/// FNV-1a: the inputs are the kernel's or ours, not a visitor's, and two versions of one file must differ, not resist
/// an attacker.
fn hash(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
pub(crate) mod tests;
