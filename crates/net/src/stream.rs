//! Content that comes bit by bit, and connections that go on with another protocol.

use crate::ending::CloseReason;
use crate::response::Segment;
use std::cell::RefCell;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};

/// What a [`Source`] has next.
#[derive(Clone, Debug)]
pub enum Piece {
    /// More content, never empty.
    Segment(Segment),
    /// There is no more. Over chunked framing and HTTP/2, these trailer field lines follow, each `Name: value` and CR
    /// LF.
    End(Option<Rc<[u8]>>),
    /// There should be more, but it will not come. The client must not take what it got for the whole: the connection
    /// or the stream ends for this reason, without the framing's end.
    Failed(CloseReason),
}

/// Gives content as it comes.
pub trait Source {
    /// The next piece, or `Pending` after arranging for `context` to be woken. Called again only after a
    /// [`Piece::Segment`] has been sent: so a slow client holds back its source.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Piece>;
}

/// Content that comes bit by bit.
#[derive(Clone)]
pub struct Stream {
    source: Rc<RefCell<dyn Source>>,
    length: Option<u64>,
}

impl Stream {
    /// Content from `source`. `length` is what the head says in Content-Length, and then exactly so many bytes must
    /// come; `None`: the head has no such field, and the pump frames the content as the client's version allows.
    pub fn new(source: impl Source + 'static, length: Option<u64>) -> Self {
        Self { source: Rc::new(RefCell::new(source)), length }
    }

    /// Bytes in all, when that is known.
    pub const fn length(&self) -> Option<u64> {
        self.length
    }

    /// See [`Source::poll_piece`].
    pub fn poll_piece(&self, context: &mut Context<'_>) -> Poll<Piece> {
        match self.source.try_borrow_mut() {
            Ok(mut source) => source.poll_piece(context),
            // A source that asks for itself can have no more.
            Err(_) => Poll::Ready(Piece::Failed(CloseReason::SocketFailed)),
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Stream").field("length", &self.length).finish_non_exhaustive()
    }
}

/// Both directions of a connection that speaks another protocol now.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

/// What goes on with a connection after a 101; it ends when the connection does, and says why.
pub type Tunnelling = Pin<Box<dyn Future<Output = CloseReason>>>;

/// Takes over a connection once its 101 is sent.
#[derive(Clone)]
pub struct TunnelStart(Rc<RefCell<Option<Begin>>>);

type Begin = Box<dyn FnOnce(Box<dyn Duplex>) -> Tunnelling>;

impl TunnelStart {
    /// Will call `begin` with the client's side of the connection, whatever was received after the request included.
    pub fn new(begin: impl FnOnce(Box<dyn Duplex>) -> Tunnelling + 'static) -> Self {
        Self(Rc::new(RefCell::new(Some(Box::new(begin)))))
    }

    /// Begins; `None` when it has begun already.
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
