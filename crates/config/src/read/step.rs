//! The steps of a block: what changes requests and answers, who may come, and what answers.

use super::Reader;
use super::files;
use super::parse::{self, NetworkError};
use super::route;
use super::shape::{Block, Seen, Shape, VALUES_MAX, property};
use crate::code::Code;
use crate::diagnostic::Span;
use crate::model::{
    Access, BasicAuth, Cors, ErrorPage, FieldOp, Handler, Network, RateLimit, Respond, Rewrite, Step, StepKind, Text,
    TextPart, Variable,
};
use crate::syntax::{Node, Value};
use std::ops::RangeInclusive;

/// The names of all steps.
pub(super) const STEPS: &[&str] = &[
    "files",
    "route",
    "redirect",
    "rewrite",
    "respond",
    "metrics",
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
    block: Block::Optional,
    example: "header \"X-Frame-Options\" \"DENY\", or header { set \"A\" \"b\"; add \"C\" \"d\"; remove \"E\" }",
};
const SET: Shape = Shape { arguments: (2, 2), ..Shape::value("set \"X-Frame-Options\" \"DENY\"") };
const REMOVE: Shape = Shape::values(1, "remove \"Server\"");
const RULE: Shape = Shape::values(1, "deny \"10.0.0.0/8\"");
const ACCESS: Shape = Shape {
    arguments: (0, 0),
    properties: &[],
    block: Block::Needed,
    example: "access { allow \"192.0.2.0/24\"; deny \"all\" }",
};
const RATE: Shape = Shape {
    arguments: (0, 0),
    properties: &["requests", "period", "burst"],
    block: Block::None,
    example: "rate-limit requests=100 period=\"1s\" burst=200",
};
const AUTH: Shape = Shape {
    arguments: (0, 0),
    properties: &["realm"],
    block: Block::Needed,
    example: "basic-auth realm=\"Staff\" { user \"ann\" \"$argon2id$…\" }",
};
const USER: Shape = Shape { arguments: (2, 2), ..Shape::value("user \"ann\" \"$argon2id$…\"") };
const CORS: Shape = Shape {
    arguments: (1, VALUES_MAX),
    properties: &["credentials", "max-age"],
    block: Block::Optional,
    example: "cors \"https://example.com\" max-age=\"1h\" { methods \"GET\" \"PUT\" }",
};
const LIST: Shape = Shape::values(1, "methods \"GET\" \"PUT\"");
const HINTS: Shape = Shape::values(1, "early-hints \"</app.css>; rel=preload; as=style\"");
const ERROR: Shape = Shape {
    arguments: (1, VALUES_MAX),
    properties: &["file"],
    block: Block::None,
    example: "error 404 file=\"404.html\"",
};
const REWRITE: Shape = Shape {
    arguments: (0, 0),
    properties: &["strip-prefix", "to"],
    block: Block::None,
    example: "rewrite to=\"/index.php\"",
};
const RESPOND: Shape = Shape {
    arguments: (1, 2),
    properties: &["type"],
    block: Block::None,
    example: "respond 200 \"hello\" type=\"text/plain\"",
};
const METRICS: Shape = Shape { arguments: (0, 0), properties: &[], block: Block::None, example: "metrics" };

/// The type of a text that is answered, when none is given.
pub(crate) const RESPOND_TYPE_DEFAULT: &str = "text/plain; charset=utf-8";

/// Fields that the server itself writes: framing and connection (RFC 9112, sections 6 and 9), and what says which part
/// of a representation this is.
const OWNED: &[&str] = &[
    "connection",
    "content-length",
    "content-range",
    "date",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

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
            rules(reader, node, access);
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
        "header" => StepKind::Header(header(reader, node)),
        "allow" | "deny" => {
            let mut access = Access { rules: Vec::new() };
            rules(reader, node, &mut access);
            StepKind::Access(access)
        }
        "access" => StepKind::Access(access(reader, node)),
        "rate-limit" => StepKind::RateLimit(rate_limit(reader, node)?),
        "basic-auth" => StepKind::BasicAuth(basic_auth(reader, node)),
        "cors" => StepKind::Cors(cors(reader, node)),
        "early-hints" => StepKind::EarlyHints(early_hints(reader, node)),
        "error" => StepKind::ErrorPage(error_page(reader, node)?),
        _ => return None,
    })
}

