//! HTTP/3 by Cloudflare's quiche, with the commands and the output of tests/e2e/http3/client.py:
//!
//! - `get HOST:PORT PATH…`: each response
//! - `head HOST:PORT PATH`: the response
//! - `post HOST:PORT PATH BYTES [te]`: content of this many bytes, perhaps with trailers
//! - `cancel HOST:PORT PATH OTHER`: cancels PATH after its head, then requests OTHER
//! - `migrate HOST:PORT PATH`: changes the client's port between requests

use quiche::h3::{APPLICATION_PROTOCOL, Connection as Http3, Event, Header, NameValue};
use quiche::{Config, Connection, ConnectionId, PathEvent, RecvInfo, Shutdown};
use ring::digest::{Context, SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const TIMEOUT: Duration = Duration::from_secs(60);

/// H3_REQUEST_CANCELLED (RFC 9114 §8.1).
const CANCELLED: u64 = 0x10c;

/// Content that a request sends, and whether trailers follow.
struct Upload {
    content: Vec<u8>,
    trailers: bool,
}

struct Response {
    fields: BTreeMap<String, String>,
    trailers: BTreeMap<String, String>,
    size: usize,
    digest: Context,
}

impl Response {
    fn new() -> Self {
        let (fields, trailers) = (BTreeMap::new(), BTreeMap::new());
        Self { fields, trailers, size: 0, digest: Context::new(&SHA256) }
    }

    fn show(&self) -> String {
        let status = self.fields.get(":status").map_or("0", String::as_str);
        let sha256 = hex(self.digest.clone().finish().as_ref());
        let (fields, trailers) = (object(&self.fields), object(&self.trailers));
        let size = self.size;
        format!(r#""status":{status},"size":{size},"sha256":"{sha256}","fields":{fields},"trailers":{trailers}"#)
    }
}

/// A connection, and its sockets: the last is in use.
struct Session {
    quic: Connection,
    http: Option<Http3>,
    sockets: Vec<UdpSocket>,
    server: SocketAddr,
    began: Instant,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn object(fields: &BTreeMap<String, String>) -> String {
    let members: Vec<String> = fields.iter().map(|(name, value)| format!("{name:?}:{value:?}")).collect();
    format!("{{{}}}", members.join(","))
}

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| "no random bytes")?;
    Ok(bytes)
}

impl Session {
    fn connect(server: SocketAddr) -> Result<Self> {
        let mut config = Config::new(quiche::PROTOCOL_VERSION)?;
        config.verify_peer(false);
        config.set_application_protos(APPLICATION_PROTOCOL)?;
        config.set_initial_max_data(16 << 20);
        config.set_initial_max_stream_data_bidi_local(1 << 20);
        config.set_initial_max_stream_data_uni(1 << 20);
        config.set_initial_max_streams_uni(8);
        config.set_active_connection_id_limit(8);
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let id = random::<16>()?;
        let quic = quiche::connect(
            Some("localhost"),
            &ConnectionId::from_ref(&id),
            socket.local_addr()?,
            server,
            &mut config,
        )?;
        let mut session = Self { quic, http: None, sockets: vec![socket], server, began: Instant::now() };
        session.run_until(|session| session.quic.is_established())?;
        session.http = Some(Http3::with_transport(&mut session.quic, &quiche::h3::Config::new()?)?);
        Ok(session)
    }

    /// Sends and receives until `is_done`.
    fn run_until(&mut self, mut is_done: impl FnMut(&mut Self) -> bool) -> Result<()> {
        let mut buffer = vec![0; 65_535];
        loop {
            let is_done = is_done(self);
            self.send(&mut buffer)?;
            if is_done {
                return Ok(());
            }
            if self.quic.is_closed() || self.began.elapsed() > TIMEOUT {
                return Err(format!("closed: {:?} {:?}", self.quic.peer_error(), self.quic.local_error()).into());
            }
            self.receive(&mut buffer)?;
        }
    }

    fn send(&mut self, buffer: &mut [u8]) -> Result<()> {
        loop {
            match self.quic.send(buffer) {
                Ok((count, info)) => {
                    let from = |socket: &&UdpSocket| socket.local_addr().is_ok_and(|address| address == info.from);
                    if let Some(socket) = self.sockets.iter().find(from) {
                        socket.send_to(&buffer[..count], info.to)?;
                    }
                }
                Err(quiche::Error::Done) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Receives one datagram from each socket, or handles the time.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<()> {
        let mut wait = self.quic.timeout().unwrap_or(TIMEOUT).clamp(Duration::from_millis(1), TIMEOUT);
        if self.sockets.len() > 1 {
            wait = Duration::from_millis(1);
        }
        for socket in &self.sockets {
            socket.set_read_timeout(Some(wait))?;
            match socket.recv_from(buffer) {
                Ok((count, from)) => {
                    let info = RecvInfo { from, to: socket.local_addr()? };
                    self.quic.recv(&mut buffer[..count], info)?;
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if self.quic.timeout().is_some_and(|left| left.is_zero()) {
            self.quic.on_timeout();
        }
        Ok(())
    }

    /// Sends a request and receives the response, until `is_enough` says so.
    fn ask(
        &mut self,
        (method, path): (&str, &str),
        upload: Option<&Upload>,
        mut is_enough: impl FnMut(&Response) -> bool,
    ) -> Result<Response> {
        let mut http = self.http.take().ok_or("no connection")?;
        let fields = [(":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", path)];
        let head: Vec<Header> =
            fields.iter().map(|(name, value)| Header::new(name.as_bytes(), value.as_bytes())).collect();
        let id = http.send_request(&mut self.quic, &head, upload.is_none())?;
        let (mut sent, mut has_ended) = (0, upload.is_none());
        let (mut response, mut failed) = (Response::new(), None);
        let mut buffer = vec![0; 65_536];
        self.run_until(|session| {
            let quic = &mut session.quic;
            while let Some(Upload { content, trailers }) = upload.filter(|_| !has_ended) {
                if sent < content.len() {
                    match http.send_body(quic, id, &content[sent..], !trailers) {
                        Ok(count) => sent += count,
                        Err(_) => break,
                    }
                    has_ended = sent == content.len() && !trailers;
                } else {
                    let section = [Header::new(b"x-checksum", b"7")];
                    has_ended = http.send_additional_headers(quic, id, &section, true, true).is_ok();
                    break;
                }
            }
            loop {
                match http.poll(quic) {
                    Ok((of, Event::Headers { list, .. })) if of == id => {
                        let has_head = response.fields.contains_key(":status");
                        let into = if has_head { &mut response.trailers } else { &mut response.fields };
                        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                        into.extend(list.iter().map(|field| (text(field.name()), text(field.value()))));
                    }
                    Ok((of, Event::Data)) if of == id => {
                        while let Ok(count) = http.recv_body(quic, id, &mut buffer) {
                            response.size += count;
                            response.digest.update(&buffer[..count]);
                        }
                    }
                    Ok((of, Event::Finished)) if of == id => return true,
                    Ok((of, Event::Reset(code))) if of == id => {
                        failed = Some(format!("reset with {code:#x}"));
                        return true;
                    }
                    Ok(_) => {}
                    Err(quiche::h3::Error::Done) => return is_enough(&response),
                    Err(error) => {
                        failed = Some(error.to_string());
                        return true;
                    }
                }
                if is_enough(&response) {
                    let _ = quic.stream_shutdown(id, Shutdown::Read, CANCELLED);
                    return true;
                }
            }
        })?;
        self.http = Some(http);
        failed.map_or(Ok(response), |reason| Err(reason.into()))
    }

    fn get(&mut self, path: &str) -> Result<Response> {
        self.ask(("GET", path), None, |_| false)
    }

    /// Moves the connection to another port of the client.
    fn change_port(&mut self) -> Result<SocketAddr> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let (local, server) = (socket.local_addr()?, self.server);
        self.sockets.push(socket);
        // The server needs an ID of this client for the new path.
        self.quic.new_scid(&ConnectionId::from_ref(&random::<16>()?), u128::from_le_bytes(random()?), false)?;
        self.run_until(|session| session.quic.available_dcids() > 0)?;
        self.quic.probe_path(local, server)?;
        self.run_until(|session| {
            while let Some(event) = session.quic.path_event_next() {
                if event == PathEvent::Validated(local, server) {
                    return true;
                }
            }
            false
        })?;
        self.quic.migrate(local, server)?;
        self.sockets.drain(..self.sockets.len() - 1);
        Ok(local)
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [command, address, arguments @ ..] = arguments.as_slice() else { return Err("COMMAND HOST:PORT …".into()) };
    let mut session = Session::connect(address.parse()?)?;
    let told = match (command.as_str(), arguments) {
        ("get", paths) => {
            let shown: Result<Vec<String>> =
                paths.iter().map(|path| Ok(format!("{{{}}}", session.get(path)?.show()))).collect();
            format!("[{}]", shown?.join(","))
        }
        ("head", [path]) => format!("{{{}}}", session.ask(("HEAD", path), None, |_| false)?.show()),
        ("post", [path, bytes, rest @ ..]) => {
            let content: Vec<u8> = (0..bytes.parse()?).map(|index: usize| (index % 1000 % 251) as u8).collect();
            let sent = hex(digest(&SHA256, &content).as_ref());
            let upload = Upload { content, trailers: !rest.is_empty() };
            format!(r#"{{{},"sent":"{sent}"}}"#, session.ask(("POST", path), Some(&upload), |_| false)?.show())
        }
        ("cancel", [path, other]) => {
            let cut = session.ask(("GET", path), None, |response| response.size > 0)?;
            let again = session.get(other)?;
            format!(r#"{{"size":{},"again":{}}}"#, cut.size, again.fields[":status"])
        }
        ("migrate", [path]) => {
            let mut ports = vec![format!("{:?}", session.sockets[0].local_addr()?.to_string())];
            let mut shown = vec![format!("{{{}}}", session.get(path)?.show())];
            for _ in 0..3 {
                ports.push(format!("{:?}", session.change_port()?.to_string()));
                shown.push(format!("{{{}}}", session.get(path)?.show()));
            }
            let closed = session.quic.is_closed();
            format!(r#"{{"ports":[{}],"responses":[{}],"closed":{closed}}}"#, ports.join(","), shown.join(","))
        }
        _ => return Err(format!("unknown command {command}").into()),
    };
    println!("{told}");
    Ok(())
}
