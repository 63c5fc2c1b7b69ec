//! The steps of a block: what changes requests and answers, who may come, and what answers.

use super::Reader;
use super::cache;
use super::files;
use super::guard;
use super::pages;
use super::parse;
use super::php;
use super::proxy;
use super::route;
use super::shape::{BlockRule, Shape, VALUES_MAX, property};
use crate::code::Code;
use crate::diagnostic::Span;
use crate::model::{Access, ErrorPage, FieldOp, Handler, Respond, Rewrite, Step, StepKind, Text, TextPart, Variable};
use crate::syntax::{Node, Scalar, Value};
use flatout_http::lines::is_fixed;
use std::ops::RangeInclusive;

/// The names of all steps.
pub(super) const STEPS: &[&str] = &[
    "files",
    "proxy",
    "pages",
    "page",
    "php",
    "route",
    "redirect",
    "rewrite",
    "respond",
    "metrics",
    "cache",
    "header",
    "access",
    "allow",
    "deny",
    "basic-auth",
    "rate-limit",
    "cors",
    "early-hints",
    "error",
    "include",
];

const HEADER: Shape = Shape {
    arguments: (0, 2),
    properties: &[],
    block: BlockRule::Optional,
    example: "header \"X-Frame-Options\" \"DENY\", or header { set \"A\" \"b\"; add \"C\" \"d\"; remove \"E\" }",
};
const SET: Shape = Shape { arguments: (2, 2), ..Shape::value("set \"X-Frame-Options\" \"DENY\"") };
const REMOVE: Shape = Shape::values(1, "remove \"Server\"");
const HINTS: Shape = Shape::values(1, "early-hints \"</app.css>; rel=preload; as=style\"");
const ERROR: Shape = Shape {
    arguments: (1, VALUES_MAX),
    properties: &["file"],
    block: BlockRule::None,
    example: "error 404 file=\"404.html\"",
};
const REWRITE: Shape = Shape {
    arguments: (0, 0),
    properties: &["strip-prefix", "to"],
    block: BlockRule::None,
    example: "rewrite to=\"/index.php\"",
};
const RESPOND: Shape = Shape {
    arguments: (1, 2),
    properties: &["type"],
    block: BlockRule::None,
    example: "respond 200 \"hello\" type=\"text/plain\"",
};
const METRICS: Shape = Shape { arguments: (0, 0), properties: &[], block: BlockRule::None, example: "metrics" };

/// The type of a text that is answered, when none is given.
pub(crate) const RESPOND_TYPE_DEFAULT: &str = "text/plain; charset=utf-8";

/// Advice for a name that may not be changed, which may be empty; `None` for one that may.
pub(super) type FindOwned = fn(&str) -> Option<&'static str>;

/// Response fields that the server itself writes.
fn find_owned(name: &str) -> Option<&'static str> {
    is_fixed(name.as_bytes()).then_some("")
}

/// Reads steps in their order; `allowed` is for messages. Allow and deny that follow one another are one step.
pub(super) fn read_block(reader: &mut Reader<'_>, nodes: &[&Node], allowed: &[&str]) -> Vec<Step> {
    let mut block: Vec<Step> = Vec::new();
    let mut spans: Vec<Span> = Vec::new();
    let mut follows_rule = false;
    for node in nodes {
        let is_rule = matches!(node.name.as_str(), "allow" | "deny");
        if !STEPS.contains(&node.name.as_str()) {
            reader.unknown(node, allowed);
            continue;
        }
        if is_rule
            && follows_rule
            && let Some(Step { kind: StepKind::Access(access), .. }) = block.last_mut()
        {
            guard::rules(reader, node, access);
            continue;
        }
        follows_rule = is_rule;
        if let Some(kind) = read_step(reader, node) {
            block.push(Step { place: reader.place(node.span), kind });
            spans.push(node.span);
        }
    }
    route::check_reached(reader, &block, &spans);
    block
}

