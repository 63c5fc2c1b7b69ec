//! Field lines of an upstream request.

use super::names::{FieldClass, Name, may_be_special};
use super::operations::Operations;
use super::{ConnectionNames, elements};
use crate::outcome::ForwardOutcome;
use flatout_cache::key::write_authority;
use flatout_config::model::{HostField, Origin, Proxy, TrustedProxy, is_trusted};
use flatout_handler::Request;
use flatout_http::forwarded::{ClientClaim, Sender, read_claim};
use flatout_http::framing::Version;
use flatout_http::head::Fields;
use flatout_http::lines::write_line;
use flatout_http::request::{Method, RequestHead};
use flatout_http::token::{is_named, is_token, parse_decimal};
use std::io::Write as _;
use std::net::IpAddr;

/// Start of the mark of each proxy in CDN-Loop. The rest is random.
pub(crate) const LOOP_MARK_START: &str = "flatout;id=";

/// Maximum number of flatout proxies in a chain.
const CHAIN_MAX: usize = 16;

/// Set of client fields that are not forwarded because the proxy replaces them, or because the response must suit all
/// clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strip(u8);

impl Strip {
    /// The empty set.
    pub const NOTHING: Self = Self(0);
    /// If-Match, If-None-Match, If-Modified-Since, If-Unmodified-Since.
    pub const CONDITIONS: Self = Self(1);
    /// Range and If-Range.
    pub const RANGE: Self = Self(2);
    /// Accept-Encoding.
    pub const ENCODING: Self = Self(4);
    /// Cookie and Authorization.
    pub const CREDENTIALS: Self = Self(8);

    /// Returns the union of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// Parameters for forwarding a request.
#[derive(Clone, Copy, Debug)]
pub struct Passage<'a> {
    /// The selected origin.
    pub origin: &'a Origin,
    /// The element that this proxy adds to CDN-Loop (RFC 8586), which no other proxy uses.
    pub loop_mark: &'a str,
    /// Client fields to omit.
    pub strip: Strip,
    /// Lines to append after the client's fields, each `Name: value` and CR LF, such as conditions and
    /// Surrogate-Capability.
    pub extra: &'a [u8],
}

/// Appends the upstream field lines to `out`, each `Name: value` and CR LF, without the final empty line. Host is the
/// first. All hop-by-hop and framing fields except `TE: trailers` are omitted; the upstream connection adds its own.
///
/// Returns [`ForwardOutcome::LoopDetected`], [`ForwardOutcome::MaxForwards`] or [`ForwardOutcome::ConnectRefused`] as
/// an error. After an error, `out` may contain some of the lines.
pub fn write_request_lines(
    request: &Request<'_>,
    settings: &Proxy,
    passage: &Passage<'_>,
    out: &mut Vec<u8>,
) -> Result<(), ForwardOutcome> {
    let head = request.head;
    if head.method == Method::Connect {
        return Err(ForwardOutcome::ConnectRefused);
    }
    // The host is normalised as in the cache key, so that the client's spelling cannot affect the response.
    let mut spelt = Vec::new();
    let host = head.host.map(|host| spell(request.secure, host, &mut spelt));
    let mut writer = Writer {
        out,
        fields: head.fields,
        operations: Operations(&settings.request_fields),
        connection: ConnectionNames::new(head.fields),
        trusted: is_trusted(&settings.trusted, request.sender()),
        settings,
        strip: passage.strip,
        seen: SeenFields::default(),
    };
    writer.write_host(host, passage.origin);
    writer.write_fields(head)?;
    writer.write_loop_mark(passage.loop_mark)?;
    if let Some(via) = settings.via.as_ref().filter(|_| settings.via_to_origins && !writer.operations.remove("via")) {
        write_via(writer.out, via, head.version);
    }
    writer.write_forwarded(request, host);
    writer.out.extend_from_slice(passage.extra);
    let client = || original_client(&settings.trusted, head.fields, request.sender());
    writer.operations.write(request, &client, host, writer.out);
    Ok(())
}

/// Returns the address of the client that sent a request with these `fields`: `peer`, or the client that the fields name
/// if the peer is a trusted proxy. `None` if the address is unknown.
pub(crate) fn original_client(trusted: &[TrustedProxy], fields: Fields<'_>, peer: Sender) -> Option<IpAddr> {
    if !is_trusted(trusted, peer) {
        return peer.ip();
    }
    match read_claim(fields, |address| is_trusted(trusted, Sender::Ip(address))).client {
        ClientClaim::Nothing => peer.ip(),
        ClientClaim::Unknown => None,
        ClientClaim::At(client) => Some(client.ip()),
    }
}

