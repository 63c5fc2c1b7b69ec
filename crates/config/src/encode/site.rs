//! Sites and their steps as KDL.

use super::{SettingWriter, log_name, path, quote};
use crate::model::{
    Access, BasicAuth, Certificate, Config, Cors, ErrorPage, FieldOp, Handler, Matcher, Network, Protocol, RateLimit,
    Redirect, Respond, Rewrite, Route, Site, Step, StepKind,
};
use crate::read::{self, RECHECK_MS_DEFAULT, encode_text, show_duration};

pub(super) fn encode(writer: &mut SettingWriter, config: &Config, site: &Site) {
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

fn block(writer: &mut SettingWriter, steps: &[Step]) {
    for step in steps {
        encode_step(writer, &step.kind);
    }
}

pub(super) fn encode_step(writer: &mut SettingWriter, kind: &StepKind) {
    match kind {
        StepKind::Route(route) => encode_route(writer, route),
        StepKind::Header(operations) => fields(writer, "header", operations),
        StepKind::BasicAuth(auth) => basic_auth(writer, auth),
        StepKind::Access(access) => encode_access(writer, access),
        StepKind::RateLimit(limit) => rate_limit(writer, *limit),
        StepKind::Cors(cors) => encode_cors(writer, cors),
        StepKind::EarlyHints(links) => writer.list("early-hints", links),
        StepKind::Rewrite(rewrite) => encode_rewrite(writer, rewrite),
        StepKind::ErrorPage(page) => error_page(writer, page),
        StepKind::Handler(Handler::Files(folder)) => read::files::write(writer, folder),
        StepKind::Handler(Handler::Redirect(redirect)) => encode_redirect(writer, redirect),
        StepKind::Handler(Handler::Respond(respond)) => encode_respond(writer, respond),
        StepKind::Handler(Handler::Metrics) => writer.begin("metrics").end(),
        StepKind::Cache(rules) => read::cache::write(writer, rules),
        StepKind::Handler(Handler::Proxy(settings)) => read::proxy::write(writer, settings),
        StepKind::Handler(Handler::Pages(folder)) => read::pages::write(writer, "pages", folder),
        StepKind::Handler(Handler::Page(page)) => read::pages::write(writer, "page", page),
        StepKind::Handler(Handler::Php(settings)) => read::php::write(writer, settings),
    }
}

fn encode_route(writer: &mut SettingWriter, route: &Route) {
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
fn matchers(writer: &mut SettingWriter, matchers: &[Matcher]) {
    for matcher in matchers {
        writer.begin("match").open();
        match matcher {
            Matcher::Path(patterns) => writer.list("path", patterns),
            Matcher::Method(methods) => writer.list("method", methods),
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
pub(crate) fn fields(writer: &mut SettingWriter, name: &str, operations: &[FieldOp]) {
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

fn basic_auth(writer: &mut SettingWriter, auth: &BasicAuth) {
    writer.begin("basic-auth").property("realm", &auth.realm).open();
    for (name, hash) in &auth.users {
        writer.begin("user").text(name).text(hash).end();
    }
    writer.close();
}

fn encode_access(writer: &mut SettingWriter, access: &Access) {
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

fn rate_limit(writer: &mut SettingWriter, limit: RateLimit) {
    writer.begin("rate-limit").raw_property("requests", &limit.requests.to_string());
    writer.property("period", &show_duration(limit.period_ms)).raw_property("burst", &limit.burst.to_string()).end();
}

fn encode_cors(writer: &mut SettingWriter, cors: &Cors) {
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
    writer.list("methods", &cors.methods);
    writer.list("headers", &cors.headers);
    writer.list("expose", &cors.expose);
    writer.close();
}

fn encode_rewrite(writer: &mut SettingWriter, rewrite: &Rewrite) {
    writer.begin("rewrite");
    match rewrite {
        Rewrite::StripPrefix(prefix) => writer.property("strip-prefix", prefix),
        Rewrite::To(to) => writer.property("to", &encode_text(to)),
    };
    writer.end();
}

fn error_page(writer: &mut SettingWriter, page: &ErrorPage) {
    writer.begin("error");
    for status in &page.statuses {
        writer.raw(&status.to_string());
    }
    writer.property("file", &path(&page.file)).end();
}

fn encode_redirect(writer: &mut SettingWriter, redirect: &Redirect) {
    writer.begin("redirect").property("to", &encode_text(&redirect.to)).raw(&redirect.status.to_string()).end();
}

fn encode_respond(writer: &mut SettingWriter, respond: &Respond) {
    writer.begin("respond").raw(&respond.status.to_string());
    if !respond.body.is_empty() {
        writer.raw(&quote(&respond.body));
    }
    writer.property("type", &respond.content_type).end();
}
