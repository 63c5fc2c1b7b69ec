//! Opening a connection to a server.
//!
//! With the feature `simulation`, which only simulations enable, a [`SimulatedNetwork`] takes the place of the kernel's
//! network on the threads that have entered it. Without the feature, [`begin_connection`] makes only system calls.

use crate::socket::new_socket;
use rustix::io::Errno;
use rustix::net::{connect, sockopt};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

#[cfg(any(test, feature = "simulation"))]
pub use simulated::SimulatedNetwork;

/// Stands in for `SimulatedNetwork` when the feature is disabled: no connection is simulated, which the compiler can
/// see.
#[cfg(not(any(test, feature = "simulation")))]
mod simulated {
    use std::io;
    use std::net::SocketAddr;
    use std::os::fd::OwnedFd;

    pub(super) const fn connect(_: &SocketAddr) -> Option<io::Result<OwnedFd>> {
        None
    }
}

/// Begins to connect a non-blocking TCP socket with TCP_NODELAY to `address`. The second value is true if the socket is
/// already connected; otherwise, it is connected once it becomes writable.
pub fn begin_connection(address: &SocketAddr) -> io::Result<(OwnedFd, bool)> {
    if let Some(connected) = simulated::connect(address) {
        return Ok((connected?, true));
    }
    let socket = new_socket(address)?;
    // The end of a request must not wait for an acknowledgement of its beginning.
    sockopt::set_tcp_nodelay(&socket, true)?;
    match connect(&socket, address) {
        Ok(()) => Ok((socket, true)),
        Err(Errno::INPROGRESS) => Ok((socket, false)),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(any(test, feature = "simulation"))]
mod simulated {
    use crate::entered::Entered;
    use std::cell::RefCell;
    use std::fmt;
    use std::io;
    use std::net::SocketAddr;
    use std::os::fd::OwnedFd;
    use std::rc::Rc;

    /// Connects to an address. Returns the caller's end of a non-blocking stream, or the error of the attempt.
    type Connect = dyn Fn(&SocketAddr) -> io::Result<OwnedFd>;

    /// A network in which a simulation plays the part of every server.
    #[derive(Clone)]
    pub struct SimulatedNetwork(Rc<Connect>);

    thread_local! {
        static CURRENT: RefCell<Option<SimulatedNetwork>> = const { RefCell::new(None) };
    }

    impl SimulatedNetwork {
        /// A network whose connections are the ones that `connect` returns.
        pub fn new(connect: impl Fn(&SocketAddr) -> io::Result<OwnedFd> + 'static) -> Self {
            Self(Rc::new(connect))
        }

        /// Replaces the kernel's network on this thread until the returned value is dropped.
        pub fn enter(&self) -> Entered<Self> {
            Entered::new(&CURRENT, self.clone())
        }
    }

    impl fmt::Debug for SimulatedNetwork {
        fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.debug_struct("SimulatedNetwork").finish_non_exhaustive()
        }
    }

    pub(super) fn connect(address: &SocketAddr) -> Option<io::Result<OwnedFd>> {
        let current = CURRENT.with_borrow(Clone::clone)?;
        Some(current.0(address))
    }
}

#[cfg(test)]
mod tests {
    use super::{SimulatedNetwork, begin_connection};
    use rustix::io::Errno;
    use rustix::net::getpeername;
    use std::net::{SocketAddr, TcpListener};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_simulated_network_takes_the_place_of_the_kernels() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let network = SimulatedNetwork::new(move |asked| {
            if *asked == address { Ok(UnixStream::pair()?.0.into()) } else { Err(Errno::CONNREFUSED.into()) }
        });
        let entered = network.enter();
        let (socket, is_connected) = begin_connection(&address).unwrap();
        assert!(is_connected && getpeername(&socket).unwrap().is_none_or(|peer| SocketAddr::try_from(peer).is_err()));
        let refused = begin_connection(&"192.0.2.1:80".parse().unwrap()).unwrap_err();
        assert_eq!(Errno::from_io_error(&refused), Some(Errno::CONNREFUSED));
        drop(entered);
        let (_socket, _) = begin_connection(&address).unwrap();
        let (_stream, _) = listener.accept().unwrap();
    }
}
