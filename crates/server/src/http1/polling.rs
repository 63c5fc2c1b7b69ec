//! A connection that waits for both the handler and its client, while content arrives and a response is produced.

use super::connection::{Next, ServerConnection};
use super::exchanges::Turn;
use super::streaming::Flow;
use crate::http1::tunnel::TunnelTask;
use crate::sending::Tail;
use crate::tls_session::Received;
use crate::worker::Worker;
use flatout_handler::Handler;
use flatout_handler::ending::CloseReason;
use flatout_os::registered::Registered;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Maximum outputs sent in one turn before the connection yields to others.
const OUTPUTS_MAX: u32 = 16;

/// How soon after the start of a wait a client must close its side to be regarded as having sent everything, in
/// milliseconds. Such a client still waits for its response (`printf … | nc -N`); a client that closes later has
/// disconnected.
const HALF_CLOSE_GRACE_MS: u64 = 100;

/// Maximum receive calls for content in one turn before the connection yields to others.
const RECEIVES_MAX: u32 = 8;

impl ServerConnection {
    /// Polls the handler, sends its output, and delivers received content to it. The clock must have been read in this
    /// turn.
    pub(crate) fn poll_answer<H: Handler>(
        &mut self,
        worker: &Worker<H>,
        socket: &Registered,
        context: &mut Context<'_>,
    ) -> Poll<Next> {
        for _ in 0..OUTPUTS_MAX {
            if let Some(next) = self.poll_content(worker, socket, context) {
                return Poll::Ready(next);
            }
            if !self.exchanges.is_under_way() {
                return Poll::Ready(self.turn(worker, socket.fd()));
            }
            let mut output = worker.output.borrow_mut();
            output.clear();
            let mut turn = Turn::new(worker, &mut output);
            let flow = self.exchanges.poll_answer(&mut turn, context);
            let Turn { tail, ends, .. } = turn;
            // Sending a file piece may take the whole turn.
            let is_long = matches!(&tail, Tail::File(_));
            let has_output = !output.is_empty() || !matches!(tail, Tail::None) || ends.is_some();
            if has_output && let Some(next) = self.send_output(worker, socket.fd(), &output, tail, ends) {
                return Poll::Ready(next);
            }
            drop(output);
            match flow {
                Flow::Wait => {
                    return match self.watch(worker.clock.latest().monotonic_ms, socket, context) {
                        Some(reason) => Poll::Ready(Next::Close(reason)),
                        None => Poll::Pending,
                    };
                }
                Flow::More if is_long => break,
                Flow::More => {}
                Flow::Done => return Poll::Ready(self.go_on(worker, socket)),
                Flow::Failed(reason) => return Poll::Ready(Next::Close(reason)),
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Continues after a response. Does not receive from a socket that was emptied and has not become readable since.
    fn go_on<H: Handler>(&mut self, worker: &Worker<H>, socket: &Registered) -> Next {
        let rests = !self.undrained && !self.half_closed && self.is_idle() && !worker.draining.get();
        if rests { Next::Read } else { self.turn(worker, socket.fd()) }
    }

    /// Delivers received content to the handler while it has room. Returns the next action if the connection cannot
    /// continue waiting.
    fn poll_content<H: Handler>(
        &mut self,
        worker: &Worker<H>,
        socket: &Registered,
        context: &mut Context<'_>,
    ) -> Option<Next> {
        for _ in 0..RECEIVES_MAX {
            if !self.exchanges.poll_wants_content(worker.settings.limits.body_bytes_max, context) {
                return None;
            }
            let guard = if self.undrained {
                None
            } else {
                match socket.poll_read_ready(context) {
                    Poll::Pending => return None,
                    Poll::Ready(Ok(guard)) => Some(guard),
                    Poll::Ready(Err(_)) => return Some(Next::Close(CloseReason::SocketFailed)),
                }
            };
            let mut input = worker.input.borrow_mut();
            let received = self.receive(worker, socket.fd(), &mut input);
            self.undrained = matches!(received, Received::Bytes { drained: false, .. });
            if let Some(mut guard) = guard.filter(|_| !self.undrained) {
                guard.clear_ready();
            }
            match received {
                Received::Bytes { count, .. } => {
                    worker.counters.bytes_received.add(count as u64);
                    if let Some(next) = self.give_content(worker, socket, &input[..count]) {
                        return Some(next);
                    }
                }
                Received::Blocked => {}
                Received::End => return Some(Next::Close(CloseReason::ClientCutBody)),
                Received::Failed(reason, _) => return Some(Next::Close(reason)),
            }
        }
        context.waker().wake_by_ref();
        None
    }

    fn give_content<H: Handler>(&mut self, worker: &Worker<H>, socket: &Registered, input: &[u8]) -> Option<Next> {
        let mut output = worker.output.borrow_mut();
        output.clear();
        let mut turn = Turn::new(worker, &mut output);
        match self.exchanges.give_content(&mut turn, input) {
            Ok(used) if used < input.len() && self.exchanges.closing().is_none() => {
                self.stash = input[used..].to_vec();
            }
            Ok(_) => {}
            Err(reason) => return Some(Next::Close(reason)),
        }
        if output.is_empty() { None } else { self.send_output(worker, socket.fd(), &output, Tail::None, None) }
    }

    /// Detects that the client disconnects while the response is pending. The response is then of no use, and the
    /// handler's future is dropped. A client that closes its side together with the request may still read the
    /// response; one that closes later, or after the response has begun, does not.
    fn watch(&mut self, now_ms: u64, socket: &Registered, context: &mut Context<'_>) -> Option<CloseReason> {
        let request = self.exchanges.requests();
        if self.watched.is_none_or(|(watched, _)| watched != request) {
            self.watched = Some((request, now_ms));
        }
        let waits_long =
            self.watched.is_some_and(|(_, since_ms)| now_ms.saturating_sub(since_ms) > HALF_CLOSE_GRACE_MS);
        let begun = self.exchanges.begin_waiting() || waits_long;
        while !self.half_closed {
            let Poll::Ready(Ok(mut guard)) = socket.poll_read_ready(context) else { return None };
            if guard.ready().is_read_closed() {
                let reset = matches!(
                    socket.poll_write_ready(context),
                    Poll::Ready(Ok(guard)) if guard.ready().is_write_closed()
                );
                if reset {
                    return Some(CloseReason::ClientReset);
                }
                if begun {
                    return Some(CloseReason::ClientAborted);
                }
                self.half_closed = true;
                return None;
            }
            // Received bytes are handled in a later turn; the task does not wait for more.
            guard.clear_ready();
            self.undrained = true;
        }
        None
    }

    /// Lets the source of a streamed response continue while the socket accepts no bytes.
    pub(super) fn poll_ahead(&self, context: &mut Context<'_>) {
        self.exchanges.poll_ahead(context);
    }

    /// Passes the connection to the tunnel.
    pub(crate) fn begin_tunnel<H: Handler>(&mut self, worker: &Rc<Worker<H>>, socket: Registered) {
        if let Some(tunnelled) = self.exchanges.take_tunnel() {
            TunnelTask::spawn(worker, socket, tunnelled, self.take_over());
        }
    }
}
