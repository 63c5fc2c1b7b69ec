//! The handlers of active pages: a folder of them, or one.

use super::Reader;
use super::origin::show_origin;
use super::proxy::{TRUST, networks, read_origin, show_networks};
use super::setting::{Setting, read_block, read_properties, write_block, write_properties};
use super::shape::{BlockRule, Shape, property};
use crate::code::Code;
use crate::encode::{SettingWriter, path};
use crate::model::{Database, PageSettings, Pages};
use crate::syntax::Node;

/// Upstreams of one step: each has connections of its own in every worker.
const UPSTREAMS_MAX: usize = 100;

const PAGES: Shape = Shape {
    arguments: (1, 1),
    properties: &[],
    block: BlockRule::Optional,
    example: "pages \"./site\" { database \"./data/site.db\" }",
};
const PAGE: Shape = Shape { example: "page \"./scripts/hello.luau\"", ..PAGES };
const DATABASE: Shape = Shape {
    properties: &["migrations", "readers", "statement-timeout", "synchronous"],
    ..Shape::value("database \"./data/site.db\" migrations=\"./migrations\"")
};
const UPSTREAM: Shape = Shape { arguments: (2, 2), ..Shape::value("upstream \"api\" \"http://127.0.0.1:3000\"") };

/// The settings of `pages` and of `page`.
pub(super) const SETTINGS: &[Setting<PageSettings>] = &[
    Setting::custom(
        "dev",
        Shape { arguments: (0, 1), ..Shape::value("dev") },
        |reader, node, settings| {
            settings.dev = node.arguments.first().is_none_or(|value| reader.flag(value).unwrap_or(false));
        },
        |writer, name, settings| {
            if settings.dev {
                writer.begin(name).raw("#true").end();
            }
        },
    ),
    Setting::duration_us("cpu-slice", "cpu-slice \"200us\"", 20..=100_000, |settings| &mut settings.cpu_slice_us),
    Setting::duration_us("cpu-limit", "cpu-limit \"50ms\"", 1_000..=3_600_000_000, |settings| {
        &mut settings.cpu_limit_us
    }),
    Setting::duration("run-limit", "run-limit \"60s\"", 100..=86_400_000, |settings| &mut settings.run_ms_max),
    Setting::size("memory-limit", "memory-limit \"16MiB\"", 1 << 20..=1 << 30, |settings| {
        &mut settings.memory_bytes_max
    }),
    Setting::size("upload-limit", "upload-limit \"10MiB\"", 1 << 10..=1 << 40, |settings| {
        &mut settings.upload_bytes_max
    }),
    Setting::size("form-limit", "form-limit \"1MiB\"", 1 << 10..=64 << 20, |settings| &mut settings.form_bytes_max),
    Setting::custom("database", DATABASE, database, |writer, name, settings| {
        let Some(database) = &settings.database else { return };
        writer.begin(name).text(&path(&database.path));
        write_properties(writer, DATABASE_PROPERTIES, database, &Database::default());
        if database.syncs_commits {
            writer.property("synchronous", "full");
        }
        writer.end();
    }),
    Setting::path("secret", "secret \"./data/secret\"", |settings| &mut settings.secret),
    Setting::custom("upstream", UPSTREAM, upstream, |writer, name, settings| {
        for (upstream, origin) in &settings.upstreams {
            writer.begin(name).text(upstream).text(&show_origin(origin)).end();
        }
    })
    .repeated(),
    Setting::custom(
        "trust",
        TRUST,
        |reader, node, settings| settings.trusted = networks(reader, &node.arguments),
        |writer, name, settings| writer.list(name, &show_networks(&settings.trusted)),
    ),
    Setting::duration("recheck", "recheck \"1s\"", 0..=86_400_000, |settings| &mut settings.recheck_ms),
];

const DATABASE_PROPERTIES: &[Setting<Database>] = &[
    Setting::path("migrations", DATABASE.example, |database| &mut database.migrations),
    Setting::number("readers", DATABASE.example, 1..=64, |database| &mut database.readers),
    Setting::duration("statement-timeout", DATABASE.example, 10..=3_600_000, |database| &mut database.statement_ms_max),
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
    read_block(reader, node, SETTINGS, &mut settings);
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

pub(crate) fn write(writer: &mut SettingWriter, name: &str, pages: &Pages) {
    let default = PageSettings::default();
    writer.begin(name).text(&path(&pages.path));
    if pages.settings == default {
        return writer.end();
    }
    writer.open();
    write_block(writer, SETTINGS, &pages.settings, &default);
    writer.close();
}

fn database(reader: &mut Reader<'_>, node: &Node, settings: &mut PageSettings) {
    let mut database = Database::default();
    read_properties(reader, node, DATABASE_PROPERTIES, &mut database);
    let words = [(false, "normal"), (true, "full")];
    let synchronous = property(node, "synchronous").and_then(|word| reader.word(&word.value, &words));
    database.syncs_commits = synchronous.unwrap_or_default();
    settings.database = reader.path(&node.arguments[0]).map(|path| Database { path, ..database });
}

fn upstream(reader: &mut Reader<'_>, node: &Node, settings: &mut PageSettings) {
    let upstreams = &mut settings.upstreams;
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
