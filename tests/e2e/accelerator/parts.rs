//! Parts of responses that are too large to be fetched completely for a range: each is stored as it arrives, a range
//! that the stored parts cover is a hit, and only missing ranges are requested. Limits apply, and parts of two versions
//! are never combined.

use super::super::harness::{Folder, Server, flatout, wait_until};
use super::super::tool::{run, tool};
use super::origin::{Origin, Request, Then, response};
use super::{Answer, ask, configure, get};
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Larger responses are forwarded as ranges.
pub(super) const SMALL: &str = "range-fetch-max \"4KiB\"";

/// The byte at `offset` of a version. No two blocks are alike, and versions differ in every byte.
fn byte(version: u64, offset: usize) -> u8 {
    ((offset ^ (offset >> 8) ^ (offset >> 16)) as u8 & 0x7f) | (version as u8 & 1) << 7
}

fn content(version: u64, first: usize, last: usize) -> Vec<u8> {
    (first..=last).map(|offset| byte(version, offset)).collect()
}

/// The first and the last byte position in `Range`, for content of `bytes` bytes.
pub(super) fn range_of(request: &Request, bytes: usize) -> Option<(usize, usize)> {
    let field = request.field("range")?;
    let (first, last) = field.strip_prefix("bytes=")?.split_once('-')?;
    if first.is_empty() {
        return Some((bytes - last.parse::<usize>().ok()?, bytes - 1));
    }
    Some((first.parse().ok()?, last.parse().unwrap_or(bytes - 1).min(bytes - 1)))
}

/// The origin's response for a version with `bytes` bytes of content.
fn response_for(request: &Request, version: u64, bytes: usize, cache_control: &str) -> Vec<u8> {
    let tag = format!("\"v{version}\"");
    let fields = format!("Cache-Control: {cache_control}\r\nETag: {tag}\r\nContent-Type: video/probe\r\n");
    if request.field("if-none-match").as_ref() == Some(&tag) {
        return format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n").into_bytes();
    }
    let applies = request.field("if-range").is_none_or(|other| other == tag);
    match range_of(request, bytes).filter(|_| applies) {
        None => response("200 OK", &fields, &content(version, 0, bytes - 1)),
        Some((first, last)) => {
            let fields = format!("{fields}Content-Range: bytes {first}-{last}/{bytes}\r\n");
            response("206 Partial Content", &fields, &content(version, first, last))
        }
    }
}

/// An origin with one object, which honours Range and conditions and counts what it sends.
struct Store {
    origin: Origin,
    version: Arc<AtomicU64>,
    bytes: usize,
}

impl Store {
    fn start(bytes: usize, cache_control: &'static str) -> Self {
        let version = Arc::new(AtomicU64::new(0));
        let present = Arc::clone(&version);
        let origin = Origin::start(move |request, stream| {
            let _ = stream.write_all(&response_for(request, present.load(Ordering::SeqCst), bytes, cache_control));
            Then::Keep
        });
        Self { origin, version, bytes }
    }

    /// Range and If-Range of the requests after the first `seen`.
    fn ranges_since(&self, seen: usize) -> Vec<(String, String)> {
        let field = |request: &Request, name: &str| request.field(name).unwrap_or_default();
        let requests = self.origin.requests();
        requests[seen..].iter().map(|request| (field(request, "range"), field(request, "if-range"))).collect()
    }

    fn seen(&self) -> usize {
        self.origin.requests().len()
    }

    fn check(&self, answer: &Answer, version: u64, first: usize, last: usize) {
        assert_eq!(answer.status, 206, "{:?}", answer.fields);
        let range = format!("bytes {first}-{last}/{}", self.bytes);
        assert_eq!(answer.field("content-range"), Some(range.as_str()));
        assert_eq!(answer.field("etag"), Some(format!("\"v{version}\"").as_str()));
        assert_eq!(answer.field("content-type"), Some("video/probe"));
        assert!(answer.is_whole && answer.body == content(version, first, last), "{first} to {last}");
    }

    fn check_whole(&self, answer: &Answer, version: u64) {
        assert!(answer.status == 200 && answer.is_whole, "{:?}", answer.fields);
        assert_eq!(answer.field("etag"), Some(format!("\"v{version}\"").as_str()));
        assert!(answer.body == content(version, 0, self.bytes - 1));
    }
}

fn part(server: &Server, first: usize, last: usize) -> Answer {
    ask(server, "GET", "/file", &format!("Range: bytes={first}-{last}\r\n"))
}

