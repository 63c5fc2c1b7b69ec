//! The bare-loop HTTP responder: the least work with which an answer can be given over a socket.
//!
//! One thread, one epoll instance, one receive and one send a request. It finds the end of each request head and answers
//! with one response assembled beforehand, whatever was asked. It parses no request, opens no file for one, checks no
//! limit and keeps no clock: a real server can come near it and should not beat it. What it costs is the unit that servers
//! are measured in here.
//!
//! Never to be used as a server: it trusts whoever connects.

mod connection;
mod reply;
mod worker;

pub use reply::{MEMORY_BYTES_MAX, Reply};

use crate::cores::Placement;
use crate::procfs;
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

/// Connections the kernel may hold ready for us; the kernel lowers it to net.core.somaxconn.
const BACKLOG: i32 = 4096;

/// Seconds a connection may sit in the kernel before its first byte, in close mode. A guess; every real client sends at
/// once.
const DEFER_ACCEPT_S: u32 = 5;

/// What to answer, how, and on how many threads.
#[derive(Clone, Debug)]
pub struct ResponderPlan {
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// One thread for each, placed so; at least one.
    pub placements: Vec<Placement>,
    /// What every request is answered with.
    pub reply: Reply,
    /// Whether a connection is closed after one answer.
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
    /// Listens, and starts the threads. When this returns, every thread is ready to answer.
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
                // Being elsewhere than asked changes the figures a little; not answering at all would ruin them.
                let _placed = placement.apply();
                let mut worker = Worker::new(listener, reply, closes)?;
                let _told = started.send(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned());
                worker.run(&stop)
            })?);
        }
        drop(started);
        responder.tasks = starting.iter().take(responder.threads.len()).collect();
        if responder.tasks.len() < responder.threads.len() {
            return Err(responder.join().err().unwrap_or_else(|| io::Error::other("a responder thread ended at once")));
        }
        Ok(responder)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// On-CPU time of its threads so far, in nanoseconds.
    pub fn cpu_ns(&self) -> io::Result<u64> {
        let all = procfs::read_task_times(std::process::id())?;
        Ok(self.tasks.iter().filter_map(|task| all.get(task)).map(|time| time.cpu_ns).sum())
    }

    /// Waits until its threads end by themselves, which is when one of them fails.
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
        // What a thread that is being thrown away has to say no longer matters.
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
        // The connection is then handed over together with its request: no wait between accept and receive.
        flatout_net::socket::set_tcp_defer_accept(listener.as_fd(), DEFER_ACCEPT_S)?;
    }
    if lends {
        flatout_net::socket::set_zerocopy(listener.as_fd())?;
    }
    bind(&listener, &address)?;
    listen(&listener, BACKLOG)?;
    Ok(listener)
}

#[cfg(test)]
mod tests;
