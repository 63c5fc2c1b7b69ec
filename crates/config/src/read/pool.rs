//! How the origins of a proxy are chosen, watched and spared: balance, health, concurrency, timeouts.

use super::Reader;
use super::parse;
use super::proxy::TIMEOUT_MS_MAX;
use super::shape::{Block, Seen, Shape, property};
use super::step::token;
use crate::code::Code;
use crate::model::{Balance, Concurrency, HashKey, HealthCheck, OriginTimeouts, PassiveHealth};
use crate::syntax::{Node, Scalar, Value};

/// More requests at once than any server takes, or any queue should hold.
const REQUESTS_MAX: u64 = 1_000_000;

const BALANCE: Shape = Shape {
    properties: &["key", "header", "cookie"],
    ..Shape::value("balance \"consistent-hash\" key=\"uri\", or balance \"round-robin\"")
};
const HEALTH: Shape = Shape {
    properties: &["interval", "timeout", "status", "rise", "fall"],
    ..Shape::value("health-check \"/health\" interval=\"5s\" timeout=\"2s\" status=\"200-399\" rise=2 fall=3")
};
const PASSIVE: Shape = Shape {
    arguments: (0, 0),
    properties: &["failures", "pause", "off"],
    block: Block::None,
    example: "passive failures=5 pause=\"5s\"",
};
const CONCURRENCY: Shape = Shape {
    arguments: (0, 0),
    properties: &["min", "max", "queue", "wait"],
    block: Block::None,
    example: "concurrency min=8 max=1024 queue=4096 wait=\"10s\"",
};
const TIMEOUTS: Shape = Shape {
    arguments: (0, 0),
    properties: &[],
    block: Block::Needed,
    example: "timeouts { connect \"3s\"; head \"30s\"; body \"30s\"; idle \"30s\" }",
};
const TIMEOUT: Shape = Shape::value("connect \"3s\"");
const BALANCES: &[(Balance, &str)] =
    &[(Balance::LeastConnections, "least-connections"), (Balance::RoundRobin, "round-robin")];

pub(super) fn balance(reader: &mut Reader<'_>, node: &Node) -> Balance {
    if !reader.shape(node, &BALANCE) {
        return Balance::default();
    }
    let hash = Balance::ConsistentHash(HashKey::Uri);
    // The word first, as it decides whether there may be a key.
    let words: Vec<(usize, &str)> =
        BALANCES.iter().map(|(_, word)| *word).chain(["consistent-hash"]).enumerate().collect();
    let Some(index) = reader.word(&node.arguments[0], &words) else { return Balance::default() };
    let chosen = BALANCES.get(index).map_or(hash, |(balance, _)| balance.clone());
    if let (Some(key), false) = (node.properties.first(), matches!(chosen, Balance::ConsistentHash(_))) {
        let draft = reader.report.add(Code::Contradiction, key.span, "only \"consistent-hash\" goes by a key");
        draft.related(node.arguments[0].span, "this does not");
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
        let draft = reader.report.add(Code::Contradiction, *second, "a request goes by one key");
        draft.related(*first, "the other one");
    }
    keys.pop().and_then(|(_, key)| key).map_or(chosen, Balance::ConsistentHash)
}

pub(super) fn health_check(reader: &mut Reader<'_>, node: &Node) -> Option<HealthCheck> {
    if !reader.shape(node, &HEALTH) {
        return None;
    }
    let mut check = HealthCheck::default();
    let path = reader.line(&node.arguments[0])?;
    if !path.starts_with('/') || !path.bytes().all(|byte| byte.is_ascii_graphic()) || path.contains('#') {
        let draft = reader.report.add(Code::TargetBad, node.arguments[0].span, format!("`{path}` is not a valid path"));
        draft.label("it begins with `/`; spaces and other letters are percent-encoded");
        return None;
    }
    check.path = path;
    let duration = |reader: &mut Reader<'_>, name, target: &mut u64| {
        if let Some(property) = property(node, name)
            && let Some(duration_ms) = reader.duration(&property.value, 100..=TIMEOUT_MS_MAX)
        {
            *target = duration_ms;
        }
    };
    duration(reader, "interval", &mut check.interval_ms);
    duration(reader, "timeout", &mut check.timeout_ms);
    let count = |reader: &mut Reader<'_>, name, target: &mut u32| {
        if let Some(property) = property(node, name)
            && let Some(count) = reader.number(&property.value, 1..=100)
        {
            *target = count as u32;
        }
    };
    count(reader, "rise", &mut check.rise);
    count(reader, "fall", &mut check.fall);
    if let Some(status) = property(node, "status") {
        check.statuses = statuses(reader, &status.value)?;
    }
    Some(check)
}