fn read_step(reader: &mut Reader<'_>, node: &Node) -> Option<StepKind> {
    Some(match node.name.as_str() {
        "route" => StepKind::Route(route::route(reader, node)),
        "redirect" => route::redirect(reader, node)?,
        "rewrite" => StepKind::Rewrite(rewrite(reader, node)?),
        "respond" => StepKind::Handler(Handler::Respond(respond(reader, node)?)),
        "files" => StepKind::Handler(Handler::Files(Box::new(files::read(reader, node)?))),
        "metrics" => {
            reader.shape(node, &METRICS);
            StepKind::Handler(Handler::Metrics)
        }
        "proxy" => StepKind::Handler(Handler::Proxy(Box::new(proxy::read(reader, node)))),
        "pages" => StepKind::Handler(Handler::Pages(Box::new(pages::folder(reader, node)?))),
        "page" => StepKind::Handler(Handler::Page(Box::new(pages::page(reader, node)?))),
        "php" => StepKind::Handler(Handler::Php(Box::new(php::read(reader, node)?))),
        "cache" => StepKind::Cache(Box::new(cache::read(reader, node)?)),
        "header" => {
            reader.shape(node, &HEADER);
            StepKind::Header(field_changes(reader, node, &HEADER, find_owned, &[]))
        }
        "allow" | "deny" => {
            let mut access = Access { rules: Vec::new() };
            guard::rules(reader, node, &mut access);
            StepKind::Access(access)
        }
        "access" => StepKind::Access(guard::access(reader, node)),
        "rate-limit" => StepKind::RateLimit(guard::rate_limit(reader, node)?),
        "basic-auth" => StepKind::BasicAuth(guard::basic_auth(reader, node)),
        "cors" => StepKind::Cors(guard::cors(reader, node)),
        "early-hints" => StepKind::EarlyHints(early_hints(reader, node)),
        "error" => StepKind::ErrorPage(error_page(reader, node)?),
        _ => return None,
    })
}

/// Header operations: one in a line, or several in a block. The shape of `node` has been checked. Names that `owned`
/// finds may not be changed, and values contain no variable of `without`.
pub(super) fn field_changes(
    reader: &mut Reader<'_>,
    node: &Node,
    shape: &Shape,
    owned: FindOwned,
    without: &[&str],
) -> Vec<FieldOp> {
    let kind = &node.name;
    let mut operations = Vec::new();
    match (&node.arguments[..], &node.children) {
        ([], None) => {
            let message = format!("`{kind}` needs a name and a value, or a block");
            reader.report.add(Code::ValueMissing, node.span, message).note(format!("as in: {}", shape.example));
        }
        ([name], _) => {
            let message = format!("`{kind}` needs a value behind the name");
            let draft = reader.report.add(Code::ValueMissing, name.span, message);
            draft.note(format!("to remove a field: {kind} {{ remove \"Name\" }}"));
        }
        ([name, value, ..], _) => operations.extend(set(reader, name, value, (owned, without), FieldOp::Set)),
        _ => {}
    }
    for child in node.children.iter().flatten() {
        match child.name.as_str() {
            "set" | "add" => {
                if reader.shape(child, &SET) {
                    let make = if child.name == "set" { FieldOp::Set } else { FieldOp::Add };
                    operations.extend(set(reader, &child.arguments[0], &child.arguments[1], (owned, without), make));
                }
            }
            "remove" => {
                reader.shape(child, &REMOVE);
                for name in &child.arguments {
                    operations.extend(field_name(reader, name, owned).map(FieldOp::Remove));
                }
            }
            _ => reader.unknown(child, &["set", "add", "remove"]),
        }
    }
    operations
}

fn set(
    reader: &mut Reader<'_>,
    name: &Value,
    value: &Value,
    (owned, without): (FindOwned, &[&str]),
    make: fn(String, String) -> FieldOp,
) -> Option<FieldOp> {
    let (name, text) = (field_name(reader, name, owned), field_value(reader, value));
    let text = text.filter(|text| reader.check_field_text(value.span, text, without));
    Some(make(name?, text?))
}

/// A field name that may be changed, as it was written.
fn field_name(reader: &mut Reader<'_>, value: &Value, owned: FindOwned) -> Option<String> {
    let name = token(reader, value)?;
    if let Some(instead) = owned(&name) {
        let message = format!("`{name}` is written by the server itself");
        let draft = reader.report.add(Code::FieldOwned, value.span, message);
        if !instead.is_empty() {
            draft.label(instead);
        }
        return None;
    }
    Some(name)
}

