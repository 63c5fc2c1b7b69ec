//! Tests of the store in memory, as its users see it.

use crate::{
    INLINE_BYTES_MAX, Inserted, Marker, Meta, NotKept, Object, ObjectKey, Purge, Purged, Store, StoreSettings,
    StoredBody,
};
use flatout_handler::budget::BudgetUser;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Metadata of an invented cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) tags: Vec<Vec<u8>>,
    pub(crate) useful_until_s: u64,
    pub(crate) text: Vec<u8>,
}

impl Meta for Note {
    fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.useful_until_s.to_be_bytes());
        into.push(self.tags.len() as u8);
        for tag in &self.tags {
            into.push(tag.len() as u8);
            into.extend_from_slice(tag);
        }
        into.extend_from_slice(&self.text);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (until, mut rest) = bytes.split_at_checked(8)?;
        let (count, after) = rest.split_first()?;
        rest = after;
        let mut tags = Vec::new();
        for _ in 0..*count {
            let (len, after) = rest.split_first()?;
            let (tag, after) = after.split_at_checked(usize::from(*len))?;
            tags.push(tag.to_vec());
            rest = after;
        }
        Some(Self { tags, useful_until_s: u64::from_be_bytes(until.try_into().ok()?), text: rest.to_vec() })
    }

    fn each_tag(&self, visit: &mut dyn FnMut(&[u8])) {
        self.tags.iter().for_each(|tag| visit(tag));
    }

    fn useful_until_s(&self) -> u64 {
        self.useful_until_s
    }

    fn heap_bytes(&self) -> usize {
        self.text.len() + self.tags.iter().map(Vec::len).sum::<usize>()
    }
}

pub(crate) type TestStore = Store<Note>;

pub(crate) fn settings(memory_bytes_max: u64) -> StoreSettings {
    StoreSettings { memory_bytes_max, memory_objects_max: 1_000_000, descriptors_max: 100, disks: Vec::new() }
}

pub(crate) fn open(settings: StoreSettings) -> Arc<TestStore> {
    let (store, warnings) = Store::open(settings, Arc::default());
    assert_eq!(warnings, Vec::<String>::new());
    store
}

/// The key of `http://LOCATOR`.
pub(crate) fn key(store: &TestStore, locator: &str) -> ObjectKey {
    let bytes = format!("http://{locator}").into_bytes();
    ObjectKey::new(&bytes, 7..bytes.len(), store.hash(&bytes))
}

pub(crate) fn memory_body(content: &[u8]) -> StoredBody {
    StoredBody::Memory(content.into())
}

/// A marker that does not expire.
pub(crate) fn tagged(tags: &[&str]) -> Note {
    let tags = tags.iter().map(|tag| tag.as_bytes().to_vec()).collect();
    Note { tags, useful_until_s: u64::MAX, text: Vec::new() }
}

pub(crate) fn object(store: &TestStore, locator: &str, variant: &str, note: Note, body: StoredBody) -> Object<Note> {
    let lines = b"Content-Type: text/plain\r\n"[..].into();
    Object::new(key(store, locator), variant.as_bytes(), note, lines, body, store.generation())
}

/// Inserts a small response.
pub(crate) fn put(store: &TestStore, locator: &str, variant: &str, content: &[u8]) -> Arc<Object<Note>> {
    let (object, inserted) = store.insert(object(store, locator, variant, tagged(&[]), memory_body(content)), 8);
    assert_eq!(inserted, Inserted::Stored);
    object
}

/// The result of a lookup in memory.
pub(crate) fn get(store: &TestStore, locator: &str, variant: &str) -> Option<Arc<Object<Note>>> {
    let key = key(store, locator);
    let bucket = store.find(key.hash(), key.as_bytes())?;
    bucket.objects().iter().find(|object| object.variant() == variant.as_bytes()).cloned()
}

pub(crate) fn content(body: &StoredBody) -> Vec<u8> {
    match body {
        StoredBody::Empty => Vec::new(),
        StoredBody::Memory(bytes) => bytes.to_vec(),
        StoredBody::File { fd, bytes, .. } => {
            let mut content = vec![0; *bytes as usize];
            let mut offset = 0;
            while offset < content.len() {
                let count = rustix::io::pread(fd, &mut content[offset..], offset as u64).unwrap();
                assert_ne!(count, 0, "{offset} of {bytes} bytes");
                offset += count;
            }
            content
        }
    }
}

