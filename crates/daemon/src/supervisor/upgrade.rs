//! Upgrades: a new server process, with its own worker process, takes over.

use super::{Asker, Supervisor};
use crate::failure::say;
use crate::listeners::{Address, socket_files};
use crate::messages::ToWorker;
use crate::quic::Handover;
use crate::socket_file::SocketFile;
use crate::upgrade::{Upgrade, Word};
use flatout_server::Phase;
use std::io;

impl Supervisor {
    /// Starts a new server process; `asker` receives the result.
    pub(super) fn begin_upgrade(&mut self, asker: Asker) {
        let refused = if self.phase != Phase::Serve || !self.announced || self.current().is_none() {
            Some("this process is starting or stopping; try again later")
        } else if self.upgrade.is_some() {
            Some("an upgrade is already in progress; try again later")
        } else if self.change.is_some() {
            Some("a reload is in progress; try again later")
        } else {
            None
        };
        if let Some(text) = refused {
            say(&format!("upgrade refused: {text}"));
            return self.answer(asker, 409, &format!("{text}\n"));
        }
        match self.start_server() {
            Ok(upgrade) => {
                say(&format!("upgrade: starting process {}", upgrade.pid()));
                self.upgrade = Some((upgrade, asker));
            }
            Err(error) => self.report_failed_upgrade(asker, &format!("cannot start the new process: {error}")),
        }
    }

    pub(super) fn start_server(&mut self) -> io::Result<Upgrade> {
        self.connect_relays()?;
        let handover = if let Some(generation) = self.generation
            && self.addresses.iter().any(Address::serves_http3)
        {
            let own = self.relays.iter().map(|(generation, sockets)| (*generation, sockets.as_slice()));
            let processes = own.chain(self.quic.predecessors());
            Some(Handover::new(generation, self.quic.secrets(), processes, Vec::new())?)
        } else {
            None
        };
        Upgrade::start(&self.addresses, handover, self.admin.as_ref())
    }

    pub(super) fn look_at_upgrade(&mut self) {
        let Some((upgrade, _)) = &mut self.upgrade else { return };
        match upgrade.listen() {
            Word::None if !upgrade.time_left().is_zero() => {}
            Word::Ready => self.leave_to_server(),
            Word::None | Word::Closed => {
                let text = upgrade.give_up();
                let asker = self.upgrade.take().and_then(|(_, asker)| asker);
                self.report_failed_upgrade(asker, &text);
            }
        }
    }

    /// The new server process serves: this one leaves.
    pub(super) fn leave_to_server(&mut self) {
        let Some((mut upgrade, asker)) = self.upgrade.take() else { return };
        let pid = upgrade.pid();
        self.service_manager.hand_over(pid);
        say(&format!("upgrade: process {pid} is serving; this process finishes its requests in progress"));
        let own = std::process::id();
        let text = format!("process {pid} is serving; process {own} finishes its requests in progress\n");
        socket_files(self.admin.as_ref(), &self.addresses).for_each(SocketFile::leave);
        self.admin = None;
        self.phase = Phase::HandOver;
        self.restart_at = None;
        // Before the worker process closes its own: each socket closes with its worker.
        self.addresses.clear();
        self.dismiss(0, upgrade.take_go().as_ref(), asker, &text);
    }

    pub(super) fn report_failed_upgrade(&mut self, asker: Asker, text: &str) {
        self.history.upgrades_failed += 1;
        self.answer_elsewhere(asker, text);
        let Some(current) = self.current() else {
            return say(&format!("error: upgrade failed: {text}; this process continues to serve"));
        };
        let process = &mut self.processes[current];
        let order = asker.filter(|(pid, _)| *pid == process.pid()).map(|(_, order)| order);
        process.tell(&ToWorker::UpgradeFailed { text: text.to_owned(), order }, &[]);
    }
}
