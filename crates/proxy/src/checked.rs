//! Reader for stored content that verifies each chunk against its checksums before sending it.
//!
//! A verification thread of the volume reads the file while this task waits. Verified chunks are sent with sendfile,
//! like any other file.

use flatout_handler::ending::CloseReason;
use flatout_handler::response::Segment;
use flatout_handler::stream::{ContentEvent, ContentSource};
use flatout_store::BodyFile;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::sync::oneshot::Receiver;

/// Size in bytes of a chunk that is verified at once. The disk reads ahead while the previous chunk is being sent.
const STEP_BYTES: u64 = 1024 * 1024;

/// Source that yields segments of a stored file, each after verification, and segments in memory between them.
#[derive(Debug)]
pub(crate) struct CheckedReader {
    segments: VecDeque<Segment>,
    file: Arc<BodyFile>,
    waiting: Option<Receiver<bool>>,
}

impl CheckedReader {
    /// Creates a reader of `segments`. All file segments must belong to `file`.
    pub(crate) fn new(segments: impl IntoIterator<Item = Segment>, file: &Arc<BodyFile>) -> Self {
        Self { segments: segments.into_iter().collect(), file: Arc::clone(file), waiting: None }
    }
}

impl ContentSource for CheckedReader {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<ContentEvent> {
        loop {
            if let Some(waiting) = &mut self.waiting {
                let outcome = ready!(Pin::new(waiting).poll(context));
                self.waiting = None;
                if outcome != Ok(true) {
                    return Poll::Ready(ContentEvent::Failed(CloseReason::StoredCorrupt));
                }
            }
            let Some(segment) = self.segments.pop_front() else { return Poll::Ready(ContentEvent::End(None)) };
            let Segment::File(mut part) = segment else { return Poll::Ready(ContentEvent::Segment(segment)) };
            let end = part.offset + part.bytes;
            let verified = self.file.verified_until(part.offset).min(end);
            if verified == part.offset {
                self.waiting = Some(self.file.check(part.offset..end.min(part.offset + STEP_BYTES)));
                self.segments.push_front(Segment::File(part));
                continue;
            }
            if verified < end {
                let mut rest = part.clone();
                (rest.offset, rest.bytes) = (verified, end - verified);
                self.segments.push_front(Segment::File(rest));
            }
            part.bytes = verified - part.offset;
            return Poll::Ready(ContentEvent::Segment(Segment::File(part)));
        }
    }
}
