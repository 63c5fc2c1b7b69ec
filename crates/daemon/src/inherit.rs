//! Sockets inherited from the previous process or from systemd.
//!
//! In an upgrade, the previous process passes its sockets in `FLATOUT_LISTENERS` as `ADDRESS=FD,FD;ADDRESS=FD`. The
//! addresses are the configured ones, including port 0. Socket files that are to be removed at the end are in
//! `FLATOUT_FILES`, as lines of `DEVICE:INODE:PATH`. It also passes a pipe in `FLATOUT_READY`, on which this process reports that it is
//! ready. systemd passes the number of its sockets in `LISTEN_FDS`; their descriptors start at 3
//! (sd_listen_fds(3)). These sockets are identified by their bound addresses.

use crate::failure::say;
use crate::quic::InheritedQuic;
use crate::socket_file::SocketFile;
use flatout_config::model::ListenAddress;
use flatout_os::process::take_inherited;
use rustix::io::ioctl_fionbio;
use rustix::net::sockopt::{ipv6_v6only, socket_acceptconn};
use rustix::net::{SocketAddrUnix, getsockname};
use std::ffi::OsStr;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Environment variable for the listeners handed over in an upgrade.
pub(crate) const LISTENERS: &str = "FLATOUT_LISTENERS";
/// Environment variable for the socket files that the last process removes: those of listeners and of the admin socket.
pub(crate) const FILES: &str = "FLATOUT_FILES";
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
    handed: Vec<(ListenAddress, Vec<OwnedFd>)>,
    /// UDP sockets from the previous process, by configured address.
    datagrams: Vec<(ListenAddress, Vec<OwnedFd>)>,
    /// Listening sockets from systemd.
    activated: Vec<Activated>,
    /// The socket files of the previous process.
    files: Vec<SocketFile>,
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
    address: ListenAddress,
    socket: OwnedFd,
    is_used: bool,
}

/// Returns whether connections to `asked` arrive at `socket`. By default, systemd's `ListenStream=80` accepts connections
/// of both families.
pub(crate) fn covers(socket: &OwnedFd, asked: &ListenAddress) -> bool {
    let Ok(bound) = address_of(socket) else { return false };
    bound == *asked
        || asked.ip().is_some_and(|asked| {
            let both = SocketAddr::from((Ipv6Addr::UNSPECIFIED, asked.port()));
            asked.ip() == Ipv4Addr::UNSPECIFIED && bound == both.into() && ipv6_v6only(socket) == Ok(false)
        })
}

/// Returns the address to which `socket` is bound.
fn address_of(socket: &OwnedFd) -> io::Result<ListenAddress> {
    let bound = getsockname(socket)?;
    if let Ok(address) = SocketAddr::try_from(bound.clone()) {
        return Ok(address.into());
    }
    let address = SocketAddrUnix::try_from(bound)?;
    let path = address.path().ok_or_else(|| io::Error::other("its address is not a path"))?;
    Ok(ListenAddress::Unix(PathBuf::from(OsStr::from_bytes(path.to_bytes()))))
}

impl Inherited {
    /// Takes the descriptors named in the environment. Must be called only once, at startup.
    pub(crate) fn take() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        let take_all = |(address, numbers): (ListenAddress, Vec<RawFd>)| {
            (address, numbers.into_iter().filter_map(|number| take_inherited(number).ok()).collect())
        };
        let take_listed = |name: &str| -> Vec<(ListenAddress, Vec<OwnedFd>)> {
            let listed = variable(name).map(|text| parse_listeners(&text)).unwrap_or_default();
            listed.into_iter().map(take_all).collect()
        };
        let (mut handed, datagrams) = (take_listed(LISTENERS), take_listed(DATAGRAMS));
        let listed = variable(FILES).unwrap_or_default();
        let mut files = Vec::new();
        for (identity, path) in listed.lines().filter_map(parse_file) {
            match SocketFile::adopt(path).filter(|file| file.identity() == Some(identity)) {
                Some(file) => files.push(file),
                // Without its file, no client can find a socket, so a new one takes its place.
                None => handed.retain(|(address, _)| address.path() != Some(path)),
            }
        }
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
        Self { handed, datagrams, activated, files, ready, quic, admin }
    }

    /// Creates the sockets that a worker process received, by configured address.
    pub(crate) fn received(
        handed: Vec<(ListenAddress, Vec<OwnedFd>)>,
        datagrams: Vec<(ListenAddress, Vec<OwnedFd>)>,
    ) -> Self {
        Self { handed, datagrams, ..Self::default() }
    }

    /// Takes the UDP sockets for the configured address `asked`. May be empty.
    pub(crate) fn take_datagrams(&mut self, asked: &ListenAddress) -> Vec<OwnedFd> {
        let taken = self.datagrams.extract_if(.., |(address, _)| address == asked);
        taken.flat_map(|(_, sockets)| sockets).collect()
    }

    /// Takes the listening sockets for the configured address `asked`. May be empty. Two listeners may get
    /// copies of a socket that accepts connections of both families.
    pub(crate) fn take_listeners(&mut self, asked: &ListenAddress) -> io::Result<Vec<OwnedFd>> {
        let mut sockets = Vec::new();
        for (_, handed) in self.handed.extract_if(.., |(address, _)| address == asked) {
            sockets.extend(handed);
        }
        for activated in self.activated.iter_mut().filter(|activated| covers(&activated.socket, asked)) {
            activated.is_used = true;
            sockets.push(activated.socket.try_clone()?);
        }
        Ok(sockets)
    }

    /// Takes the file of the socket at `path`, unless systemd has bound it.
    pub(crate) fn take_file(&mut self, path: &Path) -> Option<SocketFile> {
        self.files.extract_if(.., |file| file.path() == path).next()
    }

    /// Takes the previous process's pipe, if there is one, and the files that this process does not use.
    pub(crate) fn take_previous(&mut self) -> Option<PreviousProcess> {
        Some(PreviousProcess { ready: self.ready.take()?, files: std::mem::take(&mut self.files) })
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

/// The previous process, which serves until this one is ready.
pub(crate) struct PreviousProcess {
    ready: OwnedFd,
    /// Files of sockets that this process does not use.
    files: Vec<SocketFile>,
}

impl PreviousProcess {
    /// Reports that this process is ready, and takes over the files of its sockets. Removes the files of sockets that
    /// are no longer configured.
    pub(crate) fn take_over<'a>(self, files: impl Iterator<Item = &'a SocketFile>) {
        // The previous process leaves the files to this process when it receives the message.
        files.for_each(SocketFile::own);
        self.files.iter().for_each(SocketFile::own);
        // If it has stopped waiting, it has reported this failure and will stop this process.
        let _ = rustix::io::write(&self.ready, READY_WORD);
    }
}

