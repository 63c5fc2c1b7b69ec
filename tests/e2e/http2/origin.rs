//! An origin that sends HTTP/2 frame by frame, so that the test controls every bit.

use super::client::{ACK, Frame, HEADERS, PING, PREFACE, SETTINGS, encode, take_frame};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// A listener with a thread for each connection. It stops with the test.
pub(crate) struct FrameOrigin {
    address: String,
    requests: Arc<AtomicUsize>,
}

/// A connection to the origin.
pub(crate) struct Connection(TcpStream);

impl Connection {
    pub(crate) fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let _ = self.0.write_all(&encode(kind, flags, stream, payload));
    }
}

impl FrameOrigin {
    /// Passes each HEADERS frame to `handler`, which sends the response.
    pub(crate) fn start(handler: impl Fn(&Frame, &mut Connection) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (requests, handler) = (Arc::new(AtomicUsize::new(0)), Arc::new(handler));
        let log = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, handler) = (Arc::clone(&log), Arc::clone(&handler));
                thread::spawn(move || serve(Connection(stream), &log, &*handler));
            }
        });
        Self { address, requests }
    }

    pub(crate) fn address(&self) -> String {
        self.address.clone()
    }

    /// The number of requests received so far.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn serve(
    mut connection: Connection,
    log: &AtomicUsize,
    handler: &(impl Fn(&Frame, &mut Connection) + Send + Sync),
) -> Option<()> {
    let (mut received, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    connection.send(SETTINGS, 0, 0, &[]);
    let mut begun = false;
    loop {
        let count = connection.0.read(&mut buffer).ok().filter(|count| *count > 0)?;
        received.extend_from_slice(&buffer[..count]);
        if !begun && received.len() >= PREFACE.len() {
            assert!(received.starts_with(PREFACE));
            received.drain(..PREFACE.len());
            begun = true;
        }
        while begun && let Some(frame) = take_frame(&mut received) {
            match frame.kind {
                SETTINGS if frame.flags & ACK == 0 => connection.send(SETTINGS, ACK, 0, &[]),
                PING if frame.flags & ACK == 0 => connection.send(PING, ACK, 0, &frame.payload),
                HEADERS => {
                    log.fetch_add(1, Ordering::SeqCst);
                    handler(&frame, &mut connection);
                }
                _ => {}
            }
        }
    }
}
