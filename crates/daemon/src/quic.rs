//! UDP sockets for HTTP/3 next to the TLS listeners, the keys that the server's processes share, and handing over both.
//!
//! Only one process at a time receives datagrams. In an upgrade, the old process stops receiving and notifies the new
//! process. The new process then receives all datagrams, and relays those for the old process's connections to the old
//! process.

use crate::failure::{Failure, say};
use flatout_config::model::Http3;
use flatout_net::quic::ids::{IdCipher, Owner, QuicSecrets, SECRET_BYTES, WORKERS_MAX};
use flatout_net::quic::steering::steering_program;
use flatout_os::datagram::{attach_steering, bind_datagram, check_free, set_buffers};
use flatout_os::process::take_inherited;
use flatout_server::http3::relay::{Predecessor, RelayHub, RelayInbox};
use flatout_server::http3::{QuicIdentity, QuicParts};
use flatout_units::quantity::exact_size;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{dup, write};
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// Receive buffer of each socket, in bytes. It must hold all datagrams that arrive while a worker is busy.
const RECEIVE_BYTES: usize = 4 << 20;

/// Send buffer of each socket, in bytes.
const SEND_BYTES: usize = 2 << 20;

/// Size of a receive buffer below which packets are lost under load, in bytes.
const RECEIVE_BYTES_MIN: usize = 1 << 20;

/// The QUIC state of the previous process.
#[derive(Debug)]
pub(crate) struct InheritedQuic {
    /// The generation number of the previous process.
    pub(crate) generation: u8,
    pub(crate) secrets: QuicSecrets,
    /// Becomes readable, or closed, when the previous process has stopped receiving datagrams.
    pub(crate) go: OwnedFd,
    /// Sockets to the workers of the previous process and of earlier processes, by generation number.
    pub(crate) predecessors: Vec<(u8, Vec<OwnedFd>)>,
}

impl InheritedQuic {
    /// Takes the descriptors and keys that [`Handover::text`] describes.
    pub(crate) fn take(text: &str) -> Option<Self> {
        let mut parts = text.split(';');
        let mut first = parts.next()?.split(':');
        let mut number = || first.next()?.parse().ok();
        let (generation, secrets, go) = (number()?, number()?, number()?);
        let mut bytes = [0; SECRET_BYTES];
        File::from(take_inherited(secrets).ok()?).read_exact(&mut bytes).ok()?;
        let predecessors = parts.filter_map(|part| {
            let (generation, numbers) = part.split_once('=')?;
            let sockets = numbers.split(',').filter_map(|number| take_inherited(number.parse().ok()?).ok());
            Some((generation.parse().ok()?, sockets.collect()))
        });
        Some(Self {
            generation: u8::try_from(generation).ok()?,
            secrets: QuicSecrets::from_bytes(bytes),
            go: take_inherited(go).ok()?,
            predecessors: predecessors.collect(),
        })
    }
}

/// The QUIC state for the next process: descriptors to pass on, and their counterparts.
#[derive(Debug)]
pub(crate) struct Handover {
    /// Copies of the descriptors without close-on-exec, in the order in which they appear in `text`.
    pub(crate) copies: Vec<OwnedFd>,
    /// The description of the descriptors for the next process.
    pub(crate) text: String,
    /// To be closed when this process has stopped receiving datagrams.
    pub(crate) go: OwnedFd,
    /// Sockets through which the next process relays datagrams to this process's workers.
    pub(crate) relayed: Vec<OwnedFd>,
}

/// The keys for connection IDs, resets and tokens, the generation number of this process, and the channels between
/// workers.
#[derive(Debug)]
pub(crate) struct QuicContext {
    secrets: QuicSecrets,
    cipher: Arc<IdCipher>,
    generation: u8,
    hub: Arc<RelayHub>,
    /// The receiving ends of the workers' channels. Each worker takes its own when it starts.
    inboxes: Mutex<Vec<Option<RelayInbox>>>,
    /// Becomes readable, or closed, when the previous process has stopped receiving datagrams.
    pub(crate) go: Option<OwnedFd>,
    /// False in a worker process, because the supervisor binds its sockets.
    binds: bool,
}

