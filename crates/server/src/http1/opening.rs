//! The beginning of a connection that may not be HTTP/1.1: it begins with a TLS handshake or the HTTP/2 preface, or was
//! meant for another port.

use crate::http1::connection::{Next, ServerConnection};
use crate::http1::exchanges::Turn;
use crate::sending::Tail;
use crate::tls_session::{Handshake, Received};
use crate::worker::Worker;
use flatout_handler::Handler;
use flatout_handler::ending::CloseReason;
use flatout_http::http2::frame::PREFACE;
use flatout_http::refusal::Refusal;
use flatout_net::tls::failure::TlsFailure;
use std::os::fd::BorrowedFd;

impl ServerConnection {
    /// Advances the TLS handshake. Returns `None` if it is complete and HTTP/1.1 follows.
    #[inline(never)]
    pub(super) fn handshake<H: Handler>(&mut self, worker: &Worker<H>, fd: BorrowedFd<'_>) -> Option<Next> {
        let session = self.tls.as_mut()?;
        match session.handshake(fd) {
            Handshake::Complete => {
                worker.counters.tls_handshakes.add(1);
                worker.counters.tls_resumptions.add(u64::from(session.is_resumed()));
                session.is_http2().then_some(Next::Http2)
            }
            Handshake::Read => Some(Next::Read),
            Handshake::Write => Some(Next::Write),
            Handshake::PlainHttp(input) => {
                // A client that uses HTTP on a TLS port receives an HTTP response.
                self.tls = None;
                self.refuse_plain(worker, fd, &input).or_else(|| self.close_or_linger(fd))
            }
            Handshake::Failed(failure) => Some(Next::Close(count_failure(worker, failure))),
        }
    }

    fn refuse_plain<H: Handler>(&mut self, worker: &Worker<H>, fd: BorrowedFd<'_>, input: &[u8]) -> Option<Next> {
        let mut output = worker.output.borrow_mut();
        output.clear();
        let mut turn = Turn::new(worker, &mut output);
        self.exchanges.refuse(&mut turn, Refusal::HttpOnTlsPort, input);
        self.send_output(worker, fd, &output, Tail::None, None)
    }

    #[inline(never)]
    pub(super) fn receive_by_tls<H: Handler>(
        &mut self,
        worker: &Worker<H>,
        fd: BorrowedFd<'_>,
        input: &mut [u8],
    ) -> Received {
        let Some(session) = self.tls.as_mut() else { return Received::End };
        let received = session.recv(fd, input);
        if let Received::Failed(_, Some(failure)) = received {
            count_failure(worker, failure);
        }
        received
    }

    /// Handles the first bytes of a client that may use HTTP/2 with prior knowledge (RFC 9113 §3.3).
    pub(super) fn handle_opening<H: Handler>(
        &mut self,
        worker: &Worker<H>,
        fd: BorrowedFd<'_>,
        input: &[u8],
    ) -> Option<Next> {
        let mut stash = std::mem::take(&mut self.stash);
        stash.extend_from_slice(input);
        if stash.starts_with(PREFACE) {
            self.stash = stash;
            return Some(Next::Http2);
        }
        if PREFACE.starts_with(&stash) {
            self.stash = stash;
            self.exchanges.handle_beginning();
            return None;
        }
        if is_invalid_preface(&stash) {
            return Some(Next::Close(CloseReason::H2Protocol));
        }
        // Everything else is treated as HTTP/1.1, which responds to malformed requests.
        self.may_be_http2 = false;
        self.use_input(worker, fd, &stash)
    }
}

/// Returns whether `bytes` resemble the HTTP/2 preface but differ from it: at least as many bytes, with a line that
/// does not name a version of HTTP/1, followed by an empty line. No HTTP/1.1 client sends a request without fields, and
/// RFC 9113 §3.4 requires closing the connection.
fn is_invalid_preface(bytes: &[u8]) -> bool {
    let Some(line_bytes) = bytes.windows(4).position(|end| end == b"\r\n\r\n") else { return false };
    let line = &bytes[..line_bytes];
    let version = line.rsplit(|&byte| byte == b' ').next().unwrap_or(line);
    bytes.len() >= PREFACE.len() && !line.is_empty() && !line.contains(&b'\r') && !version.starts_with(b"HTTP/")
}

fn count_failure<H: Handler>(worker: &Worker<H>, failure: TlsFailure) -> CloseReason {
    worker.counters.tls_failures[failure as usize].add(1);
    CloseReason::TlsFailed
}
