//! Response heads, parsed in the client role (RFC 9112 §4).

use crate::connection_auth::has_connection_scheme;
use crate::framing::{Framing, FramingFields, Version};
use crate::head::{ConnectionOptions, FieldStorage, Fields, read_end, read_fields};
use crate::limits::Limits;
use crate::refusal::Refusal;
use crate::request::parse_version;
use crate::status::reason;
use crate::token::is_named;

/// Maximum length of a reason phrase that is forwarded, in bytes. No registered phrase is even half as long.
const REASON_BYTES_MAX: usize = 128;

/// A valid response head.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    /// The HTTP version. 1.2 to 1.9 count as 1.1.
    pub version: Version,
    /// 100 to 599.
    pub status: u16,
    /// The reason phrase, which may be empty. It contains no control characters except tabs.
    pub reason: &'a [u8],
    /// All field lines.
    pub fields: Fields<'a>,
    /// How the body is framed.
    pub framing: Framing,
    /// The declared Content-Length, even if no body follows (HEAD, 304).
    pub content_length: Option<u64>,
    /// True if the connection is persistent (RFC 9112 §9.3). False if a 1xx or a 204 declares content: a server that
    /// also sends this content would have it taken for the next response.
    pub persistent: bool,
    /// True if the server may have authenticated the connection, or asks for that: WWW-Authenticate with NTLM,
    /// Negotiate or Kerberos, or `Persistent-Auth: true`. Such a connection must not serve several clients.
    pub authenticates_connection: bool,
    /// Length of the head in bytes.
    pub head_bytes: usize,
}

impl ResponseHead<'_> {
    /// Returns the reason phrase if it differs from the standard phrase of its status code and is not too long to
    /// forward.
    pub fn unusual_reason(&self) -> Option<&[u8]> {
        let is_unusual = self.reason != reason(self.status).as_bytes() && self.reason.len() <= REASON_BYTES_MAX;
        is_unusual.then_some(self.reason)
    }

    /// Returns whether this is an interim response (RFC 9110 §15.2). 101 counts as final: it ends HTTP on the
    /// connection.
    pub const fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }
}

/// Parses the response head at the start of `bytes`. `to_head` is true if the request was HEAD. Returns `Ok(None)` if
/// more bytes are needed.
pub fn parse_response_head<'a>(
    bytes: &'a [u8],
    to_head: bool,
    limits: &Limits,
    storage: &'a mut FieldStorage<'a>,
) -> Result<Option<ResponseHead<'a>>, Refusal> {
    if !bytes.starts_with(b"HTTP/")
        && let Some((at, _)) = b"HTTP/".iter().zip(bytes).enumerate().find(|(_, (expected, byte))| expected != byte)
    {
        // Later bytes cannot change the result, so a TLS alert or another protocol is refused at its first differing
        // byte.
        debug_assert!(at < 5);
        return Err(Refusal::StatusLine);
    }
    // Most responses begin with this line, so it is compared as a whole.
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\n";
    let is_ok = bytes.starts_with(OK);
    let line_bytes = is_ok.then_some(OK.len());
    let Some(end) = read_end(bytes, line_bytes, limits, Refusal::StatusLine, storage)? else { return Ok(None) };
    let (version, status, phrase) =
        if is_ok { (Version::Http11, 200, &b"OK"[..]) } else { parse_status_line(&bytes[..end.line_bytes - 2])? };
    let fields = read_fields(bytes, end, limits, storage)?;
    let mut framing = FramingFields::default();
    let mut options = ConnectionOptions::default();
    let mut authenticates_connection = false;
    for (name, value) in fields.iter() {
        match name.len() {
            14 if is_named(name, b"content-length") => framing.add_content_length(value)?,
            17 if is_named(name, b"transfer-encoding") => framing.add_transfer_encoding(value)?,
            10 if is_named(name, b"connection") => options.add(value)?,
            15 if is_named(name, b"persistent-auth") => {
                authenticates_connection |= value.eq_ignore_ascii_case(b"true");
            }
            16 if is_named(name, b"www-authenticate") => authenticates_connection |= has_connection_scheme(value),
            18 if is_named(name, b"proxy-authenticate") => authenticates_connection |= has_connection_scheme(value),
            _ => {}
        }
    }
    let decided = if limits.unknown_codings && version == Version::Http11 && framing.is_unknown_coding() {
        FramingFields::decide_until_close(status, to_head)
    } else {
        framing.decide_response(version, status, to_head)?
    };
    let declares_forbidden_content = (status < 200 || status == 204) && framing.declares_content();
    Ok(Some(ResponseHead {
        version,
        status,
        reason: phrase,
        fields,
        framing: decided,
        content_length: framing.content_length(),
        persistent: decided != Framing::UntilClose
            && !framing.is_unknown_coding()
            && !declares_forbidden_content
            && !options.close
            && (version == Version::Http11 || options.keep_alive),
        authenticates_connection,
        head_bytes: end.head_bytes,
    }))
}