/// The QUIC state that a new worker process receives.
#[derive(Debug)]
pub(crate) struct ReceivedQuic {
    /// The generation number of this process.
    pub(crate) generation: u8,
    pub(crate) secrets: QuicSecrets,
    /// Becomes readable, or closed, when the previous process has stopped receiving datagrams.
    pub(crate) go: Option<OwnedFd>,
    /// Sockets to the workers of earlier processes, by generation number.
    pub(crate) predecessors: Vec<(u8, Vec<OwnedFd>)>,
}

impl QuicContext {
    /// Creates a context with the keys of the previous process, or with new keys.
    ///
    /// # Errors
    /// If the system cannot provide random bytes.
    pub(crate) fn new(workers: usize, inherited: Option<InheritedQuic>) -> Result<Self, Failure> {
        let (generation, secrets, go, predecessors) = if let Some(InheritedQuic {
            generation,
            secrets,
            go,
            predecessors,
        }) = inherited
        {
            (Owner::next_generation(generation), secrets, Some(go), predecessors)
        } else {
            let secrets = QuicSecrets::generate();
            (0, secrets.ok_or_else(|| Failure::runtime("the system cannot provide random bytes"))?, None, Vec::new())
        };
        Ok(Self { binds: true, ..Self::of_worker(workers, ReceivedQuic { generation, secrets, go, predecessors }) })
    }

    /// Creates the context of a worker process, which binds no sockets itself.
    pub(crate) fn of_worker(workers: usize, received: ReceivedQuic) -> Self {
        let ReceivedQuic { generation, secrets, go, predecessors } = received;
        let predecessors = predecessors.into_iter().map(|(number, sockets)| Predecessor::new(number, sockets));
        let (hub, inboxes) = RelayHub::new(workers, predecessors.collect());
        let inboxes = Mutex::new(inboxes.into_iter().map(Some).collect());
        Self { cipher: Arc::new(secrets.id_cipher()), secrets, generation, hub, inboxes, go, binds: false }
    }

    /// The keys that all processes of the server share.
    pub(crate) const fn secrets(&self) -> &QuicSecrets {
        &self.secrets
    }

    /// The generation number of this process.
    pub(crate) const fn generation(&self) -> u8 {
        self.generation
    }

    /// Returns the sockets to the workers of earlier processes that have not exited, by generation number.
    pub(crate) fn predecessors(&self) -> impl Iterator<Item = (u8, &[OwnedFd])> {
        let all = self.hub.predecessors().map(|earlier| (earlier.generation, earlier.sockets.as_slice()));
        all.filter(|(_, sockets)| sockets.iter().any(is_connected))
    }

    /// Takes the QUIC parts of one worker. Returns `None` if they were already taken.
    pub(crate) fn take_parts(&self, worker: usize) -> Option<QuicParts> {
        let mut inboxes = self.inboxes.lock().unwrap_or_else(PoisonError::into_inner);
        let inbox = inboxes.get_mut(worker)?.take()?;
        let owner = Owner { generation: self.generation, worker: (worker % WORKERS_MAX) as u16 };
        let identity = QuicIdentity {
            secrets: self.secrets.clone(),
            cipher: Arc::clone(&self.cipher),
            owner,
            hub: Arc::clone(&self.hub),
        };
        Some(QuicParts { identity, inbox, must_wait: self.go.is_some() })
    }

    /// Prepares the sockets and keys for the next process, with one socket for each of `workers`, through which the
    /// next process relays datagrams.
    pub(crate) fn hand_over(&self, workers: usize) -> io::Result<Handover> {
        let (senders, relayed) = relay_sockets(workers)?;
        let own = (self.generation, senders.as_slice());
        Handover::new(self.generation, &self.secrets, [own].into_iter().chain(self.predecessors()), relayed)
    }

    /// Binds a UDP socket for each worker at `bound`, in addition to `inherited` sockets, and makes the kernel steer
    /// packets to the workers that own their connections. Returns no sockets if HTTP/3 is off, or if it is only on by
    /// default and the port is not available.
    ///
    /// # Errors
    /// If HTTP/3 is configured and the port is not available.
    pub(crate) fn bind(
        &self,
        http3: Http3,
        bound: SocketAddr,
        workers: usize,
        inherited: Vec<OwnedFd>,
    ) -> Result<Vec<OwnedFd>, Failure> {
        if http3 == Http3::Off {
            return Ok(Vec::new());
        }
        if !self.binds {
            return Ok(inherited);
        }
        match self.bind_all(bound, workers, inherited) {
            Ok(sockets) => {
                warn_of_buffers(&sockets);
                Ok(sockets)
            }
            Err(error) => {
                let why = match error.kind() {
                    ErrorKind::AddrInUse => "another process uses it".to_owned(),
                    _ => error.to_string(),
                };
                let text = format!("UDP port {} on {} is not available for HTTP/3: {why}", bound.port(), bound.ip());
                if http3 == Http3::On {
                    return Err(Failure::runtime(format!("{text}\n  try: listen \"{bound}\" tls=#true http3=#false")));
                }
                say(&format!("warning: {text}; only HTTP/1.1 and HTTP/2 are served"));
                Ok(Vec::new())
            }
        }
    }

