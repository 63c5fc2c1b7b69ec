//! Field lines of an upstream request.

use super::names::{FieldClass, Name};
use super::operations::Operations;
use super::{ConnectionNames, elements, write_line};
use crate::outcome::ForwardOutcome;
use flatout_cache::key::write_authority;
use flatout_config::model::{HostField, Origin, Proxy, is_trusted};
use flatout_handler::Request;
use flatout_http::framing::Version;
use flatout_http::head::Fields;
use flatout_http::request::{Method, RequestHead};
use flatout_http::token::{is_token, parse_decimal, trim};
use std::io::Write as _;
use std::net::IpAddr;

/// Client fields omitted because the proxy replaces them, or because the response must suit all clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strip(u8);

impl Strip {
    /// Omit none.
    pub const NOTHING: Self = Self(0);
    /// If-Match, If-None-Match, If-Modified-Since, If-Unmodified-Since.
    pub const CONDITIONS: Self = Self(1);
    /// Range and If-Range.
    pub const RANGE: Self = Self(2);
    /// Accept-Encoding.
    pub const ENCODING: Self = Self(4);
    /// Cookie and Authorization.
    pub const CREDENTIALS: Self = Self(8);

    /// Union of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// Parameters for forwarding one request.
#[derive(Clone, Copy, Debug)]
pub struct Passage<'a> {
    /// The selected origin.
    pub origin: &'a Origin,
    /// Client fields to omit.
    pub strip: Strip,
    /// Lines to append after the client's, each `Name: value` and CR LF: conditions, Surrogate-Capability.
    pub extra: &'a [u8],
}

/// Appends the upstream field lines to `out`, each `Name: value` and CR LF, without the empty line. Host is the first.
/// Of the connection and framing fields only `TE: trailers` remains; the connection adds its own.
///
/// Errors are [`ForwardOutcome::LoopDetected`], [`ForwardOutcome::MaxForwards`] and
/// [`ForwardOutcome::ConnectRefused`]. On an error `out` may contain some lines.
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
    // Normalised as in the cache key, so that the client's spelling cannot affect the response.
    let mut spelt = Vec::new();
    let host = head.effective_host().map(|host| spell(request.secure, host, &mut spelt));
    let mut writer = Writer {
        out,
        fields: head.fields,
        operations: Operations(&settings.request_fields),
        connection: ConnectionNames::new(head.fields),
        trusted: is_trusted(&settings.trusted, request.client.map(|client| client.ip())),
        settings,
        strip: passage.strip,
        seen: SeenFields::default(),
    };
    writer.write_host(host, passage.origin);
    for (name, value) in head.fields.iter() {
        writer.write_field(head, name, value)?;
    }
    if let Some(via) = &settings.via {
        writer.write_via(via, head.version)?;
    }
    writer.write_forwarded(request, host);
    writer.out.extend_from_slice(passage.extra);
    writer.operations.write(request, host, writer.out);
    Ok(())
}

/// Normalises `host`: lower case, without the default port.
fn spell<'a>(secure: bool, host: &'a [u8], spelt: &'a mut Vec<u8>) -> &'a [u8] {
    let is_plain = !host.iter().any(u8::is_ascii_uppercase);
    if is_plain && !host.ends_with(if secure { b":443" } else { b":80" }) && !host.ends_with(b":") {
        return host;
    }
    write_authority(secure, host, spelt);
    spelt
}

