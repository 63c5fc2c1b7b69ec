//! The `proxy` handler: its origins, and how requests to them are changed.

use super::field::field_value;
use super::network::{TRUST, trusted_proxy};
use super::operations;
use super::origin::{read_origin, show_origin};
use super::parse;
use super::pool;
use super::reader::Reader;
use super::setting::{Group, Inner, List, Parsed, Setting, Words, read_block, write_block};
use super::shape::{Shape, is_off, property};
use crate::code::Code;
use crate::diagnostic::Span;
use crate::encode::writer::{SettingWriter, quote};
use crate::model::{Forwarded, HostField, Origin, OriginTls, Proxy, TrustedProxy};
use crate::syntax::{Node, Value};
use flatout_http::lines::is_of_a_connection;
use flatout_http::proxy_protocol::ProxyVersion;
use flatout_http::url::{parse_port, split_port};

/// The maximum number of origins per step, each of which has its own connections and counters in every worker.
const ORIGINS_MAX: usize = 1_000;

/// The longest slow start, in milliseconds: an hour.
const SLOW_START_MS_MAX: u64 = 3_600_000;

pub(super) const SHAPE: Shape = Shape::none(
    "proxy \"http://127.0.0.1:3000\", or proxy { origin \"http://10.0.0.1\"; origin \"http://10.0.0.2\" weight=2 }",
)
.takes(0, ORIGINS_MAX)
.may_have_block();
const FORWARDED: Shape =
    Shape::values(0, "forwarded \"x-forwarded\" \"standard\", or forwarded off=#true").with(&["off"]);
const VIA: Shape = Shape::none("via \"edge-1\" origins=#true, or via off=#true").takes(0, 1).with(&["off", "origins"]);
const REQUEST_HEADER: Shape = Shape::none(
    "request-header \"X-Site\" \"a\", or request-header { set \"A\" \"b\"; add \"C\" \"d\"; remove \"E\" }",
)
.takes(0, 2)
.may_have_block();

/// `origin`, except for its address.
const ORIGIN: Group<Origin> = Group {
    shape: Shape::value("origin \"http://10.0.0.2:3000\" weight=2"),
    properties: &[
        Setting::number("weight", "", 1..=1_000, |origin| &mut origin.weight),
        Setting::flag("backup", "", |origin| &mut origin.backup),
    ],
    block: &[],
};

const TLS: Group<OriginTls> = Group {
    shape: Shape::none("tls ca=\"origin-ca.pem\" name=\"origin.internal\"").needs("ca, name or insecure"),
    properties: &[
        Setting::flag("insecure", "", |tls| &mut tls.insecure),
        Setting::path("ca", "", |tls| &mut tls.authorities),
        Setting::value(
            "name",
            "",
            &Parsed {
                read: |reader, value| server_name(reader, value).map(Some),
                show: |name| quote(name.as_deref().unwrap_or_default()),
                field: |tls: &mut OriginTls| &mut tls.server_name,
            },
        ),
    ],
    block: &[],
};

const PROXY_VERSIONS: &[(Option<ProxyVersion>, &str)] =
    &[(Some(ProxyVersion::V1), "v1"), (Some(ProxyVersion::V2), "v2")];

