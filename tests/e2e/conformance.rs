//! Requirements of RFC 9110 and RFC 9112, checked on a running server, and third-party clients.

use super::harness::{Folder, Response, Server, read_response, read_to_end};
use super::tool::{run, said, tool};
use flatout_http::date::parse_date;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const TEXT: &[u8] = b"0123456789";

fn site() -> Folder {
    let large = vec![b'z'; 300_000];
    Folder::with(&[
        ("index.html", b"<p>home"),
        ("a.txt", TEXT),
        ("empty", b""),
        ("large", &large),
        ("b/index.html", b"b"),
    ])
}

/// Sends one request on its own connection and returns the response.
fn ask(server: &Server, request_line: &str, fields: &str) -> Response {
    Response::parse(&server.exchange(format!("{request_line}\r\nHost: test\r\n{fields}\r\n").as_bytes()))
}

fn get(server: &Server, path: &str, fields: &str) -> Response {
    ask(server, &format!("GET {path} HTTP/1.1"), fields)
}

fn now_s() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

/// Reads a head without content, as for HEAD or a 304.
fn read_head(stream: &mut TcpStream) -> Response {
    let (mut bytes, mut byte) = (Vec::new(), [0]);
    while !bytes.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
    Response::parse(&bytes)
}

/// Requests that produce every kind of response, each with the expected status.
const EVERY_KIND: &[(&str, &str, u16)] = &[
    ("GET / HTTP/1.1", "", 200),
    ("GET /a.txt HTTP/1.1", "", 200),
    ("GET /a.txt HTTP/1.0", "", 200),
    ("GET /empty HTTP/1.1", "", 200),
    ("GET /large HTTP/1.1", "", 200),
    ("HEAD /a.txt HTTP/1.1", "", 200),
    ("OPTIONS * HTTP/1.1", "", 204),
    ("GET /a.txt HTTP/1.1", "Range: bytes=1-2\r\n", 206),
    ("GET /b HTTP/1.1", "", 301),
    ("GET /a.txt HTTP/1.1", "If-None-Match: *\r\n", 304),
    ("GET /a.txt HTTP/1.1", "Host: second\r\n", 400),
    ("GET /none HTTP/1.1", "", 404),
    ("DELETE /a.txt HTTP/1.1", "", 405),
    ("GET /a.txt HTTP/1.1", "If-Match: \"x\"\r\n", 412),
    ("GET /a.txt HTTP/1.1", "Content-Length: 99999999\r\n", 413),
    ("GET /a.txt HTTP/1.1", "Range: bytes=99-\r\n", 416),
    ("GET /a.txt HTTP/1.1", "Expect: a miracle\r\n", 417),
    ("GET https://test/ HTTP/1.1", "", 421),
    ("BREW / HTTP/1.1", "", 501),
    ("GET /a.txt HTTP/2.0", "", 505),
];

