//! The bare-loop HTTP responder: the least work that produces a response over a socket.
//!
//! One thread, one epoll instance, one receive and one send per request. It finds the end of each request head and
//! sends one prebuilt response, whatever the request. It parses no request, opens no file, checks no limit and reads
//! no clock: a real server can approach it and should not beat it. Its cost is the unit of server costs in this lab.
//!
//! Never use it as a server: it trusts all clients.

mod connection;
mod reply;
mod worker;

pub use reply::{MEMORY_BYTES_MAX, ResponderReply};

use crate::cores::Placement;
use flatout_os::procfs;
use reply::ReplyError;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use worker::Worker;

/// Backlog of the listener; the kernel caps it at net.core.somaxconn.
const BACKLOG: i32 = 4096;

/// Seconds that a connection may wait in the kernel for its first byte, in close mode. A guess; every real client
/// sends immediately.
const DEFER_ACCEPT_S: u32 = 5;

/// The responder's address, threads and response.
#[derive(Clone, Debug)]
pub struct ResponderPlan {
    /// Address to listen on; port 0 selects a free one.
    pub address: SocketAddr,
    /// The cores of each thread; at least one thread.
    pub placements: Vec<Placement>,
    /// The response to every request.
    pub reply: ResponderReply,
    /// True to close each connection after one response.
    pub closes: bool,
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
    /// Listens, and starts the threads. On return every thread is ready.
    pub fn start(plan: &ResponderPlan) -> io::Result<Self> {
        let reply = Arc::new(plan.reply.assemble(plan.closes).map_err(ReplyError::into_io)?);
        let first = listen_at(plan.address, plan.closes, reply.is_lent())?;
        let address = SocketAddr::try_from(rustix::net::getsockname(&first)?)?;
        let mut listeners = vec![first];
        for _ in 1..plan.placements.len().max(1) {
            listeners.push(listen_at(address, plan.closes, reply.is_lent())?);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (started, starting) = mpsc::channel();
        let mut responder = Self { address, tasks: Vec::new(), stop, threads: Vec::new() };
        for (index, listener) in listeners.into_iter().enumerate() {
            let placement = plan.placements.get(index).copied().unwrap_or(Placement::Anywhere);
            let (reply, closes) = (Arc::clone(&reply), plan.closes);
            let (stop, started) = (Arc::clone(&responder.stop), started.clone());
            responder.threads.push(thread::Builder::new().name(format!("responder-{index}")).spawn(move || {
                // Running on other cores changes the figures a little; not running would ruin them.
                let _placed = placement.apply();
                let mut worker = Worker::new(listener, reply, closes)?;
                let _told = started.send(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned());
                worker.run(&stop)
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

    /// The bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// CPU time of its threads so far, in nanoseconds.
    pub fn cpu_ns(&self) -> io::Result<u64> {
        let all = procfs::read_task_times(std::process::id())?;
        Ok(self.tasks.iter().filter_map(|task| all.get(task)).map(|time| time.cpu_ns).sum())
    }

    /// Waits until its threads end by themselves, which happens if one fails.
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
        // Errors of a stopped thread are irrelevant.
        let _ended = self.join();
    }
}

fn listen_at(address: SocketAddr, closes: bool, lends: bool) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&listener, true)?;
    sockopt::set_socket_reuseport(&listener, true)?;
    if closes {
        // The connection is then accepted together with its request: no wait between accept and receive.
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
