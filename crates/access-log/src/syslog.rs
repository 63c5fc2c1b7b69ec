//! The system log, via its Unix datagram socket: one datagram per line, in the format of RFC 3164 §4, which every libc
//! uses.

use super::sink::{IncompleteWrite, Written};
use flatout_os::local_time::LocalTime;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// Facility daemon (3), severity informational (6): RFC 3164 §4.1.1.
const PRIORITY: u8 = 3 * 8 + 6;

/// A connection to the system log.
#[derive(Debug)]
pub(super) struct SyslogTarget {
    path: PathBuf,
    socket: UnixDatagram,
    /// The second for which `head` was formatted.
    unix_s: i64,
    head: String,
    datagram: Vec<u8>,
}

impl SyslogTarget {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let (head, datagram) = (String::new(), Vec::new());
        Ok(Self { path: path.to_owned(), socket: connect(path)?, unix_s: i64::MIN, head, datagram })
    }

    pub(super) fn write(&mut self, bytes: &[u8], unix_s: i64) -> Written {
        if unix_s != self.unix_s {
            self.unix_s = unix_s;
            self.head = format_head(unix_s);
        }
        let mut taken = 0;
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.datagram.clear();
            self.datagram.extend_from_slice(self.head.as_bytes());
            self.datagram.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
            match self.send() {
                Ok(()) => taken += line.len(),
                Err(Errno::AGAIN | Errno::NOBUFS) => {
                    return Written { bytes: taken, stop: Some(IncompleteWrite::Blocked) };
                }
                Err(errno) => return Written { bytes: taken, stop: Some(IncompleteWrite::Failed(errno.into())) },
            }
        }
        Written { bytes: taken, stop: None }
    }

    /// Sends the datagram, after reconnecting if the log daemon was restarted.
    fn send(&mut self) -> Result<(), Errno> {
        let mut is_reconnected = false;
        loop {
            match send(&self.socket, &self.datagram, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno @ (Errno::CONNREFUSED | Errno::NOTCONN | Errno::CONNRESET | Errno::PIPE)) => {
                    if is_reconnected {
                        return Err(errno);
                    }
                    is_reconnected = true;
                    self.socket = connect(&self.path)
                        .map_err(|error| error.raw_os_error().map_or(errno, Errno::from_raw_os_error))?;
                }
                Err(errno) => return Err(errno),
            }
        }
    }
}

fn connect(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    Ok(socket)
}

/// Formats `<30>Nov  6 08:49:37 flatout[123]: ` in local time, without a host name, as is usual on the local socket.
fn format_head(unix_s: i64) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let time = LocalTime::at(unix_s);
    let month = usize::try_from(time.month).ok().and_then(|month| MONTHS.get(month)).unwrap_or(&MONTHS[0]);
    format!(
        "<{PRIORITY}>{month} {:2} {:02}:{:02}:{:02} flatout[{}]: ",
        time.day,
        time.hour,
        time.minute,
        time.second,
        std::process::id()
    )
}

#[cfg(test)]
mod tests {
    use super::format_head;

    #[test]
    fn the_head_is_that_of_rfc_3164() {
        let head = format_head(784_111_777);
        assert!(head.starts_with("<30>Nov  "), "{head}");
        assert!(head.ends_with(&format!(" flatout[{}]: ", std::process::id())), "{head}");
        assert_eq!(head.find(" flatout"), Some("<30>Nov  6 08:49:37".len()), "{head}");
    }
}
