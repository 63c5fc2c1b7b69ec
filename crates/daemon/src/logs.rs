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
    let fields = log.fields.iter().map(|field| field_of(*field)).collect();
    LogSettings { target, format, fields, rotation, mode: log.mode }
}

fn field_of(field: model::LogField) -> AccessField {
    use model::LogField as Asked;
    match field {
        Asked::Time => AccessField::Time,
        Asked::Client => AccessField::Client,
        Asked::Host => AccessField::Host,
        Asked::Method => AccessField::Method,
        Asked::Target => AccessField::Target,
        Asked::Version => AccessField::Version,
        Asked::Status => AccessField::Status,
        Asked::BodyBytes => AccessField::BodyBytes,
        Asked::Referer => AccessField::Referer,
        Asked::UserAgent => AccessField::UserAgent,
        Asked::Outcome => AccessField::Outcome,
        Asked::Ending => AccessField::Ending,
        Asked::DurationUs => AccessField::DurationUs,
        Asked::Tls => AccessField::Tls,
        Asked::Site => AccessField::Site,
        Asked::User => AccessField::User,
        Asked::Cache => AccessField::Cache,
    }
}

#[cfg(test)]
mod tests {
    use super::field_of;
    use flatout_config::model::LogField;

    #[test]
    fn both_lists_of_fields_have_the_same_names() {
        for (field, name) in LogField::ALL {
            assert_eq!(field_of(*field).name(), *name);
        }
    }
}
