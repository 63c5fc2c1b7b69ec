//! The validators of a file are the same on every machine that has a copy of it, and no two contents share a tag.

use super::super::harness::{Folder, Response, Server, TICK, wait_until};
use super::super::tool::{run, tool};
use super::replace;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

/// The content of a file: compressible, and as long as `bytes`.
fn text(letter: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| if at % 10 == 0 { letter } else { b'0' + (at % 7) as u8 }).collect()
}

const SMALL: usize = 5000;
const LARGE: usize = 300_000;

/// Names, sizes and modification times. Archives store whole seconds; images that are built the same way each time date
/// all files 0, 1 or 1980.
const FILES: &[(&str, usize, Option<Duration>)] = &[
    ("small.txt", SMALL, None),
    ("small-epoch.txt", SMALL, Some(Duration::from_secs(1))),
    ("large.txt", LARGE, None),
    ("large.bin", LARGE, None),
    ("large-archived.txt", LARGE, Some(Duration::from_secs(1_700_000_000))),
    ("large-epoch.bin", LARGE, Some(Duration::ZERO)),
    ("large-1980.bin", LARGE, Some(Duration::from_hours(87_648))),
    ("large-future.bin", LARGE, Some(Duration::from_secs(4_000_000_000))),
    ("twin.txt", LARGE, Some(Duration::from_secs(1_700_000_000))),
    ("twin.txt.gz", LARGE, Some(Duration::from_secs(1_700_000_000))),
];

fn date(path: &Path, since_1970: Option<Duration>) {
    if let Some(since_1970) = since_1970 {
        fs::File::options().write(true).open(path).unwrap().set_modified(UNIX_EPOCH + since_1970).unwrap();
    }
}

fn ask(server: &Server, path: &str, fields: &str) -> Response {
    let request = format!("GET /{path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n");
    Response::parse(&server.exchange(request.as_bytes()))
}

const GZIP: &str = "Accept-Encoding: gzip\r\n";

fn is_compressible(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|ending| ending == "txt")
}

/// The tag of the file, with the coding if there is one, once it is known.
fn tag_of(server: &Server, path: &str, accept: &str) -> String {
    let mut tag = None;
    wait_until("the file has a tag", || {
        let response = ask(server, path, accept);
        assert_eq!(response.status, 200, "{path}");
        let is_encoded = response.field("content-encoding").is_some();
        let is_wanted = is_encoded || accept.is_empty() || !is_compressible(path);
        tag = response.field("etag").filter(|_| is_wanted).map(str::to_owned);
        tag.is_some()
    });
    tag.unwrap()
}

fn copy(from: &Path, to: &Path) {
    // The time of the copies' inodes is another one, as on another machine.
    thread::sleep(TICK);
    run(tool("cp").arg("-a").arg(from.join(".")).arg(to));
    thread::sleep(TICK);
}

#[test]
fn a_copy_has_the_same_tags() {
    let (one, other) = (Folder::new(), Folder::new());
    for (name, bytes, since_1970) in FILES {
        one.write(name, &text(b'a', *bytes));
        date(&one.path().join(name), *since_1970);
    }
    copy(one.path(), other.path());
    let first = Server::start(one.path(), &[]);
    let second = Server::start(other.path(), &["--workers", "2"]);
    for (name, _, since_1970) in FILES {
        for accept in ["", GZIP] {
            let tag = tag_of(&first, name, accept);
            assert!(tag.starts_with('"'), "{name}: {tag} is strong");
            assert_eq!(tag_of(&second, name, accept), tag, "{name} {accept}");
            for fields in [format!("{accept}If-None-Match: {tag}\r\n"), format!("{accept}If-None-Match: W/{tag}\r\n")] {
                assert_eq!(ask(&second, name, &fields).status, 304, "{name} {fields}");
            }
        }
        let tag = tag_of(&first, name, "");
        let part = ask(&second, name, &format!("Range: bytes=100-199\r\nIf-Range: {tag}\r\n"));
        assert_eq!((part.status, part.body.len()), (206, 100), "{name}");
        // A date that is no date would let caches keep the file for years.
        let has_date = since_1970.is_none_or(|since_1970| since_1970.as_secs() > 1_000_000_000);
        assert_eq!(ask(&second, name, "").field("last-modified").is_some(), has_date, "{name}");
    }
}

#[test]
fn another_content_of_equal_size_and_time_has_another_tag() {
    let folder = Folder::new();
    for (name, bytes, since_1970) in FILES {
        folder.write(name, &text(b'a', *bytes));
        date(&folder.path().join(name), *since_1970);
    }
    thread::sleep(TICK);
    let server = Server::start(folder.path(), &[]);
    let tags = |server: &Server| -> Vec<(String, String)> {
        FILES.iter().map(|(name, _, _)| (tag_of(server, name, ""), tag_of(server, name, GZIP))).collect()
    };
    let before = tags(&server);
    for (name, bytes, _) in FILES {
        let path = folder.path().join(name);
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        replace(&path, &text(b'b', *bytes));
        date(&path, Some(modified.duration_since(UNIX_EPOCH).unwrap()));
    }
    thread::sleep(super::SEEN_AFTER);
    let another = Server::start(folder.path(), &[]);
    for server in [&server, &another] {
        for ((name, bytes, _), (before, after)) in FILES.iter().zip(before.iter().zip(tags(server))) {
            assert!(before.0 != after.0 && before.1 != after.1, "{name}: {before:?}");
            for (accept, tag) in [("", &before.0), (GZIP, &before.1)] {
                let response = ask(server, name, &format!("{accept}If-None-Match: {tag}\r\n"));
                assert_eq!(response.status, 200, "{name} {accept}");
            }
            let whole = ask(server, name, &format!("Range: bytes=0-9\r\nIf-Range: {}\r\n", before.0));
            assert_eq!((whole.status, whole.body), (200, text(b'b', *bytes)), "{name}");
        }
    }
}

