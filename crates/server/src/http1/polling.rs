//! A connection that waits for both the handler and its client: content on its way in, a response on its way out.

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

/// Outputs sent before it yields to other connections.
const OUTPUTS_MAX: u32 = 16;

/// Time after the start of a wait in which a client that closes its side is taken for one that has sent all it has, in
/// milliseconds. Such a client waits for its response (`printf … | nc -N`); one that closes later has left.
const HALF_CLOSE_GRACE_MS: u64 = 100;

/// Receives of content before it yields to other connections.
const RECEIVES_MAX: u32 = 8;

impl ServerConnection {
    /// Polls the handler, sends its output, and delivers received content to it.
    pub(crate) fn poll_answer<H: Handler>(
        &mut self,
        worker: &Worker<H>,
        socket: &Registered,
        context: &mut Context<'_>,
    ) -> Poll<Next> {
        worker.clock.read();
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
            // A long piece takes the whole turn.
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

    /// Continues after a response. A socket that was drained and has not become readable since is not read again.
    fn go_on<H: Handler>(&mut self, worker: &Worker<H>, socket: &Registered) -> Next {
        let rests = !self.undrained && !self.half_closed && self.is_idle() && !worker.draining.get();
        if rests { Next::Read } else { self.turn(worker, socket.fd()) }
    }

    /// Delivers received content to the handler while it has room. Returns the next action if that ends the
    /// connection.
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

    /// Detects that the client leaves while the handler is pending: then nobody needs the response, and the handler is
    /// dropped. A client that closes its side with the request may still read the response; one that does so later, or
    /// once the response has begun, does not.
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
            // Received bytes are read in their turn, without waiting for more.
            guard.clear_ready();
            self.undrained = true;
        }
        None
    }

    /// Hands the connection over to the tunnel.
    pub(crate) fn begin_tunnel<H: Handler>(&mut self, worker: &Rc<Worker<H>>, socket: Registered) {
        if let Some(tunnelled) = self.exchanges.take_tunnel() {
            TunnelTask::spawn(worker, socket, tunnelled, self.take_over());
        }
    }
}
