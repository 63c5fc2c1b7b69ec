use super::{Asked, Method, RequestHead, is_idempotent, parse_request_head};
use crate::feed::assert_three_ways;
use crate::framing::{Framing, Version};
use crate::head::FieldStorage;
use crate::limits::Limits;
use crate::refusal::Refusal;
use crate::target::Target;

/// Returns the result of a parse without borrows, so that results for different buffers can be compared.
fn outcome(bytes: &[u8]) -> Option<Result<(String, usize), Refusal>> {
    let mut storage = FieldStorage::new();
    match parse_request_head(bytes, &Limits::DEFAULT, &mut storage) {
        Ok(None) => None,
        Ok(Some(head)) => Some(Ok((format!("{head:?}"), head.head_bytes))),
        Err(refusal) => Some(Err(refusal)),
    }
}

fn with_head<T>(bytes: &[u8], check: impl FnOnce(RequestHead<'_>) -> T) -> T {
    assert_three_ways(bytes, outcome);
    let mut storage = FieldStorage::new();
    let head = parse_request_head(bytes, &Limits::DEFAULT, &mut storage).unwrap().unwrap();
    check(head)
}

fn refusal(bytes: &[u8]) -> Refusal {
    assert_three_ways(bytes, outcome);
    parse_request_head(bytes, &Limits::DEFAULT, &mut FieldStorage::new()).expect_err("must be refused")
}

#[test]
fn a_browser_s_request() {
    let bytes = b"GET /a/b?c=d HTTP/1.1\r\nHost: example.com:8080\r\nConnection: keep-alive\r\n\
        User-Agent: x\r\nAccept: */*\r\nIf-None-Match: \"a\"\r\nRange: bytes=0-\r\n\r\n";
    with_head(bytes, |head| {
        assert_eq!(head.method, Method::Get);
        assert_eq!(head.target, Target::Resource { path: b"/a/b", query: Some(b"c=d") });
        assert_eq!(head.version, Version::Http11);
        assert_eq!(head.host, Some(&b"example.com:8080"[..]));
        assert_eq!(head.framing, Framing::None);
        assert!(head.persistent && !head.expects_continue);
        assert!(head.asked.any(Asked::RANGE) && head.asked.any(Asked::CONDITION));
        assert_eq!(head.head_bytes, bytes.len());
        assert_eq!(head.fields.len(), 6);
    });
}

#[test]
fn persistence_follows_version_and_connection() {
    for (text, persistent) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", true),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Close\r\n\r\n", false),
        ("GET / HTTP/1.0\r\n\r\n", false),
        ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true),
        ("GET / HTTP/1.9\r\nHost: a\r\n\r\n", true),
        ("\r\nGET / HTTP/1.0\r\n\r\n", false),
    ] {
        with_head(text.as_bytes(), |head| assert_eq!(head.persistent, persistent, "{text}"));
    }
}

#[test]
fn bodies_and_expectations() {
    with_head(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-Continue\r\n\r\nabc", |head| {
        assert_eq!(head.framing, Framing::Length(3));
        assert!(head.expects_continue);
        assert_eq!(head.method, Method::Known("POST"));
    });
    // RFC 9110 §10.1.1: Expect is ignored in HTTP/1.0, and has no effect without content.
    with_head(b"POST / HTTP/1.0\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n", |head| {
        assert!(!head.expects_continue);
    });
    with_head(b"GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n", |head| {
        assert!(!head.expects_continue);
    });
    // Expect is a list, and lists may have empty elements.
    for (expect, expected) in [("", false), (",", false), (", 100-continue,100-CONTINUE ,", true)] {
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: {expect}\r\n\r\nx");
        with_head(request.as_bytes(), |head| assert_eq!(head.expects_continue, expected, "{expect}"));
    }
    with_head(b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", |head| {
        assert_eq!(head.framing, Framing::Chunked);
    });
}

