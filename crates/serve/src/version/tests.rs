use super::{FileMetadata, Loading, MEMORY_BYTES_MAX, Version};
use crate::entity_tag::of_content;
use crate::outcome::FileOutcome;
use crate::rules::FileRules;
use crate::services::{LARGE_FILES_MAX, Services};
use flatout_config::model::Files;
use flatout_handler::response::Body;
use flatout_handler::routed::HeaderPolicy;
use flatout_os::root::Named;
use flatout_os::root::Root;
use flatout_os::testing::wait_until;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) fn temporary_folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("flatout-serve-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Loads `name` as a step with plain settings would, at `unix_ns`.
fn load(root: &Root, name: &[u8], unix_ns: i128) -> Result<Version, FileOutcome> {
    load_with(&Services::default(), root, name, unix_ns)
}

fn load_with(services: &Services, root: &Root, name: &[u8], unix_ns: i128) -> Result<Version, FileOutcome> {
    let Named::File(identity) = root.identify(name)? else { return Err(FileOutcome::NotAFile) };
    let (rules, policy) = (FileRules::new(&Files::default(), 1 << 20), std::rc::Rc::new(HeaderPolicy::default()));
    let loading = Loading { root, rules: &rules, policy: &policy, services, unix_ns };
    Version::load(&loading, name, &FileMetadata { index_at: 0, identity, beside: Vec::new() })
}

fn now_ns() -> i128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos().cast_signed()
}

#[test]
fn small_files_are_held_and_large_ones_opened() {
    let folder = temporary_folder("version");
    fs::write(folder.join("small.txt"), "abcdef").unwrap();
    fs::write(folder.join("empty"), "").unwrap();
    fs::write(folder.join("large.bin"), vec![7; MEMORY_BYTES_MAX as usize + 1]).unwrap();
    let root = Root::open(&folder).unwrap();
    let small = load(&root, b"small.txt", now_ns() + 1_000_000_000).unwrap();
    assert!(small.settled && !small.plain.holds_descriptor());
    assert!(matches!(small.plain.body(1, 3), Body::Bytes(bytes) if *bytes == *b"bcd"));
    assert_eq!(small.common.content_type, "text/plain; charset=utf-8");
    let empty = load(&root, b"empty", now_ns()).unwrap();
    assert!(matches!(empty.plain.body(0, 0), Body::Empty));
    let large = load(&root, b"large.bin", now_ns()).unwrap();
    assert!(large.plain.holds_descriptor() && matches!(large.plain.body(0, 5), Body::File(_)));
    assert_eq!(load(&root, b"none", now_ns()).err(), Some(FileOutcome::NotFound));
    fs::remove_dir_all(folder).unwrap();
}

/// Writes a file at a time that the file system tells from its last change: the kernel's clock advances by ticks.
fn write_later(path: &Path, content: &[u8]) {
    let changed = || fs::metadata(path).map(|metadata| (metadata.ctime(), metadata.ctime_nsec())).unwrap();
    let before = changed();
    while changed() == before {
        fs::write(path, content).unwrap();
    }
}

const LARGE: usize = MEMORY_BYTES_MAX as usize + 1;

/// Dates the file `path`.
fn date(path: &Path, since_1970: Duration) {
    fs::File::options().write(true).open(path).unwrap().set_modified(UNIX_EPOCH + since_1970).unwrap();
}

/// 2023-11-14, and a part of a second.
const A_DATE: Duration = Duration::new(1_700_000_000, 123_456_789);