#[test]
fn every_response_is_well_formed() {
    let folder = site();
    let server = Server::start(folder.path(), &[]);
    for (request_line, fields, status) in EVERY_KIND {
        let text = format!("{request_line}\r\nHost: test\r\n{fields}\r\n");
        let bytes = server.exchange(text.as_bytes());
        let head_end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        let head = std::str::from_utf8(&bytes[..head_end]).unwrap();
        let lines: Vec<&str> = head.split("\r\n").collect();
        // RFC 9112 §4: version, space, three digits, space, reason.
        assert!(lines[0].starts_with(&format!("HTTP/1.1 {status} ")) && lines[0].len() > 13, "{text}{head}");
        for line in &lines[1..] {
            let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("{line}"));
            assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'), "{line}");
            assert!(value.trim() == value && value.bytes().all(|byte| (b' '..0x7f).contains(&byte)), "{line}");
            let same = |other: &&&str| other.split(':').next().unwrap().eq_ignore_ascii_case(name);
            assert_eq!(lines[1..].iter().filter(same).count(), 1, "{name} comes twice: {head}");
        }
        let response = Response::parse(&bytes);
        // RFC 9110 §8.6 and RFC 9112 §6.3: the content is as long as declared, and some responses declare nothing.
        let length = response.field("content-length").map(|value| value.parse::<usize>().unwrap());
        let to_head = request_line.starts_with("HEAD");
        match status {
            204 => assert_eq!((length, response.body.len()), (None, 0), "{text}{head}"),
            304 => assert!(response.body.is_empty(), "{text}{head}"),
            _ if to_head => assert!(length == Some(TEXT.len()) && response.body.is_empty(), "{text}{head}"),
            _ => assert_eq!(length, Some(response.body.len()), "{text}{head}"),
        }
        assert_eq!(response.field("transfer-encoding"), None, "{text}{head}");
        // RFC 9110 §8.3: content has a type.
        if !response.body.is_empty() {
            assert!(response.field("content-type").is_some(), "{text}{head}");
        }
        // Fields that a status requires: RFC 9110 §15.5.6, §15.5.17, §15.4.2, §15.3.7.
        for (of_status, name) in [(405, "allow"), (416, "content-range"), (301, "location"), (206, "content-range")] {
            assert!(*status != of_status || response.field(name).is_some(), "{text}{head}");
        }
    }
}

#[test]
fn every_response_has_the_current_date() {
    let folder = site();
    let server = Server::start(folder.path(), &[]);
    for (request_line, fields, _) in EVERY_KIND {
        // The coarse clock is up to a tick behind, which may be in the previous second.
        let before = now_s() - 1;
        let response = ask(&server, request_line, fields);
        let date = response.field("date").unwrap_or_else(|| panic!("{request_line}: no Date"));
        // RFC 9110 §5.6.7: dates are sent in the fixed format of 29 characters.
        assert_eq!(date.len(), 29, "{date}");
        let date_s = parse_date(date.as_bytes()).unwrap();
        assert!((before..=now_s()).contains(&date_s), "{request_line}: {date}");
    }
}

#[test]
fn head_gets_the_fields_of_get_without_content() {
    let folder = site();
    let server = Server::start(folder.path(), &[]);
    let without_date = |response: Response| {
        let fields = response.fields.into_iter().filter(|(name, _)| name != "date").collect::<Vec<_>>();
        (response.status, fields)
    };
    for path in ["/", "/a.txt", "/empty", "/large", "/none", "/b", "/b/"] {
        for fields in ["", "If-None-Match: *\r\n", "If-Match: \"x\"\r\n", "Connection: close\r\n"] {
            let head = ask(&server, &format!("HEAD {path} HTTP/1.1"), fields);
            assert!(head.body.is_empty(), "{path} {fields}");
            assert_eq!(without_date(head), without_date(get(&server, path, fields)), "{path} {fields}");
        }
    }
    // RFC 9110 §14.2: Range has no meaning for HEAD.
    assert_eq!(ask(&server, "HEAD /a.txt HTTP/1.1", "Range: bytes=1-2\r\n").status, 200);
}

