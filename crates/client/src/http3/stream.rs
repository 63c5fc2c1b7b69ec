//! The stream of one request over HTTP/3.

use super::{Http3Connection, number_of};
use crate::content::Digesting;
use crate::failure::RequestFailure;
use flatout_http::http3::error::ErrorCode;
use quinn_proto::{StreamId, WriteError};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The head of a response, as far as it is recorded.
#[derive(Debug)]
pub(in crate::http3) struct ArrivedHead {
    pub(super) status: u16,
    /// Length of its field lines in HTTP/1 form, in bytes.
    pub(super) line_bytes: usize,
    /// The values of its Set-Cookie fields, each followed by LF, if the client stores cookies.
    pub(super) set_cookies: Vec<u8>,
}

/// State of a stream: what was received and not yet read, and what is still to be sent.
#[derive(Debug, Default)]
pub(in crate::http3) struct Arrived {
    heads: VecDeque<ArrivedHead>,
    content_bytes: u64,
    /// The content, if its digest is to be computed.
    content: Option<Vec<u8>>,
    has_ended: bool,
    failure: Option<RequestFailure>,
    /// The beginning of the request that QUIC has not accepted yet, and whether no content follows it.
    unsent: Vec<u8>,
    ends: bool,
    /// True if the head of the DATA frame was written.
    has_data_head: bool,
    /// True if QUIC has accepted the whole request.
    is_sent: bool,
    /// True if the server asked to stop sending the request.
    is_stopped: bool,
    /// Bytes received while the stream is blocked, and whether the stream ends after them.
    stash: Option<(Vec<u8>, bool)>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

pub(in crate::http3) type StreamState = Rc<RefCell<Arrived>>;

impl Arrived {
    /// Starts with the part of the request head that QUIC has not accepted. `ends` is true if no content follows.
    pub(super) fn begin(&mut self, unsent: Vec<u8>, ends: bool, is_digested: bool) {
        self.is_sent = ends && unsent.is_empty();
        self.unsent = unsent;
        self.ends = ends;
        self.content = is_digested.then(Vec::new);
    }

    pub(super) fn add_head(&mut self, head: ArrivedHead, ends: bool) {
        self.heads.push_back(head);
        self.has_ended |= ends;
    }

    pub(super) fn add_content(&mut self, bytes: &[u8], ends: bool) {
        self.content_bytes += bytes.len() as u64;
        if let Some(content) = &mut self.content {
            content.extend_from_slice(bytes);
        }
        self.has_ended |= ends;
    }

    pub(super) fn end(&mut self) {
        self.has_ended = true;
    }

    pub(super) fn stop_sending(&mut self) {
        self.is_stopped = true;
        self.unsent.clear();
    }

    pub(super) fn fail(&mut self, failure: RequestFailure) {
        self.failure.get_or_insert(failure);
        self.wake();
    }

    pub(super) fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }

    pub(super) fn wake_writer(&mut self) {
        self.writer.take().into_iter().for_each(Waker::wake);
    }

    /// Stores bytes if the stream is blocked. Returns whether it is blocked.
    pub(super) fn stash(&mut self, bytes: &[u8], fin: bool) -> bool {
        let Some((stash, ends)) = &mut self.stash else { return false };
        stash.extend_from_slice(bytes);
        *ends |= fin;
        true
    }

    /// Stores the remainder of a piece if the stream is blocked now.
    pub(super) fn end_piece(&mut self, rest: &[u8], fin: bool, is_blocked: bool) {
        if is_blocked {
            self.stash = Some((rest.to_vec(), fin));
        }
    }

    pub(super) const fn take_stash(&mut self) -> Option<(Vec<u8>, bool)> {
        self.stash.take()
    }
}

/// The stream of one request. If it is dropped before its end, it is reset.
pub(crate) struct Http3Stream {
    connection: Http3Connection,
    id: StreamId,
    arrived: StreamState,
    /// True if the end of the response was read.
    is_done: bool,
}

impl Http3Stream {
    pub(super) const fn new(connection: Http3Connection, id: StreamId, arrived: StreamState) -> Self {
        Self { connection, id, arrived, is_done: false }
    }

