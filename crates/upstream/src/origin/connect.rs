//! Opening a connection to one of an origin's addresses.

use super::client::OriginShared;
use super::failure::{ExchangeFailure, OriginFailure, Repeat};
use super::pool::{Connection, OriginPool};
use super::resolve::resolve;
use flatout_http::proxy_protocol::{ProxyClient, append_proxy_header};
use flatout_net::task_deadlines::{DeadlineTimer, now_ms};
use flatout_net::tls::ClientTlsFailure;
use flatout_net::tls::config::ALPN_HTTP2;
use flatout_net::transport::{Socket, Transport};
use flatout_os::connecting::begin_connection;
use flatout_os::registered::Registered;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustls_pki_types::ServerName;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::ready;
use tokio::io::AsyncWriteExt as _;
use tokio_rustls::TlsConnector;

/// A new connection.
pub(super) struct Connected {
    pub(super) connection: Connection,
    /// True if HTTP/2 was negotiated by ALPN.
    pub(super) alpn_http2: bool,
}

/// Connects to the origin of `pool`, including TLS if it is an https origin. `offers_http2` determines whether HTTP/2
/// is offered by ALPN. `client` is named in the PROXY header, if the settings require one.
pub(super) async fn connect(
    shared: &Rc<OriginShared>,
    pool: &Rc<OriginPool>,
    offers_http2: bool,
    client: ProxyClient,
) -> Result<Connected, ExchangeFailure> {
    let connected = try_connect(shared, pool, offers_http2, shared.named_client(client)).await;
    if connected.is_ok() {
        shared.counts.connections_opened.add(1);
    }
    connected.map_err(|failure| ExchangeFailure::new(failure, Repeat::Always))
}

async fn try_connect(
    shared: &Rc<OriginShared>,
    pool: &Rc<OriginPool>,
    offers_http2: bool,
    client: ProxyClient,
) -> Result<Connected, OriginFailure> {
    let deadline_ms = now_ms().saturating_add(shared.settings.connect_timeout_ms);
    let mut timer = DeadlineTimer::new(&shared.deadlines);
    timer.begin_until(deadline_ms);
    let addresses = resolve(shared, pool, &mut timer).await?;
    let first = pool.preferred.get();
    let mut failure = OriginFailure::Unresolved;
    for tried in 0..addresses.len() {
        let index = (first + tried) % addresses.len();
        // Each remaining address gets an equal share of the remaining time, so the last gets all of it.
        let share = (addresses.len() - tried) as u64;
        timer.begin_until(now_ms() + deadline_ms.saturating_sub(now_ms()) / share);
        match connect_to(addresses[index], &mut timer).await {
            Ok(mut socket) => {
                pool.preferred.set(index);
                timer.begin_until(deadline_ms);
                if let Some(version) = shared.settings.proxy_protocol {
                    let mut header = Vec::new();
                    append_proxy_header(version, client, addresses[index], &mut header);
                    match timer.bound(socket.write_all(&header)).await {
                        None => return Err(OriginFailure::ConnectTimeout),
                        Some(Err(error)) => return Err(name_connect_error(&error)),
                        Some(Ok(())) => shared.counts.bytes_sent.add(header.len() as u64),
                    }
                }
                let (transport, alpn_http2) = begin_tls(shared, pool, socket, offers_http2, &mut timer).await?;
                let connection = Connection { transport, peer: addresses[index], client };
                return Ok(Connected { connection, alpn_http2 });
            }
            Err(why) => failure = why,
        }
        // If no file descriptor is available, the other addresses would fail too. Local ports, in contrast, may be
        // exhausted for only one address family.
        if failure == OriginFailure::NoDescriptor {
            break;
        }
    }
    pool.resolution.doubt();
    Err(failure)
}

async fn connect_to(address: SocketAddr, timer: &mut DeadlineTimer) -> Result<Socket, OriginFailure> {
    let begin = || -> io::Result<(Registered, bool)> {
        let (socket, stands) = begin_connection(&address)?;
        Ok((Registered::new(socket)?, stands))
    };
    let (fd, stands) = begin().map_err(|error| name_connect_error(&error))?;
    if !stands {
        let connected = timer.bound(poll_fn(|context| {
            // Retain readiness, since the socket stays writable after it is connected.
            ready!(fd.poll_write_ready(context))?.retain_ready();
            std::task::Poll::Ready(sockopt::socket_error(fd.fd())?.map_err(io::Error::from))
        }));
        match connected.await {
            None => return Err(OriginFailure::ConnectTimeout),
            Some(Err(error)) => return Err(name_connect_error(&error)),
            Some(Ok(())) => {}
        }
    }
    Ok(Socket::new(fd))
}

fn name_connect_error(error: &io::Error) -> OriginFailure {
    match Errno::from_io_error(error) {
        Some(Errno::CONNREFUSED) => OriginFailure::Refused,
        Some(Errno::TIMEDOUT) => OriginFailure::ConnectTimeout,
        Some(Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::NETDOWN | Errno::HOSTDOWN | Errno::AFNOSUPPORT) => {
            OriginFailure::Unreachable
        }
        Some(Errno::ADDRNOTAVAIL) => OriginFailure::NoLocalPort,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => OriginFailure::NoDescriptor,
        _ => OriginFailure::ConnectFailed,
    }
}

/// Returns the transport, and whether HTTP/2 was negotiated by ALPN.
async fn begin_tls(
    shared: &Rc<OriginShared>,
    pool: &Rc<OriginPool>,
    socket: Socket,
    offers_http2: bool,
    timer: &mut DeadlineTimer,
) -> Result<(Transport, bool), OriginFailure> {
    if !pool.address.secure {
        return Ok((Transport::Plain(socket), false));
    }
    let tls = shared.tls.as_ref().ok_or(OriginFailure::TlsUnconfigured)?;
    let name = match &tls.server_name {
        Some(name) => name.clone(),
        None => ServerName::try_from(pool.address.host.to_string()).map_err(|_| OriginFailure::TlsUnconfigured)?,
    };
    let config = if offers_http2 { &tls.offering_http2 } else { &tls.config };
    let handshake = TlsConnector::from(Arc::clone(config)).connect(name, socket);
    let stream = match timer.bound(handshake).await {
        None => return Err(OriginFailure::ConnectTimeout),
        Some(Err(error)) => {
            return Err(ClientTlsFailure::of(&error).map_or(OriginFailure::TlsFailed, OriginFailure::from));
        }
        Some(Ok(stream)) => stream,
    };
    let alpn_http2 = stream.get_ref().1.alpn_protocol() == Some(ALPN_HTTP2);
    Ok((Transport::Tls(Box::new(stream)), alpn_http2))
}

#[cfg(test)]
mod tests {
    use super::name_connect_error;
    use crate::origin::OriginFailure;
    use rustix::io::Errno;

    #[test]
    fn connect_errors_have_names() {
        for (errno, failure) in [
            (Errno::CONNREFUSED, OriginFailure::Refused),
            (Errno::NETUNREACH, OriginFailure::Unreachable),
            (Errno::TIMEDOUT, OriginFailure::ConnectTimeout),
            (Errno::MFILE, OriginFailure::NoDescriptor),
            (Errno::ADDRNOTAVAIL, OriginFailure::NoLocalPort),
            (Errno::INVAL, OriginFailure::ConnectFailed),
        ] {
            assert_eq!(name_connect_error(&errno.into()), failure);
        }
    }
}
