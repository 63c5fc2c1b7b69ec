//! The handler that forwards: which servers, how they are chosen and watched, and what they are told.

use super::Reader;
use super::files::{flag, is_off};
use super::guard::network;
use super::origin::{FORM, parse_origin};
use super::parse;
use super::pool;
use super::shape::{Block, Seen, Shape, VALUES_MAX, property};
use super::step::{self, field_value};
use crate::code::Code;
use crate::diagnostic::Span;
use crate::model::{Cidr, Forwarded, HostField, Network, Origin, OriginTls, Proxy};
use crate::syntax::{Node, Scalar, Value};

/// Origins of one step: each has connections and counts of its own in every worker.
const ORIGINS_MAX: usize = 1_000;

/// A day: longer is no timeout.
pub(super) const TIMEOUT_MS_MAX: u64 = 86_400_000;

/// An hour: whoever needs longer to warm up needs other help.
const SLOW_START_MS_MAX: u64 = 3_600_000;

const SHAPE: Shape = Shape {
    arguments: (0, ORIGINS_MAX),
    properties: &[],
    block: Block::Optional,
    example: "proxy \"http://127.0.0.1:3000\", or proxy { origin \"http://10.0.0.1\"; origin \"http://10.0.0.2\" weight=2 }",
};
const ORIGIN: Shape =
    Shape { properties: &["weight", "backup"], ..Shape::value("origin \"http://10.0.0.2:3000\" weight=2") };
const SLOW_START: Shape = Shape::value("slow-start \"30s\"");
const RETRIES: Shape = Shape::value("retries 2");
const HOST: Shape = Shape::value("host \"origin\"");
const FORWARDED: Shape = Shape {
    arguments: (0, VALUES_MAX),
    properties: &["off"],
    ..Shape::value("forwarded \"x-forwarded\" \"standard\", or forwarded off=#true")
};
const VIA: Shape =
    Shape { arguments: (0, 1), properties: &["off"], ..Shape::value("via \"edge-1\", or via off=#true") };
const REQUEST_HEADER: Shape = Shape {
    arguments: (0, 2),
    properties: &[],
    block: Block::Optional,
    example: "request-header \"X-Site\" \"a\", or request-header { set \"A\" \"b\"; add \"C\" \"d\"; remove \"E\" }",
};
const HTTP2: Shape = Shape::value("http2 #true");
const TLS: Shape = Shape {
    arguments: (0, 0),
    properties: &["insecure", "ca", "name"],
    block: Block::None,
    example: "tls ca=\"origin-ca.pem\" name=\"origin.internal\"",
};
const IDLE: Shape = Shape::value("idle-connections 64");
const UPGRADES: Shape = Shape::value("upgrades #false");
const UNKNOWN_CODINGS: Shape = Shape::value("unknown-codings #true");

const ALLOWED: &[&str] = &[
    "origin",
    "balance",
    "health-check",
    "passive",
    "slow-start",
    "concurrency",
    "timeouts",
    "retries",
    "host",
    "forwarded",
    "trust",
    "via",
    "request-header",
    "http2",
    "tls",
    "idle-connections",
    "upgrades",
    "unknown-codings",
];

/// Fields of a request that the forwarding itself writes (RFC 9110, section 7.6; RFC 9112, section 3.2).
const OWNED: &[(&str, &str)] = &[
    ("host", "the setting `host` of the proxy says what it is"),
    ("via", "the setting `via` of the proxy says what it is"),
    ("connection", ""),
    ("content-length", ""),
    ("expect", ""),
    ("keep-alive", ""),
    ("proxy-connection", ""),
    ("te", ""),
    ("trailer", ""),
    ("transfer-encoding", ""),
    ("upgrade", ""),
];

pub(super) fn read(reader: &mut Reader<'_>, node: &Node) -> Proxy {
    let mut proxy = Proxy::default();
    reader.shape(node, &SHAPE);
    let mut origins = Origins::default();
    for value in &node.arguments {
        origins.read(reader, value, 1, false);
    }
    let mut seen = Seen::default();
    for child in node.children.iter().flatten() {
        if !ALLOWED.contains(&child.name.as_str()) {
            reader.unknown(child, ALLOWED);
        } else if child.name == "origin" {
            origin(reader, child, &mut origins);
        } else if child.name == "request-header" {
            proxy.request_fields.extend(step::field_changes(reader, child, &REQUEST_HEADER, OWNED, &["rest"]));
        } else if reader.first(&mut seen, child) {
            setting(reader, child, &mut proxy);
        }
    }
    origins.check(reader, node);
    let child = |name: &str| node.children.iter().flatten().find(|child| child.name == name);
    if let (Some(tls), true) = (child("tls"), origins.is_sound() && origins.list.iter().all(|origin| !origin.secure)) {
        let draft = reader.report.add(Code::Contradiction, tls.span, "no origin of this proxy is reached by https");
        draft.note("write https://… where TLS is spoken, or leave `tls` out");
    }
    proxy.origins = origins.list;
    proxy
}

