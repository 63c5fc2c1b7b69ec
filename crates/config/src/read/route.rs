//! Routes and redirects, and the checks for unreachable steps.

use super::field::{self, field_value, token};
use super::parse;
use super::reader::Reader;
use super::setting::{Setting, read_block};
use super::shape::{Shape, VALUES_MAX, property};
use super::step;
use super::text::is_path;
use crate::code::Code;
use crate::diagnostic::Span;
use crate::model::{Handler, Matcher, Network, Redirect, Route, Step, StepKind, Text, TextPart, Variable};
use crate::syntax::{Node, Scalar, Value};
use std::collections::HashMap;

pub(super) const ROUTE: Shape = Shape::none("route \"/api/*\" method=\"GET\" { respond 200 \"hi\" }")
    .takes(0, VALUES_MAX)
    .with(&["method", "header"])
    .has_block();
const MATCH: Shape =
    Shape::none("match { path \"/a/*\" \"/b/*\"; method \"GET\" \"HEAD\"; header \"X-Beta\" \"yes\" }").has_block();
const VALUES: Shape = Shape::values(1, MATCH.example);
pub(super) const REDIRECT: Shape =
    Shape::none("redirect \"/old/*\" to=\"/new/{rest}\" 301").takes(0, VALUES_MAX).with(&["to"]);

/// The conditions in `match`, which are printed with their route.
const CONDITIONS: &[Setting<Vec<Matcher>>] = &[
    Setting::read_only("path", VALUES, |reader, node, matchers| {
        matchers.push(Matcher::Path(patterns(reader, &node.arguments)));
    }),
    Setting::read_only("method", VALUES, |reader, node, matchers| {
        matchers.push(Matcher::Method(node.arguments.iter().filter_map(|value| method(reader, value)).collect()));
    }),
    Setting::read_only("header", VALUES, |reader, node, matchers: &mut Vec<Matcher>| {
        let name = token(reader, &node.arguments[0]).map(|name| name.to_ascii_lowercase());
        let values = node.arguments[1..].iter().filter_map(|value| field_value(reader, value)).collect();
        matchers.extend(name.map(|name| Matcher::Header { name, values }));
    })
    .repeated(),
];

/// The methods of the requests that can reach a route; the server rejects all others earlier.
const METHODS: [&str; 7] = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH"];

pub(super) fn route(reader: &mut Reader<'_>, node: &Node) -> Route {
    let mut route = Route::default();
    if !node.arguments.is_empty() {
        route.matchers.push(Matcher::Path(patterns(reader, &node.arguments)));
    }
    if let Some(property) = property(node, "method") {
        route.matchers.extend(method(reader, &property.value).map(|method| Matcher::Method(vec![method])));
    }
    if let Some(property) = property(node, "header") {
        route.matchers.extend(header(reader, &property.value));
    }
    let mut conditional = !node.arguments.is_empty() || !node.properties.is_empty();
    let mut steps = Vec::new();
    for child in node.children.iter().flatten() {
        if child.name != "match" {
            steps.push(child);
            continue;
        }
        conditional = true;
        if let Some(before) = steps.first() {
            let draft =
                reader.report.add(Code::WrongPlace, child.span, "`match` must come before all directives of its route");
            draft.related(before.span, "this directive comes first");
        }
        reader.shape(child, &MATCH);
        read_block(reader, child, CONDITIONS, &mut route.matchers);
    }
    if conditional && route.matchers.is_empty() {
        // Conditions were given but all have errors: the route must not count as one without conditions.
        route.matchers.push(Matcher::Path(Vec::new()));
    }
    if steps.is_empty() && node.children.as_ref().is_some_and(|children| !children.is_empty()) {
        let message = "this route has conditions but no directives";
        reader.report.add(Code::BlockMissing, node.span, message).note(format!("as in: {}", ROUTE.example));
    }
    route.block = step::read_block(reader, &steps, &["match"]);
    route
}

/// Reads a method that can reach a route.
fn method(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
    let method = field::method(reader, value)?;
    if !METHODS.contains(&method.as_str()) {
        let message = format!("no request with `{method}` reaches a route");
        let draft = reader.report.add(Code::MethodBad, value.span, message);
        draft.label("the server rejects such requests before routing: TRACE gets 405, and unknown methods get 501");
        draft.note(format!("allowed here: {}", METHODS.join(", ")));
        return None;
    }
    Some(method)
}