#[test]
fn copies_share_a_tag_and_other_contents_have_another() {
    let folder = temporary_folder("etag");
    let root = Root::open(&folder).unwrap();
    let later_ns = now_ns() + 10_000_000_000;
    for (bytes, since_1970) in [
        (3, A_DATE),
        (3, Duration::ZERO),
        (LARGE, A_DATE),
        // Without the digest, these have no tag.
        (LARGE, Duration::from_secs(1_700_000_000)),
        (LARGE, Duration::new(1, 5)),
        (LARGE, Duration::from_secs(4_000_000_000)),
    ] {
        let tag_of = |name: &str, letter: u8| {
            let path = folder.join(name);
            fs::write(&path, vec![letter; bytes]).unwrap();
            date(&path, since_1970);
            load(&root, name.as_bytes(), later_ns).unwrap().plain.etag
        };
        let (first, copy, other) = (tag_of("a", b'a'), tag_of("b", b'a'), tag_of("a", b'b'));
        assert_eq!(first, copy, "{bytes} {since_1970:?}");
        assert_eq!(first.is_some(), bytes == 3 || since_1970 == A_DATE, "{bytes} {since_1970:?}");
        assert!(first.is_none() || first != other, "{bytes} {since_1970:?}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_file_without_a_telling_time_is_tagged_with_its_digest() {
    let folder = temporary_folder("digest-tag");
    let root = Root::open(&folder).unwrap();
    let content = vec![7; LARGE];
    let services = Services::default();
    for name in ["a", "b"] {
        fs::write(folder.join(name), &content).unwrap();
        date(&folder.join(name), Duration::from_secs(1));
        let load = || load_with(&services, &root, name.as_bytes(), now_ns() + 10_000_000_000).unwrap();
        let version = load();
        assert!(version.plain.etag.is_none() && version.common.last_modified_s.is_none());
        wait_until("the digest is known", || version.lacks_known_tag());
        // The earlier version holds the digest.
        let tagged = load();
        assert_eq!(tagged.plain.etag, Some(of_content(&content)));
        assert!(tagged.settled && !tagged.lacks_known_tag());
    }
    fs::remove_dir_all(folder).unwrap();
}

/// As many as would occupy all threads.
#[test]
fn huge_files_are_hashed_apart_from_others_and_given_up_when_they_change() {
    let folder = temporary_folder("huge");
    let root = Root::open(&folder).unwrap();
    let services = Services::default();
    let versions = ["a", "b", "c"].map(|name| load_huge(&services, &folder, name));
    fs::write(folder.join("large"), vec![7; LARGE]).unwrap();
    date(&folder.join("large"), Duration::from_secs(1_700_000_000));
    let large = load_with(&services, &root, b"large", now_ns() + 10_000_000_000).unwrap();
    wait_until("the digest of the other file is known", || large.lacks_known_tag());
    for (_, version) in &versions {
        assert!(version.settled && version.plain.digests.is_begun() && version.plain.digests.get().is_none());
    }
    for (file, _) in &versions {
        file.set_len(0).unwrap();
    }
    for (_, version) in &versions {
        wait_until("the file is given up", || !version.plain.digests.is_begun());
        assert!(version.plain.digests.get().is_none());
    }
    fs::remove_dir_all(folder).unwrap();
}

/// Creates the file `name`, which takes too long to hash for any test to wait for, and loads it.
fn load_huge(services: &Services, folder: &Path, name: &str) -> (fs::File, Version) {
    let file = fs::File::create(folder.join(name)).unwrap();
    file.set_len(1 << 36).unwrap();
    date(&folder.join(name), Duration::from_secs(1_700_000_000));
    let root = Root::open(folder).unwrap();
    (file, load_with(services, &root, name.as_bytes(), now_ns() + 10_000_000_000).unwrap())
}

#[test]
fn hashing_of_a_large_file_ends_when_nobody_holds_its_version() {
    let folder = temporary_folder("unwanted");
    let services = Services::default();
    let (_file, version) = load_huge(&services, &folder, "a");
    let digests = Arc::downgrade(&version.plain.digests);
    assert!(version.plain.digests.is_begun());
    drop(version);
    wait_until("the file is given up", || digests.strong_count() == 0);
    fs::remove_dir_all(folder).unwrap();
}

/// The versions stay valid, so that the files are not read again and again.
#[test]
fn large_files_beyond_the_queue_are_requested_later() {
    let folder = temporary_folder("queue");
    let services = Services::default();
    let huge: Vec<_> =
        (0..LARGE_FILES_MAX + 3).map(|number| load_huge(&services, &folder, &number.to_string())).collect();
    assert!(huge.iter().all(|(_, version)| version.settled));
    let (refused, accepted): (Vec<_>, Vec<_>) = huge.iter().partition(|(_, version)| version.lacks_request());
    // The first one may have been taken from the queue.
    assert!((2..=3).contains(&refused.len()), "{}", refused.len());
    assert_eq!(services.refused(), refused.len() as u64);
    for (_, version) in &refused {
        assert!(version.request_digests(&services) && version.lacks_request());
    }
    for (file, _) in accepted {
        file.set_len(0).unwrap();
    }
    for (_, version) in refused {
        wait_until("the queue has room", || {
            version.request_digests(&services);
            !version.lacks_request()
        });
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_young_file_has_a_tag_only_if_its_content_is_known() {
    let folder = temporary_folder("settled");
    let root = Root::open(&folder).unwrap();
    for (name, bytes) in [("small", 3), ("large", LARGE)] {
        fs::write(folder.join(name), vec![7; bytes]).unwrap();
        let written_ns = now_ns();
        let load_later = |later_ns: i128| load(&root, name.as_bytes(), written_ns + later_ns).unwrap();
        let young = load_later(1);
        assert!(!young.settled);
        assert_eq!(young.plain.etag.is_some(), name == "small", "another write may have left the same times");
        assert_eq!(
            young.common.last_modified_s.is_some(),
            name == "small",
            "another write may have left the same date"
        );
        let (settled, later) = (load_later(1_000_000_000), load_later(2_000_000_000));
        assert!(settled.settled && settled.plain.etag.is_some());
        assert_eq!(settled.plain.etag, later.plain.etag);
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn an_open_file_may_lose_its_name_but_not_change() {
    let folder = temporary_folder("names");
    let root = Root::open(&folder).unwrap();
    let path = folder.join("a");
    let large = vec![7; MEMORY_BYTES_MAX as usize + 1];
    let open = || {
        fs::write(&path, &large).unwrap();
        load(&root, b"a", now_ns()).unwrap()
    };
    let is_intact = |version: &Version| matches!(version.plain.body(0, 1), Body::File(body) if body.file.is_intact());
    let renamed_over = open();
    assert!(renamed_over.plain.is_sendable() && is_intact(&renamed_over));
    fs::write(folder.join("b"), &large).unwrap();
    fs::rename(folder.join("b"), &path).unwrap();
    assert!(!renamed_over.plain.is_sendable() && is_intact(&renamed_over));
    let written_over = open();
    write_later(&path, &large);
    assert!(!written_over.plain.is_sendable() && !is_intact(&written_over));
    fs::remove_file(&path).unwrap();
    assert!(!is_intact(&written_over));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn last_modified_is_never_in_the_future() {
    let folder = temporary_folder("future");
    let path = folder.join("a");
    fs::write(&path, "a").unwrap();
    let future = SystemTime::now() + Duration::from_hours(24);
    fs::File::options().write(true).open(&path).unwrap().set_modified(future).unwrap();
    let now_ns = now_ns();
    let root = Root::open(&folder).unwrap();
    let version = load(&root, b"a", now_ns).unwrap();
    assert!(version.common.last_modified_s.unwrap() <= (now_ns / 1_000_000_000) as i64);
    // And once settled, neither the date nor the tag moves any more.
    let later = |seconds: i128| load(&root, b"a", now_ns + seconds * 1_000_000_000).unwrap();
    let (second, third) = (later(1), later(100));
    assert_eq!((&second.plain.etag, second.common.last_modified_s), (&third.plain.etag, third.common.last_modified_s));
    fs::remove_dir_all(folder).unwrap();
}

/// The tag of a file whose time is not over yet is the same before and after it is.
#[test]
fn the_tag_of_a_large_file_does_not_depend_on_when_it_was_loaded() {
    let folder = temporary_folder("future-tag");
    let path = folder.join("large");
    fs::write(&path, vec![b'a'; 100_000]).unwrap();
    let (now_ns, day_ns) = (now_ns(), 86_400_000_000_000);
    let future = SystemTime::UNIX_EPOCH + Duration::new((now_ns / 1_000_000_000) as u64 + 86_400, 5);
    fs::File::options().write(true).open(&path).unwrap().set_modified(future).unwrap();
    let root = Root::open(&folder).unwrap();
    let [before, after] = [day_ns / 2, 2 * day_ns].map(|later_ns| load(&root, b"large", now_ns + later_ns).unwrap());
    assert!(before.plain.etag.is_some() && before.plain.etag == after.plain.etag, "{before:?} {after:?}");
    fs::remove_dir_all(folder).unwrap();
}

/// Archives date files in whole seconds, so another content may have the same date.
#[test]
fn a_date_in_whole_seconds_is_no_strong_validator() {
    let folder = temporary_folder("whole-seconds");
    let path = folder.join("a");
    fs::write(&path, "a").unwrap();
    let root = Root::open(&folder).unwrap();
    for (nanoseconds, is_strong) in [(0, false), (1_000_000, true)] {
        let modified = SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, nanoseconds);
        fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
        let version = load(&root, b"a", now_ns()).unwrap();
        let validators = version.plain.validators(&version.common);
        assert_eq!((validators.last_modified_s, validators.date_is_strong), (Some(1_700_000_000), is_strong));
    }
    fs::remove_dir_all(folder).unwrap();
}