    /// Returns status and length of field lines of the next head: first any interim responses, then the final response.
    /// Appends the values of its Set-Cookie fields to `set_cookies`, each followed by LF.
    pub(crate) fn poll_head(
        &self,
        context: &Context<'_>,
        set_cookies: Option<&mut Vec<u8>>,
    ) -> Poll<Result<(u16, usize), RequestFailure>> {
        let mut arrived = self.arrived.borrow_mut();
        match (arrived.heads.pop_front(), arrived.failure) {
            (Some(head), _) => {
                if let Some(set_cookies) = set_cookies {
                    set_cookies.extend_from_slice(&head.set_cookies);
                }
                Poll::Ready(Ok((head.status, head.line_bytes)))
            }
            (None, Some(failure)) => Poll::Ready(Err(failure)),
            (None, None) => {
                arrived.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Adds the content that has arrived. Ready when the content has ended.
    pub(crate) fn poll_content(
        &mut self,
        context: &Context<'_>,
        content_bytes: &mut u64,
        digesting: &mut Option<Digesting>,
    ) -> Poll<Result<(), RequestFailure>> {
        let mut arrived = self.arrived.borrow_mut();
        *content_bytes += std::mem::take(&mut arrived.content_bytes);
        if let (Some(digesting), Some(content)) = (digesting, &mut arrived.content) {
            digesting.take(content);
            content.clear();
        }
        if arrived.has_ended {
            self.is_done = true;
            return Poll::Ready(Ok(()));
        }
        if let Some(failure) = arrived.failure {
            return Poll::Ready(Err(failure));
        }
        arrived.reader = Some(context.waker().clone());
        Poll::Pending
    }

    /// Sends as much of `content`, which is the remainder of the request, as QUIC accepts. Returns the number of bytes
    /// sent. Pending if QUIC accepts nothing now.
    ///
    /// # Errors
    /// Fails if the server reads no more of the request.
    pub(crate) fn poll_send(&self, content: &[u8], context: &Context<'_>) -> Poll<Result<usize, ()>> {
        let state = &mut *self.connection.0.borrow_mut();
        let arrived = &mut *self.arrived.borrow_mut();
        if arrived.is_stopped || arrived.failure.is_some() {
            return Poll::Ready(Err(()));
        }
        if !arrived.ends && !std::mem::replace(&mut arrived.has_data_head, true) {
            let head = state.core.send_data(self.id.into(), content.len(), true);
            arrived.unsent.extend_from_slice(&head);
        }
        state.wake_task();
        let mut send = state.quic.send_stream(self.id);
        let mut sent = 0;
        while !arrived.unsent.is_empty() || sent < content.len() {
            let of_head = !arrived.unsent.is_empty();
            let written = if of_head { send.write(&arrived.unsent) } else { send.write(&content[sent..]) };
            match written {
                Ok(count) if of_head => {
                    arrived.unsent.drain(..count);
                }
                Ok(count) => sent += count,
                Err(WriteError::Blocked) => {
                    arrived.writer = Some(context.waker().clone());
                    return if sent > 0 { Poll::Ready(Ok(sent)) } else { Poll::Pending };
                }
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => return Poll::Ready(Err(())),
            }
        }
        // This fails if the server has stopped the stream, which an event reports.
        let _ = send.finish();
        arrived.is_sent = true;
        Poll::Ready(Ok(sent))
    }

    /// Returns whether QUIC has not yet accepted all of the head, so that [`Self::poll_send`] must be called.
    pub(crate) fn has_unsent_head(&self) -> bool {
        !self.arrived.borrow().unsent.is_empty()
    }
}

impl Drop for Http3Stream {
    fn drop(&mut self) {
        let Ok(mut state) = self.connection.0.try_borrow_mut() else { return };
        let id = self.id.into();
        let code = number_of(if self.is_done { ErrorCode::NoError } else { ErrorCode::RequestCancelled });
        // Both calls fail if the server has closed the stream.
        if !self.arrived.borrow().is_sent {
            let _ = state.quic.send_stream(self.id).reset(code);
        }
        if state.core.reset(id).is_some() {
            let _ = state.quic.recv_stream(self.id).stop(code);
        }
        state.wake_task();
    }
}
