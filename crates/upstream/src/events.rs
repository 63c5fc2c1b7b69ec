//! Events of origins and application servers that are reported to operators.

use flatout_balance::group::Change;
use flatout_balance::limit::LimiterStatus;
use std::fmt;
use std::sync::OnceLock;

/// An event of an origin or an application server. A server is named as in [`OriginState::server`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginEvent {
    /// Its availability or its concurrency limit has changed; see [`OriginState`].
    Changed,
    /// A reload has changed or removed a handler with these servers. For a changed one, they are now available and have
    /// no limit.
    Renewed(Vec<String>),
    /// Its requests fail, or it answers again.
    Series {
        /// The beginning of a line about it, as in [`OriginState::server`].
        server: String,
        /// The ID of the handler, as in [`OriginState::route`].
        route: u64,
        /// The beginning or the end of the failures.
        report: SeriesReport,
    },
}

/// The beginning or the end of a series of failed requests to a server. A beginning that is not reported has no end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeriesReport {
    /// The rest of the line about a failure: the first one, or the first one that was reported.
    Began(String),
    /// The rest of the line about the server that answers again; `None` if a single request failed.
    Ended(Option<String>),
}

/// State of an origin or an application server, for notices to operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginState {
    /// The beginning of a line about the server: what it is, and its address.
    pub server: String,
    /// The ID of the handler, which is unique in the process.
    pub route: u64,
    /// True if the handler has no other server.
    pub is_only: bool,
    /// The change that made the server unavailable; `None` if it is available.
    pub fault: Option<Change>,
    /// The server's load while it has a concurrency limit because of overload.
    pub limited: Option<LimiterStatus>,
}

/// Callback for events.
pub type OnEvent = Box<dyn Fn(OriginEvent) + Send + Sync>;

/// Passes events to a callback. There is one per process.
#[derive(Default)]
pub struct OriginEvents(OnceLock<OnEvent>);

impl OriginEvents {
    /// Sets the callback. Workers call it, so it must not block. Call this once.
    pub fn listen(&self, tell: OnEvent) {
        // The first callback stays.
        let _ = self.0.set(tell);
    }

    /// Returns whether there is a callback, as in a process that serves.
    pub fn has_listener(&self) -> bool {
        self.0.get().is_some()
    }

    /// Reports a change of an origin's availability or limit, if there is one.
    pub fn tell_change(&self, change: Option<Change>) {
        if change.is_some() {
            self.tell(|| OriginEvent::Changed);
        }
    }

    /// Reports the beginning or the end of failures, if there is one. `name` returns the server's name, as in
    /// [`OriginState::server`].
    pub fn tell_series(&self, name: impl FnOnce() -> String, route: u64, report: Option<SeriesReport>) {
        if let Some(report) = report {
            self.tell(|| OriginEvent::Series { server: name(), route, report });
        }
    }

    /// Reports what `event` returns, if there is a callback.
    pub fn tell(&self, event: impl FnOnce() -> OriginEvent) {
        if let Some(tell) = self.0.get() {
            tell(event());
        }
    }
}

impl fmt::Debug for OriginEvents {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("OriginEvents").field(&self.has_listener()).finish()
    }
}