fn is_hit(answer: &Answer) -> bool {
    answer.field("cache-status").unwrap().contains("; hit")
}

fn ranges(asked: &[(&str, &str)]) -> Vec<(String, String)> {
    asked.iter().map(|(range, if_range)| ((*range).to_owned(), (*if_range).to_owned())).collect()
}

#[test]
fn only_missing_ranges_are_requested() {
    // Parts of this size are not merged: each is a separate file.
    const PART: usize = 100_000;
    let (folder, store) = (Folder::new(), Store::start(10 * PART, "max-age=600"));
    let server = configure(&folder, &store.origin.url(), SMALL, "");
    for number in [1, 3, 7] {
        store.check(&part(&server, number * PART, (number + 1) * PART - 1), 0, number * PART, (number + 1) * PART - 1);
    }
    // First a range within one part, and then a range that exceeds one part.
    let seen = store.seen();
    let within = part(&server, 3 * PART + 5, 3 * PART + 500);
    store.check(&within, 0, 3 * PART + 5, 3 * PART + 500);
    assert!(is_hit(&within) && store.seen() == seen);
    store.check(&part(&server, PART / 2, 4 * PART + 9), 0, PART / 2, 4 * PART + 9);
    let missing = [("bytes=50000-99999", ""), ("bytes=200000-299999", ""), ("bytes=400000-400009", "")];
    assert_eq!(store.ranges_since(seen), ranges(&missing));
    // The full content, from the same version only.
    let seen = store.seen();
    store.check_whole(&get(&server, "/file"), 0);
    let missing = [("bytes=0-49999", "\"v0\""), ("bytes=400010-699999", "\"v0\""), ("bytes=800000-999999", "\"v0\"")];
    assert_eq!(store.ranges_since(seen), ranges(&missing));
    // Nothing is missing any more.
    let seen = store.seen();
    let whole = get(&server, "/file");
    store.check_whole(&whole, 0);
    assert!(is_hit(&whole));
    for range in ["bytes=-700000", "bytes=0-", "bytes=123-456789"] {
        assert!(is_hit(&ask(&server, "GET", "/file", &format!("Range: {range}\r\n"))), "{range}");
    }
    let several = ask(&server, "GET", "/file", "Range: bytes=90000-110000,690000-710000\r\n");
    assert!(several.status == 206 && is_hit(&several));
    let body = &several.body;
    for (first, last) in [(90_000, 110_000), (690_000, 710_000)] {
        let wanted = content(0, first, last);
        assert!(body.windows(wanted.len()).any(|window| window == wanted), "{first} to {last}");
    }
    assert_eq!(ask(&server, "GET", "/file", "If-None-Match: \"v0\"\r\n").status, 304);
    assert_eq!(ask(&server, "GET", "/file", "Range: bytes=2000000-\r\n").status, 416);
    assert_eq!(store.seen(), seen);
}

/// Stored parts are combined for a third-party client over HTTP/2.
#[test]
fn parts_are_combined_over_http2() {
    let (folder, store) = (Folder::new(), Store::start(1_000_000, "max-age=600"));
    let text = format!(
        "workers 2\nadmin off=#true\nsite \"*\" {{\nlisten \"127.0.0.1:0\" h2c=#true\ncache {{\n{SMALL}\n}}\nproxy \"{}\"\n}}\n",
        store.origin.url()
    );
    let server = Server::run(&folder, &text);
    let fetch = |range: &str| {
        let file = folder.path().join("fetched");
        let mut curl = tool("curl");
        curl.args(["--silent", "--fail", "--http2-prior-knowledge", "--range", range, "--output"]).arg(&file);
        run(curl.arg(server.url("/file")));
        fs::read(file).unwrap()
    };
    assert!(fetch("200000-399999") == content(0, 200_000, 399_999));
    assert!(fetch("600000-799999") == content(0, 600_000, 799_999));
    assert!(fetch("100-999998") == content(0, 100, 999_998));
    let seen = store.seen();
    assert!(fetch("0-999999") == content(0, 0, 999_999));
    assert_eq!(store.ranges_since(seen), ranges(&[("bytes=0-99", ""), ("bytes=999999-999999", "")]));
    let seen = store.seen();
    assert!(fetch("0-999999") == content(0, 0, 999_999));
    assert_eq!(store.seen(), seen);
}

/// A function that downloads a URL to a file, and the range that the cache then stores.
type Client<'a> = (&'a dyn Fn(&str, &str), &'a str);