/// The settings of `proxy`, including its origins.
pub(super) const SETTINGS: &[Setting<Draft>] = &[
    Setting::read_only("origin", Shape::any(), origin).repeated(),
    Setting::custom(
        "balance",
        pool::BALANCE,
        |reader, node, draft| draft.proxy.balance = pool::balance(reader, node),
        |writer, name, draft| pool::write_balance(writer, name, &draft.proxy.balance),
    ),
    Setting::custom(
        "sticky",
        pool::STICKY,
        |reader, node, draft| draft.proxy.sticky = pool::sticky(reader, node),
        |writer, name, draft| pool::write_sticky(writer, name, draft.proxy.sticky.as_ref()),
    ),
    Setting::custom(
        "health-check",
        Shape::any(),
        |reader, node, draft| draft.proxy.health_check = pool::health_check(reader, node),
        |writer, name, draft| pool::write_health_check(writer, name, draft.proxy.health_check.as_ref()),
    ),
    Setting::custom(
        "passive",
        Shape::any(),
        |reader, node, draft| draft.proxy.passive = pool::passive(reader, node),
        |writer, name, draft| pool::write_passive(writer, name, &draft.proxy.passive),
    ),
    Setting::duration("slow-start", "slow-start \"30s\"", 0..=SLOW_START_MS_MAX, |draft| {
        &mut draft.proxy.slow_start_ms
    }),
    Setting::custom(
        "concurrency",
        pool::CONCURRENCY,
        |reader, node, draft| draft.proxy.concurrency = pool::concurrency(reader, node),
        |writer, name, draft| pool::write_concurrency(writer, name, draft.proxy.concurrency),
    ),
    Setting::group("timeouts", &Inner(&pool::TIMEOUTS, |draft: &mut Draft| &mut draft.proxy.timeouts)),
    Setting::number("retries", "retries 2", 0..=10, |draft| &mut draft.proxy.retries),
    Setting::value(
        "host",
        "host \"origin\"",
        &Parsed {
            read: host,
            show: |host| match host {
                HostField::Client => quote("client"),
                HostField::Origin => quote("origin"),
                HostField::Fixed(host) => quote(host),
            },
            field: |draft: &mut Draft| &mut draft.proxy.host,
        },
    ),
    Setting::custom(
        "forwarded",
        FORWARDED,
        |reader, node, draft| draft.proxy.forwarded = forwarded(reader, node),
        |writer, name, draft| {
            let Forwarded { x_forwarded, standard } = draft.proxy.forwarded;
            if draft.proxy.forwarded != Forwarded::default() {
                let kinds = [(x_forwarded, "x-forwarded"), (standard, "standard")];
                let kinds: Vec<&str> = kinds.into_iter().filter(|(on, _)| *on).map(|(_, kind)| kind).collect();
                writer.list_or_off(name, &kinds);
            }
        },
    ),
    Setting::list(
        "trusted-proxies",
        TRUST,
        &List("this proxy", trusted_proxy, TrustedProxy::to_string, |draft: &mut Draft| &mut draft.proxy.trusted),
    ),
    Setting::custom(
        "via",
        VIA,
        |reader, node, draft| {
            draft.proxy.via = via(reader, node);
            let origins = property(node, "origins").and_then(|origins| reader.flag(&origins.value));
            draft.proxy.via_to_origins = origins.unwrap_or(false);
            if let (true, None, Some(off)) = (draft.proxy.via_to_origins, &draft.proxy.via, property(node, "off")) {
                let message = "origins cannot get a Via header that is turned off";
                let fault = reader.report.add(Code::Contradiction, off.span, message);
                fault.label("give a name instead, or remove `origins`");
            }
        },
        |writer, name, draft| {
            let Proxy { via, via_to_origins, .. } = &draft.proxy;
            match via {
                Some(via) if *via_to_origins => writer.begin(name).text(via).raw_property("origins", "#true").end(),
                via if *via != Proxy::default().via => writer.list_or_off(name, via.as_slice()),
                _ => {}
            }
        },
    ),
    Setting::value(
        "proxy-protocol",
        "proxy-protocol \"v2\"",
        &Words(PROXY_VERSIONS, |draft: &mut Draft| &mut draft.proxy.proxy_protocol),
    ),
    Setting::custom("request-header", REQUEST_HEADER, request_header, |writer, name, draft| {
        if !draft.proxy.request_fields.is_empty() {
            operations::write(writer, name, &draft.proxy.request_fields);
        }
    })
    .repeated(),
    Setting::flag("http2", "http2 #true", |draft| &mut draft.proxy.http2),
    Setting::group("tls", &Inner(&TLS, |draft: &mut Draft| &mut draft.proxy.tls)),
    Setting::size("content-limit", "content-limit \"128MiB\"", 0..=1 << 40, |draft| &mut draft.proxy.content_bytes_max),
    Setting::size("buffer-requests", "buffer-requests \"64MiB\"", 0..=1 << 30, |draft| {
        &mut draft.proxy.buffer_bytes_max
    }),
    Setting::number("idle-connections", "idle-connections 64", 0..=65_535, |draft| {
        &mut draft.proxy.idle_connections_max
    }),
    Setting::flag("upgrades", "upgrades #false", |draft| &mut draft.proxy.upgrades),
    Setting::flag("unknown-codings", "unknown-codings #true", |draft| &mut draft.proxy.unknown_codings),
];

/// A proxy under construction.
#[derive(Clone, Default)]
pub(super) struct Draft {
    proxy: Proxy,
    origins: Origins,
}

/// If the proxy itself sets the request field `name`, returns advice, which may be empty (RFC 9110 §7.6, RFC 9112
/// §3.2).
fn find_owned(name: &str) -> Option<&'static str> {
    match name.to_ascii_lowercase().as_str() {
        "host" => Some("use the proxy's `host` setting"),
        "via" => Some("use the proxy's `via` setting, with origins=#true"),
        "content-length" | "expect" => Some(""),
        name => is_of_a_connection(name.as_bytes()).then_some(""),
    }
}

