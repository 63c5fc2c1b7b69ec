//! Ranges: the first request for a part of a response stores the full response, so that downloads in parts, resumed
//! downloads and media players get hits. Limits prevent clients from making an origin send much for little.

use super::super::harness::{Folder, Server};
use super::super::tool::{run, tool};
use super::origin::{Origin, Request, Then, response};
use super::{Answer, ask, configure, get};
use std::fs;
use std::io::Write as _;
use std::thread;

const BYTES: usize = 1024 * 1024;

fn content() -> Vec<u8> {
    (0..BYTES).map(|index| (index / 7 % 251) as u8).collect()
}

/// The first and the last byte position in `Range`.
fn range_of(request: &Request) -> Option<(usize, usize)> {
    let field = request.field("range")?;
    let (first, last) = field.strip_prefix("bytes=")?.split_once('-')?;
    Some((first.parse().ok()?, last.parse().unwrap_or(BYTES - 1).min(BYTES - 1)))
}

/// An origin with one file, which honours Range.
fn origin(cache_control: &'static str) -> Origin {
    let content = content();
    Origin::start(move |request, stream| {
        let fields = format!("Cache-Control: {cache_control}\r\nETag: \"one\"\r\nAccept-Ranges: bytes\r\n");
        let answer = match range_of(request) {
            None => response("200 OK", &fields, &content),
            Some((first, last)) => {
                let fields = format!("{fields}Content-Range: bytes {first}-{last}/{BYTES}\r\n");
                response("206 Partial Content", &fields, &content[first..=last])
            }
        };
        let _ = stream.write_all(&answer);
        Then::Keep
    })
}

fn part(server: &Server, first: usize, last: usize) -> Answer {
    ask(server, "GET", "/file", &format!("Range: bytes={first}-{last}\r\n"))
}

fn check(answer: &Answer, first: usize, last: usize) {
    assert_eq!(answer.status, 206);
    assert_eq!(answer.field("content-range"), Some(format!("bytes {first}-{last}/{BYTES}").as_str()));
    assert!(answer.is_whole && answer.body == content()[first..=last], "{first} to {last}");
}

#[test]
fn the_first_range_request_stores_the_full_response() {
    let (folder, origin) = (Folder::new(), origin("max-age=600"));
    let server = configure(&folder, &origin.url(), "", "");
    check(&part(&server, 100_000, 100_099), 100_000, 100_099);
    check(&part(&server, 900_000, 999_999), 900_000, 999_999);
    let whole = get(&server, "/file");
    assert!(whole.status == 200 && whole.body == content());
    check(&part(&server, 0, 9), 0, 9);
    let requests = origin.requests();
    assert_eq!(requests.len(), 1, "one request for the full content");
    assert_eq!(requests[0].field("range"), None);
}

#[test]
fn ranges_requested_at_once_share_one_fetch() {
    let (folder, origin) = (Folder::new(), origin("max-age=600"));
    let server = configure(&folder, &origin.url(), "", "");
    const PARTS: usize = 16;
    thread::scope(|scope| {
        for index in 0..PARTS {
            let server = &server;
            scope.spawn(move || {
                let (first, last) = (index * BYTES / PARTS, (index + 1) * BYTES / PARTS - 1);
                check(&part(server, first, last), first, last);
            });
        }
    });
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn large_and_uncacheable_responses_are_forwarded_as_ranges() {
    for (cache_control, settings) in [("max-age=600", "range-fetch-max \"64KiB\""), ("no-store", "")] {
        let (folder, origin) = (Folder::new(), origin(cache_control));
        let server = configure(&folder, &origin.url(), settings, "");
        check(&part(&server, 100_000, 100_099), 100_000, 100_099);
        let ranges =
            |origin: &Origin| origin.requests().iter().map(|request| request.field("range")).collect::<Vec<_>>();
        let asked = ranges(&origin);
        assert_eq!(asked.last().unwrap().as_deref(), Some("bytes=100000-100099"), "{asked:?}");
        // The cache remembers this and does not request the full response again.
        check(&part(&server, 300_000, 300_099), 300_000, 300_099);
        assert_eq!(ranges(&origin)[asked.len()..], [Some("bytes=300000-300099".to_owned())]);
    }
}

#[test]
fn range_fetch_max_0_forwards_every_range() {
    let (folder, origin) = (Folder::new(), origin("max-age=600"));
    let server = configure(&folder, &origin.url(), "range-fetch-max \"0B\"", "");
    check(&part(&server, 5, 9), 5, 9);
    assert_eq!(origin.requests()[0].field("range").as_deref(), Some("bytes=5-9"));
}

/// Real clients that download in parts or resume, each twice: the second download needs no request to the origin.
#[test]
fn second_downloads_in_parts_are_hits() {
    let clients: [fn(&str, &str); 3] = [
        |url, file| {
            run(tool("curl").args(["-sS", "-r", "500000-", "-o", file, url]));
        },
        |url, file| {
            fs::write(file, &content()[..400_000]).unwrap();
            run(tool("wget").args(["-q", "-c", "-O", file, url]));
            assert!(fs::read(file).unwrap() == content());
        },
        |url, file| {
            let (folder, name) = file.rsplit_once('/').unwrap();
            run(tool("aria2c")
                .args(["-q", "-x16", "-s16", "-k1M", "--min-split-size=1M", "--no-conf", "--no-netrc"])
                .args(["--allow-overwrite=true", "--remove-control-file=true", "-d", folder, "-o", name, url]));
            assert!(fs::read(file).unwrap() == content());
        },
    ];
    for client in clients {
        let (folder, origin) = (Folder::new(), origin("max-age=600"));
        let server = configure(&folder, &origin.url(), "", "");
        let file = folder.path().join("download");
        let file = file.to_str().unwrap();
        client(&server.url("/file"), file);
        let once = origin.requests().len();
        client(&server.url("/file"), file);
        assert_eq!(origin.requests().len(), once, "the second download is a hit");
    }
}
