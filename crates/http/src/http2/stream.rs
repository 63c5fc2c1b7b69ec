//! Open streams of one connection (RFC 9113 §5.1), and streams that closed recently.

use super::priority::Priority;
use std::collections::VecDeque;

/// Maximum number of closed streams that are remembered, far more than those for which a peer can have frames in
/// flight.
const CLOSED_MAX: usize = 256;

/// An open stream.
#[derive(Debug)]
pub(super) struct OpenStream<T> {
    pub(super) id: u32,
    /// True once the peer has ended its side.
    pub(super) peer_done: bool,
    /// True once this side has ended.
    pub(super) own_done: bool,
    /// True if content that still arrives is discarded.
    pub(super) is_discarded: bool,
    /// True once a final response head has arrived. Only for clients.
    pub(super) has_head: bool,
    /// True if the request method is HEAD, so that the response has no content. Only for clients.
    pub(super) is_head: bool,
    /// Bytes that this side may still send.
    pub(super) send_window: i64,
    /// Bytes that the peer may still send.
    pub(super) receive_window: i64,
    /// Bytes that were consumed and for which credit has not been returned to the peer yet.
    pub(super) owed_bytes: u32,
    /// Bytes of content that the caller has received and not yet released.
    pub(super) held_bytes: u32,
    /// Bytes of content still to come, if the head declared a length.
    pub(super) content_left: Option<u64>,
    pub(super) priority: Priority,
    /// The connection's count of DATA frames when this stream last sent DATA.
    pub(super) served: u64,
    pub(super) data: T,
}

/// How a stream was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PastStream {
    /// The stream was never open, or closed too long ago.
    Unknown,
    /// The peer ended or reset the stream, so it must not send on it.
    EndedByPeer,
    /// This side reset the stream, so frames of the peer may have been in flight (RFC 9113 §5.1).
    ResetByUs,
}

/// Open streams in the order of their identifiers, and recently closed streams.
#[derive(Debug)]
pub(super) struct StreamTable<T> {
    open: Vec<OpenStream<T>>,
    closed: VecDeque<(u32, PastStream)>,
}

impl<T> StreamTable<T> {
    pub(super) const fn new() -> Self {
        Self { open: Vec::new(), closed: VecDeque::new() }
    }

    pub(super) const fn len(&self) -> usize {
        self.open.len()
    }

    fn index_of(&self, id: u32) -> Option<usize> {
        // Most frames concern the newest stream.
        match self.open.last() {
            Some(last) if last.id == id => Some(self.open.len() - 1),
            _ => self.open.binary_search_by_key(&id, |stream| stream.id).ok(),
        }
    }

    pub(super) fn get(&self, id: u32) -> Option<&OpenStream<T>> {
        self.index_of(id).map(|index| &self.open[index])
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut OpenStream<T>> {
        self.index_of(id).map(|index| &mut self.open[index])
    }

    /// Adds a stream. Its identifier must be higher than all others.
    pub(super) fn insert(&mut self, stream: OpenStream<T>) {
        self.open.push(stream);
    }

    /// Removes a stream and records how it was closed.
    pub(super) fn remove(&mut self, id: u32, past: PastStream) -> Option<OpenStream<T>> {
        let index = self.index_of(id)?;
        self.note_closed(id, past);
        Some(self.open.remove(index))
    }

    /// Removes a stream if both sides have ended it.
    pub(super) fn remove_done(&mut self, id: u32) -> Option<OpenStream<T>> {
        let is_done = self.get(id).is_some_and(|stream| stream.peer_done && stream.own_done);
        if is_done { self.remove(id, PastStream::EndedByPeer) } else { None }
    }

    /// Records that a stream was closed or refused.
    pub(super) fn note_closed(&mut self, id: u32, past: PastStream) {
        if self.closed.len() >= CLOSED_MAX {
            self.closed.pop_front();
        }
        self.closed.push_back((id, past));
    }

    /// Returns how a stream that is not open was closed.
    pub(super) fn past(&self, id: u32) -> PastStream {
        self.closed.iter().rev().find(|(other, _)| *other == id).map_or(PastStream::Unknown, |(_, past)| *past)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &OpenStream<T>> {
        self.open.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut OpenStream<T>> {
        self.open.iter_mut()
    }
}