/// Parses `status-line = HTTP-version SP status-code SP [ reason-phrase ]`. Without a reason phrase, the second space
/// is optional: many servers omit it, and omitting it causes no ambiguity.
fn parse_status_line(line: &[u8]) -> Result<(Version, u16, &[u8]), Refusal> {
    let (Some(version), Some(b' '), Some(code)) = (line.get(..8), line.get(8), line.get(9..12)) else {
        return Err(Refusal::StatusLine);
    };
    let version = parse_version(version)?;
    // RFC 9110 §15: 100 to 599 are valid; a status of 600 or more is treated as a 5xx.
    let &[hundreds @ b'1'..=b'9', tens @ b'0'..=b'9', units @ b'0'..=b'9'] = code else {
        return Err(Refusal::StatusLine);
    };
    match line.get(12) {
        None | Some(b' ') => {}
        Some(_) => return Err(Refusal::StatusLine),
    }
    if line[12..].iter().any(|&byte| (byte < b' ' && byte != b'\t') || byte == 0x7f) {
        return Err(Refusal::StatusLine);
    }
    let digit = |byte: u8| u16::from(byte - b'0');
    let status = digit(hundreds) * 100 + digit(tens) * 10 + digit(units);
    Ok((version, status, line.get(13..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::{ResponseHead, parse_response_head};
    use crate::feed::assert_three_ways;
    use crate::framing::Framing;
    use crate::head::FieldStorage;
    use crate::limits::Limits;
    use crate::refusal::Refusal;

    #[test]
    fn unknown_transfer_codings() {
        let bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: squeezed\r\n\r\n";
        let limits = Limits { unknown_codings: true, ..Limits::CLIENT };
        let framing = |bytes: &[u8], limits: &Limits| {
            let mut storage = FieldStorage::new();
            parse_response_head(bytes, false, limits, &mut storage).map(|head| {
                let head = head.expect("it is whole");
                (head.framing, head.persistent)
            })
        };
        assert_eq!(framing(bytes, &Limits::CLIENT), Err(Refusal::TransferEncodingInvalid));
        assert_eq!(framing(bytes, &limits), Ok((Framing::UntilClose, false)));
        // Heads that implementations could interpret differently are still refused.
        for (lines, refusal) in [
            ("Transfer-Encoding: squeezed\r\nContent-Length: 1\r\n", Refusal::LengthWithTransferEncoding),
            ("Transfer-Encoding: squeezed, chunked\r\n", Refusal::TransferEncodingUnknown),
            ("Transfer-Encoding: chunked, squeezed\r\n", Refusal::TransferEncodingInvalid),
        ] {
            let bytes = format!("HTTP/1.1 200 OK\r\n{lines}\r\n");
            assert_eq!(framing(bytes.as_bytes(), &limits), Err(refusal), "{lines}");
        }
        let old = b"HTTP/1.0 200 OK\r\nTransfer-Encoding: squeezed\r\n\r\n";
        assert_eq!(framing(old, &limits), Err(Refusal::TransferEncodingVersion));
    }

    fn outcome(bytes: &[u8]) -> Option<Result<(String, usize), Refusal>> {
        let mut storage = FieldStorage::new();
        match parse_response_head(bytes, false, &Limits::CLIENT, &mut storage) {
            Ok(None) => None,
            Ok(Some(head)) => Some(Ok((format!("{head:?}"), head.head_bytes))),
            Err(refusal) => Some(Err(refusal)),
        }
    }

    fn with_head<T>(text: &str, check: impl FnOnce(ResponseHead<'_>) -> T) -> T {
        assert_three_ways(text.as_bytes(), outcome);
        let mut storage = FieldStorage::new();
        check(parse_response_head(text.as_bytes(), false, &Limits::CLIENT, &mut storage).unwrap().unwrap())
    }

    #[test]
    fn framing_and_persistence() {
        for (text, framing, persistent) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Framing::Length(5), true),
            ("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", Framing::None, true),
            ("HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n", Framing::Chunked, true),
            ("HTTP/1.1 200 OK\r\n\r\n", Framing::UntilClose, false),
            ("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", Framing::None, true),
            ("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", Framing::None, false),
            ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", Framing::Length(5), false),
            ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n", Framing::Length(5), true),
            ("HTTP/1.1 100 Continue\r\n\r\n", Framing::None, true),
            // RFC 9110 §8.6 and RFC 9112 §6.1 forbid these fields in a 1xx and a 204.
            ("HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", Framing::None, true),
            ("HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n", Framing::None, false),
            ("HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", Framing::None, false),
            ("HTTP/1.1 103 Early Hints\r\nContent-Length: 9\r\n\r\n", Framing::None, false),
        ] {
            with_head(text, |head| {
                assert_eq!((head.framing, head.persistent), (framing, persistent), "{text}");
                assert_eq!(head.is_interim(), matches!(head.status, 100 | 103));
            });
        }
    }

    #[test]
    fn authentication_of_the_connection() {
        for (lines, expected) in [
            ("WWW-Authenticate: Negotiate\r\nWWW-Authenticate: NTLM\r\n", true),
            ("www-authenticate: Basic realm=\"a\", NTLM TlRM\r\n", true),
            ("Proxy-Authenticate: NTLM\r\n", true),
            ("Persistent-Auth: true\r\n", true),
            ("Persistent-Auth: false\r\n", false),
            ("WWW-Authenticate: Basic realm=\"a\"\r\nX-Authenticate: NTLM\r\n", false),
        ] {
            let text = format!("HTTP/1.1 401 Unauthorized\r\n{lines}Content-Length: 0\r\n\r\n");
            with_head(&text, |head| assert_eq!(head.authenticates_connection, expected, "{text}"));
        }
    }

    #[test]
    fn the_reason_phrase_is_as_received() {
        for (text, reason) in [
            ("HTTP/1.1 200 OK\r\n\r\n", "OK"),
            ("HTTP/1.1 200 Fine,  thanks\t\r\n\r\n", "Fine,  thanks\t"),
            ("HTTP/1.1 404\r\n\r\n", ""),
            ("HTTP/1.1 404 \r\n\r\n", ""),
        ] {
            with_head(text, |head| {
                assert_eq!(head.reason, reason.as_bytes(), "{text}");
                assert_eq!(head.unusual_reason(), (reason != "OK").then_some(reason.as_bytes()));
            });
        }
        with_head(&format!("HTTP/1.1 200 {}\r\n\r\n", "x".repeat(129)), |head| {
            assert_eq!(head.unusual_reason(), None);
        });
    }

    #[test]
    fn what_the_client_refuses() {
        for (text, refusal) in [
            ("HTTP/1.1 99 x\r\n\r\n", Refusal::StatusLine),
            ("HTTP/1.1 099 x\r\n\r\n", Refusal::StatusLine),
            ("HTTP/1.1 2000 x\r\n\r\n", Refusal::StatusLine),
            ("HTTP/1.1  200 x\r\n\r\n", Refusal::StatusLine),
            ("HTTP/2.0 200 x\r\n\r\n", Refusal::VersionUnsupported),
            ("ICY 200 OK\r\n\r\n", Refusal::StatusLine),
            ("HTTP/1.1 200 a\rb\r\n\r\n", Refusal::StatusLine),
            ("HTTP/1.1 200 OK\n\n", Refusal::BareLf),
            ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", Refusal::LengthDuplicate),
            ("HTTP/1.1 200 OK\r\nA : b\r\n\r\n", Refusal::SpaceBeforeColon),
        ] {
            assert_three_ways(text.as_bytes(), outcome);
            assert_eq!(outcome(text.as_bytes()), Some(Err(refusal)), "{text:?}");
        }
    }
}
