//! Signals from the operating system, through a descriptor that can be polled with others.
//!
//! The signals are blocked instead of handled: they queue until they are read, and interrupt nothing. Threads started
//! later inherit the mask, so it must be set before they start. A program started with `std::process::Command` does not
//! inherit it.

#![allow(unsafe_code)] // the signal mask and the descriptor, which no safe wrapper offers

use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

/// The action that a signal requests from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalAction {
    /// SIGTERM or SIGINT: stop gracefully, or immediately at the second signal. Also SIGHUP when the terminal was
    /// closed.
    Stop,
    /// SIGHUP: reload the configuration.
    Reload,
    /// SIGUSR1: print the counters and reopen the logs.
    Report,
    /// SIGUSR2: hand over to a new process.
    Upgrade,
}

/// A descriptor that receives the signals that the server handles.
#[derive(Debug)]
pub struct Signals(OwnedFd);

/// Size of the kernel's `signalfd_siginfo`, in bytes.
const SIGINFO_BYTES: usize = size_of::<libc::signalfd_siginfo>();

/// `ssi_code` of signals that the kernel itself sends.
const FROM_KERNEL: i32 = 0x80;

impl Signals {
    /// Blocks the signals on this thread and on threads that it starts later, and opens the signalfd.
    ///
    /// # Errors
    /// If no descriptor is left.
    pub fn take() -> io::Result<Self> {
        // SAFETY: the set lives on this stack and is initialised by sigemptyset before it is read. The calls use
        // pointers to it only for their own duration, and nothing else owns the descriptor that signalfd returns.
        unsafe {
            let mut set = std::mem::zeroed::<libc::sigset_t>();
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2] {
                libc::sigaddset(&raw mut set, signal);
            }
            let error = libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
            let fd = libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Self(OwnedFd::from_raw_fd(fd)))
        }
    }

    /// The descriptor, which is readable when a signal is pending.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Reads the next pending signal. Returns `None` if there is none.
    pub fn next(&self) -> Option<SignalAction> {
        let mut info = [0; SIGINFO_BYTES];
        loop {
            match rustix::io::read(&self.0, &mut info) {
                Ok(count) if count == SIGINFO_BYTES => return parse_info(&info),
                Err(Errno::INTR) => {}
                _ => return None,
            }
        }
    }
}

/// Parses the layout of signalfd(2): the signal number, an error and the code, 32 bits each.
fn parse_info(info: &[u8; SIGINFO_BYTES]) -> Option<SignalAction> {
    let word = |at: usize| i32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
    let (signal, code) = (word(0), word(8));
    match signal {
        libc::SIGTERM | libc::SIGINT => Some(SignalAction::Stop),
        // The kernel sends this when the terminal closes. No user is left to stop the server.
        libc::SIGHUP if code == FROM_KERNEL => Some(SignalAction::Stop),
        libc::SIGHUP => Some(SignalAction::Reload),
        libc::SIGUSR1 => Some(SignalAction::Report),
        libc::SIGUSR2 => Some(SignalAction::Upgrade),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{FROM_KERNEL, SIGINFO_BYTES, SignalAction, parse_info};

    fn info(signal: i32, code: i32) -> [u8; SIGINFO_BYTES] {
        let mut info = [0; SIGINFO_BYTES];
        info[..4].copy_from_slice(&signal.to_ne_bytes());
        info[8..12].copy_from_slice(&code.to_ne_bytes());
        info
    }

    #[test]
    fn a_terminal_hangup_is_not_a_reload() {
        assert_eq!(parse_info(&info(libc::SIGHUP, 0)), Some(SignalAction::Reload));
        assert_eq!(parse_info(&info(libc::SIGHUP, FROM_KERNEL)), Some(SignalAction::Stop));
        assert_eq!(parse_info(&info(libc::SIGTERM, 0)), Some(SignalAction::Stop));
        assert_eq!(parse_info(&info(libc::SIGINT, FROM_KERNEL)), Some(SignalAction::Stop));
        assert_eq!(parse_info(&info(libc::SIGUSR1, 0)), Some(SignalAction::Report));
        assert_eq!(parse_info(&info(libc::SIGUSR2, 0)), Some(SignalAction::Upgrade));
        assert_eq!(parse_info(&info(libc::SIGCHLD, 0)), None);
    }
}
