//! Inherited sockets: from the previous process, or from systemd.
//!
//! An upgrade passes them in `FLATOUT_LISTENERS`, `ADDRESS=FD,FD;ADDRESS=FD`, with the addresses as configured (port
//! 0 included), and a pipe in `FLATOUT_READY`, on which this process reports readiness. systemd passes their number
//! in `LISTEN_FDS`, from descriptor 3 on (sd_listen_fds(3)); they are identified by their addresses.

use crate::failure::say;
use flatout_os::process::take_inherited;
use rustix::io::ioctl_fionbio;
use rustix::net::getsockname;
use rustix::net::sockopt::socket_acceptconn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::path::PathBuf;

/// Environment variable of the listeners handed over by an upgrade.
pub(crate) const LISTENERS: &str = "FLATOUT_LISTENERS";
/// Environment variable of the pipe for the readiness message.
pub(crate) const READY: &str = "FLATOUT_READY";
/// Environment variable of the admin socket, `FD:PATH`.
pub(crate) const ADMIN: &str = "FLATOUT_ADMIN";
/// The readiness message.
pub(crate) const READY_WORD: &[u8] = b"ready\n";

/// systemd's first descriptor.
const LISTEN_FDS_START: RawFd = 3;
/// Upper bound of descriptors; more would be a mistake in a unit file.
const LISTEN_FDS_MAX: i32 = 1024;

/// The inherited descriptors.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    /// From the previous process, by configured address.
    handed: Vec<(SocketAddr, Vec<OwnedFd>)>,
    /// From systemd, by bound address.
    activated: Vec<(SocketAddr, OwnedFd)>,
    /// The pipe on which readiness is awaited.
    pub(crate) ready: Option<OwnedFd>,
    /// The admin socket of the previous process, and its path.
    pub(crate) admin: Option<(OwnedFd, PathBuf)>,
}

impl Inherited {
    /// Takes the descriptors named by the environment. Must be called once, at startup.
    pub(crate) fn take() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        let handed = variable(LISTENERS).map(|text| parse_listeners(&text)).unwrap_or_default();
        let take_all = |(address, numbers): (SocketAddr, Vec<RawFd>)| {
            (address, numbers.into_iter().filter_map(|number| take_inherited(number).ok()).collect())
        };
        let handed = handed.into_iter().map(take_all).collect();
        let ready = variable(READY).and_then(|text| take_inherited(text.parse().ok()?).ok());
        let admin = variable(ADMIN).and_then(|text| {
            let (number, path) = text.split_once(':')?;
            Some((take_inherited(number.parse().ok()?).ok()?, PathBuf::from(path)))
        });
        let is_ours = variable("LISTEN_PID").is_some_and(|pid| pid.parse() == Ok(std::process::id()));
        let count = variable("LISTEN_FDS").filter(|_| is_ours).and_then(|count| count.parse().ok()).unwrap_or(0);
        let names = variable("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let activated = (0..count.clamp(0, LISTEN_FDS_MAX))
            .filter_map(|index| adopt_activated(LISTEN_FDS_START + index, names.next().unwrap_or_default()))
            .collect();
        Self { handed, activated, ready, admin }
    }

    /// The sockets for `asked`, possibly none.
    pub(crate) fn take_listeners(&mut self, asked: SocketAddr) -> Vec<OwnedFd> {
        let mut sockets = Vec::new();
        for (_, handed) in self.handed.extract_if(.., |(address, _)| *address == asked) {
            sockets.extend(handed);
        }
        sockets.extend(self.activated.extract_if(.., |(address, _)| *address == asked).map(|(_, socket)| socket));
        sockets
    }

    /// Reports unused systemd sockets, and closes all.
    pub(crate) fn finish(&mut self) {
        for (address, _) in self.activated.drain(..) {
            say(&format!("warning: systemd listens on {address}, but no site of the configuration does"));
        }
        self.handed.clear();
    }
}

/// Parses `ADDRESS=FD,FD;…`. Invalid parts are ignored: they can only come from a newer version.
fn parse_listeners(text: &str) -> Vec<(SocketAddr, Vec<RawFd>)> {
    let parse = |part: &str| {
        let (address, numbers) = part.split_once('=')?;
        let numbers = numbers.split(',').map(str::parse).collect::<Result<Vec<RawFd>, _>>().ok()?;
        Some((address.parse().ok()?, numbers))
    };
    text.split(';').filter_map(parse).collect()
}

/// The text for [`LISTENERS`].
pub(crate) fn format_listeners(listeners: &[(SocketAddr, Vec<RawFd>)]) -> String {
    let format = |(address, numbers): &(SocketAddr, Vec<RawFd>)| {
        let numbers: Vec<String> = numbers.iter().map(RawFd::to_string).collect();
        format!("{address}={}", numbers.join(","))
    };
    listeners.iter().map(format).collect::<Vec<_>>().join(";")
}

fn adopt_activated(number: RawFd, name: &str) -> Option<(SocketAddr, OwnedFd)> {
    match take_inherited(number).and_then(prepare) {
        Ok(adopted) => Some(adopted),
        Err(error) => {
            say(&format!("warning: descriptor {number} ({name}) of systemd is not a listening TCP socket: {error}"));
            None
        }
    }
}

/// Prepares a socket of systemd like the server's own, except for options, which every listener receives later.
fn prepare(socket: OwnedFd) -> io::Result<(SocketAddr, OwnedFd)> {
    if !socket_acceptconn(&socket)? {
        return Err(io::Error::other("it is not listening"));
    }
    let address = SocketAddr::try_from(getsockname(&socket)?)?;
    ioctl_fionbio(&socket, true)?;
    Ok((address, socket))
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