/// Parses `ADDRESS=FD,FD;…`. Invalid parts are ignored, because only a different version could have written them.
fn parse_listeners(text: &str) -> Vec<(ListenAddress, Vec<RawFd>)> {
    let parse = |part: &str| {
        let (address, numbers) = part.split_once('=')?;
        let numbers = numbers.split(',').map(str::parse).collect::<Result<Vec<RawFd>, _>>().ok()?;
        Some((address.parse().ok()?, numbers))
    };
    text.split(';').filter_map(parse).collect()
}

/// Parses `DEVICE:INODE:PATH`.
fn parse_file(part: &str) -> Option<((u64, u64), &Path)> {
    let mut parts = part.splitn(3, ':');
    let mut number = || parts.next()?.parse().ok();
    let identity = (number()?, number()?);
    Some((identity, Path::new(parts.next()?)))
}

/// Formats the value of [`FILES`].
pub(crate) fn format_files<'a>(files: impl Iterator<Item = &'a SocketFile>) -> String {
    let format = |file: &SocketFile| {
        let (device, inode) = file.identity()?;
        Some(format!("{device}:{inode}:{}", file.path().display()))
    };
    files.filter(|file| file.is_own()).filter_map(format).collect::<Vec<_>>().join("\n")
}

/// Formats the value of [`LISTENERS`].
pub(crate) fn format_listeners(listeners: &[(ListenAddress, Vec<RawFd>)]) -> String {
    let format = |(address, numbers): &(ListenAddress, Vec<RawFd>)| {
        let numbers: Vec<String> = numbers.iter().map(RawFd::to_string).collect();
        format!("{address}={}", numbers.join(","))
    };
    listeners.iter().map(format).collect::<Vec<_>>().join(";")
}

fn adopt_activated(number: RawFd, name: &str) -> Option<Activated> {
    match take_inherited(number).and_then(prepare) {
        Ok(adopted) => Some(adopted),
        Err(error) => {
            say(&format!(
                "warning: descriptor {number} ({name}) from systemd is not a listening TCP or Unix socket: {error}"
            ));
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
    let address = address_of(&socket)?;
    ioctl_fionbio(&socket, true)?;
    Ok(Activated { address, socket, is_used: false })
}

#[cfg(test)]
mod tests {
    use super::{format_files, format_listeners, parse_file, parse_listeners};
    use crate::socket_file::SocketFile;

    #[test]
    fn the_list_survives_the_environment() {
        let listeners = vec![
            ("127.0.0.1:0".parse().unwrap(), vec![7, 8]),
            ("[::1]:8080".parse().unwrap(), vec![9]),
            ("unix:/run/a,b:1.sock".parse().unwrap(), vec![10]),
        ];
        assert_eq!(format_listeners(&listeners), "127.0.0.1:0=7,8;[::1]:8080=9;unix:/run/a,b:1.sock=10");
        assert_eq!(parse_listeners(&format_listeners(&listeners)), listeners);
        assert_eq!(
            parse_listeners("127.0.0.1:80=x;nonsense;127.0.0.1:81=3;=1;"),
            [("127.0.0.1:81".parse().unwrap(), vec![3])]
        );
    }

    #[test]
    fn files_survive_the_environment() {
        let path = std::env::temp_dir().join(format!("flatout-inherit:{}", std::process::id()));
        let (_socket, file) = SocketFile::bind(&path, 0o600, None, 1).unwrap();
        let text = format_files([&file].into_iter());
        assert_eq!(parse_file(&text), Some((file.identity().unwrap(), path.as_path())));
        file.leave();
        assert_eq!(format_files([&file].into_iter()), "");
        for bad in ["", "1:2", "1:x:/a", ":2:/a", "/run/a.sock"] {
            assert_eq!(parse_file(bad), None, "{bad}");
        }
        file.own();
    }
}
