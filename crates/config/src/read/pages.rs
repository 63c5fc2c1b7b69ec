//! The handlers of active pages: `pages` for a folder, `page` for a single page or script.

use super::field::token;
use super::network::{TRUST, trusted_proxy};
use super::origin::{read_origin, show_origin};
use super::reader::Reader;
use super::setting::{Group, List, Setting, Words, read_block, write_block};
use super::shape::Shape;
use crate::code::Code;
use crate::encode::writer::{SettingWriter, path};
use crate::model::{Database, PageSettings, Pages, TrustedProxy};
use crate::syntax::Node;

/// The maximum number of upstreams per step, each of which has its own connections in every worker.
const UPSTREAMS_MAX: usize = 100;

pub(super) const PAGES: Shape = Shape::value("pages \"./site\" { database \"./data/site.db\" }").may_have_block();
pub(super) const PAGE: Shape = Shape::value("page \"./scripts/hello.luau\"").may_have_block();
const UPSTREAM: Shape = Shape::value("upstream \"api\" \"http://127.0.0.1:3000\"").takes(2, 2);

/// `database`, except for its path.
const DATABASE: Group<Database> = Group {
    shape: Shape::value("database \"./data/site.db\" migrations=\"./migrations\""),
    properties: &[
        Setting::path("migrations", "", |database| &mut database.migrations),
        Setting::number("readers", "", 1..=64, |database| &mut database.readers),
        Setting::duration("statement-timeout", "", 10..=3_600_000, |database| &mut database.statement_ms_max),
        Setting::value(
            "synchronous",
            "",
            &Words(&[(false, "normal"), (true, "full")], |database: &mut Database| &mut database.syncs_commits),
        ),
    ],
    block: &[],
};

/// The settings of both `pages` and `page`.
pub(super) const SETTINGS: &[Setting<PageSettings>] = &[
    Setting::custom(
        "dev",
        Shape::none("dev").takes(0, 1),
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
    Setting::custom("database", Shape::any(), database, |writer, name, settings| {
        if let Some(database) = &settings.database {
            DATABASE.write(writer.begin(name).text(&path(&database.path)), database, &Database::default());
        }
    }),
    Setting::path("secret", "secret \"./data/secret\"", |settings| &mut settings.secret),
    Setting::custom("upstream", UPSTREAM, upstream, |writer, name, settings| {
        for (upstream, origin) in &settings.upstreams {
            writer.begin(name).text(upstream).text(&show_origin(origin)).end();
        }
    })
    .repeated(),
    Setting::list(
        "trusted-proxies",
        TRUST,
        &List("this proxy", trusted_proxy, TrustedProxy::to_string, |settings: &mut PageSettings| {
            &mut settings.trusted
        }),
    ),
    Setting::duration("file-check-interval", "file-check-interval \"1s\"", 0..=86_400_000, |settings| {
        &mut settings.file_check_interval_ms
    }),
];

pub(super) fn page(reader: &mut Reader<'_>, node: &Node) -> Option<Pages> {
    let page = read(reader, node)?;
    let ending = page.path.extension().and_then(|ending| ending.to_str());
    if !matches!(ending, Some("lhtml" | "luau")) {
        let draft = reader.report.add(Code::TextBad, node.arguments[0].span, "this is neither a page nor a script");
        draft.label("the name must end with `.lhtml` or `.luau`");
        return None;
    }
    Some(page)
}

pub(super) fn read(reader: &mut Reader<'_>, node: &Node) -> Option<Pages> {
    let mut settings = PageSettings::default();
    read_block(reader, node, SETTINGS, &mut settings);
    let child = |name: &str| node.children.iter().flatten().find(|child| child.name == name);
    if let (true, Some(slice)) =
        (settings.cpu_slice_us > settings.cpu_limit_us, child("cpu-slice").or(child("cpu-limit")))
    {
        let message = "`cpu-slice` is longer than `cpu-limit`";
        let draft = reader.report.add(Code::Contradiction, slice.span, message);
        draft.note(
            "`cpu-slice` is how long a page runs before other pages can run, and `cpu-limit` is its total CPU time",
        );
    }
    Some(Pages { path: reader.path(node.arguments.first()?)?, settings })
}

pub(crate) fn write(writer: &mut SettingWriter, name: &str, pages: &Pages) {
    writer.begin(name).text(&path(&pages.path));
    writer.block(|writer| write_block(writer, SETTINGS, &pages.settings, &PageSettings::default()));
}

fn database(reader: &mut Reader<'_>, node: &Node, settings: &mut PageSettings) {
    let mut database = Database::default();
    DATABASE.read(reader, node, &mut database);
    let path = node.arguments.first().and_then(|path| reader.path(path));
    settings.database = path.map(|path| Database { path, ..database });
}

fn upstream(reader: &mut Reader<'_>, node: &Node, settings: &mut PageSettings) {
    let upstreams = &mut settings.upstreams;
    let (name, origin) = (token(reader, &node.arguments[0]), read_origin(reader, &node.arguments[1]));
    let (Some(name), Some(origin)) = (name, origin) else { return };
    if upstreams.iter().any(|(known, _)| *known == name) {
        reader.same_twice(node.arguments[0].span, "this name");
    } else if upstreams.len() == UPSTREAMS_MAX {
        reader.report.add(Code::NumberBounds, node.span, format!("more than {UPSTREAMS_MAX} upstreams"));
    } else {
        upstreams.push((name, origin));
    }
}
