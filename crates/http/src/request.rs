//! Request heads: httparse parses the fields, and this module applies stricter rules (RFC 9112 §3, §5, §6; RFC 9110
//! §7.2, §10.1.1).

use crate::framing::{Framing, FramingFields, Version};
use crate::head::{ConnectionOptions, FieldStorage, Fields, read_end, read_fields};
use crate::host::{check_host, is_same_host};
use crate::limits::Limits;
use crate::refusal::Refusal;
use crate::target::{Target, TargetOrigin, parse_any_target, parse_target};
use crate::token::{TCHAR, is, trim};
use memchr::memchr;

/// Request method (RFC 9110 §9). Methods are case-sensitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method<'a> {
    /// GET.
    Get,
    /// HEAD.
    Head,
    /// OPTIONS.
    Options,
    /// CONNECT.
    Connect,
    /// POST, PUT, DELETE, PATCH or TRACE, which not every resource supports.
    Known(&'a str),
    /// Any other token.
    Unknown(&'a str),
}

impl<'a> Method<'a> {
    /// Returns the method that `token` names, or `None` if `token` is not UTF-8.
    fn from_token(token: &'a [u8]) -> Option<Self> {
        match token {
            b"GET" => return Some(Self::Get),
            b"HEAD" => return Some(Self::Head),
            b"OPTIONS" => return Some(Self::Options),
            b"CONNECT" => return Some(Self::Connect),
            _ => {}
        }
        let text = std::str::from_utf8(token).ok()?;
        Some(match text {
            "POST" | "PUT" | "DELETE" | "PATCH" | "TRACE" => Self::Known(text),
            _ => Self::Unknown(text),
        })
    }

    /// Returns the token as received.
    pub const fn as_str(&self) -> &'a str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Options => "OPTIONS",
            Self::Connect => "CONNECT",
            Self::Known(token) | Self::Unknown(token) => token,
        }
    }
}

/// Returns whether sending a request with `method` several times has the same effect as sending it once (RFC 9110
/// §9.2.2). Includes the safe methods of WebDAV.
pub fn is_idempotent(method: &str) -> bool {
    matches!(
        method,
        "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE" | "PROPFIND" | "SEARCH" | "REPORT" | "QUERY"
    )
}

/// The optional request fields that are present, one bit each, so that checking for an absent field costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked(u8);

impl Asked {
    /// `Range` (RFC 9110 §14.2).
    pub const RANGE: u8 = 1;
    /// Any of the five precondition fields (RFC 9110 §13.1).
    pub const CONDITION: u8 = 2;
    /// `Accept-Encoding` (RFC 9110 §12.5.3).
    pub const ENCODING: u8 = 4;
    /// `Want-Repr-Digest` or `Want-Content-Digest` (RFC 9530 §4).
    pub const DIGEST: u8 = 8;

    /// Returns whether any of `bits` is set.
    pub const fn any(self, bits: u8) -> bool {
        self.0 & bits != 0
    }
}

/// A valid request head.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// The method.
    pub method: Method<'a>,
    /// The request target, in one of its four forms.
    pub target: Target<'a>,
    /// The target as received, for logs.
    pub target_text: &'a [u8],
    /// The HTTP version. 1.2 to 1.9 count as 1.1.
    pub version: Version,
    /// The valid host and optional port that the request is for: those of a target in absolute form, otherwise of Host
    /// or `:authority`. `None` only in HTTP/1.0.
    pub host: Option<&'a [u8]>,
    /// All field lines.
    pub fields: Fields<'a>,
    /// How the body is framed.
    pub framing: Framing,
    /// True if the client permits a persistent connection (RFC 9112 §9.3).
    pub persistent: bool,
    /// True if the client waits for `100 Continue` before sending the body (RFC 9110 §10.1.1).
    pub expects_continue: bool,
    /// Optional fields that are present.
    pub asked: Asked,
    /// Length of the head in bytes, including empty lines before the request line.
    pub head_bytes: usize,
}

