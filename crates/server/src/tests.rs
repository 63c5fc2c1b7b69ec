//! Tests with a worker and a small handler over real sockets, for behaviour that serving files cannot produce.

mod content;
mod lines;
mod streams;
mod tunnels;

use super::phase_channel;
use super::settings::Settings;
use super::worker::{Listener, Phase, Protocol, WorkerParts, command_channel, run_worker};
use crate::counters::Counters;
use flatout_access_log::Logs;
use flatout_handler::content::{ContentPiece, InterimResponse, RequestContent};
use flatout_handler::ending::CloseReason;
use flatout_handler::response::{Body, FileBody, Head, LogFacts, Response, Segment};
use flatout_handler::stream::{ContentEvent, ContentSource, Duplex, Stream, TunnelStart, Tunnelling};
use flatout_handler::{Handler, Reply, Request};
use flatout_http::access::LogSettings;
use flatout_http::target::Target;
use flatout_http::timeouts::Timeouts;
use flatout_net::tls::TlsServer;
use flatout_os::clock::Now;
use flatout_os::file::{FileIdentity, OpenFile};
use flatout_os::socket::{ListenOptions, bind_listener};
pub(crate) use flatout_os::testing::wait_until;
use flatout_os::timer::Timer;
use flatout_reason::Table;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch::Sender;

/// Counters of what the handler has done, for tests to inspect.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Number of times that a source was polled for a piece.
    pub(crate) polls: AtomicU64,
    /// Number of sources dropped.
    pub(crate) dropped: AtomicU64,
    /// Number of content bytes that handlers received or sources produced.
    pub(crate) bytes: AtomicU64,
    /// Number of times that content ended early.
    pub(crate) cut: AtomicU64,
}

impl Seen {
    pub(crate) fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }
}

/// The next action of a scripted source.
#[derive(Clone)]
pub(crate) enum Act {
    Give(Vec<u8>),
    File(Rc<OpenFile>, u64),
    /// Yield nothing for this many milliseconds.
    Wait(u64),
    End(&'static str),
    Fail(CloseReason),
    /// Yield nothing forever.
    Stall,
    /// Yield this many bytes, 64 KiB at a time.
    Flood(u64),
}

/// A source that follows a script.
struct Script {
    acts: VecDeque<Act>,
    pause: Option<Pin<Box<dyn Future<Output = ()>>>>,
    seen: Arc<Seen>,
}

impl ContentSource for Script {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<ContentEvent> {
        Seen::add(&self.seen.polls, 1);
        loop {
            let Some(act) = self.acts.front_mut() else { return Poll::Ready(ContentEvent::End(None)) };
            let piece = match act {
                Act::Stall => return Poll::Pending,
                Act::Wait(for_ms) => {
                    let for_ms = *for_ms;
                    let pause = self.pause.get_or_insert_with(|| Box::pin(pause(for_ms)));
                    ready!(pause.as_mut().poll(context));
                    self.pause = None;
                    self.acts.pop_front();
                    continue;
                }
                Act::Flood(0) => {
                    self.acts.pop_front();
                    continue;
                }
                Act::Flood(left) => {
                    let bytes = (*left).min(64 * 1024);
                    *left -= bytes;
                    Seen::add(&self.seen.bytes, bytes);
                    return Poll::Ready(ContentEvent::Segment(Segment::Bytes(vec![b'z'; bytes as usize].into())));
                }
                Act::Give(bytes) => ContentEvent::Segment(Segment::Bytes(bytes.clone().into())),
                Act::File(file, bytes) => {
                    let file = FileBody { file: Rc::clone(file), offset: 0, bytes: *bytes };
                    ContentEvent::Segment(Segment::File(file))
                }
                Act::End(trailers) => ContentEvent::End((!trailers.is_empty()).then(|| Rc::from(trailers.as_bytes()))),
                Act::Fail(reason) => ContentEvent::Failed(*reason),
            };
            self.acts.pop_front();
            return Poll::Ready(piece);
        }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        Seen::add(&self.seen.dropped, 1);
    }
}

/// Increments the counter of dropped sources when dropped.
struct DropCount(Arc<Seen>);

impl Drop for DropCount {
    fn drop(&mut self) {
        Seen::add(&self.0.dropped, 1);
    }
}

/// A source that echoes the content of a request.
struct Echo(RequestContent, Arc<Seen>);

impl ContentSource for Echo {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<ContentEvent> {
        self.0.poll_piece(context).map(|piece| match piece {
            ContentPiece::Bytes(bytes) => {
                Seen::add(&self.1.bytes, bytes.len() as u64);
                ContentEvent::Segment(Segment::Bytes(bytes))
            }
            ContentPiece::End(trailers) => ContentEvent::End(trailers),
            ContentPiece::Cut(reason) => {
                Seen::add(&self.1.cut, 1);
                ContentEvent::Failed(reason)
            }
        })
    }
}

flatout_reason::reasons! {
    /// The outcome of all responses.
    pub enum Played { name, text, }
    Made, "made", "The player responded.";
}

/// Responds according to the path.
#[derive(Clone, Default)]
pub(crate) struct Player {
    pub(crate) seen: Arc<Seen>,
}

pub(crate) fn text(text: impl Into<Vec<u8>>) -> Response {
    let text: Vec<u8> = text.into();
    let length = text.len().to_string();
    Response::new(200, Head::new(200, &[("Content-Length", &length)]), Body::Bytes(text.into()), Played::Made)
}

/// Creates an unnamed file with `bytes` bytes of `f`.
pub(crate) fn file(bytes: usize, own: bool) -> Rc<OpenFile> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("flatout-stream-{}-{number}", std::process::id()));
    std::fs::write(&path, vec![b'f'; bytes]).unwrap();
    let fd = OwnedFd::from(std::fs::File::open(&path).unwrap());
    std::fs::remove_file(path).unwrap();
    let identity = FileIdentity::read(&fd).unwrap();
    Rc::new(if own { OpenFile::own(Arc::new(fd)) } else { OpenFile::new(fd, identity, None) })
}

