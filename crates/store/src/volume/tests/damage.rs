//! Tests with damaged files: every body that the store returns is the one that was stored.

use super::*;
use crate::proof::Buffer;
use crate::seal::{CHUNK_BYTES, seal_offset};
use crate::volume::check::Scrub;
use crate::volume::index;
use std::iter::once;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

/// Sizes of which several objects have the same, so that their files can be swapped.
fn size_of(number: u64) -> usize {
    [70_000, 100_000, 262_144, 300_000, 600_000][number as usize % 5]
}

fn fill(place: &Place, count: u64) {
    let store = open(place.settings(1 << 26, 1 << 30));
    for number in 0..count {
        wait_for_spares(&store);
        let body = large_body(&store, &bytes_of(number, size_of(number)));
        assert!(is_on_volume(&body));
        store.insert(object(&store, &format!("a/{number}"), "", tagged(&[]), body), 8);
    }
    wait_until_written(&store);
    assert_eq!(store.stats().volumes[0].objects, count);
}

fn flip(path: &Path, offset: u64) {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
}

/// Reads all objects. Returns how many exist; none of them is wrong.
fn count_intact(store: &TestStore, count: u64) -> u64 {
    let mut intact = 0;
    for number in 0..count {
        if let Some(object) = fetch(store, &format!("a/{number}"), "") {
            assert!(content(object.body()) == bytes_of(number, size_of(number)), "a/{number} is wrong");
            intact += 1;
        }
    }
    intact
}

#[test]
fn no_wrong_body_leaves_a_volume_whose_files_were_changed() {
    const COUNT: u64 = 400;
    let place = Place::new("damaged");
    fill(&place, COUNT);
    let mut bodies = place.bodies();
    bodies.sort_by_key(|path| (path.metadata().unwrap().len(), path.clone()));
    assert_eq!(bodies.len() as u64, COUNT);
    // Of ten, four stay as they are, two have a byte flipped, two are swapped, one is cut and one has a damaged seal.
    for part in bodies.chunks(10) {
        let [_, _, _, _, flipped, flipped_late, one, other, cut, unsealed] = part else { panic!("40 parts of 10") };
        let length = part[0].metadata().unwrap().len();
        flip(flipped, 0);
        flip(flipped_late, 69_999);
        let aside = place.0.join("aside");
        std::fs::rename(one, &aside).unwrap();
        std::fs::rename(other, one).unwrap();
        std::fs::rename(&aside, other).unwrap();
        std::fs::File::options().write(true).open(cut).unwrap().set_len(length - 1).unwrap();
        flip(unsealed, length - 1);
    }
    let store = open(place.settings(1 << 26, 1 << 30));
    assert_eq!(count_intact(&store, COUNT), COUNT * 4 / 10);
    let counts = [VolumeEvent::BodyCorrupt, VolumeEvent::BodyMisplaced, VolumeEvent::BodyTruncated];
    assert_eq!(counts.map(|event| count_of(&store, event)), [120, 80, 40]);
    wait_until("the records are gone", || store.stats().volumes[0].objects == COUNT * 4 / 10);
    assert_eq!(store.stats().volumes[0].state, VolumeState::Good);
    // What is fetched again takes their place.
    for number in 0..COUNT {
        if fetch(&store, &format!("a/{number}"), "").is_none() {
            wait_for_spares(&store);
            let body = large_body(&store, &bytes_of(number, size_of(number)));
            store.insert(object(&store, &format!("a/{number}"), "", tagged(&[]), body), 8);
        }
    }
    wait_until_written(&store);
    drop(store);
    assert_eq!(count_intact(&open(place.settings(1 << 26, 1 << 30)), COUNT), COUNT);
}

#[test]
fn content_is_verified_chunk_by_chunk_before_its_first_use() {
    let place = Place::new("chunks");
    let bytes = bytes_of(1, 5 * CHUNK_BYTES as usize + 1_000);
    {
        let store = open(place.settings(1 << 22, 1 << 26));
        wait_for_spares(&store);
        let body = large_body(&store, &bytes);
        // What this process has written needs no check.
        assert!(body.is_verified());
        store.insert(object(&store, "a/x", "", tagged(&[]), body), 8);
    }
    flip(&place.bodies()[0], 4 * CHUNK_BYTES + 7);
    let store = open(place.settings(1 << 22, 1 << 26));
    let key = key(&store, "a/x");
    let bucket = block_on(store.find_on_disk(key.hash(), key.as_bytes()).unwrap()).unwrap();
    let found = &bucket.objects()[0];
    let file = found.body().place().unwrap();
    assert!(!found.body().is_verified());
    assert_eq!(file.verified_until(10), 10);
    assert!(block_on(found.body().verify(once(CHUNK_BYTES - 1..CHUNK_BYTES + 1))));
    assert_eq!((file.verified_until(0), file.verified_until(2 * CHUNK_BYTES)), (2 * CHUNK_BYTES, 2 * CHUNK_BYTES));
    assert!(block_on(found.body().verify(once(5 * CHUNK_BYTES..u64::MAX))));
    assert_eq!(file.verified_until(5 * CHUNK_BYTES), bytes.len() as u64);
    assert!(found.is_current());
    assert!(!block_on(found.body().verify(once(3 * CHUNK_BYTES..4 * CHUNK_BYTES + 1))));
    // The entry is gone from memory and from the index, and nobody verifies what is damaged.
    assert!(!found.is_current() && get(&store, "a/x", "").is_none() && !found.body().is_verified());
    assert_eq!(file.verified_until(4 * CHUNK_BYTES), 4 * CHUNK_BYTES);
    wait_until("the record is gone", || store.stats().volumes[0].objects == 0);
    assert_eq!(count_of(&store, VolumeEvent::BodyCorrupt), 1);
}

