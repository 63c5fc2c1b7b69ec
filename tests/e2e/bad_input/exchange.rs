//! Sends a row in one of three ways and parses the responses strictly.

use super::vectors::Row;
use crate::e2e::harness::{Response, Server};
use flatout_handler::ending::CloseReason;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

/// A request sent after a row to see whether the connection stays open.
pub(crate) const FOLLOWER: &[u8] = b"GET /index.html HTTP/1.1\r\nHost: test\r\n\r\n";

/// Rows up to this size are sent byte by byte, larger ones in this many pieces.
const BYTEWISE_MAX: usize = 512;
const PIECES: usize = 40;

/// How a row is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// In a single write.
    Whole,
    /// One byte per write.
    Bytewise,
    /// In one write, followed by a well-formed request.
    Followed,
}

impl Way {
    /// The ways in which `row` can be sent. A row that is truncated, or whose content is withheld for lack of a `100
    /// Continue`, would have a different meaning with more bytes after it.
    pub(crate) fn of(row: &Row) -> &'static [Self] {
        match row.closed {
            Some(
                CloseReason::ClientClosed
                | CloseReason::ClientCutHead
                | CloseReason::ClientCutBody
                | CloseReason::RefusedBody,
            ) => &[Self::Whole, Self::Bytewise],
            _ => &[Self::Whole, Self::Bytewise, Self::Followed],
        }
    }
}

/// Sends `row` on a fresh connection, then closes the write side, and returns every final response.
pub(crate) fn exchange(server: &Server, row: &Row, way: Way) -> Result<Vec<Response>, String> {
    exchange_over(server.connect(), row, way)
}

/// A connection that can be half-closed, with or without TLS.
pub(crate) trait Peer: Read + Write {
    /// The TCP connection, below TLS if there is any.
    fn socket(&mut self) -> &mut TcpStream;
    /// Closes the write side.
    fn end(&mut self);
}

impl Peer for TcpStream {
    fn socket(&mut self) -> &mut TcpStream {
        self
    }

    fn end(&mut self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

/// Like [`exchange`], on an existing connection.
pub(crate) fn exchange_over(mut stream: impl Peer, row: &Row, way: Way) -> Result<Vec<Response>, String> {
    stream.socket().set_nodelay(true).unwrap();
    send(&mut stream, row, way);
    stream.end();
    let bytes = receive(&mut stream, row)?;
    split_responses(&bytes, &row.bytes)
}

/// Sends the row. The server may refuse it and close before all of it was written, which is no failure.
fn send(stream: &mut impl Peer, row: &Row, way: Way) {
    let _ = match way {
        Way::Whole => stream.write_all(&row.bytes),
        Way::Bytewise => {
            let piece = if row.bytes.len() <= BYTEWISE_MAX { 1 } else { row.bytes.len().div_ceil(PIECES) };
            row.bytes.chunks(piece).try_for_each(|piece| stream.write_all(piece))
        }
        Way::Followed => stream.write_all(&[&row.bytes, FOLLOWER].concat()),
    };
}

/// Receives everything until the server closes the stream. A reset is allowed only if the client announced that it
/// would send no more, and then sent more.
fn receive(stream: &mut impl Peer, row: &Row) -> Result<Vec<u8>, String> {
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            // Another test in this process may be starting or stopping a program.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                let reset = matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
                return match row.closed {
                    Some(CloseReason::NotPersistent) if reset => Ok(bytes),
                    _ => Err(format!("{error} after {:?}", String::from_utf8_lossy(&bytes))),
                };
            }
        }
    }
}

/// The final responses in `bytes`; the first one is for `request`. Interim responses are checked and left out.
fn split_responses(bytes: &[u8], request: &[u8]) -> Result<Vec<Response>, String> {
    let to_head = request.strip_prefix(b"\r\n").unwrap_or(request).starts_with(b"HEAD ");
    let (mut rest, mut responses) = (bytes, Vec::new());
    while !rest.is_empty() {
        let shown = || String::from_utf8_lossy(&rest[..rest.len().min(400)]).into_owned();
        let head_end = rest.windows(4).position(|window| window == b"\r\n\r\n");
        let head_end = head_end.ok_or_else(|| format!("no end of a head in {:?}", shown()))? + 4;
        let head = Response::parse(&rest[..head_end]);
        rest = &rest[head_end..];
        if head.status == 100 {
            if !head.fields.is_empty() {
                return Err("an interim response has fields".to_owned());
            }
            continue;
        }
        let lengths: Vec<_> = head.fields.iter().filter(|(name, _)| name == "content-length").collect();
        let length = match (head.status, lengths.as_slice()) {
            (204 | 304, []) => 0,
            (204 | 304, _) => return Err(format!("{} with a Content-Length", head.status)),
            (_, [_]) if to_head && responses.is_empty() => 0,
            (_, [(_, length)]) => length.parse().map_err(|_| format!("Content-Length: {length}"))?,
            _ => return Err(format!("{} has {} Content-Lengths", head.status, lengths.len())),
        };
        if head.field("date").is_none() {
            return Err(format!("{} has no Date", head.status));
        }
        let body = rest.get(..length).ok_or_else(|| format!("{} of {length} bytes came", rest.len()))?.to_vec();
        rest = &rest[length..];
        responses.push(Response { body, ..head });
    }
    Ok(responses)
}
