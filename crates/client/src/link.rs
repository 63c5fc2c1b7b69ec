//! An HTTP/1 connection of the client: one direct send per burst, and one receive whenever bytes arrive.

use super::connector::Begun;
use super::reader::{FinalResponse, ResponseReader};
use super::slot::ClientSlot;
use super::worker::{ClientShared, OpenGuard, failure_of};
use super::{Drive, Made, RequestFailure};
use flatout_net::transport::{Socket, Transport};
use flatout_os::clock::precise_ns;
use flatout_os::registered::Registered;
use flatout_os::timer::Timer;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use rustls::HandshakeKind;
use std::future::poll_fn;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The bytes of a burst, in two parts. The second is the end of a prepared request, which is not copied; usually empty.
#[derive(Clone, Copy)]
pub(super) struct BurstBytes<'a>(pub(super) &'a [u8], pub(super) &'a [u8]);

impl<'a> BurstBytes<'a> {
    pub(super) const fn len(self) -> usize {
        self.0.len() + self.1.len()
    }

    /// Returns the bytes of one part after the first `sent_bytes` of the burst, and the flags to send them with: the kernel
    /// waits for the second part before it sends a segment that is not full.
    fn after(self, sent_bytes: usize) -> (&'a [u8], SendFlags) {
        match sent_bytes.checked_sub(self.0.len()) {
            Some(sent_bytes) => (&self.1[sent_bytes..], SendFlags::NOSIGNAL),
            None if self.1.is_empty() => (&self.0[sent_bytes..], SendFlags::NOSIGNAL),
            None => (&self.0[sent_bytes..], SendFlags::NOSIGNAL.union(SendFlags::MORE)),
        }
    }
}

/// The result of one receive.
pub(super) struct ReceivedOnce {
    pub(super) answer: Option<FinalResponse>,
    pub(super) server_closed: bool,
}

/// A connected socket, from which a connection can be created.
pub(super) struct ConnectedSocket {
    /// The transport over the socket, which is shared with the slot's deadline.
    pub(super) transport: Transport<Rc<OwnedFd>>,
    pub(super) made: Made,
}

/// A connection for HTTP/1 bursts.
pub(super) struct Link<D: Drive> {
    kind: LinkTransport,
    /// Number of bytes of the next burst that have already been sent.
    sent_bytes: usize,
    /// True if no segment waits for the acknowledgement of others.
    sends_at_once: bool,
    pub(super) open: OpenGuard<D>,
}

enum LinkTransport {
    /// A plain socket, which is registered with the runtime at its first wait. Always `Some`, except while the socket
    /// is registered again.
    Plain(Option<Registered<Rc<OwnedFd>>>),
    Tls(Box<TlsStream<Socket<Rc<OwnedFd>>>>),
}

/// A new connection, and when the first burst was sent on it.
pub(super) struct NewConnection<D: Drive> {
    pub(super) link: Link<D>,
    pub(super) made: Made,
    pub(super) sent_ns: u64,
}

/// The smallest maximum segment size of a path in bytes (RFC 9293 §3.7.1). A burst that fits is sent as one segment.
const SEGMENT_BYTES_MIN: usize = 536;

/// Prepares a TCP socket for a burst that may need several segments: its end must not wait for an acknowledgement of its
/// beginning. A shorter burst is a single segment on an otherwise idle connection, which is sent at once anyway.
fn prepare_send(socket: impl AsFd, burst_bytes: usize, sends_at_once: &mut bool) -> Result<(), Errno> {
    if burst_bytes > SEGMENT_BYTES_MIN && !*sends_at_once {
        sockopt::set_tcp_nodelay(socket, true)?;
        *sends_at_once = true;
    }
    Ok(())
}

