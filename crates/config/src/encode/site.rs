//! Prints sites and their steps as KDL.

use super::writer::{SettingWriter, path, quote};
use crate::model::{Config, Handler, Matcher, Redirect, Respond, Rewrite, Route, Site, Step, StepKind};
use crate::read::{self, encode_text, guard, operations};

pub(super) fn encode(writer: &mut SettingWriter, config: &Config, site: &Site) {
    writer.begin("site").texts(&site.hosts).block(|writer| {
        for listener in site.listeners.iter().filter_map(|index| config.listeners.get(*index)) {
            read::site::write_listener(writer, listener);
        }
        if let Some(log) = site.log {
            writer.begin("log").property("name", &log_name(log)).end();
        }
        read::site::write(writer, site);
        block(writer, &site.block);
    });
}

fn block(writer: &mut SettingWriter, steps: &[Step]) {
    for step in steps {
        encode_step(writer, &step.kind);
    }
}

pub(super) fn encode_step(writer: &mut SettingWriter, kind: &StepKind) {
    let name = kind.name();
    match kind {
        StepKind::Route(route) => encode_route(writer, route),
        StepKind::Header(list) => operations::write(writer, name, list),
        StepKind::BasicAuth(auth) => guard::write_basic_auth(writer, auth),
        StepKind::Access(access) => guard::write_access(writer, access),
        StepKind::RateLimit(limit) => guard::write_rate_limit(writer, limit),
        StepKind::Cors(cors) => guard::write_cors(writer, cors),
        StepKind::EarlyHints(links) => writer.list(name, links),
        StepKind::Rewrite(Rewrite::StripPrefix(prefix)) => writer.begin(name).property("strip-prefix", prefix).end(),
        StepKind::Rewrite(Rewrite::To(to)) => writer.begin(name).property("to", &encode_text(to)).end(),
        StepKind::ErrorPage(page) => {
            writer.begin(name);
            for status in &page.statuses {
                writer.raw(&status.to_string());
            }
            writer.property("file", &path(&page.file)).end();
        }
        StepKind::Cache(rules) => read::cache::write(writer, rules),
        StepKind::Handler(Handler::Files(folder)) => read::files::write(writer, folder),
        StepKind::Handler(Handler::Redirect(Redirect { to, status })) => {
            writer.begin(name).property("to", &encode_text(to)).raw(&status.to_string()).end();
        }
        StepKind::Handler(Handler::Respond(respond)) => encode_respond(writer, respond),
        StepKind::Handler(Handler::Metrics) => writer.begin(name).end(),
        StepKind::Handler(Handler::Proxy(settings)) => read::proxy::write(writer, settings),
        StepKind::Handler(Handler::Pages(pages) | Handler::Page(pages)) => read::pages::write(writer, name, pages),
        StepKind::Handler(Handler::Php(settings)) => read::php::write(writer, settings),
    }
}

fn encode_route(writer: &mut SettingWriter, route: &Route) {
    writer.begin("route");
    // A single path pattern is written after the name, which is easiest to read.
    let matchers = match &route.matchers[..] {
        [Matcher::Path(patterns)] => {
            writer.texts(patterns);
            &[]
        }
        matchers => matchers,
    };
    writer.block(|writer| {
        for matcher in matchers {
            // Each matcher gets its own block, so that several matchers of the same kind stay separate and in order.
            writer.begin("match").block(|writer| match matcher {
                Matcher::Path(patterns) => writer.list("path", patterns),
                Matcher::Method(methods) => writer.list("method", methods),
                Matcher::Header { name, values } => writer.begin("header").text(name).texts(values).end(),
            });
        }
        block(writer, &route.block);
    });
}

fn encode_respond(writer: &mut SettingWriter, respond: &Respond) {
    writer.begin("respond").raw(&respond.status.to_string());
    if !respond.body.is_empty() {
        writer.raw(&quote(&respond.body));
    }
    writer.property("type", &respond.content_type).end();
}

/// The name by which sites select the log with this index.
pub(super) fn log_name(index: usize) -> String {
    format!("log-{index}")
}
