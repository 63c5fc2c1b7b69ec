//! What operators ask of the store that holds origins' answers: purges, and rows for `flatout status` and the metrics.
//!
//! Whoever makes the store gives a [`StoreView`] of it to the shared state.
//!
//! Absent by design: the store itself.

use crate::cache::CacheReply;
use crate::purge::{PurgeReply, PurgeRequest};
use flatout_engine::explain::Question;
use serde::{Deserialize, Serialize};

/// What a store can be asked by other threads than its own workers'.
pub trait StoreView: Send + Sync {
    /// Purges, on the caller's thread, which serves nobody; it may take seconds.
    ///
    /// # Errors
    /// With a sentence for people, when it cannot be done.
    fn purge(&self, request: &PurgeRequest) -> Result<PurgeReply, String>;

    /// Tells what the process makes of a request and what is kept for it. Nothing is fetched or changed; disks are read.
    ///
    /// # Errors
    /// With a sentence for people, when it cannot be done.
    fn explain(&self, question: &Question) -> Result<CacheReply, String>;

    /// Rows for `flatout status`, in the order in which they are shown.
    fn status_rows(&self) -> Vec<StatusRow>;

    /// Rows for the metrics. Rows of one name follow one another, and have the same help, kind and label name.
    fn metric_rows(&self) -> Vec<MetricRow>;
}

/// A line of `flatout status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusRow {
    /// One word or two: `memory`, `hits`.
    pub name: String,
    /// For people: `12 MiB of 256 MiB`.
    pub value: String,
}

/// A number of the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricRow {
    /// The name without `flatout_` in front, and without `_total` behind.
    pub name: &'static str,
    /// A sentence.
    pub help: &'static str,
    /// What the number does.
    pub kind: MetricKind,
    /// Names and values of its labels.
    pub labels: Vec<(&'static str, String)>,
    /// The number.
    pub value: u64,
}

/// What a number does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It grows and shrinks.
    Gauge,
}

/// In place of a store, for tests that need none.
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
