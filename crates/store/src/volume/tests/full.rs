//! A full file system is not a failure: stored responses stay, and nothing new is stored until there is space.

use super::*;

/// A small file system, if this process may mount one.
struct SmallDisk(Place);

impl SmallDisk {
    /// `None`, with a report that the test is skipped, if nothing can be mounted.
    fn new(bytes: u64) -> Option<Self> {
        let place = Place::new("small-disk");
        let mount = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(&place.0)
            .status();
        let disk = mount.is_ok_and(|status| status.success()).then(|| Self(place));
        if disk.is_none() {
            let thread = std::thread::current();
            // Written directly: the test harness withholds what `println!` prints in a test that passes.
            let text = format!("SKIPPED {}: no tmpfs can be mounted here\n", thread.name().unwrap_or("a test"));
            let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
        }
        disk
    }

    /// A file of another program that takes all but `left` bytes.
    fn take_all_but(&self, left: u64, name: &str) -> PathBuf {
        let path = self.0.0.join(name);
        let file = std::fs::File::create(&path).unwrap();
        let part = vec![1; 1 << 16];
        let is_free = || {
            let room = rustix::fs::statvfs(&self.0.0).unwrap();
            room.f_bavail * room.f_frsize > left
        };
        while is_free() && std::io::Write::write_all(&mut &file, &part).is_ok() {}
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").args(["-l".as_ref(), self.0.0.as_os_str()]).status();
    }
}

fn state_of(store: &TestStore) -> VolumeState {
    store.stats().volumes[0].state
}

fn put_both(store: &TestStore, number: u64) {
    let body = large_body(store, &bytes_of(number, 200_000));
    store.insert(object(store, &format!("large/{number}"), "", tagged(&[]), body), 8);
    put(store, &format!("small/{number}"), "", &bytes_of(number, 20_000));
}

/// How many of these objects exist; none of them is wrong.
fn count_both(store: &TestStore, numbers: std::ops::Range<u64>) -> u64 {
    let mut count = 0;
    for number in numbers {
        for (locator, size) in [(format!("large/{number}"), 200_000), (format!("small/{number}"), 20_000)] {
            if let Some(object) = fetch(store, &locator, "") {
                assert!(content(object.body()) == bytes_of(number, size));
                count += 1;
            }
        }
    }
    count
}

#[test]
fn a_full_file_system_costs_nothing_that_is_stored() {
    let Some(disk) = SmallDisk::new(192 << 20) else { return };
    let volume = disk.0.0.join("cache");
    let settings = || StoreSettings { disks: vec![(volume.clone(), 1 << 30)], ..settings(1 << 20) };
    let store = open(settings());
    for number in 0..100 {
        wait_for_spares(&store);
        put_both(&store, number);
    }
    wait_until_written(&store);
    assert_eq!((state_of(&store), store.stats().volumes[0].objects), (VolumeState::Good, 200));

    // Others fill it, all but some megabytes.
    let most = disk.take_all_but(8 << 20, "others");
    wait_until("it is full", || state_of(&store) == VolumeState::Full);
    assert!(store.stats().volumes[0].problem.contains("is full"), "{:?}", store.stats().volumes[0]);
    for number in 100..200 {
        put_both(&store, number);
    }
    wait_until_written(&store);
    let stats = &store.stats().volumes[0];
    assert_eq!((stats.objects, stats.evicted), (200, 0), "{stats:?}");
    assert_eq!(count_both(&store, 0..100), 200);
    // A new lifetime for what is there is a record, which finds room; new content in its place does not, and what was
    // there must not be served for it.
    let old = fetch(&store, "large/1", "").unwrap();
    let fresh = Note { text: b"fresh".to_vec(), ..tagged(&[]) };
    store.insert(object(&store, "large/1", "", fresh, old.body().clone()), 8);
    put(&store, "small/2", "", b"new");
    wait_until_written(&store);
    store.remove_from_memory("");
    assert_eq!(fetch(&store, "large/1", "").unwrap().meta().text, b"fresh");
    assert!(fetch(&store, "small/2", "").is_none());
    assert_eq!(store.stats().volumes[0].objects, 199);
    assert_eq!(count_of(&store, VolumeEvent::VolumeFull), 1);

    // To the last byte. A purge holds all the same.
    let rest = disk.take_all_but(0, "more");
    for number in 200..220 {
        put_both(&store, number);
    }
    // Each is a transaction, and takes pages that the index's file has not had until now.
    for number in 3..40 {
        store.purge(&Purge::Url(format!("small/{number}").into_bytes()), false, false);
        assert!(fetch(&store, &format!("small/{number}"), "").is_none());
        wait_until_written(&store);
    }
    assert_eq!(state_of(&store), VolumeState::Full, "{:?}", store.stats().volumes[0]);
    assert_eq!(count_both(&store, 0..100), 162);
    drop(store);
    let store = open(settings());
    assert_eq!((count_of(&store, VolumeEvent::IndexDestroyed), count_both(&store, 0..100)), (0, 162));
    assert!(fetch(&store, "small/3", "").is_none());

    // There is room again.
    wait_until("it is full", || state_of(&store) == VolumeState::Full);
    std::fs::remove_file(most).unwrap();
    std::fs::remove_file(rest).unwrap();
    wait_until("it is good", || state_of(&store) == VolumeState::Good);
    assert_eq!(count_of(&store, VolumeEvent::VolumeHasRoom), 1);
    for number in 300..310 {
        wait_for_spares(&store);
        put_both(&store, number);
    }
    wait_until_written(&store);
    assert_eq!(store.stats().volumes[0].objects, 182);
}

#[test]
fn a_volume_that_meets_the_end_while_it_fills_keeps_what_it_has() {
    let Some(disk) = SmallDisk::new(48 << 20) else { return };
    let folder = disk.0.0.join("cache");
    // The budget promises more than the disk has.
    let store = open(StoreSettings { disks: vec![(folder.clone(), 1 << 30)], ..settings(64 << 20) });
    wait_for_spares(&store);
    for number in 0..150_u64 {
        let bytes = bytes_of(number, 1_000_000);
        let body = large_body(&store, &bytes);
        assert!(content(&body) == bytes);
        let (stored, inserted) = store.insert(object(&store, &format!("large/{number}"), "", tagged(&[]), body), 8);
        assert_eq!(inserted, Inserted::Stored);
        assert!(content(stored.body()) == bytes);
        if number % 10 == 9 {
            wait_until_written(&store);
        }
    }
    let stats = &store.stats().volumes[0];
    assert_eq!((stats.state, stats.evicted), (VolumeState::Full, 0), "{stats:?}");
    assert!(stats.objects >= 15, "{stats:?}");
    let objects = stats.objects;
    drop(store);
    let store = open(StoreSettings { disks: vec![(folder, 1 << 30)], ..settings(1 << 20) });
    let found = (0..150).filter(|number| {
        let found = fetch(&store, &format!("large/{number}"), "");
        found.is_some_and(|object| content(object.body()) == bytes_of(*number, 1_000_000))
    });
    assert_eq!(found.count() as u64, objects);
}
