//! The reason a bench could not run.

use super::PortsShort;
use flatout_load::plan::PlanError;
use std::io;

/// The reason a bench could not run. A failing server is a result, not an error.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The URL's host name has no address.
    #[error("cannot resolve the host {host:?} ({cause}); check its spelling, or use an IP address")]
    Unresolvable {
        /// The host name.
        host: String,
        /// The system's error.
        cause: String,
    },
    /// The plan is invalid.
    #[error("{0}")]
    Plan(PlanError),
    /// There are too few local ports.
    #[error("{0}")]
    Ports(PortsShort),
    /// There are no requests.
    #[error("the workload has no requests")]
    NothingToAsk,
    /// An entry of the workload belongs to another server. Contains the server's name.
    #[error("the workload names another server, {0}; a run measures only the server in its URL")]
    OtherServer(String),
    /// A request cannot be encoded in the requested HTTP version.
    #[error("the request cannot be written: {0}")]
    Request(String),
    /// Placeholders are to be filled, but there are none.
    #[error(
        "--fill is given, but no URL, header or body has a placeholder; write {{seq}}, {{uuid}} or {{random:1-100}}, or \
         remove --fill"
    )]
    NothingToFill,
    /// TLS cannot be configured.
    #[error("{0}")]
    Tls(String),
    /// The server's own counts cannot be read.
    #[error("the server's own count cannot be read: {0}")]
    ServerCounters(String),
    /// A client thread could not start, or failed for a reason other than the server.
    #[error("a client thread failed: {0}")]
    Thread(io::Error),
    /// A client thread panicked.
    #[error("a client thread panicked, which is a bug in flatout")]
    ThreadPanicked,
    /// There is not enough memory for a record.
    #[error("not enough memory to record a run")]
    Recorder,
    /// The bare loop could not be started.
    #[error("the bare loop could not be run: {0}")]
    Responder(io::Error),
}

impl BenchError {
    /// Returns whether the specification is invalid, or cannot be run on this machine. If so, nothing was sent.
    pub const fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Unresolvable { .. }
                | Self::Plan(_)
                | Self::Ports(_)
                | Self::NothingToAsk
                | Self::OtherServer(_)
                | Self::Request(_)
                | Self::NothingToFill
                | Self::Tls(_)
                | Self::ServerCounters(_)
        )
    }
}
