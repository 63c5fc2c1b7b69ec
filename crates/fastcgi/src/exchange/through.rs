//! The content of a response on its way from the application server to the client. Content that the client cannot take
//! yet is buffered, so that a slow client does not occupy a process of the application server.

use super::{FastcgiExchange, READY_BYTES_MAX};
use crate::record::ProtocolStatus;
use flatout_handler::ending::CloseReason;
use flatout_handler::response::Segment;
use flatout_handler::shared::SharedBytes;
use flatout_handler::stream::{ContentEvent, ContentSource};
use flatout_upstream::spool::{SpooledContent, Spools};
use flatout_upstream::upload::UploadState;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Maximum number of bytes beyond the declared length that are discarded, in bytes. If the script sends more, the
/// request is aborted.
const SURPLUS_BYTES_MAX: u64 = 1024 * 1024;

/// Maximum number of receive calls ahead of the client before other connections get a turn.
const RECEIVES_MAX: u32 = 4;

/// The content of a response that is passed on to the client.
pub(crate) struct Through {
    exchange: FastcgiExchange,
    /// The declared length and the number of bytes that remain, if the script declared a length.
    length: Option<(u64, u64)>,
    /// Number of bytes beyond the declared length that were discarded.
    surplus_bytes: u64,
    /// A failure that is reported after the content that arrived before it.
    failed: Option<CloseReason>,
    /// Timeout for each piece of content, in milliseconds.
    piece_timeout_ms: u64,
    buffer: Option<Buffer>,
}

/// Content that the client has not taken, and its limit.
struct Buffer {
    spools: Arc<Spools>,
    /// Maximum number of buffered bytes besides those in memory.
    bytes_max: u64,
    /// The buffered content, which precedes the content in memory; never empty.
    content: Option<SpooledContent>,
}

impl Buffer {
    /// Appends `bytes`. Returns whether there was room for them.
    fn append(&mut self, bytes: &[u8]) -> bool {
        let content = self.content.get_or_insert_with(|| SpooledContent::new(&self.spools));
        let has_room = content.has_room(bytes.len() as u64, self.bytes_max);
        // If the disk is full, the application server waits for the client.
        let is_appended = has_room && content.append(bytes).is_ok();
        self.content.take_if(|content| content.is_drained());
        is_appended
    }
}

impl Through {
    /// The content of `exchange` after its head; `length` bytes if the script declared a length.
    pub(crate) fn new(exchange: FastcgiExchange, length: Option<u64>) -> Self {
        let piece_timeout_ms = exchange.step.settings.timeouts.body_timeout_ms;
        let length = length.map(|length| (length, length));
        let mut through = Self { exchange, length, surplus_bytes: 0, failed: None, piece_timeout_ms, buffer: None };
        through.drop_surplus(0);
        through
    }

    /// Uses the longer timeout of event streams, which may be idle.
    pub(crate) fn of_events(mut self) -> Self {
        self.piece_timeout_ms = self.exchange.step.settings.timeouts.stream_timeout_ms;
        self
    }

    /// Buffers up to `bytes_max` bytes that the client cannot take yet in `spools`.
    pub(crate) fn buffered(mut self, spools: &Arc<Spools>, bytes_max: u64) -> Self {
        self.buffer = (bytes_max > 0).then(|| Buffer { spools: Arc::clone(spools), bytes_max, content: None });
        self
    }

    /// Receives once, and registers `context` if nothing has arrived. Content and failures are recorded.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let held = self.exchange.reader.ready.len();
        match ready!(self.exchange.poll_receive(context)) {
            Ok(true) => {}
            Ok(false) => self.failed = Some(CloseReason::OriginCutBody),
            // Content that arrived in the same read is sent first.
            Err(_) => self.failed = Some(CloseReason::OriginBodyMalformed),
        }
        self.drop_surplus(held);
        Poll::Ready(())
    }

    /// Discards bytes beyond the declared length from the content that arrived after the first `held` bytes.
    fn drop_surplus(&mut self, held: usize) {
        let Some((length, left)) = &mut self.length else { return };
        let ready = &mut self.exchange.reader.ready;
        let added = (ready.len() - held) as u64;
        let surplus = added.saturating_sub(*left);
        *left -= added - surplus;
        if surplus > 0 {
            ready.truncate(ready.len() - surplus as usize);
            if self.surplus_bytes == 0 {
                self.exchange.report_surplus(*length);
            }
            self.surplus_bytes = self.surplus_bytes.saturating_add(surplus);
        }
    }

    /// Returns the end of the content if nothing more will be received. Content that was received precedes it.
    fn end(&mut self) -> Option<ContentEvent> {
        // All bytes of the declared length have been received: the response is complete, whatever follows.
        let is_complete = self.length.is_some_and(|(_, left)| left == 0);
        let fail = |reason| if is_complete { ContentEvent::End(None) } else { ContentEvent::Failed(reason) };
        let end = match self.exchange.reader.ended {
            _ if self.failed.is_some() => self.failed.map(fail),
            _ if self.surplus_bytes > SURPLUS_BYTES_MAX => Some(ContentEvent::End(None)),
            Some(ProtocolStatus::Complete) => {
                self.exchange.finish();
                Some(if self.length.is_none() { ContentEvent::End(None) } else { fail(CloseReason::OriginCutBody) })
            }
            Some(_) => Some(fail(CloseReason::OriginCutBody)),
            None => None,
        };
        if end.is_some() {
            self.exchange.abort();
        }
        end
    }

    /// Returns the next piece of buffered content, if there is any.
    fn next_buffered(&mut self, context: &mut Context<'_>) -> Option<ContentEvent> {
        self.buffer.as_ref()?.content.as_ref()?;
        // The application server may send more than the client has taken.
        self.poll_ahead(context);
        let buffer = self.buffer.as_mut()?;
        let content = buffer.content.as_mut()?;
        let piece = content.take_piece();
        if content.is_drained() {
            buffer.content = None;
        }
        Some(match piece {
            Ok(piece) => ContentEvent::Segment(Segment::Bytes(SharedBytes::from_buffer(piece))),
            Err(_) => ContentEvent::Failed(CloseReason::FileFailed),
        })
    }
}

