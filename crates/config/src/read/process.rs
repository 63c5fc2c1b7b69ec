//! The top level: what concerns the whole process.

use super::Reader;
use super::log::Logs;
use super::proxy::TIMEOUT_MS;
use super::setting::{Setting, names, read_block, read_properties, write_block, write_properties};
use super::shape::{BlockRule, SeenSettings, Shape, property};
use super::{cache, check, private, site, sockets, store};
use crate::code::Code;
use crate::diagnostic::Span;
use crate::encode::{SettingWriter, path};
use crate::model::{Admin, CacheBudget, Config, PageOutputBudget, Sockets, Timeouts};
use crate::syntax::Node;

/// Settings of the top level besides [`SETTINGS`].
const BLOCKS: &[&str] = &["site", "include", "log"];

const USER: Shape = Shape { properties: &["group"], ..Shape::value("user \"www-data\" group=\"www-data\"") };
const ADMIN: Shape =
    Shape { arguments: (0, 1), properties: &["off"], block: BlockRule::None, example: "admin \"/run/flatout.sock\"" };
const CACHE: Shape = Shape {
    arguments: (0, 0),
    properties: &["memory", "entries"],
    block: BlockRule::None,
    example: "cache memory=\"64MiB\" entries=16384",
};
const PAGE_OUTPUT: Shape = Shape {
    arguments: (0, 0),
    properties: &["memory", "disk"],
    block: BlockRule::None,
    example: "page-output memory=\"256MiB\" disk=\"1GiB\"",
};
const TIMEOUTS: Shape = Shape {
    arguments: (0, 0),
    properties: &[],
    block: BlockRule::Needed,
    example: "timeouts { idle \"60s\"; head \"10s\" }",
};
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
    Setting::custom(
        "timeouts",
        TIMEOUTS,
        |reader, node, config| read_block(reader, node, TIMEOUT_SETTINGS, &mut config.timeouts),
        |writer, name, config| {
            if config.timeouts != Timeouts::default() {
                writer.begin(name).open();
                write_block(writer, TIMEOUT_SETTINGS, &config.timeouts, &Timeouts::default());
                writer.close();
            }
        },
    ),
    Setting::custom(
        "sockets",
        sockets::SHAPE,
        |reader, node, config| read_block(reader, node, sockets::SETTINGS, &mut config.sockets),
        |writer, name, config| {
            if config.sockets != Sockets::default() {
                writer.begin(name).open();
                write_block(writer, sockets::SETTINGS, &config.sockets, &Sockets::default());
                writer.close();
            }
        },
    ),
    Setting::any(
        "cache",
        |reader, node, config| config.cache = cache(reader, node),
        |writer, name, config| {
            if config.cache != CacheBudget::default() {
                writer.begin(name);
                write_properties(writer, CACHE_PROPERTIES, &config.cache, &CacheBudget::default());
                writer.end();
            }
        },
    ),
    Setting::custom(
        "page-output",
        PAGE_OUTPUT,
        |reader, node, config| {
            needs_property(reader, node, &PAGE_OUTPUT);
            read_properties(reader, node, PAGE_OUTPUT_PROPERTIES, &mut config.page_output);
        },
        |writer, name, config| {
            if config.page_output != PageOutputBudget::default() {
                writer.begin(name);
                write_properties(writer, PAGE_OUTPUT_PROPERTIES, &config.page_output, &PageOutputBudget::default());
                writer.end();
            }
        },
    ),
    Setting::custom(
        "store",
        store::SHAPE,
        |reader, node, config| config.store = store::read(reader, node),
        |writer, _, config| store::write(writer, &config.store),
    ),
];

