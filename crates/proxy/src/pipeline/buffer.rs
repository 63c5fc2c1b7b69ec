//! Buffering of request content before an origin is selected, so that a slow upload occupies no connection to an origin.

use crate::outcome::{ForwardOutcome, origin_failed};
use crate::step::ProxyStep;
use crate::versions::LengthNeed;
use flatout_balance::group::Preference;
use flatout_handler::content::{ContentPiece, ContentWriter, RequestContent, content_channel};
use flatout_handler::ending::CloseReason;
use flatout_handler::routed::Refusal;
use flatout_os::clock::Now;
use flatout_upstream::origin::OriginFailure;
use flatout_upstream::spool::{Filled, SpoolFault, SpooledContent};
use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use tokio::task::spawn_local;

/// Maximum number of bytes of content of unknown length that are buffered for origins that speak HTTP/1.0 or have not
/// shown their version, if `buffer-requests` is off.
const HTTP10_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// Buffers `content` of a request with this preference if the step requires it, or if its length is unknown and an
/// origin that may get the request needs it: one that speaks HTTP/1.0, which has no chunked transfer coding (RFC 9112
/// §6.1), or may do so. If all of them speak HTTP/1.0, larger content is refused; otherwise, the rest follows as it
/// arrives. If the buffer cannot be read later, the content is cut and `has_failed` becomes true.
pub(super) async fn buffered(
    (step, preference): (&ProxyStep, Preference),
    content: RequestContent,
    has_failed: &Rc<Cell<bool>>,
) -> Result<RequestContent, Refusal> {
    let declared = content.length();
    let need = match declared {
        Some(_) => LengthNeed::None,
        None => step.length_need(Now::read().monotonic_ms, preference),
    };
    let bytes_max = match step.settings.buffer_bytes_max {
        0 if need == LengthNeed::None => return Ok(content),
        0 => HTTP10_BYTES_MAX,
        bytes_max => bytes_max,
    };
    let filled = SpooledContent::fill(content, bytes_max, need == LengthNeed::Certain, &step.spools).await;
    let (mut spool, rest) = match filled.map_err(refusal)? {
        Filled::Whole(spool) => (spool, None),
        Filled::Part(spool, rest) => (spool, Some(rest)),
    };
    // Over HTTP/1.1, only chunked content has trailers. Losing them is better than losing the content.
    let trailers = spool.take_trailers().filter(|_| need == LengthNeed::None);
    let length = if rest.is_some() || trailers.is_some() { declared } else { Some(spool.length()) };
    let (writer, content) = content_channel(length);
    spawn_local(pass_on(spool, (rest, trailers), writer, Rc::clone(has_failed)));
    Ok(content)
}

fn refusal(fault: SpoolFault) -> Refusal {
    match fault {
        SpoolFault::Cut(reason) => {
            origin_failed(reason.content_fault(OriginFailure::ContentTooLarge, OriginFailure::ClientCutContent))
        }
        SpoolFault::TooLarge => ForwardOutcome::LengthRequired.into(),
        SpoolFault::Full | SpoolFault::Failed => ForwardOutcome::BufferFailed.into(),
    }
}

/// Passes on the buffered content and then its `rest` or its `trailers`, as fast as the reader takes it.
async fn pass_on(
    mut spool: SpooledContent,
    (rest, trailers): (Option<RequestContent>, Option<Rc<[u8]>>),
    writer: ContentWriter,
    has_failed: Rc<Cell<bool>>,
) {
    while !spool.is_drained() {
        poll_fn(|context| writer.poll_room(context)).await;
        if writer.is_abandoned() {
            return;
        }
        let Ok(piece) = spool.take_piece() else {
            has_failed.set(true);
            return writer.cut(CloseReason::FileFailed);
        };
        writer.write(piece.into());
    }
    drop(spool);
    let Some(rest) = rest else { return writer.end(trailers) };
    loop {
        poll_fn(|context| writer.poll_room(context)).await;
        if writer.is_abandoned() {
            return;
        }
        match poll_fn(|context| rest.poll_piece(context)).await {
            ContentPiece::Bytes(bytes) => writer.write(bytes),
            ContentPiece::End(trailers) => return writer.end(trailers),
            ContentPiece::Cut(reason) => return writer.cut(reason),
        }
    }
}
