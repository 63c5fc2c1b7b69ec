//! The messages between the supervisor and its worker processes.

use crate::admin::{CommandResult, OrderKind};
use crate::certificates::CertificateParcel;
use crate::channel::path_bytes;
use crate::confine::Confinement;
use crate::failure::Failure;
use crate::inherit::Inherited;
use crate::listeners::Address;
use crate::source::RecordedFiles;
use flatout_config::model::ListenAddress;
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// From the supervisor. Descriptors follow in the order of the fields.
#[derive(Serialize, Deserialize)]
pub(crate) enum ToWorker {
    /// The first message: what to serve.
    Start(Box<Start>),
    /// Put another configuration in force. `order` is that of an operator who waits for the result.
    Reload { parcel: Box<ConfigParcel>, order: Option<u64> },
    /// Forget a reload that is not complete.
    GiveUpReload,
    /// A reload was refused.
    Refused { failure: Failure, order: Option<u64> },
    /// The result of an order.
    Answer { order: u64, result: CommandResult },
    /// An upgrade has failed.
    UpgradeFailed { text: String, order: Option<u64> },
    /// Changed certificates.
    Certificates(CertificateParcel),
    /// Sockets through which another process relays datagrams, one for each worker.
    Relayed,
    /// Another process serves. A descriptor follows, if any, to be closed once this one receives no more datagrams. The
    /// operator who waits for `order` gets the result once this process accepts no more connections.
    HandOver { order: Option<u64>, result: CommandResult },
    /// Print the counters and reopen the logs.
    Report,
    /// Drain; the second time, close all connections.
    Stop,
}

/// Everything that a new worker process needs. The listeners' descriptors are followed by the admin socket, and by QUIC's.
#[derive(Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) parcel: ConfigParcel,
    /// True if the worker process is to be confined by Landlock.
    pub(crate) confinement: Option<Confinement>,
    pub(crate) admin: Option<AdminPath>,
    pub(crate) quic: QuicParcel,
    pub(crate) history: History,
    /// The process ID of the supervisor.
    pub(crate) supervisor: u32,
    /// The user and group that the supervisor has become, for messages.
    pub(crate) identity: Option<(u32, u32)>,
    /// Interval of [`ToSupervisor::Alive`], in milliseconds.
    pub(crate) alive_interval_ms: Option<u64>,
}

impl Start {
    /// The number of its descriptors.
    pub(crate) fn descriptor_count(&self) -> usize {
        let predecessors: usize = self.quic.predecessors.iter().map(|(_, count)| count).sum();
        self.parcel.socket_count() + usize::from(self.admin.is_some()) + usize::from(self.quic.must_wait) + predecessors
    }
}

/// The path of the admin socket.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct AdminPath(#[serde(with = "path_bytes")] pub(crate) PathBuf);

/// The keys of QUIC and the number of the worker process. Its descriptors are the pipe on which to wait, if any, and
/// the sockets of earlier processes.
#[derive(Serialize, Deserialize)]
pub(crate) struct QuicParcel {
    pub(crate) generation: u8,
    pub(crate) secrets: Vec<u8>,
    pub(crate) must_wait: bool,
    /// Numbers of earlier processes, and of their sockets.
    pub(crate) predecessors: Vec<(u8, usize)>,
}

/// Counts of `flatout status` that begin before the worker process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct History {
    /// Configurations put in force, including this one.
    pub(crate) generation: u64,
    pub(crate) reloads_refused: u64,
    pub(crate) upgrades_failed: u64,
}

/// A configuration, with what the worker process may not read itself.
#[derive(Serialize, Deserialize)]
pub(crate) struct ConfigParcel {
    pub(crate) files: RecordedFiles,
    /// Listeners by configured address, with the numbers of listening and of UDP sockets.
    listeners: Vec<(String, usize, usize)>,
    pub(crate) certificates: CertificateParcel,
}

