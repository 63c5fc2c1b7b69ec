//! Purges by generation: nothing is searched for when an answer is looked up, and nothing can be forgotten.
//!
//! The generation is the number of purges so far. An object remembers the one from before its origin was asked; the log
//! remembers for each tag, host and so on the last purge that named it. An object is purged when that is younger than
//! the object, wherever the object was at the time: in memory, on a disk, waiting to be written, or on its way from the
//! origin.

use crate::query::realm_of;
use crate::store::object::Key;
use aws_lc_rs::digest::{SHA256, digest};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

/// Entries of the log. Beyond, the store is swept of all that was purged, and the log starts anew.
pub(crate) const ENTRIES_MAX: usize = 65_536;

/// What is purged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purge {
    /// All variants of this key (the whole key's bytes). The only kind that need not look through all there is.
    Key(Vec<u8>),
    /// Everything whose locator (`host[:port]/path[?query]`) is these bytes: one address under any scheme.
    Url(Vec<u8>),
    /// Everything whose locator begins with these bytes. Without a slash it is a host.
    Prefix(Vec<u8>),
    /// Everything of this `host[:port]`; without a port, of the host at any port. Port 80 is that of http without a port, 443
    /// that of https.
    Host(Vec<u8>),
    /// Everything with this tag.
    Tag(Vec<u8>),
    /// Everything.
    All,
}

/// What a purge met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PurgeCount {
    /// Stored objects that it names, in memory, on disks or both.
    pub matched: u64,
    /// The same by the realm that they belong to, in the order of its bytes.
    pub realms: Vec<(Box<[u8]>, u64)>,
    /// Volumes that could not write the purge down. Their content is dropped for good, so that no restart brings it back.
    pub volumes_dropped: u32,
}

/// What has become of an object since it was fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purged {
    /// Nothing.
    No,
    /// It is stale from the moment of the purge on: it may be validated, and served where stale answers may.
    Soft,
    /// It must not be used.
    Hard,
}

/// A tag as objects remember it. Not keyed: the same on every disk and after every restart.
pub(crate) fn tag_hash(tag: &[u8]) -> u64 {
    first_eight(digest(&SHA256, tag).as_ref())
}

fn first_eight(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Realms by number, so that the objects of a purge need not hold their names.
#[derive(Debug, Default)]
pub(crate) struct Realms(Vec<Box<[u8]>>);

impl Realms {
    /// The number of the realm of `key`.
    pub(crate) fn number_of(&mut self, key: &[u8]) -> usize {
        let realm = realm_of(key);
        self.0.iter().position(|known| **known == *realm).unwrap_or_else(|| {
            self.0.push(realm.into());
            self.0.len() - 1
        })
    }

    /// How often each realm is among `numbers`.
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

/// What of an object purges look at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) locator: &'a [u8],
    /// Hashes, in order.
    pub(crate) tags: &'a [u64],
    pub(crate) generation: u64,
}

impl<'a> Subject<'a> {
    pub(crate) fn new(key: &'a Key, tags: &'a [u64], generation: u64) -> Self {
        Self { key: key.as_bytes(), locator: key.locator(), tags, generation }
    }

    fn host(&self) -> &'a [u8] {
        self.locator.split(|byte| *byte == b'/').next().unwrap_or(self.locator)
    }

    /// The host with its port, which a locator does not have where it is the scheme's own.
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

/// The host of `host[:port]`.
fn without_port(host: &[u8]) -> &[u8] {
    match host.iter().rposition(|&byte| byte == b':') {
        // A colon within brackets is an address's.
        Some(colon) if !host[colon..].contains(&b']') => &host[..colon],
        _ => host,
    }
}

/// What a purge names, as it is compared and written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    All,
    Key(Box<[u8]>),
    Url(Box<[u8]>),
    Prefix(Box<[u8]>),
    Host(Box<[u8]>),
    Tag(u64),
}

impl Target {
    pub(crate) fn of(purge: &Purge) -> Self {
        match purge {
            Purge::All => Self::All,
            Purge::Key(key) => Self::Key(key.as_slice().into()),
            Purge::Url(url) => Self::Url(url.as_slice().into()),
            // `example.com` must not name `example.community`.
            Purge::Prefix(prefix) if !prefix.contains(&b'/') => Self::of(&Purge::Host(prefix.clone())),
            Purge::Prefix(prefix) => Self::Prefix(prefix.as_slice().into()),
            Purge::Host(host) => Self::Host(host.strip_suffix(b":").unwrap_or(host).into()),
            Purge::Tag(tag) => Self::Tag(tag_hash(tag)),
        }
    }

    /// Whether it names `subject`, whenever that was fetched.
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

    /// As bytes, for a disk.
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

    /// What `encode` wrote.
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

/// The last purges of one target: 0 where there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Last {
    pub(crate) hard: u64,
    pub(crate) soft: u64,
}

impl Last {
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