/// Reads path patterns. One with alternatives stands for several.
fn patterns(reader: &mut Reader<'_>, values: &[Value]) -> Vec<String> {
    let lists = reader.list(values, "this pattern", |reader, value| {
        let pattern = reader.line(value)?;
        let read = parse::alternatives(&pattern).and_then(|patterns| {
            let fault = patterns.iter().find_map(|pattern| parse::pattern_fault(pattern));
            fault.map_or(Ok(patterns), Err)
        });
        let fault = match read {
            Ok(patterns) => return Some(patterns),
            Err(fault) => fault,
        };
        let message = format!("`{pattern}` is not a valid path pattern");
        reader.report.add(Code::PatternBad, value.span, message).label(fault);
        None
    });
    lists.concat()
}

/// Reads a header condition such as `X-Beta` or `X-Beta: yes`.
fn header(reader: &mut Reader<'_>, value: &Value) -> Option<Matcher> {
    let text = reader.text(value)?;
    let (name, wanted) = match text.split_once(':') {
        Some((name, wanted)) => (name, Some(wanted.trim_matches([' ', '\t']))),
        None => (text.as_str(), None),
    };
    if !parse::is_token(name) {
        let draft = reader.report.add(Code::FieldNameBad, value.span, format!("`{name}` is not a valid field name"));
        draft.label("as in \"X-Beta\", or \"X-Beta: yes\"");
        return None;
    }
    if !wanted.is_none_or(parse::is_field_value) {
        reader.report.add(Code::FieldValueBad, value.span, "this is not a valid field value");
        return None;
    }
    Some(Matcher::Header { name: name.to_ascii_lowercase(), values: wanted.map(str::to_owned).into_iter().collect() })
}

/// Reads a redirect. With path patterns as values, it is short for a route that contains the redirect.
pub(super) fn redirect(reader: &mut Reader<'_>, node: &Node) -> Option<StepKind> {
    let is_number = |value: &&Value| matches!(value.scalar, Scalar::Integer(_));
    let mut statuses = node.arguments.iter().filter(is_number);
    let status = statuses.next();
    if let Some(second) = statuses.next() {
        reader.report.add(Code::ValueUnexpected, second.span, "`redirect` takes one status");
    }
    let status = status.map_or(Some(302), |value| {
        let number = reader.number(value, 0..=u64::MAX)?;
        let fits = matches!(number, 301 | 302 | 303 | 307 | 308);
        if !fits {
            let draft =
                reader.report.add(Code::StatusBad, value.span, format!("{number} is not a valid redirect status"));
            draft.label("use 301, 302, 303, 307 or 308");
        }
        fits.then_some(number as u16)
    });
    let paths: Vec<Value> = node.arguments.iter().filter(|value| !is_number(value)).cloned().collect();
    let to = property(node, "to");
    if to.is_none() {
        let draft = reader.report.add(Code::PropertyMissing, node.span, "`redirect` needs the property `to`");
        if let [only] = &paths[..]
            && let Scalar::Text(text) = &only.scalar
        {
            draft.label(format!("to redirect everything there, write redirect to=\"{text}\""));
        }
        draft.note(format!("as in: {}", REDIRECT.example));
    }
    let to = to.and_then(|to| target(reader, &to.value));
    let has_paths = !paths.is_empty();
    let paths = patterns(reader, &paths);
    // A pattern with a wildcard is not reported, because an earlier route may respond for the target.
    if let (Some(property), Some([TextPart::Literal(to)])) = (property(node, "to"), to.as_ref().map(|to| &to.parts[..]))
    {
        let path = to.split(['?', '#']).next().unwrap_or(to);
        if let Some(pattern) = paths.iter().find(|pattern| *pattern == path) {
            let draft = reader.report.add(Code::Contradiction, property.value.span, "this redirect points to itself");
            draft.label(format!("the target matches `{pattern}` again"));
        }
    }
    let handler = StepKind::Handler(Handler::Redirect(Redirect { to: to?, status: status? }));
    if !has_paths {
        return Some(handler);
    }
    let block = vec![Step { place: reader.place(node.span), kind: handler }];
    Some(StepKind::Route(Route { matchers: vec![Matcher::Path(paths)], block }))
}

