//! Messages with descriptors between the supervisor and a worker process, over a pair of Unix sockets.
//!
//! A message is one packet of JSON. Its descriptors precede it in packets of their own, as the kernel passes only some
//! at a time; a long message is a file in memory, whose descriptor comes last. The supervisor takes no descriptors.

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read as _, Seek as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Descriptors in one packet; the kernel passes at most 253.
const DESCRIPTORS_MAX: usize = 128;

/// Descriptors of one message: far more than any configuration has sockets.
const ALL_DESCRIPTORS_MAX: usize = 1 << 20;

/// Upper bound of a packet, in bytes. A longer message is a file.
const PACKET_BYTES_MAX: usize = 32 * 1024;

/// First byte of a packet that only carries descriptors.
const DESCRIPTORS: u8 = b'd';
/// First byte of a packet with a message.
const MESSAGE: u8 = b'm';
/// First byte of a packet whose last descriptor is a file with a message.
const FILE: u8 = b'f';

/// One end of the pair.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: OwnedFd,
    /// True if messages may carry descriptors to this end.
    takes_descriptors: bool,
    /// Those of a message that is not complete.
    taken: Vec<OwnedFd>,
    /// True if the kernel could not pass all descriptors of that message, because this process may not open more.
    is_short: bool,
}

/// The result of looking for a message.
#[derive(Debug)]
pub(crate) enum Incoming<T> {
    /// It has not arrived yet.
    Nothing,
    /// A message and its descriptors; none if the kernel could not pass all of them.
    Message(T, Vec<OwnedFd>),
    /// A long message whose file the kernel could not pass.
    Lost,
    /// The other process has closed its end.
    Closed,
}

impl Channel {
    /// A pair: the supervisor's end, and the worker process's socket.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (own, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self { socket: own, takes_descriptors: false, taken: Vec::new(), is_short: false }, other))
    }

    /// The worker process's end.
    pub(crate) const fn of_worker(socket: OwnedFd) -> Self {
        Self { socket, takes_descriptors: true, taken: Vec::new(), is_short: false }
    }

    /// Readable if there is a message, or the other end is closed.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends a message with copies of `descriptors`.
    ///
    /// # Errors
    /// If the other process has exited, does not receive, or no descriptor is left; and if a message to the supervisor,
    /// which takes no descriptors, does not fit in one packet.
    pub(crate) fn send(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        for part in descriptors.chunks(DESCRIPTORS_MAX) {
            self.send_packet(&[DESCRIPTORS], part)?;
        }
        let mut packet = vec![MESSAGE];
        serde_json::to_writer(&mut packet, message)?;
        if packet.len() <= PACKET_BYTES_MAX {
            return self.send_packet(&packet, &[]);
        }
        // Only a worker process's end takes descriptors.
        if self.takes_descriptors {
            return Err(io::Error::new(ErrorKind::InvalidInput, "the message is too long for the supervisor"));
        }
        let mut file = File::from(memfd_create("flatout-message", MemfdFlags::CLOEXEC)?);
        file.write_all(&packet[1..])?;
        file.rewind()?;
        self.send_packet(&[FILE], &[file.as_fd()])
    }

    fn send_packet(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(ErrorKind::InvalidInput.into());
        }
        loop {
            match sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                result => return result.map(|_| ()).map_err(Into::into),
            }
        }
    }

    /// The next message.
    ///
    /// # Errors
    /// If what arrived is not a message. The other process is then not to be trusted any more.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Incoming<T>> {
        let mut buffer = vec![0; PACKET_BYTES_MAX + 1];
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
            // Without space, the kernel closes what was sent.
            let mut control = if self.takes_descriptors {
                RecvAncillaryBuffer::new(&mut space)
            } else {
                RecvAncillaryBuffer::new(&mut [])
            };
            let mut parts = [IoSliceMut::new(&mut buffer)];
            let (received, got_less) = match recvmsg(&self.socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => (received.bytes, received.flags.contains(ReturnFlags::CTRUNC)),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(Incoming::Nothing),
                Err(Errno::CONNRESET) => return Ok(Incoming::Closed),
                Err(errno) => return Err(errno.into()),
            };
            self.is_short |= got_less;
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                    self.taken.extend(descriptors);
                }
            }
            if self.taken.len() > ALL_DESCRIPTORS_MAX {
                return Err(ErrorKind::InvalidData.into());
            }
            match buffer[..received].split_first() {
                None => return Ok(Incoming::Closed),
                Some((&DESCRIPTORS, [])) => {}
                Some((&MESSAGE, json)) => {
                    let message = serde_json::from_slice(json)?;
                    return Ok(Incoming::Message(message, self.take_descriptors()));
                }
                Some((&FILE, [])) if self.takes_descriptors => {
                    // The last one would be another descriptor.
                    if got_less {
                        let _ = self.take_descriptors();
                        return Ok(Incoming::Lost);
                    }
                    let mut json = Vec::new();
                    let file = self.taken.pop().ok_or(ErrorKind::InvalidData)?;
                    File::from(file).read_to_end(&mut json)?;
                    let message = serde_json::from_slice(&json)?;
                    return Ok(Incoming::Message(message, self.take_descriptors()));
                }
                _ => return Err(ErrorKind::InvalidData.into()),
            }
        }
    }

    /// The descriptors of a complete message; none if some are missing, because the missing ones cannot be identified.
    fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        let taken = std::mem::take(&mut self.taken);
        if std::mem::take(&mut self.is_short) { Vec::new() } else { taken }
    }
}

