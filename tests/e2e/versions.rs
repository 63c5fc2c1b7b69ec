//! A changed file is seen within a second, and no response mixes two versions, even while files are being replaced.

mod copies;

use super::harness::{Folder, Response, Server, TICK, TIMEOUT, read_response, uninterrupted};
use super::http3::Held;
use super::tls::Certificate;
use super::tool::{run, tool};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The published limit: a second after a change, the next response is the new version.
const SEEN_AFTER: Duration = Duration::from_secs(1);

fn get(server: &Server, path: &str) -> (u16, String) {
    let response = server.get(path);
    (response.status, String::from_utf8(response.body).unwrap())
}

fn replace(path: &Path, content: &[u8]) {
    let aside = path.with_extension("aside");
    fs::write(&aside, content).unwrap();
    fs::rename(&aside, path).unwrap();
}

#[test]
fn every_kind_of_change_is_seen_within_a_second() {
    let (large_old, large_new) = ("o".repeat(200_000), "n".repeat(200_000));
    let names = ["renamed", "rewritten", "backdated", "large-renamed", "large-rewritten", "large-backdated"];
    let folder = Folder::new();
    for name in names {
        let content = if name.starts_with("large") { large_old.as_str() } else { "old" };
        folder.write(name, content.as_bytes());
    }
    folder.write("deleted", b"old");
    folder.write("folder/index.html", b"old");
    folder.write("file", b"old");
    let server = Server::start(folder.path(), &["--workers", "2"]);
    let old: Vec<_> = names.iter().map(|name| server.get(&format!("/{name}"))).collect();
    assert!(old.iter().all(|response| response.body.starts_with(b"o")));
    assert_eq!(get(&server, "/deleted"), (200, "old".to_owned()));
    assert_eq!(get(&server, "/folder/"), (200, "old".to_owned()));
    assert_eq!(get(&server, "/file"), (200, "old".to_owned()));

    let path = |name: &str| folder.path().join(name);
    for name in names {
        let content = if name.starts_with("large") { large_new.as_str() } else { "new" };
        let modified = fs::metadata(path(name)).unwrap().modified().unwrap();
        if name.ends_with("renamed") {
            replace(&path(name), content.as_bytes());
        } else {
            fs::write(path(name), content).unwrap();
        }
        if name.ends_with("backdated") {
            fs::File::options().write(true).open(path(name)).unwrap().set_modified(modified).unwrap();
        }
    }
    fs::remove_file(path("deleted")).unwrap();
    fs::remove_dir_all(path("folder")).unwrap();
    folder.write("folder", b"new");
    fs::remove_file(path("file")).unwrap();
    folder.write("file/index.html", b"new");
    thread::sleep(SEEN_AFTER);

    for (name, old) in names.iter().zip(&old) {
        // Several times, so that each worker gets a request.
        for _ in 0..8 {
            let new = server.get(&format!("/{name}"));
            assert!(new.status == 200 && new.body.starts_with(b"n"), "{name}: {} {:?}", new.status, new.body.first());
            assert_eq!(new.body.len(), old.body.len(), "{name}");
            assert_ne!(new.field("etag"), old.field("etag"), "{name}");
        }
    }
    for _ in 0..8 {
        assert_eq!(get(&server, "/deleted").0, 404);
        assert_eq!((get(&server, "/folder/").0, get(&server, "/folder")), (404, (200, "new".to_owned())));
        assert_eq!((get(&server, "/file").0, get(&server, "/file/")), (301, (200, "new".to_owned())));
    }
}

#[test]
fn if_range_with_an_old_entity_tag_gets_the_full_new_version() {
    let sizes = [("small", 1000), ("large", 300_000)];
    let folder = Folder::new();
    for (name, size) in sizes {
        folder.write(name, &vec![b'o'; size]);
    }
    thread::sleep(TICK);
    let server = Server::start(folder.path(), &[]);
    let part = |name: &str, etag: &str| {
        let request = format!(
            "GET /{name} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nRange: bytes=500-599\r\nIf-Range: {etag}\r\n\r\n"
        );
        Response::parse(&server.exchange(request.as_bytes()))
    };
    for (name, size) in sizes {
        let etag = server.get(&format!("/{name}")).field("etag").unwrap().to_owned();
        let old = part(name, &etag);
        assert_eq!((old.status, old.body), (206, vec![b'o'; 100]), "{name}");
        replace(&folder.path().join(name), &vec![b'n'; size]);
        thread::sleep(SEEN_AFTER);
        let new = part(name, &etag);
        assert_eq!((new.status, new.body), (200, vec![b'n'; size]), "{name}");
        let etag = server.get(&format!("/{name}")).field("etag").unwrap().to_owned();
        assert_eq!((part(name, &etag).status, part(name, &etag).body), (206, vec![b'n'; 100]), "{name}");
    }
}