fn header(reader: &mut Reader<'_>, node: &Node) -> Vec<FieldOp> {
    reader.shape(node, &HEADER);
    let mut operations = Vec::new();
    match (&node.arguments[..], &node.children) {
        ([], None) => {
            let draft =
                reader.report.add(Code::ValueMissing, node.span, "`header` needs a name and a value, or a block");
            draft.note(format!("as in: {}", HEADER.example));
        }
        ([name], _) => {
            let draft = reader.report.add(Code::ValueMissing, name.span, "`header` needs a value behind the name");
            draft.note("to remove a field: header { remove \"Name\" }");
        }
        ([name, value, ..], _) => operations.extend(set(reader, name, value, FieldOp::Set)),
        _ => {}
    }
    for child in node.children.iter().flatten() {
        match child.name.as_str() {
            "set" | "add" => {
                if reader.shape(child, &SET) {
                    let make = if child.name == "set" { FieldOp::Set } else { FieldOp::Add };
                    operations.extend(set(reader, &child.arguments[0], &child.arguments[1], make));
                }
            }
            "remove" => {
                reader.shape(child, &REMOVE);
                for name in &child.arguments {
                    operations.extend(field_name(reader, name).map(FieldOp::Remove));
                }
            }
            _ => reader.unknown(child, &["set", "add", "remove"]),
        }
    }
    operations
}

fn set(reader: &mut Reader<'_>, name: &Value, value: &Value, make: fn(String, String) -> FieldOp) -> Option<FieldOp> {
    let (name, value) = (field_name(reader, name), field_value(reader, value));
    Some(make(name?, value?))
}

/// A field name that may be changed, as it was written.
fn field_name(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
    let name = token(reader, value)?;
    if OWNED.contains(&name.to_ascii_lowercase().as_str()) {
        let message = format!("`{name}` is written by the server itself");
        reader.report.add(Code::FieldOwned, value.span, message);
        return None;
    }
    Some(name)
}

