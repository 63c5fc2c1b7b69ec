//! The step that says what may be kept of origins' answers.

use super::Reader;
use super::files::{flag, is_off};
use super::parse;
use super::proxy::networks;
use super::shape::{Block, Seen, Shape, VALUES_MAX, property};
use super::step::token;
use crate::code::Code;
use crate::model::{CacheRules, QueryKey, SetCookie, StatusField};
use crate::syntax::{Node, Scalar, Value};

/// Properties that tell this step from the setting of the top level.
pub(super) const PROPERTIES: &[&str] = &["ttl", "off"];

/// Of the setting with this name at the top level.
const PROPERTIES_OF_TOP: &[&str] = &["memory", "entries"];

/// A year: RFC 9111 knows no longer lifetime that anybody should want.
const LIFETIME_MS_MAX: u64 = 366 * 86_400_000;

const SHAPE: Shape = Shape {
    arguments: (0, 0),
    properties: PROPERTIES,
    block: Block::Optional,
    example: "cache ttl=\"60s\" { stale-if-error \"1d\" }",
};
const TTL: Shape = Shape::value("ttl \"60s\"");
const HEURISTICS: Shape = Shape { properties: &["max"], ..Shape::value("heuristics #true max=\"1d\"") };
const REVALIDATE: Shape = Shape::value("stale-while-revalidate \"30s\"");
const IF_ERROR: Shape = Shape::value("stale-if-error \"1d\"");
const SET_COOKIE: Shape = Shape::value("set-cookie \"strip\"");
const BYPASS_COOKIES: Shape = Shape::values(1, "bypass-cookies \"sessionid\" \"wordpress_logged_in_*\"");
const IGNORE_COOKIES: Shape = Shape::values(1, "ignore-cookies \"_ga\" \"_ga_*\"");
const KEY_COOKIES: Shape = Shape::values(1, "key-cookies \"lang\"");
const QUERY: Shape = Shape {
    arguments: (0, 0),
    properties: &[],
    block: Block::Needed,
    example: "query { without \"utm_*\" \"fbclid\" }, or query { only \"id\" \"page\" }",
};
const NAMES: Shape = Shape::values(1, "without \"utm_*\" \"fbclid\"");
const DIRECTIVES: Shape = Shape::value("request-directives #false");
const VARIANTS: Shape = Shape::value("variants 32");
const OBJECT: Shape = Shape::value("object-max \"1GiB\"");
const RANGE_FETCH: Shape = Shape::value("range-fetch-max \"16MiB\"");
const TARGETED: Shape = Shape {
    arguments: (0, VALUES_MAX),
    properties: &["off"],
    ..Shape::value("targeted \"CDN-Cache-Control\", or targeted off=#true")
};
const TAGS: Shape = Shape { example: "tags \"Surrogate-Key\" \"Cache-Tag\", or tags off=#true", ..TARGETED };
const STATUS: Shape = Shape { example: "status \"all\", status \"10.0.0.0/8\", or status off=#true", ..TARGETED };
const PURGE: Shape = Shape::values(1, "purge \"127.0.0.0/8\" \"::1\"");
const ESI: Shape = Shape::value("esi #true");
const HINTS: Shape = Shape::value("early-hints #false");
const SEARCH: Shape = Shape::value("no-vary-search #false");
const FOR_MISS: Shape = Shape::value("hit-for-miss \"60s\"");
const CLOSE: Shape = Shape::value("close-delimited #false");
const LANGUAGE: Shape = Shape::value("language-select #true");
const UNEVEN: Shape = Shape::value("uneven-parts #true");

const ALLOWED: &[&str] = &[
    "ttl",
    "heuristics",
    "stale-while-revalidate",
    "stale-if-error",
    "set-cookie",
    "bypass-cookies",
    "ignore-cookies",
    "key-cookies",
    "query",
    "request-directives",
    "variants",
    "object-max",
    "range-fetch-max",
    "targeted",
    "tags",
    "status",
    "purge",
    "esi",
    "early-hints",
    "no-vary-search",
    "hit-for-miss",
    "close-delimited",
    "language-select",
    "uneven-parts",
];

pub(crate) const SET_COOKIES: &[(SetCookie, &str)] =
    &[(SetCookie::Refuse, "refuse"), (SetCookie::Strip, "strip"), (SetCookie::Store, "store")];

