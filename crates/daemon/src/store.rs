//! Operators' access to the store of origin responses: purges, and rows for `flatout status` and for the metrics.
//!
//! The code that creates the store provides a [`StoreView`] of it.
//!
//! The store itself is not in this crate.

use crate::cache::CacheReply;
use crate::purge::{PurgeReply, PurgeRequest};
use flatout_engine::explain::Question;
use flatout_overload::QueueReading;
use serde::{Deserialize, Serialize};

/// The interface of a store for threads that are not workers.
pub trait StoreView: Send + Sync {
    /// Purges on the calling thread. This may take seconds, so it must not be called on a worker.
    ///
    /// # Errors
    /// Returns a sentence for display.
    fn purge(&self, request: &PurgeRequest) -> Result<PurgeReply, String>;

    /// Explains how this process would handle a request, and which responses to it are stored. Nothing is fetched or
    /// changed, but disks are read.
    ///
    /// # Errors
    /// Returns a sentence for display.
    fn explain(&self, question: &Question) -> Result<CacheReply, String>;

    /// Returns rows for `flatout status`, in display order.
    fn status_rows(&self) -> Vec<StatusRow>;

    /// Returns rows for the metrics. Rows with the same name are consecutive, and have the same help, kind and label
    /// names.
    fn metric_rows(&self) -> Vec<MetricRow>;

    /// Returns the queues of requests, by name.
    fn queues(&self) -> Vec<(String, QueueReading)>;
}

/// A row of `flatout status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusRow {
    /// A name of one or two words, such as `memory` or `hits`.
    pub name: String,
    /// The value for display, such as `12 MiB of 256 MiB`.
    pub value: String,
}

/// A value of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricRow {
    /// The metric's name, without the prefix `flatout_` and the suffix `_total`.
    pub name: &'static str,
    /// A sentence that describes the metric.
    pub help: &'static str,
    /// The kind of metric.
    pub kind: MetricKind,
    /// The names and values of the labels.
    pub labels: Vec<(&'static str, String)>,
    /// The value of the metric.
    pub value: u64,
}

/// The kind of a metric, as defined by Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A value that only increases.
    Counter,
    /// A value that increases and decreases.
    Gauge,
}

/// An empty store, for tests that need none.
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

    fn queues(&self) -> Vec<(String, QueueReading)> {
        Vec::new()
    }
}
