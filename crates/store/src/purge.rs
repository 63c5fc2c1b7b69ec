//! Purges by generation: a lookup needs no search, and no object escapes a purge.
//!
//! The generation is the number of purges so far. An object records the one from before its upstream request; the log
//! records the last purge of each tag, host and so on. An object is purged if a matching purge is younger, wherever
//! the object was at the time: in memory, on a disk, queued for writing, or on its way from the origin.

use crate::key::realm_of;
use crate::object::ObjectKey;
use aws_lc_rs::digest::{SHA256, digest};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

/// Maximum log entries. At the limit, the store removes all purged objects, and the log is cleared.
pub(crate) const ENTRIES_MAX: usize = 65_536;

/// Target of a purge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purge {
    /// All variants of this key (its full bytes). The only kind that needs no full scan.
    Key(Vec<u8>),
    /// Every object whose locator (`host[:port]/path[?query]`) equals these bytes: one URL under any scheme.
    Url(Vec<u8>),
    /// Every object whose locator begins with these bytes. Without a slash it is a host.
    Prefix(Vec<u8>),
    /// Every object of this `host[:port]`; without a port, of the host at any port. Port 80 equals http without a
    /// port, 443 equals https without a port.
    Host(Vec<u8>),
    /// Every object with this tag.
    Tag(Vec<u8>),
    /// Every object.
    All,
}

/// Result of a purge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PurgeCount {
    /// Number of matching stored objects, in memory, on disks or both.
    pub matched: u64,
    /// The same by realm, sorted by bytes.
    pub realms: Vec<(Box<[u8]>, u64)>,
    /// Volumes that could not record the purge. Their content is dropped permanently, so that no restart restores it.
    pub volumes_dropped: u32,
}

/// Purge state of an object since its fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purged {
    /// Not purged.
    No,
    /// Stale from the purge on: it may be validated, and served wherever stale responses may.
    Soft,
    /// It must not be used.
    Hard,
}

/// Hash of a tag, stored in objects. Not keyed: the same on every disk and after every restart.
pub(crate) fn tag_hash(tag: &[u8]) -> u64 {
    first_eight(digest(&SHA256, tag).as_ref())
}

fn first_eight(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Realm names by number, so that matching objects need not hold them.
#[derive(Debug, Default)]
pub(crate) struct Realms(Vec<Box<[u8]>>);

impl Realms {
    /// Number of the realm of `key`.
    pub(crate) fn number_of(&mut self, key: &[u8]) -> usize {
        let realm = realm_of(key);
        self.0.iter().position(|known| **known == *realm).unwrap_or_else(|| {
            self.0.push(realm.into());
            self.0.len() - 1
        })
    }

    /// Count of each realm among `numbers`.
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
    /// Sorted hashes.
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

    /// The host with its port, which a locator omits if it is the scheme's default.
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

/// The host part of `host[:port]`.
fn without_port(host: &[u8]) -> &[u8] {
    match host.iter().rposition(|&byte| byte == b':') {
        // A colon within brackets belongs to an IPv6 address.
        Some(colon) if !host[colon..].contains(&b']') => &host[..colon],
        _ => host,
    }
}

/// Target of a purge in comparable, encodable form.
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

    /// Returns whether it matches `subject`, regardless of generations.
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

    /// Encodes it for a disk.
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

    /// Decodes the output of `encode`.
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

/// Generations of the last purges of one target; 0: none.
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

    /// Moves every purge to `generation`.
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

/// The purge log.
#[derive(Debug, Default)]
pub(crate) struct PurgeLog {
    generation: AtomicU64,
    /// Purges up to this generation are being removed from the log.
    forgetting: AtomicU64,
    entries: RwLock<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    all: LastPurges,
    keys: HashMap<Box<[u8]>, LastPurges>,
    urls: HashMap<Box<[u8]>, LastPurges>,
    hosts: HashMap<Box<[u8]>, LastPurges>,
    /// Ordered, so that all prefixes of a locator are found in a few steps.
    prefixes: BTreeMap<Box<[u8]>, LastPurges>,
    tags: HashMap<u64, LastPurges>,
    /// Purges up to this generation have been removed: older objects are in the store only if none of them matched.
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
                // This covers all earlier purges.
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

    /// Visits the entries of all prefixes of `locator`.
    ///
    /// The greatest string up to `locator` either is a prefix of it, or all prefixes of `locator` are prefixes of what
    /// the two have in common. Either way the next search key is shorter.
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
    /// The number of purges so far.
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
        // After the entry: a fetch that reads the new number begins after the purge.
        self.generation.store(generation, Ordering::Release);
        generation
    }

    /// Purge state of `subject`, and the generation for which it holds.
    pub(crate) fn verdict(&self, subject: &Subject<'_>) -> (Purged, u64) {
        let entries = self.read();
        (entries.verdict(subject), self.generation())
    }

    /// Returns whether an object fetched at `generation` can still be compared with all later purges.
    pub(crate) fn remembers(&self, generation: u64) -> bool {
        generation >= self.read().floor
    }

    /// Begins to remove purges up to `generation`: objects they match must not be written to a disk from now on.
    pub(crate) fn begin_to_forget(&self, generation: u64) {
        self.forgetting.fetch_max(generation, Ordering::AcqRel);
    }

    /// Returns whether an object with this purge state may be written to a disk, where it could outlive the log.
    pub(crate) fn may_be_written(&self, generation: u64, purged: Purged) -> bool {
        let outlives = generation < self.forgetting.load(Ordering::Acquire);
        self.remembers(generation) && purged != Purged::Hard && (purged == Purged::No || !outlives)
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.read().len()
    }

    pub(crate) fn floor(&self) -> u64 {
        self.read().floor
    }

    /// All entries, for a disk that lacks them.
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

    /// Merges the log of a disk with this one.
    pub(crate) fn restore(&self, restored: Vec<(PurgeTarget, LastPurges)>, generation: u64, floor: u64) {
        let mut entries = self.write();
        for (target, last) in restored {
            entries.join(target, last);
        }
        entries.floor = entries.floor.max(floor);
        self.generation.fetch_max(generation, Ordering::AcqRel);
    }

    /// Merges the log of a volume attached later than others, or absent while they were in use. Purges recorded here
    /// apply to its content too, regardless of generations.
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

    /// Removes purges up to `generation`. All objects they match must have been removed.
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
