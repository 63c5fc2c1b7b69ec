//! News about origins and application servers, for operators.

use flatout_balance::group::Change;
use flatout_balance::limit::LimiterStatus;
use std::fmt;
use std::sync::OnceLock;

/// News about an origin or an application server. A server is named as in [`OriginState::server`].
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
        /// The number of the handler, as in [`OriginState::route`].
        route: usize,
        /// The beginning or the end of the failures.
        report: SeriesReport,
    },
}

/// The beginning or the end of a series of failed requests to a server. A beginning that is not reported has no end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeriesReport {
    /// The rest of the line about the first failure.
    Began(String),
    /// The rest of the line about the server that answers again; `None` if a single request failed.
    Ended(Option<String>),
}

/// State of an origin or an application server, for notices to operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginState {
    /// The beginning of a line about the server: what it is, and its address.
    pub server: String,
    /// The number of the handler.
    pub route: usize,
    /// True if the handler has no other server.
    pub is_only: bool,
    /// The change that made the server unavailable; `None` if it is available.
    pub fault: Option<Change>,
    /// The server's load while it has a concurrency limit because of overload.
    pub limited: Option<LimiterStatus>,
}

/// Callback for news.
pub type OnEvent = Box<dyn Fn(OriginEvent) + Send + Sync>;

/// Passes news on to a callback. There is one per process.
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
