use super::{CgiHead, EndFinder, FIELDS_MAX, HEAD_BYTES_MAX, HeadError};
use flatout_http::feed::assert_three_ways;
use proptest::prelude::*;

/// A head and the bytes it takes. The finder is called again for every length, as a driver would call it.
fn decode(bytes: &[u8]) -> Option<Result<(CgiHead, usize), HeadError>> {
    let mut finder = EndFinder::default();
    let mut found = finder.find(&bytes[..bytes.len() / 2]).transpose();
    if found.is_none() {
        found = finder.find(bytes).transpose();
    }
    found.map(|found| found.and_then(|used| Ok((CgiHead::parse(&bytes[..used])?, used))))
}

fn parse(text: &str) -> Result<CgiHead, HeadError> {
    assert_three_ways(text.as_bytes(), decode);
    decode(text.as_bytes()).unwrap().map(|(head, used)| {
        assert_eq!(used, text.len());
        head
    })
}

#[test]
fn script_heads_are_parsed() {
    let head = parse("X-Powered-By: PHP/8.2\r\nContent-type: text/html; charset=UTF-8\r\n\r\n").unwrap();
    assert_eq!((head.status, head.content_length), (200, None));
    assert_eq!(head.lines, b"X-Powered-By: PHP/8.2\r\nContent-type: text/html; charset=UTF-8\r\n");
    assert!(head.has("content-type") && !head.has("etag"));

    let head = parse("Status: 404 Not Found\nContent-Length: 12\nDate: Sun, 06 Nov 1994 08:49:37 GMT\n\n").unwrap();
    assert_eq!((head.status, head.content_length, head.has_date), (404, Some(12), true));
    assert_eq!(head.lines, b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n");

    // Local and absolute, with a status and without.
    assert_eq!(parse("Location: /a\r\n\r\n").unwrap().status, 302);
    assert_eq!(parse("Location: https://a.example/\r\n\r\n").unwrap().status, 302);
    assert_eq!(parse("Location: /a\r\nStatus: 303\r\n\r\n").unwrap().status, 303);
    assert_eq!(parse("Status: 201 Created\r\nLocation: /a\r\n\r\n").unwrap().status, 201);

    assert_eq!(parse("\r\n").unwrap(), CgiHead { status: 200, lines: Vec::new(), ..CgiHead::default() });
    assert_eq!(parse("\n").unwrap().status, 200);

    let head = parse("X-Sendfile: /srv/a b.zip\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\n\r\n").unwrap();
    assert_eq!(head.sendfile.as_deref(), Some(&b"/srv/a b.zip"[..]));
    assert_eq!(head.lines, b"Set-Cookie: a=b\r\nSet-Cookie: c=d\r\n");
    assert_eq!(parse("X-Accel-Redirect: /in/%41\r\n\r\n").unwrap().accel.as_deref(), Some(&b"/in/%41"[..]));
}

#[test]
fn connection_fields_are_removed() {
    let text = "Connection: close\r\nTransfer-Encoding: chunked\r\nKeep-Alive: 5\r\nUPGRADE: x\r\nA:\r\n\
                X-Accel-Buffering: no\r\nTrailer: b\r\nContent-Length: 3\r\ncontent-length: 3\r\n\r\n";
    let head = parse(text).unwrap();
    assert_eq!((head.lines, head.content_length), (b"A: \r\n".to_vec(), Some(3)));
}

#[test]
fn a_content_length_that_is_no_number_is_ignored() {
    for value in ["", "-1", "abc", "1, 2"] {
        let head = parse(&format!("Content-Length: {value}\r\nA: b\r\n\r\n")).unwrap();
        assert_eq!((head.content_length, &head.lines[..]), (None, &b"A: b\r\n"[..]), "{value:?}");
    }
}

#[test]
fn each_invalid_head_has_its_error() {
    for (text, error) in [
        ("HTTP/1.1 200 OK\r\nA: b\r\n\r\n", HeadError::StatusLine),
        ("no colon\r\n\r\n", HeadError::Field),
        ("A b: c\r\n\r\n", HeadError::Field),
        ("A : c\r\n\r\n", HeadError::Field),
        (": c\r\n\r\n", HeadError::Field),
        ("A: b\r\n c\r\n\r\n", HeadError::Field),
        ("A: b\rc\r\n\r\n", HeadError::Field),
        ("A: b\0\r\n\r\n", HeadError::Field),
        ("\u{e4}: b\r\n\r\n", HeadError::Field),
        ("Status: 20\r\n\r\n", HeadError::Status),
        ("Status: 2000\r\n\r\n", HeadError::Status),
        ("Status: 100 Continue\r\n\r\n", HeadError::Status),
        ("Status: 101 Switching\r\n\r\n", HeadError::Status),
        ("Status: 600\r\n\r\n", HeadError::Status),
        ("Status: OK\r\n\r\n", HeadError::Status),
        ("Status:\r\n\r\n", HeadError::Status),
        ("Status: 200\r\nStatus: 200\r\n\r\n", HeadError::Status),
        ("Content-Length: 1\r\nContent-Length: 2\r\n\r\n", HeadError::ContentLength),
        ("Location: /a\r\nLocation: /b\r\n\r\n", HeadError::Doubled),
        ("X-Sendfile: /a\r\nX-Sendfile: /a\r\n\r\n", HeadError::Doubled),
    ] {
        assert_eq!(parse(text), Err(error), "{text:?}");
        assert!(!error.text().is_empty());
    }
}

#[test]
fn a_script_head_is_bounded() {
    let mut endless = EndFinder::default();
    let line = b"A: b\r\n".repeat(HEAD_BYTES_MAX / 6 + 1);
    for length in (0..line.len()).step_by(997).filter(|&length| length <= HEAD_BYTES_MAX) {
        assert_eq!(endless.find(&line[..length]), Ok(None));
    }
    assert_eq!(endless.find(&line), Err(HeadError::TooLarge));
    let fits = [vec![b'a'; HEAD_BYTES_MAX - 2], b"\n\n".to_vec()].concat();
    assert_eq!(EndFinder::default().find(&fits), Ok(Some(HEAD_BYTES_MAX)));
    assert_eq!(EndFinder::default().find(&[b"a", &fits[..]].concat()), Err(HeadError::TooLarge));
    assert_eq!(parse(&("A: b\n".repeat(FIELDS_MAX) + "\n")).map(|head| head.status), Ok(200));
    assert_eq!(parse(&("A: b\n".repeat(FIELDS_MAX + 1) + "\n")), Err(HeadError::TooLarge));
}

proptest! {
    #[test]
    fn a_field_of_a_script_never_becomes_two_lines(text in "(Status: [0-9 ]{0,5}|[A-Za-z: \r\n\\x00-\\x1f]{0,60})\n\n") {
        assert_three_ways(text.as_bytes(), decode);
        if let Some(Ok((head, _))) = decode(text.as_bytes()) {
            prop_assert!((200..=599).contains(&head.status));
            for line in head.lines.split_inclusive(|&byte| byte == b'\n') {
                prop_assert!(line.ends_with(b"\r\n") && !line[..line.len() - 2].contains(&b'\r'), "{:?}", head);
            }
        }
    }

    #[test]
    fn arbitrary_input_never_panics(bytes: Vec<u8>) {
        assert_three_ways(&bytes, decode);
    }
}