#[test]
fn all_threads_may_use_it() {
    fn is_shared<T: Send + Sync + 'static>() {}
    is_shared::<TestStore>();
    is_shared::<Object<Note>>();
    is_shared::<crate::NewBody>();
    is_shared::<crate::DiskLookup<Note>>();
}

#[test]
fn variants_of_a_key_stand_together_and_replace_their_like() {
    let store = open(settings(1 << 20));
    let first = put(&store, "a/x", "gzip", b"1");
    let second = put(&store, "a/x", "br", b"2");
    let bucket = store.find(first.key().hash(), b"http://a/x").unwrap();
    assert_eq!(bucket.objects().len(), 2);
    assert!(Arc::ptr_eq(&bucket.objects()[0], &second) && !bucket.is_partial());
    assert!(first.is_current() && bucket.is_current());

    let third = put(&store, "a/x", "gzip", b"3");
    assert!(!first.is_current() && !bucket.is_current() && third.is_current() && second.is_current());
    assert_eq!(content(get(&store, "a/x", "gzip").unwrap().body()), b"3");
    assert_eq!(store.stats().memory_objects, 2);
    assert_eq!(store.stats().memory_bytes, second.cost() + third.cost());

    assert!(!store.remove_object(&first));
    assert!(store.remove_object(&second));
    assert_eq!(store.remove(third.key().hash(), b"http://a/x"), 1);
    assert_eq!(store.remove(third.key().hash(), b"http://a/x"), 0);
    assert!(get(&store, "a/x", "gzip").is_none() && !third.is_current());
    let stats = store.stats();
    assert_eq!((stats.memory_objects, stats.memory_bytes, stats.inserted), (0, 0, 3));
}

#[test]
fn a_key_has_no_more_variants_than_it_may() {
    let store = open(settings(1 << 20));
    for number in 0..20 {
        let made = object(&store, "a/x", &number.to_string(), tagged(&[]), StoredBody::Empty);
        assert_eq!(store.insert(made, 3).1, Inserted::Stored);
    }
    let bucket = store.find(key(&store, "a/x").hash(), b"http://a/x").unwrap();
    let variants: Vec<_> = bucket.objects().iter().map(|object| object.variant().to_vec()).collect();
    assert_eq!(variants, [b"19", b"18", b"17"]);
    assert_eq!(store.stats().memory_objects, 3);
}

#[test]
fn what_is_larger_than_memory_is_not_kept_and_removes_what_it_replaces() {
    let store = open(settings(64 * 1024));
    let old = put(&store, "a/x", "", b"old");
    let large = object(&store, "a/x", "", tagged(&[]), memory_body(&vec![0; 40_000]));
    assert_eq!(store.insert(large, 8).1, Inserted::TooLarge);
    assert!(!old.is_current() && get(&store, "a/x", "").is_none());
    assert_eq!(store.stats().memory_bytes, 0);
}

#[test]
fn bounds_hold_exactly_and_follow_a_reload() {
    let store = open(settings(100_000));
    let all: Vec<_> = (0..500).map(|number| put(&store, &format!("a/{number}"), "", &[7; 1_000])).collect();
    let sum = || all.iter().filter(|object| object.is_current()).map(|object| object.cost()).sum::<u64>();
    let stats = store.stats();
    assert!(stats.memory_bytes <= 100_000 && stats.memory_bytes > 90_000, "{stats:?}");
    assert_eq!(stats.memory_bytes, sum());
    assert_eq!(stats.evicted, 500 - stats.memory_objects);
    store.resize(100_000, 10);
    assert_eq!((store.stats().memory_objects, store.stats().memory_bytes), (10, sum()));
    store.resize(20_000, 1_000);
    assert!(store.stats().memory_bytes <= 20_000);
    assert_eq!(store.stats().memory_bytes, sum());
}

#[test]
fn large_content_is_written_while_others_read() {
    let store = open(settings(1 << 20));
    assert_eq!(store.create_body(Some(1 << 20)).unwrap_err(), NotKept::NoRoom);
    let mut body = store.create_body(Some(200_000)).unwrap();
    let mut expected = Vec::new();
    for step in 0..20_u8 {
        body.write(&[step; 10_000]).unwrap();
        expected.extend_from_slice(&[step; 10_000]);
        let so_far = StoredBody::File { fd: Arc::clone(body.fd()), bytes: body.len(), place: None };
        assert!(content(&so_far) == expected);
    }
    assert_eq!(store.budget().held(BudgetUser::Fills), 200_000);
    let body = body.finish().unwrap();
    assert_eq!(store.budget().held(BudgetUser::Fills), 0);
    let (stored, _) = store.insert(object(&store, "a/x", "", tagged(&[]), body), 8);
    assert!(stored.cost() > 200_000);
    assert_eq!((store.stats().memory_bytes, store.stats().descriptors), (stored.cost(), 1));
    assert!(content(get(&store, "a/x", "").unwrap().body()) == expected);
}