/// Returns how many times a request with these `fields` has passed through the proxy with this `mark` (see
/// [`Passage::loop_mark`]).
pub(crate) fn count_marks(fields: Fields<'_>, mark: &str) -> usize {
    elements(fields, "cdn-loop").filter(|element| element.eq_ignore_ascii_case(mark.as_bytes())).count()
}

/// Returns `host` in lower case and without the default port, using `spelt` as a buffer.
fn spell<'a>(secure: bool, host: &'a [u8], spelt: &'a mut Vec<u8>) -> &'a [u8] {
    let is_plain = !host.iter().any(u8::is_ascii_uppercase);
    if is_plain && !host.ends_with(if secure { b":443" } else { b":80" }) && !host.ends_with(b":") {
        return host;
    }
    write_authority(secure, host, spelt);
    spelt
}

/// Client fields that affect lines written later.
#[derive(Clone, Copy, Debug, Default)]
struct SeenFields {
    /// True if there are Cookie lines that must be joined.
    cookie: bool,
    te: bool,
    max_forwards: bool,
    cdn_loop: bool,
    forwarded_proto: bool,
    forwarded_host: bool,
}

/// Returns whether a field of this class is forwarded unchanged. Records in `seen` the fields on which lines written
/// later depend.
fn keeps(
    class: FieldClass,
    head: &RequestHead<'_>,
    settings: &Proxy,
    trusted: bool,
    strip: Strip,
    seen: &mut SeenFields,
) -> bool {
    let forwarded = settings.forwarded;
    match class {
        // If needed, these are generated separately.
        FieldClass::HopByHop | FieldClass::Host | FieldClass::Length => false,
        FieldClass::Te => {
            seen.te = true;
            false
        }
        FieldClass::MaxForwards => {
            seen.max_forwards = true;
            false
        }
        FieldClass::Via => settings.via_to_origins,
        FieldClass::CdnLoop => {
            seen.cdn_loop = true;
            true
        }
        // If the proxy extends these, it writes one combined line at the end.
        FieldClass::ForwardedFor => trusted && !forwarded.x_forwarded,
        FieldClass::Forwarded => trusted && !forwarded.standard,
        FieldClass::ForwardedProto => {
            seen.forwarded_proto = trusted;
            trusted
        }
        FieldClass::ForwardedHost => {
            seen.forwarded_host = trusted;
            trusted
        }
        FieldClass::ForwardedOther | FieldClass::TargetOverride => trusted,
        FieldClass::MethodOverride => trusted || !matches!(head.method, Method::Get | Method::Head),
        FieldClass::Cookie if strip.has(Strip::CREDENTIALS) => false,
        FieldClass::Cookie if head.version.has_streams() => {
            seen.cookie = true;
            false
        }
        FieldClass::Plain | FieldClass::EndToEnd | FieldClass::Date | FieldClass::Cookie => true,
        FieldClass::Authorization => !strip.has(Strip::CREDENTIALS),
        FieldClass::Condition => !strip.has(Strip::CONDITIONS),
        FieldClass::Range => !strip.has(Strip::RANGE),
        FieldClass::Encoding => !strip.has(Strip::ENCODING),
    }
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    fields: Fields<'a>,
    operations: Operations<'a>,
    connection: ConnectionNames<'a>,
    trusted: bool,
    settings: &'a Proxy,
    strip: Strip,
    seen: SeenFields,
}