/// `"200-399"`, `"204"` or `204`.
fn statuses(reader: &mut Reader<'_>, value: &Value) -> Option<(u16, u16)> {
    let text = match (&value.scalar, value.annotation) {
        (Scalar::Integer(status), None) => status.to_string(),
        _ => reader.line(value)?,
    };
    let (first, last) = text.split_once('-').unwrap_or((&text, &text));
    let status = |text: &str| parse::digits(text).filter(|status| (100..=599).contains(status));
    let range = status(first).zip(status(last)).filter(|(first, last)| first <= last);
    if range.is_none() {
        let draft = reader.report.add(Code::StatusBad, value.span, format!("`{text}` are no statuses"));
        draft.label("100 to 599, as in \"200-399\" or 204");
    }
    range
}

pub(super) fn passive(reader: &mut Reader<'_>, node: &Node) -> PassiveHealth {
    reader.shape(node, &PASSIVE);
    let mut passive = PassiveHealth::default();
    let off = property(node, "off").and_then(|off| reader.flag(&off.value)).unwrap_or(false);
    if let (true, Some(other)) = (off, node.properties.iter().find(|property| property.name != "off")) {
        reader.report.add(Code::Contradiction, other.span, "`passive` is switched off and described");
    }
    if node.properties.is_empty() {
        let draft =
            reader.report.add(Code::PropertyMissing, node.span, "`passive` needs failures, pause, or off=#true");
        draft.note(format!("as in: {}", PASSIVE.example));
    }
    if let Some(failures) = property(node, "failures")
        && let Some(failures) = reader.number(&failures.value, 1..=10_000)
    {
        passive.failures = failures as u32;
    }
    if let Some(pause) = property(node, "pause")
        && let Some(pause_ms) = reader.duration(&pause.value, 1..=TIMEOUT_MS_MAX)
    {
        passive.pause_ms = pause_ms;
    }
    if off { PassiveHealth { failures: 0, ..PassiveHealth::default() } } else { passive }
}

pub(super) fn concurrency(reader: &mut Reader<'_>, node: &Node) -> Concurrency {
    reader.shape(node, &CONCURRENCY);
    let mut concurrency = Concurrency::default();
    if node.properties.is_empty() {
        let draft = reader.report.add(Code::PropertyMissing, node.span, "`concurrency` needs min, max, queue or wait");
        draft.note(format!("as in: {}", CONCURRENCY.example));
    }
    let number = |reader: &mut Reader<'_>, name, least| {
        let property = property(node, name)?;
        Some((property.span, reader.number(&property.value, least..=REQUESTS_MAX)? as u32))
    };
    let (min, max) = (number(reader, "min", 1), number(reader, "max", 1));
    match (min, max) {
        (Some((span, min)), Some((_, max))) if min > max => {
            reader.report.add(
                Code::Contradiction,
                span,
                format!("at least {min} and at most {max} exclude one another"),
            );
        }
        (Some((_, min)), Some((_, max))) => (concurrency.min, concurrency.max) = (min, max),
        // What is not said follows what is.
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

pub(super) fn timeouts(reader: &mut Reader<'_>, node: &Node) -> OriginTimeouts {
    reader.shape(node, &TIMEOUTS);
    let mut timeouts = OriginTimeouts::default();
    let mut seen = Seen::default();
    for child in node.children.iter().flatten() {
        let target = match child.name.as_str() {
            "connect" => &mut timeouts.connect_timeout_ms,
            "head" => &mut timeouts.head_timeout_ms,
            "body" => &mut timeouts.body_timeout_ms,
            "stream" => &mut timeouts.stream_timeout_ms,
            "idle" => &mut timeouts.idle_timeout_ms,
            _ => {
                reader.unknown(child, &["connect", "head", "body", "stream", "idle"]);
                continue;
            }
        };
        if reader.first(&mut seen, child)
            && reader.shape(child, &TIMEOUT)
            && let Some(timeout_ms) = reader.duration(&child.arguments[0], 1..=TIMEOUT_MS_MAX)
        {
            *target = timeout_ms;
        }
    }
    timeouts
}