#[test]
fn a_connection_persists_while_both_sides_agree() {
    let folder = site();
    let server = Server::start(folder.path(), &[]);
    // (version, the client's option, whether the connection persists, the server's option)
    let cases = [
        ("HTTP/1.1", "", true, None),
        ("HTTP/1.1", "Connection: keep-alive\r\n", true, None),
        ("HTTP/1.1", "Connection: close\r\n", false, Some("close")),
        ("HTTP/1.1", "Connection: CLOSE\r\n", false, Some("close")),
        ("HTTP/1.1", "Connection: x, close ,y\r\nX: 1\r\n", false, Some("close")),
        ("HTTP/1.1", "Connection: keep-alive, close\r\n", false, Some("close")),
        ("HTTP/1.0", "", false, Some("close")),
        ("HTTP/1.0", "Connection: keep-alive\r\n", true, Some("keep-alive")),
        ("HTTP/1.0", "Connection: Keep-Alive\r\n", true, Some("keep-alive")),
        ("HTTP/1.0", "Connection: close\r\n", false, Some("close")),
    ];
    for (version, option, goes_on, said) in cases {
        let request = format!("GET /a.txt {version}\r\nHost: test\r\n{option}\r\n");
        let mut stream = server.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let response = read_response(&mut stream);
        assert_eq!((response.field("connection"), response.body.as_slice()), (said, TEXT), "{request}");
        if goes_on {
            stream.write_all(request.as_bytes()).unwrap();
            assert_eq!(read_response(&mut stream).body, TEXT, "{request}");
        } else {
            assert_eq!(read_to_end(&mut stream), b"", "{request}");
        }
    }
    // HTTP/1.0 had no Host.
    assert_eq!(Response::parse(&server.exchange(b"GET /a.txt HTTP/1.0\r\n\r\n")).body, TEXT);
}

#[test]
fn pipelined_responses_are_sent_in_order() {
    let folder = site();
    let server = Server::start(folder.path(), &[]);
    let mut stream = server.connect();
    let requests = [
        "GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n",
        "HEAD /large HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /none HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /large HTTP/1.1\r\nHost: a\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a.txt HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        "GET /b/ HTTP/1.1\r\nHost: a\r\n\r\n",
    ];
    for _ in 0..10 {
        stream.write_all(requests.concat().as_bytes()).unwrap();
        assert_eq!(read_response(&mut stream).body, TEXT);
        assert_eq!(read_head(&mut stream).field("content-length"), Some("300000"));
        assert_eq!(read_response(&mut stream).status, 404);
        assert_eq!(read_response(&mut stream).body.len(), 300_000);
        assert_eq!(read_head(&mut stream).status, 204);
        assert_eq!(read_head(&mut stream).status, 304);
        assert_eq!(read_response(&mut stream).status, 405);
        assert_eq!(read_response(&mut stream).body, b"b");
    }
}

#[test]
fn a_half_closed_client_still_gets_every_response() {
    let folder = site();
    let server = Server::start(folder.path(), &[]);
    let one = "GET /large HTTP/1.1\r\nHost: a\r\n\r\n";
    let bytes = server.exchange(one.repeat(20).as_bytes());
    assert!(bytes.len() > 20 * 300_000 && bytes.ends_with(b"zzz"), "{} bytes", bytes.len());
}

#[test]
fn options_and_405_list_the_allowed_methods() {
    let folder = site();
    let server = Server::start(folder.path(), &[]);
    for target in ["*", "/", "/a.txt", "/none", "http://test/", "http://test"] {
        let response = ask(&server, &format!("OPTIONS {target} HTTP/1.1"), "");
        assert_eq!((response.status, response.field("allow")), (204, Some("GET, HEAD, OPTIONS")), "{target}");
    }
    for method in ["POST", "PUT", "DELETE", "PATCH", "TRACE"] {
        let response = ask(&server, &format!("{method} /a.txt HTTP/1.1"), "");
        assert_eq!((response.status, response.field("allow")), (405, Some("GET, HEAD, OPTIONS")), "{method}");
    }
    // RFC 9110 §9.1: methods are case-sensitive.
    assert_eq!(ask(&server, "get /a.txt HTTP/1.1", "").status, 501);
}

