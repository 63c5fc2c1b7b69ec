//! Settings of a proxy's origins: balancing, health checks, concurrency, timeouts.

use super::field::{cookie_name, token};
use super::parse::{self, show_duration};
use super::reader::Reader;
use super::setting::{Group, Parsed, Setting, TIMEOUT_MS, TIMEOUT_MS_MAX, lifetime, word_of};
use super::shape::{Shape, property};
use crate::code::Code;
use crate::encode::writer::{SettingWriter, quote};
use crate::model::{Balance, Concurrency, HashKey, HealthCheck, OriginTimeouts, PassiveHealth, SameSite, Sticky};
use crate::syntax::{Node, Scalar, Value};

/// The largest number of concurrent or queued requests that can be set; more than any server handles.
const REQUESTS_MAX: u64 = 1_000_000;

pub(super) const BALANCE: Shape = Shape::value("balance \"consistent-hash\" key=\"uri\", or balance \"round-robin\"")
    .with(&["key", "header", "cookie"]);
pub(super) const CONCURRENCY: Shape = Shape::none("concurrency min=8 max=1024 queue=4096 wait=\"10s\"")
    .with(&["min", "max", "queue", "wait"])
    .needs("min, max, queue or wait");

/// `timeouts` of `proxy` and `php`.
pub(super) const TIMEOUTS: Group<OriginTimeouts> = Group {
    shape: Shape::none("timeouts { connect \"3s\"; head \"30s\"; body \"30s\"; idle \"30s\" }").has_block(),
    properties: &[],
    block: &[
        Setting::duration("connect", TIMEOUT, TIMEOUT_MS, |timeouts| &mut timeouts.connect_timeout_ms),
        Setting::duration("head", TIMEOUT, TIMEOUT_MS, |timeouts| &mut timeouts.head_timeout_ms),
        Setting::duration("body", TIMEOUT, TIMEOUT_MS, |timeouts| &mut timeouts.body_timeout_ms),
        Setting::duration("stream", TIMEOUT, TIMEOUT_MS, |timeouts| &mut timeouts.stream_timeout_ms),
        Setting::duration("idle", TIMEOUT, TIMEOUT_MS, |timeouts| &mut timeouts.idle_timeout_ms),
    ],
};
const TIMEOUT: &str = "connect \"3s\"";

pub(super) const STICKY: Shape =
    Shape::none("sticky secret=(file)\"sticky.key\" cookie=\"flatout-origin\" max-age=\"1d\" same-site=\"lax\"")
        .with(&["secret", "cookie", "max-age", "same-site"]);

const SAME_SITES: &[(SameSite, &str)] =
    &[(SameSite::Lax, "lax"), (SameSite::None, "none"), (SameSite::Strict, "strict")];

/// `health-check`, except for its path.
const HEALTH: Group<HealthCheck> = Group {
    shape: Shape::value("health-check \"/health\" interval=\"5s\" timeout=\"2s\" status=\"200-399\" rise=2 fall=3"),
    properties: &[
        Setting::duration("interval", "", 100..=TIMEOUT_MS_MAX, |check| &mut check.interval_ms),
        Setting::duration("timeout", "", 100..=TIMEOUT_MS_MAX, |check| &mut check.timeout_ms),
        Setting::value(
            "status",
            "",
            &Parsed {
                read: statuses,
                show: |(first, last)| quote(&format!("{first}-{last}")),
                field: |check: &mut HealthCheck| &mut check.statuses,
            },
        ),
        Setting::number("rise", "", 1..=100, |check| &mut check.rise),
        Setting::number("fall", "", 1..=100, |check| &mut check.fall),
    ],
    block: &[],
};

/// `passive`, unless it is turned off.
const PASSIVE: Group<PassiveHealth> = Group {
    shape: Shape::none("passive failures=5 pause=\"5s\"").with(&["off"]).needs("failures, pause, or off=#true"),
    properties: &[
        Setting::number("failures", "", 1..=10_000, |passive| &mut passive.failures),
        Setting::duration("pause", "", TIMEOUT_MS, |passive| &mut passive.pause_ms),
    ],
    block: &[],
};

const BALANCES: &[(Balance, &str)] =
    &[(Balance::LeastConnections, "least-connections"), (Balance::RoundRobin, "round-robin")];

