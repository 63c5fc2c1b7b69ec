//! Sites: host names, listeners, certificate, log, and the steps in the block.

use super::check::{ADDRESS_DEFAULT, Listeners};
use super::log::Logs;
use super::network::read_listed_network;
use super::parse;
use super::php;
use super::reader::Reader;
use super::setting::{Group, Parsed, Setting, Words, names, read_row, write_block};
use super::shape::{SeenSettings, Shape, VALUES_MAX, property};
use super::step;
use crate::code::Code;
use crate::encode::writer::{SettingWriter, path, quote};
use crate::model::{Certificate, Cidr, ListenAddress, Listener, Place, Protocol, ProxySenders, Site, SocketAccess};
use crate::syntax::{Node, Scalar, Value};
use std::net::IpAddr;

const SHAPE: Shape = Shape::none("site \"example.com\" { files \"/srv/www\" }").takes(0, VALUES_MAX).has_block();
const TLS: Shape = Shape::none("tls cert=\"chain.pem\" key=\"key.pem\"").takes(0, 1).with(&["cert", "key"]);

/// `listen`, except for its address.
const LISTEN: Group<Listener> = Group {
    shape: Shape::value("listen \"0.0.0.0:443\" tls=#true"),
    properties: &[
        Setting::value(
            "tls",
            "",
            &Parsed {
                read: |reader, value| Some(if reader.flag(value)? { Protocol::Tls } else { Protocol::Plain }),
                show: |protocol| format!("#{}", *protocol == Protocol::Tls),
                field: |listener: &mut Listener| &mut listener.protocol,
            },
        ),
        Setting::flag("h2c", "", |listener| &mut listener.http2_cleartext),
        Setting::value(
            "http3",
            "",
            &Parsed {
                read: |reader, value| Some(Some(reader.flag(value)?)),
                show: |http3| format!("#{}", *http3 == Some(true)),
                field: |listener: &mut Listener| &mut listener.http3,
            },
        ),
        Setting::number("redirect-https", "", 1..=65_535, |listener| &mut listener.redirect_https_port),
        Setting::value(
            "proxy-protocol",
            "",
            &Parsed {
                read: |reader, value| {
                    Some(match reader.scalar(value)? {
                        Scalar::Text(text) if text != "true" && text != "false" => {
                            Some(ProxySenders::Networks(sender_networks(reader, value)?))
                        }
                        Scalar::Bool(_) | Scalar::Text(_) => reader.flag(value)?.then_some(ProxySenders::All),
                        other => {
                            let message = "expected #true, #false, or networks such as \"10.0.0.0/8\"";
                            let draft = reader.report.add(Code::TypeWrong, value.span, message);
                            draft.label(format!("this is {}", other.kind()));
                            return None;
                        }
                    })
                },
                show: |senders| match senders {
                    Some(ProxySenders::Networks(networks)) => {
                        quote(&networks.iter().map(Cidr::to_string).collect::<Vec<_>>().join(" "))
                    }
                    senders => format!("#{}", senders.is_some()),
                },
                field: |listener: &mut Listener| &mut listener.proxy_protocol,
            },
        ),
        Setting::value("mode", "", &Words(SOCKET_MODES, |listener: &mut Listener| &mut listener.access.mode)),
        Setting::value(
            "group",
            "",
            &Parsed {
                read: |reader, value| reader.line(value).map(Some),
                show: |group| quote(group.as_deref().unwrap_or_default()),
                field: |listener: &mut Listener| &mut listener.access.group,
            },
        ),
    ],
    block: &[],
};

/// Modes of socket files: to connect, a client needs write permission.
const SOCKET_MODES: &[(u32, &str)] =
    &[(0o600, "0600"), (0o660, "0660"), (0o666, "0666"), (0o700, "0700"), (0o770, "0770"), (0o777, "0777")];

/// The settings of a site that are not steps. Listeners and the log are printed by other code.
pub(super) const SETTINGS: &[Setting<Draft>] = &[
    Setting::read_only("listen", Shape::any(), listen).repeated(),
    Setting::custom(
        "tls",
        TLS,
        |reader, node, draft| draft.site.certificate = certificate(reader, node),
        |writer, name, draft| match &draft.site.certificate {
            Some(Certificate::Internal) => writer.begin(name).text("internal").end(),
            Some(Certificate::Files { chain, key, .. }) => {
                writer.begin(name).property("cert", &path(chain)).property("key", &path(key)).end();
            }
            None => {}
        },
    ),
    Setting::read_only("log", Shape::any(), |reader, node, draft| draft.site.log = draft.logs.site(reader, node)),
    Setting::duration("file-check-interval", "file-check-interval \"1s\"", 0..=86_400_000, |draft| {
        &mut draft.site.file_check_interval_ms
    }),
    Setting::flag("watch", "watch #true", |draft| &mut draft.site.watch),
];