/// Files of one size that are replaced in one way.
#[derive(Clone, Copy, Debug)]
struct Kind {
    name: &'static str,
    bytes: usize,
    in_place: bool,
}

const KINDS: &[Kind] = &[
    Kind { name: "small-renamed", bytes: 10_000, in_place: false },
    Kind { name: "medium-renamed", bytes: 60_000, in_place: false },
    Kind { name: "large-renamed", bytes: 2_000_000, in_place: false },
    Kind { name: "small-in-place", bytes: 10_000, in_place: true },
    Kind { name: "medium-in-place", bytes: 60_000, in_place: true },
    Kind { name: "large-in-place", bytes: 2_000_000, in_place: true },
];

/// A file's metadata is cached for nearly a second, so many files are needed to see many changes.
const FILES_EACH: usize = 6;
const VERSIONS: usize = 40;

impl Kind {
    fn file(self, index: usize) -> String {
        format!("{}-{index}", self.name)
    }

    /// Every version is one letter, repeated. The length usually differs too.
    fn content(self, version: usize) -> Vec<u8> {
        vec![b'a' + (version % 26) as u8; self.bytes - version % 7]
    }

    fn write(self, folder: &Path, index: usize, version: usize) {
        let path = folder.join(self.file(index));
        if self.in_place {
            fs::write(path, self.content(version)).unwrap();
        } else {
            replace(&path, &self.content(version));
        }
    }
}

/// The versions of one kind of file that one reader saw.
#[derive(Debug, Default)]
struct Seen {
    complete: usize,
    cut: usize,
    /// By file and entity tag: the letter and how often it was seen.
    versions: HashMap<(String, String), (Option<u8>, usize)>,
}

impl Seen {
    fn add(&mut self, file: &str, response: &Response) {
        let letter = response.body.first().copied();
        let mixed = response.body.iter().find(|&&byte| Some(byte) != letter);
        assert_eq!(mixed, None, "{file} begins with {letter:?}, mixed");
        self.complete += 1;
        // A large file that has just been written has no tag yet.
        let Some(etag) = response.field("etag").map(str::to_owned) else { return };
        let known = *self.versions.entry((file.to_owned(), etag)).or_insert((letter, response.body.len()));
        assert_eq!(known, (letter, response.body.len()), "one entity tag for two contents of {file}");
    }

    fn merge(&mut self, other: Self) {
        self.complete += other.complete;
        self.cut += other.cut;
        for (key, version) in other.versions {
            let known = *self.versions.entry(key.clone()).or_insert(version);
            assert_eq!(known, version, "one entity tag for two contents of {}", key.0);
        }
    }
}

