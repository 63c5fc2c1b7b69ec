//! Sites: host names, listeners, certificate, and the steps of their block.

use super::Reader;
use super::check::Listeners;
use super::log::Logs;
use super::parse;
use super::php;
use super::shape::{BlockRule, SeenSettings, Shape, VALUES_MAX, property};
use super::step::{self, STEPS};
use crate::code::Code;
use crate::model::{Certificate, Listener, Protocol, Site};
use crate::syntax::{Node, Scalar, Value};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Settings of a site that are no steps.
const SETTINGS: &[&str] = &["listen", "tls", "log", "recheck", "watch"];

const SHAPE: Shape = Shape {
    arguments: (0, VALUES_MAX),
    properties: &[],
    block: BlockRule::Needed,
    example: "site \"example.com\" { files \"/srv/www\" }",
};
const LISTEN: Shape = Shape {
    arguments: (1, 1),
    properties: &["tls", "h2c", "redirect-https"],
    block: BlockRule::None,
    example: "listen \"0.0.0.0:443\" tls=#true",
};
const TLS: Shape = Shape {
    arguments: (0, 1),
    properties: &["cert", "key"],
    block: BlockRule::None,
    example: "tls cert=\"chain.pem\" key=\"key.pem\"",
};
const RECHECK: Shape = Shape::value("recheck \"1s\"");
const WATCH: Shape = Shape::value("watch #true");

/// Where a site is served that does not say where.
pub(super) const ADDRESS_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// How long what is known of a file is believed, when nothing is said about it, in milliseconds.
pub const RECHECK_MS_DEFAULT: u64 = 1_000;

pub(super) fn read(reader: &mut Reader<'_>, node: &Node, listeners: &mut Listeners, logs: &mut Logs) -> Site {
    reader.shape(node, &SHAPE);
    let mut site = Site {
        place: reader.place(node.span),
        hosts: hosts(reader, node),
        recheck_ms: RECHECK_MS_DEFAULT,
        log: logs.of_all_sites(),
        ..Site::default()
    };
    let mut seen = SeenSettings::default();
    let mut steps = Vec::new();
    let mut listens = false;
    for child in node.children.iter().flatten() {
        match child.name.as_str() {
            "listen" => {
                listens = true;
                listen(reader, child, &mut site, listeners);
            }
            name if !SETTINGS.contains(&name) => steps.push(child),
            _ if !reader.first(&mut seen, child) => {}
            "tls" => site.certificate = certificate(reader, child),
            "log" => site.log = logs.site(reader, child),
            "recheck" => {
                if reader.shape(child, &RECHECK)
                    && let Some(recheck_ms) = reader.duration(&child.arguments[0], 0..=86_400_000)
                {
                    site.recheck_ms = recheck_ms;
                }
            }
            _ => {
                if reader.shape(child, &WATCH) {
                    site.watch = reader.flag(&child.arguments[0]).unwrap_or(false);
                }
            }
        }
    }
    if !listens {
        let listener = Listener {
            place: reader.place(node.span),
            address: ADDRESS_DEFAULT,
            protocol: Protocol::Plain,
            http2_cleartext: false,
            redirect_https_port: None,
        };
        site.listeners.extend(listeners.insert(reader, listener, node.span));
    }
    let allowed: Vec<&str> = STEPS.iter().chain(SETTINGS).copied().collect();
    site.block = step::read_block(reader, &steps, &allowed);
    php::settle_roots(reader, node.span, &mut site.block);
    site
}

fn hosts(reader: &mut Reader<'_>, node: &Node) -> Vec<String> {
    let mut hosts: Vec<String> = Vec::new();
    for value in &node.arguments {
        let Some(host) = reader.line(value) else { continue };
        if let Some(fault) = parse::host_fault(&host) {
            let draft = reader.report.add(Code::HostBad, value.span, format!("`{host}` is not a valid host name"));
            draft.label(fault);
            continue;
        }
        let host = host.strip_suffix('.').unwrap_or(&host).to_ascii_lowercase();
        if hosts.contains(&host) {
            reader.same_twice(value.span, "this host");
            continue;
        }
        hosts.push(host);
    }
    if hosts.is_empty() {
        hosts.push("*".into());
    }
    hosts
}

