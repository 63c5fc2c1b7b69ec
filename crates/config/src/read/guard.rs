//! The steps that restrict access: by address, by rate, by password and by origin.

use super::field::{field_value, method, token};
use super::network::network;
use super::parse;
use super::reader::Reader;
use super::setting::{Group, Names, Parsed, Setting, written_duration};
use super::shape::{Shape, property};
use crate::code::Code;
use crate::encode::writer::{SettingWriter, quote};
use crate::model::{Access, BasicAuth, Cors, Network, RateLimit};
use crate::syntax::{Node, Value};

pub(super) const RULE: Shape = Shape::values(1, "deny \"10.0.0.0/8\"");

/// `access`, with rules in written order.
const ACCESS: Group<Access> = Group {
    shape: Shape::none("access { allow \"192.0.2.0/24\"; deny \"all\" }").has_block(),
    properties: &[],
    block: &[
        Setting::custom("allow", RULE, rules, |writer, _, access| {
            for (allow, network) in &access.rules {
                let network = match network {
                    Network::All => "all".to_owned(),
                    Network::Cidr(cidr) => cidr.to_string(),
                };
                writer.begin(if *allow { "allow" } else { "deny" }).text(&network).end();
            }
        })
        .repeated(),
        Setting::read_only("deny", RULE, rules).repeated(),
    ],
};

const RATE_EXAMPLE: &str = "rate-limit requests=100 period=\"1s\" burst=200";

const RATE: Group<RateLimit> = Group {
    shape: Shape::none(RATE_EXAMPLE),
    properties: &[
        Setting::number("requests", RATE_EXAMPLE, 1..=1_000_000, |limit| &mut limit.requests),
        Setting::duration("period", RATE_EXAMPLE, 1..=86_400_000, |limit| &mut limit.period_ms),
        Setting::number("burst", RATE_EXAMPLE, 1..=10_000_000, |limit| &mut limit.burst),
    ],
    block: &[],
};

const AUTH: Group<BasicAuth> = Group {
    shape: Shape::none("basic-auth realm=\"Staff\" { user \"ann\" \"$argon2id$…\" }").has_block(),
    properties: &[Setting::value(
        "realm",
        "",
        &Parsed { read: realm, show: |realm| quote(realm), field: |auth: &mut BasicAuth| &mut auth.realm },
    )],
    block: &[Setting::custom(
        "user",
        Shape::value("user \"ann\" \"$argon2id$…\"").takes(2, 2),
        |reader, node, auth| user(reader, &node.arguments[0], &node.arguments[1], auth),
        |writer, name, auth| {
            for (user, hash) in &auth.users {
                writer.begin(name).text(user).text(hash).end();
            }
        },
    )
    .repeated()],
};

const LIST: Shape = Shape::values(1, "methods \"GET\" \"PUT\"");

const CORS: Group<Cors> = Group {
    shape: Shape::values(1, "cors \"https://example.com\" max-age=\"1h\" { methods \"GET\" \"PUT\" }").may_have_block(),
    properties: &[
        Setting::flag("credentials", "", |cors| &mut cors.credentials),
        Setting::value(
            "max-age",
            "",
            &Parsed {
                read: |reader, value| {
                    reader.duration(value, 0..=86_400_000).map(|age_ms| Some((age_ms / 1_000) as u32))
                },
                show: |age_s| written_duration(u64::from(age_s.unwrap_or_default()) * 1_000),
                field: |cors: &mut Cors| &mut cors.max_age_s,
            },
        ),
    ],
    block: &[
        Setting::list("methods", LIST, &Names(method, |cors: &mut Cors| &mut cors.methods)),
        Setting::list("headers", LIST, &Names(token, |cors: &mut Cors| &mut cors.headers)),
        Setting::list("expose", LIST, &Names(token, |cors: &mut Cors| &mut cors.expose)),
    ],
};

pub(super) fn rules(reader: &mut Reader<'_>, node: &Node, access: &mut Access) {
    let allow = node.name == "allow";
    for value in &node.arguments {
        let Some(network) = network(reader, value) else { continue };
        if let Some((_, Network::All)) = access.rules.iter().find(|(_, known)| *known == Network::All) {
            let draft = reader.report.add(Code::Unreachable, value.span, "this rule is never reached");
            draft.label("an earlier rule applies to every client");
        } else if access.rules.iter().any(|(_, known)| *known == network) {
            reader.same_twice(value.span, "this network");
        } else {
            access.rules.push((allow, network));
        }
    }
}

