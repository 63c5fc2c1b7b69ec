//! Streams of one connection (RFC 9113 §5.1), and those that have closed recently.

use super::priority::Priority;
use std::collections::VecDeque;

/// Closed streams that are remembered: far more than a peer can have frames in flight for.
const CLOSED_MAX: usize = 256;

/// An open stream.
#[derive(Debug)]
pub(super) struct OpenStream<T> {
    pub(super) id: u32,
    /// The peer has ended its side.
    pub(super) peer_done: bool,
    /// This side has ended.
    pub(super) own_done: bool,
    /// Content that still arrives is discarded.
    pub(super) is_discarded: bool,
    /// A response head has arrived; only for clients.
    pub(super) has_head: bool,
    /// The request is a HEAD, whose response has no content; only for clients.
    pub(super) is_head: bool,
    /// Bytes that this side may send.
    pub(super) send_window: i64,
    /// Bytes that the peer may send.
    pub(super) receive_window: i64,
    /// Bytes that were taken and not yet returned to the peer's window.
    pub(super) owed_bytes: u32,
    /// Content still to come, if the head declared a length.
    pub(super) content_left: Option<u64>,
    pub(super) priority: Priority,
    /// When it last sent DATA, as a count of frames.
    pub(super) served: u64,
    pub(super) data: T,
}

/// How a stream closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PastStream {
    /// It was never open, or closed too long ago.
    Unknown,
    /// The peer ended or reset it, so it must not send on it.
    EndedByPeer,
    /// This side reset it, so the peer's frames may have been in flight (RFC 9113 §5.1).
    ResetByUs,
}

/// Streams in the order of their identifiers.
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
        // Most frames are about the newest stream.
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

    /// Adds a stream, whose identifier is the highest of its role.
    pub(super) fn insert(&mut self, stream: OpenStream<T>) {
        self.open.push(stream);
    }

    /// Removes a stream that closed as `past`.
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

    /// Records that a stream closed, or was refused.
    pub(super) fn note_closed(&mut self, id: u32, past: PastStream) {
        if self.closed.len() >= CLOSED_MAX {
            self.closed.pop_front();
        }
        self.closed.push_back((id, past));
    }

    /// How a stream that is not open closed.
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
