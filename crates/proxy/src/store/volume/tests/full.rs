//! A full disk is nobody's failure.

use super::*;

/// A small file system of our own, where we may mount one.
struct SmallDisk(Place);

impl SmallDisk {
    fn new(bytes: u64) -> Option<Self> {
        let place = Place::new("small-disk");
        let mount = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(&place.0)
            .status();
        mount.is_ok_and(|status| status.success()).then(|| Self(place))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").args(["-l".as_ref(), self.0.0.as_os_str()]).status();
    }
}

#[test]
fn a_full_disk_is_nobodys_failure() {
    let Some(disk) = SmallDisk::new(48 * 1024 * 1024) else {
        println!("NOT TESTED: a small tmpfs cannot be mounted here (not root?)");
        return;
    };
    let folder = disk.0.0.join("cache");
    // The budget promises more than the disk has.
    let store = open(StoreSettings { disks: vec![(folder.clone(), 1 << 30)], ..settings(64 << 20) });
    wait_for_spares(&store);
    let mut moved = 0;
    for number in 0..150_u64 {
        let bytes = bytes_of(number, 1_000_000);
        let body = large_body(&store, &bytes);
        moved += u32::from(!is_on_volume(&body));
        assert!(content(&body) == bytes);
        let (stored, inserted) = store.insert(object(&store, &format!("large/{number}"), "", tagged(&[]), body), 8);
        assert_eq!(inserted, Inserted::Stored);
        put(&store, &format!("small/{number}"), "", &bytes_of(number, 20_000));
        assert!(content(stored.body()) == bytes);
        if number % 10 == 9 {
            wait_until("it is written or given up", || store.volumes().all(|volume| !volume.has_pending()));
        }
    }
    let stats = store.stats();
    assert!(stats.volumes[0].errors + stats.volumes[0].dropped > 0, "{stats:?}");
    let mut found = 0;
    for number in 0..150 {
        if let Some(object) = fetch(&store, &format!("large/{number}"), "") {
            assert!(content(object.body()) == bytes_of(number, 1_000_000));
            found += 1;
        }
        if let Some(object) = fetch(&store, &format!("small/{number}"), "") {
            assert!(content(object.body()) == bytes_of(number, 20_000));
        }
    }
    println!("{found} of 150 are there, {moved} were moved to memory while they came, {:?}", stats.volumes[0]);
    // Others fill it to the last byte: writing on is what the volume must survive.
    let _ = std::fs::write(disk.0.0.join("others"), vec![1; 48 << 20]);
    let mut moved = 0;
    for number in 150..300_u64 {
        put(&store, &format!("small/{number}"), "", &bytes_of(number, 20_000));
        let bytes = bytes_of(number, 100_000);
        let body = large_body(&store, &bytes);
        moved += u32::from(!is_on_volume(&body));
        assert!(content(&body) == bytes);
        store.insert(object(&store, &format!("large/{number}"), "", tagged(&[]), body), 8);
        if number % 30 == 0 {
            std::thread::sleep(Duration::from_millis(150));
        }
    }
    assert!(fetch(&store, "small/299", "").is_some());
    store.purge(&Purge::Url(b"small/299".to_vec()), false, false);
    assert!(fetch(&store, "small/299", "").is_none());
    let state = store.stats().volumes[0].clone();
    println!("at the last byte: {moved} of 150 were moved to memory while they came, {state:?}");
    assert!(moved > 0);
    drop(store);
    let store = open(StoreSettings { disks: vec![(folder, 1 << 30)], ..settings(64 << 20) });
    assert!(fetch(&store, "small/299", "").is_none());
}