#[test]
fn the_scrubber_finds_damage_that_nobody_asks_for() {
    let place = Place::new("scrubbed");
    fill(&place, 20);
    let mut bodies = place.bodies();
    bodies.sort();
    flip(&bodies[3], 50_000);
    flip(&bodies[7], seal_offset(bodies[7].metadata().unwrap().len()) - 8_192);
    std::fs::remove_file(&bodies[11]).unwrap();
    let store = open(place.settings(1 << 22, 1 << 30));
    let volume = Arc::clone(store.volumes().next().unwrap());
    let begun = Instant::now();
    let (mut scrub, mut buffer, mut now) = (Scrub::new(begun), Buffer::default(), begun);
    let mut longest = Duration::ZERO;
    // One round: time passes as fast as the scrubber asks.
    while longest < Duration::from_hours(1) {
        let wait = volume.scrub(&mut scrub, now, &mut buffer);
        longest = longest.max(if now - begun > Duration::from_mins(10) { wait } else { Duration::ZERO });
        now += wait;
    }
    assert_eq!(now.duration_since(begun).as_secs() / 60, 24 * 60 + 10);
    let counts = [VolumeEvent::BodyCorrupt, VolumeEvent::BodyMissing, VolumeEvent::BodyMisplaced];
    assert_eq!(counts.map(|event| count_of(&store, event)), [2, 1, 0]);
    wait_until("the records are gone", || store.stats().volumes[0].objects == 17);
    // The next round finds nothing more.
    let end = now + Duration::from_hours(12);
    while now < end {
        now += volume.scrub(&mut scrub, now, &mut buffer);
    }
    assert_eq!((count_of(&store, VolumeEvent::BodyCorrupt), count_intact(&store, 20)), (2, 17));
}

#[test]
fn an_index_of_another_format_is_dropped_and_says_so() {
    let place = Place::new("outdated");
    fill(&place, 3);
    {
        let database = redb::Database::open(place.0.join(index::FILE_NAME)).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction.open_table(index::FACTS).unwrap().insert("format", 1).unwrap();
        transaction.commit().unwrap();
    }
    let store = open(place.settings(1 << 22, 1 << 30));
    let lines = Arc::new(std::sync::Mutex::new(Vec::new()));
    let listener = Arc::clone(&lines);
    store.on_notice(Box::new(move |line| listener.lock().unwrap().push(line)));
    assert_eq!((store.stats().volumes[0].objects, count_of(&store, VolumeEvent::IndexOutdated)), (0, 1));
    assert!(lines.lock().unwrap()[0].contains("[index_outdated]"));
    wait_until("its files are gone", || place.bodies().is_empty());
    drop(store);
    fill(&place, 3);
    std::fs::remove_file(place.0.join(index::FILE_NAME)).unwrap();
    assert_eq!(count_of(&open(place.settings(1 << 22, 1 << 30)), VolumeEvent::IndexDestroyed), 1);
    assert_eq!(count_of(&open(place.settings(1 << 22, 1 << 30)), VolumeEvent::IndexDestroyed), 0);
}

#[test]
fn nobody_else_may_read_a_volume() {
    let place = Place::new("modes");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
    let volume = place.0.join("parent/volume");
    let old = rustix::process::umask(rustix::fs::Mode::empty());
    std::fs::create_dir_all(&volume).unwrap();
    let settings = || StoreSettings { disks: vec![(volume.clone(), 1 << 26)], ..settings(1 << 22) };
    let store = open(settings());
    wait_for_spares(&store);
    put(&store, "a/small", "", b"small");
    store.insert(object(&store, "a/large", "", tagged(&[]), large_body(&store, &bytes_of(1, 100_000))), 8);
    wait_until_written(&store);
    drop(store);
    let mut waiting = vec![volume.clone()];
    let mut files = 0;
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            assert_eq!(mode(&path), 0o700, "{}", path.display());
            waiting.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            assert_eq!(mode(&path), 0o600, "{}", path.display());
            files += 1;
        }
    }
    // The lock, the index, the room that is kept for the index, and the large body.
    assert_eq!(files, 4);
    // What others opened up is closed again.
    for (path, open) in [(volume.clone(), 0o755), (volume.join("index.redb"), 0o644), (volume.join("lock"), 0o666)] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(open)).unwrap();
    }
    let store = open(settings());
    let found = ["", "index.redb", "lock"].map(|name| mode(&volume.join(name)));
    assert_eq!(found, [0o700, 0o600, 0o600]);
    assert!(fetch(&store, "a/large", "").is_some());
    // The folder that it lies in is not the store's own.
    assert_eq!(mode(&place.0.join("parent")), 0o777);
    rustix::process::umask(old);
}
