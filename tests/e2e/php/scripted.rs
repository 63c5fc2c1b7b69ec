//! An application server that is scripted to the byte, for faults that no real one can produce on demand. It implements
//! FastCGI from the specification, not from the code under test.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// A request as received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) content: Vec<u8>,
    pub(crate) keeps: bool,
    /// The number of the request, counted over all connections.
    pub(crate) number: usize,
}

/// A record with padding, which any server may send.
pub(crate) fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let padding = (8 - content.len() % 8) % 8;
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    let head = [1, kind, 0, 1, length[0], length[1], u8::try_from(padding).unwrap(), 0];
    [&head[..], content, &vec![0xff; padding]].concat()
}

pub(crate) fn stdout(text: &str) -> Vec<u8> {
    record(6, text.as_bytes())
}

pub(crate) fn stderr(text: &str) -> Vec<u8> {
    record(7, text.as_bytes())
}

pub(crate) fn end(status: u8) -> Vec<u8> {
    record(3, &[0, 0, 0, 0, status, 0, 0, 0])
}

/// The records of a whole response: `text` on standard output, and the end of the request.
pub(crate) fn complete_response(text: &str) -> Vec<u8> {
    [stdout(text), end(0)].concat()
}

type Handler = dyn Fn(&Asked, &mut UnixStream) -> bool + Send + Sync;

pub(crate) struct Scripted {
    pub(crate) socket: PathBuf,
    asked: Arc<Mutex<Vec<Asked>>>,
    pub(crate) connections: Arc<AtomicUsize>,
}

impl Scripted {
    /// Calls `handler` with each request after its content is complete. If `handler` returns false, the connection
    /// closes.
    pub(crate) fn start(
        folder: &Path,
        handler: impl Fn(&Asked, &mut UnixStream) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(folder, true, handler)
    }

    /// Like [`start`](Self::start), but if `reads` is false, calls `handler` as soon as the variables are complete.
    pub(crate) fn start_with(
        folder: &Path,
        reads: bool,
        handler: impl Fn(&Asked, &mut UnixStream) -> bool + Send + Sync + 'static,
    ) -> Self {
        let socket = folder.join("app.sock");
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let (asked, connections) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
        let handler: Arc<Handler> = Arc::new(handler);
        let (log, count) = (Arc::clone(&asked), Arc::clone(&connections));
        thread::spawn(move || {
            for stream in listener.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
                let (handler, log) = (Arc::clone(&handler), Arc::clone(&log));
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    while let Some(mut asked) = read_request(&mut stream, reads) {
                        {
                            let mut log = log.lock().unwrap();
                            asked.number = log.len();
                            log.push(asked.clone());
                        }
                        if !handler(&asked, &mut stream) {
                            return;
                        }
                    }
                });
            }
        });
        Self { socket, asked, connections }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// The directive that forwards to this server, with `settings` in its block and the folder as its root.
    pub(crate) fn step(&self, root: &Path, settings: &str) -> String {
        let root = root.to_str().unwrap();
        format!("    php \"unix:{}\" {{\n        root {root:?}\n        {settings}\n    }}", self.socket.display())
    }
}

/// The next record: its type and content.
pub(crate) fn read_record(stream: &mut UnixStream) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 8];
    stream.read_exact(&mut head).ok()?;
    assert_eq!((head[0], head[2], head[3]), (1, 0, 1), "version and request");
    let mut content = vec![0; usize::from(u16::from_be_bytes([head[4], head[5]]))];
    stream.read_exact(&mut content).ok()?;
    stream.read_exact(&mut vec![0; usize::from(head[6])]).ok()?;
    Some((head[1], content))
}

fn read_request(stream: &mut UnixStream, reads: bool) -> Option<Asked> {
    let (mut asked, mut variables) = (Asked::default(), Vec::new());
    loop {
        let (kind, content) = read_record(stream)?;
        match (kind, content.is_empty()) {
            (1, _) => {
                assert_eq!(content[..2], [0, 1], "a responder");
                asked.keeps = content[2] & 1 == 1;
            }
            // The client no longer needs the response.
            (2, _) => return None,
            (4, false) => variables.extend_from_slice(&content),
            (4, true) => {
                asked.variables = unpack(&variables);
                if !reads {
                    return Some(asked);
                }
            }
            (5, false) => asked.content.extend_from_slice(&content),
            (5, true) => return Some(asked),
            other => panic!("a record of type {other:?}"),
        }
    }
}

fn unpack(mut bytes: &[u8]) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    while !bytes.is_empty() {
        let lengths: Vec<usize> = (0..2)
            .map(|_| {
                let long = bytes[0] >= 128;
                let length = if long {
                    u32::from_be_bytes([bytes[0] & 0x7f, bytes[1], bytes[2], bytes[3]]) as usize
                } else {
                    usize::from(bytes[0])
                };
                bytes = &bytes[if long { 4 } else { 1 }..];
                length
            })
            .collect();
        let (name, rest) = bytes.split_at(lengths[0]);
        let (value, rest) = rest.split_at(lengths[1]);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(variables.insert(text(name), text(value)), None, "{} twice", text(name));
        bytes = rest;
    }
    variables
}

/// Writes, and ignores errors if nobody reads any more.
pub(crate) fn send(stream: &mut UnixStream, bytes: &[u8]) -> bool {
    stream.write_all(bytes).is_ok()
}
