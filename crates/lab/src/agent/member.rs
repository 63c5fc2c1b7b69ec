//! The agent: connects to a controller, answers its pings, generates its share of the load and sends its results.

use super::coordinator::SILENCE_NS_MAX;
use super::frame::{AgentFrame, FrameLimits};
use super::link::{AgentLink, LinkEnd, wait};
use super::message::{Message, PROTOCOL};
use super::trust::{CONTROLLER, agent_config};
use flatout_os::clock::precise_ns;
use rustls::ClientConnection;
use rustls_pki_types::ServerName;
use serde_json::Value;
use std::fmt::Display;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait in one turn of the event loop, in nanoseconds.
const TURN_NS: i64 = 20_000_000;

/// Timeout of one connection attempt.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Pause between two connection attempts.
const RETRY: Duration = Duration::from_millis(500);

/// The work that an agent does for a controller.
pub trait AgentWork {
    /// Prepares share number `index` (from 0) of `agents` shares of a task.
    fn prepare(&mut self, index: u32, agents: u32, task: &Value) -> Result<(), String>;

    /// Starts the prepared work at this time of the monotonic clock, in nanoseconds.
    fn begin(&mut self, at_ns: u64) -> Result<(), String>;

    /// Ends the work early.
    fn stop(&mut self);

    /// Returns the result when the work has finished. Called several times a second after the start.
    fn poll(&mut self) -> Option<Result<Brought, String>>;
}

/// The result of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Brought {
    /// Time at which the work started, in nanoseconds on the monotonic clock.
    pub begun_ns: u64,
    /// Results besides the record.
    pub facts: Value,
    /// The record.
    pub record: Vec<u8>,
}

/// Connects to `controller` and works for it once. If it is not listening yet, retries for `timeout`.
///
/// # Errors
/// Returns the reason as text.
pub fn serve(
    controller: &str,
    timeout: Duration,
    trust: &Path,
    name: &str,
    cores: u32,
    work: &mut dyn AgentWork,
) -> Result<(), String> {
    let config = agent_config(trust).map_err(|error| error.to_string())?;
    let server = ServerName::try_from(CONTROLLER).map_err(|error| error.to_string())?;
    let socket = dial(controller, timeout)?;
    let tls = ClientConnection::new(config, server).map_err(|error| error.to_string())?;
    // The controller was authenticated by its certificate before any frame.
    let mut link = AgentLink::new(socket, tls.into(), FrameLimits::KNOWN).map_err(|error| error.to_string())?;
    link.say(Message::Hello {
        protocol: PROTOCOL.to_owned(),
        flatout: env!("CARGO_PKG_VERSION").to_owned(),
        name: name.to_owned(),
        cores,
    });
    let mut member = Member { link, work, is_working: false, is_over: false, heard_ns: precise_ns() };
    let ended = member.run();
    if let Err(text) = &ended {
        member.work.stop();
        member.link.say(Message::Failed { text: text.clone() });
        let _flushed = member.link.flush();
    }
    member.link.close();
    ended
}

fn dial(controller: &str, timeout: Duration) -> Result<TcpStream, String> {
    let deadline = Instant::now() + timeout;
    let failed = |error: &dyn Display| format!("cannot reach the controller at {controller}: {error}");
    loop {
        let mut last = failed(&"the host name has no address");
        for address in controller.to_socket_addrs().map_err(|error| failed(&error))? {
            match TcpStream::connect_timeout(&address, CONNECT_MAX) {
                Ok(socket) => return Ok(socket),
                Err(error) => last = failed(&error),
            }
        }
        if Instant::now() >= deadline {
            return Err(last);
        }
        thread::sleep(RETRY);
    }
}

struct Member<'a> {
    link: AgentLink,
    work: &'a mut dyn AgentWork,
    is_working: bool,
    is_over: bool,
    heard_ns: u64,
}

impl Member<'_> {
    fn run(&mut self) -> Result<(), String> {
        loop {
            wait(&mut [self.link.poll_fd()], TURN_NS).map_err(|error| error.to_string())?;
            let pumped = self.link.pump();
            if let Ok(true) = pumped {
                self.heard_ns = precise_ns();
            }
            loop {
                match self.link.take() {
                    Ok(Some(AgentFrame::Message(Message::Bye {}))) => return Ok(()),
                    Ok(Some(AgentFrame::Message(message))) => self.handle(message)?,
                    Ok(Some(AgentFrame::Record(_))) => return Err("the controller sent a record".to_owned()),
                    Ok(None) => break,
                    Err(end) => return Err(format!("the controller sent an invalid message: {end}")),
                }
            }
            match pumped {
                Ok(_) => {}
                Err(LinkEnd::Closed) => return Err("the controller closed the connection".to_owned()),
                Err(end) => return Err(format!("the connection to the controller failed: {end}")),
            }
            // Wait for twice the controller's own timeout; the controller pings every second.
            if precise_ns().saturating_sub(self.heard_ns) > 2 * SILENCE_NS_MAX {
                return Err("the controller stopped responding".to_owned());
            }
            if self.is_working
                && !self.is_over
                && let Some(ended) = self.work.poll()
            {
                self.is_over = true;
                let Brought { begun_ns, facts, record } = ended?;
                self.link.say(Message::Done { begun_ns, facts });
                self.link.send(&AgentFrame::Record(record));
            }
        }
    }

    fn handle(&mut self, message: Message) -> Result<(), String> {
        match message {
            Message::Ping { nonce } => self.link.say(Message::Pong { nonce, at_ns: precise_ns() }),
            Message::Plan { index, agents, task } if !self.is_working => {
                self.work.prepare(index, agents, &task)?;
                self.link.say(Message::Ready {});
            }
            Message::Go { at_ns } if !self.is_working => {
                self.is_working = true;
                self.work.begin(at_ns)?;
            }
            Message::Stop {} => self.work.stop(),
            Message::Failed { text } => return Err(format!("the controller reported: {text}")),
            other => return Err(format!("the controller sent {} unexpectedly", other.name())),
        }
        // Send immediately: a clock reading must not wait for the next turn.
        self.link.flush().map_err(|end| end.to_string())
    }
}
