//! Tunnels over upgraded connections.

use crate::exchange::Hold;
use flatout_handler::ending::CloseReason;
use flatout_handler::stream::Duplex;
use std::cell::Cell;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Relays bytes in both directions until a side closes, fails, or no byte has been relayed for `idle_ms` milliseconds.
pub(super) async fn tunnel(
    mut client: Box<dyn Duplex>,
    origin: Box<dyn Duplex>,
    mut hold: Hold,
    idle_ms: u64,
) -> CloseReason {
    /// Number of idle checks per timeout.
    const LOOKS: u32 = 8;
    let passed = Rc::new(Cell::new(0_u64));
    let mut origin = Counted { inner: origin, passed: Rc::clone(&passed) };
    let timer = hold.take_client();
    let mut carried = pin!(tokio::io::copy_bidirectional(&mut client, &mut origin));
    let (mut before, mut silent) = (0, 0);
    loop {
        let carried = match &timer {
            Some(timer) => timer.within((idle_ms / u64::from(LOOKS)).max(1), carried.as_mut()).await,
            None => Some(carried.as_mut().await),
        };
        match carried {
            Some(Ok(_)) => return CloseReason::TunnelEnded,
            Some(Err(_)) => return CloseReason::ClientReset,
            None if passed.get() != before => silent = 0,
            None => silent += 1,
        }
        before = passed.get();
        if silent >= LOOKS {
            return CloseReason::TunnelIdle;
        }
    }
}

/// The origin's side of a tunnel, which counts relayed bytes.
struct Counted {
    inner: Box<dyn Duplex>,
    passed: Rc<Cell<u64>>,
}

impl Counted {
    fn count(&self, polled: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = polled {
            self.passed.set(self.passed.get() + *bytes as u64);
        }
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        self.count(&Poll::Ready(Ok(buffer.filled().len() - before)));
        polled
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.count(&polled);
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
