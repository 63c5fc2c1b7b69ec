//! The controller's decisions: admission of agents, messages, the common start, and lost agents.
//!
//! There are no sockets or clocks here: messages and the time are arguments, and actions are returned as
//! [`CoordinatorAction`]s. An agent that is lost before it received work is replaced by another. An agent that is lost
//! later is not replaced; the result names it, because its share of the load was not generated.

use super::clock::Offset;
use super::frame::FrameRefusal;
use super::message::{Message, PROTOCOL};
use flatout_load::report::visible;
use serde_json::Value;

/// Number of pings that an agent must answer before it receives work. The fastest determines the clock offset.
const PINGS: u32 = 8;

/// Time between the readiness of the last agent and the common start, in nanoseconds. The start message must reach all
/// agents within this time.
const LEAD_NS: u64 = 500_000_000;

/// Silence after which an agent is pinged, in nanoseconds.
const ASK_INTERVAL_NS: u64 = 1_000_000_000;

/// Silence after which an agent counts as lost, in nanoseconds.
pub const SILENCE_NS_MAX: u64 = 10_000_000_000;

/// Timeout for authenticating a new connection, in nanoseconds, whatever the peer sends. Certificates and a greeting
/// take milliseconds.
pub const GREETING_NS_MAX: u64 = 10_000_000_000;

/// Maximum number of unauthenticated connections. A further connection evicts the oldest. So an attacker cannot keep an
/// agent out by holding connections, but only by opening this many within the few round trips of an agent's greeting.
pub const UNAUTHENTICATED_MAX: usize = 64;

/// Maximum number of agents in one run, and of rejected agents that are remembered.
pub const AGENTS_MAX: usize = 1_000;

flatout_reason::reasons! {
    /// The reason an agent was lost or rejected.
    pub enum AgentLoss { name, text, }
    Closed, "closed", "its connection closed before its result arrived";
    Silent, "silent", "it sent nothing for ten seconds";
    Unnamed, "unnamed", "it did not authenticate within ten seconds";
    TooManyPeers, "too-many-peers", "too many other connections arrived before it had authenticated";
    BadFrame, "bad-frame", "it sent an invalid frame";
    OutOfTurn, "out-of-turn", "it sent an unexpected message";
    OtherVersion, "other-version", "it runs another version of flatout";
    Failed, "failed", "it could not generate its load";
    Surplus, "surplus", "enough agents had already joined";
    NotTrusted, "not-trusted", "its certificate was not issued by this run's authority";
}

impl From<FrameRefusal> for AgentLoss {
    fn from(_refusal: FrameRefusal) -> Self {
        Self::BadFrame
    }
}

/// An action that the controller must take.
#[derive(Clone, Debug, PartialEq)]
pub enum CoordinatorAction {
    /// Send this message to the agent.
    Say(usize, Message),
    /// Permit longer frames from the agent, which is now authenticated.
    Trust(usize),
    /// Close the connection with the agent after everything has been sent.
    Dismiss(usize),
}

/// The state of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AgentState {
    /// The agent is connected but not authenticated.
    Unauthenticated,
    /// The agent is being pinged, to measure its clock offset.
    Timed {
        left: u32,
    },
    /// The agent waits for the other agents.
    Waiting,
    /// The agent has received its work and prepares it.
    Planned,
    Ready,
    /// The agent has received the start time.
    Going,
    /// The agent has finished, and its record is being transferred.
    Recording,
    Done,
    Lost(AgentLoss),
}

/// An agent of the run, or a peer that has not authenticated yet.
#[derive(Clone, Debug)]
struct Agent {
    name: String,
    cores: u32,
    step: AgentState,
    /// The agent's own explanation of why it was lost.
    words: String,
    /// Index of the agent's share of the load, from 0.
    index: Option<u32>,
    offset: Option<Offset>,
    /// Nonce of the unanswered ping, and when it was sent.
    asked: Option<(u64, u64)>,
    connected_ns: u64,
    heard_ns: u64,
    begun_ns: Option<u64>,
    facts: Value,
    record: Vec<u8>,
}

impl Agent {
    /// Returns whether the agent has, or had, a share of the load.
    fn has_work(&self) -> bool {
        self.index.is_some()
    }
}