/// Real clients that download in parts or resume: the second download needs no request to the origin.
#[test]
fn second_downloads_of_large_files_are_hits() {
    const BYTES: usize = 3_000_000;
    let whole = content(0, 0, BYTES - 1);
    let clients: [Client<'_>; 3] = [
        (
            &|url, file| {
                run(tool("curl").args(["-sS", "-r", "1000000-1999999", "-o", file, url]));
                assert!(fs::read(file).unwrap() == whole[1_000_000..2_000_000]);
            },
            "1000000-1999999",
        ),
        (
            &|url, file| {
                fs::write(file, &whole[..1_300_000]).unwrap();
                run(tool("wget").args(["-q", "-c", "-O", file, url]));
                assert!(fs::read(file).unwrap() == whole);
            },
            "1300000-",
        ),
        (
            &|url, file| {
                aria2c(url, file);
                assert!(fs::read(file).unwrap() == whole);
            },
            "0-",
        ),
    ];
    for (client, range) in clients {
        let (folder, store) = (Folder::new(), Store::start(BYTES, "max-age=600"));
        let server = configure(&folder, &store.origin.url(), SMALL, "");
        let file = folder.path().join("download");
        let file = file.to_str().unwrap();
        client(&server.url("/file"), file);
        wait_until_stored(&server, range);
        let once = store.seen();
        client(&server.url("/file"), file);
        assert_eq!(store.ranges_since(once), [], "the second download is a hit");
    }
}

/// Waits until this range of the file is stored. A client may receive the last byte before that.
fn wait_until_stored(server: &Server, range: &str) {
    // The host of the clients' URL, because it is part of the cache key.
    let host = server.address;
    let fields = format!("Host: {host}\r\nRange: bytes={range}\r\nCache-Control: only-if-cached\r\n");
    wait_until(&format!("{range} is stored"), || ask(server, "GET", "/file", &fields).status == 206);
}

fn aria2c(url: &str, file: &str) {
    let (folder, name) = file.rsplit_once('/').unwrap();
    run(tool("aria2c")
        .args([
            "-q",
            "-x16",
            "-s16",
            "-k1M",
            "--min-split-size=1M",
            "--no-conf",
            "--no-netrc",
            "--file-allocation=none",
        ])
        .args(["--allow-overwrite=true", "--remove-control-file=true", "-d", folder, "-o", name, url]));
}

/// The default settings apply, so the file has to be larger than their limit.
#[test]
fn a_second_aria2c_of_40_megabytes_needs_no_origin() {
    const BYTES: usize = 40_000_000;
    let (folder, store) = (Folder::new(), Store::start(BYTES, "max-age=600"));
    let server = configure(&folder, &store.origin.url(), "", "");
    let file = folder.path().join("download");
    let whole = content(0, 0, BYTES - 1);
    for round in 0..2 {
        let seen = store.seen();
        aria2c(&server.url("/file"), file.to_str().unwrap());
        assert!(fs::read(&file).unwrap() == whole, "round {round}");
        wait_until_stored(&server, "0-");
        assert!(round == 0 || store.seen() == seen, "{:?}", store.ranges_since(seen));
    }
    let seen = store.seen();
    run(tool("curl").args(["-sS", "-o"]).arg(&file).arg(server.url("/file")));
    assert!(fs::read(&file).unwrap() == whole);
    assert_eq!(store.seen(), seen, "all parts are there");
}

#[test]
fn parts_of_different_versions_never_mix() {
    const BYTES: usize = 400_000;
    let (folder, store) = (Folder::new(), Store::start(BYTES, "max-age=600"));
    let server = configure(&folder, &store.origin.url(), SMALL, "");
    let change = || store.version.fetch_add(1, Ordering::SeqCst) + 1;
    store.check(&part(&server, 100_000, 199_999), 0, 100_000, 199_999);
    store.check(&part(&server, 300_000, 399_999), 0, 300_000, 399_999);
    // The stored parts do not match the new version, so the range is requested again and comes from one version.
    let version = change();
    store.check(&part(&server, 150_000, 249_999), version, 150_000, 249_999);
    store.check(&part(&server, 0, BYTES - 1), version, 0, BYTES - 1);
    let all = part(&server, 0, BYTES - 1);
    store.check(&all, version, 0, BYTES - 1);
    assert!(is_hit(&all));
    // A client that requests the full content gets it through the same request.
    purge_all(&server);
    store.check(&part(&server, 100_000, 199_999), version, 100_000, 199_999);
    let version = change();
    let seen = store.seen();
    store.check_whole(&get(&server, "/file"), version);
    assert_eq!(store.ranges_since(seen), ranges(&[("bytes=0-99999", "\"v1\"")]));
    let whole = get(&server, "/file");
    store.check_whole(&whole, version);
    assert!(is_hit(&whole));
    // A client with a part of the old version gets the full current version.
    purge_all(&server);
    store.check(&part(&server, 100_000, 199_999), version, 100_000, 199_999);
    let other = ask(&server, "GET", "/file", "Range: bytes=100000-199999\r\nIf-Range: \"v0\"\r\n");
    store.check_whole(&other, version);
}