impl ContentSource for Through {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<ContentEvent> {
        loop {
            if let Some(event) = self.next_buffered(context) {
                return Poll::Ready(event);
            }
            if !self.exchange.reader.ready.is_empty() {
                if let Some(connection) = &mut self.exchange.connection {
                    connection.timer().clear();
                }
                let bytes = std::mem::take(&mut self.exchange.reader.ready);
                return Poll::Ready(ContentEvent::Segment(Segment::Bytes(SharedBytes::from_buffer(bytes))));
            }
            if let Some(end) = self.end() {
                return Poll::Ready(end);
            }
            let Ok(state) = self.exchange.send_rest(context) else {
                self.failed = Some(CloseReason::OriginTruncated);
                continue;
            };
            if self.poll_receive(context).is_ready() {
                continue;
            }
            let timeout_ms = self.piece_timeout_ms;
            let Some(connection) = &mut self.exchange.connection else { return Poll::Pending };
            let timer = connection.timer();
            match state {
                // The script may be waiting for the same content.
                UploadState::Client | UploadState::Continue => timer.clear(),
                UploadState::Server(true) => timer.begin(timeout_ms),
                _ if !timer.is_waiting() => timer.begin(timeout_ms),
                UploadState::Server(false) | UploadState::Closed | UploadState::Done => {}
            }
            ready!(timer.poll_expired(context));
            self.failed = Some(CloseReason::OriginBodyTimeout);
        }
    }

    fn poll_ahead(&mut self, context: &mut Context<'_>) {
        for _ in 0..RECEIVES_MAX {
            // Once the application server has sent everything, the connection is released, even if the rest of the
            // content does not fit into the buffer.
            if self.buffer.is_none() || self.end().is_some() {
                return;
            }
            let Some(buffer) = &mut self.buffer else { return };
            let ready = &mut self.exchange.reader.ready;
            if ready.len() >= READY_BYTES_MAX {
                if !buffer.append(ready) {
                    // Until the client takes content, the application server has to wait.
                    return;
                }
                ready.clear();
            }
            if self.exchange.send_rest(context).is_err() {
                self.failed = Some(CloseReason::OriginTruncated);
            } else if self.poll_receive(context).is_pending() {
                if let Some(connection) = &mut self.exchange.connection {
                    connection.timer().clear();
                }
                return;
            }
        }
        context.waker().wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CgiReader, FastcgiExchange, READY_BYTES_MAX};
    use super::Through;
    use crate::record::ProtocolStatus;
    use crate::step::PhpStep;
    use flatout_balance::limit::{Arrival, ConcurrencyLimiter};
    use flatout_config::model::{Concurrency, Php};
    use flatout_handler::response::Segment;
    use flatout_handler::stream::{ContentEvent, ContentSource as _};
    use flatout_upstream::spool::Spools;
    use flatout_upstream::upload::HeadWait;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn the_permit_is_returned_at_the_end_even_if_the_buffer_is_full() {
        let context = &mut Context::from_waker(Waker::noop());
        let limiter = ConcurrencyLimiter::new(&Concurrency::default());
        let settings = Php { root: "/".into(), ..Php::default() };
        let mut reader = CgiReader::new("a".into());
        reader.ready = vec![b'a'; READY_BYTES_MAX];
        reader.ended = Some(ProtocolStatus::Complete);
        let exchange = FastcgiExchange {
            connection: None,
            upload: None,
            upload_cut: false,
            reader,
            step: Arc::new(PhpStep::new(&settings, &Arc::default()).unwrap()),
            keeps: false,
            wait: HeadWait::new(1_000, 1_000),
            permit: limiter.try_acquire(&Arrival::new(b"/", None, 0)),
            began_ns: 0,
        };
        let spools = Spools::new(1, 0, None);
        let mut through = Through::new(exchange, None).buffered(&spools, 1);
        assert!(through.exchange.permit.is_some());
        through.poll_ahead(context);
        assert!(through.exchange.permit.is_none());
        assert_eq!(spools.held_bytes(), 0);
        let piece = through.poll_piece(context);
        let Poll::Ready(ContentEvent::Segment(Segment::Bytes(bytes))) = piece else { panic!("content is here") };
        assert_eq!(bytes.len(), READY_BYTES_MAX);
        assert!(matches!(through.poll_piece(context), Poll::Ready(ContentEvent::End(None))));
    }
}