/// `None` when it is the setting of the top level that was meant.
pub(super) fn read(reader: &mut Reader<'_>, node: &Node) -> Option<CacheRules> {
    let is_of_top = |name: &str| PROPERTIES_OF_TOP.contains(&name);
    if let Some(memory) = node.properties.iter().find(|property| is_of_top(&property.name)) {
        let draft = reader.report.add(Code::WrongPlace, memory.span, "how much is held is said for all sites together");
        draft.label("at the top level: store memory=\"256MiB\" hot-objects=1000000");
        return None;
    }
    reader.shape(node, &SHAPE);
    let mut rules = CacheRules::default();
    let off = property(node, "off").and_then(|off| Some((off, reader.flag(&off.value)?))).filter(|(_, off)| *off);
    if let Some((off, _)) = off {
        rules.enabled = false;
        if node.properties.len() > 1 || node.children.is_some() {
            let draft = reader.report.add(Code::Contradiction, off.span, "this cache is switched off and described");
            draft.note("a route's own `cache off=#true` stands alone");
        }
        return Some(rules);
    }
    if let Some(ttl) = property(node, "ttl") {
        rules.default_ttl_s = seconds(reader, &ttl.value);
    }
    let mut seen = Seen::default();
    for child in node.children.iter().flatten() {
        if !ALLOWED.contains(&child.name.as_str()) {
            reader.unknown(child, ALLOWED);
        } else if let (Some(first), "ttl") = (property(node, "ttl"), child.name.as_str()) {
            let draft = reader.report.add(Code::GivenTwice, child.span, "`ttl` is given twice");
            draft.related(first.span, "first here");
        } else if reader.first(&mut seen, child) {
            setting(reader, child, &mut rules);
        }
    }
    Some(rules)
}

fn setting(reader: &mut Reader<'_>, node: &Node, rules: &mut CacheRules) {
    match node.name.as_str() {
        "ttl" => rules.default_ttl_s = lifetime(reader, node, &TTL),
        "heuristics" => heuristics(reader, node, rules),
        "stale-while-revalidate" => {
            rules.stale_while_revalidate_s = lifetime(reader, node, &REVALIDATE).unwrap_or_default();
        }
        "stale-if-error" => rules.stale_if_error_s = lifetime(reader, node, &IF_ERROR).unwrap_or_default(),
        "set-cookie" => {
            if reader.shape(node, &SET_COOKIE) {
                rules.set_cookie = reader.word(&node.arguments[0], SET_COOKIES).unwrap_or_default();
            }
        }
        "bypass-cookies" => rules.cookies.bypass = cookies(reader, node, &BYPASS_COOKIES),
        "ignore-cookies" => rules.cookies.ignore = cookies(reader, node, &IGNORE_COOKIES),
        "key-cookies" => rules.cookies.key = cookies(reader, node, &KEY_COOKIES),
        "query" => rules.query = query(reader, node),
        "request-directives" => rules.request_directives = flag(reader, node, &DIRECTIVES),
        "variants" => {
            if reader.shape(node, &VARIANTS)
                && let Some(variants) = reader.number(&node.arguments[0], 1..=1_024)
            {
                rules.variants_max = variants as u32;
            }
        }
        "object-max" => {
            if reader.shape(node, &OBJECT)
                && let Some(size) = reader.size(&node.arguments[0], 1 << 10..=1 << 40)
            {
                rules.object_bytes_max = size;
            }
        }
        "range-fetch-max" => {
            if reader.shape(node, &RANGE_FETCH)
                && let Some(size) = reader.size(&node.arguments[0], 0..=1 << 40)
            {
                rules.range_fetch_bytes_max = size;
            }
        }
        "targeted" => rules.targeted = fields(reader, node, &TARGETED),
        "tags" => rules.tag_fields = fields(reader, node, &TAGS),
        "status" => rules.status_field = status(reader, node),
        "purge" => {
            reader.shape(node, &PURGE);
            rules.purge = networks(reader, &node.arguments);
        }
        "esi" => rules.esi = flag(reader, node, &ESI),
        "early-hints" => rules.early_hints = flag(reader, node, &HINTS),
        "no-vary-search" => rules.no_vary_search = flag(reader, node, &SEARCH),
        "hit-for-miss" => rules.hit_for_miss_s = lifetime(reader, node, &FOR_MISS).unwrap_or_default(),
        "close-delimited" => rules.close_delimited = flag(reader, node, &CLOSE),
        "language-select" => rules.language_select = flag(reader, node, &LANGUAGE),
        _ => rules.uneven_parts = flag(reader, node, &UNEVEN),
    }
}

fn lifetime(reader: &mut Reader<'_>, node: &Node, shape: &Shape) -> Option<u32> {
    if reader.shape(node, shape) { seconds(reader, &node.arguments[0]) } else { None }
}

/// A lifetime: caches count in whole seconds (RFC 9111, section 1.2.2).
fn seconds(reader: &mut Reader<'_>, value: &Value) -> Option<u32> {
    let duration_ms = reader.duration(value, 0..=LIFETIME_MS_MAX)?;
    if !duration_ms.is_multiple_of(1_000) {
        let draft = reader.report.add(Code::DurationBad, value.span, "a lifetime is counted in whole seconds");
        draft.label(format!("write \"{}s\"", duration_ms.div_ceil(1_000)));
        return None;
    }
    u32::try_from(duration_ms / 1_000).ok()
}