/// Paths in messages: any bytes, as a path need not be UTF-8.
pub(crate) mod path_bytes {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    use std::path::{Path, PathBuf};

    pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().as_bytes().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        Vec::deserialize(deserializer).map(|bytes| OsString::from_vec(bytes).into())
    }
}

#[cfg(test)]
mod tests {
    use super::{Channel, DESCRIPTORS, DESCRIPTORS_MAX, FILE, Incoming};
    use rustix::io::{dup, read, write};
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use rustix::pipe::pipe;
    use std::io::IoSlice;
    use std::mem::MaybeUninit;
    use std::os::fd::{AsFd as _, OwnedFd};

    #[test]
    fn a_message_arrives_whole_and_its_descriptors_in_order() {
        let (supervisor, other) = Channel::pair().unwrap();
        let mut worker = Channel::of_worker(other);
        assert!(matches!(worker.receive::<String>().unwrap(), Incoming::Nothing));
        // More than fits in one packet, of both.
        let long = "x".repeat(300_000);
        let pipes: Vec<_> = (0..200_u8).map(|number| (number, pipe().unwrap())).collect();
        let ends: Vec<_> = pipes.iter().map(|(_, (end, _))| end.as_fd()).collect();
        supervisor.send(&long, &ends).unwrap();
        supervisor.send(&"short".to_owned(), &[]).unwrap();
        let Incoming::Message(text, taken) = worker.receive::<String>().unwrap() else { panic!("no message") };
        assert_eq!((text == long, taken.len()), (true, 200));
        for ((number, (_, input)), end) in pipes.iter().zip(&taken) {
            write(input, &[*number]).unwrap();
            let mut byte = [0];
            read(end, &mut byte).unwrap();
            assert_eq!(byte[0], *number);
        }
        let Incoming::Message(text, taken) = worker.receive::<String>().unwrap() else { panic!("no message") };
        assert_eq!((text.as_str(), taken.len()), ("short", 0));
        drop(supervisor);
        // A process that another test starts at this moment holds the other end until it runs its program.
        let last = loop {
            match worker.receive::<String>().unwrap() {
                Incoming::Nothing => std::thread::yield_now(),
                last => break last,
            }
        };
        assert!(matches!(last, Incoming::Closed));
    }

    #[test]
    fn a_message_with_missing_descriptors_has_none() {
        let (supervisor, other) = Channel::pair().unwrap();
        let mut worker = Channel::of_worker(other);
        let (end, _input) = pipe().unwrap();
        // More than the other end has space for, as if it might open no more.
        let send_many = |byte: u8| {
            let many = vec![end.as_fd(); DESCRIPTORS_MAX + 20];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX + 20))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
            sendmsg(&supervisor.socket, &[IoSlice::new(&[byte])], &mut control, SendFlags::NOSIGNAL).unwrap();
        };
        send_many(DESCRIPTORS);
        supervisor.send(&1, &[end.as_fd()]).unwrap();
        let Incoming::Message(1, taken) = worker.receive::<u32>().unwrap() else { panic!("no message") };
        assert!(taken.is_empty());
        send_many(FILE);
        assert!(matches!(worker.receive::<u32>().unwrap(), Incoming::Lost));
        // Those that follow are complete.
        supervisor.send(&2, &[end.as_fd()]).unwrap();
        let Incoming::Message(2, taken) = worker.receive::<u32>().unwrap() else { panic!("no message") };
        assert_eq!(taken.len(), 1);
    }

    #[test]
    fn the_supervisor_takes_neither_descriptors_nor_nonsense() {
        let (mut supervisor, other) = Channel::pair().unwrap();
        let worker = Channel::of_worker(other);
        let (end, input): (OwnedFd, OwnedFd) = pipe().unwrap();
        worker.send(&1, &[input.as_fd()]).unwrap();
        drop(input);
        let Incoming::Message(1, taken) = supervisor.receive::<u32>().unwrap() else { panic!("no message") };
        assert!(taken.is_empty());
        // The only other copy is closed.
        assert_eq!(read(&end, &mut [0]).unwrap(), 0);
        worker.send(&"text", &[]).unwrap();
        assert!(supervisor.receive::<u32>().is_err());
        assert!(worker.send(&"x".repeat(100_000), &[]).is_err());
        assert!(matches!(supervisor.receive::<String>().unwrap(), Incoming::Nothing));
        let copy = Channel::of_worker(dup(worker.fd()).unwrap());
        for packet in [b"f", b"?"] {
            rustix::net::send(copy.fd(), packet, SendFlags::empty()).unwrap();
            assert!(supervisor.receive::<u32>().is_err());
        }
    }
}
