use super::{FileMetadata, Loading, MEMORY_BYTES_MAX, Version};
use crate::outcome::FileOutcome;
use crate::rules::FileRules;
use crate::services::Services;
use flatout_config::model::Files;
use flatout_handler::response::Body;
use flatout_handler::routed::HeaderPolicy;
use flatout_os::root::Named;
use flatout_os::root::Root;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) fn temporary_folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("flatout-serve-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Loads `name` as a step with plain settings would, at `unix_ns`.
fn load(root: &Root, name: &[u8], unix_ns: i128) -> Result<Version, FileOutcome> {
    let Named::File(identity) = root.identify(name)? else { return Err(FileOutcome::NotAFile) };
    let (rules, policy) = (FileRules::new(&Files::default(), 1 << 20), std::rc::Rc::new(HeaderPolicy::default()));
    let services = Services::default();
    let loading = Loading { root, rules: &rules, policy: &policy, services: &services, unix_ns };
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
fn write_later(path: &std::path::Path, content: &[u8]) {
    let changed = || fs::metadata(path).map(|metadata| (metadata.ctime(), metadata.ctime_nsec())).unwrap();
    let before = changed();
    while changed() == before {
        fs::write(path, content).unwrap();
    }
}

#[test]
fn every_change_makes_another_tag() {
    let folder = temporary_folder("etag");
    let root = Root::open(&folder).unwrap();
    let path = folder.join("a");
    fs::write(&path, "one").unwrap();
    let first = load(&root, b"a", now_ns()).unwrap();
    assert!(!first.settled, "just written");
    // The same size, and the old time put back: the change time still tells.
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    write_later(&path, b"two");
    fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    let second = load(&root, b"a", now_ns()).unwrap();
    assert_ne!(first.plain.etag, second.plain.etag);
    fs::write(folder.join("b"), "two").unwrap();
    fs::rename(folder.join("b"), &path).unwrap();
    let third = load(&root, b"a", now_ns()).unwrap();
    assert_ne!(second.plain.etag, third.plain.etag);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_tag_is_kept_only_by_what_is_settled() {
    let folder = temporary_folder("settled");
    let root = Root::open(&folder).unwrap();
    fs::write(folder.join("a"), "one").unwrap();
    let written_ns = now_ns();
    let load_later = |later_ns: i128| load(&root, b"a", written_ns + later_ns).unwrap();
    let (young, same_but_later) = (load_later(1), load_later(2));
    assert!(!young.settled && young.seen == same_but_later.seen);
    assert_ne!(
        young.plain.etag, same_but_later.plain.etag,
        "between the two, another write may have left the same times"
    );
    assert_eq!(load_later(1_000_000_000).plain.etag, load_later(2_000_000_000).plain.etag);
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
    let future = SystemTime::now() + std::time::Duration::from_hours(24);
    fs::File::options().write(true).open(&path).unwrap().set_modified(future).unwrap();
    let now_ns = now_ns();
    let root = Root::open(&folder).unwrap();
    let version = load(&root, b"a", now_ns).unwrap();
    assert!(version.common.last_modified_s <= (now_ns / 1_000_000_000) as i64);
    // And once settled, neither the date nor the tag moves any more.
    let later = |seconds: i128| load(&root, b"a", now_ns + seconds * 1_000_000_000).unwrap();
    let (second, third) = (later(1), later(100));
    assert_eq!((&second.plain.etag, second.common.last_modified_s), (&third.plain.etag, third.common.last_modified_s));
    fs::remove_dir_all(folder).unwrap();
}
