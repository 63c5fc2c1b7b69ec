use super::super::fault::FaultKind;
use super::super::mine::mine;
use super::super::{Method, filelist};
use super::{AccessLog, LINE_BYTES_MAX, LogReader, Skip, parse_line};

const COMMON: &str = r#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326"#;
const COMBINED: &str =
    r#"::1 - - [21/Nov/2026:00:23:47 +0000] "GET /a.html?b=\x22c\x22 HTTP/1.1" 200 1024 "-" "curl/7.88.1" hit sent 21"#;
const REFUSED: &str =
    r#"127.0.0.1 - - [21/Nov/2026:00:23:48 +0000] "GET /b\x0aX: y HTTP/1.1" 400 520 "-" "-" bare_lf sent 9"#;
const JSON: &str = r#"{"time":"2026-11-21T00:23:47.123Z","client":"192.0.2.7","host":"a.example","method":"GET","target":"/\u00e9","version":"HTTP/2.0","status":200,"body_bytes":1024,"referer":null,"user_agent":"curl","outcome":"hit","ending":"sent","duration_us":21,"tls":true,"site":null,"user":null,"cache":null}"#;

#[test]
fn every_form_is_read() {
    let line = parse_line(COMMON.as_bytes()).unwrap();
    assert_eq!((&*line.client, line.unix_ns), (&b"127.0.0.1"[..], 971_211_336_000_000_000));
    assert_eq!((line.method.as_deref(), &*line.target), (Some(&b"GET"[..]), &b"/apache_pb.gif"[..]));
    assert_eq!((line.status, line.body_bytes, line.host.as_deref()), (Some(200), Some(2326), None));
    let line = parse_line(COMBINED.as_bytes()).unwrap();
    assert_eq!((&*line.client, &*line.target, line.is_whole_second), (&b"::1"[..], &b"/a.html?b=\"c\""[..], true));
    let line = parse_line(REFUSED.as_bytes()).unwrap();
    assert_eq!(&*line.target, b"/b\nX: y");
    let line = parse_line(JSON.as_bytes()).unwrap();
    assert_eq!((line.unix_ns % 1_000_000_000, line.is_whole_second), (123_000_000, false));
    assert_eq!((line.host.as_deref(), line.secure, &*line.target), (Some("a.example"), true, "/é".as_bytes()));
}

