//! Why a bench could not run.

use super::PortsShort;
use flatout_load::plan::PlanError;
use std::io;

/// Why a bench could not run. A failing server is a result, not an error.
#[derive(Debug)]
pub enum BenchError {
    /// The URL's host has no address.
    Unresolvable {
        /// The name.
        host: String,
        /// The system's error.
        cause: String,
    },
    /// The plan is invalid.
    Plan(PlanError),
    /// There are too few local ports.
    Ports(PortsShort),
    /// There are no requests.
    NothingToAsk,
    /// An entry of the workload belongs to another server, which is named.
    OtherServer(String),
    /// A request cannot be encoded in the requested HTTP version.
    Request(String),
    /// TLS cannot be configured.
    Tls(String),
    /// The server's own count cannot be read.
    ServerCounters(String),
    /// A client thread could not start, or failed for a reason other than the server.
    Thread(io::Error),
    /// A client thread panicked.
    ThreadPanicked,
    /// There is no memory for a record.
    Recorder,
    /// The bare loop could not be started.
    Responder(io::Error),
}

impl BenchError {
    /// Returns whether the specification is invalid, or impossible on this machine: nothing was sent.
    pub const fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Unresolvable { .. }
                | Self::Plan(_)
                | Self::Ports(_)
                | Self::NothingToAsk
                | Self::OtherServer(_)
                | Self::Request(_)
                | Self::Tls(_)
                | Self::ServerCounters(_)
        )
    }
}

impl std::fmt::Display for BenchError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unresolvable { host, cause } => {
                write!(formatter, "the host {host:?} has no address ({cause}); check its spelling, or give an address")
            }
            Self::Plan(error) => error.fmt(formatter),
            Self::Ports(short) => short.fmt(formatter),
            Self::NothingToAsk => formatter.write_str("the workload has no requests"),
            Self::OtherServer(server) => write!(
                formatter,
                "the workload names another server, {server}; a run measures the one server of its URL"
            ),
            Self::Request(what) => write!(formatter, "the request cannot be written: {what}"),
            Self::Tls(what) => formatter.write_str(what),
            Self::ServerCounters(what) => write!(formatter, "the server's own count cannot be read: {what}"),
            Self::Thread(error) => write!(formatter, "a client thread failed: {error}"),
            Self::ThreadPanicked => formatter.write_str("a client thread panicked, which is a defect of flatout"),
            Self::Recorder => formatter.write_str("not enough memory for the record of a run"),
            Self::Responder(error) => write!(formatter, "the bare loop could not be run: {error}"),
        }
    }
}

impl std::error::Error for BenchError {}