impl<D: Drive + 'static> Link<D> {
    /// Connects, starting at `begun_ns` and with the deadline `due_ns`, and sends as much of the first burst as possible.
    pub(super) async fn open(
        shared: &Rc<ClientShared<D>>,
        slot: &ClientSlot,
        burst: BurstBytes<'_>,
        (begun_ns, due_ns): (u64, u64),
        is_reconnect: bool,
    ) -> Result<NewConnection<D>, RequestFailure> {
        if shared.tls.is_some() {
            let standing = Box::pin(stand(shared, slot, (begun_ns, due_ns), is_reconnect)).await?;
            let Transport::Tls(stream) = standing.transport else { return Err(RequestFailure::ClosedEarly) };
            let open = OpenGuard::new(shared, begun_ns);
            let link = Self { kind: LinkTransport::Tls(stream), sent_bytes: 0, sends_at_once: true, open };
            return Ok(NewConnection { link, made: standing.made, sent_ns: precise_ns() });
        }
        let (socket, stands) = begin(shared, slot, due_ns).await?;
        let mut sends_at_once = shared.connector.is_unix();
        prepare_send(&socket, burst.len(), &mut sends_at_once)?;
        // Over loopback, the handshake is complete when connect returns, whatever its result. Sending shows whether the
        // connection is established, and saves waiting for a writable socket.
        let mut sent_ns = precise_ns();
        let (bytes, flags) = burst.after(0);
        let sent = match send(&socket, bytes, flags) {
            Err(Errno::AGAIN) if !stands => None,
            Err(Errno::AGAIN) => Some(0),
            sent => Some(sent?),
        };
        let (socket, sent_bytes) = if let Some(sent_bytes) = sent {
            (Registered::with_interest(socket, Interest::READABLE)?, sent_bytes)
        } else {
            let socket = Registered::with_interest(socket, Interest::READABLE | Interest::WRITABLE)?;
            let connected = wait_connected(&socket).await;
            connected.map_err(|failure| failure_of(slot, failure))?;
            sent_ns = precise_ns();
            (socket, 0)
        };
        let connect_ns = sent_ns.saturating_sub(begun_ns);
        let made = Made { connect_ns, tls_ns: 0, is_reconnect, is_resumed: false };
        let open = OpenGuard::new(shared, begun_ns);
        let link = Self { kind: LinkTransport::Plain(Some(socket)), sent_bytes, sends_at_once, open };
        Ok(NewConnection { link, made, sent_ns })
    }

    /// Sends a whole burst directly. Waits only if the socket buffer is full. Updates `sent_bytes`.
    pub(super) async fn send(&mut self, burst: BurstBytes<'_>, sent_bytes: &mut usize) -> Result<(), RequestFailure> {
        if self.send_now(burst, sent_bytes)? {
            return Ok(());
        }
        self.watch_writable()?;
        poll_fn(|context| self.poll_send(context, burst, sent_bytes)).await
    }

    /// Sends a single request and, if that has to wait, reads its response meanwhile: a server may respond before it has
    /// read the whole request, or while it reads it. Returns the response if it is complete before the request is.
    /// Updates `sent_bytes`, and `first_byte_ns` when bytes arrive.
    pub(super) async fn send_request(
        &mut self,
        shared: &ClientShared<D>,
        (reader, request): (&mut ResponseReader, u32),
        bytes: BurstBytes<'_>,
        (sent_bytes, first_byte_ns): (&mut usize, &mut u64),
    ) -> Result<Option<ReceivedOnce>, RequestFailure> {
        // If the server reads no more, its response, if it has sent one, says why.
        let mut failure = match self.send_now(bytes, sent_bytes) {
            Ok(true) => return Ok(None),
            Ok(false) => {
                self.watch_writable()?;
                None
            }
            Err(failure) => Some(failure),
        };
        poll_fn(|context| {
            if failure.is_none() {
                match self.poll_send(context, bytes, sent_bytes) {
                    Poll::Ready(Ok(())) => return Poll::Ready(Ok(None)),
                    Poll::Ready(Err(error)) => failure = Some(error),
                    Poll::Pending => {}
                }
            }
            loop {
                let received = ready!(self.poll_receive(context, shared, reader, request));
                match received {
                    Ok(ReceivedOnce { answer: None, .. }) => {
                        if *first_byte_ns == 0 {
                            *first_byte_ns = precise_ns();
                        }
                    }
                    Ok(received) => return Poll::Ready(Ok(Some(received))),
                    Err(error) => return Poll::Ready(Err(failure.unwrap_or(error))),
                }
            }
        })
        .await
    }

    /// Sends what the socket accepts at once. Returns whether that is everything. Over TLS, sends nothing.
    fn send_now(&mut self, burst: BurstBytes<'_>, sent_bytes: &mut usize) -> Result<bool, RequestFailure> {
        *sent_bytes = std::mem::take(&mut self.sent_bytes);
        let socket = match &mut self.kind {
            LinkTransport::Plain(Some(socket)) => socket,
            LinkTransport::Plain(None) => return Err(RequestFailure::ClosedEarly),
            LinkTransport::Tls(_) => return Ok(false),
        };
        prepare_send(socket.fd(), burst.len(), &mut self.sends_at_once)?;
        while *sent_bytes < burst.len() {
            let (bytes, flags) = burst.after(*sent_bytes);
            match send(socket.fd(), bytes, flags) {
                Ok(sent) => *sent_bytes += sent,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Registers a plain socket for writing too. This is rare because requests are small, so only here.
    fn watch_writable(&mut self) -> Result<(), RequestFailure> {
        let LinkTransport::Plain(place) = &mut self.kind else { return Ok(()) };
        // The socket must be deregistered before it can be registered again.
        let Some(socket) = place.take().map(Registered::into_inner) else { return Err(RequestFailure::ClosedEarly) };
        *place = Some(Registered::with_interest(socket, Interest::READABLE | Interest::WRITABLE)?);
        Ok(())
    }

    /// Sends the remainder of a burst. Ready when the socket has accepted all of it.
    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        burst: BurstBytes<'_>,
        sent_bytes: &mut usize,
    ) -> Poll<Result<(), RequestFailure>> {
        let socket = match &mut self.kind {
            LinkTransport::Plain(Some(socket)) => socket,
            LinkTransport::Plain(None) => return Poll::Ready(Err(RequestFailure::ClosedEarly)),
            LinkTransport::Tls(stream) => {
                while *sent_bytes < burst.len() {
                    *sent_bytes += ready!(Pin::new(&mut *stream).poll_write(context, burst.after(*sent_bytes).0))?;
                }
                return Pin::new(stream).poll_flush(context).map_err(RequestFailure::from);
            }
        };
        while *sent_bytes < burst.len() {
            let mut ready = ready!(socket.poll_write_ready(context))?;
            let (bytes, flags) = burst.after(*sent_bytes);
            match send(socket.fd(), bytes, flags) {
                Ok(sent) => *sent_bytes += sent,
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Waits for bytes, receives once and parses the bytes as the response to `request`.
    pub(super) async fn receive(
        &mut self,
        shared: &ClientShared<D>,
        reader: &mut ResponseReader,
        request: u32,
    ) -> Result<ReceivedOnce, RequestFailure> {
        poll_fn(|context| self.poll_receive(context, shared, reader, request)).await
    }

    fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        shared: &ClientShared<D>,
        reader: &mut ResponseReader,
        request: u32,
    ) -> Poll<Result<ReceivedOnce, RequestFailure>> {
        let socket = match &mut self.kind {
            LinkTransport::Plain(Some(socket)) => socket,
            LinkTransport::Plain(None) => return Poll::Ready(Err(RequestFailure::ClosedEarly)),
            LinkTransport::Tls(stream) => return poll_receive_by_tls(stream, context, shared, reader, request),
        };
        loop {
            let mut ready = ready!(socket.poll_read_ready(context))?;
            let mut room = shared.room.borrow_mut();
            let (buffer, memo) = room.parts(request);
            let (received, _) = match recv(socket.fd(), &mut *buffer, RecvFlags::empty()) {
                Ok(received) => received,
                Err(Errno::AGAIN) => {
                    ready.clear_ready();
                    continue;
                }
                Err(Errno::INTR) => continue,
                Err(error) => return Poll::Ready(Err(error.into())),
            };
            if received == 0 {
                let ended = reader.handle_end();
                return Poll::Ready(ended.map(|answer| ReceivedOnce { answer: Some(answer), server_closed: true }));
            }
            // Read this before the guard clears readiness. The runtime keeps a read-closed state.
            let server_closed = ready.ready().is_read_closed();
            if received < buffer.len() {
                // The socket is empty. Clearing readiness saves an empty receive before the next wait.
                ready.clear_ready();
            }
            let answer = reader.handle_bytes(memo, &buffer[..received]);
            return Poll::Ready(answer.map(|answer| ReceivedOnce { answer, server_closed }));
        }
    }

    /// Ready if an idle connection has become unusable, because it was closed or because data arrived on it.
    pub(super) fn poll_lost(&mut self, context: &mut Context<'_>, shared: &ClientShared<D>) -> Poll<()> {
        let socket = match &mut self.kind {
            LinkTransport::Plain(Some(socket)) => socket,
            LinkTransport::Plain(None) => return Poll::Ready(()),
            LinkTransport::Tls(stream) => {
                // The data may be a session ticket, which is processed here.
                let mut room = shared.room.borrow_mut();
                let mut buffer = ReadBuf::new(room.parts(0).0);
                return Pin::new(stream).poll_read(context, &mut buffer).map(|_| ());
            }
        };
        loop {
            let Ok(mut ready) = ready!(socket.poll_read_ready(context)) else { return Poll::Ready(()) };
            match recv(socket.fd(), &mut [0_u8; 1][..], RecvFlags::PEEK) {
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => return Poll::Ready(()),
            }
        }
    }
}

fn poll_receive_by_tls<D: Drive>(
    stream: &mut TlsStream<Socket<Rc<OwnedFd>>>,
    context: &mut Context<'_>,
    shared: &ClientShared<D>,
    reader: &mut ResponseReader,
    request: u32,
) -> Poll<Result<ReceivedOnce, RequestFailure>> {
    let mut room = shared.room.borrow_mut();
    let (buffer, memo) = room.parts(request);
    let mut buffer = ReadBuf::new(buffer);
    let read = ready!(Pin::new(stream).poll_read(context, &mut buffer));
    Poll::Ready(match read {
        // Many servers close without close_notify. A body that is delimited by the close is then not reliable; a body
        // with a declared length is not affected.
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Err(match reader.handle_end() {
            Ok(_) => RequestFailure::ShortBody,
            Err(failure) => failure,
        }),
        Err(error) => Err(error.into()),
        Ok(()) if buffer.filled().is_empty() => {
            reader.handle_end().map(|answer| ReceivedOnce { answer: Some(answer), server_closed: true })
        }
        Ok(()) => {
            reader.handle_bytes(memo, buffer.filled()).map(|answer| ReceivedOnce { answer, server_closed: false })
        }
    })
}

/// Starts a connection with the deadline `due_ns`. Returns whether the connection is certainly established.
async fn begin<D: Drive>(
    shared: &ClientShared<D>,
    slot: &ClientSlot,
    due_ns: u64,
) -> Result<(Rc<OwnedFd>, bool), RequestFailure> {
    let begun = match shared.connector.begin() {
        Err(Errno::AGAIN) if shared.connector.is_unix() => begin_when_accepted(shared, slot, due_ns).await?,
        begun => begun?,
    };
    let stands = matches!(begun, Begun::Connected(_));
    let (Begun::Connected(socket) | Begun::UnderWay(socket)) = begun;
    let socket = Rc::new(socket);
    slot.deadline.watch(&socket);
    slot.deadline.set(due_ns);
    Ok((socket, stands))
}

/// Interval of the attempts to connect to a Unix socket whose queue is full, in milliseconds. The kernel does not tell
/// when the queue has room.
const QUEUE_INTERVAL_MS: u64 = 1;

/// Starts a connection to a Unix socket once the server has accepted others, at most until the deadline `due_ns`.
async fn begin_when_accepted<D: Drive>(
    shared: &ClientShared<D>,
    slot: &ClientSlot,
    due_ns: u64,
) -> Result<Begun, RequestFailure> {
    slot.deadline.watch_stream();
    slot.deadline.set(due_ns);
    let timer = Timer::new().and_then(|timer| timer.set_interval(QUEUE_INTERVAL_MS).map(|()| timer));
    let timer = timer.map_err(RequestFailure::from)?;
    loop {
        timer.tick().await.map_err(RequestFailure::from)?;
        if let Some(failure) = slot.deadline.cut() {
            return Err(failure);
        }
        match shared.connector.begin() {
            Err(Errno::AGAIN) => {}
            begun => return begun.map_err(RequestFailure::from),
        }
    }
}

/// Opens a connection, including TLS if configured, starting at `begun_ns`, and waits until it is established, at most
/// until the deadline `due_ns`.
pub(super) async fn stand<D: Drive>(
    shared: &Rc<ClientShared<D>>,
    slot: &ClientSlot,
    (begun_ns, due_ns): (u64, u64),
    is_reconnect: bool,
) -> Result<ConnectedSocket, RequestFailure> {
    let (socket, _) = begin(shared, slot, due_ns).await?;
    if !shared.connector.is_unix() {
        // TLS and HTTP/2 send data in pieces, which must not wait for acknowledgements.
        sockopt::set_tcp_nodelay(&socket, true)?;
    }
    let socket = Registered::with_interest(socket, Interest::READABLE | Interest::WRITABLE)?;
    wait_connected(&socket).await.map_err(|failure| failure_of(slot, failure))?;
    let connected_ns = precise_ns();
    let connect_ns = connected_ns.saturating_sub(begun_ns);
    let stream = Socket::new(socket);
    let Some((config, name)) = &shared.tls else {
        let made = Made { connect_ns, tls_ns: 0, is_reconnect, is_resumed: false };
        return Ok(ConnectedSocket { transport: Transport::Plain(stream), made });
    };
    let handshake = TlsConnector::from(std::sync::Arc::clone(config)).connect(name.clone(), stream);
    let stream =
        shared.busy_polling.work(handshake).await.map_err(|error| failure_of(slot, handshake_failure(error)))?;
    let tls_ns = precise_ns().saturating_sub(connected_ns);
    let is_resumed = stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
    let made = Made { connect_ns, tls_ns, is_reconnect, is_resumed };
    Ok(ConnectedSocket { transport: Transport::Tls(Box::new(stream)), made })
}

/// Returns the failure for an error during a handshake. If the server disconnects, the error is an end of file without
/// errno.
fn handshake_failure(error: std::io::Error) -> RequestFailure {
    if error.kind() == std::io::ErrorKind::UnexpectedEof { RequestFailure::ClosedEarly } else { error.into() }
}

async fn wait_connected(socket: &Registered<Rc<OwnedFd>>) -> Result<(), RequestFailure> {
    poll_fn(|context| socket.poll_write_ready(context)).await?.retain_ready();
    Ok(sockopt::socket_error(socket.fd())??)
}

#[cfg(test)]
mod tests {
    use super::{SEGMENT_BYTES_MIN, prepare_send};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn only_a_burst_of_several_segments_is_sent_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut sends_at_once = false;
        for (burst_bytes, expected) in [(100, false), (SEGMENT_BYTES_MIN, false), (SEGMENT_BYTES_MIN + 1, true)] {
            prepare_send(&socket, burst_bytes, &mut sends_at_once).unwrap();
            assert_eq!((socket.nodelay().unwrap(), sends_at_once), (expected, expected), "{burst_bytes}");
        }
        // The socket is prepared once.
        socket.set_nodelay(false).unwrap();
        prepare_send(&socket, 1_000, &mut sends_at_once).unwrap();
        assert!(!socket.nodelay().unwrap());
    }
}
