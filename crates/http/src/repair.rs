//! Rewrites response heads of old origins so that [`parse_response_head`](crate::response::parse_response_head) accepts
//! them. Requests are never repaired: input that implementations interpret differently is refused.

use crate::limits::Limits;
use crate::refusal::Refusal;
use crate::token::{parse_decimal, trim};

/// A response head after repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairedHead {
    /// The repaired head, with its empty line.
    pub head: Vec<u8>,
    /// Length of the head as received, in bytes.
    pub received_bytes: usize,
}

/// The refusals whose cause may be repaired.
const REPAIRED: [Refusal; 8] = [
    Refusal::BareLf,
    Refusal::ObsFold,
    Refusal::SpaceBeforeColon,
    Refusal::LengthDuplicate,
    Refusal::LengthInvalid,
    Refusal::LengthWithTransferEncoding,
    Refusal::TransferEncodingInvalid,
    Refusal::TransferEncodingUnknown,
];

/// Rewrites the response head at the start of `bytes`, which was refused because of `refusal`. Returns `Ok(None)` if
/// more bytes are needed.
///
/// A bare LF ends a line (RFC 9112 §2.2), white space before a colon is removed (§5.1), line folding is replaced by a
/// space (§5.2), equal values of Content-Length are replaced by a single value (RFC 9110 §8.6), and a Transfer-Encoding
/// that is only `identity`, which RFC 2616 had for no coding, is removed. Everything else is unchanged; the caller
/// parses the result.
///
/// # Errors
/// `refusal`, if none of these repairs applies to it; [`Refusal::ObsFold`] for a folded line without a field before it;
/// [`Refusal::HeadTooLarge`]; [`Refusal::FieldsTooMany`].
pub fn repair_response_head(bytes: &[u8], refusal: Refusal, limits: &Limits) -> Result<Option<RepairedHead>, Refusal> {
    if !REPAIRED.contains(&refusal) {
        return Err(refusal);
    }
    // More bytes may arrive one at a time, so nothing is copied before the head is complete.
    let Some(received_bytes) = find_end(bytes, limits)? else { return Ok(None) };
    let mut lines: Vec<Vec<u8>> = Vec::new();
    for line in lines_of(&bytes[..received_bytes]) {
        match (line.first(), lines.len()) {
            (None, 1..) => break,
            (Some(b' ' | b'\t'), 2..) => {
                if let Some(folded) = lines.last_mut() {
                    // Nothing else is trimmed: a bare CR remains and is refused.
                    let kept = folded.iter().rposition(|byte| !matches!(byte, b' ' | b'\t'));
                    folded.truncate(kept.map_or(0, |at| at + 1));
                    folded.push(b' ');
                    folded.extend_from_slice(trim(line));
                }
            }
            // RFC 9112 §2.2: such a line could be mistaken for a field or for the end of the head.
            (Some(b' ' | b'\t'), 1) => return Err(Refusal::ObsFold),
            // The first line is not a field.
            (_, count) if count > limits.fields_max => return Err(Refusal::FieldsTooMany),
            (_, 0) => lines.push(line.to_vec()),
            _ => lines.push(without_space_before_colon(line)),
        }
    }
    join_lengths(&mut lines);
    drop_identity(&mut lines);
    let mut head = Vec::with_capacity(received_bytes + lines.len());
    for line in &lines {
        head.extend_from_slice(line);
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    Ok(Some(RepairedHead { head, received_bytes }))
}

/// Returns the complete lines of `bytes`, each without its line ending.
fn lines_of(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split_inclusive(|&byte| byte == b'\n').filter_map(|line| {
        let line = line.strip_suffix(b"\n")?;
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    })
}

/// Returns the length of the head with its empty line, or `None` if it is incomplete. The first line is never that
/// empty line.
fn find_end(bytes: &[u8], limits: &Limits) -> Result<Option<usize>, Refusal> {
    let mut line_at = 0;
    for at in memchr::memchr_iter(b'\n', bytes) {
        if at >= limits.head_bytes_max {
            return Err(Refusal::HeadTooLarge);
        }
        if line_at > 0 && matches!(bytes[line_at..at], [] | [b'\r']) {
            return Ok(Some(at + 1));
        }
        line_at = at + 1;
    }
    if bytes.len() > limits.head_bytes_max { Err(Refusal::HeadTooLarge) } else { Ok(None) }
}

/// Removes the line of Transfer-Encoding if it is the only one and names no coding.
fn drop_identity(lines: &mut Vec<Vec<u8>>) {
    const NAME: &[u8] = b"transfer-encoding:";
    let coding = |line: &[u8]| {
        let (name, value) = line.split_at_checked(NAME.len())?;
        name.eq_ignore_ascii_case(NAME).then(|| trim(value).eq_ignore_ascii_case(b"identity"))
    };
    if lines.iter().filter_map(|line| coding(line)).eq([true]) {
        lines.retain(|line| coding(line).is_none());
    }
}

/// Returns a field line without the white space between its name and its colon.
fn without_space_before_colon(line: &[u8]) -> Vec<u8> {
    let Some(colon) = memchr::memchr(b':', line) else { return line.to_vec() };
    let name = line[..colon].iter().rposition(|byte| !matches!(byte, b' ' | b'\t')).map_or(0, |at| at + 1);
    [&line[..name], &line[colon..]].concat()
}

/// Replaces several equal values of Content-Length, in one line or several, by a single line with one value.
fn join_lengths(lines: &mut Vec<Vec<u8>>) {
    const NAME: &[u8] = b"content-length:";
    let value_of = |line: &[u8]| {
        let (name, value) = line.split_at_checked(NAME.len())?;
        name.eq_ignore_ascii_case(NAME).then(|| value.to_vec())
    };
    let values: Vec<_> = lines.iter().filter_map(|line| value_of(line)).collect();
    let mut lengths =
        values.iter().flat_map(|value| value.split(|&byte| byte == b',')).map(|one| parse_decimal(trim(one)));
    let Some(Some(length)) = lengths.next() else { return };
    if !lengths.all(|other| other == Some(length)) {
        return;
    }
    let mut is_first = true;
    lines.retain_mut(|line| {
        if value_of(line).is_none() {
            return true;
        }
        *line = format!("Content-Length: {length}").into_bytes();
        std::mem::replace(&mut is_first, false)
    });
}

#[cfg(test)]
mod tests {
    use super::repair_response_head;
    use crate::feed::assert_three_ways;
    use crate::head::FieldStorage;
    use crate::limits::Limits;
    use crate::refusal::Refusal;
    use crate::response::parse_response_head;

    /// Returns the parsed head, repaired if necessary, and its length as received.
    fn outcome(bytes: &[u8]) -> Option<Result<(String, usize), Refusal>> {
        let limits = Limits { head_bytes_max: 300, ..Limits::CLIENT };
        let parse = |bytes: &[u8]| {
            let mut storage = FieldStorage::new();
            let head = parse_response_head(bytes, false, &limits, &mut storage)?;
            Ok(head.map(|head| {
                let fields: String =
                    head.fields.iter().map(|(name, value)| format!("{name}={};", value.escape_ascii())).collect();
                (format!("{} {:?} {fields}", head.status, head.framing), head.head_bytes)
            }))
        };
        match parse(bytes) {
            Ok(head) => head.map(Ok),
            Err(refusal) => match repair_response_head(bytes, refusal, &limits) {
                Ok(None) => None,
                Ok(Some(repaired)) => Some(match parse(&repaired.head) {
                    Ok(Some((text, head_bytes))) => {
                        assert_eq!(head_bytes, repaired.head.len());
                        Ok((text, repaired.received_bytes))
                    }
                    Ok(None) => panic!("the repaired head is incomplete"),
                    Err(refusal) => Err(refusal),
                }),
                Err(refusal) => Some(Err(refusal)),
            },
        }
    }

    fn assert_outcome(head: &str, expected: Result<&str, Refusal>) {
        assert_three_ways(head.as_bytes(), outcome);
        let expected = expected.map(|text| (text.to_owned(), head.len()));
        assert_eq!(outcome(head.as_bytes()), Some(expected), "{head:?}");
    }

    /// RFC 9112 §2.2, §5.2, RFC 9110 §8.6.
    #[test]
    fn heads_of_old_origins_are_read() {
        for (head, expected) in [
            ("HTTP/1.1 200 OK\nContent-Length: 5\n\n", "200 Length(5) Content-Length=5;"),
            ("HTTP/1.0 200 OK\nA: b\r\nContent-Length: 5\n\r\n", "200 Length(5) A=b;Content-Length=5;"),
            ("HTTP/1.1 204\n\n", "204 None "),
            ("HTTP/1.1 204 No\r\nA: b\r\n\t c \r\n \r\n  d\r\nE: f\r\n\r\n", "204 None A=b c d;E=f;"),
            ("HTTP/1.1 204 No\nA:\n b\n\n", "204 None A=b;"),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nA: b\r\ncontent-length: 5\r\n\r\n",
                "200 Length(5) Content-Length=5;A=b;",
            ),
            ("HTTP/1.1 200 OK\r\nA : b\r\nContent-Length \t: 5\r\n\r\n", "200 Length(5) A=b;Content-Length=5;"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\n\r\n", "200 Chunked Transfer-Encoding=chunked;"),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: Identity\r\nContent-Length: 5\r\n\r\n",
                "200 Length(5) Content-Length=5;",
            ),
            ("HTTP/1.1 200 OK\nA : b\ntransfer-encoding:identity\n\n", "200 UntilClose A=b;"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5, 5,05\r\n\r\n", "200 Length(5) Content-Length=5;"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\nContent-Length: 5\r\n\r\n", "200 Length(5) Content-Length=5;"),
        ] {
            assert_outcome(head, Ok(expected));
        }
    }

    #[test]
    fn heads_that_stay_refused() {
        for (head, refusal) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", Refusal::LengthDuplicate),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\n", Refusal::LengthInvalid),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5,\r\n\r\n", Refusal::LengthInvalid),
            ("HTTP/1.1 200 OK\r\nContent-Length: +5\r\nContent-Length: +5\r\n\r\n", Refusal::LengthInvalid),
            ("HTTP/1.1 200 OK\nContent-Length: 5\nTransfer-Encoding: chunked\n\n", Refusal::LengthWithTransferEncoding),
            ("HTTP/1.1 200 OK\r\n A: b\r\nB: c\r\n\r\n", Refusal::ObsFold),
            ("HTTP/1.1 200 OK\r\nContent-Length : 5\r\nContent-Length: 6\r\n\r\n", Refusal::LengthDuplicate),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\nContent-Length: 6\r\n\r\n",
                Refusal::LengthWithTransferEncoding,
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n",
                Refusal::TransferEncodingInvalid,
            ),
            ("HTTP/1.1 200 OK\r\nA b : c\r\n\r\n", Refusal::FieldName),
            ("HTTP/1.1 200 OK\r\n : c\r\n\r\n", Refusal::ObsFold),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: identity, chunked\r\n\r\n", Refusal::TransferEncodingUnknown),
            ("HTTP/1.1 200 OK\nA: b\rc\n\n", Refusal::BareCr),
            ("HTTP/1.1 200 OK\nA: b\r\r\n c\n\n", Refusal::BareCr),
            ("HTTP/1.1 200 OK\nA: b\r \t\r\n c\n\n", Refusal::BareCr),
        ] {
            let refused = outcome(head.as_bytes());
            assert_eq!(refused, Some(Err(refusal)), "{head:?}");
        }
        let long = format!("HTTP/1.1 200 OK\n{}", "A: b\n".repeat(60));
        assert_eq!(outcome(long.as_bytes()), Some(Err(Refusal::HeadTooLarge)));
        assert_eq!(outcome(&[&b"HTTP/1.1 200 OK\nA: "[..], &[b'a'; 400]].concat()), Some(Err(Refusal::HeadTooLarge)));
        assert_eq!(outcome(b"HTTP/1.1 200 OK\nA: b\n"), None);
    }

    #[test]
    fn fields_of_a_repaired_head_are_counted() {
        let limits = Limits { fields_max: 3, ..Limits::CLIENT };
        for (head, expected) in [
            ("HTTP/1.1 200 OK\nA: b\nB: c\nC: d\n e\n f\n\n", None),
            ("HTTP/1.1 200 OK\nA: b\nB: c\nC: d\nD: e\n\n", Some(Refusal::FieldsTooMany)),
        ] {
            let repaired = repair_response_head(head.as_bytes(), Refusal::BareLf, &limits);
            assert_eq!(repaired.err(), expected, "{head:?}");
        }
    }

    #[test]
    fn the_limit_of_a_repaired_head_includes_its_empty_line() {
        let head = b"HTTP/1.1 204\nA: b\n\n";
        for (head_bytes_max, is_refused) in [(head.len(), false), (head.len() - 1, true)] {
            let limits = Limits { head_bytes_max, ..Limits::CLIENT };
            let repaired = repair_response_head(head, Refusal::BareLf, &limits);
            assert_eq!(repaired.err(), is_refused.then_some(Refusal::HeadTooLarge));
        }
    }
}