/// Purges everything that is stored.
fn purge_all(server: &Server) {
    assert_eq!(ask(server, "POST", "/file", "Content-Length: 0\r\n").status, 200);
}

/// If the version changes after the head was sent, the response is truncated.
#[test]
fn a_version_change_during_a_response_truncates_it() {
    const BYTES: usize = 300_000;
    let version = Arc::new(AtomicU64::new(0));
    let present = Arc::clone(&version);
    let origin = Origin::start(move |request, stream| {
        let _ = stream.write_all(&response_for(request, present.load(Ordering::SeqCst), BYTES, "max-age=600"));
        if request.field("range").as_deref() == Some("bytes=0-99999") {
            present.store(1, Ordering::SeqCst);
        }
        Then::Keep
    });
    let folder = Folder::new();
    let server = configure(&folder, &origin.url(), SMALL, "");
    assert_eq!(part(&server, 100_000, 199_999).status, 206);
    let cut = get(&server, "/file");
    assert!(cut.status == 200 && !cut.is_whole);
    assert!(cut.body == content(0, 0, cut.body.len() - 1));
    let next = get(&server, "/file");
    assert!(next.is_whole && next.body == content(1, 0, BYTES - 1));
}

/// A private response is never combined with a shared one, and it replaces what was stored.
#[test]
fn private_content_is_never_served_from_stored_parts() {
    const BYTES: usize = 300_000;
    let private = Arc::new(AtomicU64::new(0));
    let is_private = Arc::clone(&private);
    let origin = Origin::start(move |request, stream| {
        let cache_control = if is_private.load(Ordering::SeqCst) == 1 { "private, max-age=600" } else { "max-age=600" };
        let _ = stream.write_all(&response_for(request, 0, BYTES, cache_control));
        Then::Keep
    });
    let folder = Folder::new();
    let server = configure(&folder, &origin.url(), SMALL, "");
    assert_eq!(part(&server, 0, 99_999).status, 206);
    assert!(is_hit(&part(&server, 0, 9)));
    // Neither stored nor shared with requests that RFC 9111 section 3.5 excludes.
    let authorized = ask(&server, "GET", "/file", "Range: bytes=0-9\r\nAuthorization: Basic YTpi\r\n");
    assert!(authorized.status == 206 && !is_hit(&authorized));
    private.store(1, Ordering::SeqCst);
    let answer = part(&server, 50_000, 149_999);
    assert!(answer.is_whole && answer.body == content(0, 50_000, 149_999));
    for _ in 0..2 {
        let answer = part(&server, 0, 9);
        assert!(!is_hit(&answer) && answer.field("cache-control").unwrap().contains("private"), "{:?}", answer.fields);
    }
}

