//! Sends a row in one of three ways and reads what comes back, strictly.

use super::vectors::Row;
use crate::e2e::harness::{Response, Server};
use flatout_handler::ending::CloseReason;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

/// What is sent behind a row to see whether the connection goes on.
pub(crate) const FOLLOWER: &[u8] = b"GET /index.html HTTP/1.1\r\nHost: test\r\n\r\n";

/// Rows up to this size are sent byte by byte, larger ones in so many pieces.
const BYTEWISE_MAX: usize = 512;
const PIECES: usize = 40;

/// How a row is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// In one write.
    Whole,
    /// In writes of a byte each.
    Bytewise,
    /// In one write with a well-formed request behind it.
    Followed,
}

impl Way {
    /// The ways in which `row` can be sent: what is cut short, or goes unsaid for lack of a `100 Continue`, would have
    /// another meaning with more behind it.
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

/// Sends `row` on a fresh connection, then the end of the stream, and returns every final response.
pub(crate) fn exchange(server: &Server, row: &Row, way: Way) -> Result<Vec<Response>, String> {
    exchange_over(server.connect(), row, way)
}

/// A connection of which one side can end, with TLS or without.
pub(crate) trait Peer: Read + Write {
    /// The connection below TLS, if there is any.
    fn socket(&mut self) -> &mut TcpStream;
    /// Says that nothing more will be sent.
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

/// The same on a connection that is there.
pub(crate) fn exchange_over(mut stream: impl Peer, row: &Row, way: Way) -> Result<Vec<Response>, String> {
    stream.socket().set_nodelay(true).unwrap();
    send(&mut stream, row, way);
    stream.end();
    let bytes = receive(&mut stream, row)?;
    split_responses(&bytes, &row.bytes)
}

/// A server that has refused a row may have closed before all of it was written, which is no failure.
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

/// All that comes until the server ends the stream. A reset may end it only where the client itself had said that it
/// would send no more, and sent more.
fn receive(stream: &mut impl Peer, row: &Row) -> Result<Vec<u8>, String> {
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
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

/// The final responses in `bytes`, of which the first answers `request`. Interim ones are checked and left out.
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
