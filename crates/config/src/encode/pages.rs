//! Active pages as KDL.

use super::proxy::trust;
use super::site::flag;
use super::{Writer, path};
use crate::model::{PageSettings, Pages};
use crate::read::{show_duration, show_duration_us, show_origin, show_size};

pub(super) fn pages(writer: &mut Writer, name: &str, pages: &Pages) {
    let (settings, defaults) = (&pages.settings, PageSettings::default());
    writer.begin(name).text(&path(&pages.path));
    if *settings == defaults {
        return writer.end();
    }
    writer.open();
    flag(writer, "dev", settings.dev);
    for (name, duration_us, default_us) in [
        ("cpu-slice", settings.cpu_slice_us, defaults.cpu_slice_us),
        ("cpu-limit", settings.cpu_limit_us, defaults.cpu_limit_us),
    ] {
        if duration_us != default_us {
            writer.begin(name).text(&show_duration_us(duration_us)).end();
        }
    }
    if settings.run_ms_max != defaults.run_ms_max {
        writer.begin("run-limit").text(&show_duration(settings.run_ms_max)).end();
    }
    for (name, bytes, default) in [
        ("memory-limit", settings.memory_bytes_max, defaults.memory_bytes_max),
        ("upload-limit", settings.upload_bytes_max, defaults.upload_bytes_max),
        ("form-limit", settings.form_bytes_max, defaults.form_bytes_max),
    ] {
        if bytes != default {
            writer.begin(name).text(&show_size(bytes)).end();
        }
    }
    if let Some(database) = &settings.database {
        writer.begin("database").text(&path(&database.path));
        if let Some(migrations) = &database.migrations {
            writer.property("migrations", &path(migrations));
        }
        if let Some(readers) = database.readers {
            writer.raw_property("readers", &readers.to_string());
        }
        if let Some(duration_ms) = database.statement_ms_max {
            writer.property("statement-timeout", &show_duration(duration_ms));
        }
        if database.syncs_commits {
            writer.property("synchronous", "full");
        }
        writer.end();
    }
    if let Some(secret) = &settings.secret {
        writer.begin("secret").text(&path(secret)).end();
    }
    for (name, origin) in &settings.upstreams {
        writer.begin("upstream").text(name).text(&show_origin(origin)).end();
    }
    trust(writer, &settings.trusted);
    if let Some(recheck_ms) = settings.recheck_ms {
        writer.begin("recheck").text(&show_duration(recheck_ms)).end();
    }
    writer.close();
}
