//! A configuration printed as KDL: what is printed reads as the same configuration, places apart.

mod site;
mod writer;

pub(crate) use site::fields as write_fields;
pub(crate) use writer::{SettingWriter, quote};

use crate::model::{Certificate, Config, Place, Step, StepKind};
use crate::read;
use std::path::Path;

/// Prints a configuration. Includes, the environment and secrets are resolved: their values stand in it.
pub fn to_kdl(config: &Config) -> String {
    let mut writer = SettingWriter::default();
    read::process::write(&mut writer, config);
    for (index, log) in config.logs.iter().enumerate() {
        read::log::write(&mut writer, &log_name(index), &log.settings);
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

/// A path as a text. What is not UTF-8 cannot be written in KDL; nothing that was read from KDL is.
pub(crate) fn path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