pub(super) fn balance(reader: &mut Reader<'_>, node: &Node) -> Balance {
    let hash = Balance::ConsistentHash(HashKey::Uri);
    // The policy is read first because it determines whether a key is allowed.
    let words: Vec<(usize, &str)> =
        BALANCES.iter().map(|(_, word)| *word).chain(["consistent-hash"]).enumerate().collect();
    let Some(index) = reader.word(&node.arguments[0], &words) else { return Balance::default() };
    let chosen = BALANCES.get(index).map_or(hash, |(balance, _)| balance.clone());
    if let (Some(key), false) = (node.properties.first(), matches!(chosen, Balance::ConsistentHash(_))) {
        let draft = reader.report.add(Code::Contradiction, key.span, "a key requires \"consistent-hash\"");
        draft.related(node.arguments[0].span, "this policy does not use a key");
        return chosen;
    }
    let mut keys = Vec::new();
    if let Some(key) = property(node, "key") {
        let words = [(0, "uri"), (1, "client")];
        let word = reader.word(&key.value, &words);
        keys.push((key.span, word.map(|word| if word == 0 { HashKey::Uri } else { HashKey::Client })));
    }
    if let Some(header) = property(node, "header") {
        let name = token(reader, &header.value);
        keys.push((header.span, name.map(|name| HashKey::Header(name.to_ascii_lowercase()))));
    }
    if let Some(cookie) = property(node, "cookie") {
        keys.push((cookie.span, token(reader, &cookie.value).map(HashKey::Cookie)));
    }
    if let [(first, _), (second, _), ..] = &keys[..] {
        let draft = reader.report.add(Code::Contradiction, *second, "only one key is allowed");
        draft.related(*first, "the other one");
    }
    keys.pop().and_then(|(_, key)| key).map_or(chosen, Balance::ConsistentHash)
}

pub(super) fn sticky(reader: &mut Reader<'_>, node: &Node) -> Option<Sticky> {
    let mut sticky = Sticky::default();
    if let Some(cookie) = property(node, "cookie") {
        sticky.cookie = cookie_name(reader, &cookie.value)?;
    }
    if let Some(max_age) = property(node, "max-age") {
        let seconds = lifetime(reader, &max_age.value)?;
        if seconds == 0 {
            let draft = reader.report.add(Code::DurationBad, max_age.value.span, "`max-age` must be at least 1 second");
            draft.note("without `max-age`, browsers delete the cookie when they are closed");
            return None;
        }
        sticky.max_age_s = Some(seconds);
    }
    if let Some(same_site) = property(node, "same-site") {
        sticky.same_site = reader.word(&same_site.value, SAME_SITES)?;
    }
    let Some(secret) = property(node, "secret") else {
        let draft = reader.report.add(Code::ValueMissing, node.span, "`sticky` needs a secret that signs its cookie");
        draft.note(format!("{MAKE_KEY}, and write: sticky secret=(file)\"sticky.key\""));
        return None;
    };
    sticky.secret = reader.text(&secret.value)?;
    let fault = if sticky.keys().next().is_none() {
        "the secret contains no key"
    } else if sticky.keys().any(|key| key.chars().count() < Sticky::KEY_CHARS_MIN) {
        "a key of the secret is shorter than 32 characters"
    } else if sticky.keys().count() > Sticky::KEYS_MAX {
        "the secret contains more than 16 keys"
    } else {
        return Some(sticky);
    };
    let draft = reader.report.add(Code::TextBad, secret.value.span, fault);
    draft.note(format!("{MAKE_KEY}; each line is a key"));
    None
}

/// How to create a key, for messages.
const MAKE_KEY: &str = "create a key: openssl rand -base64 32 > sticky.key";

pub(super) fn health_check(reader: &mut Reader<'_>, node: &Node) -> Option<HealthCheck> {
    let mut check = HealthCheck::default();
    HEALTH.read(reader, node, &mut check);
    let value = node.arguments.first()?;
    let path = reader.line(value)?;
    if !path.starts_with('/') || !path.bytes().all(|byte| byte.is_ascii_graphic()) || path.contains('#') {
        let draft = reader.report.add(Code::TargetBad, value.span, format!("`{path}` is not a valid path"));
        draft.label("it must begin with `/`; percent-encode spaces and non-ASCII letters");
        return None;
    }
    Some(HealthCheck { path, ..check })
}

/// Reads a range of statuses: `"200-399"`, `"204"` or `204`.
fn statuses(reader: &mut Reader<'_>, value: &Value) -> Option<(u16, u16)> {
    let text = match (&value.scalar, value.annotation) {
        (Scalar::Integer(status), None) => status.to_string(),
        _ => reader.line(value)?,
    };
    let (first, last) = text.split_once('-').unwrap_or((&text, &text));
    let status = |text: &str| parse::digits(text).filter(|status| (100..=599).contains(status));
    let range = status(first).zip(status(last)).filter(|(first, last)| first <= last);
    if range.is_none() {
        let draft =
            reader.report.add(Code::StatusBad, value.span, format!("`{text}` is not a status or a range of statuses"));
        draft.label("use 100 to 599, as in \"200-399\" or 204");
    }
    range
}

