//! Prints a configuration as KDL. Reading the output yields the same configuration, except for places.

mod site;
pub(crate) mod writer;

use crate::model::{Certificate, Config, Place, Step, StepKind};
use crate::read;
use site::log_name;
use writer::{SettingWriter, quote};

/// Prints a configuration as KDL. Includes, environment variables and secrets are resolved, so the output contains
/// their values.
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

/// Prints a step as KDL; of a route, prints only the conditions.
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

/// Replaces secrets in the output of [`step_to_kdl`]. A secret of fewer than 8 bytes is replaced only where it is a
/// whole value, because part of another string may equal it by chance.
pub fn hide_secrets(text: &str, secrets: &[String]) -> String {
    const BYTES_MIN: usize = 8;
    let mut text = text.to_owned();
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        let quoted = quote(secret);
        text = text.replace(&quoted, "\"(secret)\"");
        if secret.len() >= BYTES_MIN {
            text = text.replace(quoted.trim_matches('"'), "(secret)");
        }
    }
    text
}

/// Returns a copy of the configuration without places, file names and secrets, so that two configurations can be
/// compared.
pub fn without_places(config: &Config) -> Config {
    let mut config = config.clone();
    config.files.clear();
    config.secrets.clear();
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

/// Recursion is as deep as blocks are nested, which the grammar limits.
fn clear_places(block: &mut [Step]) {
    for step in block {
        step.place = Place::default();
        if let StepKind::Route(route) = &mut step.kind {
            clear_places(&mut route.block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{hide_secrets, quote};

    #[test]
    fn secrets_are_hidden_whole_and_within_a_text() {
        let secrets = ["a \"quoted\" key".to_owned(), "short".to_owned(), String::new()];
        let text =
            format!("set {} {} \"shorter\" \"\" {}", quote(&secrets[0]), quote("short"), quote("X: a \"quoted\" key"));
        let hidden = "set \"(secret)\" \"(secret)\" \"shorter\" \"\" \"X: (secret)\"";
        assert_eq!(hide_secrets(&text, &secrets), hidden);
        assert_eq!(hide_secrets(&text, &[]), text);
    }
}
