//! What forwards and what is kept, as KDL: `proxy` and `cache` steps, and the `store`.

use super::site::{flag, list, list_or_off};
use super::{Writer, path};
use crate::model::{
    Balance, CacheRules, Cidr, Concurrency, Forwarded, HashKey, HealthCheck, HostField, OriginTimeouts, OriginTls,
    PassiveHealth, Proxy, QueryKey, StatusField, StoreBudget,
};
use crate::read::{SET_COOKIES, show_duration, show_origin, show_size};

pub(super) fn store(writer: &mut Writer, store: &StoreBudget) {
    writer.begin("store");
    if let Some(memory) = store.memory_bytes_max {
        writer.property("memory", &show_size(memory));
    }
    writer.raw_property("hot-objects", &store.hot_objects_max.to_string());
    if store.disks.is_empty() {
        return writer.end();
    }
    writer.open();
    for (folder, bytes_max) in &store.disks {
        writer.begin("disk").text(&path(folder)).text(&show_size(*bytes_max)).end();
    }
    writer.close();
}

pub(super) fn proxy(writer: &mut Writer, proxy: &Proxy) {
    let defaults = Proxy { origins: proxy.origins.clone(), ..Proxy::default() };
    let are_plain = proxy.origins.iter().all(|origin| origin.weight == 1 && !origin.backup);
    writer.begin("proxy");
    if are_plain {
        for origin in &proxy.origins {
            writer.text(&show_origin(origin));
        }
        if *proxy == defaults {
            return writer.end();
        }
    }
    writer.open();
    if !are_plain {
        origins(writer, proxy);
    }
    pool(writer, proxy);
    if proxy.host != defaults.host {
        let host = match &proxy.host {
            HostField::Client => "client",
            HostField::Origin => "origin",
            HostField::Fixed(host) => host,
        };
        writer.begin("host").text(host).end();
    }
    if proxy.forwarded != defaults.forwarded {
        let Forwarded { x_forwarded, standard } = proxy.forwarded;
        let kinds = [(x_forwarded, "x-forwarded"), (standard, "standard")];
        let kinds: Vec<&str> = kinds.into_iter().filter(|(on, _)| *on).map(|(_, kind)| kind).collect();
        list_or_off(writer, "forwarded", &kinds);
    }
    trust(writer, &proxy.trusted);
    if proxy.via != defaults.via {
        list_or_off(writer, "via", proxy.via.as_slice());
    }
    if !proxy.request_fields.is_empty() {
        super::site::fields(writer, "request-header", &proxy.request_fields);
    }
    flag(writer, "http2", proxy.http2);
    tls(writer, &proxy.tls);
    if proxy.idle_connections_max != defaults.idle_connections_max {
        writer.begin("idle-connections").raw(&proxy.idle_connections_max.to_string()).end();
    }
    switch(writer, "upgrades", proxy.upgrades, defaults.upgrades);
    flag(writer, "unknown-codings", proxy.unknown_codings);
    writer.close();
}

fn origins(writer: &mut Writer, proxy: &Proxy) {
    for origin in &proxy.origins {
        writer.begin("origin").text(&show_origin(origin));
        if origin.weight != 1 {
            writer.raw_property("weight", &origin.weight.to_string());
        }
        if origin.backup {
            writer.raw_property("backup", "#true");
        }
        writer.end();
    }
}

/// How origins are chosen and watched.
fn pool(writer: &mut Writer, proxy: &Proxy) {
    match &proxy.balance {
        Balance::LeastConnections => {}
        Balance::RoundRobin => writer.begin("balance").text("round-robin").end(),
        Balance::ConsistentHash(key) => {
            writer.begin("balance").text("consistent-hash");
            match key {
                HashKey::Uri => writer.property("key", "uri"),
                HashKey::Client => writer.property("key", "client"),
                HashKey::Header(name) => writer.property("header", name),
                HashKey::Cookie(name) => writer.property("cookie", name),
            };
            writer.end();
        }
    }
    if let Some(check) = &proxy.health_check {
        health_check(writer, check);
    }
    if proxy.passive.failures == 0 {
        writer.begin("passive").raw_property("off", "#true").end();
    } else if proxy.passive != PassiveHealth::default() {
        writer.begin("passive").raw_property("failures", &proxy.passive.failures.to_string());
        writer.property("pause", &show_duration(proxy.passive.pause_ms)).end();
    }
    if proxy.slow_start_ms != 0 {
        writer.begin("slow-start").text(&show_duration(proxy.slow_start_ms)).end();
    }
    if proxy.concurrency != Concurrency::default() {
        let Concurrency { min, max, queue_max, queue_timeout_ms } = proxy.concurrency;
        writer.begin("concurrency").raw_property("min", &min.to_string()).raw_property("max", &max.to_string());
        writer.raw_property("queue", &queue_max.to_string()).property("wait", &show_duration(queue_timeout_ms)).end();
    }
    if proxy.timeouts != OriginTimeouts::default() {
        timeouts(writer, &proxy.timeouts);
    }
    if proxy.retries != Proxy::default().retries {
        writer.begin("retries").raw(&proxy.retries.to_string()).end();
    }
}

fn health_check(writer: &mut Writer, check: &HealthCheck) {
    let (first, last) = check.statuses;
    writer.begin("health-check").text(&check.path).property("interval", &show_duration(check.interval_ms));
    writer.property("timeout", &show_duration(check.timeout_ms)).property("status", &format!("{first}-{last}"));
    writer.raw_property("rise", &check.rise.to_string()).raw_property("fall", &check.fall.to_string()).end();
}