fn target(reader: &mut Reader<'_>, value: &Value) -> Option<Text> {
    let text = reader.template(value)?;
    let url = match &text.parts[..] {
        [TextPart::Literal(literal), rest @ ..] => {
            let host = literal.strip_prefix("https://").or_else(|| literal.strip_prefix("http://"));
            host.map(|host| (host, rest))
        }
        [TextPart::Variable(Variable::Scheme), TextPart::Literal(literal), rest @ ..] => {
            literal.strip_prefix("://").map(|host| (host, rest))
        }
        _ => None,
    };
    let is_plain = |part: &TextPart| match part {
        TextPart::Literal(literal) => literal.bytes().all(|byte| (0x21..0x7f).contains(&byte)),
        TextPart::Variable(_) => true,
    };
    let fault = if url.is_none() && !is_path(&text) {
        "it must begin with http:// or https://, or with a single `/`"
    } else if url.is_some_and(|(host, rest)| !has_own_host(host, rest)) {
        "after ://, write a literal host or {host}, not a variable whose value the visitor chooses"
    } else if !text.parts.iter().all(is_plain) {
        "percent-encode spaces (%20) and non-ASCII letters"
    } else {
        return Some(text);
    };
    reader.report.add(Code::TargetBad, value.span, "this is not a valid redirect target").label(fault);
    None
}

/// Returns true if the URL that continues after its `://` with `text` and then `rest` always leads to a host that the
/// configuration or the Host field determines. Before a slash, `{rest}` and `{query}` could change the host name.
fn has_own_host(text: &str, rest: &[TextPart]) -> bool {
    const ENDS: [char; 3] = ['/', '?', '#'];
    if text.contains(ENDS) {
        return !text.starts_with(ENDS);
    }
    let mut named = !text.is_empty();
    for part in rest {
        match part {
            TextPart::Literal(literal) if literal.contains(ENDS) => return named || !literal.starts_with(ENDS),
            TextPart::Literal(_) | TextPart::Variable(Variable::Host | Variable::HostPort) => named = true,
            TextPart::Variable(Variable::Path | Variable::Uri) => return named,
            TextPart::Variable(Variable::Rest | Variable::Query | Variable::Scheme | Variable::Client) => return false,
        }
    }
    named
}

/// Reports steps that follow a step that always responds, and routes that repeat the conditions of such a route.
pub(super) fn check_reached(reader: &mut Reader<'_>, block: &[Step], spans: &[Span]) {
    // For each set of conditions, in debug format, the first route that always responds.
    let mut routes: HashMap<String, Span> = HashMap::new();
    for (index, step) in block.iter().enumerate() {
        if answers_always(&step.kind)
            && let Some(behind) = spans.get(index + 1)
        {
            let name = if let StepKind::Access(_) = step.kind { "deny" } else { step.kind.name() };
            let draft = reader.report.add(
                Code::Unreachable,
                *behind,
                format!("`{name}` responds to every request, so this is never reached"),
            );
            draft.related(spans[index], "this responds to every request");
            draft.note(match &step.kind {
                StepKind::Access(_) => "consecutive rules form one list, but a directive between them splits it",
                _ => "move it before the handler, or put the handler into a route",
            });
            if name == "files" {
                draft.note("files { pass #true } passes requests for missing files to the next handler");
            }
            return;
        }
        let StepKind::Route(route) = &step.kind else { continue };
        let has_faults = route.matchers.iter().any(|matcher| *matcher == Matcher::Path(Vec::new()));
        if has_faults {
            continue;
        }
        let conditions = format!("{:?}", route.matchers);
        if let Some(first) = routes.get(&conditions) {
            let draft = reader.report.add(Code::Unreachable, spans[index], "this route is never reached");
            draft.related(*first, "this route has the same conditions and responds");
        } else if route.block.iter().any(|step| answers_always(&step.kind)) {
            routes.insert(conditions, spans[index]);
        }
    }
}

/// Returns true if the step responds to every request that reaches it.
pub(super) fn answers_always(kind: &StepKind) -> bool {
    match kind {
        StepKind::Handler(Handler::Files(files)) => !files.pass,
        // Requests for anything but a page or a script pass to the next step.
        StepKind::Handler(Handler::Pages(_) | Handler::Php(_)) => false,
        StepKind::Handler(_) => true,
        StepKind::Access(access) => access.rules.first() == Some(&(false, Network::All)),
        StepKind::Route(route) => {
            route.matchers.is_empty() && route.block.iter().any(|step| answers_always(&step.kind))
        }
        _ => false,
    }
}