/// One agent's part of the result.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentResult {
    /// Name of the agent.
    pub name: String,
    /// Number of cores available to the agent.
    pub cores: u32,
    /// Index of the agent's share of the load, from 0.
    pub index: u32,
    /// Time of the agent's start relative to the common start, in nanoseconds; negative if it started early.
    pub skew_ns: Option<i64>,
    /// Upper bound of the error of `skew_ns`, in nanoseconds.
    pub skew_error_ns_max: u64,
    /// Results besides the record, as the agent reported them.
    pub facts: Value,
    /// The agent's record.
    pub record: Vec<u8>,
    /// The reason the agent was lost, with its own explanation; `None` if it was not lost.
    pub lost: Option<(AgentLoss, String)>,
}

/// All agents of one run.
#[derive(Debug)]
pub struct Coordinator {
    wanted: u32,
    flatout: &'static str,
    task: Value,
    agents: Vec<Agent>,
    nonce: u64,
    begins_ns: Option<u64>,
    is_stopped: bool,
}

impl Coordinator {
    /// Creates a run of `wanted` agents that share one task. The agents must have the version `flatout`.
    pub fn new(wanted: u32, flatout: &'static str, task: Value) -> Self {
        Self { wanted, flatout, task, agents: Vec::new(), nonce: 0, begins_ns: None, is_stopped: false }
    }

    /// Handles a new connection. Returns the number of the connection, and actions, which may evict another connection.
    pub fn handle_connected(&mut self, now_ns: u64) -> (usize, Vec<CoordinatorAction>) {
        let unauthenticated =
            self.agents.iter().enumerate().filter(|(_, agent)| agent.step == AgentState::Unauthenticated);
        let mut orders = Vec::new();
        if unauthenticated.clone().count() >= UNAUTHENTICATED_MAX
            && let Some((first, _)) = unauthenticated.min_by_key(|(_, agent)| agent.connected_ns)
        {
            orders = self.lose(first, AgentLoss::TooManyPeers, "");
        }
        let agent = Agent {
            name: String::new(),
            cores: 0,
            step: AgentState::Unauthenticated,
            words: String::new(),
            index: None,
            offset: None,
            asked: None,
            connected_ns: now_ns,
            heard_ns: now_ns,
            begun_ns: None,
            facts: Value::Null,
            record: Vec::new(),
        };
        // Reuse the number of a closed connection that had no work, so that repeated connections take no memory.
        let is_free = |agent: &Agent| !agent.has_work() && matches!(agent.step, AgentState::Lost(_));
        let left = self.agents.iter().position(is_free).filter(|_| self.agents.len() >= AGENTS_MAX);
        let who = left.unwrap_or(self.agents.len());
        match self.agents.get_mut(who) {
            Some(place) => *place = agent,
            None => self.agents.push(agent),
        }
        (who, orders)
    }

    /// Handles a message from an agent.
    pub fn handle_message(&mut self, who: usize, now_ns: u64, message: Message) -> Vec<CoordinatorAction> {
        let Some(agent) = self.agents.get_mut(who) else { return Vec::new() };
        agent.heard_ns = now_ns;
        match (agent.step, message) {
            (AgentState::Lost(_), _) => Vec::new(),
            (AgentState::Unauthenticated, Message::Hello { protocol, flatout, name, cores }) => {
                if protocol != PROTOCOL || flatout != self.flatout {
                    let words = format!(
                        "the agent runs flatout {flatout} with {protocol}, but the controller runs {} with {PROTOCOL}",
                        self.flatout
                    );
                    return self.lose(who, AgentLoss::OtherVersion, &words);
                }
                // The name is displayed, so it is limited to one short line.
                agent.name = visible(&name).chars().take(64).collect();
                agent.cores = cores;
                agent.step = AgentState::Timed { left: PINGS };
                let taken = self.agents.iter().filter(|agent| is_here(agent)).count();
                if taken > self.wanted as usize {
                    return self.lose(who, AgentLoss::Surplus, "");
                }
                vec![CoordinatorAction::Trust(who), self.ask(who, now_ns)]
            }
            (AgentState::Unauthenticated, _) => self.lose(who, AgentLoss::OutOfTurn, ""),
            (step, Message::Pong { nonce, at_ns }) => {
                let Some((_, asked_ns)) = agent.asked.take_if(|(asked, _)| *asked == nonce) else {
                    return self.lose(who, AgentLoss::OutOfTurn, "a reply without a request");
                };
                let offset = Offset::from_answer(asked_ns, now_ns, at_ns);
                agent.offset = Some(agent.offset.map_or(offset, |best| best.or_better(offset)));
                match step {
                    AgentState::Timed { left } if left > 1 => {
                        agent.step = AgentState::Timed { left: left - 1 };
                        vec![self.ask(who, now_ns)]
                    }
                    AgentState::Timed { .. } => {
                        agent.step = AgentState::Waiting;
                        self.give_work()
                    }
                    _ => Vec::new(),
                }
            }
            (AgentState::Planned, Message::Ready {}) => {
                agent.step = AgentState::Ready;
                self.name_the_moment(now_ns)
            }
            (AgentState::Going, Message::Done { begun_ns, facts }) => {
                agent.step = AgentState::Recording;
                agent.begun_ns = Some(begun_ns);
                agent.facts = facts;
                Vec::new()
            }
            (_, Message::Failed { text }) => self.lose(who, AgentLoss::Failed, &text),
            (_, message) => self.lose(who, AgentLoss::OutOfTurn, &format!("its message was {}", message.name())),
        }
    }