pub(super) fn timeouts(writer: &mut Writer, timeouts: &OriginTimeouts) {
    writer.begin("timeouts").open();
    for (name, timeout_ms) in [
        ("connect", timeouts.connect_timeout_ms),
        ("head", timeouts.head_timeout_ms),
        ("body", timeouts.body_timeout_ms),
        ("stream", timeouts.stream_timeout_ms),
        ("idle", timeouts.idle_timeout_ms),
    ] {
        writer.begin(name).text(&show_duration(timeout_ms)).end();
    }
    writer.close();
}

fn tls(writer: &mut Writer, tls: &OriginTls) {
    if *tls == OriginTls::default() {
        return;
    }
    writer.begin("tls");
    if tls.insecure {
        writer.raw_property("insecure", "#true");
    }
    if let Some(authorities) = &tls.authorities {
        writer.property("ca", &path(authorities));
    }
    if let Some(name) = &tls.server_name {
        writer.property("name", name);
    }
    writer.end();
}

pub(super) fn trust(writer: &mut Writer, trusted: &[Cidr]) {
    networks(writer, "trust", trusted);
}

fn networks(writer: &mut Writer, name: &str, networks: &[Cidr]) {
    let shown: Vec<String> = networks.iter().map(|cidr| format!("{}/{}", cidr.address, cidr.bits)).collect();
    list(writer, name, &shown);
}

/// What is said only when it is not the default.
fn switch(writer: &mut Writer, name: &str, on: bool, default: bool) {
    if on != default {
        writer.begin(name).raw(if on { "#true" } else { "#false" }).end();
    }
}

pub(super) fn cache(writer: &mut Writer, rules: &CacheRules) {
    let defaults = CacheRules::default();
    writer.begin("cache");
    if !rules.enabled {
        return writer.raw_property("off", "#true").end();
    }
    if *rules == defaults {
        return writer.end();
    }
    writer.open();
    let duration = |writer: &mut Writer, name, seconds: u32, default: u32| {
        if seconds != default {
            writer.begin(name).text(&show_seconds(seconds)).end();
        }
    };
    if let Some(ttl_s) = rules.default_ttl_s {
        writer.begin("ttl").text(&show_seconds(ttl_s)).end();
    }
    if (rules.heuristics, rules.heuristic_max_s) != (defaults.heuristics, defaults.heuristic_max_s) {
        writer.begin("heuristics").raw(if rules.heuristics { "#true" } else { "#false" });
        // Without heuristics there is nothing to bound.
        if rules.heuristics {
            writer.property("max", &show_seconds(rules.heuristic_max_s));
        }
        writer.end();
    }
    let revalidate_s = rules.stale_while_revalidate_s;
    duration(writer, "stale-while-revalidate", revalidate_s, defaults.stale_while_revalidate_s);
    duration(writer, "stale-if-error", rules.stale_if_error_s, defaults.stale_if_error_s);
    if rules.set_cookie != defaults.set_cookie {
        let word = SET_COOKIES.iter().find(|(known, _)| *known == rules.set_cookie).map_or("", |(_, word)| *word);
        writer.begin("set-cookie").text(word).end();
    }
    let cookies = &rules.cookies;
    for (name, names) in
        [("bypass-cookies", &cookies.bypass), ("ignore-cookies", &cookies.ignore), ("key-cookies", &cookies.key)]
    {
        if !names.is_empty() {
            list(writer, name, names);
        }
    }
    query(writer, &rules.query);
    switch(writer, "request-directives", rules.request_directives, defaults.request_directives);
    if rules.variants_max != defaults.variants_max {
        writer.begin("variants").raw(&rules.variants_max.to_string()).end();
    }
    if rules.object_bytes_max != defaults.object_bytes_max {
        writer.begin("object-max").text(&show_size(rules.object_bytes_max)).end();
    }
    if rules.range_fetch_bytes_max != defaults.range_fetch_bytes_max {
        writer.begin("range-fetch-max").text(&show_size(rules.range_fetch_bytes_max)).end();
    }
    if rules.targeted != defaults.targeted {
        list_or_off(writer, "targeted", &rules.targeted);
    }
    if rules.tag_fields != defaults.tag_fields {
        list_or_off(writer, "tags", &rules.tag_fields);
    }
    match &rules.status_field {
        StatusField::Everybody => {}
        StatusField::Networks(allowed) => networks(writer, "status", allowed),
        StatusField::Nobody => writer.begin("status").raw_property("off", "#true").end(),
    }
    networks(writer, "purge", &rules.purge);
    switch(writer, "esi", rules.esi, defaults.esi);
    switch(writer, "early-hints", rules.early_hints, defaults.early_hints);
    switch(writer, "no-vary-search", rules.no_vary_search, defaults.no_vary_search);
    if rules.hit_for_miss_s != defaults.hit_for_miss_s {
        writer.begin("hit-for-miss").text(&show_seconds(rules.hit_for_miss_s)).end();
    }
    switch(writer, "close-delimited", rules.close_delimited, defaults.close_delimited);
    switch(writer, "language-select", rules.language_select, defaults.language_select);
    switch(writer, "uneven-parts", rules.uneven_parts, defaults.uneven_parts);
    writer.close();
}

fn query(writer: &mut Writer, key: &QueryKey) {
    let (name, names) = match key {
        QueryKey::All => return,
        QueryKey::Without(names) => ("without", names),
        QueryKey::Only(names) => ("only", names),
    };
    writer.begin("query").open();
    list(writer, name, names);
    writer.close();
}

fn show_seconds(seconds: u32) -> String {
    show_duration(u64::from(seconds) * 1_000)
}
