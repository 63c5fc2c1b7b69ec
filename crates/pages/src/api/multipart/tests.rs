use super::{
    BOUNDARY_BYTES_MAX, MultipartDecoder, MultipartError, MultipartStop, PART_HEAD_BYTES_MAX, PartHead, Parts,
    parse_boundary,
};
use flatout_http::feed::assert_pieces_agree;
use proptest::prelude::*;

/// Records the decoded parts.
#[derive(Debug, Default)]
struct Written(Vec<u8>);

impl Parts for Written {
    type Refusal = &'static str;

    fn begin_part(&mut self, head: PartHead) -> Result<(), &'static str> {
        if head.name == b"refused" {
            return Err("begin");
        }
        self.0.extend_from_slice(format!("<{head:?}>").as_bytes());
        Ok(())
    }

    fn part_bytes(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn end_part(&mut self) -> Result<(), &'static str> {
        self.0.extend_from_slice(b"<end>");
        Ok(())
    }
}

fn agree(content: &[u8]) {
    assert_pieces_agree(
        content,
        || MultipartDecoder::new(b"xYz"),
        |decoder, piece, output| {
            let mut parts = Written::default();
            let outcome = decoder.feed(piece, &mut parts);
            // What was written before an error depends on the pieces; the error itself must not.
            if outcome.is_ok() {
                output.extend_from_slice(&parts.0);
            } else {
                output.clear();
            }
            outcome
        },
    );
}

fn decode(content: &[u8]) -> Result<(String, bool), MultipartStop<&'static str>> {
    let mut parts = Written::default();
    let (_, done) = MultipartDecoder::new(b"xYz").feed(content, &mut parts)?;
    Ok((String::from_utf8_lossy(&parts.0).into_owned(), done))
}

/// Collects names and contents.
#[derive(Debug, Default)]
struct Collected(Vec<(PartHead, Vec<u8>)>);

impl Parts for Collected {
    type Refusal = ();

    fn begin_part(&mut self, head: PartHead) -> Result<(), ()> {
        self.0.push((head, Vec::new()));
        Ok(())
    }

    fn part_bytes(&mut self, bytes: &[u8]) -> Result<(), ()> {
        self.0.last_mut().unwrap().1.extend_from_slice(bytes);
        Ok(())
    }

    fn end_part(&mut self) -> Result<(), ()> {
        Ok(())
    }
}

fn collect(content: &[u8]) -> Vec<(PartHead, Vec<u8>)> {
    let mut parts = Collected::default();
    assert!(MultipartDecoder::new(b"xYz").feed(content, &mut parts).unwrap().1);
    parts.0
}

#[test]
fn what_browsers_send() {
    let content = b"--xYz\r\nContent-Disposition: form-data; name=\"title\"\r\n\r\nHello\r\n\
        --xYz\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a b.txt\"\r\nContent-Type: text/plain\r\n\r\n\
        one\r\ntwo\r\n--xY\r\n\r\n--xYz--\r\nepilogue";
    let parts = collect(content);
    assert_eq!(parts.len(), 2);
    assert_eq!((&parts[0].0.name[..], &parts[0].1[..]), (&b"title"[..], &b"Hello"[..]));
    assert_eq!(parts[0].0.file_name, None);
    assert_eq!(parts[1].0.file_name.as_deref(), Some(&b"a b.txt"[..]));
    assert_eq!(parts[1].0.media_type.as_deref(), Some(&b"text/plain"[..]));
    assert_eq!(parts[1].1, b"one\r\ntwo\r\n--xY\r\n");
    agree(content);
}

#[test]
fn odd_but_allowed() {
    for content in [
        // No part at all, a preamble, padding, empty content, other line ends within content.
        &b"--xYz--"[..],
        b"preamble\r\n--xYz \t\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n--xYz--",
        b"--xYz\r\ncontent-disposition:FORM-DATA;name=\"a\\\"b\";filename=\"C:\\dir\\x\"\r\n\r\n\r\n\r\n\r\n--xYz--\r\n",
        b"--xYz\r\nContent-Disposition: form-data; name=\"a\"\r\nContent-Transfer-Encoding: 8bit\r\n\r\n\r\r\n\r\n--xY\r\r\n--xYz--",
        b"\r\n--xYz\r\nX: y\r\nContent-Disposition: form-data; ;name=\"\"\r\n\r\nx\r\n--xYz--",
    ] {
        let (text, done) = decode(content).unwrap();
        assert!(done, "{text}");
        agree(content);
    }
    let parts = collect(
        b"--xYz\r\nContent-Disposition: form-data; name=\"a\\\"b\"; filename=\"C:\\dir\\x\"\r\n\r\n\r\n--xYz--",
    );
    assert_eq!((&parts[0].0.name[..], &parts[0].1[..]), (&b"a\"b"[..], &b""[..]));
    assert_eq!(parts[0].0.file_name.as_deref(), Some(&b"C:\\dir\\x"[..]));
}

