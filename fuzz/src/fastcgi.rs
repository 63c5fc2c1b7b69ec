//! FastCGI: what application servers and scripts send.

use flatout_fastcgi::head::{CgiHead, EndFinder, HeadError};
use flatout_fastcgi::params::decode_pair;
use flatout_fastcgi::record::{Decoder, RecordEvent};
use flatout_http::feed::{assert_pieces_agree, assert_three_ways};

/// Answers: well, with errors beside them, and cut.
pub(crate) const RECORD_SEEDS: &[&[u8]] = &[
    b"\x01\x06\x00\x01\x00\x05\x03\x00\r\n\r\nx\xff\xff\xff\x01\x03\x00\x01\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
    b"\x01\x07\x00\x01\x00\x03\x00\x00err\x01\x07\x00\x01\x00\x00\x00\x00\x01\x06\x00\x01\x00\x00\x00\x00",
    b"\x01\x03\x00\x01\x00\x08\x00\x00\x00\x00\x01\x00\x02\x00\x00\x00\x01\x06",
];

/// Names and values, with lengths of one byte and of four.
pub(crate) const PARAM_SEEDS: &[&[u8]] = &[b"\x01\x02ABC\x00\x00", b"\x01\x80\x00\x00\x81A", b"\xff\xff\xff\xff\x7fA"];

/// Heads of scripts.
pub(crate) const HEAD_SEEDS: &[&[u8]] = &[
    b"Status: 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 12\r\n\r\n",
    b"Location: /a\nX-Sendfile: /b\n\n",
    b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n",
];

pub(crate) fn check_records(bytes: &[u8]) {
    assert_pieces_agree(bytes, Decoder::default, |decoder, input, output| {
        let mut used = 0;
        while used < input.len() && !decoder.is_done() {
            let (count, event) = decoder.decode(&input[used..])?;
            used += count;
            match event {
                Some(RecordEvent::Stdout(part)) => output.extend_from_slice(part),
                Some(RecordEvent::Stderr(part)) => output.extend(part.iter().map(|byte| byte ^ 0x80)),
                Some(other) => output.extend_from_slice(format!("{other:?}").as_bytes()),
                None => {}
            }
        }
        Ok::<_, flatout_fastcgi::record::RecordError>((used, decoder.is_done()))
    });
}

pub(crate) fn check_params(bytes: &[u8]) {
    assert_three_ways(bytes, |bytes| {
        decode_pair(bytes).map(|(name, value, used)| Ok::<_, ()>(((name.to_vec(), value.to_vec()), used)))
    });
}

pub(crate) fn check_head(bytes: &[u8]) {
    let decode = |bytes: &[u8]| -> Option<Result<(CgiHead, usize), HeadError>> {
        let found = EndFinder::default().find(bytes).transpose()?;
        Some(found.and_then(|used| Ok((CgiHead::parse(&bytes[..used])?, used))))
    };
    assert_three_ways(bytes, decode);
    if let Some(Ok((head, _))) = decode(bytes) {
        assert!((200..=599).contains(&head.status));
        for line in head.lines.split_inclusive(|&byte| byte == b'\n') {
            assert!(line.ends_with(b"\r\n") && !line[..line.len() - 2].contains(&b'\r'), "a line that is two");
        }
    }
}
