//! The steps that say who may come and how often: addresses, rates, passwords, origins.

use super::Reader;
use super::parse::{self, NetworkError};
use super::shape::{BlockRule, SeenSettings, Shape, VALUES_MAX, property};
use super::step::{field_value, token};
use crate::code::Code;
use crate::model::{Access, BasicAuth, Cors, Network, RateLimit};
use crate::syntax::{Node, Value};

const RULE: Shape = Shape::values(1, "deny \"10.0.0.0/8\"");
const ACCESS: Shape = Shape {
    arguments: (0, 0),
    properties: &[],
    block: BlockRule::Needed,
    example: "access { allow \"192.0.2.0/24\"; deny \"all\" }",
};
const RATE: Shape = Shape {
    arguments: (0, 0),
    properties: &["requests", "period", "burst"],
    block: BlockRule::None,
    example: "rate-limit requests=100 period=\"1s\" burst=200",
};
const AUTH: Shape = Shape {
    arguments: (0, 0),
    properties: &["realm"],
    block: BlockRule::Needed,
    example: "basic-auth realm=\"Staff\" { user \"ann\" \"$argon2id$…\" }",
};
const USER: Shape = Shape { arguments: (2, 2), ..Shape::value("user \"ann\" \"$argon2id$…\"") };
const CORS: Shape = Shape {
    arguments: (1, VALUES_MAX),
    properties: &["credentials", "max-age"],
    block: BlockRule::Optional,
    example: "cors \"https://example.com\" max-age=\"1h\" { methods \"GET\" \"PUT\" }",
};
const LIST: Shape = Shape::values(1, "methods \"GET\" \"PUT\"");

pub(super) fn rules(reader: &mut Reader<'_>, node: &Node, access: &mut Access) {
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

pub(super) fn network(reader: &mut Reader<'_>, value: &Value) -> Option<Network> {
    let text = reader.line(value)?;
    if text == "all" {
        return Some(Network::All);
    }
    match parse::network(&text) {
        Ok(cidr) => Some(Network::Cidr(cidr)),
        Err(fault) => {
            let draft = reader.report.add(Code::NetworkBad, value.span, format!("`{text}` is not a valid network"));
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

pub(super) fn access(reader: &mut Reader<'_>, node: &Node) -> Access {
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

pub(super) fn rate_limit(reader: &mut Reader<'_>, node: &Node) -> Option<RateLimit> {
    reader.shape(node, &RATE);
    let requests = reader.needed(node, "requests", &RATE);
    let requests = requests.and_then(|requests| reader.number(&requests.value, 1..=1_000_000));
    let period = property(node, "period").map_or(Some(1_000), |period| reader.duration(&period.value, 1..=86_400_000));
    let burst = property(node, "burst").map_or(requests, |burst| reader.number(&burst.value, 1..=10_000_000));
    Some(RateLimit { requests: requests? as u32, period_ms: period?, burst: burst? as u32 })
}

pub(super) fn basic_auth(reader: &mut Reader<'_>, node: &Node) -> BasicAuth {
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
        let draft = reader.report.add(Code::HashBad, hash_span, "this is not a valid password hash");
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

pub(super) fn cors(reader: &mut Reader<'_>, node: &Node) -> Cors {
    reader.shape(node, &CORS);
    let mut cors = Cors::default();
    for value in &node.arguments {
        let Some(origin) = reader.line(value) else { continue };
        if origin != "*" && !parse::is_origin(&origin) {
            let draft = reader.report.add(Code::OriginBad, value.span, format!("`{origin}` is not a valid origin"));
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
    let mut seen = SeenSettings::default();
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
        let draft = reader.report.add(Code::MethodBad, value.span, format!("`{text}` is not a valid method"));
        if parse::is_token(&text) {
            draft.label(format!("methods stand in capitals: \"{upper}\""));
        } else if text.contains([',', ' ']) {
            draft.note("several methods: route { match { method \"GET\" \"POST\" }; … }");
        }
        return None;
    }
    Some(text)
}
