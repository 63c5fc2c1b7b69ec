//! One TLS session over a non-blocking socket. Ciphertext that the socket does not accept stays here, at most one
//! batch. For a slow reader, the rest of a response therefore stays unencrypted where it is.

use crate::sending::{FILE_END_BYTES, SendProgress, Tail, progress_of};
use flatout_handler::ending::CloseReason;
use flatout_handler::response::{FileBody, Segment};
use flatout_net::tls::config::ALPN_HTTP2;
use flatout_net::tls::{TlsFailure, TlsServer};
use rustix::io::{Errno, preadv};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::HandshakeKind;
use rustls::server::ServerConnection;
use std::fmt;
use std::io::{self, IoSliceMut, Read as _, Write as _};
use std::os::fd::BorrowedFd;

/// Plaintext that is encrypted for each write to the socket, in bytes: four full records.
const BATCH_BYTES: usize = 64 * 1024;

/// Maximum batches before the connection yields to others.
const BATCHES_MAX: u32 = 16;

/// Maximum size of a record, in bytes (RFC 8446 §5.1).
const RECORD_BYTES_MAX: usize = 16 * 1024;

/// Size of the first records, and of the plaintext sent in them, in bytes. A client can use a record only after all of
/// it has arrived. Within the kernel's initial congestion window of about 14 KB, small records save a round trip for
/// the beginning of a page.
const FIRST_RECORD_BYTES: usize = 4 * 1024;
const FIRST_RECORDS_BYTES: usize = 16 * 1024;

/// Maximum size of the first receive call, in bytes, which distinguishes TLS from other protocols. A ClientHello with a
/// post-quantum key has 1.8 KB.
const HELLO_BYTES: usize = 4 * 1024;

/// The type of a client's first record (RFC 8446 §5.1).
const HANDSHAKE_RECORD: u8 = 0x16;

/// The result of advancing a handshake.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Handshake {
    /// The handshake is complete.
    Complete,
    /// The handshake needs more bytes from the client.
    Read,
    /// The handshake needs a writable socket.
    Write,
    /// The client uses HTTP instead of TLS; these are its first bytes.
    PlainHttp(Vec<u8>),
    /// The handshake failed.
    Failed(TlsFailure),
}

/// The result of a receive call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// The number of bytes received. `drained` is true if, as far as is known, neither the session nor the socket has
    /// more.
    Bytes { count: usize, drained: bool },
    /// Nothing is available, and the call would block.
    Blocked,
    /// The client has closed its side.
    End,
    /// The connection or the TLS session failed.
    Failed(CloseReason, Option<TlsFailure>),
}

/// A TLS session with one client.
pub(crate) struct TlsSession {
    connection: ServerConnection,
    complete: bool,
    /// True after the first receive call.
    begun: bool,
    /// True if the last receive call was short, so that the socket was empty.
    socket_empty: bool,
    /// Number of plaintext bytes sent so far, up to [`FIRST_RECORDS_BYTES`].
    first_bytes: usize,
}

impl TlsSession {
    /// Creates a session. Returns `None` if the system cannot provide random bytes.
    pub(crate) fn new(server: &TlsServer) -> Option<Box<Self>> {
        let mut connection = ServerConnection::new(server.config()).ok()?;
        // The limit is `BATCH_BYTES`, which this type enforces.
        connection.set_buffer_limit(None);
        Some(Box::new(Self { connection, complete: false, begun: false, socket_empty: false, first_bytes: 0 }))
    }

    /// Returns whether the handshake is incomplete.
    pub(crate) const fn is_handshaking(&self) -> bool {
        !self.complete
    }

    /// Returns whether ALPN negotiated HTTP/2.
    pub(crate) fn is_http2(&self) -> bool {
        self.connection.alpn_protocol() == Some(ALPN_HTTP2)
    }

    /// Returns whether an earlier session was resumed.
    pub(crate) fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Advances the handshake as far as possible without blocking.
    pub(crate) fn handshake(&mut self, fd: BorrowedFd<'_>) -> Handshake {
        if !self.begun {
            match self.receive_hello(fd) {
                Ok(None) => {}
                Ok(Some(end)) | Err(end) => return end,
            }
        }
        loop {
            match self.flush(fd).1 {
                SendProgress::Done => {}
                SendProgress::Failed(_) => return Handshake::Failed(TlsFailure::HandshakeAborted),
                SendProgress::Blocked | SendProgress::Yield => return Handshake::Write,
            }
            if !self.connection.is_handshaking() {
                self.complete = true;
                return Handshake::Complete;
            }
            if self.socket_empty {
                self.socket_empty = false;
                return Handshake::Read;
            }
            match self.receive(fd) {
                Ok(0) => return Handshake::Failed(TlsFailure::HandshakeAborted),
                Ok(_) => {}
                Err(ReceiveError::Tls(failure)) => return Handshake::Failed(failure),
                Err(ReceiveError::Socket(Errno::AGAIN)) => return Handshake::Read,
                Err(ReceiveError::Socket(_)) => return Handshake::Failed(TlsFailure::HandshakeAborted),
            }
        }
    }