    /// Handles a complete record from an agent.
    pub fn handle_record(&mut self, who: usize, now_ns: u64, record: Vec<u8>) -> Vec<CoordinatorAction> {
        match self.agents.get_mut(who) {
            Some(agent) if agent.step == AgentState::Recording => {
                agent.heard_ns = now_ns;
                agent.record = record;
                agent.step = AgentState::Done;
                vec![CoordinatorAction::Say(who, Message::Bye {}), CoordinatorAction::Dismiss(who)]
            }
            Some(agent) if !matches!(agent.step, AgentState::Lost(_)) => {
                self.lose(who, AgentLoss::OutOfTurn, "it sent a record")
            }
            _ => Vec::new(),
        }
    }

    /// Handles a part of a frame: an agent that is sending a long record is not silent.
    pub fn handle_bytes(&mut self, who: usize, now_ns: u64) {
        if let Some(agent) = self.agents.get_mut(who) {
            agent.heard_ns = now_ns;
        }
    }

    /// Handles a connection that was closed or failed.
    pub fn handle_lost(&mut self, who: usize, loss: AgentLoss, words: &str) -> Vec<CoordinatorAction> {
        match self.agents.get(who).map(|agent| agent.step) {
            None | Some(AgentState::Done | AgentState::Lost(_)) => Vec::new(),
            Some(_) => self.lose(who, loss, words),
        }
    }

    /// Handles the passing of time: agents that are silent, and pings that are due.
    pub fn handle_time(&mut self, now_ns: u64) -> Vec<CoordinatorAction> {
        let mut orders = Vec::new();
        for who in 0..self.agents.len() {
            let agent = &self.agents[who];
            if matches!(agent.step, AgentState::Done | AgentState::Lost(_)) {
                continue;
            }
            let silent_ns = now_ns.saturating_sub(agent.heard_ns);
            let unnamed_ns = now_ns.saturating_sub(agent.connected_ns);
            if agent.step == AgentState::Unauthenticated && unnamed_ns >= GREETING_NS_MAX {
                orders.extend(self.lose(who, AgentLoss::Unnamed, ""));
            } else if silent_ns >= SILENCE_NS_MAX {
                orders.extend(self.lose(who, AgentLoss::Silent, ""));
            } else if silent_ns >= ASK_INTERVAL_NS && agent.asked.is_none() && agent.step != AgentState::Unauthenticated
            {
                orders.push(self.ask(who, now_ns));
            }
        }
        orders
    }

    /// Ends the load early. Every agent sends its results so far.
    pub fn stop(&mut self) -> Vec<CoordinatorAction> {
        self.is_stopped = true;
        let going = self.agents.iter().enumerate().filter(|(_, agent)| agent.step == AgentState::Going);
        going.map(|(who, _)| CoordinatorAction::Say(who, Message::Stop {})).collect()
    }

    /// Returns the number of connected, authenticated agents.
    pub fn here(&self) -> u32 {
        self.agents.iter().filter(|agent| is_here(agent)).count() as u32
    }

    /// Returns the names of agents that were rejected, or lost before they had work, with the reasons.
    #[cfg(test)]
    pub fn turned_away(&self) -> impl Iterator<Item = (&str, AgentLoss, &str)> {
        self.agents.iter().filter(|agent| !agent.has_work()).filter_map(|agent| match agent.step {
            AgentState::Lost(loss) => Some((agent.name.as_str(), loss, agent.words.as_str())),
            _ => None,
        })
    }

    /// Returns the common start on the local clock, in nanoseconds, if it has been decided.
    pub fn begins_ns(&self) -> Option<u64> {
        self.begins_ns
    }

    /// Returns whether the run is over: every agent with work has reported or is lost.
    pub fn is_over(&self) -> bool {
        let mut working = self.agents.iter().filter(|agent| agent.has_work()).peekable();
        working.peek().is_some() && working.all(|agent| matches!(agent.step, AgentState::Done | AgentState::Lost(_)))
    }

