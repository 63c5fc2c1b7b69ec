//! Datagrams that arrive at a worker or process other than the one that owns their connection.
//!
//! Within a process, they pass through a bounded channel for each worker. After an upgrade, the new process receives
//! everything, and sends datagrams of older connections through a socket of each old worker. If there is no room for a
//! datagram, it is dropped; QUIC recovers from that as from any loss.

use flatout_net::quic::Datagram;
use flatout_net::quic::ids::{IdCipher, Owner, WORKERS_MAX, destination_id};
use flatout_net::quic::socket::Arrival;
use quinn_proto::EcnCodepoint;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Maximum datagrams that wait for a worker, about 1.5 MB.
const WAITING_MAX: usize = 1024;

/// Number of bytes before the datagram in a message between processes: see [`encode`].
const HEAD_BYTES: usize = 1 + 18 + 22 + 17 + 1;

/// Maximum size of a message between processes, in bytes.
pub(super) const MESSAGE_BYTES: usize = HEAD_BYTES + 65_536;

/// The first byte of each message. Other versions of flatout drop messages of a version they do not know.
const MESSAGE_VERSION: u8 = 1;

/// A datagram on its way to its owner.
#[derive(Debug, PartialEq, Eq)]
pub struct Parcel {
    /// The address of the socket that received the datagram.
    pub(super) bound: SocketAddr,
    pub(super) arrival: Arrival,
    pub(super) bytes: Box<[u8]>,
}

/// The receiver of the datagrams for one worker.
pub type RelayInbox = Receiver<Parcel>;

/// An earlier process, with a socket for each of its workers.
#[derive(Debug)]
pub struct Predecessor {
    /// The number of the process generation.
    pub generation: u8,
    /// The sockets of its workers, in the order of worker numbers.
    pub sockets: Vec<OwnedFd>,
    is_gone: AtomicBool,
}

impl Predecessor {
    /// Creates an entry for a process that still has connections.
    pub const fn new(generation: u8, sockets: Vec<OwnedFd>) -> Self {
        Self { generation, sockets, is_gone: AtomicBool::new(false) }
    }

    /// Returns whether the process has exited.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }
}

/// Senders of datagrams to all owners of connections.
#[derive(Debug)]
pub struct RelayHub {
    workers: Vec<Sender<Parcel>>,
    predecessors: Vec<Predecessor>,
}

impl RelayHub {
    /// Creates the hub of a process with `workers` workers, and the inboxes of the workers.
    pub fn new(workers: usize, predecessors: Vec<Predecessor>) -> (Arc<Self>, Vec<RelayInbox>) {
        let (workers, inboxes) = (0..workers).map(|_| channel(WAITING_MAX)).unzip();
        (Arc::new(Self { workers, predecessors }), inboxes)
    }

    /// Returns the owner for the connections on socket number `socket` of the worker of `first`. Its number modulo the
    /// number of workers is the worker's number. Its number modulo the number of sockets, which are assigned to workers
    /// in turn, is the position of the socket.
    pub(super) fn owner_of(&self, first: Owner, socket: usize) -> Owner {
        let worker = (usize::from(first.worker) + socket * self.workers.len()) % WORKERS_MAX;
        Owner { worker: worker as u16, ..first }
    }

    /// Returns the earlier processes that still have connections, as far as is known.
    pub fn predecessors(&self) -> impl Iterator<Item = &Predecessor> {
        self.predecessors.iter().filter(|predecessor| !predecessor.is_gone())
    }
}

/// The destination of a received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// It belongs to this worker.
    Here,
    /// It was forwarded to its owner.
    PassedOn,
    /// It was dropped because its owner has no room for it.
    Dropped,
    /// It belongs to an unknown process.
    Unknown,
}

/// Forwards a datagram that arrived at the socket `bound` to the owner of its connection.
pub(super) fn route(
    hub: &RelayHub,
    cipher: &IdCipher,
    own: Owner,
    bound: SocketAddr,
    datagram: &Datagram<'_>,
) -> Route {
    // A worker has several sockets with the same address only after an upgrade.
    if hub.workers.len() == 1 && hub.predecessors.is_empty() {
        return Route::Here;
    }
    let Some(owner) = destination_id(datagram.bytes).and_then(|id| cipher.open(id)) else { return Route::Here };
    if owner == own {
        return Route::Here;
    }
    let worker = usize::from(owner.worker);
    if owner.generation == own.generation {
        let Some(sender) = hub.workers.get(worker % hub.workers.len().max(1)) else { return Route::Unknown };
        let parcel = Parcel { bound, arrival: datagram.arrival, bytes: datagram.bytes.into() };
        return if sender.try_send(parcel).is_ok() { Route::PassedOn } else { Route::Dropped };
    }
    let predecessor = hub.predecessors().find(|predecessor| predecessor.generation == owner.generation);
    let Some(predecessor) = predecessor else { return Route::Unknown };
    let position = worker % predecessor.sockets.len().max(1);
    let Some(socket) = predecessor.sockets.get(position) else { return Route::Unknown };
    let message = encode(bound, datagram);
    match send(socket, &message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
        Ok(_) => Route::PassedOn,
        Err(Errno::PIPE | Errno::CONNRESET | Errno::CONNREFUSED | Errno::NOTCONN) => {
            predecessor.is_gone.store(true, Ordering::Relaxed);
            Route::Unknown
        }
        Err(_) => Route::Dropped,
    }
}