#[test]
fn what_is_unusual_is_read_too() {
    for (line, method, target) in [
        (r#"h - - [10/Oct/2000:13:55:36 -0700] "GET /" 200 -"#, Some("GET"), "/"),
        (r#"h - - [10/Oct/2000:13:55:36 -0700] "-" 408 0"#, None, "-"),
        (r#"h - - [10/Oct/2000:13:55:36 -0700] "" 400 0"#, None, ""),
        (r#"h - - [10/Oct/2000:13:55:36 -0700] "\x16\x03\x01 x" 400 0"#, None, "\x16\x03\x01 x"),
        (r#"h - a user [10/Oct/2000:13:55:36 -0700] "GET /a b HTTP/1.1" 200 1 "x\"y" "z""#, Some("GET"), "/a b"),
        (r#"h - - [10/Oct/2000:13:55:36 -0700] "GET /\q\xzz\\ HTTP/1.1" 000 1"#, Some("GET"), r"/\q\xzz\"),
    ] {
        let parsed = parse_line(line.as_bytes()).unwrap();
        let found = parsed.method.as_deref().map(|method| core::str::from_utf8(method).unwrap());
        assert_eq!((found, core::str::from_utf8(&parsed.target).unwrap()), (method, target), "{line}");
    }
}

#[test]
fn what_is_malformed_says_what() {
    for (line, fault) in [
        ("x", FaultKind::LogForm),
        ("h - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 1", FaultKind::LogForm),
        ("h - - [10/Oct/2000:13:55:36 -0700", FaultKind::LogForm),
        ("h - - [10/Oct/2000:13:55:36 -0700] GET", FaultKind::LogForm),
        ("h - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\\\" 200 1", FaultKind::LogForm),
        ("h - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\\", FaultKind::LogForm),
        ("h - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200", FaultKind::LogForm),
        ("h - - [10/Okt/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 1", FaultKind::LogTime),
        ("h - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 2000 1", FaultKind::LogStatus),
        ("h - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" +20 1", FaultKind::LogStatus),
        ("h - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 1k", FaultKind::LogBytes),
        ("h - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 99999999999999999999", FaultKind::LogBytes),
        ("{", FaultKind::LogForm),
        ("{}", FaultKind::LogField),
        (r#"{"time":"2026-11-21T00:23:47Z","target":"/"}"#, FaultKind::LogField),
        (r#"{"time":"yesterday","method":"GET","target":"/"}"#, FaultKind::LogTime),
        (r#"{"time":"2026-11-21T00:23:47Z","method":"GET","target":"/","status":1000}"#, FaultKind::LogStatus),
        (r#"{"time":"2026-11-21T00:23:47Z","method":"GET","target":"/","status":-1}"#, FaultKind::LogForm),
    ] {
        assert_eq!(parse_line(line.as_bytes()), Err(fault), "{line}");
    }
    let deep = "[".repeat(100_000);
    assert_eq!(parse_line(format!("{{\"x\":{deep}").as_bytes()), Err(FaultKind::LogForm));
}

#[test]
fn a_log_is_the_same_however_it_comes() {
    let text = [COMMON, COMBINED, "", "nonsense", REFUSED, JSON, COMMON].join("\r\n");
    let whole = AccessLog::read(text.as_bytes());
    for size in [1, 2, 3, 7, 100] {
        let mut reader = LogReader::default();
        assert!(text.as_bytes().chunks(size).all(|piece| reader.handle_bytes(piece)));
        let log = reader.finish();
        assert_eq!(format!("{log:?}"), format!("{whole:?}"), "pieces of {size}");
    }
    assert_eq!((whole.lines, whole.faults.count, whole.faults.first[0].line), (7, 1, 4));
    assert_eq!((whole.requests.len(), whole.entries.len(), whole.clients), (3, 2, 2));
    // A request line cannot contain a line end or a non-ASCII letter, but can contain a quote.
    assert_eq!(whole.skips().collect::<Vec<_>>(), [(Skip::TargetUnsendable, 2)]);
}

#[test]
fn what_cannot_be_asked_for_again_is_counted_by_its_reason() {
    let line = |request: &str, status: &str| format!("h - - [10/Oct/2000:13:55:36 -0700] \"{request}\" {status} 1\n");
    let json = |host: &str| {
        format!(
            "{{\"time\":\"2026-11-21T00:23:47Z\",\"host\":{host},\"method\":\"GET\",\"target\":\"/\",\"status\":null}}\n"
        )
    };
    let text = [
        line("GET / HTTP/1.1", "200"),
        line("-", "400"),
        line("POST / HTTP/1.1", "200"),
        line("OPTIONS * HTTP/1.1", "200"),
        line("GET /a b HTTP/1.1", "200"),
        line("GET / HTTP/1.1", "000"),
        json("\"a b\""),
        json("\"\""),
    ]
    .concat();
    let log = AccessLog::read(text.as_bytes());
    assert!(log.faults.is_empty(), "{}", log.faults);
    let expected = [
        (Skip::NoRequest, 1),
        (Skip::OtherMethod, 1),
        (Skip::TargetUnsendable, 2),
        (Skip::HostUnsendable, 1),
        (Skip::NoResponse, 2),
    ];
    assert_eq!((log.skips().collect::<Vec<_>>(), log.skipped_total(), log.requests.len()), (expected.to_vec(), 7, 1));
}

#[test]
fn a_huge_line_is_a_fault_and_the_next_is_read() {
    let text = format!("{COMMON}{}\n{COMMON}\n", "x".repeat(LINE_BYTES_MAX));
    let log = AccessLog::read(text.as_bytes());
    assert_eq!((log.faults.first[0].line, log.faults.first[0].kind), (1, FaultKind::LineTooLong));
    assert_eq!((log.faults.count, log.requests.len()), (1, 1));
}

#[test]
fn urls_are_whole_where_there_are_several_hosts() {
    let line = |host: &str, tls: bool| {
        format!(
            "{{\"time\":\"2026-11-21T00:23:47Z\",\"host\":\"{host}\",\"method\":\"GET\",\"target\":\"/x\",\"status\":200,\"body_bytes\":3,\"tls\":{tls}}}\n"
        )
    };
    let urls = |text: String| {
        let list = filelist::parse(mine(&AccessLog::read(text.as_bytes()), 9, false).text.as_bytes()).unwrap();
        list.entries.iter().map(|entry| entry.address.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(urls([line("a.example", false), line("a.example", false)].concat()), ["/x"]);
    let both = [line("a.example", false), line("b.example:8443", true)].concat();
    assert_eq!(urls(both), ["http://a.example/x", "https://b.example:8443/x"]);
}

#[test]
fn methods_are_known_by_their_names() {
    assert_eq!(Method::parse(b"HEAD"), Some(Method::Head));
    assert_eq!(Method::parse(b"head"), None);
    assert_eq!(Method::parse(b"POST"), None);
}
