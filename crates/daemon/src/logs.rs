//! The configuration's logs as settings of the log writer.

use flatout_config::model::{self, Config};
use flatout_net::access::{AccessField, Format, LogDestination, LogSettings, Rotation};

/// The logs of `config`, by index.
pub(crate) fn log_settings(config: &Config) -> Vec<LogSettings> {
    config.logs.iter().map(settings).collect()
}

/// Returns whether any log uses standard output, which is then reserved for it.
pub(crate) fn any_on_stdout(config: &Config) -> bool {
    config.logs.iter().any(|log| log.target == model::LogTarget::Stdout)
}

fn settings(log: &model::Log) -> LogSettings {
    let target = match &log.target {
        model::LogTarget::File(path) => LogDestination::File(path.clone()),
        model::LogTarget::Stdout => LogDestination::Stdout,
        model::LogTarget::Syslog(path) => LogDestination::Syslog(path.clone()),
    };
    let format = match log.format {
        model::LogFormat::Combined => Format::Combined,
        model::LogFormat::Short => Format::Short,
        model::LogFormat::Json => Format::Json,
    };
    let rotation =
        Rotation { bytes_max: log.rotation.bytes_max, age_max_s: log.rotation.age_max_s, keep: log.rotation.keep };
    let fields = log.fields.iter().filter_map(|name| field_of(name)).collect();
    LogSettings { target, format, fields, rotation, mode: log.mode }
}

fn field_of(name: &str) -> Option<AccessField> {
    AccessField::ALL.iter().find(|field| field.name() == name).copied()
}

#[cfg(test)]
mod tests {
    use super::{AccessField, field_of};
    use flatout_config::model::LOG_FIELDS;

    #[test]
    fn both_lists_of_fields_have_the_same_names() {
        assert_eq!(AccessField::ALL.len(), LOG_FIELDS.len());
        for name in LOG_FIELDS {
            assert!(field_of(name).is_some(), "{name}");
        }
    }
}
