//! The handlers of active pages: a folder of them, or one.

use super::Reader;
use super::files::flag;
use super::proxy::{read_origin, trust};
use super::shape::{Block, Seen, Shape, property};
use crate::code::Code;
use crate::model::{Database, Origin, PageSettings, Pages};
use crate::syntax::Node;

/// Upstreams of one step: each has connections of its own in every worker.
const UPSTREAMS_MAX: usize = 100;

const PAGES: Shape = Shape {
    arguments: (1, 1),
    properties: &[],
    block: Block::Optional,
    example: "pages \"./site\" { database \"./data/site.db\" }",
};
const PAGE: Shape = Shape { example: "page \"./scripts/hello.luau\"", ..PAGES };
const DEV: Shape = Shape { arguments: (0, 1), ..Shape::value("dev") };
const SLICE: Shape = Shape::value("cpu-slice \"200us\"");
const CPU: Shape = Shape::value("cpu-limit \"50ms\"");
const RUN: Shape = Shape::value("run-limit \"60s\"");
const MEMORY: Shape = Shape::value("memory-limit \"16MiB\"");
const UPLOAD: Shape = Shape::value("upload-limit \"10MiB\"");
const FORM_LIMIT: Shape = Shape::value("form-limit \"1MiB\"");
const DATABASE: Shape = Shape {
    properties: DATABASE_PROPERTIES,
    ..Shape::value("database \"./data/site.db\" migrations=\"./migrations\"")
};
const DATABASE_PROPERTIES: &[&str] = &["migrations", "readers", "statement-timeout", "synchronous"];
const SECRET: Shape = Shape::value("secret \"./data/secret\"");
const UPSTREAM: Shape = Shape { arguments: (2, 2), ..Shape::value("upstream \"api\" \"http://127.0.0.1:3000\"") };
const RECHECK: Shape = Shape::value("recheck \"1s\"");

const ALLOWED: &[&str] = &[
    "dev",
    "cpu-slice",
    "cpu-limit",
    "run-limit",
    "memory-limit",
    "upload-limit",
    "form-limit",
    "database",
    "secret",
    "upstream",
    "trust",
    "recheck",
];

pub(super) fn folder(reader: &mut Reader<'_>, node: &Node) -> Option<Pages> {
    read(reader, node, &PAGES)
}

pub(super) fn page(reader: &mut Reader<'_>, node: &Node) -> Option<Pages> {
    let page = read(reader, node, &PAGE)?;
    let ending = page.path.extension().and_then(|ending| ending.to_str());
    if !matches!(ending, Some("lhtml" | "luau")) {
        let draft = reader.report.add(Code::TextBad, node.arguments[0].span, "this is neither a page nor a script");
        draft.label("a name that ends with `.lhtml` or `.luau`");
        return None;
    }
    Some(page)
}

fn read(reader: &mut Reader<'_>, node: &Node, shape: &Shape) -> Option<Pages> {
    let complete = reader.shape(node, shape);
    let mut settings = PageSettings::default();
    let mut seen = Seen::default();
    for child in node.children.iter().flatten() {
        if !ALLOWED.contains(&child.name.as_str()) {
            reader.unknown(child, ALLOWED);
        } else if child.name == "upstream" {
            upstream(reader, child, &mut settings.upstreams);
        } else if reader.first(&mut seen, child) {
            setting(reader, child, &mut settings);
        }
    }
    let child = |name: &str| node.children.iter().flatten().find(|child| child.name == name);
    if let (true, Some(slice)) =
        (settings.cpu_slice_us > settings.cpu_limit_us, child("cpu-slice").or(child("cpu-limit")))
    {
        let message = "one slice is longer than a page may compute at all";
        let draft = reader.report.add(Code::Contradiction, slice.span, message);
        draft.note("`cpu-slice` is how long a page runs before others have their turn, `cpu-limit` how long in all");
    }
    if !complete {
        return None;
    }
    Some(Pages { path: reader.path(&node.arguments[0])?, settings })
}