/// The settings of `timeouts`.
pub(super) const TIMEOUT_SETTINGS: &[Setting<Timeouts>] = &[
    Setting::duration("idle", TIMEOUT, TIMEOUT_MS, |timeouts| &mut timeouts.idle_timeout_ms),
    Setting::duration("head", TIMEOUT, TIMEOUT_MS, |timeouts| &mut timeouts.head_timeout_ms),
    Setting::duration("body", TIMEOUT, TIMEOUT_MS, |timeouts| &mut timeouts.body_timeout_ms),
    Setting::duration("stream", TIMEOUT, TIMEOUT_MS, |timeouts| &mut timeouts.stream_timeout_ms),
    Setting::duration("write", TIMEOUT, TIMEOUT_MS, |timeouts| &mut timeouts.write_timeout_ms),
    Setting::duration("handshake", TIMEOUT, TIMEOUT_MS, |timeouts| &mut timeouts.handshake_timeout_ms),
    Setting::duration("drain", TIMEOUT, TIMEOUT_MS, |timeouts| &mut timeouts.drain_timeout_ms),
];

const CACHE_PROPERTIES: &[Setting<CacheBudget>] = &[
    Setting::size("memory", CACHE.example, 1 << 16..=1 << 40, |budget| &mut budget.bytes_max),
    Setting::number("entries", CACHE.example, 16..=1 << 24, |budget| &mut budget.entries_max),
];

const PAGE_OUTPUT_PROPERTIES: &[Setting<PageOutputBudget>] = &[
    Setting::size("memory", PAGE_OUTPUT.example, 1 << 20..=1 << 40, |budget| &mut budget.memory_bytes_max),
    Setting::size("disk", PAGE_OUTPUT.example, 0..=1 << 44, |budget| &mut budget.disk_bytes_max),
];

pub(super) fn read(reader: &mut Reader<'_>, nodes: &[Node]) -> Config {
    let mut config = Config::default();
    let mut seen = SeenSettings::default();
    let mut logs = Logs::default();
    let mut sites = Vec::new();
    for node in nodes {
        match node.name.as_str() {
            "site" => sites.push(node),
            "log" => logs.top(reader, node),
            name => match SETTINGS.iter().find(|row| row.name == name) {
                None => reader.unknown(node, &[BLOCKS, &names(SETTINGS)].concat()),
                Some(row) if reader.first(&mut seen, node) => row.read(reader, node, &mut config),
                Some(_) => {}
            },
        }
    }
    let mut listeners = check::Listeners::default();
    // Whether each site is without mistakes of its own: what it lacks is no news otherwise.
    let mut sound = Vec::new();
    for node in &sites {
        let count = reader.report.count();
        let site = site::read(reader, node, &mut listeners, &mut logs);
        check::caches(reader, node);
        config.sites.push(site);
        sound.push(reader.report.count() == count);
    }
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

/// Reports a node that has neither of the properties of `shape`, and nothing else either.
pub(super) fn needs_property(reader: &mut Reader<'_>, node: &Node, shape: &Shape) {
    if node.properties.is_empty() && node.arguments.is_empty() {
        let message = format!("`{}` needs {}, or both", node.name, shape.properties.join(", "));
        reader.report.add(Code::PropertyMissing, node.span, message).note(format!("as in: {}", shape.example));
    }
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
        (None, Some((_, false))) => Admin::Default,
        (None, None) => {
            if node.properties.is_empty() {
                let draft = reader.report.add(Code::ValueMissing, node.span, "`admin` needs a path, or off=#true");
                draft.note("as in: admin \"/run/flatout.sock\"");
            }
            Admin::Default
        }
    }
}

fn cache(reader: &mut Reader<'_>, node: &Node) -> CacheBudget {
    let mut budget = CacheBudget::default();
    let of_step = node.properties.iter().find(|property| cache::PROPERTIES.contains(&property.name.as_str()));
    if let Some(span) = of_step.map(|property| property.span).or(node.children.as_ref().map(|_| node.span)) {
        let draft = reader.report.add(Code::WrongPlace, span, "at the top level, `cache` is the memory for files");
        draft.label("cache rules for origins' responses belong in a `site` or `route` block");
        draft.note("as in: site { cache ttl=\"60s\"; proxy \"http://127.0.0.1:3000\" }");
        return budget;
    }
    reader.shape(node, &CACHE);
    needs_property(reader, node, &CACHE);
    read_properties(reader, node, CACHE_PROPERTIES, &mut budget);
    budget
}