/// The origin confirms one stale part, or all of them, with one response: a 304 or the next part.
#[test]
fn stale_parts_are_validated_together() {
    const BYTES: usize = 400_000;
    let lifetime = Arc::new(AtomicU64::new(1));
    let version = Arc::new(AtomicU64::new(0));
    let (now, present) = (Arc::clone(&lifetime), Arc::clone(&version));
    let origin = Origin::start(move |request, stream| {
        let cache_control = format!("max-age={}", now.load(Ordering::SeqCst));
        let _ = stream.write_all(&response_for(request, present.load(Ordering::SeqCst), BYTES, &cache_control));
        Then::Keep
    });
    let folder = Folder::new();
    let server = configure(&folder, &origin.url(), SMALL, "");
    for first in [0, 200_000] {
        assert_eq!(part(&server, first, first + 99_999).status, 206);
    }
    let stale = || {
        let only = |first: usize| {
            let fields = format!("Range: bytes={first}-{first}\r\nCache-Control: only-if-cached\r\n");
            ask(&server, "GET", "/file", &fields).status
        };
        wait_until("the parts are stale", || only(0) == 504 && only(200_000) == 504);
    };
    stale();
    lifetime.store(600, Ordering::SeqCst);
    let seen = origin.requests().len();
    let answer = part(&server, 10, 19);
    assert!(answer.status == 206 && answer.body == content(0, 10, 19), "{:?}", answer.fields);
    let asked = &origin.requests()[seen..];
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].field("if-none-match").as_deref(), Some("\"v0\""));
    // A different version arrives as the requested range, not as the full content.
    assert_eq!(asked[0].field("range").as_deref(), Some("bytes=10-19"));
    assert!(is_hit(&part(&server, 200_000, 200_009)), "the other part is as fresh");
    // A missing range also confirms the stored parts. A different version replaces them.
    lifetime.store(1, Ordering::SeqCst);
    purge_all(&server);
    assert_eq!(part(&server, 0, 99_999).status, 206);
    wait_until_stale(&server);
    lifetime.store(600, Ordering::SeqCst);
    let seen = origin.requests().len();
    let answer = part(&server, 0, 199_999);
    assert!(answer.is_whole && answer.body == content(0, 0, 199_999));
    let asked: Vec<_> = origin.requests()[seen..].iter().map(|request| request.field("range")).collect();
    assert_eq!(asked, [Some("bytes=100000-199999".to_owned())]);
    assert!(is_hit(&part(&server, 0, 9)));
    lifetime.store(1, Ordering::SeqCst);
    purge_all(&server);
    assert_eq!(part(&server, 0, 99_999).status, 206);
    wait_until_stale(&server);
    version.store(1, Ordering::SeqCst);
    let answer = part(&server, 0, 9);
    assert!(answer.status == 206 && answer.is_whole && answer.body == content(1, 0, 9), "{:?}", answer.fields);
}

/// Waits until the part stored at the beginning is stale.
fn wait_until_stale(server: &Server) {
    let fields = "Range: bytes=0-0\r\nCache-Control: only-if-cached\r\n";
    wait_until("the part is stale", || ask(server, "GET", "/file", fields).status == 504);
}