fn heuristics(reader: &mut Reader<'_>, node: &Node, rules: &mut CacheRules) {
    if !reader.shape(node, &HEURISTICS) {
        return;
    }
    rules.heuristics = reader.flag(&node.arguments[0]).unwrap_or(true);
    let Some(max) = property(node, "max") else { return };
    // Behind an error of its own the value says nothing.
    if matches!(node.arguments[0].scalar, Scalar::Bool(false)) {
        reader.report.add(Code::Contradiction, max.span, "heuristics are switched off and bounded");
    }
    if let Some(max_s) = seconds(reader, &max.value) {
        rules.heuristic_max_s = max_s;
    }
}

fn query(reader: &mut Reader<'_>, node: &Node) -> QueryKey {
    reader.shape(node, &QUERY);
    let mut chosen: Option<&Node> = None;
    let mut key = QueryKey::All;
    for child in node.children.iter().flatten() {
        if !matches!(child.name.as_str(), "without" | "only") {
            reader.unknown(child, &["without", "only"]);
            continue;
        }
        if let Some(first) = chosen {
            let (code, message) = if first.name == child.name {
                (Code::GivenTwice, format!("`{}` is given twice", child.name))
            } else {
                (Code::Contradiction, "parameters are left out or chosen, not both".to_owned())
            };
            reader.report.add(code, child.span, message).related(first.span, "the other");
            continue;
        }
        chosen = Some(child);
        reader.shape(child, &NAMES);
        let mut names: Vec<String> = Vec::new();
        for value in &child.arguments {
            let Some(name) = parameter(reader, value) else { continue };
            if names.contains(&name) {
                reader.same_twice(value.span, "this parameter");
            } else {
                names.push(name);
            }
        }
        key = if child.name == "without" { QueryKey::Without(names) } else { QueryKey::Only(names) };
    }
    key
}

/// A parameter's name as it stands in the query, perhaps with a star at its end.
fn parameter(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
    let name = reader.line(value)?;
    let plain = name.strip_suffix('*').unwrap_or(&name);
    if plain.contains('*') || !plain.bytes().all(|byte| byte.is_ascii_graphic() && !b"&=#?".contains(&byte)) {
        let draft =
            reader.report.add(Code::QueryNameBad, value.span, format!("`{name}` is not a valid parameter name"));
        draft.label("as it stands in the query: \"id\", \"utm_*\"");
        return None;
    }
    Some(name)
}

/// Names of cookies, each once.
fn cookies(reader: &mut Reader<'_>, node: &Node, shape: &Shape) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    reader.shape(node, shape);
    let takes_star = node.name != "key-cookies";
    for value in &node.arguments {
        let Some(name) = reader.line(value) else { continue };
        let plain = if takes_star { name.strip_suffix('*').unwrap_or(&name) } else { &name };
        let is_all = takes_star && name == "*";
        if !is_all && (plain.contains('*') || !parse::is_token(plain)) {
            let draft = reader.report.add(Code::CookieNameBad, value.span, format!("`{name}` is not a cookie's name"));
            draft.label(if takes_star { "such as \"sid\" or \"_ga_*\"" } else { "such as \"lang\", without a star" });
        } else if names.contains(&name) {
            reader.same_twice(value.span, "this cookie");
        } else {
            names.push(name);
        }
    }
    names
}

/// Names of fields, without doubles in whatever case.
fn fields(reader: &mut Reader<'_>, node: &Node, shape: &Shape) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    if is_off(reader, node, shape) {
        return names;
    }
    for value in &node.arguments {
        let Some(name) = token(reader, value) else { continue };
        if names.iter().any(|known| known.eq_ignore_ascii_case(&name)) {
            reader.same_twice(value.span, &format!("`{name}`"));
        } else if name.eq_ignore_ascii_case("cache-control") {
            // RFC 9213, section 2.2: what has no targeted field goes by Cache-Control anyway.
            let draft = reader.report.add(Code::SameTwice, value.span, "Cache-Control is not for one cache alone");
            draft.label("it counts in any case, when no field of these is there");
        } else {
            names.push(name);
        }
    }
    names
}

/// `"all"`, networks, or off.
fn status(reader: &mut Reader<'_>, node: &Node) -> StatusField {
    if is_off(reader, node, &STATUS) {
        return StatusField::Nobody;
    }
    let is_all = |value: &&Value| matches!(&value.scalar, Scalar::Text(text) if text == "all");
    match (node.arguments.iter().find(is_all), &node.arguments[..]) {
        (Some(_), [_]) => StatusField::Everybody,
        (Some(all), _) => {
            reader.report.add(Code::Contradiction, all.span, "all, and some of them once more");
            StatusField::Everybody
        }
        (None, values) => StatusField::Networks(networks(reader, values)),
    }
}
