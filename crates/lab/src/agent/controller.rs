//! The controller's sockets. The controller executes the decisions of [`Coordinator`].

use super::coordinator::{AgentLoss, AgentResult, Coordinator, CoordinatorAction, UNAUTHENTICATED_MAX};
use super::frame::{AgentFrame, FrameLimits};
use super::link::{AgentLink, LinkEnd, wait};
use super::trust::controller_config;
use flatout_os::clock::precise_ns;
use rustix::event::{PollFd, PollFlags};
use rustls::{ServerConfig, ServerConnection};
use serde_json::Value;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Longest wait in one turn of the event loop, in nanoseconds.
const TURN_NS: i64 = 50_000_000;

/// A controller that listens for its agents.
#[derive(Debug)]
pub struct Controller {
    listener: TcpListener,
    config: Arc<ServerConfig>,
    coordinator: Coordinator,
    /// The links by agent number; `None` after a connection has closed.
    links: Vec<Option<AgentLink>>,
}

impl Controller {
    /// Listens at `address` for `wanted` agents. Each agent authenticates with the certificates in the folder `trust`,
    /// and does its share of `task`.
    ///
    /// # Errors
    /// Fails if the address cannot be bound, or if the folder was not created by `flatout agent init`.
    pub fn listen(address: SocketAddr, trust: &Path, wanted: u32, task: Value) -> io::Result<Self> {
        let config = controller_config(trust)?;
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            config,
            coordinator: Coordinator::new(wanted, env!("CARGO_PKG_VERSION"), task),
            links: Vec::new(),
        })
    }

    /// Returns the bound address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Runs until all agents have reported. Calls `on_turn` in every turn of the event loop. `interrupts` counts
    /// presses of Ctrl-C: the first ends the load early, the second ends all waiting.
    ///
    /// # Errors
    /// Fails if a system call fails, or if the run is interrupted before the load has started.
    pub fn run(
        mut self,
        interrupts: &AtomicU32,
        mut on_turn: impl FnMut(&Coordinator),
    ) -> io::Result<Vec<AgentResult>> {
        let mut is_stopping = false;
        while !self.coordinator.is_over() {
            self.wait()?;
            self.accept();
            for who in 0..self.links.len() {
                self.pump(who);
            }
            let orders = self.coordinator.handle_time(precise_ns());
            self.obey(orders);
            on_turn(&self.coordinator);
            let count = interrupts.load(Ordering::Relaxed);
            if count > 0 && self.coordinator.begins_ns().is_none() {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted before all agents joined"));
            }
            if count > 0 && !is_stopping {
                is_stopping = true;
                let orders = self.coordinator.stop();
                self.obey(orders);
            }
            if count > 1 {
                break;
            }
        }
        for link in self.links.into_iter().flatten() {
            link.close();
        }
        Ok(self.coordinator.into_results())
    }

    fn wait(&self) -> io::Result<()> {
        let mut watched = vec![PollFd::new(&self.listener, PollFlags::IN)];
        watched.extend(self.links.iter().flatten().map(AgentLink::poll_fd));
        wait(&mut watched, TURN_NS)
    }

    fn accept(&mut self) {
        // Existing connections are served between two batches of new connections.
        for _ in 0..UNAUTHENTICATED_MAX {
            // Accepting fails if the client has disconnected, or if no descriptor is left. Either way, the client
            // retries.
            let Ok((socket, _)) = self.listener.accept() else { return };
            let tls = ServerConnection::new(Arc::clone(&self.config));
            let link = tls
                .map_err(io::Error::other)
                .and_then(|tls| AgentLink::new(socket, tls.into(), FrameLimits::UNAUTHENTICATED));
            let Ok(link) = link else { continue };
            let (who, orders) = self.coordinator.handle_connected(precise_ns());
            self.obey(orders);
            if self.links.len() <= who {
                self.links.resize_with(who + 1, || None);
            }
            self.links[who] = Some(link);
        }
    }

    /// Transfers bytes in both directions on one link, and passes its messages to the coordinator.
    fn pump(&mut self, who: usize) {
        let Some(link) = &mut self.links[who] else { return };
        let pumped = link.pump();
        let was_handshaking = link.is_handshaking();
        if let Ok(true) = pumped {
            self.coordinator.handle_bytes(who, precise_ns());
        }
        // Messages that arrived before the end of the connection are handled first.
        let ended = loop {
            let Some(link) = &mut self.links[who] else { return };
            let orders = match link.take() {
                Ok(Some(AgentFrame::Message(message))) => self.coordinator.handle_message(who, precise_ns(), message),
                Ok(Some(AgentFrame::Record(record))) => self.coordinator.handle_record(who, precise_ns(), record),
                Ok(None) => break pumped.err(),
                Err(end) => break Some(end),
            };
            self.obey(orders);
        };
        if let Some(end) = ended {
            let (loss, words) = match end {
                LinkEnd::Closed => (AgentLoss::Closed, String::new()),
                LinkEnd::Frame(refusal) => (refusal.into(), refusal.text().to_owned()),
                LinkEnd::Io(error) if was_handshaking => (AgentLoss::NotTrusted, error.to_string()),
                LinkEnd::Io(error) => (AgentLoss::Closed, error.to_string()),
            };
            let orders = self.coordinator.handle_lost(who, loss, &words);
            self.obey(orders);
            self.links[who] = None;
        }
    }

    fn obey(&mut self, orders: Vec<CoordinatorAction>) {
        for order in orders {
            match order {
                CoordinatorAction::Say(who, message) => {
                    if let Some(link) = self.links.get_mut(who).and_then(Option::as_mut) {
                        link.say(message);
                        // If this fails, the failure is detected at the link's next turn.
                        let _pumped = link.flush();
                    }
                }
                CoordinatorAction::Trust(who) => {
                    if let Some(link) = self.links.get_mut(who).and_then(Option::as_mut) {
                        link.trust();
                    }
                }
                CoordinatorAction::Dismiss(who) => {
                    if let Some(link) = self.links.get_mut(who).and_then(Option::take) {
                        link.close();
                    }
                }
            }
        }
    }
}
