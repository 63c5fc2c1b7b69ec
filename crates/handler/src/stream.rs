//! Streamed content, and connections that switch to another protocol.

use crate::ending::CloseReason;
use crate::response::Segment;
use std::cell::RefCell;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};

/// The next event of a [`ContentSource`].
#[derive(Clone, Debug)]
pub enum ContentEvent {
    /// More content, never empty.
    Segment(Segment),
    /// The end. Over chunked framing and HTTP/2, these trailer field lines follow, each `Name: value` and CR LF.
    End(Option<Rc<[u8]>>),
    /// The content is incomplete. The connection or stream ends for this reason without the framing's end, so that
    /// the client does not mistake it for the whole.
    Failed(CloseReason),
}

/// A producer of streamed content.
pub trait ContentSource {
    /// The next piece, or `Pending` after registering `context`. Called again only after a [`ContentEvent::Segment`] has
    /// been sent, so a slow client slows down its source.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<ContentEvent>;
}

/// Streamed content.
#[derive(Clone)]
pub struct Stream {
    source: Rc<RefCell<dyn ContentSource>>,
    length: Option<u64>,
}

impl Stream {
    /// Content from `source`. `length` is the value of Content-Length, and exactly that many bytes must follow; with
    /// `None` the head has no such field, and the connection frames the content as the client's version allows.
    pub fn new(source: impl ContentSource + 'static, length: Option<u64>) -> Self {
        Self { source: Rc::new(RefCell::new(source)), length }
    }

    /// Length in bytes, if known.
    pub const fn length(&self) -> Option<u64> {
        self.length
    }

    /// See [`ContentSource::poll_piece`].
    pub fn poll_piece(&self, context: &mut Context<'_>) -> Poll<ContentEvent> {
        match self.source.try_borrow_mut() {
            Ok(mut source) => source.poll_piece(context),
            // A source that polls itself cannot make progress.
            Err(_) => Poll::Ready(ContentEvent::Failed(CloseReason::SocketFailed)),
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Stream").field("length", &self.length).finish_non_exhaustive()
    }
}

/// Both directions of a connection that has switched protocols.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

/// The protocol of a connection after a 101; completes when the connection closes, with the reason.
pub type Tunnelling = Pin<Box<dyn Future<Output = CloseReason>>>;

/// Takes over a connection after its 101 has been sent.
#[derive(Clone)]
pub struct TunnelStart(Rc<RefCell<Option<TunnelBegin>>>);

type TunnelBegin = Box<dyn FnOnce(Box<dyn Duplex>) -> Tunnelling>;

impl TunnelStart {
    /// Will call `begin` with the client's side of the connection, including bytes received after the request.
    pub fn new(begin: impl FnOnce(Box<dyn Duplex>) -> Tunnelling + 'static) -> Self {
        Self(Rc::new(RefCell::new(Some(Box::new(begin)))))
    }

    /// Starts the tunnel; `None` if it was started already.
    pub fn begin(&self, client: Box<dyn Duplex>) -> Option<Tunnelling> {
        let begin = self.0.borrow_mut().take()?;
        Some(begin(client))
    }
}

impl fmt::Debug for TunnelStart {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TunnelStart")
    }
}

/// The end of a message, with its trailer field lines.
#[derive(Clone, Debug)]
pub struct MessageEnd(pub Option<Rc<[u8]>>);