#[test]
fn what_is_malformed() {
    use MultipartError::{Delimiter, PartEncoding, PartHead, PartHeadTooLong, Preamble};
    let long_head = format!("--xYz\r\nX: {}", "y".repeat(PART_HEAD_BYTES_MAX));
    let long_preamble = "x".repeat(2000);
    for (content, error) in [
        (&b"--xYzw\r\n"[..], Delimiter),
        (b"--xYz-x", Delimiter),
        (b"--xYz\rx", Delimiter),
        (b"--xYz\n", Delimiter),
        (b"--xYz\r\n\r\nx", PartHead),
        (b"--xYz\r\nnonsense\r\n\r\nx", PartHead),
        (b"--xYz\r\nContent-Disposition: attachment; name=a\r\n\r\nx", PartHead),
        (b"--xYz\r\nContent-Disposition: form-data; filename=a\r\n\r\nx", PartHead),
        (b"--xYz\r\nContent-Disposition: form-data; name=\"a\r\n\r\nx", PartHead),
        (b"--xYz\r\nContent-Disposition: form-data; name=a\r\n X: folded\r\n\r\nx", PartHead),
        (b"--xYz\r\nContent-Disposition: form-data; name=\"a\0\"\r\n\r\nx", PartHead),
        (
            b"--xYz\r\nContent-Disposition: form-data; name=a\r\nContent-Disposition: form-data; name=b\r\n\r\nx",
            PartHead,
        ),
        (
            b"--xYz\r\nContent-Disposition: form-data; name=a\r\nContent-Transfer-Encoding: base64\r\n\r\nx",
            PartEncoding,
        ),
        (long_head.as_bytes(), PartHeadTooLong),
        (long_preamble.as_bytes(), Preamble),
    ] {
        assert_eq!(decode(content), Err(MultipartStop::Malformed(error)), "{}", String::from_utf8_lossy(content));
        assert!(error.text().ends_with('.'));
        agree(content);
    }
    let refused = b"--xYz\r\nContent-Disposition: form-data; name=refused\r\n\r\nx";
    assert_eq!(decode(refused), Err(MultipartStop::Refused("begin")));
    agree(refused);
}

#[test]
fn a_head_may_be_as_long_as_the_limit_and_no_longer() {
    let start = "Content-Disposition: form-data; name=a\r\nX: ";
    for (extra, fits) in [(0, true), (1, false)] {
        // The empty line counts.
        let padding = "y".repeat(PART_HEAD_BYTES_MAX - start.len() - 4 + extra);
        let content = format!("--xYz\r\n{start}{padding}\r\n\r\n\r\n--xYz--");
        assert_eq!(decode(content.as_bytes()).is_ok(), fits);
        agree(content.as_bytes());
    }
}

#[test]
fn content_that_ends_too_soon() {
    let content = b"--xYz\r\nContent-Disposition: form-data; name=a\r\n\r\nx\r\n--xYz--";
    for length in 0..content.len() {
        let mut decoder = MultipartDecoder::new(b"xYz");
        let (used, done) = decoder.feed(&content[..length], &mut Written::default()).unwrap();
        assert_eq!((used, done), (length, false));
        assert_eq!(decoder.finish(), Err(MultipartError::Cut));
    }
}

#[test]
fn boundaries() {
    let long = format!("multipart/form-data; boundary={}", "x".repeat(BOUNDARY_BYTES_MAX + 1));
    for (value, expected) in [
        ("text/plain; boundary=a", None),
        ("multipart/form-data; boundary=a", Some(Ok(&b"a"[..]))),
        ("Multipart/Form-Data;charset=utf-8; Boundary=\"a b?\"; x=y", Some(Ok(b"a b?"))),
        (
            "multipart/form-data; boundary=----WebKitFormBoundary7MA4YWxkTrZu0gW",
            Some(Ok(b"----WebKitFormBoundary7MA4YWxkTrZu0gW")),
        ),
        ("multipart/form-data", Some(Err(MultipartError::Boundary))),
        ("multipart/form-data; boundary=", Some(Err(MultipartError::Boundary))),
        ("multipart/form-data; boundary=\"a ", Some(Err(MultipartError::Boundary))),
        ("multipart/form-data; boundary=\"a \"", Some(Err(MultipartError::Boundary))),
        ("multipart/form-data; boundary=a{b", Some(Err(MultipartError::Boundary))),
        (&long, Some(Err(MultipartError::Boundary))),
    ] {
        assert_eq!(parse_boundary(value.as_bytes()), expected.map(|found| found.map(<[u8]>::to_vec)), "{value}");
    }
}

fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"--xYz".to_vec()),
        Just(b"\r\n--xYz".to_vec()),
        Just(b"--".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"Content-Disposition: form-data; name=\"n\"; filename=\"f\"\r\n\r\n".to_vec()),
        Just(b"--xYz\r\nContent-Disposition: form-data; name=n\r\n\r\n".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..12),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn pieces_of_any_size_say_the_same(content in pieces()) {
        agree(&content);
    }

    #[test]
    fn what_was_put_in_comes_out(contents in proptest::collection::vec(any::<Vec<u8>>(), 0..6)) {
        let mut encoded = Vec::new();
        for (index, content) in contents.iter().enumerate() {
            prop_assume!(memchr::memmem::find(content, b"--xYz").is_none());
            encoded.extend_from_slice(
                format!("--xYz\r\nContent-Disposition: form-data; name=\"{index}\"\r\n\r\n").as_bytes(),
            );
            encoded.extend_from_slice(content);
            encoded.extend_from_slice(b"\r\n");
        }
        encoded.extend_from_slice(b"--xYz--\r\n");
        let parts: Vec<_> = collect(&encoded).into_iter().map(|(_, content)| content).collect();
        prop_assert_eq!(parts, contents);
    }
}