impl RequestHead<'_> {
    /// Returns whether the target is in absolute form with the scheme https.
    pub fn has_https_target(&self) -> bool {
        const PREFIX: &[u8] = b"https:";
        self.target_text.get(..PREFIX.len()).is_some_and(|prefix| prefix.eq_ignore_ascii_case(PREFIX))
            && matches!(self.target, Target::Resource { .. } | Target::Asterisk)
    }
}

/// Maximum empty lines skipped before a request line. Some clients send one or two after the content of a request.
const EMPTY_LINES_MAX: usize = 8;

/// Parses the request head at the start of `bytes`. Returns `Ok(None)` if more bytes are needed.
///
/// The result depends only on the bytes, not on how they were split: if a prefix is refused, the whole head is refused
/// for the same reason. Up to eight empty lines before the request line are skipped (RFC 9112 §2.2).
pub fn parse_request_head<'a>(
    bytes: &'a [u8],
    limits: &Limits,
    storage: &'a mut FieldStorage<'a>,
) -> Result<Option<RequestHead<'a>>, Refusal> {
    let skipped = bytes.chunks_exact(2).take(EMPTY_LINES_MAX).take_while(|line| *line == b"\r\n").count() * 2;
    let bytes = &bytes[skipped..];
    match bytes {
        // An empty line beyond the limit is not a request line.
        [b'\r', ..] if skipped == 2 * EMPTY_LINES_MAX => return Err(Refusal::RequestLine),
        [b'\r'] => return Ok(None),
        [b'\r', ..] => return Err(Refusal::BareCr),
        [b'\n', ..] => return Err(Refusal::BareLf),
        _ => {}
    }
    let method_bytes = check_method_prefix(bytes, limits)?;
    let Some(end) = read_end(bytes, None, limits, Refusal::TargetTooLong, storage)? else { return Ok(None) };
    let line = parse_request_line(&bytes[..end.line_bytes - 2], method_bytes, limits)?;
    let fields = read_fields(bytes, end, limits, storage)?;
    let gathered = gather(fields)?;
    if gathered.host.is_none() && line.version == Version::Http11 {
        return Err(Refusal::HostMissing);
    }
    let host = decide_host(line.origin, gathered.host)?;
    let framing = gathered.framing.decide_request(line.version)?;
    let expects_continue = gathered.expects_continue && line.version == Version::Http11 && framing != Framing::None;
    let options = gathered.connection;
    Ok(Some(RequestHead {
        method: line.method,
        target: line.target,
        target_text: line.target_text,
        version: line.version,
        host,
        fields,
        framing,
        persistent: !options.close && (line.version == Version::Http11 || options.keep_alive),
        expects_continue,
        asked: gathered.asked,
        head_bytes: skipped + end.head_bytes,
    }))
}

/// Builds a request head from parts that were not received as HTTP/1.1 (RFC 9113 §8.3). The same rules apply: the
/// target and all fields relevant to the message are validated. `authority` replaces Host, and must equal Host if both
/// are present.
pub fn assemble_request_head<'a>(
    method: &'a [u8],
    target_text: &'a [u8],
    authority: Option<&'a [u8]>,
    fields: Fields<'a>,
    limits: &Limits,
) -> Result<RequestHead<'a>, Refusal> {
    if method.len() > limits.method_bytes_max {
        return Err(Refusal::MethodTooLong);
    }
    if method.is_empty() || !method.iter().all(|&byte| is(byte, TCHAR)) {
        return Err(Refusal::Method);
    }
    if target_text.len() > limits.target_bytes_max {
        return Err(Refusal::TargetTooLong);
    }
    if fields.len() > limits.fields_max {
        return Err(Refusal::FieldsTooMany);
    }
    // RFC 9113 §8.3.1: `:path` is a path and a query. A target in absolute form would name a second host.
    if method != b"CONNECT" && target_text != b"*" && !target_text.starts_with(b"/") {
        return Err(Refusal::Target);
    }
    let target = parse_target(method, target_text)?;
    let method_bytes = method.len();
    let method = Method::from_token(method).ok_or(Refusal::Method)?;
    let gathered = gather(fields)?;
    if let Some(authority) = authority {
        check_host(authority)?;
        if gathered.host.is_some_and(|host| !host.eq_ignore_ascii_case(authority)) {
            return Err(Refusal::HostMismatch);
        }
    }
    // The size of the same head over HTTP/1.1, so that clients are refused alike.
    let lines = fields.iter().map(|(name, value)| name.len() + ": \r\n".len() + value.len());
    let first = method_bytes + target_text.len() + "  HTTP/1.1\r\n".len();
    let moved = authority.filter(|_| gathered.host.is_none());
    let moved = moved.map_or(0, |authority| "Host: \r\n".len() + authority.len());
    if first + moved + lines.sum::<usize>() + "\r\n".len() > limits.head_bytes_max {
        return Err(Refusal::HeadTooLarge);
    }
    let host = authority.or(gathered.host).ok_or(Refusal::HostMissing)?;
    let framing = gathered.framing.decide_request(Version::Http2)?;
    Ok(RequestHead {
        method,
        target,
        target_text,
        version: Version::Http2,
        host: Some(host),
        fields,
        framing,
        persistent: true,
        expects_continue: gathered.expects_continue,
        asked: gathered.asked,
        head_bytes: 0,
    })
}