impl Writer<'_> {
    /// Writes a line, unless the configuration removes the field.
    fn write(&mut self, name: &str, value: &[u8]) {
        if !self.operations.remove(name) {
            write_line(name, value, self.out);
        }
    }

    fn write_host(&mut self, host: Option<&[u8]>, origin: &Origin) {
        if self.operations.remove("host") {
            return;
        }
        match (&self.settings.host, host) {
            (HostField::Client, Some(host)) => {
                self.out.extend_from_slice(b"Host: ");
                self.out.extend_from_slice(host);
                self.out.extend_from_slice(b"\r\n");
            }
            _ => write_host_lines(self.settings, origin, self.out),
        }
    }

    /// Writes the client's fields, those that are forwarded unchanged first.
    fn write_fields(&mut self, head: &RequestHead<'_>) -> Result<(), ForwardOutcome> {
        let mut seen = SeenFields::default();
        let Self { fields, operations, connection, trusted, settings, strip, .. } = *self;
        head.fields.copy_lines(self.out, |name, _| {
            if !connection.names_any && !may_be_special(name) {
                return !operations.remove(name);
            }
            // Host, which every request has, was written before.
            if is_named(name, b"host") {
                return false;
            }
            let known = Name::new(name);
            let is_dropped = known.is_disguised() || (known.kind == FieldClass::Plain && connection.names(name));
            !is_dropped && keeps(known.kind, head, settings, trusted, strip, &mut seen) && !operations.remove(name)
        });
        self.seen = seen;
        if seen.te && elements(fields, "te").any(|coding| coding.eq_ignore_ascii_case(b"trailers")) {
            self.write("TE", b"trailers");
            // RFC 9110 §10.1.4: TE requires this line. Over HTTP/2, it is omitted.
            self.write("Connection", b"TE");
        }
        if seen.cookie && !operations.remove("cookie") {
            // HTTP/2 may split Cookie, HTTP/1.1 may not (RFC 9113 §8.2.3).
            self.write_joined("cookie", b"; ", |_| {});
        }
        if seen.max_forwards {
            self.write_max_forwards(head)?;
        }
        Ok(())
    }

    /// Decrements Max-Forwards of OPTIONS and TRACE (RFC 9110 §7.6.2). For other methods, or if its value is not a
    /// number, it is forwarded unchanged.
    fn write_max_forwards(&mut self, head: &RequestHead<'_>) -> Result<(), ForwardOutcome> {
        const NAME: &str = "Max-Forwards";
        let counts = matches!(head.method, Method::Options | Method::Known("TRACE"));
        for value in self.fields.all(NAME) {
            match parse_decimal(value).filter(|_| counts) {
                None => self.write(NAME, value),
                Some(0) => return Err(ForwardOutcome::MaxForwards),
                Some(hops) => self.write(NAME, (hops - 1).to_string().as_bytes()),
            }
        }
        Ok(())
    }

    /// Joins all lines of the field `name` into one line, and adds the output of `last` as the last element.
    fn write_joined(&mut self, name: &'static str, separator: &[u8], last: impl FnOnce(&mut Vec<u8>)) {
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b": ");
        let start = self.out.len();
        for value in self.fields.all(name).filter(|value| !value.is_empty()) {
            if self.out.len() > start {
                self.out.extend_from_slice(separator);
            }
            self.out.extend_from_slice(value);
        }
        let before_last = self.out.len();
        if before_last > start {
            self.out.extend_from_slice(separator);
        }
        let after_separator = self.out.len();
        last(self.out);
        if self.out.len() == after_separator {
            self.out.truncate(before_last);
        }
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes this proxy's CDN-Loop line. If its mark already occurs twice, the request is in a loop; a site may forward a
    /// rewritten request to itself once. A loop that leads through many instances, each with a mark of its own, ends by
    /// their number.
    fn write_loop_mark(&mut self, mark: &str) -> Result<(), ForwardOutcome> {
        let is_flatout = |element: &&[u8]| element.starts_with(LOOP_MARK_START.as_bytes());
        if self.seen.cdn_loop
            && (count_marks(self.fields, mark) >= 2
                || elements(self.fields, "cdn-loop").filter(is_flatout).count() >= CHAIN_MAX)
        {
            return Err(ForwardOutcome::LoopDetected);
        }
        self.write("CDN-Loop", mark.as_bytes());
        Ok(())
    }

    /// Writes the X-Forwarded-… and Forwarded fields, which describe the client, host and scheme.
    fn write_forwarded(&mut self, request: &Request<'_>, host: Option<&[u8]>) {
        let forwarded = self.settings.forwarded;
        let client = request.client.map(|client| client.ip().to_canonical());
        let scheme = if request.secure { "https" } else { "http" };
        if forwarded.x_forwarded {
            if !self.operations.remove("x-forwarded-for") {
                self.write_chain("X-Forwarded-For", |out| {
                    if let Some(client) = client {
                        write_address(out, client);
                    }
                });
            }
            if !self.seen.forwarded_proto && !self.operations.remove("x-forwarded-proto") {
                self.out.extend_from_slice(if request.secure {
                    b"X-Forwarded-Proto: https\r\n"
                } else {
                    &b"X-Forwarded-Proto: http\r\n"[..]
                });
            }
            if !self.seen.forwarded_host
                && !self.operations.remove("x-forwarded-host")
                && let Some(host) = host
            {
                self.out.extend_from_slice(b"X-Forwarded-Host: ");
                self.out.extend_from_slice(host);
                self.out.extend_from_slice(b"\r\n");
            }
        }
        if forwarded.standard && !self.operations.remove("forwarded") {
            self.write_chain("Forwarded", |out| {
                write_forwarded_element(out, client, host, scheme);
            });
        }
    }

    /// Writes one line with the values of a trusted client and of this proxy. Writes nothing if there are no values.
    fn write_chain(&mut self, name: &'static str, ours: impl FnOnce(&mut Vec<u8>)) {
        let start = self.out.len();
        if self.trusted {
            self.write_joined(name, b", ", ours);
        } else {
            self.out.extend_from_slice(name.as_bytes());
            self.out.extend_from_slice(b": ");
            ours(self.out);
            self.out.extend_from_slice(b"\r\n");
        }
        if self.out.len() == start + name.len() + b": \r\n".len() {
            self.out.truncate(start);
        }
    }
}