fn setting(reader: &mut Reader<'_>, node: &Node, settings: &mut PageSettings) {
    match node.name.as_str() {
        "dev" if node.arguments.is_empty() => settings.dev = reader.shape(node, &DEV),
        "dev" => settings.dev = flag(reader, node, &DEV),
        "cpu-slice" => duration_us(reader, node, &SLICE, (20, 100_000), &mut settings.cpu_slice_us),
        "cpu-limit" => duration_us(reader, node, &CPU, (1_000, 3_600_000_000), &mut settings.cpu_limit_us),
        "run-limit" => {
            if reader.shape(node, &RUN)
                && let Some(duration_ms) = reader.duration(&node.arguments[0], 100..=86_400_000)
            {
                settings.run_ms_max = duration_ms;
            }
        }
        "memory-limit" => size(reader, node, &MEMORY, (1 << 20, 1 << 30), &mut settings.memory_bytes_max),
        "upload-limit" => size(reader, node, &UPLOAD, (1 << 10, 1 << 40), &mut settings.upload_bytes_max),
        "form-limit" => size(reader, node, &FORM_LIMIT, (1 << 10, 64 << 20), &mut settings.form_bytes_max),
        "database" => {
            if reader.shape(node, &DATABASE) {
                let migrations = property(node, "migrations").and_then(|folder| reader.path(&folder.value));
                let path = reader.path(&node.arguments[0]);
                let readers = property(node, "readers").and_then(|count| reader.number(&count.value, 1..=64));
                let statement_ms_max = property(node, "statement-timeout")
                    .and_then(|duration| reader.duration(&duration.value, 10..=3_600_000));
                let synchronous = property(node, "synchronous");
                let words = [(false, "normal"), (true, "full")];
                let syncs_commits = synchronous.and_then(|word| reader.word(&word.value, &words)).unwrap_or_default();
                settings.database = path.map(|path| Database {
                    path,
                    migrations,
                    readers: readers.and_then(|count| usize::try_from(count).ok()),
                    statement_ms_max,
                    syncs_commits,
                });
            }
        }
        "secret" => {
            if reader.shape(node, &SECRET) {
                settings.secret = reader.path(&node.arguments[0]);
            }
        }
        "trust" => settings.trusted = trust(reader, node),
        _ => {
            if reader.shape(node, &RECHECK) {
                settings.recheck_ms = reader.duration(&node.arguments[0], 0..=86_400_000);
            }
        }
    }
}

fn duration_us(reader: &mut Reader<'_>, node: &Node, shape: &Shape, bounds_us: (u64, u64), setting: &mut u64) {
    if reader.shape(node, shape)
        && let Some(duration_us) = reader.duration_us(&node.arguments[0], bounds_us.0..=bounds_us.1)
    {
        *setting = duration_us;
    }
}

fn size(reader: &mut Reader<'_>, node: &Node, shape: &Shape, bounds: (u64, u64), setting: &mut u64) {
    if reader.shape(node, shape)
        && let Some(size) = reader.size(&node.arguments[0], bounds.0..=bounds.1)
    {
        *setting = size;
    }
}

fn upstream(reader: &mut Reader<'_>, node: &Node, upstreams: &mut Vec<(String, Origin)>) {
    if !reader.shape(node, &UPSTREAM) {
        return;
    }
    let (name, origin) = (super::step::token(reader, &node.arguments[0]), read_origin(reader, &node.arguments[1]));
    let (Some(name), Some(origin)) = (name, origin) else { return };
    if upstreams.iter().any(|(known, _)| *known == name) {
        reader.same_twice(node.arguments[0].span, "this name");
    } else if upstreams.len() == UPSTREAMS_MAX {
        reader.report.add(Code::NumberBounds, node.span, format!("more than {UPSTREAMS_MAX} upstreams"));
    } else {
        upstreams.push((name, origin));
    }
}