    fn bind_all(&self, bound: SocketAddr, workers: usize, mut sockets: Vec<OwnedFd>) -> io::Result<Vec<OwnedFd>> {
        if sockets.is_empty() {
            check_free(&bound)?;
        }
        while sockets.len() < workers {
            match bind_datagram(&bound, true) {
                Ok((socket, _)) => sockets.push(socket),
                Err(error) if sockets.is_empty() => return Err(error),
                // Without the privileges of the process that bound the other sockets, no more sockets can be bound, so
                // workers share them.
                Err(_) => break,
            }
        }
        if let [first, _, ..] = sockets.as_slice() {
            let program = steering_program(&self.cipher, sockets.len() as u32);
            // Without steering, workers relay packets to each other.
            if let Err(error) = attach_steering(first.as_fd(), &program) {
                say(&format!("warning: the kernel cannot steer HTTP/3 packets to their workers: {error}"));
            }
        }
        Ok(sockets)
    }
}

impl Handover {
    /// Prepares the keys of the process with the number `generation`, and the sockets to the workers of `processes`: of
    /// that process and earlier ones.
    pub(crate) fn new<'a>(
        generation: u8,
        secrets: &QuicSecrets,
        processes: impl Iterator<Item = (u8, &'a [OwnedFd])>,
        relayed: Vec<OwnedFd>,
    ) -> io::Result<Self> {
        let mut copies = Vec::new();
        let mut pass_on = |descriptor: BorrowedFd<'_>| -> io::Result<String> {
            let copy = dup(descriptor)?;
            let number = copy.as_raw_fd().to_string();
            copies.push(copy);
            Ok(number)
        };
        let (keys, input) = pipe_with(PipeFlags::CLOEXEC)?;
        // The keys are far smaller than the capacity of a pipe.
        write(&input, secrets.as_bytes())?;
        let (wait, go) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut text = format!("{generation}:{}:{}", pass_on(keys.as_fd())?, pass_on(wait.as_fd())?);
        for (number, sockets) in processes {
            let numbers: io::Result<Vec<String>> = sockets.iter().map(|socket| pass_on(socket.as_fd())).collect();
            // Writing to a `String` cannot fail.
            let _ = write!(text, ";{number}={}", numbers?.join(","));
        }
        Ok(Self { copies, text, go, relayed })
    }
}

/// Returns whether the other end of a socket is open.
fn is_connected(socket: &OwnedFd) -> bool {
    let mut looked = [PollFd::new(socket, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    !matches!(poll(&mut looked, Some(&now)), Ok(1..)) || !looked[0].revents().contains(PollFlags::HUP)
}

/// Creates pairs of sockets through which another process relays datagrams to the `workers` of a process. Returns the
/// other process's ends, and the workers' ends.
pub(crate) fn relay_sockets(workers: usize) -> io::Result<(Vec<OwnedFd>, Vec<OwnedFd>)> {
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    for _ in 0..workers {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (sender, receiver) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // The buffer gets as large as the kernel permits.
        let _ = set_socket_send_buffer_size(&sender, SEND_BYTES);
        senders.push(sender);
        receivers.push(receiver);
    }
    Ok((senders, receivers))
}

/// Requests large buffers, and warns if the kernel grants much less.
fn warn_of_buffers(sockets: &[OwnedFd]) {
    let granted = sockets.iter().filter_map(|socket| set_buffers(socket.as_fd(), RECEIVE_BYTES, SEND_BYTES).ok()).min();
    if let Some(granted) = granted.filter(|granted| *granted < RECEIVE_BYTES_MIN) {
        say(&format!(
            "warning: the kernel limits receive buffers to {}, so HTTP/3 may lose packets under load\n  \
             try: sysctl -w net.core.rmem_max={RECEIVE_BYTES}",
            exact_size(granted as u64)
        ));
    }
}
