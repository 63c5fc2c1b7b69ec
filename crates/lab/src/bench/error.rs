//! Why a bench could not be run.

use super::PortsShort;
use crate::url::UrlError;
use flatout_load::plan::PlanError;
use std::io;

/// Why a bench could not be run. A server that fails is no such reason: that is a result.
#[derive(Debug)]
pub enum BenchError {
    /// The URL gives no address.
    Url(UrlError),
    /// The plan cannot be run.
    Plan(PlanError),
    /// There are too few local ports for it.
    Ports(PortsShort),
    /// There is nothing to ask for.
    NothingToAsk,
    /// An entry of the workload is of another server, which is named.
    OtherServer(String),
    /// A request cannot be written in the version of HTTP asked for.
    Request(String),
    /// TLS cannot be set up.
    Tls(String),
    /// The server's own count cannot be read.
    Books(String),
    /// A client thread could not be started, or failed in a way that is not the server's.
    Thread(io::Error),
    /// A client thread ended by a defect of this program.
    ThreadPanicked,
    /// No memory for a record.
    Recorder,
    /// The bare loop could not be started.
    Responder(io::Error),
}

impl BenchError {
    /// Whether what was asked for makes no sense, or cannot be had here: nothing was sent.
    pub const fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Url(_)
                | Self::Plan(_)
                | Self::Ports(_)
                | Self::NothingToAsk
                | Self::OtherServer(_)
                | Self::Request(_)
                | Self::Tls(_)
                | Self::Books(_)
        )
    }
}

impl std::fmt::Display for BenchError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Url(error) => error.fmt(formatter),
            Self::Plan(error) => error.fmt(formatter),
            Self::Ports(short) => short.fmt(formatter),
            Self::NothingToAsk => formatter.write_str("there is nothing to ask for"),
            Self::OtherServer(server) => write!(
                formatter,
                "the workload names another server, {server}; a run measures the one server of its URL"
            ),
            Self::Request(what) => write!(formatter, "the request cannot be written: {what}"),
            Self::Tls(what) => formatter.write_str(what),
            Self::Books(what) => write!(formatter, "the server's own count cannot be read: {what}"),
            Self::Thread(error) => write!(formatter, "a client thread failed: {error}"),
            Self::ThreadPanicked => formatter.write_str("a client thread panicked, which is a defect of flatout"),
            Self::Recorder => formatter.write_str("no memory for the record of a run"),
            Self::Responder(error) => write!(formatter, "the bare loop could not be run: {error}"),
        }
    }
}

impl std::error::Error for BenchError {}