/// A field name of any kind.
pub(super) fn token(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
    let name = reader.text(value)?;
    if !parse::is_token(&name) {
        let shown = if name.is_empty() { "an empty text".to_owned() } else { format!("`{name}`") };
        let draft = reader.report.add(Code::FieldNameBad, value.span, format!("{shown} is no field name"));
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

fn rules(reader: &mut Reader<'_>, node: &Node, access: &mut Access) {
    reader.shape(node, &RULE);
    let allow = node.name == "allow";
    for value in &node.arguments {
        let Some(network) = network(reader, value) else { continue };
        if let Some((_, Network::All)) = access.rules.iter().find(|(_, known)| *known == Network::All) {
            let draft = reader.report.add(Code::Unreachable, value.span, "this rule is never asked");
            draft.label("a rule before it decides for everybody");
        } else if access.rules.iter().any(|(_, known)| *known == network) {
            reader.same_twice(value.span, "this network");
        } else {
            access.rules.push((allow, network));
        }
    }
}

fn network(reader: &mut Reader<'_>, value: &Value) -> Option<Network> {
    let text = reader.line(value)?;
    if text == "all" {
        return Some(Network::All);
    }
    match parse::network(&text) {
        Ok(cidr) => Some(Network::Cidr(cidr)),
        Err(fault) => {
            let draft = reader.report.add(Code::NetworkBad, value.span, format!("`{text}` is no network"));
            if let NetworkError::HostBits(cidr) = fault {
                draft.label(format!("did you mean \"{}/{}\"?", cidr.address, cidr.bits));
            }
            draft.note(
                "a network is \"10.0.0.0/8\" or \"2001:db8::/32\", one address \"192.0.2.1\", and everybody \"all\"",
            );
            None
        }
    }
}

fn access(reader: &mut Reader<'_>, node: &Node) -> Access {
    reader.shape(node, &ACCESS);
    let mut access = Access { rules: Vec::new() };
    for child in node.children.iter().flatten() {
        match child.name.as_str() {
            "allow" | "deny" => rules(reader, child, &mut access),
            _ => reader.unknown(child, &["allow", "deny"]),
        }
    }
    access
}

fn rate_limit(reader: &mut Reader<'_>, node: &Node) -> Option<RateLimit> {
    reader.shape(node, &RATE);
    let requests = reader.needed(node, "requests", &RATE);
    let requests = requests.and_then(|requests| reader.number(&requests.value, 1..=1_000_000));
    let period = property(node, "period").map_or(Some(1_000), |period| reader.duration(&period.value, 1..=86_400_000));
    let burst = property(node, "burst").map_or(requests, |burst| reader.number(&burst.value, 1..=10_000_000));
    Some(RateLimit { requests: requests? as u32, period_ms: period?, burst: burst? as u32 })
}

fn basic_auth(reader: &mut Reader<'_>, node: &Node) -> BasicAuth {
    reader.shape(node, &AUTH);
    let realm = property(node, "realm").and_then(|realm| {
        let text = field_value(reader, &realm.value)?;
        // The realm is a quoted string (RFC 9110, section 11.5), and escapes in it are not understood everywhere.
        if text.contains(['"', '\\']) {
            reader.report.add(Code::TextBad, realm.value.span, "a realm holds no quotes and no backslashes");
            return None;
        }
        Some(text)
    });
    let mut auth = BasicAuth { realm: realm.unwrap_or_else(|| "Restricted".into()), users: Vec::new() };
    for child in node.children.iter().flatten() {
        match child.name.as_str() {
            "user" => {
                if reader.shape(child, &USER) {
                    user(reader, &child.arguments[0], &child.arguments[1], &mut auth);
                }
            }
            _ => reader.unknown(child, &["user"]),
        }
    }
    auth
}

fn user(reader: &mut Reader<'_>, name: &Value, hash: &Value, auth: &mut BasicAuth) {
    let span = name.span;
    let name = reader.line(name);
    if let Some(name) = &name
        && name.contains(':')
    {
        reader.report.add(Code::TextBad, span, "a user's name holds no colon").label("RFC 7617, section 2");
        return;
    }
    let hash_span = hash.span;
    let hash = reader.text(hash);
    if let Some(hash) = &hash
        && !parse::is_password_hash(hash)
    {
        let draft = reader.report.add(Code::HashBad, hash_span, "this is no password hash");
        draft.label("argon2 (\"$argon2id$…\") or bcrypt (\"$2b$…\")");
        draft.note("never the password itself: `flatout passwd` asks for it and prints its hash");
        return;
    }
    let (Some(name), Some(hash)) = (name, hash) else { return };
    if auth.users.iter().any(|(known, _)| *known == name) {
        reader.same_twice(span, &format!("the user `{name}`"));
        return;
    }
    auth.users.push((name, hash));
}

fn cors(reader: &mut Reader<'_>, node: &Node) -> Cors {
    reader.shape(node, &CORS);
    let mut cors = Cors::default();
    for value in &node.arguments {
        let Some(origin) = reader.line(value) else { continue };
        if origin != "*" && !parse::is_origin(&origin) {
            let draft = reader.report.add(Code::OriginBad, value.span, format!("`{origin}` is no origin"));
            draft.label("as in \"https://example.com\", in lower case and without a path; or \"*\"");
        } else if cors.origins.contains(&origin) {
            reader.same_twice(value.span, "this origin");
        } else {
            cors.origins.push(origin);
        }
    }
    let credentials = property(node, "credentials");
    cors.credentials = credentials.and_then(|flag| reader.flag(&flag.value)).unwrap_or(false);
    if let (Some(property), true) = (credentials, cors.credentials && cors.origins.iter().any(|origin| origin == "*")) {
        let draft =
            reader.report.add(Code::Contradiction, property.span, "no browser takes credentials for all origins");
        draft.note("name the origins: with \"*\" every page in the world could read what the visitor may read");
    }
    let max_age = property(node, "max-age").and_then(|age| reader.duration(&age.value, 0..=86_400_000));
    cors.max_age_s = max_age.map(|age_ms| (age_ms / 1_000) as u32);
    let mut seen = Seen::default();
    for child in node.children.iter().flatten() {
        let list = match child.name.as_str() {
            "methods" => &mut cors.methods,
            "headers" => &mut cors.headers,
            "expose" => &mut cors.expose,
            _ => {
                reader.unknown(child, &["methods", "headers", "expose"]);
                continue;
            }
        };
        if !reader.first(&mut seen, child) {
            continue;
        }
        reader.shape(child, &LIST);
        for value in &child.arguments {
            let entry = if child.name == "methods" { method(reader, value) } else { token(reader, value) };
            let Some(entry) = entry else { continue };
            if list.iter().any(|known| known.eq_ignore_ascii_case(&entry)) {
                reader.same_twice(value.span, &format!("`{entry}`"));
            } else {
                list.push(entry);
            }
        }
    }
    if cors.methods.is_empty() {
        // What needs no preflight by the Fetch standard.
        cors.methods = ["GET", "HEAD", "POST"].map(String::from).to_vec();
    }
    cors
}

/// A method in capitals.
pub(super) fn method(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
    let text = reader.text(value)?;
    let upper = text.to_ascii_uppercase();
    if !parse::is_token(&text) || text != upper {
        let draft = reader.report.add(Code::MethodBad, value.span, format!("`{text}` is no method"));
        if parse::is_token(&text) {
            draft.label(format!("methods stand in capitals: \"{upper}\""));
        } else if text.contains([',', ' ']) {
            draft.note("several methods: route { match { method \"GET\" \"POST\" }; … }");
        }
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
            let draft = reader.report.add(Code::LinkBad, value.span, "this is no link");
            draft.label("as in \"</app.css>; rel=preload; as=style\"");
        }
    }
    links
}

/// A status within bounds.
pub(super) fn status(reader: &mut Reader<'_>, value: &Value, bounds: RangeInclusive<u64>) -> Option<u16> {
    let number = reader.number(value, 0..=u64::MAX)?;
    if !bounds.contains(&number) {
        let draft = reader.report.add(Code::StatusBad, value.span, format!("{number} is no status for this"));
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
                let draft = reader.report.add(Code::TargetBad, prefix.value.span, "this is no path to strip");
                draft.label("as in \"/app\"");
                return None;
            }
            Some(Rewrite::StripPrefix(text.trim_end_matches('/').to_owned()))
        }
        (None, Some(to)) => {
            let text = reader.template(&to.value)?;
            if !is_path(&text) {
                let draft = reader.report.add(Code::TargetBad, to.value.span, "this is no path to rewrite to");
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

/// Whether a text can only be a path: it begins with one slash, as `//host` would be another site, or with the path
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
        [only] if matches!(only.scalar, crate::syntax::Scalar::Text(_)) && only.annotation.is_none() => {
            (None, Some(only))
        }
        [first, rest @ ..] => (Some(first), rest.first()),
        [] => (None, None),
    };
    let status_code = status_value.map_or(Some(200), |value| status(reader, value, 200..=599));
    let body_text = body.map_or(Some(String::new()), |body| reader.text(body));
    if let (Some(204 | 304), Some(body)) = (status_code, body) {
        reader.report.add(Code::Contradiction, body.span, "an answer with this status has no content");
    }
    let content_type = match property(node, "type") {
        None => Some(RESPOND_TYPE_DEFAULT.to_owned()),
        Some(kind) => {
            let text = reader.text(&kind.value)?;
            let fits = parse::is_media_type(&text);
            if !fits {
                let draft =
                    reader.report.add(Code::MediaTypeBad, kind.value.span, format!("`{text}` is no media type"));
                draft.label("as in \"text/plain; charset=utf-8\"");
            }
            fits.then_some(text)
        }
    };
    Some(Respond { status: status_code?, body: body_text?, content_type: content_type? })
}
