//! `cache` in a site or a route: which responses of origins may be stored.

use super::field::{cookie_name, cookie_pattern, token};
use super::network::listed_network;
use super::parse::show_duration;
use super::reader::Reader;
use super::setting::{Group, List, Names, Setting, Words, lifetime, read_properties};
use super::shape::{Shape, is_off, property};
use crate::code::Code;
use crate::encode::writer::SettingWriter;
use crate::model::{CacheSettings, Cidr, StatusField};
use crate::syntax::{Node, Scalar, Value};
use flatout_cache::freshness::is_heuristically_cacheable;
use flatout_cache::rules::{QueryKey, Rules, SetCookie};

/// Properties that distinguish this step from the top-level setting of the same name.
pub(super) const PROPERTIES: &[&str] = &["ttl", "off"];

/// The properties of the top-level setting of the same name.
const PROPERTIES_OF_TOP: &[&str] = &["memory", "entries"];

const QUERY: Shape =
    Shape::none("query { without \"utm_*\" \"fbclid\" }, or query { only \"id\" \"page\" }").has_block();
const NAMES: Shape = Shape::values(1, "without \"utm_*\" \"fbclid\"");
const TARGETED: Shape = Shape::values(0, "targeted \"CDN-Cache-Control\", or targeted off=#true").with(&["off"]);
const TAGS: Shape = Shape::values(0, "tags \"Surrogate-Key\" \"Cache-Tag\", or tags off=#true").with(&["off"]);
const STATUS: Shape = Shape::values(0, "status \"all\", status \"10.0.0.0/8\", or status off=#true").with(&["off"]);

const SET_COOKIES: &[(SetCookie, &str)] =
    &[(SetCookie::Refuse, "refuse"), (SetCookie::Strip, "strip"), (SetCookie::Store, "store")];

const TTL: Setting<CacheSettings> = Setting::lifetime("ttl", "ttl \"60s\"", |cache| &mut cache.rules.default_ttl_s);

const TTL_IN_BLOCK: Shape = Shape::value("ttl \"60s\", or ttl \"1m\" status=404").with(&["status"]);

/// The `cache` step of a site or a route. `ttl` can be a property or a setting in the block.
pub(super) const CACHE: Group<CacheSettings> = Group {
    shape: Shape::none("cache ttl=\"60s\" { stale-if-error \"1d\" }").with(PROPERTIES).may_have_block(),
    properties: &[],
    block: SETTINGS,
};

/// The settings in the block of a `cache` step.
pub(super) const SETTINGS: &[Setting<CacheSettings>] = &[
    Setting::custom("ttl", TTL_IN_BLOCK, ttl, write_ttl).repeated(),
    Setting::custom(
        "heuristics",
        Shape::value("heuristics #true max=\"1d\"").with(&["max"]),
        heuristics,
        write_heuristics,
    ),
    Setting::lifetime("stale-while-revalidate", "stale-while-revalidate \"30s\"", |cache| {
        &mut cache.rules.stale_while_revalidate_s
    }),
    Setting::lifetime("stale-if-error", "stale-if-error \"1d\"", |cache| &mut cache.rules.stale_if_error_s),
    Setting::value(
        "set-cookie",
        "set-cookie \"strip\"",
        &Words(SET_COOKIES, |cache: &mut CacheSettings| &mut cache.rules.set_cookie),
    ),
    Setting::list(
        "bypass-cookies",
        Shape::values(1, "bypass-cookies \"sessionid\" \"wordpress_logged_in_*\""),
        &List("this cookie", cookie_pattern, String::clone, |cache: &mut CacheSettings| {
            &mut cache.rules.cookies.bypass
        }),
    ),
    Setting::list(
        "ignore-cookies",
        Shape::values(1, "ignore-cookies \"_ga\" \"_ga_*\""),
        &List("this cookie", cookie_pattern, String::clone, |cache: &mut CacheSettings| {
            &mut cache.rules.cookies.ignore
        }),
    ),
    Setting::list(
        "key-cookies",
        Shape::values(1, "key-cookies \"lang\""),
        &List("this cookie", cookie_name, String::clone, |cache: &mut CacheSettings| &mut cache.rules.cookies.key),
    ),
    Setting::custom("query", QUERY, query, write_query),
    Setting::flag("request-directives", "request-directives #false", |cache| &mut cache.rules.request_directives),
    Setting::number("variants", "variants 32", 1..=1_024, |cache| &mut cache.rules.variants_max),
    Setting::size("object-max", "object-max \"1GiB\"", 1 << 10..=1 << 40, |cache| &mut cache.rules.object_bytes_max),
    Setting::size("range-fetch-max", "range-fetch-max \"16MiB\"", 0..=1 << 40, |cache| {
        &mut cache.range_fetch_bytes_max
    }),
    Setting::list("targeted", TARGETED, &Names(field, |cache: &mut CacheSettings| &mut cache.rules.targeted)),
    Setting::list("tags", TAGS, &Names(field, |cache: &mut CacheSettings| &mut cache.rules.tag_fields)),
    Setting::custom(
        "status",
        STATUS,
        |reader, node, cache| cache.status_field = status(reader, node),
        |writer, name, cache| match &cache.status_field {
            StatusField::Everybody => {}
            StatusField::Networks(allowed) => {
                writer.list(name, &allowed.iter().map(Cidr::to_string).collect::<Vec<_>>());
            }
            StatusField::Nobody => writer.begin(name).raw_property("off", "#true").end(),
        },
    ),
    Setting::list(
        "purge",
        Shape::values(1, "purge \"127.0.0.0/8\" \"::1\""),
        &List("this network", listed_network, Cidr::to_string, |cache: &mut CacheSettings| &mut cache.purge),
    ),
    Setting::flag("esi", "esi #true", |cache| &mut cache.esi),
    Setting::flag("early-hints", "early-hints #false", |cache| &mut cache.early_hints),
    Setting::flag("no-vary-search", "no-vary-search #false", |cache| &mut cache.rules.no_vary_search),
    Setting::lifetime("hit-for-miss", "hit-for-miss \"60s\"", |cache| &mut cache.rules.hit_for_miss_s),
    Setting::flag("close-delimited", "close-delimited #false", |cache| &mut cache.rules.close_delimited),
    Setting::flag("language-select", "language-select #true", |cache| &mut cache.rules.language_select),
    Setting::flag("mismatched-ranges", "mismatched-ranges #true", |cache| &mut cache.rules.mismatched_ranges),
];