    /// Receives the client's first bytes, and checks whether they are TLS.
    fn receive_hello(&mut self, fd: BorrowedFd<'_>) -> Result<Option<Handshake>, Handshake> {
        let mut hello = [0; HELLO_BYTES];
        let count = match recv(fd, &mut hello[..], RecvFlags::empty()) {
            Ok((0, _)) => return Err(Handshake::Failed(TlsFailure::HandshakeAborted)),
            Ok((count, _)) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Some(Handshake::Read)),
            Err(_) => return Err(Handshake::Failed(TlsFailure::HandshakeAborted)),
        };
        self.begun = true;
        self.socket_empty = count < hello.len();
        let mut hello = &hello[..count];
        if hello[0] != HANDSHAKE_RECORD && hello[0].is_ascii_alphabetic() {
            return Ok(Some(Handshake::PlainHttp(hello.to_vec())));
        }
        while !hello.is_empty() {
            // Reading from memory fails only if rustls rejects more input, for example bytes that are not TLS.
            if !matches!(self.connection.read_tls(&mut hello), Ok(1..)) {
                return Err(Handshake::Failed(TlsFailure::InvalidMessage));
            }
            self.decrypt(fd).map_err(Handshake::Failed)?;
        }
        Ok(None)
    }

    /// Processes received records. Sends an alert immediately if they are invalid.
    fn decrypt(&mut self, fd: BorrowedFd<'_>) -> Result<(), TlsFailure> {
        match self.connection.process_new_packets() {
            Ok(_) => Ok(()),
            Err(error) => {
                self.flush(fd);
                Err(TlsFailure::of(&error))
            }
        }
    }

    /// Receives ciphertext once. Returns the number of bytes.
    fn receive(&mut self, fd: BorrowedFd<'_>) -> Result<usize, ReceiveError> {
        let mut socket = Socket { fd, short: false };
        let count = match self.connection.read_tls(&mut socket) {
            Ok(count) => count,
            Err(error) => {
                return Err(match Errno::from_io_error(&error) {
                    Some(errno) => ReceiveError::Socket(errno),
                    // The message is larger than the buffer of rustls.
                    None => ReceiveError::Tls(TlsFailure::OversizedRecord),
                });
            }
        };
        self.socket_empty = socket.short;
        self.decrypt(fd).map_err(ReceiveError::Tls)?;
        Ok(count)
    }

    /// Receives plaintext into `buffer`.
    pub(crate) fn recv(&mut self, fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Received {
        // What an earlier call found out about the socket is outdated.
        self.socket_empty = false;
        loop {
            match self.connection.reader().read(buffer) {
                Ok(0) => return Received::End,
                Ok(count) => {
                    // Replies such as a key update are sent with the next response.
                    return Received::Bytes { count, drained: count < buffer.len() && self.socket_empty };
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The client closed without close_notify, as many clients do. Requests are self-delimiting.
                Err(_) => return Received::End,
            }
            if self.socket_empty {
                return Received::Blocked;
            }
            match self.receive(fd) {
                Ok(_) => {}
                Err(ReceiveError::Socket(Errno::AGAIN)) => return Received::Blocked,
                Err(ReceiveError::Socket(Errno::CONNRESET | Errno::PIPE | Errno::TIMEDOUT)) => {
                    return Received::Failed(CloseReason::ClientReset, None);
                }
                Err(ReceiveError::Socket(_)) => return Received::Failed(CloseReason::SocketFailed, None),
                Err(ReceiveError::Tls(failure)) => return Received::Failed(CloseReason::TlsFailed, Some(failure)),
            }
        }
    }

    /// Sends encrypted bytes. Returns the number of bytes that the socket accepted.
    fn flush(&mut self, fd: BorrowedFd<'_>) -> (u64, SendProgress) {
        let mut total = 0;
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Socket { fd, short: false }) {
                Ok(count) => total += count as u64,
                Err(error) => {
                    let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                    return (total, progress_of(errno));
                }
            }
        }
        (total, SendProgress::Done)
    }

    /// Writes `output` and then `tail` as far as the socket accepts them. Returns the number of bytes of `output`
    /// consumed, the number of bytes that the kernel accepted, and the result, which is not `Done` while encrypted
    /// bytes are unsent.
    pub(crate) fn write_out(
        &mut self,
        fd: BorrowedFd<'_>,
        output: &[u8],
        tail: &mut Tail,
    ) -> (usize, u64, SendProgress) {
        let (mut sent, mut total) = (0, 0);
        for _ in 0..BATCHES_MAX {
            let (count, progress) = self.flush(fd);
            total += count;
            if progress != SendProgress::Done {
                return (sent, total, progress);
            }
            let mut room = BATCH_BYTES;
            sent += self.encrypt(&output[sent..], &mut room);
            if sent == output.len()
                && let Err(reason) = self.encrypt_tail(tail, &mut room)
            {
                return (sent, total, SendProgress::Failed(reason));
            }
            if !self.connection.wants_write() {
                return (sent, total, SendProgress::Done);
            }
        }
        let (count, progress) = self.flush(fd);
        total += count;
        (sent, total, if progress == SendProgress::Done { SendProgress::Yield } else { progress })
    }

    fn encrypt(&mut self, bytes: &[u8], room: &mut usize) -> usize {
        let bytes = &bytes[..bytes.len().min(*room)];
        let mut used = 0;
        while used < bytes.len() {
            let first = self.first_bytes < FIRST_RECORDS_BYTES;
            let record_bytes = if first { FIRST_RECORD_BYTES } else { RECORD_BYTES_MAX };
            let record = &bytes[used..bytes.len().min(used + record_bytes)];
            // Writing to an unlimited buffer accepts everything.
            let Ok(count @ 1..) = self.connection.writer().write(record) else { break };
            used += count;
            if first {
                self.first_bytes += count;
            }
        }
        *room -= used;
        used
    }

    fn encrypt_tail(&mut self, tail: &mut Tail, room: &mut usize) -> Result<(), CloseReason> {
        match tail {
            Tail::None => {}
            Tail::Bytes(bytes) => bytes.advance(self.encrypt(bytes, room)),
            Tail::File(file) | Tail::Copied(file) => self.encrypt_file(file, room)?,
            Tail::Segments(segments) => {
                while let Some(segment) = segments.front_mut() {
                    match segment {
                        Segment::Bytes(bytes) => bytes.advance(self.encrypt(bytes, room)),
                        Segment::File(file) => self.encrypt_file(file, room)?,
                    }
                    if !segment.is_empty() {
                        break;
                    }
                    segments.pop_front();
                }
            }
        }
        Ok(())
    }

    /// Reads a piece of a file and encrypts it. The end is encrypted only if the file is still the version that the
    /// head describes.
    #[inline(never)]
    fn encrypt_file(&mut self, file: &mut FileBody, room: &mut usize) -> Result<(), CloseReason> {
        let mut buffer = [0_u8; RECORD_BYTES_MAX];
        while file.bytes > 0 && *room > 0 {
            let count = read_piece(file, &mut buffer[..RECORD_BYTES_MAX.min(*room)])?;
            self.encrypt(&buffer[..count], room);
        }
        Ok(())
    }

    /// Sends close_notify, as far as the socket accepts it.
    pub(crate) fn close(&mut self, fd: BorrowedFd<'_>) {
        if self.complete {
            self.connection.send_close_notify();
            self.flush(fd);
        }
    }
}