fn send_request(stream: &mut TcpStream, path: &str) {
    // In one write: a second one would wait for the acknowledgement of the first.
    stream.write_all(format!("GET /{path} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes()).unwrap();
}

/// Sends a GET on a connection that stays open. Returns `None` if the response was truncated.
fn get_or_truncated(stream: &mut TcpStream, path: &str) -> Option<Response> {
    send_request(stream, path);
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    let head_end = loop {
        let count = uninterrupted(|| stream.read(&mut buffer)).unwrap();
        assert!(count > 0, "{path}: closed before a whole head");
        bytes.extend_from_slice(&buffer[..count]);
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let length: usize = Response::parse(&bytes[..head_end]).field("content-length").unwrap().parse().unwrap();
    while bytes.len() < head_end + length {
        match uninterrupted(|| stream.read(&mut buffer)) {
            Ok(0) => return None,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
            Err(error) => panic!("{path}: {error}"),
        }
    }
    Some(Response::parse(&bytes))
}

/// Reads the files of `kind` in turn until `done`.
fn read_all(server: &Server, kind: Kind, done: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let mut stream = server.connect();
    while !done.load(Ordering::Relaxed) {
        for index in 0..FILES_EACH {
            let file = kind.file(index);
            match get_or_truncated(&mut stream, &file) {
                Some(response) if response.status == 200 => seen.add(&file, &response),
                // The file changed each time it was read: no response is better than a mixed one.
                Some(response) => assert!(kind.in_place && response.status == 503, "{file}: {}", response.status),
                None => {
                    seen.cut += 1;
                    stream = server.connect();
                }
            }
        }
    }
    seen
}

#[test]
fn no_response_mixes_versions_while_files_are_replaced_under_load() {
    let folder = Folder::new();
    let write_all = |in_place: bool, version: usize| {
        for kind in KINDS.iter().filter(|kind| kind.in_place == in_place) {
            (0..FILES_EACH).for_each(|index| kind.write(folder.path(), index, version));
        }
    };
    write_all(false, 0);
    write_all(true, 0);
    let server = Server::start(folder.path(), &["--workers", "2"]);
    let done = AtomicBool::new(false);
    let seen: Vec<(Kind, Seen)> = thread::scope(|scope| {
        let readers: Vec<_> = KINDS
            .iter()
            .flat_map(|kind| [kind, kind])
            .map(|&kind| {
                scope.spawn({
                    let (server, done) = (&server, &done);
                    move || (kind, read_all(server, kind, done))
                })
            })
            .collect();
        let writers = [false, true].map(|in_place| {
            let write_all = &write_all;
            scope.spawn(move || {
                for version in 1..=VERSIONS {
                    write_all(in_place, version);
                    // Before Linux 6.13, two versions within one tick could not be distinguished.
                    thread::sleep(TICK);
                }
            })
        });
        let written = writers.map(thread::ScopedJoinHandle::join);
        done.store(true, Ordering::Relaxed);
        assert!(written.iter().all(Result::is_ok), "a writer failed");
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    let mut by_kind: HashMap<&str, Seen> = HashMap::new();
    for (kind, seen) in seen {
        by_kind.entry(kind.name).or_default().merge(seen);
    }
    for kind in KINDS {
        let seen = &by_kind[kind.name];
        let letters: HashSet<_> = seen.versions.values().map(|(letter, _)| letter).collect();
        println!("{}: {} complete, {} cut, {} letters", kind.name, seen.complete, seen.cut, letters.len());
        assert!(seen.complete > 0 && letters.len() > 1, "{}", kind.name);
        // Only a file that is overwritten in place can truncate a response. A file that was renamed over is still
        // readable.
        assert!(seen.cut == 0 || kind.name == "large-in-place", "{}: {} cut", kind.name, seen.cut);
    }
    thread::sleep(SEEN_AFTER);
    for kind in KINDS {
        for index in 0..FILES_EACH {
            let response = server.get(&format!("/{}", kind.file(index)));
            assert!(response.body == kind.content(VERSIONS), "{} is not the last version", kind.file(index));
        }
    }
}

/// The reader is slow, and the file is replaced during the download.
#[test]
fn a_download_survives_a_rename_of_its_file_but_not_an_overwrite() {
    const BYTES: usize = 64 * 1024 * 1024;
    let folder = Folder::with(&[("renamed", &vec![b'o'; BYTES]), ("rewritten", &vec![b'o'; BYTES])]);
    let server = Server::start(folder.path(), &[]);
    for (name, whole) in [("renamed", true), ("rewritten", false)] {
        let mut stream = server.connect();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        send_request(&mut stream, name);
        let mut first = vec![0; 100_000];
        stream.read_exact(&mut first).unwrap();
        let content = vec![b'n'; BYTES];
        if whole {
            replace(&folder.path().join(name), &content);
        } else {
            fs::write(folder.path().join(name), &content).unwrap();
        }
        let head_end = first.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
        let mut rest = vec![0; head_end + BYTES - first.len()];
        let complete = stream.read_exact(&mut rest).is_ok();
        assert_eq!(complete, whole, "{name}");
        if whole {
            assert!(first[head_end..].iter().chain(&rest).all(|&byte| byte == b'o'), "{name} is mixed");
            // The connection stays open.
            send_request(&mut stream, name);
            assert_eq!(read_response(&mut stream).status, 200);
        }
    }
    let (_, said) = server.stop();
    assert!(said.contains("closed_file_changed"), "{said}");
}

/// A change of a file during a download, and whether the download can finish.
type Change = (&'static str, bool, fn(&Path));

const DOWNLOAD_BYTES: usize = 32 * 1024 * 1024;

fn open_for_append(path: &Path) -> fs::File {
    fs::File::options().append(true).open(path).unwrap()
}

const CHANGES: &[Change] = &[
    ("appended", true, |path| open_for_append(path).write_all(b"one more line\n").unwrap()),
    ("appended-and-dated-back", true, |path| {
        let modified = fs::metadata(path).unwrap().modified().unwrap();
        let mut file = open_for_append(path);
        file.write_all(b"one more line\n").unwrap();
        file.set_modified(modified).unwrap();
    }),
    ("linked", true, |path| fs::hard_link(path, path.with_extension("link")).unwrap()),
    ("locked", true, |path| fs::set_permissions(path, fs::Permissions::from_mode(0o444)).unwrap()),
    ("moved", true, |path| fs::rename(path, path.with_extension("moved")).unwrap()),
    ("rewritten", false, |path| fs::write(path, vec![b'n'; DOWNLOAD_BYTES]).unwrap()),
    ("rewritten-longer", false, |path| fs::write(path, vec![b'n'; DOWNLOAD_BYTES + 1000]).unwrap()),
    // As of a page in which a word was inserted: it begins as before, but its end has moved.
    ("inserted", false, |path| {
        let longer = [&content_with_lines()[..100], b"more", &content_with_lines()[100..]].concat();
        fs::write(path, longer).unwrap();
    }),
    ("shortened", false, |path| fs::File::options().write(true).open(path).unwrap().set_len(100_000).unwrap()),
    ("shortened-and-grown", false, |path| {
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_len(100_000).unwrap();
        file.set_len(DOWNLOAD_BYTES as u64 + 1).unwrap();
    }),
];

fn content_with_lines() -> Vec<u8> {
    let lines = (0..).flat_map(|number: u32| format!("{number}\n").into_bytes());
    lines.take(DOWNLOAD_BYTES).collect()
}

#[test]
fn a_download_finishes_if_the_bytes_it_began_with_are_still_there() {
    let content = content_with_lines();
    for settings in ["", "sockets { sendfile #false; }"] {
        let (site, folder) = (Folder::new(), Folder::new());
        for (name, _, _) in CHANGES {
            site.write(name, &content);
        }
        thread::sleep(TICK);
        let root = site.path().display();
        let server =
            Server::run(&folder, &format!("{settings}\nsite \"*\" {{\nlisten \"127.0.0.1:0\"\nfiles \"{root}\"\n}}\n"));
        for &(name, finishes, change) in CHANGES {
            // The whole file, and a range without its end.
            for first in [0, DOWNLOAD_BYTES / 4] {
                let last = DOWNLOAD_BYTES - 1 - first / 8;
                let part = format!("Range: bytes={first}-{last}\r\n");
                let range = if first == 0 { "" } else { part.as_str() };
                let mut stream = server.connect();
                let request = format!("GET /{name} HTTP/1.1\r\nHost: test\r\n{range}Connection: close\r\n\r\n");
                stream.write_all(request.as_bytes()).unwrap();
                let mut received = vec![0; 100_000];
                stream.read_exact(&mut received).unwrap();
                change(&site.path().join(name));
                let ended = uninterrupted(|| stream.read_to_end(&mut received));
                let response = Response::parse(&received);
                let promised = response.field("content-length").unwrap().parse::<usize>().unwrap();
                assert_eq!(promised, last + 1 - first, "{name}");
                let is_whole = ended.is_ok() && response.body.len() == promised;
                assert_eq!(is_whole, finishes, "{settings} {name} from {first}");
                if finishes {
                    assert!(response.body == content[first..=last], "{settings} {name} from {first}");
                }
                let path = site.path().join(name);
                let _ = fs::remove_file(path.with_extension("link"));
                let _ = fs::remove_file(path.with_extension("moved"));
                replace(&path, &content);
                thread::sleep(TICK);
            }
            fs::remove_file(site.path().join(name)).unwrap();
        }
    }
}

/// The window of a client over HTTP/3 is closed while the file changes.
#[test]
fn a_download_over_http3_finishes_if_the_bytes_it_began_with_are_still_there() {
    const BYTES: usize = 1 << 20;
    let (site, folder, certificate) = (Folder::new(), Folder::new(), Certificate::new());
    let content = content_with_lines();
    let changes = || CHANGES.iter().filter(|(_, finishes, _)| *finishes);
    for (name, _, _) in changes() {
        site.write(name, &content[..BYTES]);
    }
    thread::sleep(TICK);
    let Certificate { chain, key, .. } = &certificate;
    let listen = format!("listen \"127.0.0.1:0\" tls=#true http3=#true\ntls cert={chain:?} key={key:?}");
    let server = Server::run(&folder, &format!("site \"*\" {{\n{listen}\nfiles {:?}\n}}\n", site.path()));
    for &(name, _, change) in changes() {
        let path = site.path().join(name);
        let digest = run(tool("sha256sum").arg(&path));
        let held = Held::start(server.address, "slow", &[&format!("/{name}"), "1"]);
        change(&path);
        let digest = digest.split_whitespace().next().unwrap();
        assert_eq!(held.finish(), serde_json::json!([{ "size": BYTES, "sha256": digest }]), "{name}");
    }
}