impl Player {
    fn stream(&self, length: Option<u64>, acts: impl IntoIterator<Item = Act>) -> Response {
        let script = Script { acts: acts.into_iter().collect(), pause: None, seen: Arc::clone(&self.seen) };
        let length_text = length.map(|length| length.to_string());
        let fields: Vec<_> = length_text.iter().map(|length| ("Content-Length", length.as_str())).collect();
        Response {
            logged: LogFacts { cache: Some("miss".into()), ..LogFacts::default() },
            ..Response::new(200, Head::new(200, &fields), streamed(script, length), Played::Made)
        }
    }

    fn answer(&self, path: &[u8]) -> Option<Response> {
        use Act::{End, Fail, File, Flood, Give, Stall, Wait};
        let give = |text: &str| Give(text.as_bytes().to_vec());
        Some(match path {
            b"/now" => text("now"),
            b"/chunked" => self.stream(None, [give("one "), Wait(30), give("two "), give("three")]),
            b"/trailers" => self.stream(None, [give("body"), End("X-Sum: 4\r\nX-More: yes\r\n")]),
            b"/known" => self.stream(Some(8), [give("four"), Wait(20), give("more")]),
            b"/endless-end" => self.stream(Some(4), [give("four"), Stall]),
            b"/one-send" => self.stream(Some(1024), [Give(vec![b'x'; 1024]), End("")]),
            b"/short" => self.stream(Some(8), [give("four"), Wait(20), give("mor"), End("")]),
            b"/long" => self.stream(Some(6), [give("four"), Wait(20), give("more")]),
            b"/failing" => self.stream(None, [give("four"), Wait(20), Fail(CloseReason::OriginTruncated)]),
            b"/nothing" => self.stream(None, [End("")]),
            b"/empty" => self.stream(Some(0), []),
            b"/files" => self.stream(
                None,
                [
                    give("<"),
                    File(file(100_000, true), 100_000),
                    give("|"),
                    File(file(70_000, false), 70_000),
                    give(">"),
                ],
            ),
            b"/own" => {
                let own = FileBody { file: file(50_000, true), offset: 10, bytes: 49_990 };
                Response::new(200, Head::new(200, &[("Content-Length", "49990")]), Body::File(own), Played::Made)
            }
            b"/slow" => self.stream(None, [give("begun"), Stall]),
            b"/flood" => self.stream(None, [Flood(256 * 1024 * 1024)]),
            b"/big" => self.stream(Some(3_000_000), [Flood(3_000_000)]),
            _ => return None,
        })
    }

