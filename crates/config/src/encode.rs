//! A configuration printed as KDL: what is printed reads as the same configuration, places apart.

mod site;
mod writer;

pub(crate) use site::fields as write_fields;
pub(crate) use writer::{SettingWriter, quote};

use crate::model::{Certificate, Config, LOG_MODE_DEFAULT, Log, LogFormat, LogTarget, Place, Rotation, Step, StepKind};
use crate::read::{self, log_format_name, show_duration};
use flatout_units::quantity::exact_size;
use std::path::{Path, PathBuf};

/// Prints a configuration. Includes, the environment and secrets are resolved: their values stand in it.
pub fn to_kdl(config: &Config) -> String {
    let mut writer = SettingWriter::default();
    read::process::write(&mut writer, config);
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
    let mut writer = SettingWriter::default();
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

/// The name under which sites choose a log.
fn log_name(index: usize) -> String {
    format!("log-{index}")
}

fn encode_log(writer: &mut SettingWriter, index: usize, log: &Log) {
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
            writer.property("size", &exact_size(bytes_max));
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
pub(crate) fn path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

pub(crate) fn show_paths(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|shown| path(shown)).collect()
}

/// A log's file whose name would be taken for one of the other targets is written as a path.
fn target_path(file: &Path) -> String {
    let text = path(file);
    if matches!(text.as_str(), "stdout" | "syslog" | "-") { format!("./{text}") } else { text }
}