    /// Every purge happens again, at `generation`.
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

/// The log.
#[derive(Debug, Default)]
pub(crate) struct Log {
    generation: AtomicU64,
    /// Purges up to this one are being forgotten.
    forgetting: AtomicU64,
    entries: RwLock<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    all: Last,
    keys: HashMap<Box<[u8]>, Last>,
    urls: HashMap<Box<[u8]>, Last>,
    hosts: HashMap<Box<[u8]>, Last>,
    /// Ordered, so that all prefixes of a locator are found in a few steps.
    prefixes: BTreeMap<Box<[u8]>, Last>,
    tags: HashMap<u64, Last>,
    /// Purges up to this one are forgotten: objects from before it are in the store only if none of them named them.
    floor: u64,
}

impl Entries {
    fn len(&self) -> usize {
        let all = usize::from(self.all != Last::default());
        all + self.keys.len() + self.urls.len() + self.hosts.len() + self.prefixes.len() + self.tags.len()
    }

    fn join(&mut self, target: Target, last: Last) {
        match target {
            Target::All => {
                self.all.join(last);
                // Whatever was purged before is covered by it.
                let hard = self.all.hard;
                self.retain(|entry| entry.newest() > hard);
            }
            Target::Key(key) => self.keys.entry(key).or_default().join(last),
            Target::Url(url) => self.urls.entry(url).or_default().join(last),
            Target::Host(host) => self.hosts.entry(host).or_default().join(last),
            Target::Prefix(prefix) => self.prefixes.entry(prefix).or_default().join(last),
            Target::Tag(tag) => self.tags.entry(tag).or_default().join(last),
        }
    }

    fn retain(&mut self, keeps: impl Fn(&Last) -> bool) {
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
    /// Of the strings up to `locator` in order, the greatest one either is a prefix of it, or all its prefixes are
    /// prefixes of what the two have in common. Either way the next search is for something shorter.
    fn each_prefix(&self, locator: &[u8], mut visit: impl FnMut(Last)) {
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

impl Log {
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

    /// Puts a purge in force. Returns its generation.
    pub(crate) fn add(&self, target: Target, soft: bool) -> u64 {
        let mut entries = self.write();
        let generation = self.generation() + 1;
        entries.join(target, Last::at(generation, soft));
        // After the entry: who begins a fetch with the new number begins it after the purge.
        self.generation.store(generation, Ordering::Release);
        generation
    }

    /// What has become of `subject`, and the generation for which that holds.
    pub(crate) fn verdict(&self, subject: &Subject<'_>) -> (Purged, u64) {
        let entries = self.read();
        (entries.verdict(subject), self.generation())
    }

    /// Whether what was fetched at `generation` can still be compared with all later purges.
    pub(crate) fn remembers(&self, generation: u64) -> bool {
        generation >= self.read().floor
    }

    /// Begins to forget purges up to `generation`: what they named is not to be written to a disk from now on.
    pub(crate) fn begin_to_forget(&self, generation: u64) {
        self.forgetting.fetch_max(generation, Ordering::AcqRel);
    }

    /// Whether an object with this verdict may be written to a disk, where it could outlive the log.
    pub(crate) fn may_be_written(&self, generation: u64, purged: Purged) -> bool {
        let outlives = generation < self.forgetting.load(Ordering::Acquire);
        self.remembers(generation) && purged != Purged::Hard && (purged == Purged::No || !outlives)
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.read().len()
    }

    pub(crate) fn floor(&self) -> u64 {
        self.read().floor
    }

    /// All of it, for a disk that has not seen it.
    pub(crate) fn entries(&self) -> Vec<(Target, Last)> {
        let entries = self.read();
        let mut all = vec![(Target::All, entries.all)];
        all.retain(|(_, last)| *last != Last::default());
        all.extend(entries.keys.iter().map(|(key, last)| (Target::Key(key.clone()), *last)));
        all.extend(entries.urls.iter().map(|(url, last)| (Target::Url(url.clone()), *last)));
        all.extend(entries.hosts.iter().map(|(host, last)| (Target::Host(host.clone()), *last)));
        all.extend(entries.prefixes.iter().map(|(prefix, last)| (Target::Prefix(prefix.clone()), *last)));
        all.extend(entries.tags.iter().map(|(tag, last)| (Target::Tag(*tag), *last)));
        all
    }

    /// Joins what a disk remembers with what is known.
    pub(crate) fn restore(&self, restored: Vec<(Target, Last)>, generation: u64, floor: u64) {
        let mut entries = self.write();
        for (target, last) in restored {
            entries.join(target, last);
        }
        entries.floor = entries.floor.max(floor);
        self.generation.fetch_max(generation, Ordering::AcqRel);
    }

    /// Joins the log of a volume that comes in later than others, or was away while they were not. What was purged here
    /// was purged for what is there too, whatever the numbers say.
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

    /// Forgets purges up to `generation`. The store must have been swept of all that they named.
    pub(crate) fn forget(&self, generation: u64) {
        let mut entries = self.write();
        entries.floor = entries.floor.max(generation);
        entries.retain(|last| last.newest() > generation);
        if entries.all.newest() <= generation {
            entries.all = Last::default();
        }
    }
}

#[cfg(test)]
mod tests;