impl fmt::Debug for TlsSession {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TlsSession").field("complete", &self.complete).finish_non_exhaustive()
    }
}

/// Reads the next piece of `file` into `buffer` and advances the file. After reading a piece near the end, verifies
/// that the file is still the same version, so that no complete response mixes two versions.
pub(crate) fn read_piece(file: &mut FileBody, buffer: &mut [u8]) -> Result<usize, CloseReason> {
    let wanted = usize::try_from(file.bytes).unwrap_or(usize::MAX).min(buffer.len());
    read_scattered(file, &mut [IoSliceMut::new(&mut buffer[..wanted])])
}

/// Reads the next piece of `file` into `buffers`, which are not larger than it, and advances. Returns the number of
/// bytes. A piece that includes the last bytes is read and then verified to be of the same version: so no complete
/// response can mix two.
pub(crate) fn read_scattered(file: &mut FileBody, buffers: &mut [IoSliceMut<'_>]) -> Result<usize, CloseReason> {
    let count = loop {
        match preadv(&file.file.fd, buffers, file.offset) {
            Ok(0) => return Err(CloseReason::FileChanged),
            Ok(count) => break count,
            Err(Errno::INTR) => {}
            Err(_) => return Err(CloseReason::FileFailed),
        }
    };
    let is_end = file.bytes - count as u64 == 0 || file.bytes <= FILE_END_BYTES as u64;
    if is_end && !file.file.is_intact() {
        return Err(CloseReason::FileChanged);
    }
    file.offset += count as u64;
    file.bytes -= count as u64;
    Ok(count)
}

enum ReceiveError {
    Socket(Errno),
    Tls(TlsFailure),
}

/// The socket as rustls accesses it.
struct Socket<'a> {
    fd: BorrowedFd<'a>,
    /// True if a receive call returned less than requested.
    short: bool,
}

impl io::Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match recv(self.fd, &mut *buffer, RecvFlags::empty()) {
                Ok((count, _)) => {
                    // The end does not mean that the socket is empty: the next receive call reports the end again.
                    self.short = count > 0 && count < buffer.len();
                    return Ok(count);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl io::Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[io::IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        use rustix::net::{SendAncillaryBuffer, sendmsg};
        loop {
            let result = match slices {
                [slice] => send(self.fd, slice, SendFlags::NOSIGNAL),
                _ => sendmsg(self.fd, slices, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL),
            };
            match result {
                Err(Errno::INTR) => {}
                result => return result.map_err(Into::into),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