    async fn count(self, content: RequestContent) -> Response {
        let mut sum = 0;
        loop {
            match poll_fn(|context| content.poll_piece(context)).await {
                ContentPiece::Bytes(bytes) => {
                    sum += bytes.len() as u64;
                    self.seen.bytes.store(sum, Ordering::Relaxed);
                }
                ContentPiece::End(trailers) => {
                    let trailers = trailers.as_deref().map(String::from_utf8_lossy).unwrap_or_default().into_owned();
                    return text(format!("{sum} of {:?} [{}]", content.length(), trailers.replace("\r\n", ";")));
                }
                ContentPiece::Cut(_) => {
                    Seen::add(&self.seen.cut, 1);
                    return text("cut");
                }
            }
        }
    }
}

pub(crate) fn streamed(source: impl ContentSource + 'static, length: Option<u64>) -> Body {
    Body::Stream(Stream::new(source, length))
}

/// Waits for a tick of the worker's runtime.
async fn pause(for_ms: u64) {
    let timer = Timer::new().unwrap();
    timer.set_interval(for_ms).unwrap();
    timer.tick().await.unwrap();
}

fn tunnel() -> Response {
    let begin = |mut client: Box<dyn Duplex>| -> Tunnelling {
        Box::pin(async move {
            let mut buffer = vec![0; 20_000];
            while let Ok(count @ 1..) = client.read(&mut buffer).await {
                if client.write_all(&buffer[..count]).await.is_err() || client.flush().await.is_err() {
                    return CloseReason::ClientReset;
                }
            }
            let _ = client.shutdown().await;
            CloseReason::TunnelEnded
        })
    };
    let head = Head::new(101, &[("Connection", "Upgrade"), ("Upgrade", "echo")]);
    Response::new(101, head, Body::Tunnel(TunnelStart::new(begin)), Played::Made)
}

impl Handler for Player {
    const OUTCOMES: &'static [&'static Table] = &[Played::TABLE];

    fn handle(&self, request: &Request<'_>, _now: Now) -> Reply {
        let Target::Resource { path, .. } = request.head.target else { return text("none").into() };
        if let Some(answer) = self.answer(path) {
            return answer.into();
        }
        if let Some(answer) = path.strip_prefix(b"/later").and_then(|path| self.answer(path)) {
            return Reply::later(async {
                pause(20).await;
                answer
            });
        }
        let player = self.clone();
        match path {
            b"/never" => {
                let dropped = DropCount(Arc::clone(&self.seen));
                Reply::later(async move {
                    let _dropped = dropped;
                    std::future::pending().await
                })
            }
            b"/tunnel" => tunnel().into(),
            b"/hints" => {
                let interims = request.offers.interims();
                Reply::later(async move {
                    let hint = |status, lines: &[u8]| interims.send(InterimResponse { status, lines: lines.into() });
                    hint(103, b"Link: </a.css>; rel=preload\r\n");
                    pause(20).await;
                    hint(102, b"");
                    hint(101, b"No: interim\r\n");
                    text("hinted")
                })
            }
            _ => match request.offers.take_content() {
                None => text("no content").into(),
                Some(content) => match path {
                    b"/count" => Reply::later(player.count(content)),
                    b"/slow-count" => Reply::later(async move {
                        pause(200).await;
                        player.count(content).await
                    }),
                    b"/echo" => Reply::later(async move {
                        let body = streamed(Echo(content, Arc::clone(&player.seen)), None);
                        Response::new(200, Head::new(200, &[]), body, Played::Made)
                    }),
                    // Responds after the first piece, and drops the rest of the content.
                    b"/early" => Reply::later(async move {
                        let _ = poll_fn(|context| content.poll_piece(context)).await;
                        text("early")
                    }),
                    // Takes the content without reading it.
                    b"/untouched" => Reply::later(async move {
                        pause(10).await;
                        drop(content);
                        text("untouched")
                    }),
                    b"/holding" => Reply::later(async move {
                        let _content = content;
                        std::future::pending().await
                    }),
                    _ => text("taken").into(),
                },
            },
        }
    }
}

