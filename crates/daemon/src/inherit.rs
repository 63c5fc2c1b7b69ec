//! Sockets inherited from the previous process or from systemd.
//!
//! In an upgrade, the previous process passes its sockets in `FLATOUT_LISTENERS` as `ADDRESS=FD,FD;ADDRESS=FD`. The
//! addresses are the configured ones, including port 0. It also passes a pipe in `FLATOUT_READY`, on which this process
//! reports that it is ready. systemd passes the number of its sockets in `LISTEN_FDS`; their descriptors start at 3
//! (sd_listen_fds(3)). These sockets are identified by their bound addresses.

use crate::failure::say;
use crate::quic::InheritedQuic;
use flatout_os::process::take_inherited;
use rustix::io::ioctl_fionbio;
use rustix::net::getsockname;
use rustix::net::sockopt::{ipv6_v6only, socket_acceptconn};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{OwnedFd, RawFd};
use std::path::PathBuf;

/// Environment variable for the listeners handed over in an upgrade.
pub(crate) const LISTENERS: &str = "FLATOUT_LISTENERS";
/// Environment variable for the UDP sockets handed over in an upgrade.
pub(crate) const DATAGRAMS: &str = "FLATOUT_DATAGRAMS";
/// Environment variable for the QUIC keys, and for the sockets to earlier processes.
pub(crate) const QUIC: &str = "FLATOUT_QUIC";
/// Environment variable for the pipe on which readiness is reported.
pub(crate) const READY: &str = "FLATOUT_READY";
/// Environment variable for the admin socket: `FD:PATH`.
pub(crate) const ADMIN: &str = "FLATOUT_ADMIN";
/// Environment variable for the socket that connects a worker process to its supervisor.
pub(crate) const WORKER: &str = "FLATOUT_WORKER";
/// The message that reports readiness.
pub(crate) const READY_WORD: &[u8] = b"ready\n";

/// The first descriptor passed by systemd.
const LISTEN_FDS_START: RawFd = 3;
/// Maximum number of descriptors from systemd. A larger number would be a mistake in a unit file.
const LISTEN_FDS_MAX: i32 = 1024;

/// The inherited descriptors.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    /// Listening sockets from the previous process, by configured address.
    handed: Vec<(SocketAddr, Vec<OwnedFd>)>,
    /// UDP sockets from the previous process, by configured address.
    datagrams: Vec<(SocketAddr, Vec<OwnedFd>)>,
    /// Listening sockets from systemd.
    activated: Vec<Activated>,
    /// The pipe on which the previous process waits for readiness.
    pub(crate) ready: Option<OwnedFd>,
    /// The QUIC state of the previous process.
    pub(crate) quic: Option<InheritedQuic>,
    /// The admin socket of the previous process, and its path.
    pub(crate) admin: Option<(OwnedFd, PathBuf)>,
}

/// A listening socket from systemd.
#[derive(Debug)]
struct Activated {
    /// The bound address.
    address: SocketAddr,
    socket: OwnedFd,
    is_used: bool,
}

/// Returns whether connections to `asked` arrive at `socket`. By default, systemd's `ListenStream=80` accepts connections
/// of both families.
pub(crate) fn covers(socket: &OwnedFd, asked: SocketAddr) -> bool {
    let bound = getsockname(socket).ok().and_then(|bound| SocketAddr::try_from(bound).ok());
    let is_for_both =
        || bound == Some(SocketAddr::from((Ipv6Addr::UNSPECIFIED, asked.port()))) && ipv6_v6only(socket) == Ok(false);
    bound == Some(asked) || (asked.ip() == Ipv4Addr::UNSPECIFIED && is_for_both())
}

impl Inherited {
    /// Takes the descriptors named in the environment. Must be called only once, at startup.
    pub(crate) fn take() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        let take_all = |(address, numbers): (SocketAddr, Vec<RawFd>)| {
            (address, numbers.into_iter().filter_map(|number| take_inherited(number).ok()).collect())
        };
        let take_listed = |name: &str| -> Vec<(SocketAddr, Vec<OwnedFd>)> {
            let listed = variable(name).map(|text| parse_listeners(&text)).unwrap_or_default();
            listed.into_iter().map(take_all).collect()
        };
        let (handed, datagrams) = (take_listed(LISTENERS), take_listed(DATAGRAMS));
        let ready = variable(READY).and_then(|text| take_inherited(text.parse().ok()?).ok());
        let admin = variable(ADMIN).and_then(|text| {
            let (number, path) = text.split_once(':')?;
            Some((take_inherited(number.parse().ok()?).ok()?, PathBuf::from(path)))
        });
        let quic = variable(QUIC).and_then(|text| InheritedQuic::take(&text));
        let is_ours = variable("LISTEN_PID").is_some_and(|pid| pid.parse() == Ok(std::process::id()));
        let count = variable("LISTEN_FDS").filter(|_| is_ours).and_then(|count| count.parse().ok()).unwrap_or(0);
        let names = variable("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let activated = (0..count.clamp(0, LISTEN_FDS_MAX))
            .filter_map(|index| adopt_activated(LISTEN_FDS_START + index, names.next().unwrap_or_default()))
            .collect();
        Self { handed, datagrams, activated, ready, quic, admin }
    }

