//! Tests of volumes on real folders: restarts, crashes, full disks, other processes.

use crate::body::NewBody;
use crate::notice::VolumeEvent;
use crate::tests::{
    Note, TestStore, content, get, key, locator_of, memory_body, object, open, purges, put, settings, tagged,
};
use crate::{Inserted, Object, ObjectKey, Purge, Purged, Store, StoreSettings, StoredBody, VolumeState};
use aws_lc_rs::digest::{SHA256, digest};
use flatout_os::testing::wait_until;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::iter;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

mod crash;
mod damage;
mod full;
mod purges;

/// A folder that is removed when the test ends.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("flatout-store-{name}-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn settings(&self, memory_bytes_max: u64, disk_bytes_max: u64) -> StoreSettings {
        StoreSettings { disks: vec![(self.0.clone(), disk_bytes_max)], ..settings(memory_bytes_max) }
    }

    /// The files of large bodies.
    fn bodies(&self) -> Vec<PathBuf> {
        let subfolders = std::fs::read_dir(self.0.join("bodies")).unwrap();
        let files = subfolders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
        files.map(|file| file.unwrap().path()).filter(|path| path.metadata().is_ok_and(|data| data.len() > 0)).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn wait_until_written(store: &TestStore) {
    wait_until("all is written", || store.volumes().all(|volume| !volume.has_pending()));
}

fn wait_until_loaded(store: &TestStore) {
    wait_until("all is loaded", || store.stats().volumes.iter().all(|volume| volume.is_loaded));
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// The result of a lookup in memory or on a disk.
fn fetch(store: &TestStore, locator: &str, variant: &str) -> Option<Arc<Object<Note>>> {
    let key = key(store, locator);
    let pick = |bucket: Arc<crate::Bucket<Note>>| {
        bucket.objects().iter().find(|object| object.variant() == variant.as_bytes()).cloned()
    };
    let bucket = store.find(key.hash(), key.as_bytes());
    let is_partial = bucket.as_ref().is_none_or(|bucket| bucket.is_partial());
    let found = match bucket.and_then(pick) {
        None if is_partial => pick(block_on(store.find_on_disk(key.hash(), key.as_bytes())?)?),
        found => found,
    };
    // As anyone who serves it does: content from a disk is compared before its first use.
    let is_intact = |object: &Arc<Object<Note>>| block_on(object.body().verify(iter::once(0..object.body().len())));
    found.filter(|object| store.check(object) != Purged::Hard && is_intact(object))
}

/// Content of this length that identifies itself.
fn bytes_of(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn large_body(store: &TestStore, bytes: &[u8]) -> StoredBody {
    let mut body = None;
    // What waits for a disk still has its memory.
    wait_until("there is room", || {
        store.make_room();
        body = store.create_body(Some(bytes.len() as u64)).ok();
        body.is_some()
    });
    let mut body = body.unwrap();
    for part in bytes.chunks(50_000) {
        wait_until("there is room for more", || {
            store.make_room();
            body.write(part).is_ok()
        });
    }
    body.finish().unwrap()
}

fn is_on_volume(body: &StoredBody) -> bool {
    matches!(body, StoredBody::File { place: Some(_), .. })
}

fn count_of(store: &TestStore, event: VolumeEvent) -> u64 {
    store.volume_events()[event as usize].1
}

fn wait_for_spares(store: &TestStore) {
    wait_until("files are made", || store.volumes().all(|volume| volume.folder.has_spares()));
}

#[test]
fn what_was_stored_is_there_after_a_restart() {
    let place = Place::new("restart");
    let (small, large) = (bytes_of(1, 60_000), bytes_of(2, 300_000));
    {
        let store = open(place.settings(1 << 22, 1 << 24));
        wait_for_spares(&store);
        put(&store, "a/small", "", &small);
        put(&store, "a/small", "gzip", b"packed");
        store.insert(object(&store, "a/empty", "", tagged(&["t"]), StoredBody::Empty), 8);
        let body = large_body(&store, &large);
        assert!(is_on_volume(&body));
        store.insert(object(&store, "a/large", "", tagged(&[]), body), 8);
        store.insert(object(&store, "a/short-lived", "", tagged(&[]), StoredBody::Empty).memory_only(), 8);
        store.release_volumes();
        assert_eq!(store.stats().volumes[0].state, VolumeState::Released);
        // Memory goes on, and what comes now stays there.
        put(&store, "a/late", "", b"");
        assert_eq!(content(get(&store, "a/large", "").unwrap().body()), large);
    }
    let store = open(place.settings(1 << 22, 1 << 24));
    assert_eq!((store.stats().volumes[0].objects, store.stats().memory_objects), (4, 0));
    assert!(get(&store, "a/small", "").is_none());
    let restored = fetch(&store, "a/small", "gzip").unwrap();
    assert_eq!(
        (content(restored.body()), &restored.lines()[..]),
        (b"packed".to_vec(), &b"Content-Type: text/plain\r\n"[..])
    );
    assert!(restored.is_on_disk() && restored.is_current());
    // Its other variant came with it.
    assert_eq!(content(get(&store, "a/small", "").unwrap().body()), small);
    assert_eq!(fetch(&store, "a/empty", "").unwrap().meta(), &tagged(&["t"]));
    let restored = fetch(&store, "a/large", "").unwrap();
    assert!(is_on_volume(restored.body()) && content(restored.body()) == large);
    wait_until_loaded(&store);
    let key = key(&store, "a/short-lived");
    assert!(store.find_on_disk(key.hash(), key.as_bytes()).is_none());
    let stats = store.stats();
    assert_eq!((stats.disk_hits, stats.volumes[0].errors), (3, 0));
    assert_eq!(store.inspect(b"http://a/small").disk.len(), 2);
}

#[test]
fn what_memory_lets_go_a_disk_brings_back() {
    let place = Place::new("partial");
    let store = open(place.settings(100_000, 1 << 24));
    for number in 0..100 {
        put(&store, &format!("a/{number}"), "", &bytes_of(number, 5_000));
        put(&store, &format!("a/{number}"), "gzip", &bytes_of(number + 1_000, 3_000));
    }
    // Some still wait to be written, and are found all the same.
    for number in 0..100 {
        assert_eq!(
            content(fetch(&store, &format!("a/{number}"), "gzip").unwrap().body()),
            bytes_of(number + 1_000, 3_000)
        );
        assert_eq!(content(fetch(&store, &format!("a/{number}"), "").unwrap().body()), bytes_of(number, 5_000));
    }
    assert!(store.stats().memory_bytes <= 100_000 && store.stats().disk_hits > 50);
    wait_until_written(&store);
    assert_eq!((store.stats().volumes[0].objects, store.stats().volumes[0].dropped), (200, 0));
}

#[test]
fn replaced_and_removed_stays_so() {
    let place = Place::new("replaced");
    {
        let store = open(place.settings(1 << 22, 1 << 24));
        wait_for_spares(&store);
        let body = large_body(&store, &bytes_of(1, 200_000));
        store.insert(object(&store, "a/x", "", tagged(&[]), body), 8);
        put(&store, "a/y", "", b"old");
        put(&store, "a/z", "", b"old");
        wait_until_written(&store);
        assert_eq!(place.bodies().len(), 1);
        put(&store, "a/x", "", b"new");
        put(&store, "a/y", "", b"new");
        store.remove(key(&store, "a/z").hash(), b"http://a/z");
        assert!(fetch(&store, "a/z", "").is_none());
        wait_until_written(&store);
        wait_until("the file is gone", || place.bodies().is_empty());
    }
    let store = open(place.settings(1 << 22, 1 << 24));
    assert_eq!(content(fetch(&store, "a/x", "").unwrap().body()), b"new");
    assert_eq!(content(fetch(&store, "a/y", "").unwrap().body()), b"new");
    assert!(fetch(&store, "a/z", "").is_none());
    assert_eq!(store.stats().volumes[0].objects, 2);
}

#[test]
fn a_freshened_object_keeps_its_content_where_it_is() {
    let place = Place::new("freshened");
    let large = bytes_of(3, 150_000);
    {
        let store = open(place.settings(1 << 22, 1 << 24));
        wait_for_spares(&store);
        let body = large_body(&store, &large);
        store.insert(object(&store, "a/x", "", tagged(&[]), body), 8);
        put(&store, "a/y", "", b"same");
        wait_until_written(&store);
        let bodies = place.bodies();
        for round in 1..4_u8 {
            for locator in ["a/x", "a/y"] {
                let old = get(&store, locator, "").unwrap();
                let note = Note { text: vec![round], ..tagged(&[]) };
                store.insert(object(&store, locator, "", note, old.body().clone()), 8);
            }
            wait_until_written(&store);
        }
        assert_eq!((place.bodies(), store.stats().volumes[0].objects), (bodies, 2));
    }
    let store = open(place.settings(1 << 22, 1 << 24));
    let restored = fetch(&store, "a/x", "").unwrap();
    assert_eq!((restored.meta().text.as_slice(), content(restored.body())), (&[3][..], large));
    assert_eq!(content(fetch(&store, "a/y", "").unwrap().body()), b"same");
}

#[test]
fn content_moves_from_a_memory_file_to_the_disk() {
    let place = Place::new("moved");
    let store = open(place.settings(1 << 22, 1 << 24));
    let large = bytes_of(4, 500_000);
    let mut body = NewBody::in_memory(store.budget()).unwrap();
    body.write(&large).unwrap();
    let (first, _) = store.insert(object(&store, "a/x", "", tagged(&[]), body.finish().unwrap()), 8);
    assert!(store.stats().memory_bytes > 500_000);
    wait_until("it is on the disk", || !first.is_current());
    let moved = get(&store, "a/x", "").unwrap();
    assert!(is_on_volume(moved.body()) && content(moved.body()) == large && content(first.body()) == large);
    assert!(store.stats().memory_bytes < 2_000 && moved.is_on_disk());
    assert_eq!((store.stats().memory_objects, store.stats().descriptors), (1, 1));
}

#[test]
fn the_oldest_leaves_a_volume_unless_it_was_asked_for() {
    let place = Place::new("evicted");
    let store = open(place.settings(200_000, 1_000_000));
    wait_for_spares(&store);
    let put_one = |number: u64| {
        if number.is_multiple_of(10) {
            let body = large_body(&store, &bytes_of(number, 100_000));
            store.insert(object(&store, &format!("a/{number}"), "", tagged(&[]), body), 8);
        } else {
            put(&store, &format!("a/{number}"), "", &bytes_of(number, 3_000));
        }
        wait_for_spares(&store);
    };
    put_one(10_001);
    for number in 0..500 {
        put_one(number);
        if number % 20 == 0 {
            wait_until_written(&store);
            // Somebody asks for this one again and again, past memory.
            store.remove_from_memory("a/10001");
            let kept = fetch(&store, "a/10001", "").unwrap();
            assert_eq!(content(kept.body()), bytes_of(10_001, 3_000));
        }
    }
    wait_until_written(&store);
    wait_until("there is room", || store.stats().volumes[0].bytes <= 1_000_000);
    let stats = &store.stats().volumes[0];
    assert!(stats.evicted > 300 && stats.objects > 20 && stats.errors == 0, "{stats:?}");
    let on_disk: u64 = place.bodies().iter().map(|path| path.metadata().unwrap().len()).sum();
    assert!(on_disk <= 1_000_000);
    // What is there is right, and what is not there is not known.
    let mut found = 0;
    for number in 0..500_u64 {
        if let Some(object) = fetch(&store, &format!("a/{number}"), "") {
            let len = if number.is_multiple_of(10) { 100_000 } else { 3_000 };
            assert!(content(object.body()) == bytes_of(number, len));
            found += 1;
        }
    }
    assert!((10..200).contains(&found), "{found}");
}

#[test]
fn a_volume_takes_what_it_may_and_little_more() {
    use std::os::unix::fs::MetadataExt;
    for size in [1_500, 30_000] {
        let place = Place::new("budget");
        let budget = 8_000_000;
        let store = open(place.settings(100_000, budget));
        for number in 0..(3 * budget / size) {
            put(&store, &format!("a/{number}"), "", &bytes_of(number, size as usize));
            if number % (2_000_000 / size) == 0 {
                wait_until_written(&store);
            }
        }
        wait_until_written(&store);
        let (stats, index) = (&store.stats().volumes[0], place.0.join("index.redb").metadata().unwrap());
        let (held, taken) = (stats.objects * size, index.blocks() * 512);
        println!("{size}: {held} bytes of content, {} reckoned, {taken} taken of {budget}; {stats:?}", stats.bytes);
        assert!(stats.bytes <= budget && stats.evicted > 0 && stats.dropped == 0);
        // Pages that a step frees are used again only by the next but one.
        assert!(taken < 2 * budget, "{taken} for {size}");
    }
}

#[test]
fn a_folder_belongs_to_one_process_and_is_handed_over() {
    let place = Place::new("locked");
    let old = open(place.settings(1 << 22, 1 << 24));
    put(&old, "a/x", "", b"x");
    let (new, warnings) = Store::open(place.settings(1 << 22, 1 << 24), Arc::default());
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("another process is using it"), "{warnings:?}");
    assert_eq!(new.stats().volumes[0].state, VolumeState::Locked);
    // It works without, and purges what it does not see yet.
    put(&new, "a/y", "", b"y");
    put(&old, "a/purged", "", b"");
    new.purge(&Purge::Url(b"a/purged".to_vec()), false, false);
    for _ in 0..5 {
        old.purge(&Purge::Tag(b"other".to_vec()), false, false);
    }
    old.release_volumes();
    wait_until("it is handed over", || new.stats().volumes[0].state == VolumeState::Good);
    assert_eq!(content(fetch(&new, "a/x", "").unwrap().body()), b"x");
    assert!(fetch(&new, "a/purged", "").is_none());
    new.release_volumes();
    let next = open(place.settings(1 << 22, 1 << 24));
    assert!(fetch(&next, "a/purged", "").is_none() && fetch(&next, "a/x", "").is_some());
}

#[test]
fn broken_files_are_misses() {
    let place = Place::new("broken");
    let fill = |store: &TestStore| {
        wait_for_spares(store);
        for number in 0..3 {
            let body = large_body(store, &bytes_of(number, 100_000));
            store.insert(object(store, &format!("a/{number}"), "", tagged(&[]), body), 8);
        }
        put(store, "a/small", "", b"small");
        wait_until_written(store);
    };
    {
        fill(&open(place.settings(1 << 22, 1 << 24)));
    }
    let bodies = place.bodies();
    std::fs::remove_file(&bodies[0]).unwrap();
    std::fs::File::options().write(true).open(&bodies[1]).unwrap().set_len(99_999).unwrap();
    // Somebody's leftovers.
    std::fs::write(place.0.join("bodies/05/00000000000000aa-5"), b"orphan").unwrap();
    {
        let store = open(place.settings(1 << 22, 1 << 24));
        let found = (0..3).filter(|number| fetch(&store, &format!("a/{number}"), "").is_some()).count();
        assert_eq!((found, content(fetch(&store, "a/small", "").unwrap().body())), (1, b"small".to_vec()));
        wait_until_loaded(&store);
        wait_until("the orphan is gone", || store.stats().volumes[0].orphans == 1);
        wait_until("the records are gone", || store.stats().volumes[0].objects == 2);
        assert_eq!(store.stats().volumes[0].errors, 2);
        let events = [VolumeEvent::BodyMissing, VolumeEvent::BodyTruncated].map(|event| count_of(&store, event));
        assert_eq!(events, [1, 1]);
    }
    // An index that cannot be read is recreated.
    for garbage in [&b""[..], b"garbage", &vec![0x55; 100_000]] {
        std::fs::write(place.0.join("index.redb"), garbage).unwrap();
        let store = open(place.settings(1 << 22, 1 << 24));
        assert_eq!(count_of(&store, VolumeEvent::IndexDestroyed), 1);
        assert!(fetch(&store, "a/small", "").is_none());
        fill(&store);
        wait_until("files without a record are gone", || place.bodies().len() == 3);
        assert!(fetch(&store, "a/1", "").is_some());
    }
}

#[test]
fn a_volume_that_fails_is_left_alone() {
    let place = Place::new("fails");
    {
        let store = open(place.settings(1 << 22, 1 << 24));
        wait_for_spares(&store);
        let body = large_body(&store, &bytes_of(1, 100_000));
        store.insert(object(&store, "a/large", "", tagged(&[]), body), 8);
        put(&store, "a/small", "", b"small");
        wait_until_written(&store);
        store.volumes().next().unwrap().folder.degrade("cannot write", &"the disk is broken");
        wait_until("it is given up", || get(&store, "a/large", "").is_none());
        let stats = store.stats();
        assert_eq!(
            (stats.volumes[0].state, stats.volumes[0].problem.as_str()),
            (VolumeState::Degraded, "cannot write: the disk is broken")
        );
        // Everything else goes on.
        assert_eq!(content(fetch(&store, "a/small", "").unwrap().body()), b"small");
        let body = large_body(&store, &bytes_of(2, 100_000));
        assert!(!is_on_volume(&body));
        assert_eq!(store.insert(object(&store, "a/large", "", tagged(&[]), body), 8).1, Inserted::Stored);
        assert_eq!(store.purge(&Purge::All, false, false).matched, 2);
    }
    // What was purged while it could not be written down is not there either.
    let store = open(place.settings(1 << 22, 1 << 24));
    assert_eq!((store.stats().volumes[0].state, store.stats().volumes[0].objects), (VolumeState::Good, 0));
    let missing = PathBuf::from("/proc/no-such-folder");
    let (store, warnings) =
        Store::open(StoreSettings { disks: vec![(missing, 1 << 24)], ..settings(1 << 20) }, Arc::default());
    assert_eq!((warnings.len(), store.stats().volumes[0].state), (1, VolumeState::Degraded));
    put(&store, "a/x", "", b"");
}

#[test]
fn several_volumes_share_the_load_and_one_may_be_away() {
    let places = [Place::new("first"), Place::new("second")];
    let both = |memory| StoreSettings {
        disks: places.iter().map(|place| (place.0.clone(), 1 << 24)).collect(),
        ..settings(memory)
    };
    {
        let store = open(both(1 << 22));
        wait_for_spares(&store);
        for number in 0..40 {
            put(&store, &format!("a/{number}"), "", &bytes_of(number, 2_000));
            let body = large_body(&store, &bytes_of(number, 70_000));
            store.insert(object(&store, &format!("b/{number}"), "", tagged(&[]), body), 8);
            wait_for_spares(&store);
        }
        // From one volume to the other, or not: there is one of it.
        for number in 0..40 {
            let body = large_body(&store, &bytes_of(number + 100, 70_000));
            store.insert(object(&store, &format!("a/{number}"), "", tagged(&[]), body), 8);
            put(&store, &format!("b/{number}"), "", &bytes_of(number + 100, 2_000));
            wait_for_spares(&store);
        }
        wait_until_written(&store);
        let stats = store.stats().volumes;
        assert!(stats.iter().all(|volume| volume.objects > 15), "{stats:?}");
        assert_eq!(stats[0].objects + stats[1].objects, 80);
        store.purge(&Purge::Url(b"a/0".to_vec()), false, false);
    }
    {
        let store = open(places[1].settings(1 << 22, 1 << 24));
        assert_eq!(
            store.purge(&Purge::Url(b"a/1".to_vec()), false, true).matched,
            u64::from(fetch(&store, "a/1", "").is_some())
        );
        store.purge(&Purge::Url(b"a/1".to_vec()), false, false);
        // As many as there were already, and more.
        store.purge(&Purge::Url(b"a/2".to_vec()), true, false);
    }
    let store = open(both(1 << 22));
    for number in 0..40 {
        for (locator, len) in [(format!("a/{number}"), 70_000), (format!("b/{number}"), 2_000)] {
            let found = fetch(&store, &locator, "");
            assert_eq!(found.is_none(), ["a/0", "a/1"].contains(&locator.as_str()), "{locator}");
            if let Some(found) = found {
                assert!(content(found.body()) == bytes_of(number + 100, len));
                assert_eq!(store.check(&found) == Purged::Soft, locator == "a/2");
            }
        }
    }
}

#[test]
fn purges_are_counted_once_and_hold_over_restarts() {
    let place = Place::new("purged");
    let fill = |store: &TestStore| {
        for number in 0..200 {
            let note = tagged(&[if number % 2 == 0 { "even" } else { "odd" }]);
            store.insert(object(store, &format!("h{}/{number}", number % 4), "", note, memory_body(b"x")), 8);
        }
    };
    {
        // Most are on the disk alone, some in both, some wait.
        let store = open(place.settings(40_000, 1 << 24));
        fill(&store);
        for _ in 0..2 {
            assert_eq!(store.purge(&Purge::Tag(b"even".to_vec()), false, true).matched, 100);
            assert_eq!(store.purge(&Purge::Host(b"h1".to_vec()), false, true).matched, 50);
            wait_until_written(&store);
        }
        assert_eq!(store.purge(&Purge::Tag(b"even".to_vec()), false, false).matched, 100);
        assert_eq!(store.purge(&Purge::Tag(b"even".to_vec()), false, false).matched, 0);
        assert_eq!(store.purge(&Purge::Host(b"h1".to_vec()), true, false).matched, 50);
        assert_eq!(store.purge(&Purge::All, false, true).matched, 100);
    }
    {
        let store = open(place.settings(40_000, 1 << 24));
        assert_eq!((store.generation(), store.stats().purges_remembered), (3, 2));
        assert!(fetch(&store, "h0/0", "").is_none());
        assert_eq!(store.check(&fetch(&store, "h1/1", "").unwrap()), Purged::Soft);
        assert_eq!(store.check(&fetch(&store, "h3/3", "").unwrap()), Purged::No);
        wait_until("they have gone", || store.stats().volumes[0].objects == 100);
        assert_eq!(store.purge(&Purge::All, false, false).matched, 100);
    }
    let store = open(place.settings(40_000, 1 << 24));
    assert!(fetch(&store, "h3/3", "").is_none());
    wait_until("they have gone", || store.stats().volumes[0].objects == 0);
    fill(&store);
    wait_until_written(&store);
    store.forget_purges();
    assert_eq!((store.stats().purges_remembered, store.stats().volumes[0].objects), (0, 200));
    assert_eq!(store.check(&fetch(&store, "h3/3", "").unwrap()), Purged::No);
}

/// Versions of a key never go backwards, whichever tier responds and whatever else happens.
#[test]
fn nobody_reads_what_was_replaced() {
    const KEYS: usize = 24;
    const DISK_HITS: u64 = 400;
    let place = Place::new("versions");
    let store = open(StoreSettings { memory_objects_max: 6, ..place.settings(60_000, 150_000) });
    let newest: Vec<_> = (0..KEYS).map(|_| std::sync::Mutex::new(0_u64)).collect();
    let promised: Vec<_> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let (is_over, disk_hits) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for seed in 1..=4_u64 {
            let (store, newest, promised) = (&store, &newest, &promised);
            let (is_over, disk_hits) = (&is_over, &disk_hits);
            scope.spawn(move || {
                let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                while !is_over.load(Ordering::Relaxed) {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    let number = (state % KEYS as u64) as usize;
                    let locator = format!("a/{number}");
                    match (state >> 32) % 8 {
                        0 => {
                            let mut version = newest[number].lock().unwrap();
                            *version += 1;
                            let large = (state >> 40).is_multiple_of(3);
                            let body = if large {
                                let bytes = [&version.to_be_bytes()[..], &vec![7; 66_000]].concat();
                                let filled = store.create_body(None).and_then(|mut body| {
                                    body.write(&bytes)?;
                                    Ok(body.finish().unwrap())
                                });
                                filled.unwrap_or_else(|_| memory_body(&version.to_be_bytes()))
                            } else {
                                memory_body(&[&version.to_be_bytes()[..], &[7; 500]].concat())
                            };
                            let (_, inserted) = store.insert(object(store, &locator, "", tagged(&[]), body), 8);
                            assert_ne!(inserted, Inserted::Purged);
                            promised[number].store(*version, Ordering::SeqCst);
                        }
                        1 if state >> 60 == 0 => {
                            let version = newest[number].lock().unwrap();
                            let key = key(store, &locator);
                            store.remove(key.hash(), key.as_bytes());
                            promised[number].store(*version + 1, Ordering::SeqCst);
                            drop(version);
                        }
                        _ => {
                            let promised = promised[number].load(Ordering::SeqCst);
                            let was = get(store, &locator, "").is_some();
                            if let Some(found) = fetch(store, &locator, "") {
                                let content = content(found.body());
                                let version = u64::from_be_bytes(content[..8].try_into().unwrap());
                                assert!(version >= promised, "{version} after {promised}");
                                disk_hits.fetch_add(u64::from(!was), Ordering::Relaxed);
                            }
                        }
                    }
                }
            });
        }
        let end = Instant::now() + Duration::from_mins(2);
        while disk_hits.load(Ordering::Relaxed) <= DISK_HITS && Instant::now() < end {
            std::thread::yield_now();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let stats = store.stats();
    assert!(stats.volumes[0].state == VolumeState::Good && disk_hits.load(Ordering::Relaxed) > DISK_HITS, "{stats:?}");
}
