//! The configuration's sites put to use, and what stands against that.

use crate::failure::Failure;
use crate::metrics::encode_metrics;
use crate::status::Shared;
use flatout_config::model::Config;
use flatout_engine::spec::{PagesShared, Sources, Spec};
use flatout_engine::{MetricsText, SpecError};
use flatout_proxy::Accelerator;
use std::sync::{Arc, OnceLock};

/// What a `metrics` step answers with: what all workers have counted, once they are there.
pub(crate) fn metrics_text(shared: &Arc<OnceLock<Arc<Shared>>>) -> MetricsText {
    let shared = Arc::clone(shared);
    Arc::new(move |format| shared.get().map(|shared| encode_metrics(shared, format)).unwrap_or_default())
}

/// Puts `config` to use; what has not changed since `previous` keeps what was learnt under it.
///
/// # Errors
/// With everything that stands against it, such as a folder that is not there: exit code 2.
pub(crate) fn compile(
    config: &Config,
    previous: Option<&Spec>,
    metrics: &MetricsText,
    accelerator: &Arc<Accelerator>,
    pages: &Arc<PagesShared>,
) -> Result<Arc<Spec>, Failure> {
    let sources = Sources {
        previous,
        metrics: Some(Arc::clone(metrics)),
        accelerator: Some(Arc::clone(accelerator)),
        pages: Some(Arc::clone(pages)),
    };
    Spec::compile(config, &sources).map(Arc::new).map_err(|errors| explain(&errors))
}

/// Opens what active pages keep and ask: databases, brought up to date, and secrets. Returns a line for each database with the
/// migrations that were applied to it.
///
/// # Errors
/// With everything that stands against it: exit code 2.
pub(crate) fn open_pages(spec: &Spec, config: &Config, workers: usize) -> Result<Vec<String>, Failure> {
    spec.pages().backlog.set_bounds(config.page_output);
    spec.open_pages(workers).map_err(|errors| explain(&errors))
}

fn explain(errors: &[SpecError]) -> Failure {
    let lines: Vec<String> = errors.iter().map(|error| format!("error: {error}")).collect();
    Failure::diagnostics(lines.join("\n"))
}
