//! The steps of a block: changes to requests and responses, access control, and handlers.

use super::cache;
use super::field::field_value;
use super::files;
use super::guard;
use super::operations;
use super::pages;
use super::parse;
use super::php;
use super::proxy;
use super::reader::Reader;
use super::route;
use super::shape::{Shape, VALUES_MAX, property};
use super::text::is_path;
use crate::code::Code;
use crate::diagnostic::Span;
use crate::model::{Access, ErrorPage, Handler, Respond, Rewrite, Step, StepKind};
use crate::syntax::{Node, Scalar, Value};
use flatout_http::lines::{is_coding_field, is_fixed};
use std::ops::RangeInclusive;

/// A kind of step: its name, its shape, and its reader.
struct StepRow {
    name: &'static str,
    shape: Shape,
    read: fn(&mut Reader<'_>, &Node) -> Option<StepKind>,
}

const fn row(name: &'static str, shape: Shape, read: fn(&mut Reader<'_>, &Node) -> Option<StepKind>) -> StepRow {
    StepRow { name, shape, read }
}

const STEPS: &[StepRow] = &[
    row("files", files::SHAPE, |reader, node| {
        Some(StepKind::Handler(Handler::Files(Box::new(files::read(reader, node)?))))
    }),
    row("proxy", proxy::SHAPE, |reader, node| {
        Some(StepKind::Handler(Handler::Proxy(Box::new(proxy::read(reader, node)))))
    }),
    row("pages", pages::PAGES, |reader, node| {
        Some(StepKind::Handler(Handler::Pages(Box::new(pages::read(reader, node)?))))
    }),
    row("page", pages::PAGE, |reader, node| {
        Some(StepKind::Handler(Handler::Page(Box::new(pages::page(reader, node)?))))
    }),
    row("php", php::SHAPE, |reader, node| Some(StepKind::Handler(Handler::Php(Box::new(php::read(reader, node)?))))),
    row("route", route::ROUTE, |reader, node| Some(StepKind::Route(route::route(reader, node)))),
    row("redirect", route::REDIRECT, route::redirect),
    row("rewrite", REWRITE, |reader, node| rewrite(reader, node).map(StepKind::Rewrite)),
    row("respond", RESPOND, |reader, node| Some(StepKind::Handler(Handler::Respond(respond(reader, node)?)))),
    row("metrics", Shape::none("metrics"), |_, _| Some(StepKind::Handler(Handler::Metrics))),
    row("cache", Shape::any(), |reader, node| Some(StepKind::Cache(Box::new(cache::read(reader, node)?)))),
    row("header", HEADER, |reader, node| {
        Some(StepKind::Header(operations::read(reader, node, HEADER.example, find_owned, &[])))
    }),
    row("access", Shape::any(), |reader, node| Some(StepKind::Access(guard::access(reader, node)))),
    row("allow", guard::RULE, |reader, node| Some(rules(reader, node))),
    row("deny", guard::RULE, |reader, node| Some(rules(reader, node))),
    row("basic-auth", Shape::any(), |reader, node| Some(StepKind::BasicAuth(guard::basic_auth(reader, node)))),
    row("rate-limit", Shape::any(), |reader, node| guard::rate_limit(reader, node).map(StepKind::RateLimit)),
    row("cors", Shape::any(), |reader, node| Some(StepKind::Cors(guard::cors(reader, node)))),
    row("early-hints", HINTS, |reader, node| Some(StepKind::EarlyHints(early_hints(reader, node)))),
    row("error", ERROR, |reader, node| error_page(reader, node).map(StepKind::ErrorPage)),
    // Includes have already been expanded. This row exists only for suggestions.
    row("include", Shape::any(), |_, _| None),
];

/// The names of all steps.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    STEPS.iter().map(|row| row.name)
}

const HEADER: Shape =
    Shape::none("header \"X-Frame-Options\" \"DENY\", or header { set \"A\" \"b\"; add \"C\" \"d\"; remove \"E\" }")
        .takes(0, 2)
        .with(&["always"])
        .may_have_block();
const HINTS: Shape = Shape::values(1, "early-hints \"</app.css>; rel=preload; as=style\"");
const ERROR: Shape = Shape::none("error 404 file=\"404.html\"").takes(1, VALUES_MAX).with(&["file"]);
const REWRITE: Shape = Shape::none("rewrite to=\"/index.php\"").with(&["strip-prefix", "to"]);
const RESPOND: Shape = Shape::none("respond 200 \"hello\" type=\"text/plain\"").takes(1, 2).with(&["type"]);

/// The media type of a `respond` step that does not specify one.
pub(crate) const RESPOND_TYPE_DEFAULT: &str = "text/plain; charset=utf-8";

/// Returns advice if `name` is a response field that the server itself sets.
fn find_owned(name: &str) -> Option<&'static str> {
    let advice = if is_coding_field(name.as_bytes()) {
        "you can only `set` it, for files that are stored compressed"
    } else {
        ""
    };
    is_fixed(name.as_bytes()).then_some(advice)
}