#[test]
fn request_lines_that_are_refused() {
    for (line, expected) in [
        ("GET /", Refusal::RequestLine),
        ("GET", Refusal::RequestLine),
        ("GET  / HTTP/1.1", Refusal::RequestLine),
        ("GET /  HTTP/1.1", Refusal::RequestLine),
        ("GET / HTTP/1.1 ", Refusal::RequestLine),
        (" GET / HTTP/1.1", Refusal::Method),
        ("GET\t/ HTTP/1.1", Refusal::Method),
        ("GET /\tHTTP/1.1", Refusal::RequestLine),
        ("GET /a b HTTP/1.1", Refusal::RequestLine),
        ("G(T / HTTP/1.1", Refusal::Method),
        ("\u{e9} / HTTP/1.1", Refusal::Method),
        ("GET / HTTP/1.1\r", Refusal::BareCr),
        ("GET /\rx HTTP/1.1", Refusal::BareCr),
        ("GET / HTTP/1.1\rHost: a", Refusal::BareCr),
        ("GET /\r", Refusal::BareCr),
        ("GET / http/1.1", Refusal::Version),
        ("GET / HTTP/1", Refusal::Version),
        ("GET / HTTP/1.10", Refusal::Version),
        ("GET / HTTP/11", Refusal::Version),
        ("GET / HTTP/ 1.1", Refusal::RequestLine),
        ("GET / HTTPS/1.1", Refusal::Version),
        ("GET / HTTP/2.0", Refusal::VersionUnsupported),
        ("GET / HTTP/0.9", Refusal::VersionUnsupported),
        ("PRI * HTTP/2.0", Refusal::VersionUnsupported),
        ("\x16\x03\x01", Refusal::TlsOnPlainPort),
        ("ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJ / HTTP/1.1", Refusal::MethodTooLong),
        ("GET /\0 HTTP/1.1", Refusal::TargetCharacter),
        ("GET /\x7f HTTP/1.1", Refusal::TargetCharacter),
    ] {
        let bytes = [line.as_bytes(), b"\r\nHost: a\r\n\r\n"].concat();
        assert_eq!(refusal(&bytes), expected, "{line:?}");
    }
    // Some clients send empty lines after a request's content.
    for (lines, is_accepted) in [(1, true), (2, true), (8, true), (9, false)] {
        let bytes = [b"\r\n".repeat(lines), b"GET / HTTP/1.0\r\n\r\n".to_vec()].concat();
        if is_accepted {
            with_head(&bytes, |head| assert_eq!(head.head_bytes, bytes.len()));
        } else {
            assert_eq!(refusal(&bytes), Refusal::RequestLine);
        }
    }
    assert_eq!(refusal(b"\nGET / HTTP/1.0\r\n\r\n"), Refusal::BareLf);
    assert_eq!(refusal(b"\rGET / HTTP/1.0\r\n\r\n"), Refusal::BareCr);
    assert_eq!(refusal(b"GET / HTTP/1.0\n\n"), Refusal::BareLf);
}

#[test]
fn fields_that_are_refused() {
    for (fields, expected) in [
        ("", Refusal::HostMissing),
        ("Host: a\r\nHost: a\r\n", Refusal::HostDuplicate),
        ("Host: a\r\nhost: b\r\n", Refusal::HostDuplicate),
        ("Host:\r\n", Refusal::HostInvalid),
        ("Host: a b\r\n", Refusal::HostInvalid),
        ("Host: u@a\r\n", Refusal::HostInvalid),
        ("Host: a/b\r\n", Refusal::HostInvalid),
        (" Host: a\r\n", Refusal::ObsFold),
        ("Host : a\r\n", Refusal::SpaceBeforeColon),
        ("Host: a\r\n X: y\r\n", Refusal::ObsFold),
        ("Host: a\r\nX\r\n", Refusal::ColonMissing),
        ("Host: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n", Refusal::LengthDuplicate),
        ("Host: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n", Refusal::LengthWithTransferEncoding),
        ("Host: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n", Refusal::LengthWithTransferEncoding),
        ("Host: a\r\nTransfer-Encoding: gzip\r\n", Refusal::TransferEncodingInvalid),
        ("Host: a\r\nTransfer-Encoding: gzip, chunked\r\n", Refusal::TransferEncodingUnknown),
        ("Host: a\r\nConnection: a b\r\n", Refusal::ConnectionInvalid),
        ("Host: a\r\nExpect: x\r\n", Refusal::ExpectUnknown),
        ("Host: a\r\nExpect: 100-continue, x\r\n", Refusal::ExpectUnknown),
        ("Host: a\r\nExpect: 100-continue;a\r\n", Refusal::ExpectUnknown),
        ("Host: a\r\nRange: bytes=0-1\r\nRange: bytes=0-1\r\n", Refusal::FieldDuplicate),
        ("Host: a\r\nContent-Type: a/b\r\nContent-Type: a/b\r\n", Refusal::FieldDuplicate),
        ("Host: a\r\nUser-Agent: a\r\nuser-agent: b\r\n", Refusal::FieldDuplicate),
        ("Host: a\r\nContent-Location: /a\r\nContent-Location: /a\r\n", Refusal::FieldDuplicate),
    ] {
        let bytes = [b"GET / HTTP/1.1\r\n", fields.as_bytes(), b"\r\n"].concat();
        assert_eq!(refusal(&bytes), expected, "{fields:?}");
    }
    assert_eq!(refusal(b"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), Refusal::TransferEncodingVersion);
    assert_eq!(refusal(b"GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n"), Refusal::HostDuplicate);
}

#[test]
fn sizes_that_are_refused() {
    let target = "a".repeat(Limits::DEFAULT.target_bytes_max);
    assert_eq!(refusal(format!("GET /{target} HTTP/1.0\r\n\r\n").as_bytes()), Refusal::TargetTooLong);
    let endless = "a".repeat(Limits::DEFAULT.target_bytes_max + 100);
    assert_eq!(refusal(format!("GET /{endless}").as_bytes()), Refusal::TargetTooLong);
    let value = "a".repeat(Limits::DEFAULT.head_bytes_max);
    assert_eq!(refusal(format!("GET / HTTP/1.0\r\nA: {value}\r\n\r\n").as_bytes()), Refusal::HeadTooLarge);
    let many = "A: b\r\n".repeat(101);
    assert_eq!(refusal(format!("GET / HTTP/1.0\r\n{many}\r\n").as_bytes()), Refusal::FieldsTooMany);
}

#[test]
fn idempotent_methods_are_case_sensitive() {
    assert!(is_idempotent("GET") && is_idempotent("DELETE"));
    assert!(!is_idempotent("POST") && !is_idempotent("PATCH") && !is_idempotent("get"));
}