/// Appends a line such as `Via: 1.1 name` (RFC 9110 §7.6.3), with the version of the received message.
pub(super) fn write_via(out: &mut Vec<u8>, via: &str, version: Version) {
    out.extend_from_slice(match version {
        Version::Http10 => b"Via: 1.0 ",
        Version::Http11 => b"Via: 1.1 ",
        Version::Http2 => b"Via: 2.0 ",
        Version::Http3 => b"Via: 3.0 ",
    });
    out.extend_from_slice(via.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Writes an address in the same form as `Display`, but without the formatting machinery for IPv4, because almost every
/// request needs this.
fn write_address(out: &mut Vec<u8>, address: IpAddr) {
    let address = match address {
        IpAddr::V4(address) => address,
        // Writing to a vector cannot fail.
        IpAddr::V6(address) => return drop(write!(out, "{address}")),
    };
    for (place, octet) in address.octets().into_iter().enumerate() {
        if place > 0 {
            out.push(b'.');
        }
        if octet >= 100 {
            out.push(b'0' + octet / 100);
        }
        if octet >= 10 {
            out.push(b'0' + octet / 10 % 10);
        }
        out.push(b'0' + octet % 10);
    }
}

/// Appends `for=…;host=…;proto=…` (RFC 7239 §4, §6). An IPv6 address is enclosed in brackets and quotes, and a host
/// with a port in quotes.
fn write_forwarded_element(out: &mut Vec<u8>, client: Option<IpAddr>, host: Option<&[u8]>, scheme: &str) {
    out.extend_from_slice(b"for=");
    match client {
        Some(client @ IpAddr::V4(_)) => write_address(out, client),
        Some(client @ IpAddr::V6(_)) => {
            out.extend_from_slice(b"\"[");
            write_address(out, client);
            out.extend_from_slice(b"]\"");
        }
        None => out.extend_from_slice(b"unknown"),
    }
    if let Some(host) = host {
        let quote: &[u8] = if is_token(host) { b"" } else { b"\"" };
        for part in [b";host=", quote, host, quote] {
            out.extend_from_slice(part);
        }
    }
    out.extend_from_slice(b";proto=");
    out.extend_from_slice(scheme.as_bytes());
}

/// Appends the Host line for a request that has no host of its own, such as a health check or an HTTP/1.0 request, or
/// whose host is replaced.
pub fn write_host_lines(settings: &Proxy, origin: &Origin, out: &mut Vec<u8>) {
    match &settings.host {
        HostField::Fixed(host) => write_line("Host", host.as_bytes(), out),
        HostField::Client | HostField::Origin => {
            out.extend_from_slice(b"Host: ");
            write_origin_host(out, origin);
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// Appends the origin's host, and its port unless it is the scheme's default (RFC 9110 §4.2).
pub(super) fn write_origin_host(out: &mut Vec<u8>, origin: &Origin) {
    let bracket = origin.host.contains(':');
    if bracket {
        out.push(b'[');
    }
    out.extend_from_slice(origin.host.as_bytes());
    if bracket {
        out.push(b']');
    }
    if origin.port != if origin.secure { 443 } else { 80 } {
        let _ = write!(out, ":{}", origin.port);
    }
}
