//! Purges by generation, so that a lookup needs no search and no object escapes a purge.
//!
//! The generation is the number of purges so far. An object records the generation from before its upstream request,
//! and the log records the generation of the last purge of each tag, host and so on. An object is purged if a matching
//! purge is newer, wherever the object was at the time: in memory, on a volume, queued for writing, or on its way from
//! the origin.

use crate::key::realm_of;
use crate::object::ObjectKey;
use aws_lc_rs::digest::{SHA256, digest};
use flatout_os::random::{KeyedHashState, Prehashed};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

/// Maximum number of log entries. At the limit, the store removes all purged objects and clears the log.
pub(crate) const ENTRIES_MAX: usize = 65_536;

/// A selection of objects to purge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purge {
    /// All variants of this key, given as its full bytes. The only kind that needs no full scan.
    Key(Vec<u8>),
    /// Every object whose locator (`host[:port]/path[?query]`) equals these bytes, that is, one URL with any scheme.
    Url(Vec<u8>),
    /// Every object whose locator begins with these bytes. If they contain no slash, they are treated as a host.
    Prefix(Vec<u8>),
    /// Every object of this `host[:port]`, or of the host at any port if no port is given. A URL without a port has
    /// port 80 for http and 443 for https.
    Host(Vec<u8>),
    /// Every object with this tag.
    Tag(Vec<u8>),
    /// Every object.
    All,
}

/// Result of a purge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PurgeCount {
    /// Number of matching objects in memory, on volumes, or both.
    pub matched: u64,
    /// Number of matching objects by realm, sorted by the bytes of the realm.
    pub realms: Vec<(Box<[u8]>, u64)>,
    /// Number of volumes that could not record the purge. Their content is dropped permanently, so that a restart
    /// cannot restore it.
    pub volumes_dropped: u32,
}

/// Purge state of an object since its fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purged {
    /// Not purged.
    No,
    /// Stale since the purge: the object may be validated, or served where stale responses are permitted.
    Soft,
    /// Purged: the object must not be used.
    Hard,
}

/// Returns the hash of a tag, which is stored in objects. Has no random seed, so that it is the same on every volume
/// and after every restart.
pub(crate) fn tag_hash(tag: &[u8]) -> u64 {
    first_eight(digest(&SHA256, tag).as_ref())
}

fn first_eight(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Table of realm names, so that matching objects can refer to them by number.
#[derive(Debug, Default)]
pub(crate) struct Realms(Vec<Box<[u8]>>);

impl Realms {
    /// Returns the number of the realm of `key`, which is added if necessary.
    pub(crate) fn number_of(&mut self, key: &[u8]) -> usize {
        let realm = realm_of(key);
        self.0.iter().position(|known| **known == *realm).unwrap_or_else(|| {
            self.0.push(realm.into());
            self.0.len() - 1
        })
    }

    /// Counts how often each realm occurs in `numbers`.
    pub(crate) fn count(self, numbers: impl Iterator<Item = usize>) -> Vec<(Box<[u8]>, u64)> {
        let mut counts = vec![0_u64; self.0.len()];
        for number in numbers {
            counts[number] += 1;
        }
        let mut counted: Vec<_> = self.0.into_iter().zip(counts).filter(|(_, count)| *count > 0).collect();
        counted.sort();
        counted
    }
}

/// Data of an object that purges compare.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) locator: &'a [u8],
    /// Sorted hashes of the tags.
    pub(crate) tags: &'a [u64],
    pub(crate) generation: u64,
}

impl<'a> Subject<'a> {
    pub(crate) fn new(key: &'a ObjectKey, tags: &'a [u64], generation: u64) -> Self {
        Self { key: key.as_bytes(), locator: key.locator(), tags, generation }
    }

    fn host(&self) -> &'a [u8] {
        self.locator.split(|byte| *byte == b'/').next().unwrap_or(self.locator)
    }

    /// Returns the host with its port, which is added if the locator omits it because it is the scheme's default.
    fn host_and_port(&self) -> Vec<u8> {
        let host = self.host();
        if without_port(host).len() < host.len() {
            return host.to_vec();
        }
        let before = self.key.len().saturating_sub(self.locator.len());
        let port: &[u8] = if self.key[..before].ends_with(b"https://") { b":443" } else { b":80" };
        [host, port].concat()
    }
}

