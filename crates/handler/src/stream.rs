//! Streamed content, and connections that switch to another protocol.

use crate::ending::CloseReason;
use crate::response::Segment;
use std::any::Any;
use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};

/// A piece of streamed content, or its end.
#[derive(Clone, Debug)]
pub enum ContentEvent {
    /// More content, never empty.
    Segment(Segment),
    /// The content is complete. These trailer field lines, each as `Name: value` and CR LF, are sent over chunked
    /// framing, HTTP/2 and HTTP/3.
    End(Option<Rc<[u8]>>),
    /// The content is incomplete. The connection is closed, or the stream reset, for this reason and without a regular
    /// end, so that the client does not mistake the content for complete.
    Failed(CloseReason),
}

/// A producer of streamed content.
pub trait ContentSource {
    /// Returns the next piece, or registers `context` and returns `Pending`. Called again only after a
    /// [`ContentEvent::Segment`] has been sent, so a slow client slows down the source.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<ContentEvent>;

    /// Called while the client cannot take an earlier piece: the source may receive and buffer content, and registers
    /// `context` if it waits for more. The default does nothing, so the source waits for the client.
    fn poll_ahead(&mut self, context: &mut Context<'_>) {
        let _ = context;
    }
}

/// Content that is produced while it is sent.
#[derive(Clone, derive_more::Debug)]
#[debug("Stream({length:?})")]
pub struct Stream {
    source: Rc<RefCell<dyn ContentSource>>,
    length: Option<u64>,
    /// Dropped with the last clone.
    held: Option<Rc<dyn Any>>,
}

impl Stream {
    /// Creates content from `source`. `length` is the value of Content-Length, and the source must yield exactly that
    /// many bytes. If it is `None`, the head has no Content-Length, and the connection frames the content as the
    /// client's HTTP version allows.
    pub fn new(source: impl ContentSource + 'static, length: Option<u64>) -> Self {
        Self { source: Rc::new(RefCell::new(source)), length, held: None }
    }

    /// Holds `permit` until the content has been sent.
    pub fn hold(&mut self, permit: impl Any) {
        self.held = Some(Rc::new(permit));
    }

    /// Returns the length in bytes, if known.
    pub const fn length(&self) -> Option<u64> {
        self.length
    }

    /// Polls the source; see [`ContentSource::poll_piece`].
    pub fn poll_piece(&self, context: &mut Context<'_>) -> Poll<ContentEvent> {
        match self.source.try_borrow_mut() {
            Ok(mut source) => source.poll_piece(context),
            // A source that polls its own stream cannot make progress.
            Err(_) => Poll::Ready(ContentEvent::Failed(CloseReason::SocketFailed)),
        }
    }

    /// Lets the source receive content that the client cannot take yet; see [`ContentSource::poll_ahead`].
    pub fn poll_ahead(&self, context: &mut Context<'_>) {
        if let Ok(mut source) = self.source.try_borrow_mut() {
            source.poll_ahead(context);
        }
    }
}

/// Both directions of a connection that has switched protocols.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

/// Runs the protocol of a connection after a 101. Completes when the connection closes, and yields the reason.
pub type Tunnelling = Pin<Box<dyn Future<Output = CloseReason>>>;

/// Takes over a connection after its 101 response has been sent.
#[derive(Clone, derive_more::Debug)]
#[debug("TunnelStart")]
pub struct TunnelStart(Rc<RefCell<Option<TunnelBegin>>>);

type TunnelBegin = Box<dyn FnOnce(Box<dyn Duplex>) -> Tunnelling>;

impl TunnelStart {
    /// Creates a start that calls `begin` with the client's side of the connection, including bytes received after the
    /// request.
    pub fn new(begin: impl FnOnce(Box<dyn Duplex>) -> Tunnelling + 'static) -> Self {
        Self(Rc::new(RefCell::new(Some(Box::new(begin)))))
    }

    /// Holds `permit` until the tunnel closes.
    pub fn hold(&mut self, permit: impl Any) {
        let begin = self.0.borrow_mut().take();
        if let Some(begin) = begin {
            *self = Self::new(move |client| {
                let tunnelling = begin(client);
                Box::pin(async move {
                    let _permit = permit;
                    tunnelling.await
                })
            });
        }
    }

    /// Starts the tunnel. Returns `None` if it was already started.
    pub fn begin(&self, client: Box<dyn Duplex>) -> Option<Tunnelling> {
        let begin = self.0.borrow_mut().take()?;
        Some(begin(client))
    }
}

/// The end of a message, with its trailer field lines if any.
#[derive(Clone, Debug)]
pub struct MessageEnd(pub Option<Rc<[u8]>>);
