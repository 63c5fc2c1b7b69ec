//! The top level: what concerns the whole process.

use super::Reader;
use super::log::Logs;
use super::shape::{Block, Seen, Shape, property};
use super::{cache, check, private, site, sockets, store};
use crate::code::Code;
use crate::diagnostic::Span;
use crate::model::{Admin, CacheBudget, Config, PageOutputBudget, Timeouts};
use crate::syntax::{Node, Value};

const ALLOWED: &[&str] = &[
    "site",
    "include",
    "log",
    "timeouts",
    "cache",
    "store",
    "page-output",
    "workers",
    "user",
    "state",
    "admin",
    "open-files",
    "landlock",
    "sockets",
];

/// A day: longer is no timeout.
const TIMEOUT_MS_MAX: u64 = 86_400_000;

const WORKERS: Shape = Shape::value("workers 2");
const OPEN_FILES: Shape = Shape::value("open-files 65536");
const LANDLOCK: Shape = Shape::value("landlock #true");
const STATE: Shape = Shape::value("state \"/var/lib/flatout\"");
const USER: Shape = Shape { properties: &["group"], ..Shape::value("user \"www-data\" group=\"www-data\"") };
const ADMIN: Shape =
    Shape { arguments: (0, 1), properties: &["off"], block: Block::None, example: "admin \"/run/flatout.sock\"" };
const CACHE: Shape = Shape {
    arguments: (0, 0),
    properties: &["memory", "entries"],
    block: Block::None,
    example: "cache memory=\"64MiB\" entries=16384",
};
const PAGE_OUTPUT: Shape = Shape {
    arguments: (0, 0),
    properties: &["memory", "disk"],
    block: Block::None,
    example: "page-output memory=\"256MiB\" disk=\"1GiB\"",
};
const TIMEOUTS: Shape = Shape {
    arguments: (0, 0),
    properties: &[],
    block: Block::Needed,
    example: "timeouts { idle \"60s\"; head \"10s\" }",
};
const TIMEOUT: Shape = Shape::value("idle \"60s\"");

const TIMEOUT_NAMES: &[&str] = &["idle", "head", "body", "stream", "write", "handshake", "drain"];

pub(super) fn read(reader: &mut Reader<'_>, nodes: &[Node]) -> Config {
    let mut config = Config::default();
    let mut seen = Seen::default();
    let mut logs = Logs::default();
    let mut sites = Vec::new();
    for node in nodes {
        match node.name.as_str() {
            "site" => sites.push(node),
            "log" => logs.top(reader, node),
            name if !ALLOWED.contains(&name) => reader.unknown(node, ALLOWED),
            _ if !reader.first(&mut seen, node) => {}
            _ => setting(reader, node, &mut config),
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

fn setting(reader: &mut Reader<'_>, node: &Node, config: &mut Config) {
    match node.name.as_str() {
        "workers" => {
            let workers = value(reader, node, &WORKERS).and_then(|value| reader.number(value, 1..=1024));
            config.workers = workers.map(|workers| workers as u16);
        }
        "open-files" => {
            config.open_files = value(reader, node, &OPEN_FILES).and_then(|value| reader.number(value, 64..=1 << 30));
        }
        "landlock" => {
            let landlock = value(reader, node, &LANDLOCK).and_then(|value| reader.flag(value));
            config.landlock = landlock.unwrap_or(false);
        }
        "state" => config.state = value(reader, node, &STATE).and_then(|value| reader.path(value)),
        "user" => {
            config.user = value(reader, node, &USER).and_then(|value| reader.line(value));
            config.group = property(node, "group").and_then(|group| reader.line(&group.value));
        }
        "admin" => config.admin = admin(reader, node),
        "cache" => config.cache = cache(reader, node),
        "page-output" => config.page_output = page_output(reader, node),
        "store" => config.store = store::read(reader, node),
        "sockets" => config.sockets = sockets::read(reader, node),
        "timeouts" => config.timeouts = timeouts(reader, node),
        _ => {}
    }
}

/// The one value of a setting.
pub(super) fn value<'n>(reader: &mut Reader<'_>, node: &'n Node, shape: &Shape) -> Option<&'n Value> {
    reader.shape(node, shape);
    node.arguments.first()
}

fn admin(reader: &mut Reader<'_>, node: &Node) -> Admin {
    reader.shape(node, &ADMIN);
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
        draft.label("what is kept of origins' answers is said in a `site` or `route` block");
        draft.note("as in: site { cache ttl=\"60s\"; proxy \"http://127.0.0.1:3000\" }");
        return budget;
    }
    reader.shape(node, &CACHE);
    if node.properties.is_empty() && node.arguments.is_empty() {
        let draft = reader.report.add(Code::PropertyMissing, node.span, "`cache` needs memory, entries, or both");
        draft.note(format!("as in: {}", CACHE.example));
    }
    if let Some(memory) = property(node, "memory")
        && let Some(memory) = reader.size(&memory.value, 1 << 16..=1 << 40)
    {
        budget.bytes_max = memory as usize;
    }
    if let Some(entries) = property(node, "entries")
        && let Some(entries) = reader.number(&entries.value, 16..=1 << 24)
    {
        budget.entries_max = entries as usize;
    }
    budget
}

fn page_output(reader: &mut Reader<'_>, node: &Node) -> PageOutputBudget {
    let mut budget = PageOutputBudget::default();
    reader.shape(node, &PAGE_OUTPUT);
    if node.properties.is_empty() && node.arguments.is_empty() {
        let draft = reader.report.add(Code::PropertyMissing, node.span, "`page-output` needs memory, disk, or both");
        draft.note(format!("as in: {}", PAGE_OUTPUT.example));
    }
    if let Some(memory) = property(node, "memory")
        && let Some(memory) = reader.size(&memory.value, 1 << 20..=1 << 40)
    {
        budget.memory_bytes_max = memory;
    }
    if let Some(disk) = property(node, "disk")
        && let Some(disk) = reader.size(&disk.value, 0..=1 << 44)
    {
        budget.disk_bytes_max = disk;
    }
    budget
}

fn timeouts(reader: &mut Reader<'_>, node: &Node) -> Timeouts {
    let mut timeouts = Timeouts::default();
    reader.shape(node, &TIMEOUTS);
    let mut seen = Seen::default();
    for child in node.children.iter().flatten() {
        let target = match child.name.as_str() {
            "idle" => &mut timeouts.idle_timeout_ms,
            "head" => &mut timeouts.head_timeout_ms,
            "body" => &mut timeouts.body_timeout_ms,
            "stream" => &mut timeouts.stream_timeout_ms,
            "write" => &mut timeouts.write_timeout_ms,
            "handshake" => &mut timeouts.handshake_timeout_ms,
            "drain" => &mut timeouts.drain_timeout_ms,
            _ => {
                reader.unknown(child, TIMEOUT_NAMES);
                continue;
            }
        };
        if reader.first(&mut seen, child)
            && let Some(value) = value(reader, child, &TIMEOUT)
            && let Some(timeout_ms) = reader.duration(value, 1..=TIMEOUT_MS_MAX)
        {
            *target = timeout_ms;
        }
    }
    timeouts
}
