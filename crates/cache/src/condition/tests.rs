use super::{SelectedForm, decide_conditions, write_not_modified_lines};
use crate::rules::Rules;
use crate::storable::tests::{RESPONSE_TIME_S, stored_with, with_exchange};
use crate::stored::Stored;
use flatout_http::ranges::ByteRange;

const SAME: &str = "Sun, 06 Nov 1994 07:49:37 GMT";
const BEFORE: &str = "Sun, 06 Nov 1994 07:49:36 GMT";
const AFTER: &str = "Sun, 06 Nov 1994 07:49:38 GMT";

fn stored(status: u16, lines: &str) -> Stored {
    stored_with("", status, &format!("Cache-Control: max-age=60\r\n{lines}"), &Rules::default())
}

fn decide(stored: &Stored, method: &str, request: &str, length: Option<u64>) -> SelectedForm {
    with_exchange(method, request, 200, "", |request, _| decide_conditions(request, stored, length, RESPONSE_TIME_S))
}

/// RFC 9111 §4.3.2, RFC 9110 §13.
#[test]
fn conditions() {
    let lines = format!("ETag: \"x\"\r\nLast-Modified: {SAME}\r\n");
    let both = stored(200, &lines);
    for (request, not_modified) in [
        ("If-None-Match: \"x\"\r\n".to_owned(), true),
        ("If-None-Match: W/\"x\"\r\n".to_owned(), true),
        ("If-None-Match: \"a\", \"x\"\r\n".to_owned(), true),
        ("If-None-Match: \"a\"\r\nIf-None-Match: \"x\"\r\n".to_owned(), true),
        ("If-None-Match: *\r\n".to_owned(), true),
        ("If-None-Match: \"a\"\r\n".to_owned(), false),
        ("If-None-Match: x\r\n".to_owned(), false),
        (format!("If-None-Match: \"a\"\r\nIf-Modified-Since: {AFTER}\r\n"), false),
        (format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {BEFORE}\r\n"), true),
        (format!("If-Modified-Since: {SAME}\r\n"), true),
        (format!("If-Modified-Since: {AFTER}\r\n"), true),
        (format!("If-Modified-Since: {BEFORE}\r\n"), false),
        ("If-Modified-Since: Sunday, 06-Nov-94 07:49:37 GMT\r\n".to_owned(), true),
        ("If-Modified-Since: x\r\n".to_owned(), false),
    ] {
        for method in ["GET", "HEAD"] {
            let expected = if not_modified { SelectedForm::NotModified } else { SelectedForm::Whole };
            assert_eq!(decide(&both, method, &request, Some(10)), expected, "{request}");
        }
    }
    let found = stored(404, &lines);
    assert_eq!(decide(&found, "GET", "If-None-Match: \"x\"\r\n", Some(10)), SelectedForm::Whole, "not for errors");
    // RFC 9111 §4.3.2: Date stands in for Last-Modified.
    let dated = stored(200, "Date: Sun, 06 Nov 1994 07:49:37 GMT\r\nETag: \"x\"\r\n");
    assert_eq!(decide(&dated, "GET", &format!("If-Modified-Since: {SAME}\r\n"), None), SelectedForm::NotModified);
    assert_eq!(decide(&dated, "GET", &format!("If-Modified-Since: {BEFORE}\r\n"), None), SelectedForm::Whole);
    let weak = stored(200, "ETag: W/\"x\"\r\n");
    assert_eq!(decide(&weak, "GET", "If-None-Match: W/\"x\"\r\n", None), SelectedForm::NotModified);
}

/// RFC 9110 §14.
#[test]
fn ranges_of_a_whole() {
    let whole = stored(200, &format!("ETag: \"x\"\r\nLast-Modified: {SAME}\r\n"));
    let part = |first, last| SelectedForm::Part(ByteRange { first, last });
    for (request, expected) in [
        ("Range: bytes=0-1\r\n".to_owned(), part(0, 1)),
        ("Range: bytes=1-\r\n".to_owned(), part(1, 999)),
        ("Range: bytes=-1\r\n".to_owned(), part(999, 999)),
        ("Range: bytes=1000-\r\n".to_owned(), SelectedForm::Unsatisfiable),
        ("Range: items=0-1\r\n".to_owned(), SelectedForm::Whole),
        ("Range: bytes=0-1\r\nRange: bytes=2-3\r\n".to_owned(), SelectedForm::Whole),
        ("Range: bytes=0-1\r\nIf-Range: \"x\"\r\n".to_owned(), part(0, 1)),
        ("Range: bytes=0-1\r\nIf-Range: W/\"x\"\r\n".to_owned(), SelectedForm::Whole),
        ("Range: bytes=0-1\r\nIf-Range: \"y\"\r\n".to_owned(), SelectedForm::Whole),
        (format!("Range: bytes=0-1\r\nIf-Range: {SAME}\r\n"), part(0, 1)),
        (format!("Range: bytes=0-1\r\nIf-Range: {AFTER}\r\n"), SelectedForm::Whole),
        ("Range: bytes=0-1\r\nIf-None-Match: \"x\"\r\n".to_owned(), SelectedForm::NotModified),
    ] {
        assert_eq!(decide(&whole, "GET", &request, Some(1000)), expected, "{request}");
    }
    assert!(matches!(decide(&whole, "GET", "Range: bytes=0-1,500-501\r\n", Some(1000)), SelectedForm::Parts(_)));
    assert_eq!(decide(&whole, "HEAD", "Range: bytes=0-1\r\n", Some(1000)), SelectedForm::Whole);
    assert_eq!(decide(&whole, "GET", "Range: bytes=0-1\r\n", None), SelectedForm::Whole, "its length is not known yet");
    assert_eq!(decide(&stored(404, ""), "GET", "Range: bytes=0-1\r\n", Some(1000)), SelectedForm::Whole);
}

/// RFC 9110 §14.2 leaves it to the server whether to serve a range, and the origin decides for its responses.
#[test]
fn an_encoding_is_cut_only_if_the_origin_offers_it_or_the_client_has_it() {
    let part = SelectedForm::Part(ByteRange { first: 1, last: 2 });
    for (lines, is_offered) in [
        ("", true),
        ("Accept-Ranges: bytes\r\n", true),
        ("Accept-Ranges: none\r\n", false),
        ("Accept-Ranges: None\r\nContent-Encoding: gzip\r\n", false),
        ("Content-Encoding: gzip\r\n", false),
        ("Content-Encoding: identity, br\r\n", false),
        ("Content-Encoding: br\r\nAccept-Ranges: x\r\n", false),
        ("Content-Encoding: identity\r\n", true),
        ("Content-Encoding: \r\n", true),
        ("Content-Encoding: zstd\r\nAccept-Ranges: x, Bytes\r\n", true),
    ] {
        let stored = stored(200, &format!("ETag: \"x\"\r\n{lines}"));
        let expected = if is_offered { part } else { SelectedForm::Whole };
        assert_eq!(decide(&stored, "GET", "Range: bytes=1-2\r\n", Some(10)), expected, "{lines}");
        assert_eq!(decide(&stored, "GET", "Range: bytes=1-2\r\nIf-Range: \"x\"\r\n", Some(10)), part, "{lines}");
        let other = "Range: bytes=1-2\r\nIf-Range: \"y\"\r\n";
        assert_eq!(decide(&stored, "GET", other, Some(10)), SelectedForm::Whole, "{lines}");
        let unsatisfiable = if is_offered { SelectedForm::Unsatisfiable } else { SelectedForm::Whole };
        assert_eq!(decide(&stored, "GET", "Range: bytes=10-\r\n", Some(10)), unsatisfiable, "{lines}");
    }
    // An origin that sends a part offers parts.
    let lines = "Cache-Control: max-age=60\r\nContent-Encoding: br\r\nContent-Range: bytes 0-4/10\r\n";
    let of_part = stored_with("Range: bytes=0-4\r\n", 206, lines, &Rules::default());
    assert_eq!(decide(&of_part, "GET", "Range: bytes=1-2\r\n", None), part);
}

/// RFC 9111 §3.3.
#[test]
fn ranges_of_a_part() {
    let part = |total: &str| {
        let lines =
            format!("Cache-Control: max-age=60\r\nContent-Range: bytes 100-299/{total}\r\nContent-Length: 200\r\n");
        stored_with("Range: bytes=100-299\r\n", 206, &lines, &Rules::default())
    };
    let held = |first, last| SelectedForm::Part(ByteRange { first, last });
    for (total, range, expected) in [
        ("300", "bytes=100-299", held(100, 299)),
        ("300", "bytes=150-", held(150, 299)),
        ("300", "bytes=-10", held(290, 299)),
        ("300", "bytes=-201", SelectedForm::NotHeld),
        ("300", "bytes=300-", SelectedForm::Unsatisfiable),
        ("1000", "bytes=150-160", held(150, 160)),
        ("1000", "bytes=150-", SelectedForm::NotHeld),
        ("1000", "bytes=99-100", SelectedForm::NotHeld),
        ("1000", "bytes=100-110,500-510", SelectedForm::NotHeld),
        ("1000", "x", SelectedForm::NotHeld),
        ("*", "bytes=150-160", held(150, 160)),
        ("*", "bytes=150-", SelectedForm::NotHeld),
        ("*", "bytes=-1", SelectedForm::NotHeld),
        ("*", "bytes=18446744073709551615-", SelectedForm::NotHeld),
    ] {
        assert_eq!(decide(&part(total), "GET", &format!("Range: {range}\r\n"), None), expected, "{range} of {total}");
    }
    assert_eq!(decide(&part("300"), "GET", "", None), SelectedForm::NotHeld);
}

#[test]
fn a_304_does_not_describe_content() {
    let stored = stored(200, "ETag: \"x\"\r\nContent-Type: a/b\r\nContent-Location: /y\r\ncontent-encoding: br\r\n");
    let mut lines = Vec::new();
    write_not_modified_lines(&stored, &mut lines);
    let expected = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nCache-Control: max-age=60\r\nETag: \"x\"\r\n\
        Content-Location: /y\r\n";
    assert_eq!(String::from_utf8_lossy(&lines), expected);
}
