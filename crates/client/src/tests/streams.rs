//! Tests of streams that share a connection, against a small HTTP/2 server.

use super::{Script, answered, failures, run_script, server, settings};
use crate::failure::IDLE_NS_MIN;
use crate::{ClientSettings, PreparedRequest, SharedStreams, StreamRequest, StreamVersion};
use flatout_load::record::SentAgain;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Length of the client's connection preface, in bytes (RFC 9113 §3.4).
const PREFACE_BYTES: usize = 24;

/// Types of frames (RFC 9113 §6).
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;

/// Flags of frames: ACK of SETTINGS, and END_STREAM and END_HEADERS of HEADERS (RFC 9113 §6).
const ACK: u8 = 1;
const END_STREAM_AND_HEADERS: u8 = 5;

/// The field block of a GET request: the fields `:method`, `:scheme`, `:path` and `:authority` (RFC 7541 appendix A).
const GET: &[u8] = b"\x82\x86\x84\x41\x01a";

/// The field block of a response with status 200.
const STATUS_200: u8 = 0x88;

/// Reads a frame. Returns its type, its flags and its stream.
fn read_frame(stream: &mut TcpStream) -> io::Result<(u8, u8, [u8; 4])> {
    let mut header = [0; 9];
    stream.read_exact(&mut header)?;
    let payload_bytes = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
    stream.read_exact(&mut vec![0; payload_bytes])?;
    Ok((header[3], header[4], [header[5], header[6], header[7], header[8]]))
}

/// Responds to this number of requests, reads another one and returns.
fn serve(stream: &mut TcpStream, mut responses: u32) -> io::Result<()> {
    stream.read_exact(&mut [0; PREFACE_BYTES])?;
    stream.write_all(&[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0])?;
    loop {
        match read_frame(stream)? {
            (SETTINGS, flags, _) if flags & ACK == 0 => stream.write_all(&[0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0])?,
            (HEADERS, _, id) => {
                let Some(left) = responses.checked_sub(1) else { return Ok(()) };
                responses = left;
                let head = [0, 0, 1, HEADERS, END_STREAM_AND_HEADERS];
                stream.write_all(&[&head[..], &id, &[STATUS_200]].concat())?;
            }
            _ => {}
        }
    }
}

/// Starts a server that closes each connection at the request after this number of requests.
fn close_after(responses: u32) -> SocketAddr {
    server(move |_, mut stream| {
        let _ = serve(&mut stream, responses);
    })
}

fn settings_of(address: SocketAddr, slots: u32) -> ClientSettings {
    let streamed = Some(StreamRequest { block: GET.into(), content: [].into() });
    let request = PreparedRequest { streamed, ..PreparedRequest::plain(super::REQUEST.to_vec()) };
    let streams = Some(SharedStreams { version: StreamVersion::Http2, per_connection: slots });
    ClientSettings { streams, slots, requests: [request].into(), ..settings(address) }
}

#[test]
fn a_request_on_an_idle_connection_that_the_server_closes_is_sent_again_once() {
    let script = Script { pause_ns: IDLE_NS_MIN, ..Script::new(1, 4) };
    let report = run_script(settings_of(close_after(1), 1), script);
    assert_eq!((answered(&report), failures(&report)), (4, vec![]));
    assert_eq!(report.drive.sent_again, [(1, SentAgain::IdleClose); 3]);
    assert_eq!(report.drive.made.len(), 4);
}

#[test]
fn a_request_on_a_busy_connection_that_the_server_closes_is_not_sent_again() {
    let report = run_script(settings_of(close_after(1), 1), Script::new(1, 4));
    assert_eq!((answered(&report), failures(&report).len()), (2, 2));
    assert_eq!(report.drive.sent_again, []);
}

#[test]
fn the_loss_of_a_connection_is_reported_for_each_slot_of_its_group() {
    let report = run_script(settings_of(close_after(1), 3), Script::new(3, 2));
    // The run may end before the loss of another connection is reported.
    assert_eq!(report.drive.closed.get(..3), Some(&[0, 1, 2][..]), "{:?}", report.drive.closed);
}