/// Encodes a message between processes: the version, the address of the socket, the address of the peer, the local IP
/// address, ECN, and the datagram.
fn encode(bound: SocketAddr, datagram: &Datagram<'_>) -> Vec<u8> {
    let Datagram { arrival: Arrival { remote, local_ip, ecn }, bytes } = datagram;
    let mut message = Vec::with_capacity(HEAD_BYTES + bytes.len());
    message.push(MESSAGE_VERSION);
    encode_address(bound, &mut message);
    encode_address(*remote, &mut message);
    let scope = if let SocketAddr::V6(remote) = remote { remote.scope_id() } else { 0 };
    message.extend_from_slice(&scope.to_be_bytes());
    message.push(u8::from(local_ip.is_some()));
    message.extend_from_slice(&local_ip.map_or([0; 16], octets));
    message.push(ecn.map_or(0, |ecn| ecn as u8));
    message.extend_from_slice(bytes);
    message
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn encode_address(address: SocketAddr, message: &mut Vec<u8>) {
    message.extend_from_slice(&octets(address.ip()));
    message.extend_from_slice(&address.port().to_be_bytes());
}

/// Decodes a message. Returns `None` if it is malformed or has another version.
pub(super) fn decode(message: &[u8]) -> Option<(SocketAddr, Datagram<'_>)> {
    let (&version, message) = message.split_first()?;
    if version != MESSAGE_VERSION {
        return None;
    }
    let (bound, message) = decode_address(message)?;
    let (mut remote, message) = decode_address(message)?;
    let (scope, message) = message.split_first_chunk()?;
    if let SocketAddr::V6(remote) = &mut remote {
        *remote = SocketAddrV6::new(*remote.ip(), remote.port(), 0, u32::from_be_bytes(*scope));
    }
    let (&has_local, message) = message.split_first()?;
    let (local, message) = message.split_first_chunk::<16>()?;
    let (&ecn, bytes) = message.split_first()?;
    let local_ip = (has_local == 1).then(|| Ipv6Addr::from(*local).to_canonical());
    let arrival = Arrival { remote, local_ip, ecn: EcnCodepoint::from_bits(ecn) };
    Some((bound, Datagram { arrival, bytes }))
}

fn decode_address(message: &[u8]) -> Option<(SocketAddr, &[u8])> {
    let (ip, message) = message.split_first_chunk::<16>()?;
    let (port, message) = message.split_first_chunk()?;
    Some((SocketAddr::new(Ipv6Addr::from(*ip).to_canonical(), u16::from_be_bytes(*port)), message))
}

#[cfg(test)]
mod tests {
    use super::{Predecessor, RelayHub, Route, decode, encode, route};
    use flatout_net::quic::Datagram;
    use flatout_net::quic::ids::{IdCipher, Owner};
    use flatout_net::quic::socket::Arrival;
    use quinn_proto::EcnCodepoint;
    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};

    #[test]
    fn messages_survive_the_way() {
        for (bound, remote, local_ip) in [
            ("127.0.0.1:443", "10.0.0.1:5000", Some("127.0.0.1")),
            ("[::1]:443", "[2001:db8::1]:5000", Some("::1")),
            ("0.0.0.0:443", "[fe80::1%3]:1", None),
        ] {
            let arrival = Arrival {
                remote: remote.parse().unwrap(),
                local_ip: local_ip.map(|ip| ip.parse().unwrap()),
                ecn: Some(EcnCodepoint::Ce),
            };
            let datagram = Datagram { arrival, bytes: b"packet" };
            let message = encode(bound.parse().unwrap(), &datagram);
            let (at, decoded) = decode(&message).unwrap();
            assert_eq!((at, decoded), (bound.parse().unwrap(), datagram));
            for end in 0..super::HEAD_BYTES {
                assert_eq!(decode(&message[..end]), None);
            }
        }
    }

    #[test]
    fn datagrams_reach_the_owner_of_their_connection() {
        let cipher = IdCipher::new(&[1; 16]);
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let (hub, mut inboxes) = RelayHub::new(2, vec![Predecessor::new(4, vec![ours])]);
        let own = Owner { generation: 5, worker: 0 };
        let arrival = Arrival { remote: "10.0.0.1:1".parse().unwrap(), local_ip: None, ecn: None };
        let bound = "127.0.0.1:443".parse().unwrap();
        let send = |owner: Owner| {
            let packet = [&[0x41][..], &cipher.seal(owner, 1)].concat();
            route(&hub, &cipher, own, bound, &Datagram { arrival, bytes: &packet })
        };
        assert_eq!(send(own), Route::Here);
        assert_eq!(send(Owner { worker: 1, ..own }), Route::PassedOn);
        assert_eq!(inboxes[1].try_recv().unwrap().bound, bound);
        // The second socket of a worker.
        assert_eq!(hub.owner_of(own, 1), Owner { worker: 2, ..own });
        assert_eq!(send(Owner { worker: 3, ..own }), Route::PassedOn);
        assert!(inboxes[1].try_recv().is_ok() && inboxes[0].try_recv().is_err());
        assert_eq!(send(Owner { generation: 3, worker: 0 }), Route::Unknown);
        let of_predecessor = Owner { generation: 4, worker: 0 };
        assert_eq!(send(of_predecessor), Route::PassedOn);
        let mut message = [0; 256];
        let (count, _) = recv(&theirs, &mut message[..], RecvFlags::empty()).unwrap();
        assert_eq!(decode(&message[..count]).unwrap().0, bound);
        drop(theirs);
        assert_eq!(send(of_predecessor), Route::Unknown);
        assert_eq!(hub.predecessors().count(), 0);
        let foreign = Datagram { arrival, bytes: b"\x41no connection ID here!!" };
        assert_eq!(route(&hub, &cipher, own, bound, &foreign), Route::Here);
    }
}