    /// Creates the sockets that a worker process received, by configured address.
    pub(crate) fn received(
        handed: Vec<(SocketAddr, Vec<OwnedFd>)>,
        datagrams: Vec<(SocketAddr, Vec<OwnedFd>)>,
    ) -> Self {
        Self { handed, datagrams, ..Self::default() }
    }

    /// Takes the UDP sockets for the configured address `asked`. May be empty.
    pub(crate) fn take_datagrams(&mut self, asked: SocketAddr) -> Vec<OwnedFd> {
        let taken = self.datagrams.extract_if(.., |(address, _)| *address == asked);
        taken.flat_map(|(_, sockets)| sockets).collect()
    }

    /// Takes the listening sockets for the configured address `asked`. May be empty. Two listeners may get
    /// copies of a socket that accepts connections of both families.
    pub(crate) fn take_listeners(&mut self, asked: SocketAddr) -> io::Result<Vec<OwnedFd>> {
        let mut sockets = Vec::new();
        for (_, handed) in self.handed.extract_if(.., |(address, _)| *address == asked) {
            sockets.extend(handed);
        }
        for activated in self.activated.iter_mut().filter(|activated| covers(&activated.socket, asked)) {
            activated.is_used = true;
            sockets.push(activated.socket.try_clone()?);
        }
        Ok(sockets)
    }

    /// Reports unused sockets of systemd, and closes all unused sockets.
    pub(crate) fn finish(&mut self) {
        for Activated { address, .. } in self.activated.drain(..).filter(|activated| !activated.is_used) {
            say(&format!("warning: systemd listens on {address}, but no site in the configuration does"));
        }
        self.handed.clear();
        self.datagrams.clear();
    }
}

/// Parses `ADDRESS=FD,FD;…`. Invalid parts are ignored, because only a different version could have written them.
fn parse_listeners(text: &str) -> Vec<(SocketAddr, Vec<RawFd>)> {
    let parse = |part: &str| {
        let (address, numbers) = part.split_once('=')?;
        let numbers = numbers.split(',').map(str::parse).collect::<Result<Vec<RawFd>, _>>().ok()?;
        Some((address.parse().ok()?, numbers))
    };
    text.split(';').filter_map(parse).collect()
}

/// Formats the value of [`LISTENERS`].
pub(crate) fn format_listeners(listeners: &[(SocketAddr, Vec<RawFd>)]) -> String {
    let format = |(address, numbers): &(SocketAddr, Vec<RawFd>)| {
        let numbers: Vec<String> = numbers.iter().map(RawFd::to_string).collect();
        format!("{address}={}", numbers.join(","))
    };
    listeners.iter().map(format).collect::<Vec<_>>().join(";")
}

fn adopt_activated(number: RawFd, name: &str) -> Option<Activated> {
    match take_inherited(number).and_then(prepare) {
        Ok(adopted) => Some(adopted),
        Err(error) => {
            say(&format!("warning: descriptor {number} ({name}) from systemd is not a listening TCP socket: {error}"));
            None
        }
    }
}

/// Prepares a socket from systemd like the server's own sockets, except for socket options, which are set on every
/// listener later.
fn prepare(socket: OwnedFd) -> io::Result<Activated> {
    if !socket_acceptconn(&socket)? {
        return Err(io::Error::other("it is not listening"));
    }
    let address = SocketAddr::try_from(getsockname(&socket)?)?;
    ioctl_fionbio(&socket, true)?;
    Ok(Activated { address, socket, is_used: false })
}

#[cfg(test)]
mod tests {
    use super::{format_listeners, parse_listeners};

    #[test]
    fn the_list_survives_the_environment() {
        let listeners = vec![("127.0.0.1:0".parse().unwrap(), vec![7, 8]), ("[::1]:8080".parse().unwrap(), vec![9])];
        assert_eq!(format_listeners(&listeners), "127.0.0.1:0=7,8;[::1]:8080=9");
        assert_eq!(parse_listeners(&format_listeners(&listeners)), listeners);
        assert_eq!(
            parse_listeners("127.0.0.1:80=x;nonsense;127.0.0.1:81=3;=1;"),
            [("127.0.0.1:81".parse().unwrap(), vec![3])]
        );
    }
}