fn listen(reader: &mut Reader<'_>, node: &Node, site: &mut Site, listeners: &mut Listeners) {
    if !reader.shape(node, &LISTEN) {
        return;
    }
    let flag = |reader: &mut Reader<'_>, name| {
        property(node, name).and_then(|property| reader.flag(&property.value)).unwrap_or(false)
    };
    let tls = flag(reader, "tls");
    let http2_cleartext = flag(reader, "h2c");
    let redirect = property(node, "redirect-https");
    let redirect_https_port = redirect.and_then(|port| reader.number(&port.value, 1..=65_535)).map(|port| port as u16);
    for (name, present) in [("h2c", http2_cleartext), ("redirect-https", redirect.is_some())] {
        if let (true, true, Some(property)) = (tls, present, property(node, name)) {
            let message = format!("`{name}` is for plain HTTP, and this address speaks TLS");
            reader.report.add(Code::Contradiction, property.span, message);
            return;
        }
    }
    let value = &node.arguments[0];
    for address in addresses(reader, value).unwrap_or_default() {
        if let Some(property) = redirect.filter(|_| redirect_https_port == Some(address.port())) {
            let message = format!("port {} speaks plain HTTP and would redirect to itself", address.port());
            let draft = reader.report.add(Code::Contradiction, property.span, message);
            draft.label("the port where TLS is spoken, such as 443");
            return;
        }
        let listener = Listener {
            place: reader.place(node.span),
            address,
            protocol: if tls { Protocol::Tls } else { Protocol::Plain },
            http2_cleartext,
            redirect_https_port,
        };
        let Some(index) = listeners.insert(reader, listener, node.span) else { continue };
        if site.listeners.contains(&index) {
            reader.same_twice(value.span, &format!("the address {address}"));
            return;
        }
        site.listeners.push(index);
    }
}

fn addresses(reader: &mut Reader<'_>, value: &Value) -> Option<Vec<SocketAddr>> {
    if let Scalar::Integer(port) = value.scalar {
        let draft = reader.report.add(Code::AddressBad, value.span, format!("{port} is not a valid address"));
        draft.label(format!("write \":{port}\" for all addresses, or \"127.0.0.1:{port}\""));
        return None;
    }
    let text = reader.line(value)?;
    let addresses = parse::addresses(&text);
    if addresses.is_none() {
        let draft = reader.report.add(Code::AddressBad, value.span, format!("`{text}` is not a valid address"));
        let port = text.rsplit_once(':').map_or(text.as_str(), |(_, port)| port);
        match (text.rsplit_once(':'), parse::digits(port)) {
            (None, Some(port)) => draft.label(format!("write \":{port}\" for all addresses, or \"127.0.0.1:{port}\"")),
            (Some(("localhost", _)), Some(port)) => draft.label(format!("write \"127.0.0.1:{port}\"")),
            (Some(("*", _)), Some(port)) => draft.label(format!("write \":{port}\"")),
            (Some((host, _)), Some(port)) if host.contains(':') && !host.starts_with('[') => {
                draft.label(format!("write \"[{host}]:{port}\""))
            }
            (None, None) if text.parse::<IpAddr>().is_ok() => draft.label("the port is missing"),
            (Some(_), None) => draft.label("a port is a number from 0 to 65535"),
            _ => draft,
        };
        draft.note("an address is an IP address and a port: \"127.0.0.1:8080\", \"[::1]:8080\", or \":8080\" for all");
    }
    addresses
}

fn certificate(reader: &mut Reader<'_>, node: &Node) -> Option<Certificate> {
    reader.shape(node, &TLS);
    if let Some(value) = node.arguments.first() {
        reader.word(value, &[((), "internal")])?;
        if let Some(property) = node.properties.first() {
            let draft = reader.report.add(Code::Contradiction, property.span, "the certificate is internal and a file");
            draft.related(value.span, "internal here");
        }
        return Some(Certificate::Internal);
    }
    let chain = reader.needed(node, "cert", &TLS);
    let key = reader.needed(node, "key", &TLS);
    let (chain, key) = (reader.path(&chain?.value), reader.path(&key?.value));
    Some(Certificate::Files { chain: chain?, key: key?, place: reader.place(node.span) })
}