/// Decides which host a request is for. RFC 9112 §3.2.2 lets the host of a target in absolute form replace Host, but two
/// different hosts are refused: whatever is behind this server may obey the other one.
fn decide_host<'a>(origin: Option<TargetOrigin<'a>>, host: Option<&'a [u8]>) -> Result<Option<&'a [u8]>, Refusal> {
    let Some(origin) = origin else { return Ok(host) };
    match host {
        Some(host) if !is_same_host(origin.secure, origin.authority, host) => Err(Refusal::HostMismatch),
        _ => Ok(Some(origin.authority)),
    }
}

/// Refuses input that cannot become a request, whatever follows: binary data, a TLS ClientHello, an endless method.
/// Returns the length of the method, or of the part received so far.
fn check_method_prefix(bytes: &[u8], limits: &Limits) -> Result<usize, Refusal> {
    for (at, &byte) in bytes.iter().take(limits.method_bytes_max + 1).enumerate() {
        if is(byte, TCHAR) {
            continue;
        }
        return match byte {
            b' ' if at > 0 => Ok(at),
            0x16 if at == 0 => Err(Refusal::TlsOnPlainPort),
            b'\r' | b'\n' => Err(Refusal::RequestLine),
            _ => Err(Refusal::Method),
        };
    }
    if bytes.len() > limits.method_bytes_max { Err(Refusal::MethodTooLong) } else { Ok(bytes.len()) }
}

struct RequestLine<'a> {
    method: Method<'a>,
    target: Target<'a>,
    origin: Option<TargetOrigin<'a>>,
    target_text: &'a [u8],
    version: Version,
}

/// Parses `request-line = method SP request-target SP HTTP-version`, with single spaces only. `line` has no line
/// ending. Its first `method_bytes` bytes, the method, and the space after them have already been validated.
fn parse_request_line<'a>(line: &'a [u8], method_bytes: usize, limits: &Limits) -> Result<RequestLine<'a>, Refusal> {
    let (method, rest) = (&line[..method_bytes], line.get(method_bytes + 1..).unwrap_or(b""));
    // Some implementations treat a CR within the line as a line ending, so a CR in any part is classified as a bare CR.
    let name_cr = |refusal| if memchr(b'\r', line).is_some() { Refusal::BareCr } else { refusal };
    let target_bytes = rest.iter().position(|&byte| byte == b' ').ok_or(Refusal::RequestLine).map_err(name_cr)?;
    let (target_text, version) = (&rest[..target_bytes], &rest[target_bytes + 1..]);
    if target_text.is_empty() || version.is_empty() || version.contains(&b' ') {
        return Err(name_cr(Refusal::RequestLine));
    }
    if target_bytes > limits.target_bytes_max {
        return Err(name_cr(Refusal::TargetTooLong));
    }
    let version = parse_version(version).map_err(name_cr)?;
    let (target, origin) = parse_any_target(method, target_text).map_err(name_cr)?;
    let method = Method::from_token(method).ok_or(Refusal::Method)?;
    Ok(RequestLine { method, target, origin, target_text, version })
}

