//! The top level: what concerns the whole process.

use super::Reader;
use super::proxy::TIMEOUT_MS;
use super::setting::{Group, Inner, Setting, names, read_row, write_block};
use super::shape::{SeenSettings, Shape, property};
use super::{cache, check, private, site, sockets, store};
use crate::code::Code;
use crate::diagnostic::Span;
use crate::encode::{SettingWriter, path};
use crate::model::{Admin, CacheBudget, Config, PageOutputBudget};
use crate::syntax::Node;
use flatout_http::timeouts::Timeouts;

/// Settings of the top level besides [`SETTINGS`].
const BLOCKS: &[&str] = &["site", "include", "log"];

const USER: Shape = Shape::value("user \"www-data\" group=\"www-data\"").with(&["group"]);
const ADMIN: Shape =
    Shape::none("admin \"/run/flatout.sock\"").takes(0, 1).with(&["off"]).needs("a path, or off=#true");
const TIMEOUT: &str = "idle \"60s\"";

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
    Setting::flag("landlock", "landlock #true", |config| &mut config.landlock),
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
    block: &[
        Setting::duration("idle", TIMEOUT, TIMEOUT_MS, |timeouts| &mut timeouts.idle_timeout_ms),
        Setting::duration("head", TIMEOUT, TIMEOUT_MS, |timeouts| &mut timeouts.head_timeout_ms),
        Setting::duration("body", TIMEOUT, TIMEOUT_MS, |timeouts| &mut timeouts.body_timeout_ms),
        Setting::duration("stream", TIMEOUT, TIMEOUT_MS, |timeouts| &mut timeouts.stream_timeout_ms),
        Setting::duration("write", TIMEOUT, TIMEOUT_MS, |timeouts| &mut timeouts.write_timeout_ms),
        Setting::duration("handshake", TIMEOUT, TIMEOUT_MS, |timeouts| &mut timeouts.handshake_timeout_ms),
        Setting::duration("drain", TIMEOUT, TIMEOUT_MS, |timeouts| &mut timeouts.drain_timeout_ms),
    ],
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
    // Whether each site is without mistakes of its own: what it lacks is no news otherwise.
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
    // Where nothing could be read, a missing site is no news.
    if sites.is_empty() && reader.report.is_empty() {
        let draft = reader.report.add(Code::SiteMissing, Span::new(0, 0, 0), "there is no site");
        draft.note("as in: site \"example.com\" { files \"/srv/www\" }");
    }
    config.listeners = listeners.into_list();
    config.logs = logs.into_list();
    config
}

/// Prints the settings of the whole process.
pub(crate) fn write(writer: &mut SettingWriter, config: &Config) {
    // Sites and logs are printed elsewhere.
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
            reader.report.add(Code::Contradiction, off.span, "an admin socket is named and switched off");
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
        let draft = reader.report.add(Code::WrongPlace, span, "at the top level, `cache` is the memory for files");
        draft.label("cache rules for origins' responses belong in a `site` or `route` block");
        draft.note("as in: site { cache ttl=\"60s\"; proxy \"http://127.0.0.1:3000\" }");
        return;
    }
    CACHE.read(reader, node, &mut config.cache);
}
