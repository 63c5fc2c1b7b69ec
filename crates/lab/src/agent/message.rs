//! The messages between a controller and its agents.
//!
//! The sequence is fixed. The agent sends Hello; the controller sends several pings and then the work; the agent
//! reports that it is ready; the controller sends a start time; and the agent reports its result at the end. Until
//! then, the controller pings a silent agent every second, to check that it is alive.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Name and version of the protocol, which must be the same on both sides.
pub const PROTOCOL: &str = "flatout-agent/1";

/// A message between a controller and an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Message {
    /// Agent to controller: introduces the agent.
    Hello {
        /// The name and version of the protocol: [`PROTOCOL`].
        protocol: String,
        /// The agent's version of flatout, which must equal the controller's.
        flatout: String,
        /// The agent's name, by default its host name.
        name: String,
        /// Number of cores available to the agent.
        cores: u32,
    },
    /// Controller to agent: requests a clock reading.
    Ping {
        /// A number that the reply repeats.
        nonce: u64,
    },
    /// Agent to controller: a reading of the agent's monotonic clock.
    Pong {
        /// The nonce of the ping.
        nonce: u64,
        /// The reading, in nanoseconds.
        at_ns: u64,
    },
    /// Controller to agent: the work.
    Plan {
        /// Index of the agent's share, from 0.
        index: u32,
        /// Number of agents, each of which has one share.
        agents: u32,
        /// The task, in a format that the bench defines.
        task: Value,
    },
    /// Agent to controller: preparation is complete.
    Ready {},
    /// Controller to agent: the start time.
    Go {
        /// The start time, in nanoseconds on the agent's clock.
        at_ns: u64,
    },
    /// Agent to controller: the work has finished. The agent's record follows.
    Done {
        /// Time at which the work started, in nanoseconds on the agent's clock.
        begun_ns: u64,
        /// Results besides the record, in a format that the bench defines.
        facts: Value,
    },
    /// Agent to controller, or controller to agent: the sender cannot start or continue.
    Failed {
        /// The reason, as text.
        text: String,
    },
    /// Controller to agent: stop early, and send the results so far.
    Stop {},
    /// Controller to agent: the run is over.
    Bye {},
}

impl Message {
    /// Returns the name of the message, for error messages.
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
