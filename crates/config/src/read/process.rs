//! The top-level settings, which apply to the whole process.

use super::network::{TRUST, trusted_proxy};
use super::reader::Reader;
use super::setting::{Group, Inner, List, Parsed, Setting, TIMEOUT_MS, WholeField, names, read_row, write_block};
use super::shape::{SeenSettings, Shape, property};
use super::{cache, check, private, site, sockets, store};
use crate::code::Code;
use crate::diagnostic::Span;
use crate::encode::writer::{SettingWriter, path};
use crate::model::{
    Admin, CacheBudget, Config, ConnectionLimits, HeldLimit, PageOutputBudget, RequestBodyLimits, RequestHeadLimits,
    TrustedProxy,
};
use crate::syntax::Node;
use flatout_http::timeout_settings;
use flatout_http::timeouts::Timeouts;

/// The top-level settings that are not in [`SETTINGS`].
const BLOCKS: &[&str] = &["site", "include", "log"];

const USER: Shape = Shape::value("user \"www-data\" group=\"www-data\"").with(&["group"]);
const ADMIN: Shape =
    Shape::none("admin \"/run/flatout.sock\"").takes(0, 1).with(&["off"]).needs("a path, or off=#true");

/// The settings of the whole process.
pub(super) const SETTINGS: &[Setting<Config>] = &[
    Setting::number("workers", "workers 2", 1..=1024, |config| &mut config.workers),
    Setting::custom("user", USER, user, |writer, name, config| {
        let Some(user) = &config.user else { return };
        writer.begin(name).text(user);
        if let Some(group) = &config.group {
            writer.property("group", group);
        }
        writer.end();
    }),
    Setting::number("open-files", "open-files 65536", 64..=1 << 30, |config| &mut config.open_files),
    Setting::flag("worker-process", "worker-process #false", |config| &mut config.worker_process),
    Setting::value(
        "landlock",
        "landlock #false",
        &Parsed {
            read: |reader, value| Some(Some(reader.flag(value)?)),
            show: |landlock| format!("#{}", *landlock == Some(true)),
            field: |config: &mut Config| &mut config.landlock,
        },
    ),
    Setting::flag("seccomp", "seccomp #false", |config| &mut config.seccomp),
    Setting::path("state", "state \"/var/lib/flatout\"", |config| &mut config.state),
    Setting::custom(
        "admin",
        ADMIN,
        |reader, node, config| config.admin = admin(reader, node),
        |writer, name, config| match &config.admin {
            Admin::Default => {}
            Admin::Off => writer.begin(name).raw_property("off", "#true").end(),
            Admin::Path(socket) => writer.begin(name).text(&path(socket)).end(),
        },
    ),
    Setting::group("timeouts", &Inner(&TIMEOUTS, |config: &mut Config| &mut config.timeouts)),
    Setting::group("request-head", &Inner(&REQUEST_HEAD, |config: &mut Config| &mut config.request_head)),
    Setting::group("request-body", &Inner(&REQUEST_BODY, |config: &mut Config| &mut config.request_body)),
    Setting::list(
        "trusted-proxies",
        TRUST,
        &List("this proxy", trusted_proxy, TrustedProxy::to_string, |config: &mut Config| &mut config.trusted),
    ),
    Setting::group(
        "limit-connections",
        &Inner(&LIMIT_CONNECTIONS, |config: &mut Config| &mut config.limit_connections),
    ),
    Setting::group("sockets", &Inner(&sockets::SOCKETS, |config: &mut Config| &mut config.sockets)),
    Setting::custom("cache", Shape::any(), cache, |writer, name, config| {
        if config.cache != CacheBudget::default() {
            CACHE.write(writer.begin(name), &config.cache, &CacheBudget::default());
        }
    }),
    Setting::group("page-output", &Inner(&PAGE_OUTPUT, |config: &mut Config| &mut config.page_output)),
    Setting::group("store", &Inner(&store::STORE, |config: &mut Config| &mut config.store)),
];

/// `timeouts`.
pub(super) const TIMEOUTS: Group<Timeouts> = Group {
    shape: Shape::none("timeouts { idle \"60s\"; head \"10s\" }").has_block(),
    properties: &[],
    block: timeout_settings!(timeout),
};

const fn timeout(name: &'static str, field: WholeField<Timeouts>) -> Setting<Timeouts> {
    Setting::duration(name, "idle \"60s\"", TIMEOUT_MS, field)
}

/// `request-head`. The smallest size is more than a browser sends; the largest size bounds the memory of incomplete
/// heads.
const REQUEST_HEAD: Group<RequestHeadLimits> = Group {
    shape: Shape::none("request-head size=\"64KiB\" fields=200").needs("size, fields, or both"),
    properties: &[
        Setting::size("size", "", 4 << 10..=256 << 10, |limits| &mut limits.bytes_max),
        Setting::number("fields", "", 16..=1000, |limits| &mut limits.fields_max),
    ],
    block: &[],
};

/// `request-body`.
const REQUEST_BODY: Group<RequestBodyLimits> = Group {
    shape: Shape::none("request-body rate=\"2KiB\"").needs("rate"),
    properties: &[Setting::size("rate", "", 0..=1 << 30, |limits| &mut limits.rate_min)],
    block: &[],
};

