//! Writing of responses: immediately as far as the socket accepts them, and the rest when the socket is writable.

use crate::acknowledged::AcknowledgedSamples;
use crate::send_room::{RoomRule, SendRoom};
use crate::tls_session::TlsSession;
use flatout_access_log::Staged;
use flatout_handler::ending::CloseReason;
use flatout_handler::response::{FileBody, Segment};
use flatout_handler::shared::SharedBytes;
use flatout_http::connection::ConnectionEvent;
use flatout_net::windows::WindowBudget;
use flatout_os::clock::precise_ns;
use flatout_os::socket::unacknowledged_bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::sendfile;
use rustix::io::{Errno, pread};
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

/// Maximum bytes of one sendfile call, and maximum calls before the connection yields to others.
const SENDFILE_BYTES_MAX: u64 = 1024 * 1024;
const SENDFILE_CALLS_MAX: u32 = 4;

/// Size of the end of a file that is not sent by sendfile but read, and sent only if the file is still the version that
/// the head describes, so that no complete response mixes two versions. This covers files that are replaced, that grow,
/// and that are truncated and rewritten. Overwriting a file in place also changes the pages that sendfile has passed to the
/// socket and the client has not received yet, which no server that sends files without copying can detect.
pub(crate) const FILE_END_BYTES: usize = 16 * 1024;

/// Piece size of a file that is read and sent, with two system calls for each piece. The same as in nginx.
const COPY_BYTES: usize = 32 * 1024;

/// Maximum number of slices in one write. The kernel allows 1,024.
const SLICES_MAX: usize = 32;

/// The body that follows the bytes in the output buffer.
#[derive(Debug)]
pub(crate) enum Tail {
    None,
    Bytes(SharedBytes),
    File(FileBody),
    /// A file that is read and sent, rather than sent by sendfile.
    Copied(FileBody),
    Segments(VecDeque<Segment>),
}

/// The state of the connection after the current output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Further responses may follow.
    Open,
    /// Nothing: the sending side is closed as soon as the kernel has accepted everything. The last packet waits for the
    /// close and also carries the FIN, which saves a packet and its acknowledgement per connection.
    Closed,
}

impl Then {
    /// Returns the flags for the last bytes of the output.
    const fn flags(self) -> SendFlags {
        match self {
            Self::Open => SendFlags::NOSIGNAL,
            Self::Closed => SendFlags::NOSIGNAL.union(SendFlags::MORE),
        }
    }
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendProgress {
    /// The kernel has accepted everything.
    Done,
    /// The socket is full.
    Blocked,
    /// The socket would accept more, but other connections are waiting.
    Yield,
    /// The connection failed.
    Failed(CloseReason),
}

/// A response that the socket did not accept completely at first.
#[derive(Debug)]
pub(crate) struct Sending {
    buffered: SharedBytes,
    tail: Tail,
    /// The transition of the state machine at the end of this response, or `None` if it has been applied already.
    pub(crate) ends: Option<ConnectionEvent>,
    /// Log lines of the responses in the output.
    pub(crate) staged: Staged,
    room: SendRoom,
    /// When the client last accepted bytes, in milliseconds.
    taken_ms: u64,
    samples: AcknowledgedSamples,
}

impl Sending {
    pub(crate) fn new(unsent: &[u8], tail: Tail, ends: Option<ConnectionEvent>, staged: Staged, now_ms: u64) -> Self {
        let room = SendRoom::new(&RoomRule::HTTP1, precise_ns());
        let samples = AcknowledgedSamples::default();
        Self { buffered: SharedBytes::from(unsent), tail, ends, staged, room, taken_ms: now_ms, samples }
    }

    /// Records that the kernel has accepted bytes at `now_ms`.
    pub(crate) const fn note_taken(&mut self, now_ms: u64) {
        self.taken_ms = now_ms;
        self.samples.clear();
    }

    /// Returns when to call [`is_stuck`](Self::is_stuck), in milliseconds.
    pub(crate) fn deadline_ms(&self, timeout_ms: u64) -> u64 {
        self.samples.deadline_ms(self.taken_ms, timeout_ms)
    }