#[test]
fn absolute_form_targets_and_a_leading_empty_line_are_accepted() {
    let folder = site();
    let server = Server::start(folder.path(), &[]);
    for target in ["http://test/a.txt", "HTTP://TEST:80/a.txt?x", "/a.txt?", "/%61.txt"] {
        assert_eq!(get(&server, target, "").body, TEXT, "{target}");
    }
    assert_eq!(get(&server, "http://elsewhere.example/a.txt", "").status, 400);
    // RFC 9112 §2.2: old clients send an extra empty line after a body.
    let response = Response::parse(&server.exchange(b"\r\nGET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_eq!((response.status, response.body.as_slice()), (200, TEXT));
    let twice = b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(server.exchange(twice).windows(TEXT.len()).filter(|window| window == &TEXT).count(), 2);
}

#[test]
fn a_client_that_expects_100_continue_gets_it() {
    let folder = site();
    let server = Server::start(folder.path(), &[]);
    let mut stream = server.connect();
    let head = "GET /a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    assert_eq!(read_head(&mut stream).status, 100);
    stream.write_all(b"abc").unwrap();
    assert_eq!(read_response(&mut stream).body, TEXT);
    // RFC 9110 §10.1.1: not if the response is already known to be an error, nor if the content has already arrived.
    stream.write_all(format!("{head}abc").as_bytes()).unwrap();
    assert_eq!(read_response(&mut stream).body, TEXT);
    stream.write_all(head.replace("GET /a.txt", "POST /a.txt").as_bytes()).unwrap();
    let refused = read_response(&mut stream);
    assert_eq!((refused.status, refused.field("connection")), (405, Some("close")));
    // RFC 9110 §10.1.1: an HTTP/1.0 client would not understand it.
    let old = head.replace("HTTP/1.1", "HTTP/1.0") + "abc";
    assert_eq!(Response::parse(&server.exchange(old.as_bytes())).status, 200);
}

#[test]
fn ranges_at_the_edges_of_the_content() {
    let folder = site();
    let server = Server::start(folder.path(), &[]);
    assert_eq!(get(&server, "/a.txt", "").field("accept-ranges"), Some("bytes"));
    for (range, part, content_range) in [
        ("bytes=0-0", "0", "bytes 0-0/10"),
        ("bytes=9-9", "9", "bytes 9-9/10"),
        ("bytes=0-", "0123456789", "bytes 0-9/10"),
        ("bytes=0-9", "0123456789", "bytes 0-9/10"),
        ("bytes=0-10", "0123456789", "bytes 0-9/10"),
        ("bytes=9-18446744073709551615", "9", "bytes 9-9/10"),
        ("bytes=-1", "9", "bytes 9-9/10"),
        ("bytes=-10", "0123456789", "bytes 0-9/10"),
        ("bytes=-11", "0123456789", "bytes 0-9/10"),
        ("BYTES=1-2", "12", "bytes 1-2/10"),
    ] {
        let response = get(&server, "/a.txt", &format!("Range: {range}\r\n"));
        let found = (response.status, String::from_utf8_lossy(&response.body), response.field("content-range"));
        assert_eq!((found.0, found.1.as_ref(), found.2), (206, part, Some(content_range)), "{range}");
    }
    for range in ["bytes=10-", "bytes=10-20", "bytes=-0"] {
        let response = get(&server, "/a.txt", &format!("Range: {range}\r\n"));
        assert_eq!((response.status, response.field("content-range")), (416, Some("bytes */10")), "{range}");
    }
    // RFC 9110 §15.3.7.2: ranges are coalesced if the gap between them is smaller than the head of a part.
    let joined = get(&server, "/a.txt", "Range: bytes=0-1,4-5\r\n");
    assert_eq!((joined.status, joined.field("content-range")), (206, Some("bytes 0-5/10")));
    // RFC 9110 §14.2: an invalid range, or a range in another unit, may be ignored.
    for range in ["bytes=5-2", "bytes=a-b", "bytes=", "bytes", "items=0-1", "bytes=--1"] {
        let response = get(&server, "/a.txt", &format!("Range: {range}\r\n"));
        assert_eq!((response.status, response.body.as_slice()), (200, TEXT), "{range}");
    }
    assert_eq!(get(&server, "/empty", "Range: bytes=0-\r\n").field("content-range"), Some("bytes */0"));
    for (first, last) in [(0, 0), (299_999, 299_999), (1, 299_998), (0, 299_999), (65_536, 131_071)] {
        let response = get(&server, "/large", &format!("Range: bytes={first}-{last}\r\n"));
        assert_eq!((response.status, response.body.len()), (206, last - first + 1), "{first}-{last}");
    }
}

#[test]
fn conditions_are_evaluated_in_order_of_precedence() {
    let folder = site();
    let server = Server::start(folder.path(), &[]);
    let first = get(&server, "/a.txt", "");
    let (etag, date) = (first.field("etag").unwrap(), first.field("last-modified").unwrap());
    let status = |fields: &str| get(&server, "/a.txt", fields).status;
    const PAST: &str = "Thu, 01 Jan 1970 00:00:01 GMT";
    const FUTURE: &str = "Fri, 01 Jan 2100 00:00:00 GMT";
    for (fields, expected) in [
        (format!("If-None-Match: {etag}\r\n"), 304),
        (format!("If-None-Match: W/{etag}\r\n"), 304),
        (format!("If-None-Match: \"a\", {etag} ,\"b\"\r\n"), 304),
        (format!("If-None-Match: \"a\"\r\nIf-None-Match: {etag}\r\n"), 304),
        ("If-None-Match: \"a\"\r\n".to_owned(), 200),
        (format!("If-Modified-Since: {date}\r\n"), 304),
        (format!("If-Modified-Since: {FUTURE}\r\n"), 304),
        (format!("If-Modified-Since: {PAST}\r\n"), 200),
        ("If-Modified-Since: no date\r\n".to_owned(), 200),
        // RFC 9110 §13.1.3 and §13.1.4: a date is evaluated only without an entity tag.
        (format!("If-None-Match: \"a\"\r\nIf-Modified-Since: {FUTURE}\r\n"), 200),
        (format!("If-Match: {etag}\r\nIf-Unmodified-Since: {PAST}\r\n"), 200),
        ("If-Match: *\r\n".to_owned(), 200),
        // RFC 9110 §13.1.1: If-Match uses the strong comparison.
        (format!("If-Match: W/{etag}\r\n"), 412),
        (format!("If-Unmodified-Since: {date}\r\n"), 200),
        (format!("If-Unmodified-Since: {PAST}\r\n"), 412),
        // RFC 9110 §13.2.2: If-Match is evaluated before If-None-Match, and both before the range.
        (format!("If-Match: \"x\"\r\nIf-None-Match: {etag}\r\n"), 412),
        (format!("If-None-Match: {etag}\r\nRange: bytes=0-1\r\n"), 304),
        (format!("If-Range: {etag}\r\nRange: bytes=0-1\r\n"), 206),
        (format!("If-Range: W/{etag}\r\nRange: bytes=0-1\r\n"), 200),
        (format!("If-Range: {PAST}\r\nRange: bytes=0-1\r\n"), 200),
        ("If-Range: \"x\"\r\nRange: bytes=99-\r\n".to_owned(), 200),
    ] {
        assert_eq!(status(&fields), expected, "{fields}");
    }
    let not_modified = get(&server, "/a.txt", "If-None-Match: *\r\n");
    assert_eq!((not_modified.field("etag"), not_modified.field("last-modified")), (Some(etag), Some(date)));
    // RFC 9110 §15.3.7: a part carries the validators of the whole.
    let part = get(&server, "/a.txt", "Range: bytes=0-1\r\n");
    assert_eq!((part.field("etag"), part.field("last-modified")), (Some(etag), Some(date)));
    // RFC 9110 §13.1: without a current representation, there is nothing to compare.
    assert_eq!(get(&server, "/none", "If-Match: *\r\n").status, 404);
}

#[test]
fn last_modified_is_never_later_than_date() {
    let folder = site();
    for (name, moment) in [
        ("future", SystemTime::now() + Duration::from_secs(1_000_000)),
        ("past", UNIX_EPOCH + Duration::from_secs(784_111_777)),
        ("before-time", UNIX_EPOCH - Duration::from_secs(1000)),
    ] {
        folder.write(name, b"x");
        File::options().write(true).open(folder.path().join(name)).unwrap().set_modified(moment).unwrap();
    }
    let server = Server::start(folder.path(), &[]);
    // Caches would take a file from before the Web for one that never changes.
    assert_eq!(get(&server, "/before-time", "").field("last-modified"), None);
    for name in ["future", "past", "a.txt"] {
        let response = get(&server, &format!("/{name}"), "");
        let date = |field: &str| parse_date(response.field(field).unwrap().as_bytes()).unwrap();
        // RFC 9110 §8.8.2.1.
        assert!(date("last-modified") <= date("date"), "{name}: {:?}", response.fields);
    }
    assert_eq!(get(&server, "/past", "").field("last-modified"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
    for (format, expected) in [
        ("Sun, 06 Nov 1994 08:49:37 GMT", 304),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 304),
        ("Sun Nov  6 08:49:37 1994", 304),
        ("Sun, 06 Nov 1994 08:49:36 GMT", 200),
    ] {
        assert_eq!(get(&server, "/past", &format!("If-Modified-Since: {format}\r\n")).status, expected, "{format}");
    }
}

#[test]
fn curl_reports_no_errors() {
    let folder = site();
    let server = Server::start(folder.path(), &["--workers", "2"]);
    let curl = |arguments: &[&str]| run(tool("curl").args(["--silent", "--show-error", "--fail"]).args(arguments));
    let (url, large) = (server.url("/a.txt"), server.url("/large"));
    assert_eq!(curl(&[&url]), "0123456789");
    assert_eq!(curl(&["--http1.0", &url]), "0123456789");
    assert_eq!(curl(&["--range", "2-4", &url]), "234");
    assert_eq!(curl(&["--continue-at", "7", &url]), "789");
    assert_eq!(curl(&["--location", &server.url("/b")]), "b");
    assert_eq!(curl(&["--time-cond", "01 Jan 2100", "--write-out", "%{http_code}", &url]), "304");
    assert!(curl(&["--head", &large]).contains("Content-Length: 300000"));
    // One connection for all requests.
    let many: Vec<&str> = std::iter::repeat_n([large.as_str(), "--output", "/dev/null"], 50).flatten().collect();
    let connects = curl(&[&["--write-out", "%{num_connects}\n"], &many[..]].concat());
    assert_eq!(connects.lines().map(|count| count.parse::<u32>().unwrap()).sum::<u32>(), 1, "{connects}");
    // Unwanted content, in both framings, with and without Expect.
    for body in [&["--header", "Transfer-Encoding: chunked"][..], &["--header", "Expect: 100-continue"], &[]] {
        let sent = [body, &["--request", "GET", "--data-binary", "@-", &url]].concat();
        let mut command = tool("curl");
        command
            .args(["--silent", "--show-error", "--fail"])
            .args(sent)
            .stdin(File::open(folder.path().join("large")).unwrap());
        assert_eq!(run(&mut command), "0123456789", "{body:?}");
    }
}

/// The counters that a server prints when it exits.
fn counter(server: Server, name: &str) -> u64 {
    let (status, said) = server.stop();
    assert!(status.success(), "{said}");
    let row = said.lines().map(str::split_whitespace).find_map(|mut row| (row.next()? == name).then(|| row.next()));
    row.flatten().map_or(0, |count| count.parse().unwrap())
}

#[test]
fn load_generators_report_no_errors() {
    let folder = site();
    let start = || Server::start(folder.path(), &["--workers", "2"]);

    let server = start();
    let report = run(tool("h2load").args(["--h1", "-n", "2000", "-c", "8", &server.url("/a.txt")]));
    let all = "2000 total, 2000 started, 2000 done, 2000 succeeded, 0 failed, 0 errored, 0 timeout";
    assert!(report.contains(all), "{report}");
    assert_eq!(counter(server, "requests"), 2000);

    // HTTP/1.0, with and without keep-alive.
    for (option, kept) in [("-k", 2000), ("-d", 0)] {
        let server = start();
        let report = run(tool("ab").args(["-q", option, "-n", "2000", "-c", "8", &server.url("/large")]));
        let number = |label: &str| -> u64 {
            let line = report.lines().find_map(|line| line.strip_prefix(label));
            line.map_or(0, |line| line.split_whitespace().next().unwrap().parse().unwrap())
        };
        assert_eq!(number("Complete requests:"), 2000, "{report}");
        assert_eq!((number("Failed requests:"), number("Non-2xx responses:")), (0, 0), "{report}");
        assert_eq!(number("Keep-Alive requests:"), kept, "{report}");
        assert_eq!(counter(server, "requests"), 2000);
    }

    let server = start();
    let (ip, port) = (server.address.ip().to_string(), server.address.port().to_string());
    let report = run(tool("httperf").args([
        "--hog",
        "--server",
        &ip,
        "--port",
        &port,
        "--uri",
        "/a.txt",
        "--num-conns",
        "100",
        "--num-calls",
        "20",
    ]));
    assert!(report.contains("requests 2000 replies 2000") && report.contains("Errors: total 0 "), "{report}");
    assert_eq!(counter(server, "requests"), 2000);

    let server = start();
    let report = run(tool("wrk").args(["-t", "1", "-c", "8", "-d", "1s", "--timeout", "30s", &server.url("/a.txt")]));
    assert!(!report.contains("Socket errors") && !report.contains("Non-2xx"), "{report}");
    let done =
        report.lines().find_map(|line| line.trim().split_once(" requests in ")).unwrap().0.parse::<u64>().unwrap();
    let counted = counter(server, "requests");
    // When wrk stops, up to one request per connection is still in progress.
    assert!(done > 0 && (done..=done + 8).contains(&counted), "{counted} counted, {report}");
}

/// Human-readable output from a client that shows more than the content.
#[test]
fn curl_shows_the_reason_for_an_error() {
    let folder = site();
    let server = Server::start(folder.path(), &[]);
    let output = tool("curl").args(["--silent", "--show-error", "--fail", &server.url("/none")]).output().unwrap();
    assert_eq!(output.status.code(), Some(22), "{}", said(&output));
    assert!(said(&output).contains("404"), "{}", said(&output));
    let page = run(tool("curl").args(["--silent", "--show-error", &server.url("/none")]));
    assert!(page.contains("<h1><b>404</b> Not Found</h1>"), "{page}");
}

#[test]
fn a_folder_for_each_host_serves_nobody_the_files_of_another() {
    let folder = Folder::with(&[
        ("www/open.test/a.txt", b"open"),
        ("www/guarded.test/a.txt", b"guarded"),
        ("www/[::1]/a.txt", b"address"),
    ]);
    let www = folder.path().join("www").display().to_string();
    let server = Server::run(
        &folder,
        &format!(
            "workers 1\nadmin off=#true
site \"guarded.test\" {{ listen \"127.0.0.1:0\"; respond 403 \"guarded\"; }}
site \"*\" {{ listen \"127.0.0.1:0\"; files {www:?} {{ try \"/{{host}}{{path}}\"; }}; }}
"
        ),
    );
    for (target, host, status, body) in [
        ("/a.txt", "open.test", 200, Some("open")),
        ("/a.txt", "OPEN.test:81", 200, Some("open")),
        ("http://open.test/a.txt", "open.test", 200, Some("open")),
        ("/a.txt", "[::1]:8080", 200, Some("address")),
        ("/a.txt", "[::1]", 200, Some("address")),
        ("/a.txt", "guarded.test", 403, None),
        ("http://open.test/a.txt", "guarded.test", 400, None),
        ("http://guarded.test/a.txt", "open.test", 400, None),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let response = Response::parse(&server.exchange(request.as_bytes()));
        assert_eq!(response.status, status, "{target} {host}");
        assert!(body.is_none_or(|body| response.body == body.as_bytes()), "{target} {host}");
    }
}