/// A site under construction, and the data shared by all sites.
#[derive(Clone, Default)]
pub(super) struct Draft {
    site: Site,
    pub(super) listeners: Listeners,
    pub(super) logs: Logs,
}

/// The default of how long cached file metadata is used before the file is checked again, in milliseconds.
pub const FILE_CHECK_INTERVAL_MS_DEFAULT: u64 = 1_000;

pub(super) fn read(reader: &mut Reader<'_>, node: &Node, draft: &mut Draft) -> Site {
    reader.shape(node, &SHAPE);
    draft.site = Site {
        place: reader.place(node.span),
        hosts: hosts(reader, node),
        file_check_interval_ms: FILE_CHECK_INTERVAL_MS_DEFAULT,
        log: draft.logs.of_all_sites(),
        ..Site::default()
    };
    let mut seen = SeenSettings::default();
    let children = || node.children.iter().flatten();
    let mut steps: Vec<&Node> = Vec::new();
    for child in children() {
        if !read_row(reader, child, SETTINGS, &mut seen, draft) {
            steps.push(child);
        }
    }
    if !children().any(|child| child.name == "listen") {
        let listener = listener(reader.place(node.span), ADDRESS_DEFAULT.into());
        draft.site.listeners.extend(draft.listeners.insert(reader, listener, node.span));
    }
    let mut site = std::mem::take(&mut draft.site);
    site.block = step::read_block(reader, &steps, &names(SETTINGS));
    php::settle_roots(reader, node.span, &mut site);
    site
}

/// Prints the settings that are not steps, except for listeners and the log.
pub(crate) fn write(writer: &mut SettingWriter, site: &Site) {
    let default = Draft {
        site: Site { file_check_interval_ms: FILE_CHECK_INTERVAL_MS_DEFAULT, ..Site::default() },
        ..Draft::default()
    };
    let settings = Site { block: Vec::new(), ..site.clone() };
    write_block(writer, SETTINGS, &Draft { site: settings, ..Draft::default() }, &default);
}

pub(crate) fn write_listener(writer: &mut SettingWriter, shown: &Listener) {
    let default = listener(Place::default(), shown.address.clone());
    LISTEN.write(writer.begin("listen").text(&shown.address.to_string()), shown, &default);
}

fn listener(place: Place, address: ListenAddress) -> Listener {
    Listener {
        place,
        address,
        access: SocketAccess::default(),
        protocol: Protocol::Plain,
        http2_cleartext: false,
        redirect_https_port: None,
        http3: None,
        proxy_protocol: None,
    }
}

fn hosts(reader: &mut Reader<'_>, node: &Node) -> Vec<String> {
    let mut hosts = reader.list(&node.arguments, "this host", |reader, value| {
        let host = reader.line(value)?;
        if let Some(fault) = parse::host_fault(&host) {
            let draft = reader.report.add(Code::HostBad, value.span, format!("`{host}` is not a valid host name"));
            draft.label(fault);
            return None;
        }
        Some(host.strip_suffix('.').unwrap_or(&host).to_ascii_lowercase())
    });
    if hosts.is_empty() {
        hosts.push("*".into());
    }
    hosts
}