/// `limit-connections`.
const LIMIT_CONNECTIONS: Group<ConnectionLimits> = Group {
    shape: Shape::none("limit-connections { connections per-address=1000 }").has_block(),
    properties: &[],
    block: &[
        Setting::group("connections", &Inner(&HELD, |limits: &mut ConnectionLimits| &mut limits.connections)),
        Setting::group("handshakes", &Inner(&HELD, |limits: &mut ConnectionLimits| &mut limits.handshakes)),
        Setting::group("heads", &Inner(&HELD, |limits: &mut ConnectionLimits| &mut limits.heads)),
        Setting::group("requests", &Inner(&HELD, |limits: &mut ConnectionLimits| &mut limits.requests)),
    ],
};

/// The highest limit per address: the counters of all addresses are in a table with words of fixed size.
const PER_ADDRESS_MAX: u64 = 1_000_000;

const HELD: Group<HeldLimit> = Group {
    shape: Shape::none("connections per-address=1000 total=100000").needs("per-address, total, or both"),
    properties: &[
        Setting::number("per-address", "", 0..=PER_ADDRESS_MAX, |limit| &mut limit.per_address),
        Setting::number("total", "", 0..=1 << 30, |limit| &mut limit.total),
    ],
    block: &[],
};

const CACHE: Group<CacheBudget> = Group {
    shape: Shape::none("cache memory=\"64MiB\" entries=16384").needs("memory, entries, or both"),
    properties: &[
        Setting::size("memory", "", 1 << 16..=1 << 40, |budget| &mut budget.bytes_max),
        Setting::number("entries", "", 16..=1 << 24, |budget| &mut budget.entries_max),
    ],
    block: &[],
};

const PAGE_OUTPUT: Group<PageOutputBudget> = Group {
    shape: Shape::none("page-output memory=\"256MiB\" disk=\"1GiB\"").needs("memory, disk, or both"),
    properties: &[
        Setting::size("memory", "", 1 << 20..=1 << 40, |budget| &mut budget.memory_bytes_max),
        Setting::size("disk", "", 0..=1 << 44, |budget| &mut budget.disk_bytes_max),
    ],
    block: &[],
};

pub(super) fn read(reader: &mut Reader<'_>, nodes: &[Node]) -> Config {
    let mut config = Config::default();
    let mut seen = SeenSettings::default();
    let mut draft = site::Draft::default();
    let mut sites = Vec::new();
    for node in nodes {
        if node.name == "site" {
            sites.push(node);
        } else if node.name == "log" {
            draft.logs.top(reader, node);
        } else if !read_row(reader, node, SETTINGS, &mut seen, &mut config) {
            reader.unknown(node, &[BLOCKS, &names(SETTINGS)].concat());
        }
    }
    // For each site, whether it is free of errors. A site with errors is not checked for missing settings.
    let mut sound = Vec::new();
    for node in &sites {
        let count = reader.report.count();
        let site = site::read(reader, node, &mut draft);
        check::caches(reader, node);
        config.sites.push(site);
        sound.push(reader.report.count() == count);
    }
    let site::Draft { listeners, logs, .. } = draft;
    check::sites(reader, &sites, &config.sites, &listeners);
    private::kept(reader, &sites);
    for ((node, site), _) in sites.iter().zip(&config.sites).zip(sound).filter(|(_, sound)| *sound) {
        check::answers(reader, node, site, &listeners);
    }
    // If the file could not be read, a missing site is not reported in addition.
    if sites.is_empty() && reader.report.is_empty() {
        let draft = reader.report.add(Code::SiteMissing, Span::new(0, 0, 0), "the configuration has no site");
        draft.note("as in: site \"example.com\" { files \"/srv/www\" }");
    }
    config.listeners = listeners.into_list();
    config.logs = logs.into_list();
    config
}

/// Prints the settings of the whole process, except for logs and sites.
pub(crate) fn write(writer: &mut SettingWriter, config: &Config) {
    // Logs and sites are printed elsewhere.
    write_block(writer, SETTINGS, config, &Config::default());
}

fn user(reader: &mut Reader<'_>, node: &Node, config: &mut Config) {
    config.user = reader.line(&node.arguments[0]);
    config.group = property(node, "group").and_then(|group| reader.line(&group.value));
}

fn admin(reader: &mut Reader<'_>, node: &Node) -> Admin {
    let off = property(node, "off").and_then(|off| Some((off, reader.flag(&off.value)?)));
    match (node.arguments.first(), off) {
        (Some(_), Some((off, true))) => {
            reader.report.add(Code::Contradiction, off.span, "the admin socket is turned off, but has a path");
            Admin::Off
        }
        (None, Some((_, true))) => Admin::Off,
        (Some(path), _) => reader.path(path).map_or(Admin::Default, Admin::Path),
        (None, _) => Admin::Default,
    }
}

fn cache(reader: &mut Reader<'_>, node: &Node, config: &mut Config) {
    let of_step = node.properties.iter().find(|property| cache::PROPERTIES.contains(&property.name.as_str()));
    if let Some(span) = of_step.map(|property| property.span).or(node.children.as_ref().map(|_| node.span)) {
        let draft = reader.report.add(Code::WrongPlace, span, "at the top level, `cache` limits the metadata cache");
        draft.label("settings for responses from origins belong in a `site` or `route` block");
        draft.note("as in: site { cache ttl=\"60s\"; proxy \"http://127.0.0.1:3000\" }");
        return;
    }
    CACHE.read(reader, node, &mut config.cache);
}
