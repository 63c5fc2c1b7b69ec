//! Sites and their steps as KDL.

use super::{Writer, log_name, pages, path, php, proxy, quote};
use crate::model::{
    Access, BasicAuth, Certificate, Coding, Config, Cors, ErrorPage, FieldOp, Files, Handler, Matcher, Network,
    Protocol, RateLimit, Redirect, Respond, Rewrite, Route, Site, Step, StepKind, TryTarget,
};
use crate::read::{ENDINGS, LISTING_ENTRIES_DEFAULT, RECHECK_MS_DEFAULT, encode_text, files_defaults, show_duration};

pub(super) fn encode(writer: &mut Writer, config: &Config, site: &Site) {
    writer.begin("site");
    for host in &site.hosts {
        writer.text(host);
    }
    writer.open();
    for listener in site.listeners.iter().filter_map(|index| config.listeners.get(*index)) {
        writer.begin("listen").text(&listener.address.to_string());
        if listener.protocol == Protocol::Tls {
            writer.raw_property("tls", "#true");
        }
        if listener.http2_cleartext {
            writer.raw_property("h2c", "#true");
        }
        if let Some(port) = listener.redirect_https_port {
            writer.raw_property("redirect-https", &port.to_string());
        }
        writer.end();
    }
    match &site.certificate {
        Some(Certificate::Internal) => writer.begin("tls").text("internal").end(),
        Some(Certificate::Files { chain, key, .. }) => {
            writer.begin("tls").property("cert", &path(chain)).property("key", &path(key)).end();
        }
        None => {}
    }
    if let Some(log) = site.log {
        writer.begin("log").property("name", &log_name(log)).end();
    }
    if site.recheck_ms != RECHECK_MS_DEFAULT {
        writer.begin("recheck").text(&show_duration(site.recheck_ms)).end();
    }
    if site.watch {
        writer.begin("watch").raw("#true").end();
    }
    block(writer, &site.block);
    writer.close();
}

fn block(writer: &mut Writer, steps: &[Step]) {
    for step in steps {
        encode_step(writer, &step.kind);
    }
}

pub(super) fn encode_step(writer: &mut Writer, kind: &StepKind) {
    match kind {
        StepKind::Route(route) => encode_route(writer, route),
        StepKind::Header(operations) => fields(writer, "header", operations),
        StepKind::BasicAuth(auth) => basic_auth(writer, auth),
        StepKind::Access(access) => encode_access(writer, access),
        StepKind::RateLimit(limit) => rate_limit(writer, *limit),
        StepKind::Cors(cors) => encode_cors(writer, cors),
        StepKind::EarlyHints(links) => list(writer, "early-hints", links),
        StepKind::Rewrite(rewrite) => encode_rewrite(writer, rewrite),
        StepKind::ErrorPage(page) => error_page(writer, page),
        StepKind::Handler(Handler::Files(folder)) => files(writer, folder),
        StepKind::Handler(Handler::Redirect(redirect)) => encode_redirect(writer, redirect),
        StepKind::Handler(Handler::Respond(respond)) => encode_respond(writer, respond),
        StepKind::Handler(Handler::Metrics) => writer.begin("metrics").end(),
        StepKind::Cache(rules) => proxy::cache(writer, rules),
        StepKind::Handler(Handler::Proxy(settings)) => proxy::proxy(writer, settings),
        StepKind::Handler(Handler::Pages(folder)) => pages::pages(writer, "pages", folder),
        StepKind::Handler(Handler::Page(page)) => pages::pages(writer, "page", page),
        StepKind::Handler(Handler::Php(settings)) => php::php(writer, settings),
    }
}

/// A setting with texts; none at all when there are none.
pub(super) fn list<T: AsRef<str>>(writer: &mut Writer, name: &str, texts: &[T]) {
    if texts.is_empty() {
        return;
    }
    writer.begin(name);
    for text in texts {
        writer.text(text.as_ref());
    }
    writer.end();
}

fn encode_route(writer: &mut Writer, route: &Route) {
    writer.begin("route");
    // A pattern alone reads best behind the name.
    if let [Matcher::Path(patterns)] = &route.matchers[..] {
        for pattern in patterns {
            writer.text(pattern);
        }
        writer.open();
    } else {
        writer.open();
        matchers(writer, &route.matchers);
    }
    block(writer, &route.block);
    writer.close();
}

/// Each in a block of its own, so that several of a kind can stand beside one another in their order.
fn matchers(writer: &mut Writer, matchers: &[Matcher]) {
    for matcher in matchers {
        writer.begin("match").open();
        match matcher {
            Matcher::Path(patterns) => list(writer, "path", patterns),
            Matcher::Method(methods) => list(writer, "method", methods),
            Matcher::Header { name, values } => {
                writer.begin("header").text(name);
                for value in values {
                    writer.text(value);
                }
                writer.end();
            }
        }
        writer.close();
    }
}

/// Changes of fields.
pub(super) fn fields(writer: &mut Writer, name: &str, operations: &[FieldOp]) {
    writer.begin(name).open();
    for operation in operations {
        match operation {
            FieldOp::Set(name, value) => writer.begin("set").text(name).text(value).end(),
            FieldOp::Add(name, value) => writer.begin("add").text(name).text(value).end(),
            FieldOp::Remove(name) => writer.begin("remove").text(name).end(),
        }
    }
    writer.close();
}

