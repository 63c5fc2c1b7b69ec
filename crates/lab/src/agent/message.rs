//! What a controller and its agents say to each other.
//!
//! The order is fixed: the agent greets; the controller asks the time a few times and gives out the work; the agent says
//! it is ready; the controller names a moment; the agent tells, at the end, what came of it. Meanwhile it is asked the
//! time once a second, which shows that it lives.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Name and number of the protocol. Both sides must have the same.
pub const PROTOCOL: &str = "flatout-agent/1";

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Message {
    /// Agent: who it is.
    Hello {
        /// [`PROTOCOL`].
        protocol: String,
        /// The agent's version of flatout. Another one than the controller's would measure with another rule.
        flatout: String,
        /// What the agent calls itself, by default its host's name.
        name: String,
        /// Cores it may use.
        cores: u32,
    },
    /// Controller: what time is it with you?
    Ping {
        /// Comes back in the answer.
        nonce: u64,
    },
    /// Agent: the time, by its own monotonic clock.
    Pong {
        /// That of the question.
        nonce: u64,
        /// Nanoseconds of the agent's clock.
        at_ns: u64,
    },
    /// Controller: what to do.
    Plan {
        /// Which of the agents this is, from 0.
        index: u32,
        /// How many there are.
        agents: u32,
        /// The task. Its form is the bench's own.
        task: Value,
    },
    /// Agent: everything is prepared.
    Ready {},
    /// Controller: begin then.
    Go {
        /// Nanoseconds of the agent's clock.
        at_ns: u64,
    },
    /// Agent: done. Its record follows.
    Done {
        /// When it began, in nanoseconds of the agent's clock.
        begun_ns: u64,
        /// What it knows besides the record. Its form is the bench's own.
        facts: Value,
    },
    /// Agent: it cannot do this, or no more.
    Failed {
        /// Why, in words.
        text: String,
    },
    /// Controller: end early, and tell what there is.
    Stop {},
    /// Controller: that was all.
    Bye {},
}

impl Message {
    /// Its name, for complaints.
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