#[test]
fn content_of_unknown_length_leaves_memory_for_other_content() {
    let store = open(settings(1 << 20));
    let mut unknown = store.create_body(None).unwrap();
    let chunk = vec![1; INLINE_BYTES_MAX];
    while unknown.write(&chunk).is_ok() {}
    assert_eq!(unknown.len(), 1 << 18);
    let mut other = store.create_body(Some(1 << 18)).unwrap();
    (0..4).for_each(|_| other.write(&chunk).unwrap());
    assert_eq!(other.write(&chunk), Err(NotKept::NoRoom));
}

#[test]
fn retained_ranges_of_freed_content_stay_readable() {
    const STEP: u64 = INLINE_BYTES_MAX as u64;
    let store = open(settings(64 << 20));
    let mut body = store.create_body(Some(16 * STEP)).unwrap();
    (1..=16_u8).for_each(|value| body.write(&vec![value; INLINE_BYTES_MAX]).unwrap());
    body.retain(3 * STEP + 10..5 * STEP + 10);
    assert!(body.forget_before(4 * STEP));
    assert_eq!(store.budget().held(BudgetUser::Fills), 13 * STEP);
    // The range ends within a step, which stays readable as a whole.
    assert!(!body.forget_before(6 * STEP) && !body.forget_before(6 * STEP));
    assert!(body.forget_before(16 * STEP));
    assert_eq!(store.budget().held(BudgetUser::Fills), 3 * STEP);
    for step in 0..16_u8 {
        let mut byte = [0];
        assert_eq!(rustix::io::pread(body.fd(), &mut byte, u64::from(step) * STEP), Ok(1));
        assert_eq!(byte[0], if (3..6).contains(&step) { step + 1 } else { 0 }, "{step}");
    }
    // They count for as long as a reader has the file open.
    let reader = Arc::clone(body.fd());
    store.release(body);
    store.make_room();
    assert_eq!(store.budget().held(BudgetUser::Released), 3 * STEP);
    assert_eq!(store.budget().held_in_all(), 3 * STEP);
    drop(reader);
    store.make_room();
    assert_eq!(store.budget().held_in_all(), 0);
}

#[test]
fn content_without_end_passes_through_a_window() {
    let store = open(settings(1 << 20));
    let mut body = store.create_body(None).unwrap();
    let chunk = vec![1; INLINE_BYTES_MAX];
    let mut refused = 0;
    for _ in 0..1_000 {
        while let Err(error) = body.write(&chunk) {
            assert_eq!(error, NotKept::NoRoom);
            refused += 1;
            body.forget_before(body.len());
        }
        assert!(store.budget().held(BudgetUser::Fills) <= 1 << 19);
    }
    assert!(refused > 0 && body.len() == 1_000 * chunk.len() as u64);
    assert!(body.finish().is_none());
    assert_eq!(store.budget().held(BudgetUser::Fills), 0);
    // Descriptors are bounded too: anyone who was not hit gives its one up.
    let store = open(StoreSettings { descriptors_max: 3, ..settings(1 << 20) });
    for number in 0..10 {
        let mut body = store.create_body(None).unwrap();
        body.write(b"content").unwrap();
        let made = object(&store, &format!("a/{number}"), "", tagged(&[]), body.finish().unwrap());
        store.insert(made, 8).0.touch();
    }
    assert_eq!((store.stats().descriptors, store.stats().memory_objects), (3, 3));
}

#[test]
fn markers_end() {
    let store = open(settings(1 << 20));
    let marker = Marker { reason: 3, until_ms: 1_000 };
    store.mark(5, marker);
    assert_eq!((store.marker(5, 999), store.marker(5, 1_000), store.marker(6, 0)), (Some(marker), None, None));
    store.unmark(5);
    assert_eq!(store.marker(5, 0), None);
}