pub(super) fn access(reader: &mut Reader<'_>, node: &Node) -> Access {
    let mut access = Access { rules: Vec::new() };
    ACCESS.read(reader, node, &mut access);
    access
}

pub(crate) fn write_access(writer: &mut SettingWriter, access: &Access) {
    ACCESS.write(writer.begin("access"), access, &Access { rules: Vec::new() });
}

/// The defaults of `rate-limit`. Without `burst`, all requests of a period may arrive at once.
const RATE_DEFAULT: RateLimit = RateLimit { requests: 0, period_ms: 1_000, burst: 0 };

pub(super) fn rate_limit(reader: &mut Reader<'_>, node: &Node) -> Option<RateLimit> {
    let mut limit = RATE_DEFAULT;
    RATE.read(reader, node, &mut limit);
    reader.needed(node, "requests", &RATE.shape)?;
    if property(node, "burst").is_none() {
        limit.burst = limit.requests;
    }
    // A number that could not be read is 0 and has already been reported.
    (limit.requests > 0 && limit.burst > 0).then_some(limit)
}

pub(crate) fn write_rate_limit(writer: &mut SettingWriter, limit: &RateLimit) {
    // Always prints the period.
    RATE.write(writer.begin("rate-limit"), limit, &RateLimit { period_ms: 0, ..RATE_DEFAULT });
}

pub(super) fn basic_auth(reader: &mut Reader<'_>, node: &Node) -> BasicAuth {
    let mut auth = BasicAuth { realm: "Restricted".into(), users: Vec::new() };
    AUTH.read(reader, node, &mut auth);
    auth
}

pub(crate) fn write_basic_auth(writer: &mut SettingWriter, auth: &BasicAuth) {
    AUTH.write(writer.begin("basic-auth"), auth, &BasicAuth { realm: String::new(), users: Vec::new() });
}

fn realm(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
    let text = field_value(reader, value)?;
    // The realm is a quoted string (RFC 9110 §11.5), in which some clients do not understand escapes.
    if text.contains(['"', '\\']) {
        reader.report.add(Code::TextBad, value.span, "a realm must not contain quotes or backslashes");
        return None;
    }
    Some(text)
}

fn user(reader: &mut Reader<'_>, name: &Value, hash: &Value, auth: &mut BasicAuth) {
    let span = name.span;
    let name = reader.line(name);
    if let Some(name) = &name
        && name.contains(':')
    {
        reader.report.add(Code::TextBad, span, "a user name must not contain a colon").label("RFC 7617, section 2");
        return;
    }
    let hash_span = hash.span;
    let hash = reader.text(hash);
    if let Some(hash) = &hash
        && !parse::is_password_hash(hash)
    {
        let draft = reader.report.add(Code::HashBad, hash_span, "this is not a valid password hash");
        draft.label("argon2 (\"$argon2id$…\") or bcrypt (\"$2b$…\")");
        draft.note("do not write the password itself: `flatout passwd` prompts for it and prints its hash");
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
    let mut cors = Cors::default();
    CORS.read(reader, node, &mut cors);
    cors.origins = reader.list(&node.arguments, "this origin", |reader, value| {
        let origin = reader.line(value)?;
        if origin != "*" && !parse::is_origin(&origin) {
            let draft = reader.report.add(Code::OriginBad, value.span, format!("`{origin}` is not a valid origin"));
            draft.label("as in \"https://example.com\", in lowercase and without a path; or \"*\"");
            return None;
        }
        Some(origin)
    });
    if let (Some(property), true) =
        (property(node, "credentials"), cors.credentials && cors.origins.iter().any(|origin| origin == "*"))
    {
        let draft =
            reader.report.add(Code::Contradiction, property.span, "`credentials` cannot be combined with \"*\"");
        draft.note("list the origins: otherwise any web page could read what the visitor can read");
    }
    if cors.methods.is_empty() {
        // These methods need no preflight according to the Fetch standard.
        cors.methods = ["GET", "HEAD", "POST"].map(String::from).to_vec();
    }
    cors
}

pub(crate) fn write_cors(writer: &mut SettingWriter, cors: &Cors) {
    CORS.write(writer.begin("cors").texts(&cors.origins), cors, &Cors::default());
}