/// Origins in their order.
#[derive(Default)]
struct Origins {
    list: Vec<Origin>,
    /// Some could not be read, so that what is there is not all.
    faults: bool,
}

impl Origins {
    fn is_sound(&self) -> bool {
        !self.faults && !self.list.is_empty()
    }

    fn read(&mut self, reader: &mut Reader<'_>, value: &Value, weight: u16, backup: bool) {
        let Some(origin) = read_origin(reader, value) else {
            self.faults = true;
            return;
        };
        if self.list.len() == ORIGINS_MAX {
            reader.report.add(Code::NumberBounds, value.span, format!("more than {ORIGINS_MAX} origins"));
            self.faults = true;
            return;
        }
        let is_same = |known: &&Origin| (&known.host, known.port) == (&origin.host, origin.port);
        if self.list.iter().any(|known| is_same(&known)) {
            reader.same_twice(value.span, "this origin");
            return;
        }
        self.list.push(Origin { weight, backup, ..origin });
    }

    fn check(&self, reader: &mut Reader<'_>, node: &Node) {
        if self.list.is_empty() && !self.faults {
            let draft = reader.report.add(Code::ValueMissing, node.span, "`proxy` needs an origin");
            draft.note(format!("as in: {}", SHAPE.example));
        } else if self.is_sound() && self.list.iter().all(|origin| origin.backup) {
            let draft = reader.report.add(Code::Contradiction, node.span, "all origins of this proxy are backups");
            draft.note("a backup is asked when no other is well: one at least is none");
        }
    }
}

/// The origin that `value` names.
pub(super) fn read_origin(reader: &mut Reader<'_>, value: &Value) -> Option<Origin> {
    let text = match (&value.scalar, value.annotation) {
        (Scalar::Integer(port), None) => port.to_string(),
        _ => reader.line(value)?,
    };
    match parse_origin(&text) {
        Ok(origin) => Some(origin),
        Err(fault) => {
            let draft = reader.report.add(Code::ForwardBad, value.span, fault.what);
            if let Some(advice) = fault.advice {
                draft.label(advice);
            }
            draft.note(FORM);
            None
        }
    }
}

fn origin(reader: &mut Reader<'_>, node: &Node, origins: &mut Origins) {
    if !reader.shape(node, &ORIGIN) {
        origins.faults = true;
        return;
    }
    let weight = property(node, "weight").and_then(|weight| reader.number(&weight.value, 1..=1_000));
    let backup = property(node, "backup").and_then(|backup| reader.flag(&backup.value)).unwrap_or(false);
    origins.read(reader, &node.arguments[0], weight.map_or(1, |weight| weight as u16), backup);
}

fn setting(reader: &mut Reader<'_>, node: &Node, proxy: &mut Proxy) {
    match node.name.as_str() {
        "balance" => proxy.balance = pool::balance(reader, node),
        "health-check" => proxy.health_check = pool::health_check(reader, node),
        "passive" => proxy.passive = pool::passive(reader, node),
        "slow-start" => {
            if reader.shape(node, &SLOW_START)
                && let Some(slow_start_ms) = reader.duration(&node.arguments[0], 0..=SLOW_START_MS_MAX)
            {
                proxy.slow_start_ms = slow_start_ms;
            }
        }
        "concurrency" => proxy.concurrency = pool::concurrency(reader, node),
        "timeouts" => proxy.timeouts = pool::timeouts(reader, node),
        "retries" => {
            if let Some(retries) = number(reader, node, &RETRIES, 10) {
                proxy.retries = retries as u8;
            }
        }
        "host" => proxy.host = host(reader, node).unwrap_or(HostField::Client),
        "forwarded" => proxy.forwarded = forwarded(reader, node),
        "trust" => proxy.trusted = trust(reader, node),
        "via" => proxy.via = via(reader, node),
        "http2" => proxy.http2 = flag(reader, node, &HTTP2),
        "tls" => proxy.tls = tls(reader, node),
        "idle-connections" => {
            if let Some(idle) = number(reader, node, &IDLE, 65_535) {
                proxy.idle_connections_max = idle as u32;
            }
        }
        "unknown-codings" => proxy.unknown_codings = flag(reader, node, &UNKNOWN_CODINGS),
        _ => proxy.upgrades = flag(reader, node, &UPGRADES),
    }
}

/// A setting that is one number, from 0.
fn number(reader: &mut Reader<'_>, node: &Node, shape: &Shape, most: u64) -> Option<u64> {
    if reader.shape(node, shape) { reader.number(&node.arguments[0], 0..=most) } else { None }
}