/// Parses `HTTP-version = "HTTP/" DIGIT "." DIGIT`, which is case-sensitive (RFC 9112 §2.3).
pub(crate) fn parse_version(bytes: &[u8]) -> Result<Version, Refusal> {
    match bytes {
        b"HTTP/1.0" => Ok(Version::Http10),
        // RFC 9110 §2.5: treat a higher minor version as the highest known one.
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'1'..=b'9'] => Ok(Version::Http11),
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor] if major.is_ascii_digit() && minor.is_ascii_digit() => {
            Err(Refusal::VersionUnsupported)
        }
        _ => Err(Refusal::Version),
    }
}

#[derive(Default)]
struct Gathered<'a> {
    host: Option<&'a [u8]>,
    framing: FramingFields,
    connection: ConnectionOptions,
    expects_continue: bool,
    asked: Asked,
    /// One bit for each field of `SINGLETONS` that is present.
    singletons: u16,
}

impl Gathered<'_> {
    /// Adds the expectations of an Expect line, a list whose empty elements are skipped (RFC 9110 §10.1.1, §5.6.1).
    fn add_expect(&mut self, value: &[u8]) -> Result<(), Refusal> {
        for expectation in value.split(|&byte| byte == b',').map(trim).filter(|expectation| !expectation.is_empty()) {
            if !expectation.eq_ignore_ascii_case(b"100-continue") {
                return Err(Refusal::ExpectUnknown);
            }
            self.expects_continue = true;
        }
        Ok(())
    }
}

/// Request fields that are not lists, so that a second line is malformed (RFC 9110 §5.3). Host and Content-Length have
/// separate refusals.
const SINGLETONS: [&str; 14] = [
    "range",
    "if-range",
    "if-modified-since",
    "if-unmodified-since",
    "authorization",
    "proxy-authorization",
    "content-type",
    "content-range",
    "date",
    "from",
    "max-forwards",
    "referer",
    "user-agent",
    "content-location",
];

/// Validates the fields that are relevant to the message and marks the optional fields that are present, in one pass.
fn gather(fields: Fields<'_>) -> Result<Gathered<'_>, Refusal> {
    let mut gathered = Gathered::default();
    for (name, value) in fields.iter() {
        gather_field(&mut gathered, name, value)?;
    }
    Ok(gathered)
}

fn gather_field<'a>(gathered: &mut Gathered<'a>, name: &str, value: &'a [u8]) -> Result<(), Refusal> {
    // Length and first letter leave at most two candidates, and other fields cost one branch.
    let first = name.as_bytes().first().map_or(0, u8::to_ascii_lowercase);
    let named = |candidate: &str| name.eq_ignore_ascii_case(candidate);
    match (name.len(), first) {
        (4, b'h') if named("host") => {
            if gathered.host.replace(value).is_some() {
                return Err(Refusal::HostDuplicate);
            }
            return check_host(value);
        }
        (14, b'c') if named("content-length") => return gathered.framing.add_content_length(value),
        (17, b't') if named("transfer-encoding") => return gathered.framing.add_transfer_encoding(value),
        (10, b'c') if named("connection") => return gathered.connection.add(value),
        (6, b'e') if named("expect") => return gathered.add_expect(value),
        (8, b'i') if named("if-match") => gathered.asked.0 |= Asked::CONDITION,
        (13, b'i') if named("if-none-match") => gathered.asked.0 |= Asked::CONDITION,
        (15, b'a') if named("accept-encoding") => gathered.asked.0 |= Asked::ENCODING,
        (16, b'w') if named("want-repr-digest") => gathered.asked.0 |= Asked::DIGEST,
        (19, b'w') if named("want-content-digest") => gathered.asked.0 |= Asked::DIGEST,
        _ => {}
    }
    let Some(index) = SINGLETONS.iter().position(|singleton| singleton.len() == name.len() && named(singleton)) else {
        return Ok(());
    };
    let bit = 1 << index;
    if gathered.singletons & bit != 0 {
        return Err(Refusal::FieldDuplicate);
    }
    gathered.singletons |= bit;
    gathered.asked.0 |= match index {
        0 => Asked::RANGE,
        1..=3 => Asked::CONDITION,
        _ => 0,
    };
    Ok(())
}

#[cfg(test)]
mod tests;
