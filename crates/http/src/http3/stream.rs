//! Open request streams of one connection.

use super::frame::HeadReader;
use crate::http2::priority::Priority;

/// The part of a message that may come next (RFC 9114 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessagePart {
    /// The head of a request or response. Interim responses may precede the final response.
    Head,
    /// Content or trailers.
    Content,
    /// Content of a tunnel, which has no trailers (RFC 9114 §4.4).
    Tunnel,
    /// Nothing: the trailers have arrived.
    End,
}

/// The part of a frame that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FramePart {
    /// A frame head.
    Head,
    /// `left` bytes of a field section, whose start may already be stored.
    Section { left: u64 },
    /// `left` bytes of content.
    Content { left: u64 },
    /// `left` bytes of an ignored frame.
    Ignored { left: u64 },
    /// Nothing, until the dynamic table has received the `required` insertions that the stored field section needs.
    Blocked { required: u64 },
}

/// An open stream.
#[derive(Debug)]
pub(super) struct OpenStream<T> {
    pub(super) id: u64,
    /// True once the peer has ended its side, or once this side ignores the rest of it.
    pub(super) peer_done: bool,
    /// True once this side has ended.
    pub(super) own_done: bool,
    /// True if the request method is HEAD, so that the response has no content. Only for clients.
    pub(super) is_head: bool,
    pub(super) message: MessagePart,
    pub(super) frame: FramePart,
    pub(super) head: HeadReader,
    /// The start of a field section, or a complete section that is blocked.
    pub(super) section: Vec<u8>,
    /// Bytes of content still to come, if the head declared a length.
    pub(super) content_left: Option<u64>,
    pub(super) priority: Priority,
    /// True if PRIORITY_UPDATE has set the priority, which overrides the Priority field (RFC 9218 §7).
    pub(super) is_reprioritized: bool,
    /// The connection's count of DATA frames when this stream last sent DATA.
    pub(super) served: u64,
    pub(super) data: T,
}

impl<T: Default> OpenStream<T> {
    pub(super) fn new(id: u64) -> Self {
        Self {
            id,
            peer_done: false,
            own_done: false,
            is_head: false,
            message: MessagePart::Head,
            frame: FramePart::Head,
            head: HeadReader::default(),
            section: Vec::new(),
            content_left: None,
            priority: Priority::DEFAULT,
            is_reprioritized: false,
            served: 0,
            data: T::default(),
        }
    }
}

/// Open streams in the order of their identifiers.
#[derive(Debug)]
pub(super) struct StreamTable<T>(Vec<OpenStream<T>>);

impl<T> StreamTable<T> {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    fn index_of(&self, id: u64) -> Result<usize, usize> {
        // Most frames concern the newest stream.
        match self.0.last() {
            Some(last) if last.id == id => Ok(self.0.len() - 1),
            _ => self.0.binary_search_by_key(&id, |stream| stream.id),
        }
    }

    pub(super) fn get(&self, id: u64) -> Option<&OpenStream<T>> {
        self.index_of(id).ok().map(|index| &self.0[index])
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut OpenStream<T>> {
        self.index_of(id).ok().map(|index| &mut self.0[index])
    }

    /// Adds a stream, unless a stream with its identifier is open.
    pub(super) fn insert(&mut self, stream: OpenStream<T>) {
        if let Err(index) = self.index_of(stream.id) {
            self.0.insert(index, stream);
        }
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<OpenStream<T>> {
        self.index_of(id).ok().map(|index| self.0.remove(index))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &OpenStream<T>> {
        self.0.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut OpenStream<T>> {
        self.0.iter_mut()
    }

    pub(super) fn at(&self, index: usize) -> Option<&OpenStream<T>> {
        self.0.get(index)
    }
}
