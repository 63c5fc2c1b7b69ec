//! Operators' access to the store of origin responses: purges, and rows for `flatout status` and the metrics.
//!
//! The creator of the store provides a [`StoreView`] of it for the shared state.
//!
//! Absent by design: the store itself.

use crate::cache::CacheReply;
use crate::purge::{PurgeReply, PurgeRequest};
use flatout_engine::explain::Question;
use serde::{Deserialize, Serialize};

/// A store's interface for threads other than its workers.
pub trait StoreView: Send + Sync {
    /// Purges on the calling thread; it may take seconds, so never call it on a worker.
    ///
    /// # Errors
    /// A sentence for display.
    fn purge(&self, request: &PurgeRequest) -> Result<PurgeReply, String>;

    /// Explains the process's handling of a request and the stored responses. Nothing is fetched or changed; disks
    /// are read.
    ///
    /// # Errors
    /// A sentence for display.
    fn explain(&self, question: &Question) -> Result<CacheReply, String>;

    /// Rows for `flatout status`, in display order.
    fn status_rows(&self) -> Vec<StatusRow>;

    /// Rows for the metrics. Rows of one name are consecutive, and have the same help, kind and label names.
    fn metric_rows(&self) -> Vec<MetricRow>;
}

/// A line of `flatout status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusRow {
    /// One or two words: `memory`, `hits`.
    pub name: String,
    /// Display text: `12 MiB of 256 MiB`.
    pub value: String,
}

/// A value of the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricRow {
    /// The name without the prefix `flatout_` and the suffix `_total`.
    pub name: &'static str,
    /// A sentence.
    pub help: &'static str,
    /// The kind of metric.
    pub kind: MetricKind,
    /// Names and values of its labels.
    pub labels: Vec<(&'static str, String)>,
    /// The number.
    pub value: u64,
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only increases.
    Counter,
    /// It increases and decreases.
    Gauge,
}

/// The empty store, for tests that need none.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NoStore;

#[cfg(test)]
impl StoreView for NoStore {
    fn purge(&self, _: &PurgeRequest) -> Result<PurgeReply, String> {
        Err("no cache is configured, so there is nothing to purge".to_owned())
    }

    fn explain(&self, _: &Question) -> Result<CacheReply, String> {
        Err("no cache is configured, so there is nothing to explain".to_owned())
    }

    fn status_rows(&self) -> Vec<StatusRow> {
        Vec::new()
    }

    fn metric_rows(&self) -> Vec<MetricRow> {
        Vec::new()
    }
}