/// Reads a `cache` step. Returns `None` if the top-level setting was meant.
pub(super) fn read(reader: &mut Reader<'_>, node: &Node) -> Option<CacheSettings> {
    let is_of_top = |name: &str| PROPERTIES_OF_TOP.contains(&name);
    if let Some(memory) = node.properties.iter().find(|property| is_of_top(&property.name)) {
        let draft = reader.report.add(Code::WrongPlace, memory.span, "the store's limits apply to all sites together");
        draft.label("at the top level: store memory=\"256MiB\" memory-objects=1000000");
        return None;
    }
    reader.shape(node, &CACHE.shape);
    let mut cache = CacheSettings::default();
    let off = property(node, "off").and_then(|off| Some((off, reader.flag(&off.value)?))).filter(|(_, off)| *off);
    if let Some((off, _)) = off {
        cache.rules.enabled = false;
        if node.properties.len() > 1 || node.children.is_some() {
            let draft =
                reader.report.add(Code::Contradiction, off.span, "this cache is turned off, but has other settings");
            draft.note("`cache off=#true` takes no other settings");
        }
        return Some(cache);
    }
    let in_block =
        node.children.iter().flatten().find(|child| child.name == "ttl" && property(child, "status").is_none());
    if let (Some(first), Some(second)) = (property(node, "ttl"), in_block) {
        let draft = reader.report.add(Code::GivenTwice, second.span, "`ttl` is set twice");
        draft.related(first.span, "first here");
    }
    CACHE.read_parts(reader, node, &mut cache);
    read_properties(reader, node, &[TTL], &mut cache);
    Some(cache)
}

pub(crate) fn write(writer: &mut SettingWriter, cache: &CacheSettings) {
    writer.begin("cache");
    if !cache.rules.enabled {
        return writer.raw_property("off", "#true").end();
    }
    CACHE.write(writer, cache, &CacheSettings::default());
}

fn ttl(reader: &mut Reader<'_>, node: &Node, cache: &mut CacheSettings) {
    let Some(seconds) = lifetime(reader, &node.arguments[0]) else { return };
    let (is_second, value) = match property(node, "status") {
        None => (cache.rules.default_ttl_s.replace(seconds as u32).is_some(), node.span),
        Some(status) => {
            let Some(code) = reader.number(&status.value, 200..=599) else { return };
            let code = code as u16;
            if !is_heuristically_cacheable(code) {
                let what = format!("responses with status {code} are stored only if the origin sets their lifetime");
                let draft = reader.report.add(Code::StatusBad, status.span, what);
                draft.label("one of 200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414 and 501");
                return;
            }
            let is_second = cache.rules.status_ttls_s.iter().any(|(known, _)| *known == code);
            cache.rules.status_ttls_s.push((code, seconds as u32));
            (is_second, status.span)
        }
    };
    if is_second {
        reader.report.add(Code::GivenTwice, value, "this lifetime is set twice");
    }
}