/// Reads the steps of a block in written order. `others` are the other settings that the block allows, for messages.
/// Consecutive `allow` and `deny` rules form a single step.
pub(super) fn read_block(reader: &mut Reader<'_>, nodes: &[&Node], others: &[&'static str]) -> Vec<Step> {
    let mut block: Vec<Step> = Vec::new();
    let mut spans: Vec<Span> = Vec::new();
    let mut follows_rule = false;
    for node in nodes {
        let Some(row) = STEPS.iter().find(|row| row.name == node.name) else {
            reader.unknown(node, &names().chain(others.iter().copied()).collect::<Vec<_>>());
            continue;
        };
        if !row.shape.is_any() {
            reader.shape(node, &row.shape);
        }
        let is_rule = matches!(row.name, "allow" | "deny");
        if is_rule
            && follows_rule
            && let Some(Step { kind: StepKind::Access(access), .. }) = block.last_mut()
        {
            guard::rules(reader, node, access);
            continue;
        }
        follows_rule = is_rule;
        if let Some(kind) = (row.read)(reader, node) {
            block.push(Step { place: reader.place(node.span), kind });
            spans.push(node.span);
        }
    }
    route::check_reached(reader, &block, &spans);
    block
}

fn rules(reader: &mut Reader<'_>, node: &Node) -> StepKind {
    let mut access = Access { rules: Vec::new() };
    guard::rules(reader, node, &mut access);
    StepKind::Access(access)
}

fn early_hints(reader: &mut Reader<'_>, node: &Node) -> Vec<String> {
    let mut links = Vec::new();
    for value in &node.arguments {
        let Some(link) = field_value(reader, value) else { continue };
        let target = link.strip_prefix('<').and_then(|rest| rest.split_once('>'));
        let fits = target.is_some_and(|(target, behind)| {
            !target.is_empty() && !target.contains(' ') && behind.starts_with(';') && behind.contains("rel=")
        });
        if fits {
            links.push(link);
        } else {
            let draft = reader.report.add(Code::LinkBad, value.span, "this is not a valid link");
            draft.label("as in \"</app.css>; rel=preload; as=style\"");
        }
    }
    links
}

/// Reads a status code within bounds.
pub(super) fn status(reader: &mut Reader<'_>, value: &Value, bounds: RangeInclusive<u64>) -> Option<u16> {
    let number = reader.number(value, 0..=u64::MAX)?;
    if !bounds.contains(&number) {
        let draft = reader.report.add(Code::StatusBad, value.span, format!("{number} is not a valid status here"));
        draft.label(format!("{} to {}", bounds.start(), bounds.end()));
        return None;
    }
    Some(number as u16)
}

fn error_page(reader: &mut Reader<'_>, node: &Node) -> Option<ErrorPage> {
    let statuses = reader.list(&node.arguments, "this status", |reader, value| status(reader, value, 400..=599));
    let file = reader.needed(node, "file", &ERROR)?;
    Some(ErrorPage { statuses, file: reader.path(&file.value)? })
}

fn rewrite(reader: &mut Reader<'_>, node: &Node) -> Option<Rewrite> {
    match (property(node, "strip-prefix"), property(node, "to")) {
        (Some(prefix), None) => {
            let text = reader.line(&prefix.value)?;
            if !text.starts_with('/') || text.len() < 2 || text.contains(['?', '#', '*']) {
                let draft = reader.report.add(Code::TargetBad, prefix.value.span, "this is not a valid path to strip");
                draft.label("as in \"/app\"");
                return None;
            }
            Some(Rewrite::StripPrefix(text.trim_end_matches('/').to_owned()))
        }
        (None, Some(to)) => {
            let text = reader.template(&to.value)?;
            if !is_path(&text) {
                let draft = reader.report.add(Code::TargetBad, to.value.span, "this is not a valid path to rewrite to");
                draft.label("it must begin with a single `/`, or with {path} or {uri}");
                return None;
            }
            Some(Rewrite::To(text))
        }
        (Some(prefix), Some(to)) => {
            let draft =
                reader.report.add(Code::Contradiction, to.span, "`rewrite` can strip a prefix or set a path, not both");
            draft.related(prefix.span, "the prefix is stripped here").note("write two rewrites, one after the other");
            None
        }
        (None, None) => {
            let draft = reader.report.add(Code::PropertyMissing, node.span, "`rewrite` needs `strip-prefix` or `to`");
            draft.note("as in: rewrite strip-prefix=\"/app\", rewrite to=\"/index.php\"");
            None
        }
    }
}

fn respond(reader: &mut Reader<'_>, node: &Node) -> Option<Respond> {
    let (status_value, body) = match &node.arguments[..] {
        [only] if matches!(only.scalar, Scalar::Text(_)) => (None, Some(only)),
        [first, rest @ ..] => (Some(first), rest.first()),
        [] => return None,
    };
    let status_code = status_value.map_or(Some(200), |value| status(reader, value, 200..=599));
    let body_text = body.map_or(Some(String::new()), |body| reader.text(body));
    // These statuses have no content (RFC 9110 §15.3.5, §15.3.6, §15.4.5).
    if let (Some(204 | 205 | 304), Some(body)) = (status_code, body) {
        reader.report.add(Code::Contradiction, body.span, "a response with this status has no content");
    }
    let content_type = match property(node, "type") {
        None => RESPOND_TYPE_DEFAULT.to_owned(),
        Some(kind) => {
            let text = reader.text(&kind.value)?;
            if !parse::is_media_type(&text) {
                let message = format!("`{text}` is not a valid media type");
                let draft = reader.report.add(Code::MediaTypeBad, kind.value.span, message);
                draft.label("as in \"text/plain; charset=utf-8\"");
                return None;
            }
            text
        }
    };
    Some(Respond { status: status_code?, body: body_text?, content_type })
}