/// A running worker with a [`Player`].
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) counters: Arc<Counters>,
    pub(crate) seen: Arc<Seen>,
    phase: Sender<Phase>,
    worker: Option<thread::JoinHandle<usize>>,
}

pub(crate) fn timeouts() -> Timeouts {
    Timeouts { drain_timeout_ms: 5000, ..Timeouts::DEFAULT }
}

impl Running {
    pub(crate) fn start() -> Self {
        Self::with(timeouts(), None)
    }

    pub(crate) fn with(timeouts: Timeouts, tls: Option<Arc<TlsServer>>) -> Self {
        Self::logging(timeouts, tls, &[])
    }

    pub(crate) fn logging(timeouts: Timeouts, tls: Option<Arc<TlsServer>>, logs: &[LogSettings]) -> Self {
        let logs = Logs::open(logs, Box::new(|_| {})).unwrap();
        let log = logs.worker();
        let (fd, address) = bind_listener(&"127.0.0.1:0".parse().unwrap(), &ListenOptions::DEFAULT).unwrap();
        let (phase, phases) = phase_channel();
        let (counters, seen) = (Arc::<Counters>::default(), Arc::<Seen>::default());
        let (counted, handler) = (Arc::clone(&counters), Player { seen: Arc::clone(&seen) });
        let worker = thread::spawn(move || {
            let protocol = if tls.is_some() { Protocol::Tls } else { Protocol::Plain { http2: true } };
            let parts = WorkerParts {
                handler,
                settings: Settings { timeouts, ..Settings::default() },
                tls,
                quic: None,
                listeners: vec![Listener { fd, id: 0, protocol, proxy_protocol: false }],
                commands: command_channel().1,
                log,
                counters: counted,
                held: crate::ConnectionCounters::default(),
                phases,
            };
            let report = run_worker(parts, std::future::pending()).unwrap();
            logs.close();
            report.connections_cut
        });
        Self { address, counters, seen, phase, worker: Some(worker) }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        stream
    }

    /// Sends `request` with an additional `Connection: close`. Returns all bytes received until the connection closes.
    pub(crate) fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        let request = request.replacen("\r\n", "\r\nHost: test\r\nConnection: close\r\n", 1);
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    }

    pub(crate) fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\n\r\n"))
    }

    pub(crate) fn closed(&self, reason: CloseReason) -> u64 {
        self.counters.closes[reason as usize].get()
    }

    /// Stops the worker. Returns the number of connections that were closed early.
    pub(crate) fn stop(mut self) -> usize {
        self.phase.send(Phase::Drain).unwrap();
        self.worker.take().unwrap().join().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.phase.send(Phase::Abandon);
        if let Some(worker) = self.worker.take() {
            let worker = worker.join();
            assert!(worker.is_ok() || thread::panicking());
        }
    }
}

/// Reads until the received data ends with `end`.
pub(crate) fn read_until(stream: &mut impl Read, end: &str) -> String {
    let mut all = Vec::new();
    let mut byte = [0];
    while !all.ends_with(end.as_bytes()) {
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&all));
        all.push(byte[0]);
    }
    String::from_utf8(all).unwrap()
}

/// Splits a response into its head and its content.
pub(crate) fn split(answer: &str) -> (&str, &str) {
    answer.split_once("\r\n\r\n").unwrap()
}
