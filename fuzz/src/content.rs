//! Request content for pages: forms with files, fields, cookies, sessions.

use flatout_http::feed::assert_pieces_agree;
use flatout_pages::api::cookie::{Cookie, SameSite, decode_value, parse_cookies};
use flatout_pages::api::field::{is_value, location};
use flatout_pages::api::form::{FIELDS_MAX, parse_form};
use flatout_pages::api::multipart::{MultipartDecoder, PartHead, Parts, parse_boundary};
use flatout_pages::api::seal::{check_token, open_session};
use flatout_pages::api::secret::Secret;

/// Forms with the boundary `b`.
pub(crate) const MULTIPART_SEEDS: &[&[u8]] = &[
    b"--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nc\r\n--b--\r\n",
    b"x\r\n--b \r\nContent-Disposition: form-data; name=a; filename=\"d\\\"e\"\r\nContent-Type: f\r\n\r\n\r\n--\r\n--b--",
    b"--b\r\ncontent-disposition:form-data;name=\"\"\r\nContent-Transfer-Encoding: 8bit\r\n\r\n\r\r\n\r\n--b\r\n\r\n",
    b"--b--",
];

/// Fields, cookies, types.
pub(crate) const FIELD_SEEDS: &[&[u8]] = &[
    b"a=b&c=d+%20%ff&&=e",
    b"a=b; c=\"d e\";f",
    b"multipart/form-data; boundary=\"a b\"; x=y",
    b"/a/../b?c=d#e\\f",
    b"AQAAAABrSZ9uAAAAAAAAAAAAAAAAAAAAAHt9",
];

/// Writes down what comes.
#[derive(Default)]
struct Written(Vec<u8>);

impl Parts for Written {
    type Refusal = u8;

    fn begin_part(&mut self, head: PartHead) -> Result<(), u8> {
        // So that a refusal, too, must fall on the same byte.
        if head.name.first() == Some(&b'r') {
            return Err(1);
        }
        self.0.extend_from_slice(format!("<{head:?}>").as_bytes());
        Ok(())
    }

    fn part_bytes(&mut self, bytes: &[u8]) -> Result<(), u8> {
        assert!(!bytes.is_empty());
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn end_part(&mut self) -> Result<(), u8> {
        self.0.extend_from_slice(b"<end>");
        Ok(())
    }
}

/// A form says the same however it was cut.
pub(crate) fn check_multipart(bytes: &[u8]) {
    assert_pieces_agree(
        bytes,
        || MultipartDecoder::new(b"b"),
        |decoder, piece, output| {
            let mut parts = Written::default();
            let outcome = decoder.feed(piece, &mut parts);
            match &outcome {
                Ok((_, done)) => {
                    output.extend_from_slice(&parts.0);
                    assert_eq!(decoder.finish().is_ok(), *done);
                }
                // What was given before an error depends on the cuts; the error does not.
                Err(_) => output.clear(),
            }
            outcome
        },
    );
}

/// Nothing in a field is fatal, or breaks out of its line.
pub(crate) fn check_fields(bytes: &[u8]) {
    assert!(parse_form(bytes).count() <= FIELDS_MAX + 1);
    for (name, value) in parse_cookies(bytes) {
        let mut line = String::new();
        let cookie = Cookie {
            name,
            value,
            path: bytes,
            domain: None,
            max_age_s: None,
            secure: true,
            http_only: true,
            same_site: SameSite::Lax,
        };
        if cookie.encode_to(&mut line).is_ok() {
            assert!(line.bytes().all(|byte| (0x20..0x7f).contains(&byte)));
            let sent = line.split(';').next().and_then(|pair| pair.split_once('='));
            assert!(sent.is_some_and(|(_, sent)| decode_value(sent.as_bytes()) == value));
        }
    }
    if let Some(Ok(boundary)) = parse_boundary(bytes) {
        assert!((1..=70).contains(&boundary.len()));
    }
    if let Some(location) = location(bytes) {
        assert!(is_value(&location) && location.is_ascii());
    }
    if let Ok(secret) = Secret::parse("fuzz-fuzz-fuzz-fuzz-fuzz-fuzz-fuzz", "site") {
        assert!(open_session(&secret, bytes, 1_800_000_000).is_none());
        assert!(!check_token(&secret, &[0; 16], bytes));
    }
}
