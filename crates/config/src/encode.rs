//! A configuration printed as KDL: what is printed reads as the same configuration, places apart.

mod pages;
mod php;
mod proxy;
mod site;
mod writer;

pub(crate) use writer::{Writer, quote};

use crate::model::{
    Admin, CacheBudget, Certificate, Config, LOG_MODE_DEFAULT, Log, LogFormat, LogTarget, PageOutputBudget, Place,
    Rotation, Sockets, Step, StepKind, StoreBudget, Timeouts,
};
use crate::read::{log_format_name, show_duration, show_size};
use std::path::Path;

/// Prints a configuration. Includes, the environment and secrets are resolved: their values stand in it.
pub fn to_kdl(config: &Config) -> String {
    let mut writer = Writer::default();
    process(&mut writer, config);
    for (index, log) in config.logs.iter().enumerate() {
        encode_log(&mut writer, index, log);
    }
    for site in &config.sites {
        writer.blank();
        site::encode(&mut writer, config, site);
    }
    writer.finish()
}

/// Prints one step; of a route, its conditions only.
pub fn step_to_kdl(step: &Step) -> String {
    let mut writer = Writer::default();
    match &step.kind {
        StepKind::Route(route) => {
            let route = crate::model::Route { matchers: route.matchers.clone(), block: Vec::new() };
            site::encode_step(&mut writer, &StepKind::Route(route));
        }
        kind => site::encode_step(&mut writer, kind),
    }
    writer.finish()
}

/// The same without places and without the names of the files that were read: what two texts may have in common.
pub fn without_places(config: &Config) -> Config {
    let mut config = config.clone();
    config.files.clear();
    for listener in &mut config.listeners {
        listener.place = Place::default();
    }
    for log in &mut config.logs {
        log.place = Place::default();
    }
    for site in &mut config.sites {
        site.place = Place::default();
        if let Some(Certificate::Files { place, .. }) = &mut site.certificate {
            *place = Place::default();
        }
        clear_places(&mut site.block);
    }
    config
}

/// As deep as blocks are nested, which the grammar bounds.
fn clear_places(block: &mut [Step]) {
    for step in block {
        step.place = Place::default();
        if let StepKind::Route(route) = &mut step.kind {
            clear_places(&mut route.block);
        }
    }
}

fn process(writer: &mut Writer, config: &Config) {
    if let Some(workers) = config.workers {
        writer.begin("workers").raw(&workers.to_string()).end();
    }
    if let Some(user) = &config.user {
        writer.begin("user").text(user);
        if let Some(group) = &config.group {
            writer.property("group", group);
        }
        writer.end();
    }
    if let Some(open_files) = config.open_files {
        writer.begin("open-files").raw(&open_files.to_string()).end();
    }
    if config.landlock {
        writer.begin("landlock").raw("#true").end();
    }
    if let Some(state) = &config.state {
        writer.begin("state").text(&path(state)).end();
    }
    match &config.admin {
        Admin::Default => {}
        Admin::Off => {
            writer.begin("admin").raw_property("off", "#true").end();
        }
        Admin::Path(socket) => {
            writer.begin("admin").text(&path(socket)).end();
        }
    }
    if config.timeouts != Timeouts::default() {
        encode_timeouts(writer, &config.timeouts);
    }
    if config.sockets != Sockets::default() {
        encode_sockets(writer, &config.sockets);
    }
    if config.cache != CacheBudget::default() {
        writer.begin("cache").property("memory", &show_size(config.cache.bytes_max as u64));
        writer.raw_property("entries", &config.cache.entries_max.to_string()).end();
    }
    if config.page_output != PageOutputBudget::default() {
        let PageOutputBudget { memory_bytes_max, disk_bytes_max } = config.page_output;
        writer.begin("page-output").property("memory", &show_size(memory_bytes_max));
        writer.property("disk", &show_size(disk_bytes_max)).end();
    }
    if config.store != StoreBudget::default() {
        proxy::store(writer, &config.store);
    }
}

fn encode_timeouts(writer: &mut Writer, timeouts: &Timeouts) {
    writer.begin("timeouts").open();
    for (name, timeout_ms) in [
        ("idle", timeouts.idle_timeout_ms),
        ("head", timeouts.head_timeout_ms),
        ("body", timeouts.body_timeout_ms),
        ("stream", timeouts.stream_timeout_ms),
        ("write", timeouts.write_timeout_ms),
        ("handshake", timeouts.handshake_timeout_ms),
        ("drain", timeouts.drain_timeout_ms),
    ] {
        writer.begin(name).text(&show_duration(timeout_ms)).end();
    }
    writer.close();
}

/// What differs from the defaults.
fn encode_sockets(writer: &mut Writer, sockets: &Sockets) {
    let usual = Sockets::default();
    writer.begin("sockets").open();
    for (name, asked, usual) in [
        ("reuseport", sockets.reuseport, usual.reuseport),
        ("defer-accept", sockets.defer_accept, usual.defer_accept),
        ("nodelay", sockets.nodelay, usual.nodelay),
        ("quickack", sockets.quickack, usual.quickack),
        ("sendfile", sockets.sendfile, usual.sendfile),
    ] {
        if asked != usual {
            writer.begin(name).raw(if asked { "#true" } else { "#false" }).end();
        }
    }
    for (name, asked, usual) in [
        ("backlog", sockets.backlog, usual.backlog),
        ("accept-batch", sockets.accept_batch, usual.accept_batch),
        ("busy-poll-us", sockets.busy_poll_us, usual.busy_poll_us),
    ] {
        if asked != usual {
            writer.begin(name).raw(&asked.to_string()).end();
        }
    }
    writer.close();
}

/// The name under which sites choose a log.
fn log_name(index: usize) -> String {
    format!("log-{index}")
}

fn encode_log(writer: &mut Writer, index: usize, log: &Log) {
    writer.begin("log");
    match &log.target {
        LogTarget::Stdout => writer.text("stdout"),
        LogTarget::Syslog(socket) => writer.text("syslog").property("path", &path(socket)),
        LogTarget::File(file) => writer.text(&target_path(file)),
    };
    writer.property("name", &log_name(index));
    if log.format != LogFormat::default() {
        writer.property("format", log_format_name(log.format));
    }
    if log.fields.is_empty() && log.rotation == Rotation::default() && log.mode == LOG_MODE_DEFAULT {
        writer.end();
        return;
    }
    writer.open();
    if !log.fields.is_empty() {
        writer.begin("fields");
        for field in &log.fields {
            let name = crate::model::LogField::ALL.iter().find(|(known, _)| known == field);
            writer.text(name.map_or("", |(_, name)| name));
        }
        writer.end();
    }
    if log.rotation != Rotation::default() {
        writer.begin("rotate");
        if let Some(bytes_max) = log.rotation.bytes_max {
            writer.property("size", &show_size(bytes_max));
        }
        if let Some(age_max_s) = log.rotation.age_max_s {
            writer.property("age", &show_duration(age_max_s.saturating_mul(1_000)));
        }
        writer.raw_property("keep", &log.rotation.keep.to_string()).end();
    }
    if log.mode != LOG_MODE_DEFAULT {
        writer.begin("mode").text(&format!("{:04o}", log.mode)).end();
    }
    writer.close();
}

/// A path as a text. What is not UTF-8 cannot be written in KDL; nothing that was read from KDL is.
fn path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// A log's file whose name would be taken for one of the other targets is written as a path.
fn target_path(file: &Path) -> String {
    let text = path(file);
    if matches!(text.as_str(), "stdout" | "syslog" | "-") { format!("./{text}") } else { text }
}
