//! The messages between a controller and its agents.
//!
//! The sequence is fixed: the agent sends Hello; the controller sends several pings and then the work; the agent
//! reports readiness; the controller sends a start time; the agent reports its result at the end. Meanwhile it
//! receives a ping every second, which proves that it is alive.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Name and number of the protocol, which both sides must share.
pub const PROTOCOL: &str = "flatout-agent/1";

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Message {
    /// Agent: introduces itself.
    Hello {
        /// [`PROTOCOL`].
        protocol: String,
        /// The agent's version of flatout, which must equal the controller's.
        flatout: String,
        /// The agent's name, by default its host name.
        name: String,
        /// Cores available to it.
        cores: u32,
    },
    /// Controller: requests a clock reading.
    Ping {
        /// Repeated in the reply.
        nonce: u64,
    },
    /// Agent: a reading of its monotonic clock.
    Pong {
        /// The ping's nonce.
        nonce: u64,
        /// Nanoseconds of the agent's clock.
        at_ns: u64,
    },
    /// Controller: the work.
    Plan {
        /// The agent's index, from 0.
        index: u32,
        /// Number of agents.
        agents: u32,
        /// The task, in the bench's own form.
        task: Value,
    },
    /// Agent: preparation is complete.
    Ready {},
    /// Controller: the start time.
    Go {
        /// Nanoseconds of the agent's clock.
        at_ns: u64,
    },
    /// Agent: finished. Its record follows.
    Done {
        /// When it began, in nanoseconds of the agent's clock.
        begun_ns: u64,
        /// Results besides the record, in the bench's own form.
        facts: Value,
    },
    /// Agent: it cannot start or continue.
    Failed {
        /// The reason, as text.
        text: String,
    },
    /// Controller: stop early, and send the results so far.
    Stop {},
    /// Controller: the run is over.
    Bye {},
}

impl Message {
    /// Its name, for error messages.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "hello",
            Self::Ping { .. } => "ping",
            Self::Pong { .. } => "pong",
            Self::Plan { .. } => "plan",
            Self::Ready {} => "ready",
            Self::Go { .. } => "go",
            Self::Done { .. } => "done",
            Self::Failed { .. } => "failed",
            Self::Stop {} => "stop",
            Self::Bye {} => "bye",
        }
    }
}