impl ConfigParcel {
    /// The parcel with the sockets of `addresses`, whose descriptors are returned. `changed` are UDP sockets of addresses
    /// that serve HTTP/3 from now on.
    pub(crate) fn new<'a>(
        files: RecordedFiles,
        certificates: CertificateParcel,
        addresses: impl Iterator<Item = &'a Address>,
        changed: impl Iterator<Item = (&'a ListenAddress, &'a [OwnedFd])>,
    ) -> (Self, Vec<BorrowedFd<'a>>) {
        let (mut parcel, mut descriptors) = (Self { files, listeners: Vec::new(), certificates }, Vec::new());
        for address in addresses {
            parcel.add(&address.asked, address.sockets(), address.datagrams(), &mut descriptors);
        }
        for (asked, datagrams) in changed {
            parcel.add(asked, &[], datagrams, &mut descriptors);
        }
        (parcel, descriptors)
    }

    /// Adds a listener, and its sockets to `descriptors`.
    pub(crate) fn add<'a>(
        &mut self,
        asked: &ListenAddress,
        sockets: &'a [OwnedFd],
        datagrams: &'a [OwnedFd],
        descriptors: &mut Vec<BorrowedFd<'a>>,
    ) {
        self.listeners.push((asked.to_string(), sockets.len(), datagrams.len()));
        descriptors.extend(sockets.iter().chain(datagrams).map(|socket| socket.as_fd()));
    }

    /// The number of its descriptors.
    pub(crate) fn socket_count(&self) -> usize {
        self.listeners.iter().map(|(_, listening, udp)| listening + udp).sum()
    }

    /// Checks that all descriptors have been received.
    ///
    /// # Errors
    /// If `received` is not `expected`.
    pub(crate) fn check_count(received: usize, expected: usize) -> Result<(), Failure> {
        if received == expected {
            return Ok(());
        }
        Err(Failure::runtime(format!(
            "the worker process received {received} of {expected} descriptors from the supervisor\n  try: a higher limit of \
             open files (open-files)"
        )))
    }

    /// The sockets, from the first of `descriptors`.
    pub(crate) fn take_sockets(&self, descriptors: &mut impl Iterator<Item = OwnedFd>) -> Inherited {
        let (mut sockets, mut datagrams) = (Vec::new(), Vec::new());
        for (asked, listening, udp) in &self.listeners {
            let (own, of_quic) = (descriptors.take(*listening).collect(), descriptors.take(*udp).collect());
            // The supervisor has written it.
            let Ok(asked) = asked.parse::<ListenAddress>() else { continue };
            sockets.push((asked.clone(), own));
            datagrams.push((asked, of_quic));
        }
        Inherited::received(sockets, datagrams)
    }
}

/// A message from a worker process. It carries no descriptors, and the supervisor trusts nothing in it: an attacker who
/// controls the worker process can only stop, reload or upgrade the server, as an operator can.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToSupervisor {
    /// All workers accept connections.
    Ready {
        /// True if Landlock confines the process: the kernel may not support it.
        confined: bool,
        /// One line per database with the migrations that were applied.
        applied: Vec<String>,
    },
    /// It cannot start, and exits.
    Failed(Failure),
    /// A worker has failed: it finishes the requests in progress, and exits.
    Failing,
    /// An operator's order, with a number for its result.
    Order { kind: OrderKind, order: u64 },
    /// The configuration is in force, as generation `generation`. If an order requested it, `answer` is its number and the
    /// result, which the supervisor sends back once its own part is complete.
    Reloaded { generation: u64, answer: Option<(u64, String)> },
    /// The configuration cannot be put in force by this process.
    NotReloaded { failure: Failure, order: Option<u64> },
    /// A message of the supervisor was lost, because no descriptor was left for it.
    Lost(Failure),
    /// It waits for events.
    Alive,
}

#[cfg(test)]
mod tests {
    use super::ConfigParcel;
    use crate::certificates::CertificateParcel;
    use crate::source::RecordedFiles;
    use rustix::pipe::pipe;
    use std::os::fd::OwnedFd;

    #[test]
    fn a_parcel_without_all_of_its_sockets_is_refused() {
        let (one, two): (OwnedFd, OwnedFd) = pipe().unwrap();
        let sockets = [one, two];
        let mut descriptors = Vec::new();
        let mut parcel = ConfigParcel {
            files: RecordedFiles::default(),
            listeners: Vec::new(),
            certificates: CertificateParcel::default(),
        };
        parcel.add(&"127.0.0.1:80".parse().unwrap(), &sockets, &sockets[..1], &mut descriptors);
        parcel.add(&"unix:/run/a.sock".parse().unwrap(), &sockets[..1], &[], &mut descriptors);
        assert_eq!((parcel.socket_count(), descriptors.len()), (4, 4));
        assert!(ConfigParcel::check_count(4, 4).is_ok());
        let failure = ConfigParcel::check_count(0, 4).unwrap_err();
        assert!(failure.text.contains("0 of 4 descriptors"), "{failure}");
    }
}