/// Neighbours that are believed.
pub(super) fn trust(reader: &mut Reader<'_>, node: &Node) -> Vec<Cidr> {
    const TRUST: Shape = Shape::values(1, "trust \"10.0.0.0/8\" \"2001:db8::/32\"");
    reader.shape(node, &TRUST);
    networks(reader, &node.arguments)
}

/// Networks without doubles. For everybody there is no word here: whoever means it writes `0.0.0.0/0` and `::/0`.
pub(super) fn networks(reader: &mut Reader<'_>, values: &[Value]) -> Vec<Cidr> {
    let mut list = Vec::new();
    for value in values {
        match network(reader, value) {
            Some(Network::Cidr(cidr)) if list.contains(&cidr) => reader.same_twice(value.span, "this network"),
            Some(Network::Cidr(cidr)) => list.push(cidr),
            Some(Network::All) => {
                let draft =
                    reader.report.add(Code::NetworkBad, value.span, "name the networks: `all` is too many here");
                draft.note("anybody in the world could then claim what only these should be able to");
            }
            None => {}
        }
    }
    list
}

/// `"client"`, `"origin"`, or what it is, with a port perhaps.
fn host(reader: &mut Reader<'_>, node: &Node) -> Option<HostField> {
    if !reader.shape(node, &HOST) {
        return None;
    }
    let value = &node.arguments[0];
    let text = reader.line(value)?;
    Some(match text.as_str() {
        "client" => HostField::Client,
        "origin" => HostField::Origin,
        _ => HostField::Fixed(authority(reader, value.span, &text)?),
    })
}

/// A host name, with a port perhaps.
fn authority(reader: &mut Reader<'_>, span: Span, text: &str) -> Option<String> {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') && (name.ends_with(']') || !name.contains(':')) => (name, Some(port)),
        _ => (text, None),
    };
    let fault = match port {
        Some(port) if parse::digits(port).is_none_or(|port| port == 0) => Some("a port is a number from 1 to 65535"),
        _ if name.contains('*') => Some("one name: a star cannot be sent"),
        _ => parse::host_fault(name),
    };
    if let Some(fault) = fault {
        let draft = reader.report.add(Code::HostBad, span, format!("`{text}` is not a valid host name"));
        draft.label(fault).note("\"client\" sends what the client sent, \"origin\" the origin's own name");
        return None;
    }
    Some(text.to_ascii_lowercase())
}

fn forwarded(reader: &mut Reader<'_>, node: &Node) -> Forwarded {
    let mut forwarded = Forwarded { x_forwarded: false, standard: false };
    if is_off(reader, node, &FORWARDED) {
        return forwarded;
    }
    for value in &node.arguments {
        let words = [(0, "x-forwarded"), (1, "standard")];
        let Some(word) = reader.word(value, &words) else { continue };
        let chosen = if word == 0 { &mut forwarded.x_forwarded } else { &mut forwarded.standard };
        if std::mem::replace(chosen, true) {
            reader.same_twice(value.span, "this kind");
        }
    }
    forwarded
}

/// A pseudonym (RFC 9110, section 7.6.3), which says less of the network than a host's name would.
fn via(reader: &mut Reader<'_>, node: &Node) -> Option<String> {
    if is_off(reader, node, &VIA) {
        return None;
    }
    let value = node.arguments.first()?;
    let name = field_value(reader, value)?;
    if !parse::is_token(&name) {
        let draft = reader.report.add(Code::TextBad, value.span, format!("`{name}` is not a valid name for Via"));
        draft.label("letters, digits and hyphens: \"edge-1\"");
        return None;
    }
    Some(name)
}

fn tls(reader: &mut Reader<'_>, node: &Node) -> OriginTls {
    reader.shape(node, &TLS);
    if node.properties.is_empty() {
        let draft = reader.report.add(Code::PropertyMissing, node.span, "`tls` needs ca, name or insecure");
        draft.note(format!("as in: {}", TLS.example));
    }
    let insecure = property(node, "insecure").and_then(|insecure| reader.flag(&insecure.value)).unwrap_or(false);
    let ca = property(node, "ca");
    if let (true, Some(ca)) = (insecure, ca) {
        let draft = reader.report.add(Code::Contradiction, ca.span, "any certificate will do, and one by these too");
        draft.note("leave `insecure` out: with it nobody knows who answers");
    }
    let server_name = property(node, "name").and_then(|name| {
        let text = reader.line(&name.value)?;
        let fault =
            if text.contains('*') { Some("one name, as the certificate has it") } else { parse::host_fault(&text) };
        if let Some(fault) = fault {
            let draft = reader.report.add(Code::HostBad, name.value.span, format!("`{text}` is not a valid host name"));
            draft.label(fault);
            return None;
        }
        Some(text.to_ascii_lowercase())
    });
    OriginTls { insecure, authorities: ca.and_then(|ca| reader.path(&ca.value)), server_name }
}