/// Returns the host of `host[:port]`.
fn without_port(host: &[u8]) -> &[u8] {
    match host.iter().rposition(|&byte| byte == b':') {
        // A colon within brackets belongs to an IPv6 address.
        Some(colon) if !host[colon..].contains(&b']') => &host[..colon],
        _ => host,
    }
}

/// Target of a purge, in a form that can be compared and encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PurgeTarget {
    All,
    Key(Box<[u8]>),
    Url(Box<[u8]>),
    Prefix(Box<[u8]>),
    Host(Box<[u8]>),
    Tag(u64),
}

impl PurgeTarget {
    pub(crate) fn of(purge: &Purge) -> Self {
        match purge {
            Purge::All => Self::All,
            Purge::Key(key) => Self::Key(key.as_slice().into()),
            Purge::Url(url) => Self::Url(url.as_slice().into()),
            // `example.com` must not match `example.community`.
            Purge::Prefix(prefix) if !prefix.contains(&b'/') => Self::of(&Purge::Host(prefix.clone())),
            Purge::Prefix(prefix) => Self::Prefix(prefix.as_slice().into()),
            Purge::Host(host) => Self::Host(host.strip_suffix(b":").unwrap_or(host).into()),
            Purge::Tag(tag) => Self::Tag(tag_hash(tag)),
        }
    }

    /// Returns whether the target matches `subject`, regardless of generations.
    pub(crate) fn names(&self, subject: &Subject<'_>) -> bool {
        match self {
            Self::All => true,
            Self::Key(key) => **key == *subject.key,
            Self::Url(url) => **url == *subject.locator,
            Self::Prefix(prefix) => subject.locator.starts_with(prefix),
            Self::Host(host) => **host == *without_port(subject.host()) || **host == *subject.host_and_port(),
            Self::Tag(tag) => subject.tags.binary_search(tag).is_ok(),
        }
    }

    /// Encodes the target for an index.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, bytes) = match self {
            Self::All => (b'a', &[][..]),
            Self::Key(key) => (b'k', &**key),
            Self::Url(url) => (b'u', &**url),
            Self::Prefix(prefix) => (b'p', &**prefix),
            Self::Host(host) => (b'h', &**host),
            Self::Tag(tag) => return [&[b't'][..], &tag.to_be_bytes()].concat(),
        };
        [&[kind], bytes].concat()
    }

    /// Decodes the output of `encode`. Returns `None` if it is invalid.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, bytes) = bytes.split_first()?;
        Some(match kind {
            b'a' if bytes.is_empty() => Self::All,
            b'k' => Self::Key(bytes.into()),
            b'u' => Self::Url(bytes.into()),
            b'p' => Self::Prefix(bytes.into()),
            b'h' => Self::Host(bytes.into()),
            b't' if bytes.len() == 8 => Self::Tag(first_eight(bytes)),
            _ => return None,
        })
    }
}

/// Generations of the last hard and soft purge of a target; 0 if there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LastPurges {
    pub(crate) hard: u64,
    pub(crate) soft: u64,
}

impl LastPurges {
    pub(crate) const fn at(generation: u64, soft: bool) -> Self {
        if soft { Self { hard: 0, soft: generation } } else { Self { hard: generation, soft: 0 } }
    }

    fn join(&mut self, other: Self) {
        self.hard = self.hard.max(other.hard);
        self.soft = self.soft.max(other.soft);
    }

    const fn verdict(self, generation: u64) -> Purged {
        if self.hard > generation {
            Purged::Hard
        } else if self.soft > generation {
            Purged::Soft
        } else {
            Purged::No
        }
    }

    /// Sets the generation of every purge to `generation`.
    const fn restamp(&mut self, generation: u64) {
        if self.hard > 0 {
            self.hard = generation;
        }
        if self.soft > 0 {
            self.soft = generation;
        }
    }

    const fn newest(self) -> u64 {
        if self.hard > self.soft { self.hard } else { self.soft }
    }
}