/// Resumes the download of `name` from its byte `first` if the content is still that of `validator`.
fn resume(server: &Server, name: &str, first: usize, validator: &str) -> Response {
    ask(server, name, &format!("Range: bytes={first}-\r\nIf-Range: {validator}\r\n"))
}

/// Above 64 MiB, files are hashed apart from others.
#[test]
fn downloads_of_large_files_resume_from_any_server_with_a_copy() {
    const BYTES: u64 = (64 << 20) + 4096;
    let first = BYTES as usize - 1000;
    let write = |folder: &Folder, letter: u8| {
        let path = folder.path().join("large.iso");
        let file = fs::File::create(&path).unwrap();
        // Beyond the first and before the last KiB.
        file.write_all_at(&[letter; 5000], BYTES / 2).unwrap();
        file.set_len(BYTES).unwrap();
        date(&path, Some(Duration::from_secs(1_700_000_000)));
    };
    let (one, other) = (Folder::new(), Folder::new());
    write(&one, b'a');
    copy(one.path(), other.path());
    let servers = [&one, &other].map(|folder| Server::start(folder.path(), &[]));
    let tags = servers.each_ref().map(|server| {
        let mut tag = None;
        wait_until("the file has a tag", || {
            let head = server.exchange(b"HEAD /large.iso HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            tag = Response::parse(&head).field("etag").map(str::to_owned);
            tag.is_some()
        });
        tag.unwrap()
    });
    assert_eq!(tags[0], tags[1]);
    for server in &servers {
        let rest = resume(server, "large.iso", first, &tags[0]);
        assert_eq!((rest.status, rest.body.len()), (206, 1000));
        // Another content may have the same size and date.
        let modified = rest.field("last-modified").unwrap();
        assert_eq!(resume(server, "large.iso", first, modified).status, 200);
    }
    write(&other, b'b');
    thread::sleep(super::SEEN_AFTER);
    assert_eq!(resume(&servers[1], "large.iso", first, &tags[0]).status, 200);
}

/// As many files as flatout queues have no tag for as long as it hashes them. Others get theirs afterwards.
#[test]
fn large_files_beyond_the_queue_are_hashed_later() {
    let folder = Folder::new();
    let create = |name: &str, bytes: u64| {
        let path = folder.path().join(name);
        let file = fs::File::create(&path).unwrap();
        file.set_len(bytes).unwrap();
        date(&path, Some(Duration::from_secs(1_700_000_000)));
        file
    };
    let huge: Vec<_> = (0..16).map(|number| create(&format!("{number}.img"), 1 << 36)).collect();
    create("large.iso", (64 << 20) + 1);
    thread::sleep(TICK);
    let server = Server::start(folder.path(), &[]);
    let tag_of = |name: &str| {
        let head = server.exchange(format!("HEAD /{name} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes());
        Response::parse(&head).field("etag").map(str::to_owned)
    };
    for number in 0..huge.len() {
        assert_eq!(tag_of(&format!("{number}.img")), None);
    }
    assert_eq!(tag_of("large.iso"), None);
    for file in &huge {
        file.set_len(0).unwrap();
    }
    wait_until("the file has a tag", || tag_of("large.iso").is_some());
}

/// A date with fractions of a second belongs to one content, and is a strong validator once its second has passed (RFC
/// 9110 §8.8.2.2).
#[test]
fn downloads_resume_with_a_date_only_if_it_tells_contents_apart() {
    let second = Duration::from_secs(1_700_000_000);
    let folder = Folder::new();
    for (name, modified) in [("fine.bin", second + Duration::from_millis(5)), ("coarse.bin", second)] {
        folder.write(name, &text(b'a', LARGE));
        date(&folder.path().join(name), Some(modified));
    }
    thread::sleep(TICK);
    let server = Server::start(folder.path(), &[]);
    let modified = ask(&server, "fine.bin", "").field("last-modified").unwrap().to_owned();
    assert_eq!(modified, "Tue, 14 Nov 2023 22:13:20 GMT");
    let rest = resume(&server, "fine.bin", LARGE - 100, &modified);
    assert_eq!((rest.status, rest.body.len()), (206, 100));
    assert_eq!(resume(&server, "fine.bin", LARGE - 100, "Tue, 14 Nov 2023 22:13:19 GMT").status, 200);
    assert_eq!(resume(&server, "coarse.bin", LARGE - 100, &modified).status, 200);
}

/// The digest of such a file is its tag. The first response does not wait for it.
#[test]
fn a_file_dated_in_whole_seconds_has_no_tag_before_its_digest_is_known() {
    let folder = Folder::with(&[("large.bin", &text(b'a', 30_000_000))]);
    date(&folder.path().join("large.bin"), Some(Duration::from_secs(1)));
    thread::sleep(TICK);
    let server = Server::start(folder.path(), &[]);
    let first = ask(&server, "large.bin", "");
    assert_eq!((first.status, first.field("etag"), first.field("last-modified")), (200, None, None));
    let date = "If-Modified-Since: Sun, 01 Jan 2040 00:00:00 GMT\r\n";
    assert_eq!(ask(&server, "large.bin", date).status, 200, "it may be another file of the same time");
    let tag = tag_of(&server, "large.bin", "");
    let request = format!("HEAD /large.bin HTTP/1.1\r\nHost: a\r\nConnection: close\r\nIf-None-Match: {tag}\r\n\r\n");
    assert!(server.exchange(request.as_bytes()).starts_with(b"HTTP/1.1 304 "), "{tag}");
}