    /// Returns the results, in order of share.
    pub fn into_results(self) -> Vec<AgentResult> {
        let begins_ns = self.begins_ns;
        let mut results: Vec<AgentResult> = self
            .agents
            .into_iter()
            .filter_map(|agent| {
                let skew_ns = match (agent.offset, agent.begun_ns, begins_ns) {
                    (Some(offset), Some(begun_ns), Some(begins_ns)) => {
                        Some(offset.to_ours(begun_ns).wrapping_sub(begins_ns).cast_signed())
                    }
                    _ => None,
                };
                Some(AgentResult {
                    index: agent.index?,
                    name: agent.name,
                    cores: agent.cores,
                    skew_ns,
                    skew_error_ns_max: agent.offset.map_or(0, |offset| offset.error_ns_max),
                    facts: agent.facts,
                    record: agent.record,
                    lost: match agent.step {
                        AgentState::Done => None,
                        AgentState::Lost(loss) => Some((loss, agent.words)),
                        _ => Some((AgentLoss::Closed, String::new())),
                    },
                })
            })
            .collect();
        results.sort_by_key(|result| result.index);
        results
    }

    fn ask(&mut self, who: usize, now_ns: u64) -> CoordinatorAction {
        self.nonce += 1;
        self.agents[who].asked = Some((self.nonce, now_ns));
        CoordinatorAction::Say(who, Message::Ping { nonce: self.nonce })
    }

    fn lose(&mut self, who: usize, loss: AgentLoss, words: &str) -> Vec<CoordinatorAction> {
        let agent = &mut self.agents[who];
        agent.step = AgentState::Lost(loss);
        // The text may come from the agent.
        agent.words = visible(words).into_owned();
        agent.record = Vec::new();
        let text = if agent.words.is_empty() { loss.text().to_owned() } else { agent.words.clone() };
        let mut orders = vec![CoordinatorAction::Say(who, Message::Failed { text }), CoordinatorAction::Dismiss(who)];
        if agent.has_work() && self.begins_ns.is_none() {
            // The load has not started, and must not start without this agent.
            for (other, agent) in self.agents.iter_mut().enumerate() {
                if matches!(agent.step, AgentState::Planned | AgentState::Ready) {
                    agent.step = AgentState::Lost(AgentLoss::Closed);
                    let text = "another agent was lost before the start".to_owned();
                    agent.words.clone_from(&text);
                    orders.extend([
                        CoordinatorAction::Say(other, Message::Failed { text }),
                        CoordinatorAction::Dismiss(other),
                    ]);
                }
            }
        }
        orders
    }

    /// Distributes the shares when all agents are connected and their clock offsets are known.
    fn give_work(&mut self) -> Vec<CoordinatorAction> {
        let waiting = self.agents.iter().filter(|agent| agent.step == AgentState::Waiting).count();
        if waiting < self.wanted as usize {
            return Vec::new();
        }
        let mut orders = Vec::new();
        for (who, agent) in self.agents.iter_mut().enumerate().filter(|(_, agent)| agent.step == AgentState::Waiting) {
            let index = orders.len() as u32;
            agent.step = AgentState::Planned;
            agent.index = Some(index);
            orders.push(CoordinatorAction::Say(
                who,
                Message::Plan { index, agents: self.wanted, task: self.task.clone() },
            ));
        }
        orders
    }

    /// Sends the start time when all agents are ready.
    fn name_the_moment(&mut self, now_ns: u64) -> Vec<CoordinatorAction> {
        let mut working = self.agents.iter().filter(|agent| agent.has_work());
        if !working.all(|agent| agent.step == AgentState::Ready) {
            return Vec::new();
        }
        let begins_ns = now_ns + LEAD_NS;
        self.begins_ns = Some(begins_ns);
        let mut orders = Vec::new();
        for (who, agent) in self.agents.iter_mut().enumerate().filter(|(_, agent)| agent.step == AgentState::Ready) {
            agent.step = AgentState::Going;
            let at_ns = agent.offset.map_or(begins_ns, |offset| offset.to_theirs(begins_ns));
            orders.push(CoordinatorAction::Say(who, Message::Go { at_ns }));
        }
        if self.is_stopped {
            orders.extend(self.stop());
        }
        orders
    }
}

/// Returns whether the agent is authenticated and not lost.
fn is_here(agent: &Agent) -> bool {
    !matches!(agent.step, AgentState::Unauthenticated | AgentState::Lost(_))
}

#[cfg(test)]
mod tests;