/// Log of purges, which determines whether an object has been purged.
#[derive(Debug, Default)]
pub(crate) struct PurgeLog {
    generation: AtomicU64,
    /// Purges up to this generation are being removed from the log, or have been.
    forgetting: AtomicU64,
    entries: RwLock<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    all: LastPurges,
    keys: HashMap<Box<[u8]>, LastPurges, KeyedHashState>,
    urls: HashMap<Box<[u8]>, LastPurges, KeyedHashState>,
    hosts: HashMap<Box<[u8]>, LastPurges, KeyedHashState>,
    /// Sorted, so that all prefixes of a locator can be found in a few steps.
    prefixes: BTreeMap<Box<[u8]>, LastPurges>,
    tags: HashMap<u64, LastPurges, Prehashed>,
    /// Purges up to this generation have been removed. Objects from before it must not be inserted any more.
    floor: u64,
}

impl Entries {
    fn len(&self) -> usize {
        let all = usize::from(self.all != LastPurges::default());
        all + self.keys.len() + self.urls.len() + self.hosts.len() + self.prefixes.len() + self.tags.len()
    }

    fn join(&mut self, target: PurgeTarget, last: LastPurges) {
        match target {
            PurgeTarget::All => {
                self.all.join(last);
                // A purge of everything supersedes all earlier purges.
                let hard = self.all.hard;
                self.retain(|entry| entry.newest() > hard);
            }
            PurgeTarget::Key(key) => self.keys.entry(key).or_default().join(last),
            PurgeTarget::Url(url) => self.urls.entry(url).or_default().join(last),
            PurgeTarget::Host(host) => self.hosts.entry(host).or_default().join(last),
            PurgeTarget::Prefix(prefix) => self.prefixes.entry(prefix).or_default().join(last),
            PurgeTarget::Tag(tag) => self.tags.entry(tag).or_default().join(last),
        }
    }

    fn retain(&mut self, keeps: impl Fn(&LastPurges) -> bool) {
        for map in [&mut self.keys, &mut self.urls, &mut self.hosts] {
            map.retain(|_, last| keeps(last));
        }
        self.prefixes.retain(|_, last| keeps(last));
        self.tags.retain(|_, last| keeps(last));
    }

    fn restamp(&mut self, generation: u64) {
        self.all.restamp(generation);
        for map in [&mut self.keys, &mut self.urls, &mut self.hosts] {
            for last in map.values_mut() {
                last.restamp(generation);
            }
        }
        self.prefixes.values_mut().for_each(|last| last.restamp(generation));
        self.tags.values_mut().for_each(|last| last.restamp(generation));
    }

    fn verdict(&self, subject: &Subject<'_>) -> Purged {
        let mut last = self.all;
        last.join(self.keys.get(subject.key).copied().unwrap_or_default());
        last.join(self.urls.get(subject.locator).copied().unwrap_or_default());
        if !self.hosts.is_empty() {
            for host in [without_port(subject.host()), &subject.host_and_port()] {
                last.join(self.hosts.get(host).copied().unwrap_or_default());
            }
        }
        for tag in subject.tags {
            last.join(self.tags.get(tag).copied().unwrap_or_default());
        }
        self.each_prefix(subject.locator, |found| last.join(found));
        last.verdict(subject.generation)
    }

    /// Visits the entries whose prefix matches `locator`.
    ///
    /// The greatest entry that is not above `locator` is either a prefix of `locator`, or all matching entries are
    /// prefixes of what the two have in common. In both cases, the next search key is shorter.
    fn each_prefix(&self, locator: &[u8], mut visit: impl FnMut(LastPurges)) {
        let mut rest = locator;
        loop {
            let upto = (Bound::Unbounded, Bound::Included(rest));
            let Some((prefix, last)) = self.prefixes.range::<[u8], _>(upto).next_back() else { return };
            let common = prefix.iter().zip(rest).take_while(|(left, right)| left == right).count();
            if common < prefix.len() {
                rest = &rest[..common];
                continue;
            }
            visit(*last);
            let Some(shorter) = common.checked_sub(1) else { return };
            rest = &rest[..shorter];
        }
    }
}

