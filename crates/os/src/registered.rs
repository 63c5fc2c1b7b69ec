//! A descriptor registered with the worker's runtime, so that tasks can wait until it is ready.

#![allow(unsafe_code)] // tokio asks for a promise about the descriptor; the type below keeps it

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

/// An open descriptor, owned or shared, that stays the same for as long as the value lives.
pub trait Descriptor: AsFd + AsRawFd + Debug + Unpin {}

impl Descriptor for OwnedFd {}
impl Descriptor for Rc<OwnedFd> {}

/// An open descriptor that the runtime watches, edge-triggered. It cannot be replaced or closed while registered.
#[derive(Debug)]
pub struct Registered<T: Descriptor = OwnedFd>(AsyncFd<T>);

impl Registered {
    /// Registers `fd` for reading and writing. Must be called within a worker's runtime.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        Self::with_interest(fd, Interest::READABLE | Interest::WRITABLE)
    }
}

impl<T: Descriptor> Registered<T> {
    /// Registers `fd` for the directions in `interest`. Must be called within a worker's runtime.
    pub fn with_interest(fd: T, interest: Interest) -> io::Result<Self> {
        // SAFETY: a `Descriptor` is open until it is dropped, and this type neither gives it away nor lets it be
        // replaced: it stays the same open descriptor for as long as the registration lasts.
        unsafe { AsyncFd::register_with_interest(fd, interest) }.map(Self).map_err(Into::into)
    }

    /// Ends the registration and returns the descriptor.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }

    /// The descriptor, for system calls.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }

    /// Ready if the descriptor may be readable. The caller must clear the guard's readiness once it has read
    /// everything.
    pub fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<AsyncFdReadyGuard<'_, T>>> {
        self.0.poll_read_ready(context)
    }

    /// Ready if the descriptor may be writable. The caller must clear the guard's readiness once a write would block.
    pub fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<AsyncFdReadyGuard<'_, T>>> {
        self.0.poll_write_ready(context)
    }
}