#[test]
fn a_fetch_that_began_before_a_purge_is_not_stored_after_it() {
    let store = open(settings(1 << 20));
    let late = object(&store, "a/x", "", tagged(&["t"]), StoredBody::Empty);
    let late_and_soft = object(&store, "a/y", "", tagged(&["s"]), StoredBody::Empty);
    assert_eq!(store.purge(&Purge::Tag(b"t".to_vec()), false, false).matched, 0);
    assert_eq!(store.purge(&Purge::Tag(b"s".to_vec()), true, false).matched, 0);
    let (late, inserted) = store.insert(late, 8);
    assert_eq!((inserted, store.check(&late)), (Inserted::Purged, Purged::Hard));
    let (soft, inserted) = store.insert(late_and_soft, 8);
    assert_eq!((inserted, store.check(&soft)), (Inserted::Stored, Purged::Soft));
}

#[test]
fn the_log_is_forgotten_and_nothing_purged_comes_back() {
    let store = open(settings(1 << 20));
    let late = object(&store, "a/late", "", tagged(&["t0"]), StoredBody::Empty);
    let soft = store.insert(object(&store, "a/soft", "", tagged(&["s"]), StoredBody::Empty), 8).0;
    let kept = put(&store, "a/kept", "", b"");
    store.purge(&Purge::Tag(b"s".to_vec()), true, false);
    for number in 0..=super::purge::ENTRIES_MAX {
        store.purge(&Purge::Tag(format!("t{number}").into_bytes()), false, false);
    }
    assert!(store.stats().purges_remembered < 10);
    assert_eq!((store.check(&soft), store.check(&kept)), (Purged::Soft, Purged::No));
    assert!(soft.is_current() && kept.is_current());
    // Nobody knows any more whether it was named, so it is not stored.
    assert_eq!(store.insert(late, 8).1, Inserted::Purged);
    put(&store, "a/new", "", b"");
}

/// All operations concurrently, over few keys and little memory: no lookup returns another key's response, and the
/// counters add up.
#[test]
fn threads_share_the_store() {
    const KEYS: u64 = 64;
    const OPERATIONS: usize = 50_000;
    let store = open(StoreSettings { memory_objects_max: 40, ..settings(60_000) });
    std::thread::scope(|scope| {
        for seed in 1..=4_u64 {
            let store = &store;
            scope.spawn(move || {
                let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                for _ in 0..OPERATIONS {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    let (number, variant) = (state % KEYS, ["", "gzip"][(state >> 20) as usize % 2]);
                    let locator = format!("h{}/{number}", number % 4);
                    match (state >> 32) % 16 {
                        0..5 => {
                            let body = memory_body(format!("{locator} {variant}").as_bytes());
                            let inserted = store.insert(object(store, &locator, variant, tagged(&[]), body), 8).1;
                            assert_ne!(inserted, Inserted::TooLarge);
                        }
                        5 => drop(store.remove(key(store, &locator).hash(), key(store, &locator).as_bytes())),
                        6 => drop(store.purge(&Purge::Host(format!("h{}", number % 4).into_bytes()), false, false)),
                        7 => store.resize(40_000 + state % 40_000, 20 + state % 40),
                        _ => {
                            if let Some(object) = get(store, &locator, variant) {
                                assert_eq!(content(object.body()), format!("{locator} {variant}").as_bytes());
                                object.touch();
                            }
                        }
                    }
                }
            });
        }
    });
    let listed = store.list(b"", usize::MAX);
    let stats = store.stats();
    assert_eq!(stats.memory_objects, listed.len() as u64);
    assert_eq!(stats.memory_bytes, listed.iter().map(|object| object.cost()).sum::<u64>());
    assert!(listed.iter().all(|object| object.is_current()));
    store.resize(0, 0);
    assert_eq!((store.stats().memory_objects, store.stats().memory_bytes), (0, 0));
}

/// A step in the life of a store.
#[derive(Clone, Debug)]
enum Step {
    Put { host: u8, path: u8, variant: u8, tags: Vec<u8>, late: bool },
    Purge { purge: Purge, soft: bool },
}

pub(crate) fn locator_of(host: u8, path: u8) -> String {
    // Paths that are prefixes of one another, as far as a slash or further.
    let paths = ["/", "/a", "/a/", "/a/b", "/ab", "/b?q", "/a/b/c"];
    format!("h{host}{}", paths[usize::from(path) % paths.len()])
}