pub(super) fn read(reader: &mut Reader<'_>, node: &Node) -> Proxy {
    let mut draft = Draft::default();
    for value in &node.arguments {
        draft.origins.read(reader, value, 1, false);
    }
    read_block(reader, node, SETTINGS, &mut draft);
    let Draft { mut proxy, mut origins } = draft;
    origins.faults |= node.children.iter().flatten().any(|child| child.name == "origin" && child.arguments.is_empty());
    origins.check(reader, node);
    if let Some(tls) = node.children.iter().flatten().find(|child| child.name == "tls") {
        if let (true, Some(ca)) = (proxy.tls.insecure, property(tls, "ca")) {
            let message = "`insecure` and `ca` are mutually exclusive";
            let draft = reader.report.add(Code::Contradiction, ca.span, message);
            draft.note("remove `insecure`: it accepts any certificate");
        }
        if origins.is_sound() && origins.list.iter().all(|origin| !origin.secure) {
            let draft = reader.report.add(Code::Contradiction, tls.span, "none of this proxy's origins uses https");
            draft.note("write https://… for an origin that uses TLS, or remove `tls`");
        }
    }
    let child = |name: &str| node.children.iter().flatten().find(|child| child.name == name);
    if let (true, Some(http2), Some(header)) =
        (proxy.http2 && proxy.proxy_protocol.is_some(), child("http2"), child("proxy-protocol"))
    {
        let message = "`proxy-protocol` and `http2` are mutually exclusive";
        let draft = reader.report.add(Code::Contradiction, header.span, message);
        draft
            .related(http2.span, "all clients share a connection")
            .note("a PROXY header names one client per connection");
    }
    proxy.origins = origins.list;
    proxy
}

pub(crate) fn write(writer: &mut SettingWriter, proxy: &Proxy) {
    let are_plain = proxy.origins.iter().all(|origin| origin.weight == 1 && !origin.backup);
    writer.begin("proxy");
    let (plain, described) = if are_plain { (&proxy.origins[..], &[][..]) } else { (&[][..], &proxy.origins[..]) };
    writer.texts(&plain.iter().map(show_origin).collect::<Vec<_>>()).block(|writer| {
        for origin in described {
            let default = Origin { weight: 1, backup: false, ..origin.clone() };
            ORIGIN.write(writer.begin("origin").text(&show_origin(origin)), origin, &default);
        }
        write_block(writer, SETTINGS, &Draft { proxy: proxy.clone(), ..Draft::default() }, &Draft::default());
    });
}

/// The origins of a proxy, in written order.
#[derive(Clone, Default)]
struct Origins {
    list: Vec<Origin>,
    /// True if some origins could not be read, so the list is incomplete.
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
            let draft = reader.report.add(Code::Contradiction, node.span, "all of this proxy's origins are backups");
            draft.note("a backup is used only if no other origin is healthy: at least one origin must not be a backup");
        }
    }
}

fn origin(reader: &mut Reader<'_>, node: &Node, draft: &mut Draft) {
    let mut described = Origin { secure: false, host: String::new(), port: 80, weight: 1, backup: false };
    ORIGIN.read(reader, node, &mut described);
    if let Some(value) = node.arguments.first() {
        draft.origins.read(reader, value, described.weight, described.backup);
    }
}

fn request_header(reader: &mut Reader<'_>, node: &Node, draft: &mut Draft) {
    draft.proxy.request_fields.extend(operations::read(reader, node, REQUEST_HEADER.example, find_owned, &["rest"]));
}

/// Reads `"client"`, `"origin"`, or a fixed host, optionally with a port.
fn host(reader: &mut Reader<'_>, value: &Value) -> Option<HostField> {
    let text = reader.line(value)?;
    Some(match text.as_str() {
        "client" => HostField::Client,
        "origin" => HostField::Origin,
        _ => HostField::Fixed(authority(reader, value.span, &text)?),
    })
}

/// Reads a host name, optionally with a port.
fn authority(reader: &mut Reader<'_>, span: Span, text: &str) -> Option<String> {
    let (name, port) = split_port(text);
    let fault = match port {
        Some(port) if parse_port(port).is_none() => Some("a port is a number from 1 to 65535"),
        _ if name.contains('*') => Some("use a single name: a wildcard cannot be sent"),
        _ => parse::host_fault(name),
    };
    if let Some(fault) = fault {
        let draft = reader.report.add(Code::HostBad, span, format!("`{text}` is not a valid host name"));
        draft.label(fault).note("\"client\" sends the client's Host, and \"origin\" sends the origin's own name");
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

/// Reads the server's name in Via. The name is a pseudonym (RFC 9110 §7.6.3), which reveals less about the network than
/// a host name.
fn via(reader: &mut Reader<'_>, node: &Node) -> Option<String> {
    if is_off(reader, node, &VIA) {
        return None;
    }
    let value = node.arguments.first()?;
    let name = field_value(reader, value)?;
    if !parse::is_token(&name) {
        let draft = reader.report.add(Code::TextBad, value.span, format!("`{name}` is not a valid name for Via"));
        draft.label("use letters, digits and hyphens: \"edge-1\"");
        return None;
    }
    Some(name)
}

/// Reads the name that an origin's certificate must have.
fn server_name(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
    let text = reader.line(value)?;
    let fault =
        if text.contains('*') { Some("use a single name, as in the certificate") } else { parse::host_fault(&text) };
    if let Some(fault) = fault {
        let draft = reader.report.add(Code::HostBad, value.span, format!("`{text}` is not a valid host name"));
        draft.label(fault);
        return None;
    }
    Some(text.to_ascii_lowercase())
}
