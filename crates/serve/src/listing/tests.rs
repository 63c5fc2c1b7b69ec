//! Tests with folders on a disk, and the listings generated from them.

use super::order::{By, ListingOrder};
use super::{Format, ListingQuery, content_type, make};
use crate::version::tests::temporary_folder;
use flatout_os::root::Root;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

const HTML: ListingQuery =
    ListingQuery { format: Format::Html, order: ListingOrder { by: By::Name, descending: false } };
const JSON: ListingQuery = ListingQuery { format: Format::Json, ..HTML };

fn put(path: &Path, size_bytes: u64, modified_s: u64) {
    let file = File::create(path).unwrap();
    file.set_len(size_bytes).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(modified_s)).unwrap();
}

fn content_of(root: &Root, name: &str, hidden: bool, entries_max: u32, query: ListingQuery) -> Option<Vec<u8>> {
    let shown = format!("/{name}");
    make(root, name.as_bytes(), shown.as_bytes(), hidden, entries_max, query, i64::MAX).map(|(content, _)| content)
}

fn json_of(root: &Root, name: &str, hidden: bool, entries_max: u32) -> Value {
    serde_json::from_slice(&content_of(root, name, hidden, entries_max, JSON).unwrap()).unwrap()
}

fn names(listing: &Value) -> Vec<&str> {
    listing["entries"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect()
}

fn html_of(root: &Root, name: &str, query: ListingQuery) -> String {
    String::from_utf8(content_of(root, name, false, 1000, query).unwrap()).unwrap()
}

#[test]
fn links_out_and_what_is_no_file_are_left_out() {
    let folder = temporary_folder("listing-links");
    fs::create_dir_all(folder.join("in/sub/deep")).unwrap();
    fs::create_dir(folder.join("outside")).unwrap();
    fs::write(folder.join("secret"), "s").unwrap();
    let sub = folder.join("in/sub");
    put(&sub.join("a"), 5, 1_795_235_459);
    put(&folder.join("in/above"), 7, 0);
    for (target, name) in [
        ("../../secret", "up"),
        ("../../outside", "folder-up"),
        ("/etc/passwd", "absolute"),
        ("circle", "circle"),
        ("nowhere", "dangling"),
        ("/proc/self/root", "magic"),
        ("../above", "link-file"),
        ("deep", "link-folder"),
        ("pipe", "link-pipe"),
    ] {
        symlink(target, sub.join(name)).unwrap();
    }
    mknodat(CWD, sub.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(sub.join("socket")).unwrap();
    fs::write(sub.join(".hidden"), "h").unwrap();
    let root = Root::open(&folder.join("in")).unwrap();
    let listing = json_of(&root, "sub/", false, 100);
    assert_eq!(names(&listing), ["deep", "link-folder", "a", "link-file"]);
    assert_eq!(names(&json_of(&root, "sub/", true, 100)), ["deep", "link-folder", ".hidden", "a", "link-file"]);
    assert_eq!(names(&json_of(&root, "", false, 100)), ["sub", "above"]);
    assert_eq!(listing["schema"], "flatout-listing/1");
    assert_eq!(listing["path"], "/sub/");
    assert_eq!((&listing["truncated"], &listing["truncated_exact"]), (&Value::from(0), &Value::from(true)));
    let expected = r#"{"name":"a","type":"file","size_bytes":5,"modified":"2026-11-21T04:30:59Z","href":"./a"}"#;
    assert_eq!(listing["entries"][2], serde_json::from_str::<Value>(expected).unwrap());
    assert_eq!(listing["entries"][3]["size_bytes"], 7);
    assert_eq!(listing["entries"][1]["href"], "./link-folder/");
    assert_eq!(listing["entries"][1]["size_bytes"], Value::Null);
    for name in ["gone/", "above", "sub/a/", "../outside/", "sub/folder-up/", "sub/circle/"] {
        assert_eq!(content_of(&root, name, true, 100, HTML), None, "{name}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn hostile_names_stay_names() {
    let folder = temporary_folder("listing-hostile");
    fs::create_dir(folder.join("<i>")).unwrap();
    for name in [&b"<script>alert(1)<"[..], b"\"onclick=\"x", b"100%", b"a\nb", b"\xff\xfe", b"a:b", b"&amp;", b"'"] {
        fs::write(folder.join(OsStr::from_bytes(name)), "").unwrap();
        fs::write(folder.join("<i>").join(OsStr::from_bytes(name)), "").unwrap();
    }
    let root = Root::open(&folder).unwrap();
    let page = html_of(&root, "<i>/", HTML);
    for part in [
        r#"<a href="./%3Cscript%3Ealert%281%29%3C">"#,
        "<bdi>&lt;script&gt;alert(1)&lt;</bdi>",
        r#"<a href="./%22onclick%3D%22x">"#,
        "<bdi>&quot;onclick=&quot;x</bdi>",
        r#"<a href="./100%25">"#,
        r#"<a href="./a%0Ab">"#,
        "<bdi>a\u{240a}b</bdi>",
        r#"<a href="./%FF%FE">"#,
        r#"<a href="./a%3Ab">"#,
        "<bdi>&amp;amp;</bdi>",
        "<title>/&lt;i&gt;/</title>",
        r#"<bdi aria-current="page">&lt;i&gt;</bdi>"#,
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    assert!(!page.contains("<script") && !page.contains("<i>") && !page.contains("\"onclick"));
    let listing = json_of(&root, "", false, 100);
    assert_eq!(names(&listing)[0], "<i>");
    assert!(names(&listing).contains(&"a\nb") && names(&listing).contains(&"\u{fffd}\u{fffd}"));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn large_folders_are_cut() {
    let folder = temporary_folder("listing-large");
    for number in 1..=12 {
        put(&folder.join(format!("file{number}")), number, 0);
    }
    let root = Root::open(&folder).unwrap();
    assert_eq!(names(&json_of(&root, "", false, 12)).len(), 12);
    let cut = json_of(&root, "", false, 3);
    assert_eq!(names(&cut), ["file1", "file2", "file3"]);
    assert_eq!((&cut["truncated"], &cut["truncated_exact"]), (&Value::from(9), &Value::from(true)));
    // The first by name, whatever the order they are shown in.
    let query = ListingQuery { order: ListingOrder { by: By::Size, descending: true }, ..JSON };
    let by_size: Value = serde_json::from_slice(&content_of(&root, "", false, 3, query).unwrap()).unwrap();
    assert_eq!(names(&by_size), ["file3", "file2", "file1"]);
    let short = json_of(&root, "", false, 2);
    assert_eq!((names(&short).len(), &short["truncated"]), (2, &Value::from(6)));
    assert_eq!(short["truncated_exact"], false);
    let page = |entries_max| String::from_utf8(content_of(&root, "", false, entries_max, HTML).unwrap()).unwrap();
    assert!(page(3).contains("<p class=\"note\">9 more, not shown.</p>"));
    assert!(page(2).contains("At least 6 more, not shown."));
    assert!(page(0).contains("This folder has more entries than shown here."));
    assert!(!page(12).contains("class=\"note\""));
    fs::remove_dir_all(folder).unwrap();
}

/// With FLATOUT_ARTEFACTS set to a folder, the page is saved there for inspection.
#[test]
fn the_page_has_what_people_need() {
    let folder = temporary_folder("listing-page");
    let inner = folder.join("archive/photos 2026");
    for name in ["originals", "Thumbnails", "Z\u{fc}rich"] {
        fs::create_dir_all(inner.join(name)).unwrap();
    }
    for (at, (name, size_bytes)) in [
        ("file2.txt", 812),
        ("file10.txt", 1536),
        ("README.md", 4_200),
        ("a:b & <c>.html", 77_000),
        ("IMG_20260714_183015_a_rather_long_name_without_any_space_to_break_at_final_final_version_3.jpeg", 7_340_032),
        ("disk image of the old machine.iso", 4_831_838_208),
        ("\u{5b57}\u{5e55}.srt", 0),
        ("empty", 1),
    ]
    .into_iter()
    .enumerate()
    {
        put(&inner.join(name), size_bytes, 1_795_235_459 - at as u64 * 3_456_789);
    }
    fs::create_dir(folder.join("empty")).unwrap();
    let root = Root::open(&folder).unwrap();
    let page = html_of(&root, "archive/photos 2026/", HTML);
    for part in [
        "<!DOCTYPE html><html lang=\"en\">",
        "<title>/archive/photos 2026/</title>",
        "name=\"viewport\"",
        "prefers-color-scheme:dark",
        "<a href=\"../../\" aria-label=\"Top folder\">/</a>",
        "<a href=\"../\"><bdi>archive</bdi></a>",
        "Parent folder",
        "aria-sort=\"ascending\"><a href=\"?sort=name&amp;order=desc\">Name</a>",
        "<a href=\"?sort=size&amp;order=desc\">Size</a>",
        "<time datetime=\"2026-11-21T04:30:59Z\">2026-11-21 04:30</time>",
        "title=\"1,536 bytes\">1.50 KiB</td>",
        "3 folders, 8 files, 4.51 GiB",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    for absent in ["<script", "http:", "https:", "url(", "@import"] {
        assert!(!page.contains(absent), "{absent}");
    }
    assert!(page.find("file2.txt").unwrap() < page.find("file10.txt").unwrap());
    let query = ListingQuery { order: ListingOrder { by: By::Size, descending: true }, ..HTML };
    let by_size = html_of(&root, "archive/photos 2026/", query);
    assert!(by_size.contains("aria-sort=\"descending\"><a href=\"?sort=size&amp;order=asc\">Size</a>"));
    let top = html_of(&root, "", HTML);
    assert!(!top.contains("Parent folder") && top.contains("<span aria-current=\"page\">/</span>"));
    let empty = html_of(&root, "empty/", HTML);
    assert!(empty.contains("This folder is empty.") && empty.contains("0 folders, 0 files, 0 B"));
    assert_eq!((content_type(HTML), content_type(JSON)), ("text/html; charset=utf-8", "application/json"));
    if let Some(artefacts) = std::env::var_os("FLATOUT_ARTEFACTS") {
        fs::write(Path::new(&artefacts).join("listing.html"), page).unwrap();
        fs::write(Path::new(&artefacts).join("listing-empty.html"), empty).unwrap();
    }
    fs::remove_dir_all(folder).unwrap();
}

/// Workers read a folder at different times, and clients send If-Modified-Since to any of them.
#[test]
fn a_listing_is_as_old_as_its_last_change() {
    let folder = temporary_folder("listing-time");
    put(&folder.join("old"), 1, 1_000);
    put(&folder.join("new"), 1, 2_000);
    put(&folder.join("future"), 1, 9_000_000_000);
    File::open(&folder).unwrap().set_modified(UNIX_EPOCH + Duration::from_mins(25)).unwrap();
    let root = Root::open(&folder).unwrap();
    let modified_s = |unix_s| make(&root, b"", b"/", false, 10, HTML, unix_s).unwrap().1;
    assert_eq!((modified_s(5_000), modified_s(6_000)), (2_000, 2_000));
    fs::remove_file(folder.join("new")).unwrap();
    File::open(&folder).unwrap().set_modified(UNIX_EPOCH + Duration::from_mins(50)).unwrap();
    assert_eq!(modified_s(5_000), 3_000);
    fs::remove_dir_all(folder).unwrap();
}