impl PurgeLog {
    /// Returns the number of purges so far.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Entries> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Entries> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a purge and returns its generation.
    pub(crate) fn add(&self, target: PurgeTarget, soft: bool) -> u64 {
        let mut entries = self.write();
        let generation = self.generation() + 1;
        entries.join(target, LastPurges::at(generation, soft));
        // Store this after adding the entry: a fetch that reads the new number begins after the purge.
        self.generation.store(generation, Ordering::Release);
        generation
    }

    /// Returns the purge state of `subject`, and the generation for which it is valid.
    pub(crate) fn verdict(&self, subject: &Subject<'_>) -> (Purged, u64) {
        let entries = self.read();
        (entries.verdict(subject), self.generation())
    }

    /// Returns whether the log still has all purges since `generation`, so that an object fetched then can be compared
    /// with them.
    pub(crate) fn remembers(&self, generation: u64) -> bool {
        generation >= self.read().floor
    }

    /// Begins to remove purges up to `generation`. From now on, objects that they match must not be written to a
    /// volume.
    pub(crate) fn begin_to_forget(&self, generation: u64) {
        self.forgetting.fetch_max(generation, Ordering::AcqRel);
    }

    /// Returns whether an object with this generation and purge state may be written to a volume, where it could
    /// outlive the log entries.
    pub(crate) fn may_be_written(&self, generation: u64, purged: Purged) -> bool {
        let outlives = generation < self.forgetting.load(Ordering::Acquire);
        self.remembers(generation) && purged != Purged::Hard && (purged == Purged::No || !outlives)
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.read().len()
    }

    pub(crate) fn floor(&self) -> u64 {
        self.read().floor
    }

    /// Returns all entries, for a volume that lacks them.
    pub(crate) fn entries(&self) -> Vec<(PurgeTarget, LastPurges)> {
        let entries = self.read();
        let mut all = vec![(PurgeTarget::All, entries.all)];
        all.retain(|(_, last)| *last != LastPurges::default());
        all.extend(entries.keys.iter().map(|(key, last)| (PurgeTarget::Key(key.clone()), *last)));
        all.extend(entries.urls.iter().map(|(url, last)| (PurgeTarget::Url(url.clone()), *last)));
        all.extend(entries.hosts.iter().map(|(host, last)| (PurgeTarget::Host(host.clone()), *last)));
        all.extend(entries.prefixes.iter().map(|(prefix, last)| (PurgeTarget::Prefix(prefix.clone()), *last)));
        all.extend(entries.tags.iter().map(|(tag, last)| (PurgeTarget::Tag(*tag), *last)));
        all
    }

    /// Merges entries read from a volume into this log.
    pub(crate) fn restore(&self, restored: Vec<(PurgeTarget, LastPurges)>, generation: u64, floor: u64) {
        let mut entries = self.write();
        for (target, last) in restored {
            entries.join(target, last);
        }
        entries.floor = entries.floor.max(floor);
        self.generation.fetch_max(generation, Ordering::AcqRel);
    }

    /// Merges the log of a volume that was attached later than others or was not present while they were in use. Purges
    /// recorded in either log apply to the content of all volumes, regardless of generations.
    pub(crate) fn adopt(&self, other: &Self) {
        let (restored, generation, floor) = (other.entries(), other.generation(), other.floor());
        let mut entries = self.write();
        let own = self.generation();
        let is_new = own == 0 && entries.len() == 0;
        let differs = !is_new && (own != generation || entries.floor != floor);
        if differs {
            entries.restamp(own.max(generation) + 1);
        }
        for (target, mut last) in restored {
            if differs {
                last.restamp(own.max(generation) + 1);
            }
            entries.join(target, last);
        }
        entries.floor = entries.floor.max(floor);
        self.generation.store(own.max(generation) + u64::from(differs), Ordering::Release);
    }

    /// Removes purges up to `generation` from the log. All objects that they match must have been removed from the
    /// store.
    pub(crate) fn forget(&self, generation: u64) {
        let mut entries = self.write();
        entries.floor = entries.floor.max(generation);
        entries.retain(|last| last.newest() > generation);
        if entries.all.newest() <= generation {
            entries.all = LastPurges::default();
        }
    }
}

#[cfg(test)]
mod tests;