/// An aborted download resumes where it stopped.
#[test]
fn the_received_part_of_an_aborted_download_is_stored() {
    const BYTES: usize = 20_000_000;
    const SENT: usize = 300_000;
    let origin = Origin::start(|request, stream| {
        let all = response_for(request, 0, BYTES, "max-age=600");
        if request.field("range").is_some() {
            let _ = stream.write_all(&all);
            return Then::Keep;
        }
        // The origin sends nothing more until the client has disconnected.
        let head = all.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
        let _ = stream.write_all(&all[..head + SENT]);
        let _ = stream.read(&mut [0]);
        Then::Close
    });
    let store = Store { origin, version: Arc::default(), bytes: BYTES };
    let folder = Folder::new();
    let server = configure(&folder, &store.origin.url(), SMALL, "");
    let mut client = server.connect();
    client.write_all(b"GET /file HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    let mut beginning = vec![0; SENT];
    client.read_exact(&mut beginning).unwrap();
    drop(client);
    let fields = "Range: bytes=0-99999\r\nCache-Control: only-if-cached\r\n";
    wait_until("the beginning is stored", || ask(&server, "GET", "/file", fields).status == 206);
    let answer = ask(&server, "GET", "/file", fields);
    store.check(&answer, 0, 0, 99_999);
    let seen = store.seen();
    store.check_whole(&get(&server, "/file"), 0);
    assert_eq!(store.ranges_since(seen), ranges(&[(&format!("bytes={SENT}-{}", BYTES - 1), "\"v0\"")]));
}

/// An origin with a huge object. It counts the bytes it sends, for range requests and for all other requests.
fn huge_origin(bytes: usize, sent: &Arc<AtomicU64>, whole: &Arc<AtomicU64>) -> Origin {
    let (sent, whole) = (Arc::clone(sent), Arc::clone(whole));
    Origin::start(move |request, stream| {
        let fields = "Cache-Control: max-age=600\r\nETag: \"v0\"\r\n";
        if let Some((first, last)) = range_of(request, bytes) {
            sent.fetch_add((last - first + 1) as u64, Ordering::SeqCst);
            let fields = format!("{fields}Content-Range: bytes {first}-{last}/{bytes}\r\n");
            let _ = stream.write_all(&response("206 Partial Content", &fields, &content(0, first, last)));
            return Then::Keep;
        }
        let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {bytes}\r\n\r\n").as_bytes());
        let piece = content(0, 0, 65_535);
        for _ in 0..bytes / piece.len() {
            if stream.write_all(&piece).is_err() {
                break;
            }
            whole.fetch_add(piece.len() as u64, Ordering::SeqCst);
        }
        Then::Close
    })
}

/// Very many tiny ranges of a huge object: the origin sends no more than they request, apart from data in flight when
/// the first request is cancelled, and the number of stored parts is limited.
#[test]
fn tiny_ranges_are_not_amplified_at_the_origin() {
    const BYTES: usize = 1_000_000_000;
    const RANGES: usize = 1500;
    /// `PARTS_MAX` in the cache's core.
    const PARTS_MAX: u64 = 512;
    let (sent, whole) = (Arc::default(), Arc::default());
    let origin = huge_origin(BYTES, &sent, &whole);
    let folder = Folder::new();
    let admin = folder.path().join("admin");
    let server = Server::accelerate(&origin.url(), &["--admin", admin.to_str().unwrap()]);
    let mut asked = 0;
    for number in 0..RANGES {
        // The offsets are multiples of a prime number.
        let first = number * 7_919_377 % (BYTES - 100);
        let last = first + number % 100;
        asked += last - first + 1;
        let answer = part(&server, first, last);
        assert!(answer.status == 206 && answer.body == content(0, first, last), "{first}");
    }
    assert_eq!(origin.requests().iter().filter(|request| request.field("range").is_none()).count(), 1);
    assert!(sent.load(Ordering::SeqCst) <= asked as u64);
    // Allows for the socket buffers on both sides.
    assert!(whole.load(Ordering::SeqCst) <= 16 << 20, "{whole:?}");
    let objects = stored_objects(&admin);
    assert!((2..=PARTS_MAX).contains(&objects), "{objects} objects");
}

fn stored_objects(admin: &Path) -> u64 {
    let output = flatout().args(["status", "--json", "--admin"]).arg(admin).output().unwrap();
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = status["store"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == "objects").unwrap_or_else(|| panic!("{status:#}"));
    row["value"].as_str().unwrap().parse().unwrap()
}

/// Parts on a volume are still available after a restart.
#[test]
fn parts_survive_a_restart() {
    const PART: usize = 200_000;
    let (folder, store) = (Folder::new(), Store::start(4 * PART, "max-age=600"));
    let volume = folder.path().join("volume");
    let text = format!(
        "workers 1\nadmin off=#true\nstore {{\n    disk \"{}\" \"1GiB\"\n}}\nsite \"*\" {{\nlisten \"127.0.0.1:0\"\ncache {{\n{SMALL}\n}}\nproxy \"{}\"\n}}\n",
        volume.display(),
        store.origin.url()
    );
    let server = Server::run(&folder, &text);
    for number in [0, 2, 3] {
        store.check(&part(&server, number * PART, (number + 1) * PART - 1), 0, number * PART, (number + 1) * PART - 1);
    }
    assert!(server.stop().0.success());
    let server = Server::run(&folder, &text);
    let seen = store.seen();
    let both = part(&server, 2 * PART + 7, 4 * PART - 7);
    store.check(&both, 0, 2 * PART + 7, 4 * PART - 7);
    assert!(is_hit(&both) && store.seen() == seen);
    store.check_whole(&get(&server, "/file"), 0);
    assert_eq!(store.ranges_since(seen), ranges(&[("bytes=200000-399999", "\"v0\"")]));
    assert!(server.stop().0.success());
    let server = Server::run(&folder, &text);
    let whole = get(&server, "/file");
    store.check_whole(&whole, 0);
    assert!(is_hit(&whole));
}

/// A part that arrives in chunks, together with its head, is framed correctly for its client. Otherwise, the client
/// would take the next response for content of this one.
#[test]
fn a_chunked_206_is_framed_correctly() {
    let origin = Origin::start(|_, stream| {
        let head = "HTTP/1.1 206 Partial Content\r\nCache-Control: max-age=60\r\nETag: \"one\"\r\n\
            Content-Range: bytes 10-12/400000\r\nTransfer-Encoding: chunked\r\n\r\n";
        let _ = stream.write_all(format!("{head}3\r\nabc\r\n0\r\n\r\n").as_bytes());
        Then::Keep
    });
    let folder = Folder::new();
    let server = configure(&folder, &origin.url(), SMALL, "");
    for _ in 0..2 {
        let answer = part(&server, 10, 12);
        assert_eq!((answer.status, answer.field("content-length")), (206, Some("3")), "{:?}", answer.fields);
        assert!(answer.is_whole && answer.body == b"abc");
    }
}