/// A field name of any kind.
pub(super) fn token(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
    let name = reader.text(value)?;
    if !parse::is_token(&name) {
        let shown = if name.is_empty() { "an empty text".to_owned() } else { format!("`{name}`") };
        let draft = reader.report.add(Code::FieldNameBad, value.span, format!("{shown} is not a valid field name"));
        if name.ends_with(':') {
            draft.label("without the colon");
        }
        return None;
    }
    Some(name)
}

pub(super) fn field_value(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
    let text = reader.text(value)?;
    if !parse::is_field_value(&text) {
        reader
            .report
            .add(Code::FieldValueBad, value.span, "this cannot be a field's value")
            .note("no control characters, and no spaces at either end");
        return None;
    }
    Some(text)
}

fn early_hints(reader: &mut Reader<'_>, node: &Node) -> Vec<String> {
    reader.shape(node, &HINTS);
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

/// A status within bounds.
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
    reader.shape(node, &ERROR);
    let mut statuses = Vec::new();
    for value in &node.arguments {
        let Some(status) = status(reader, value, 400..=599) else { continue };
        if statuses.contains(&status) {
            reader.same_twice(value.span, "this status");
        } else {
            statuses.push(status);
        }
    }
    let file = reader.needed(node, "file", &ERROR)?;
    Some(ErrorPage { statuses, file: reader.path(&file.value)? })
}

fn rewrite(reader: &mut Reader<'_>, node: &Node) -> Option<Rewrite> {
    reader.shape(node, &REWRITE);
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
                draft.label("it begins with one `/`, or with {path} or {uri}");
                return None;
            }
            Some(Rewrite::To(text))
        }
        (Some(prefix), Some(to)) => {
            let draft =
                reader.report.add(Code::Contradiction, to.span, "`rewrite` strips a prefix or sets a path, not both");
            draft.related(prefix.span, "strips here").note("two rewrites may follow one another");
            None
        }
        (None, None) => {
            let draft = reader.report.add(Code::PropertyMissing, node.span, "`rewrite` needs strip-prefix or to");
            draft.note("as in: rewrite strip-prefix=\"/app\", rewrite to=\"/index.php\"");
            None
        }
    }
}

/// True if a text can only be a path: it begins with one slash, as `//host` would be another site, or with the path
/// that was asked for.
pub(super) fn is_path(text: &Text) -> bool {
    match &text.parts[..] {
        [TextPart::Literal(literal)] => literal.starts_with('/') && !literal.starts_with("//"),
        [TextPart::Literal(literal), next, ..] => {
            let joins = matches!(next, TextPart::Variable(Variable::Path | Variable::Uri));
            literal.starts_with('/') && !literal.starts_with("//") && (literal.len() > 1 || !joins)
        }
        [TextPart::Variable(Variable::Path | Variable::Uri), ..] => true,
        _ => false,
    }
}

fn respond(reader: &mut Reader<'_>, node: &Node) -> Option<Respond> {
    if !reader.shape(node, &RESPOND) {
        return None;
    }
    let (status_value, body) = match &node.arguments[..] {
        [only] if matches!(only.scalar, Scalar::Text(_)) => (None, Some(only)),
        [first, rest @ ..] => (Some(first), rest.first()),
        [] => (None, None),
    };
    let status_code = status_value.map_or(Some(200), |value| status(reader, value, 200..=599));
    let body_text = body.map_or(Some(String::new()), |body| reader.text(body));
    // RFC 9110, sections 15.3.5, 15.3.6 and 15.4.5.
    if let (Some(204 | 205 | 304), Some(body)) = (status_code, body) {
        reader.report.add(Code::Contradiction, body.span, "an answer with this status has no content");
    }
    let content_type = match property(node, "type") {
        None => Some(RESPOND_TYPE_DEFAULT.to_owned()),
        Some(kind) => {
            let text = reader.text(&kind.value)?;
            let fits = parse::is_media_type(&text);
            if !fits {
                let draft = reader.report.add(
                    Code::MediaTypeBad,
                    kind.value.span,
                    format!("`{text}` is not a valid media type"),
                );
                draft.label("as in \"text/plain; charset=utf-8\"");
            }
            fits.then_some(text)
        }
    };
    Some(Respond { status: status_code?, body: body_text?, content_type: content_type? })
}