pub(crate) fn purges() -> impl Strategy<Value = Purge> {
    prop_oneof![
        (0..3_u8, 0..7_u8).prop_map(|(host, path)| Purge::Key(format!("http://{}", locator_of(host, path)).into())),
        (0..3_u8, 0..7_u8).prop_map(|(host, path)| Purge::Url(locator_of(host, path).into())),
        (0..3_u8, 0..7_u8).prop_map(|(host, path)| Purge::Prefix(locator_of(host, path).into())),
        (0..3_u8).prop_map(|host| Purge::Prefix(format!("h{host}").into())),
        (0..3_u8).prop_map(|host| Purge::Host(format!("h{host}").into())),
        (0..4_u8).prop_map(|tag| Purge::Tag(vec![b't', tag])),
        Just(Purge::All),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let put = (0..3_u8, 0..7_u8, 0..2_u8, prop::collection::vec(0..4_u8, 0..3), any::<bool>())
        .prop_map(|(host, path, variant, tags, late)| Step::Put { host, path, variant, tags, late });
    let purge = (purges(), any::<bool>()).prop_map(|(purge, soft)| Step::Purge { purge, soft });
    prop::collection::vec(prop_oneof![3 => put, 1 => purge], 1..60)
}

/// The contents of a model cache: each object with its state.
#[derive(Clone, Debug)]
struct Known {
    tags: Vec<u8>,
    purged: Purged,
}

fn is_named(purge: &Purge, locator: &str, tags: &[u8]) -> bool {
    let host = locator.split('/').next().unwrap();
    let is = |bytes: &[u8], text: &str| bytes == text.as_bytes();
    match purge {
        Purge::All => true,
        Purge::Key(key) => is(key, &format!("http://{locator}")),
        Purge::Url(url) => is(url, locator),
        Purge::Prefix(prefix) if !prefix.contains(&b'/') => is(prefix, host),
        Purge::Prefix(prefix) => locator.as_bytes().starts_with(prefix),
        Purge::Host(name) => is(name, host),
        Purge::Tag(tag) => tags.contains(&tag[1]),
    }
}

proptest! {
    #[test]
    fn purges_by_generation_are_purges(steps in steps()) {
        let store = open(settings(1 << 24));
        let mut model: BTreeMap<(String, u8), Known> = BTreeMap::new();
        // The purges of the last step, which a late fetch has missed.
        let mut last: Vec<(Purge, bool)> = Vec::new();
        let mut generation = 0;
        for step in steps {
            match step {
                Step::Put { host, path, variant, tags, late } => {
                    let locator = locator_of(host, path);
                    let note = Note { tags: tags.iter().map(|tag| vec![b't', *tag]).collect(), ..Note::default() };
                    let from = if late { generation } else { store.generation() };
                    let (lines, key) = (b"A: b\r\n"[..].into(), key(&store, &locator));
                    let made = Object::new(key, &[variant], note, lines, StoredBody::Empty, from);
                    let mut known = Known { tags, purged: Purged::No };
                    for (purge, soft) in last.iter().filter(|_| late) {
                        if is_named(purge, &locator, &known.tags) {
                            known.purged = known.purged.max(if *soft { Purged::Soft } else { Purged::Hard });
                        }
                    }
                    let (_, inserted) = store.insert(made, 8);
                    if known.purged == Purged::Hard {
                        prop_assert_eq!(inserted, Inserted::Purged);
                    } else {
                        prop_assert_eq!(inserted, Inserted::Stored);
                        model.insert((locator, variant), known);
                    }
                }
                Step::Purge { purge, soft } => {
                    generation = store.generation();
                    let named = |(locator, _): &(String, u8), known: &Known| is_named(&purge, locator, &known.tags);
                    let expected = model.iter().filter(|(place, known)| named(place, known)).count() as u64;
                    prop_assert_eq!(store.purge(&purge, soft, true).matched, expected);
                    prop_assert_eq!(store.epoch(), generation);
                    prop_assert_eq!(store.purge(&purge, soft, false).matched, expected);
                    prop_assert_eq!(store.epoch(), generation + 1);
                    if soft {
                        for (_, known) in model.iter_mut().filter(|(place, known)| named(place, known)) {
                            known.purged = Purged::Soft;
                        }
                    } else {
                        model.retain(|place, known| !named(place, known));
                    }
                    last = vec![(purge, soft)];
                }
            }
            let listed = store.list(b"", usize::MAX);
            prop_assert_eq!(listed.len(), model.len());
            for object in listed {
                let locator = String::from_utf8(object.key().locator().to_vec()).unwrap();
                let known = &model[&(locator, object.variant()[0])];
                prop_assert_eq!(store.check(&object), known.purged);
            }
        }
    }
}