fn listen(reader: &mut Reader<'_>, node: &Node, draft: &mut Draft) {
    let mut described = listener(reader.place(node.span), ADDRESS_DEFAULT.into());
    LISTEN.read(reader, node, &mut described);
    let Some(value) = node.arguments.first() else { return };
    let redirect = property(node, "redirect-https");
    for (name, present) in [("h2c", described.http2_cleartext), ("redirect-https", redirect.is_some())] {
        if let (Protocol::Tls, true, Some(property)) = (described.protocol, present, property(node, name)) {
            let message = format!("`{name}` is for plain HTTP, but this address uses TLS");
            reader.report.add(Code::Contradiction, property.span, message);
            return;
        }
    }
    if let (Protocol::Plain, Some(true), Some(property)) =
        (described.protocol, described.http3, property(node, "http3"))
    {
        let draft = reader.report.add(Code::Contradiction, property.span, "`http3` needs TLS");
        draft.label("add tls=#true");
        return;
    }
    if let (true, Some(true), Some(property)) =
        (described.proxy_protocol.is_some(), described.http3, property(node, "http3"))
    {
        let draft = reader.report.add(Code::Contradiction, property.span, "`proxy-protocol` is for TCP connections");
        draft.label("a load balancer cannot name the client of a QUIC connection: remove http3=#true");
        return;
    }
    for address in addresses(reader, value).unwrap_or_default() {
        let listener = Listener { address: address.clone(), ..described.clone() };
        if unsuitable(reader, node, &listener) {
            return;
        }
        if let (Some(property), Some(port)) = (redirect, address.port())
            && described.redirect_https_port == Some(port)
        {
            let message = format!("port {port} uses plain HTTP and would redirect to itself");
            let draft = reader.report.add(Code::Contradiction, property.span, message);
            draft.label("use the TLS listener's port, such as 443");
            return;
        }
        let Some(index) = draft.listeners.insert(reader, listener, node.span) else { continue };
        if draft.site.listeners.contains(&index) {
            reader.same_twice(value.span, &format!("the address {address}"));
            return;
        }
        draft.site.listeners.push(index);
    }
}

/// Reads networks separated by spaces.
fn sender_networks(reader: &mut Reader<'_>, value: &Value) -> Option<Vec<Cidr>> {
    let text = reader.line(value)?;
    let mut networks = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty() || text.trim().is_empty()) {
        let network = read_listed_network(reader, value, word)?;
        if networks.contains(&network) {
            reader.same_twice(value.span, &format!("the network {network}"));
            return None;
        }
        networks.push(network);
    }
    Some(networks)
}

/// Reports properties that are not for this kind of address.
fn unsuitable(reader: &mut Reader<'_>, node: &Node, listener: &Listener) -> bool {
    let networks = matches!(listener.proxy_protocol, Some(ProxySenders::Networks(_)));
    let (names, reason) = match &listener.address {
        ListenAddress::Ip(_) => (&["mode", "group"][..], "is for Unix sockets, but this address is a port"),
        ListenAddress::Unix(_) if networks => (
            &["proxy-protocol"][..],
            "lists networks, but clients of a Unix socket have no address: write proxy-protocol=#true",
        ),
        ListenAddress::Unix(_) => (&["http3"][..], "needs UDP, so it is not for Unix sockets"),
    };
    let Some(property) = names.iter().find_map(|name| property(node, name)) else { return false };
    reader.report.add(Code::Contradiction, property.span, format!("`{}` {reason}", property.name));
    true
}

fn addresses(reader: &mut Reader<'_>, value: &Value) -> Option<Vec<ListenAddress>> {
    if let Scalar::Integer(port) = value.scalar {
        let draft = reader.report.add(Code::AddressBad, value.span, format!("{port} is not a valid address"));
        draft.label(format!("write \":{port}\" for all addresses, or \"127.0.0.1:{port}\""));
        return None;
    }
    let text = reader.line(value)?;
    let addresses = parse::addresses(&text);
    if let Err(fault) = addresses {
        let draft = reader.report.add(Code::AddressBad, value.span, format!("`{text}` is not a valid address"));
        if text.starts_with("unix:") || text.starts_with('/') {
            draft.label(fault);
            return None;
        }
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
    addresses.ok()
}

fn certificate(reader: &mut Reader<'_>, node: &Node) -> Option<Certificate> {
    if let Some(value) = node.arguments.first() {
        reader.word(value, &[((), "internal")])?;
        if let Some(property) = node.properties.first() {
            let draft = reader.report.add(
                Code::Contradiction,
                property.span,
                "the certificate is both internal and from a file",
            );
            draft.related(value.span, "the internal certificate");
        }
        return Some(Certificate::Internal);
    }
    let chain = reader.needed(node, "cert", &TLS);
    let key = reader.needed(node, "key", &TLS);
    let (chain, key) = (reader.path(&chain?.value), reader.path(&key?.value));
    Some(Certificate::Files { chain: chain?, key: key?, place: reader.place(node.span) })
}