    /// Returns whether the client has accepted nothing for the write timeout.
    pub(crate) fn is_stuck(&mut self, fd: BorrowedFd<'_>, now_ms: u64, timeout_ms: u64) -> bool {
        self.samples.is_stuck(now_ms, timeout_ms, &mut self.taken_ms, unacknowledged_bytes(fd).ok())
    }

    /// Returns the number of bytes that the kernel has not accepted.
    pub(crate) fn unsent_bytes(&self) -> u64 {
        let tail_bytes = match &self.tail {
            Tail::None => 0,
            Tail::Bytes(bytes) => bytes.len() as u64,
            Tail::File(file) | Tail::Copied(file) => file.bytes,
            Tail::Segments(segments) => segments.iter().map(Segment::len).sum(),
        };
        self.buffered.len() as u64 + tail_bytes
    }

    /// Continues writing. Returns the number of bytes that the kernel accepted. A fast client may get room from
    /// `budget`.
    pub(crate) fn write(
        &mut self,
        fd: BorrowedFd<'_>,
        tls: Option<&mut TlsSession>,
        then: Then,
        budget: &Rc<WindowBudget>,
    ) -> (u64, SendProgress) {
        let (sent, total, progress) = match tls {
            None => write_out(fd, &self.buffered, &mut self.tail, then),
            Some(session) => session.write_out(fd, &self.buffered, &mut self.tail),
        };
        self.buffered.advance(sent);
        self.staged.advance(sent);
        match progress {
            SendProgress::Blocked | SendProgress::Yield => self.room.handle_taken(fd, budget, total, precise_ns),
            SendProgress::Done => self.room.lower(fd),
            SendProgress::Failed(_) => {}
        }
        (total, progress)
    }
}

/// Writes `output` and then `tail` as far as the socket accepts them. Returns the number of bytes of `output` accepted,
/// the number of bytes accepted in total, and the result.
pub(crate) fn write_out(fd: BorrowedFd<'_>, output: &[u8], tail: &mut Tail, then: Then) -> (usize, u64, SendProgress) {
    if let Tail::Segments(segments) = tail {
        return write_gathered(fd, output, segments, then);
    }
    let (mut sent, mut total) = (0, 0);
    while sent < output.len() {
        let unsent = &output[sent..];
        let result = match tail {
            Tail::None => send(fd, unsent, then.flags()),
            // The head waits for the first bytes of the file, to share a packet with them.
            Tail::File(_) | Tail::Copied(_) | Tail::Segments(_) => {
                send(fd, unsent, SendFlags::NOSIGNAL | SendFlags::MORE)
            }
            Tail::Bytes(bytes) => {
                let slices = [IoSlice::new(unsent), IoSlice::new(bytes)];
                sendmsg(fd, &slices, &mut SendAncillaryBuffer::default(), then.flags())
            }
        };
        match result {
            Ok(count) => {
                total += count as u64;
                let of_output = count.min(unsent.len());
                sent += of_output;
                if let Tail::Bytes(bytes) = tail {
                    bytes.advance(count - of_output);
                }
                if of_output < unsent.len() {
                    // The socket is full, and another call would only return EAGAIN.
                    return (sent, total, SendProgress::Blocked);
                }
            }
            Err(Errno::INTR) => {}
            Err(errno) => return (sent, total, progress_of(errno)),
        }
    }
    let (count, progress) = match tail {
        // Segments were sent together with the output.
        Tail::None | Tail::Segments(_) => (0, SendProgress::Done),
        Tail::Bytes(bytes) => write_bytes(fd, bytes, then),
        Tail::File(file) => write_file(fd, file, then),
        Tail::Copied(file) => copy_file(fd, file, then),
    };
    (sent, total + count, progress)
}

/// Writes `output` and the segments after it, with as many slices in each call as permitted. Files are sent in separate
/// calls.
#[inline(never)]
fn write_gathered(
    fd: BorrowedFd<'_>,
    output: &[u8],
    segments: &mut VecDeque<Segment>,
    then: Then,
) -> (usize, u64, SendProgress) {
    let (mut sent, mut total) = (0, 0);
    loop {
        while segments.front().is_some_and(Segment::is_empty) {
            segments.pop_front();
        }
        if sent == output.len() {
            match segments.front_mut() {
                None => return (sent, total, SendProgress::Done),
                Some(Segment::File(file)) => {
                    let (count, progress) = write_file(fd, file, Then::Open);
                    total += count;
                    if progress != SendProgress::Done {
                        return (sent, total, progress);
                    }
                    continue;
                }
                Some(Segment::Bytes(_)) => {}
            }
        }
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let (mut count, mut bytes) = (0, 0);
        if sent < output.len() {
            slices[0] = IoSlice::new(&output[sent..]);
            (count, bytes) = (1, output.len() - sent);
        }
        for segment in segments.iter().take(SLICES_MAX - count) {
            let Segment::Bytes(segment) = segment else { break };
            slices[count] = IoSlice::new(segment);
            count += 1;
            bytes += segment.len();
        }
        let behind = count - usize::from(sent < output.len());
        // The data that follows should share a packet with the end of this write.
        let more = if segments.iter().skip(behind).any(|segment| !segment.is_empty()) {
            SendFlags::NOSIGNAL | SendFlags::MORE
        } else {
            then.flags()
        };
        let control = &mut SendAncillaryBuffer::default();
        match sendmsg(fd, &slices[..count], control, more) {
            Ok(taken) => {
                total += taken as u64;
                let of_output = taken.min(output.len() - sent);
                sent += of_output;
                advance(segments, taken - of_output);
                if taken < bytes {
                    return (sent, total, SendProgress::Blocked);
                }
            }
            Err(Errno::INTR) => {}
            Err(errno) => return (sent, total, progress_of(errno)),
        }
    }
}

/// Removes the first `count` bytes, all of which are in memory.
fn advance(segments: &mut VecDeque<Segment>, mut count: usize) {
    while count > 0 {
        let Some(Segment::Bytes(bytes)) = segments.front_mut() else { return };
        if count < bytes.len() {
            bytes.advance(count);
            return;
        }
        count -= bytes.len();
        segments.pop_front();
    }
}

fn write_bytes(fd: BorrowedFd<'_>, bytes: &mut SharedBytes, then: Then) -> (u64, SendProgress) {
    let mut total = 0;
    while !bytes.is_empty() {
        match send(fd, bytes, then.flags()) {
            Ok(count) => {
                total += count as u64;
                let short = count < bytes.len();
                bytes.advance(count);
                if short {
                    return (total, SendProgress::Blocked);
                }
            }
            Err(Errno::INTR) => {}
            Err(errno) => return (total, progress_of(errno)),
        }
    }
    (total, SendProgress::Done)
}

/// Sends a file up to its end, which must be verified, or completely if only this process writes it. Not inlined,
/// because its buffer would cause a stack probe for every small response.
#[inline(never)]
fn write_file(fd: BorrowedFd<'_>, file: &mut FileBody, then: Then) -> (u64, SendProgress) {
    let mut total = 0;
    for _ in 0..SENDFILE_CALLS_MAX {
        if file.bytes == 0 {
            return (total, SendProgress::Done);
        }
        // Other processes do not write a file without an identity, so its end needs no check.
        let checked_bytes = if file.file.identity.is_none() { 0 } else { FILE_END_BYTES as u64 };
        if file.bytes <= checked_bytes {
            let (count, progress) = write_file_end(fd, file, then);
            return (total + count, progress);
        }
        let wanted = (file.bytes - checked_bytes).min(SENDFILE_BYTES_MAX);
        match sendfile(fd, file.file.fd.as_fd(), Some(&mut file.offset), wanted as usize) {
            // The file is now shorter than the head declares.
            Ok(0) => return (total, SendProgress::Failed(CloseReason::FileChanged)),
            Ok(count) => {
                total += count as u64;
                file.bytes -= count as u64;
                // A full socket takes a packet whenever one is acknowledged. Waiting until the kernel calls it writable
                // takes far fewer calls for the same bytes.
                if (count as u64) < wanted && !is_writable(fd) {
                    return (total, SendProgress::Blocked);
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::IO | Errno::INVAL | Errno::OVERFLOW) => {
                return (total, SendProgress::Failed(CloseReason::FileFailed));
            }
            Err(errno) => return (total, progress_of(errno)),
        }
    }
    (total, SendProgress::Yield)
}

/// Returns whether the socket is writable, or has failed. If it is not, the kernel reports when it becomes so.
fn is_writable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    // On an error, the next write finds out.
    poll(&mut fds, Some(&Timespec::default())) != Ok(0)
}

/// Reads the whole file and sends it, without sendfile.
#[inline(never)]
fn copy_file(fd: BorrowedFd<'_>, file: &mut FileBody, then: Then) -> (u64, SendProgress) {
    let mut total = 0;
    let mut buffer = vec![0; COPY_BYTES];
    // As much as sendfile may send in one turn.
    while total < SENDFILE_BYTES_MAX * u64::from(SENDFILE_CALLS_MAX) {
        let rest = file.bytes.saturating_sub(FILE_END_BYTES as u64);
        if rest == 0 {
            let (count, progress) = write_file_end(fd, file, then);
            return (total + count, progress);
        }
        let wanted = usize::try_from(rest).unwrap_or(usize::MAX).min(buffer.len());
        let read = match pread(&file.file.fd, &mut buffer[..wanted], file.offset) {
            // The file is now shorter than the head declares.
            Ok(0) => return (total, SendProgress::Failed(CloseReason::FileChanged)),
            Ok(read) => read,
            Err(Errno::INTR) => continue,
            Err(_) => return (total, SendProgress::Failed(CloseReason::FileFailed)),
        };
        let (count, blocked) = send_piece(fd, file, &buffer[..read], SendFlags::NOSIGNAL | SendFlags::MORE);
        total += count;
        if let Some(progress) = blocked {
            return (total, progress);
        }
    }
    (total, SendProgress::Yield)
}

/// Sends a piece that was read from the file, and advances the file by the bytes accepted. Returns their number, and
/// the reason to stop, if any.
fn send_piece(fd: BorrowedFd<'_>, file: &mut FileBody, piece: &[u8], flags: SendFlags) -> (u64, Option<SendProgress>) {
    match send(fd, piece, flags) {
        Ok(count) => {
            file.offset += count as u64;
            file.bytes -= count as u64;
            (count as u64, (count < piece.len()).then_some(SendProgress::Blocked))
        }
        Err(Errno::INTR) => (0, None),
        Err(errno) => (0, Some(progress_of(errno))),
    }
}

/// Reads the end of the file, verifies that the file is still the same version, and only then sends the end.
fn write_file_end(fd: BorrowedFd<'_>, file: &mut FileBody, then: Then) -> (u64, SendProgress) {
    let mut total = 0;
    while file.bytes > 0 {
        let mut buffer = [0_u8; FILE_END_BYTES];
        let wanted = (file.bytes as usize).min(buffer.len());
        let read = match pread(&file.file.fd, &mut buffer[..wanted], file.offset) {
            Ok(read) => read,
            Err(Errno::INTR) => continue,
            Err(_) => return (total, SendProgress::Failed(CloseReason::FileFailed)),
        };
        if read == 0 || !file.file.is_intact() {
            return (total, SendProgress::Failed(CloseReason::FileChanged));
        }
        let (count, blocked) = send_piece(fd, file, &buffer[..read], then.flags());
        total += count;
        if let Some(progress) = blocked {
            return (total, progress);
        }
    }
    (total, SendProgress::Done)
}

pub(crate) fn progress_of(errno: Errno) -> SendProgress {
    match errno {
        // AGAIN and WOULDBLOCK are equal on Linux.
        Errno::AGAIN => SendProgress::Blocked,
        Errno::PIPE | Errno::CONNRESET | Errno::TIMEDOUT => SendProgress::Failed(CloseReason::ClientReset),
        _ => SendProgress::Failed(CloseReason::SocketFailed),
    }
}