/// Client fields seen so far that affect the final lines.
#[derive(Clone, Copy, Debug, Default)]
struct SeenFields {
    cookie: bool,
    te: bool,
    via: bool,
    forwarded_proto: bool,
    forwarded_host: bool,
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
            write_line(self.out, name, value);
        }
    }

    fn write_host(&mut self, host: Option<&[u8]>, origin: &Origin) {
        if self.operations.remove("host") {
            return;
        }
        match (&self.settings.host, host) {
            (HostField::Client, Some(host)) => write_line(self.out, "Host", host),
            _ => write_host_lines(self.settings, origin, self.out),
        }
    }

    fn write_field(&mut self, head: &RequestHead<'_>, name: &str, value: &[u8]) -> Result<(), ForwardOutcome> {
        let known = Name::new(name);
        if known.is_disguised() || (known.kind == FieldClass::Plain && self.connection.names(name)) {
            return Ok(());
        }
        let strips = |part| self.strip.has(part);
        let forwarded = self.settings.forwarded;
        let keep = match known.kind {
            // These are written once all fields are known.
            FieldClass::HopByHop | FieldClass::Host | FieldClass::Length => false,
            FieldClass::Te => {
                let trailers = elements(self.fields, "te").any(|coding| coding.eq_ignore_ascii_case(b"trailers"));
                if trailers && !std::mem::replace(&mut self.seen.te, true) {
                    self.write("TE", b"trailers");
                    // RFC 9110 §10.1.4: TE requires this. Over HTTP/2 the line is omitted.
                    self.write("Connection", b"TE");
                }
                false
            }
            FieldClass::Via => {
                self.seen.via = true;
                true
            }
            // If the proxy extends them, one line at the end holds them all.
            FieldClass::ForwardedFor => self.trusted && !forwarded.x_forwarded,
            FieldClass::Forwarded => self.trusted && !forwarded.standard,
            FieldClass::ForwardedProto => {
                self.seen.forwarded_proto = self.trusted;
                self.trusted
            }
            FieldClass::ForwardedHost => {
                self.seen.forwarded_host = self.trusted;
                self.trusted
            }
            FieldClass::ForwardedOther | FieldClass::TargetOverride => self.trusted,
            FieldClass::MethodOverride => self.trusted || !matches!(head.method, Method::Get | Method::Head),
            FieldClass::MaxForwards => return self.write_max_forwards(head, name, value),
            FieldClass::Cookie if strips(Strip::CREDENTIALS) => false,
            FieldClass::Cookie if head.version == Version::Http2 => {
                self.write_cookies();
                false
            }
            FieldClass::Plain | FieldClass::EndToEnd | FieldClass::Date | FieldClass::Cookie => true,
            FieldClass::Authorization => !strips(Strip::CREDENTIALS),
            FieldClass::Condition => !strips(Strip::CONDITIONS),
            FieldClass::Range => !strips(Strip::RANGE),
            FieldClass::Encoding => !strips(Strip::ENCODING),
        };
        if keep {
            self.write(name, value);
        }
        Ok(())
    }

    /// Decrements Max-Forwards of OPTIONS and TRACE (RFC 9110 §7.6.2). For other methods, or if it is not a number, it is
    /// forwarded unchanged.
    fn write_max_forwards(&mut self, head: &RequestHead<'_>, name: &str, value: &[u8]) -> Result<(), ForwardOutcome> {
        let counts = matches!(head.method, Method::Options | Method::Known("TRACE"));
        match parse_decimal(value).filter(|_| counts) {
            None => self.write(name, value),
            Some(0) => return Err(ForwardOutcome::MaxForwards),
            Some(_) if self.operations.remove(name) => {}
            // Writing to a vector cannot fail.
            Some(hops) => drop(write!(self.out, "{name}: {}\r\n", hops - 1)),
        }
        Ok(())
    }

    /// Joins Cookie lines, which HTTP/2 may split but HTTP/1.1 may not (RFC 9113 §8.2.3).
    fn write_cookies(&mut self) {
        if std::mem::replace(&mut self.seen.cookie, true) || self.operations.remove("cookie") {
            return;
        }
        self.write_joined("cookie", b"; ", |_| {});
    }

    /// Joins all lines of one name into one, followed by the output of `last`.
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

    /// Writes this proxy's Via line. Its own name twice before indicates a loop; once may be another instance in a
    /// chain.
    fn write_via(&mut self, via: &str, version: Version) -> Result<(), ForwardOutcome> {
        if self.seen.via && self.count_via(via) >= 2 {
            return Err(ForwardOutcome::LoopDetected);
        }
        if !self.operations.remove("via") {
            write_via(self.out, via, version);
        }
        Ok(())
    }

    fn count_via(&self, via: &str) -> usize {
        let received_by = |element: &'_ [u8]| {
            let protocol_bytes = element.iter().position(|byte| matches!(byte, b' ' | b'\t'))?;
            let rest = trim(&element[protocol_bytes..]);
            let name_bytes = rest.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(rest.len());
            Some(rest[..name_bytes].eq_ignore_ascii_case(via.as_bytes()))
        };
        elements(self.fields, "via").filter(|element| received_by(element) == Some(true)).count()
    }

    /// Writes the fields that describe the client, host and scheme.
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
            if !self.seen.forwarded_proto {
                self.write("X-Forwarded-Proto", scheme.as_bytes());
            }
            if !self.seen.forwarded_host
                && let Some(host) = host
            {
                self.write("X-Forwarded-Host", host);
            }
        }
        if forwarded.standard && !self.operations.remove("forwarded") {
            self.write_chain("Forwarded", |out| {
                write_forwarded_element(out, client, host, scheme);
            });
        }
    }

    /// Writes one line with a trusted client's values and this proxy's; nothing if there are neither.
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

/// Appends `Via: 1.1 name` (RFC 9110 §7.6.3), with the version of the received message.
pub(super) fn write_via(out: &mut Vec<u8>, via: &str, version: Version) {
    let version = version.as_str();
    write_line_parts(out, "Via", &[version.strip_prefix("HTTP/").unwrap_or(version), " ", via]);
}

fn write_line_parts(out: &mut Vec<u8>, name: &str, parts: &[&str]) {
    write_line(out, name, b"");
    out.truncate(out.len() - b"\r\n".len());
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes an address like its `Display`. Each request needs one, and most are IPv4: these avoid the formatting
/// machinery.
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

/// Appends `for=…;host=…;proto=…` (RFC 7239 §4, §6): an IPv6 address in brackets and quotes, a host with a port in
/// quotes.
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

/// Appends the Host line of a request without a host: a health check, or an HTTP/1.0 request.
pub fn write_host_lines(settings: &Proxy, origin: &Origin, out: &mut Vec<u8>) {
    match &settings.host {
        HostField::Fixed(host) => write_line(out, "Host", host.as_bytes()),
        HostField::Client | HostField::Origin => {
            out.extend_from_slice(b"Host: ");
            write_origin_host(out, origin);
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// Appends the origin's own name, with its port unless that is the scheme's default (RFC 9110 §4.2).
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
