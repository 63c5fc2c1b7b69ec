//! The bare-loop HTTP responder, which does the least work that produces a response over a socket.
//!
//! It has one thread, one epoll instance, and one receive and one send per request. It finds the end of each request
//! head and sends one prebuilt response, whatever the request. It parses no request, opens no file, checks no limit and
//! reads no clock. A real server can approach it and should not beat it. Its cost is the unit of server costs in this
//! lab.
//!
//! Never use it as a server: it trusts all clients.

mod connection;
mod forward;
mod reply;
mod worker;

pub use reply::{MEMORY_BYTES_MAX, ResponderReply};

use crate::cores::Placement;
use flatout_os::procfs;
use forward::ForwardLoop;
use reply::{Assembled, ReplyError};
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with, bind, listen, socket_with, sockopt};
use rustix::time::Timespec;
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use worker::Worker;

/// Backlog of the listener. The kernel caps it at net.core.somaxconn.
const BACKLOG: i32 = 4096;

/// Maximum number of events per wait: about the number of busy connections in common benchmarks.
const EVENTS_MAX: usize = 256;

/// Interval at which an idle loop checks whether to stop.
const STOP_CHECK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Maximum time for which a connection waits in the kernel for its first byte, in close mode, in seconds. A guess:
/// every real client sends immediately.
const DEFER_ACCEPT_S: u32 = 5;

/// The responder's address, threads and response.
#[derive(Clone, Debug)]
pub struct ResponderPlan {
    /// Address to listen on. Port 0 selects a free port.
    pub address: SocketAddr,
    /// The cores of each thread. There is at least one thread.
    pub placements: Vec<Placement>,
    /// The response to every request.
    pub reply: ResponderReply,
    /// True if each connection is closed after one response. Ignored if requests are forwarded.
    pub closes: bool,
}

/// The reaction of a thread to a request: it sends a prebuilt response, or forwards the request to a server.
#[derive(Clone)]
enum ThreadWork {
    Reply(Arc<Assembled>),
    Forward(SocketAddr),
}

/// A running responder. Dropping it stops and joins its threads.
#[derive(Debug)]
pub struct Responder {
    address: SocketAddr,
    tasks: Vec<u32>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Responder {
    /// Listens, and starts the threads. When it returns, every thread is ready.
    pub fn start(plan: &ResponderPlan) -> io::Result<Self> {
        let work = match plan.reply {
            ResponderReply::Origin(origin) => ThreadWork::Forward(origin),
            _ => ThreadWork::Reply(Arc::new(plan.reply.assemble(plan.closes).map_err(ReplyError::into_io)?)),
        };
        let lends = matches!(&work, ThreadWork::Reply(reply) if reply.is_lent());
        let first = listen_at(plan.address, plan.closes, lends)?;
        let address = SocketAddr::try_from(rustix::net::getsockname(&first)?)?;
        let mut listeners = vec![first];
        for _ in 1..plan.placements.len().max(1) {
            listeners.push(listen_at(address, plan.closes, lends)?);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (started, starting) = mpsc::channel();
        let mut responder = Self { address, tasks: Vec::new(), stop, threads: Vec::new() };
        for (index, listener) in listeners.into_iter().enumerate() {
            let placement = plan.placements.get(index).copied().unwrap_or(Placement::Anywhere);
            let (work, closes) = (work.clone(), plan.closes);
            let (stop, started) = (Arc::clone(&responder.stop), started.clone());
            responder.threads.push(thread::Builder::new().name(format!("responder-{index}")).spawn(move || {
                // Running on other cores changes the figures a little, but failing would lose them. So a failure is
                // ignored.
                let _placed = placement.apply();
                let started = || started.send(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned());
                let events = EventLoop::new(listener)?;
                let _told = started();
                match work {
                    ThreadWork::Reply(reply) => run(&mut Worker::new(events, reply, closes), &stop),
                    ThreadWork::Forward(origin) => run(&mut ForwardLoop::new(events, origin), &stop),
                }
            })?);
        }
        drop(started);
        responder.tasks = starting.iter().take(responder.threads.len()).collect();
        if responder.tasks.len() < responder.threads.len() {
            return Err(responder
                .join()
                .err()
                .unwrap_or_else(|| io::Error::other("a responder thread exited immediately")));
        }
        Ok(responder)
    }

    /// Returns the bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the CPU time of the responder's threads so far, in nanoseconds.
    pub fn cpu_ns(&self) -> io::Result<u64> {
        let all = procfs::read_task_times(std::process::id())?;
        Ok(self.tasks.iter().filter_map(|task| all.get(task)).map(|time| time.cpu_ns).sum())
    }

    /// Waits until the responder's threads exit by themselves, which happens if one of them fails.
    pub fn join(&mut self) -> io::Result<()> {
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| io::Error::other("a responder thread panicked"))??;
        }
        Ok(())
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // The errors of a stopped thread are irrelevant.
        let _ended = self.join();
    }
}

/// The listener and the epoll instance of one thread.
struct EventLoop {
    listener: OwnedFd,
    epoll: OwnedFd,
}

/// The handlers of one thread's connections. Connections are numbered by their descriptors, which the kernel keeps
/// small.
trait ConnectionWork {
    fn events(&self) -> &EventLoop;

    fn handle_accepted(&mut self, socket: OwnedFd) -> io::Result<()>;

    fn handle_event(&mut self, index: usize);
}

impl EventLoop {
    fn new(listener: OwnedFd) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(listener.as_raw_fd() as u64), EventFlags::IN)?;
        Ok(Self { listener, epoll })
    }

    /// Registers a connection for `flags`, edge-triggered. Returns the connection's number.
    fn add(&self, socket: &OwnedFd, flags: EventFlags) -> io::Result<usize> {
        let index = socket.as_raw_fd() as usize;
        let flags = flags | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, socket, EventData::new_u64(index as u64), flags)?;
        Ok(index)
    }

    /// Returns the next connection in the listener's queue; `None` if the queue is empty.
    fn accept_next(&self) -> io::Result<Option<OwnedFd>> {
        loop {
            match accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => return Ok(Some(socket)),
                Err(Errno::AGAIN) => return Ok(None),
                // The peer causes both, and they concern only its connection.
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Handles events until `stop` is true.
fn run(work: &mut impl ConnectionWork, stop: &AtomicBool) -> io::Result<()> {
    let mut room = [const { MaybeUninit::<Event>::uninit() }; EVENTS_MAX];
    let listener = work.events().listener.as_raw_fd() as usize;
    while !stop.load(Ordering::Relaxed) {
        let events = match epoll::wait(&work.events().epoll, &mut room, Some(&STOP_CHECK)) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        for event in events {
            let index = event.data.u64() as usize;
            if index != listener {
                work.handle_event(index);
                continue;
            }
            while let Some(socket) = work.events().accept_next()? {
                work.handle_accepted(socket)?;
            }
        }
    }
    Ok(())
}

fn listen_at(address: SocketAddr, closes: bool, lends: bool) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&listener, true)?;
    sockopt::set_socket_reuseport(&listener, true)?;
    if closes {
        // The kernel then reports a connection only with its request, so the server does not wait between accept and
        // receive.
        flatout_os::socket::set_tcp_defer_accept(listener.as_fd(), DEFER_ACCEPT_S)?;
    }
    if lends {
        flatout_os::socket::set_zerocopy(listener.as_fd())?;
    }
    bind(&listener, &address)?;
    listen(&listener, BACKLOG)?;
    Ok(listener)
}

#[cfg(test)]
mod tests;