fn basic_auth(writer: &mut Writer, auth: &BasicAuth) {
    writer.begin("basic-auth").property("realm", &auth.realm).open();
    for (name, hash) in &auth.users {
        writer.begin("user").text(name).text(hash).end();
    }
    writer.close();
}

fn encode_access(writer: &mut Writer, access: &Access) {
    writer.begin("access").open();
    for (allow, network) in &access.rules {
        writer.begin(if *allow { "allow" } else { "deny" });
        match network {
            Network::All => writer.text("all"),
            Network::Cidr(cidr) => writer.text(&format!("{}/{}", cidr.address, cidr.bits)),
        };
        writer.end();
    }
    writer.close();
}

fn rate_limit(writer: &mut Writer, limit: RateLimit) {
    writer.begin("rate-limit").raw_property("requests", &limit.requests.to_string());
    writer.property("period", &show_duration(limit.period_ms)).raw_property("burst", &limit.burst.to_string()).end();
}

fn encode_cors(writer: &mut Writer, cors: &Cors) {
    writer.begin("cors");
    for origin in &cors.origins {
        writer.text(origin);
    }
    if cors.credentials {
        writer.raw_property("credentials", "#true");
    }
    if let Some(max_age_s) = cors.max_age_s {
        writer.property("max-age", &show_duration(u64::from(max_age_s) * 1_000));
    }
    writer.open();
    list(writer, "methods", &cors.methods);
    list(writer, "headers", &cors.headers);
    list(writer, "expose", &cors.expose);
    writer.close();
}

fn encode_rewrite(writer: &mut Writer, rewrite: &Rewrite) {
    writer.begin("rewrite");
    match rewrite {
        Rewrite::StripPrefix(prefix) => writer.property("strip-prefix", prefix),
        Rewrite::To(to) => writer.property("to", &encode_text(to)),
    };
    writer.end();
}

fn error_page(writer: &mut Writer, page: &ErrorPage) {
    writer.begin("error");
    for status in &page.statuses {
        writer.raw(&status.to_string());
    }
    writer.property("file", &path(&page.file)).end();
}

fn encode_redirect(writer: &mut Writer, redirect: &Redirect) {
    writer.begin("redirect").property("to", &encode_text(&redirect.to)).raw(&redirect.status.to_string()).end();
}

fn encode_respond(writer: &mut Writer, respond: &Respond) {
    writer.begin("respond").raw(&respond.status.to_string());
    if !respond.body.is_empty() {
        writer.raw(&quote(&respond.body));
    }
    writer.property("type", &respond.content_type).end();
}

fn files(writer: &mut Writer, files: &Files) {
    let defaults = files_defaults();
    writer.begin("files").text(&path(&files.root));
    if *files == (Files { root: files.root.clone(), ..defaults.clone() }) {
        return writer.end();
    }
    writer.open();
    if files.index != defaults.index {
        list_or_off(writer, "index", &files.index);
    }
    if let Some(listing) = files.listing {
        writer.begin("listing").raw("#true");
        if listing.entries_max != LISTING_ENTRIES_DEFAULT {
            writer.raw_property("entries", &listing.entries_max.to_string());
        }
        writer.end();
    }
    flag(writer, "hidden", files.hidden);
    if !files.follow_links.is_empty() {
        writer.begin("follow-links");
        for folder in &files.follow_links {
            writer.text(&path(folder));
        }
        writer.end();
    }
    if !files.try_targets.is_empty() {
        writer.begin("try");
        for target in &files.try_targets {
            match target {
                TryTarget::File(text) => writer.text(&encode_text(text)),
                TryTarget::Status(status) => writer.text(&format!("={status}")),
            };
        }
        writer.end();
    }
    if files.compress != defaults.compress {
        let names: Vec<&str> = files.compress.iter().map(|coding| coding.name()).collect();
        list_or_off(writer, "compress", &names);
    }
    if files.precompressed != defaults.precompressed {
        let names: Vec<&str> = files.precompressed.iter().map(|coding| ending(*coding)).collect();
        list_or_off(writer, "precompressed", &names);
    }
    if files.digest {
        writer.begin("digest").raw("#true");
        if files.digest_always {
            writer.raw_property("always", "#true");
        }
        writer.end();
    }
    flag(writer, "content-md5", files.content_md5);
    for (kind, value) in &files.cache_control {
        writer.begin("cache-control").text(kind).text(value).end();
    }
    for (kind, seconds) in &files.expires {
        writer.begin("expires").text(kind).text(&show_duration(u64::from(*seconds) * 1_000)).end();
    }
    flag(writer, "pass", files.pass);
    writer.close();
}

fn ending(coding: Coding) -> &'static str {
    ENDINGS.iter().find(|(known, _)| *known == coding).map_or("", |(_, ending)| *ending)
}

pub(super) fn flag(writer: &mut Writer, name: &str, on: bool) {
    if on {
        writer.begin(name).raw("#true").end();
    }
}

pub(super) fn list_or_off<T: AsRef<str>>(writer: &mut Writer, name: &str, texts: &[T]) {
    if texts.is_empty() {
        writer.begin(name).raw_property("off", "#true").end();
    } else {
        list(writer, name, texts);
    }
}
