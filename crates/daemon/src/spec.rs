//! Compilation of the configured sites.

use crate::failure::Failure;
use crate::metrics::encode_metrics;
use crate::status::StatusState;
use flatout_config::model::Config;
use flatout_engine::spec::{PagesShared, Sources, Spec};
use flatout_engine::{MetricsText, SpecError};
use flatout_os::clock::Now;
use flatout_proxy::Accelerator;
use std::sync::{Arc, OnceLock};

/// Returns the source of the content for the `metrics` step: the counters of all workers, once the workers exist.
pub(crate) fn metrics_text(shared: &Arc<OnceLock<Arc<StatusState>>>) -> MetricsText {
    let shared = Arc::clone(shared);
    Arc::new(move |format| {
        let encode = |shared: &Arc<StatusState>| {
            let unsent = shared.unsent.read(Now::read().monotonic_ms);
            encode_metrics(shared, unsent, format)
        };
        shared.get().map(encode).unwrap_or_default()
    })
}

/// Compiles `config`. Unchanged parts keep the state that they learned in `previous`.
///
/// # Errors
/// Returns all problems, such as missing folders, with exit code 2.
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

/// Opens the resources of active pages: secrets, and databases, which are migrated to their current schema. Returns one
/// line for each database to which migrations were applied.
///
/// # Errors
/// Returns all problems, with exit code 2.
pub(crate) fn open_pages(spec: &Spec, config: &Config, workers: usize) -> Result<Vec<String>, Failure> {
    spec.pages().backlog.set_bounds(config.page_output);
    spec.open_pages(workers).map_err(|errors| explain(&errors))
}

/// Creates the failure for `errors`.
pub(crate) fn explain(errors: &[SpecError]) -> Failure {
    let lines: Vec<String> = errors.iter().map(|error| format!("error: {error}")).collect();
    Failure::diagnostics(lines.join("\n"))
}