fn write_ttl(writer: &mut SettingWriter, name: &'static str, cache: &CacheSettings) {
    let written = |seconds: u32| show_duration(u64::from(seconds) * 1_000);
    if let Some(seconds) = cache.rules.default_ttl_s {
        writer.begin(name).text(&written(seconds)).end();
    }
    for (status, seconds) in &cache.rules.status_ttls_s {
        writer.begin(name).text(&written(*seconds)).raw_property("status", &status.to_string()).end();
    }
}

fn heuristics(reader: &mut Reader<'_>, node: &Node, cache: &mut CacheSettings) {
    cache.rules.heuristics = reader.flag(&node.arguments[0]).unwrap_or(true);
    let Some(max) = property(node, "max") else { return };
    // If the value is neither true nor false, it is invalid and has already been reported.
    if matches!(node.arguments[0].scalar, Scalar::Bool(false)) {
        reader.report.add(Code::Contradiction, max.span, "`heuristics` is turned off, but `max` is set");
    }
    if let Some(max_s) = lifetime(reader, &max.value) {
        cache.rules.heuristic_max_s = max_s as u32;
    }
}

fn write_heuristics(writer: &mut SettingWriter, name: &'static str, cache: &CacheSettings) {
    let (rules, default) = (&cache.rules, Rules::default());
    if (rules.heuristics, rules.heuristic_max_s) == (default.heuristics, default.heuristic_max_s) {
        return;
    }
    writer.begin(name).raw(if rules.heuristics { "#true" } else { "#false" });
    // Without heuristics, there is no lifetime to limit.
    if rules.heuristics {
        writer.property("max", &show_duration(u64::from(rules.heuristic_max_s) * 1_000));
    }
    writer.end();
}

fn query(reader: &mut Reader<'_>, node: &Node, cache: &mut CacheSettings) {
    let mut chosen: Option<&Node> = None;
    for child in node.children.iter().flatten() {
        if !matches!(child.name.as_str(), "without" | "only") {
            reader.unknown(child, &["without", "only"]);
            continue;
        }
        if let Some(first) = chosen {
            let (code, message) = if first.name == child.name {
                (Code::GivenTwice, format!("`{}` occurs twice", child.name))
            } else {
                (Code::Contradiction, "use either `without` or `only`, not both".to_owned())
            };
            reader.report.add(code, child.span, message).related(first.span, "the other one");
            continue;
        }
        chosen = Some(child);
        reader.shape(child, &NAMES);
        let names = reader.list(&child.arguments, "this parameter", parameter);
        cache.rules.query = if child.name == "without" { QueryKey::Without(names) } else { QueryKey::Only(names) };
    }
}

fn write_query(writer: &mut SettingWriter, name: &'static str, cache: &CacheSettings) {
    let (kind, names) = match &cache.rules.query {
        QueryKey::All => return,
        QueryKey::Without(names) => ("without", names),
        QueryKey::Only(names) => ("only", names),
    };
    writer.begin(name).block(|writer| writer.list(kind, names));
}

/// Reads a parameter name as it appears in the query, optionally with a trailing `*`.
fn parameter(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
    let name = reader.line(value)?;
    let plain = name.strip_suffix('*').unwrap_or(&name);
    if plain.contains('*') || !plain.bytes().all(|byte| byte.is_ascii_graphic() && !b"&=#?".contains(&byte)) {
        let draft =
            reader.report.add(Code::QueryNameBad, value.span, format!("`{name}` is not a valid parameter name"));
        draft.label("write it as in the query: \"id\", \"utm_*\"");
        return None;
    }
    Some(name)
}

/// Reads the name of a targeted cache control field (RFC 9213).
fn field(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
    let name = token(reader, value)?;
    if name.eq_ignore_ascii_case("cache-control") {
        // RFC 9213 §2.2: without a targeted field, Cache-Control applies anyway.
        let draft = reader.report.add(Code::SameTwice, value.span, "Cache-Control is not a targeted field");
        draft.label("flatout obeys it if none of the targeted fields is present");
        return None;
    }
    Some(name)
}

/// Reads which clients receive Cache-Status: `"all"`, networks, or `off=#true`.
fn status(reader: &mut Reader<'_>, node: &Node) -> StatusField {
    if is_off(reader, node, &STATUS) {
        return StatusField::Nobody;
    }
    let is_all = |value: &&Value| matches!(&value.scalar, Scalar::Text(text) if text == "all");
    match (node.arguments.iter().find(is_all), &node.arguments[..]) {
        (Some(_), [_]) => StatusField::Everybody,
        (Some(all), _) => {
            reader.report.add(Code::Contradiction, all.span, "`all` already includes the others");
            StatusField::Everybody
        }
        (None, values) => StatusField::Networks(reader.list(values, "this network", listed_network)),
    }
}