pub(super) fn passive(reader: &mut Reader<'_>, node: &Node) -> PassiveHealth {
    let mut passive = PassiveHealth::default();
    PASSIVE.read(reader, node, &mut passive);
    let off = property(node, "off").and_then(|off| reader.flag(&off.value)).unwrap_or(false);
    if let (true, Some(other)) = (off, node.properties.iter().find(|property| property.name != "off")) {
        reader.report.add(Code::Contradiction, other.span, "`passive` is turned off, but has other settings");
    }
    if off { PassiveHealth { failures: 0, ..PassiveHealth::default() } } else { passive }
}

pub(super) fn concurrency(reader: &mut Reader<'_>, node: &Node) -> Concurrency {
    let mut concurrency = Concurrency::default();
    let number = |reader: &mut Reader<'_>, name, least| {
        let property = property(node, name)?;
        Some((property.span, reader.number(&property.value, least..=REQUESTS_MAX)? as u32))
    };
    let (min, max) = (number(reader, "min", 1), number(reader, "max", 1));
    match (min, max) {
        (Some((span, min)), Some((_, max))) if min > max => {
            reader.report.add(Code::Contradiction, span, format!("the minimum {min} is larger than the maximum {max}"));
        }
        (Some((_, min)), Some((_, max))) => (concurrency.min, concurrency.max) = (min, max),
        // If only one bound is set, the default of the other is adjusted to it.
        (Some((_, min)), None) => (concurrency.min, concurrency.max) = (min, concurrency.max.max(min)),
        (None, Some((_, max))) => (concurrency.min, concurrency.max) = (concurrency.min.min(max), max),
        (None, None) => {}
    }
    if let Some((_, queue)) = number(reader, "queue", 0) {
        concurrency.queue_max = queue;
    }
    if let Some(wait) = property(node, "wait")
        && let Some(wait_ms) = reader.duration(&wait.value, 1..=TIMEOUT_MS_MAX)
    {
        concurrency.queue_timeout_ms = wait_ms;
    }
    concurrency
}

pub(super) fn write_balance(writer: &mut SettingWriter, name: &'static str, balance: &Balance) {
    match balance {
        Balance::LeastConnections => {}
        Balance::RoundRobin => writer.begin(name).text("round-robin").end(),
        Balance::ConsistentHash(key) => {
            let (kind, key) = match key {
                HashKey::Uri => ("key", "uri"),
                HashKey::Client => ("key", "client"),
                HashKey::Header(name) => ("header", name.as_str()),
                HashKey::Cookie(name) => ("cookie", name.as_str()),
            };
            writer.begin(name).text("consistent-hash").property(kind, key).end();
        }
    }
}

pub(super) fn write_sticky(writer: &mut SettingWriter, name: &'static str, sticky: Option<&Sticky>) {
    let Some(sticky) = sticky else { return };
    writer.begin(name).property("secret", &sticky.secret).property("cookie", &sticky.cookie);
    if let Some(seconds) = sticky.max_age_s {
        writer.property("max-age", &show_duration(seconds * 1_000));
    }
    if sticky.same_site != Sticky::default().same_site {
        writer.property("same-site", word_of(SAME_SITES, &sticky.same_site));
    }
    writer.end();
}

pub(super) fn write_health_check(writer: &mut SettingWriter, name: &'static str, check: Option<&HealthCheck>) {
    if let Some(check) = check {
        HEALTH.write(writer.begin(name).text(&check.path), check, &HealthCheck::default());
    }
}

pub(super) fn write_passive(writer: &mut SettingWriter, name: &'static str, passive: &PassiveHealth) {
    if passive.failures == 0 {
        writer.begin(name).raw_property("off", "#true").end();
    } else if *passive != PassiveHealth::default() {
        PASSIVE.write(writer.begin(name), passive, &PassiveHealth::default());
    }
}

pub(super) fn write_concurrency(writer: &mut SettingWriter, name: &'static str, concurrency: Concurrency) {
    if concurrency == Concurrency::default() {
        return;
    }
    let Concurrency { min, max, queue_max, queue_timeout_ms } = concurrency;
    writer.begin(name).raw_property("min", &min.to_string()).raw_property("max", &max.to_string());
    writer.raw_property("queue", &queue_max.to_string()).property("wait", &show_duration(queue_timeout_ms)).end();
}
