//! Functions that read the content of a page or part, up to a limit.

use flatout_handler::ending::CloseReason;
use flatout_handler::response::{Body, FileBody, Segment};
use flatout_handler::shared::SharedBytes;
use flatout_handler::stream::{ContentEvent, ContentSource, Stream};
use rustix::io::{Errno, pread};
use std::future::poll_fn;
use std::task::{Context, Poll};

/// Maximum size in bytes of content that is copied into one segment.
const JOINED_BYTES_MAX: u64 = 64 * 1024;

/// Result of reading a page.
pub(super) enum Had {
    /// The whole page.
    Whole(Vec<u8>),
    /// The unchanged content of a page that is too large to parse.
    TooMuch(Body),
}

/// Reads a page of up to `bytes_max` bytes. Returns an error if the content is truncated or cannot be read.
pub(super) async fn read_page(body: Body, bytes_max: usize) -> Result<Had, CloseReason> {
    if body.len() > bytes_max as u64 {
        return Ok(Had::TooMuch(body));
    }
    let mut page = Vec::new();
    let segments = match body {
        Body::Empty | Body::Tunnel(_) => Vec::new(),
        Body::Bytes(bytes) => vec![Segment::Bytes(bytes)],
        Body::File(file) => vec![Segment::File(file)],
        Body::Segments(segments) => segments,
        Body::Stream(stream) => {
            let length = stream.length();
            loop {
                match poll_fn(|context| stream.poll_piece(context)).await {
                    ContentEvent::Segment(segment) => append(&segment, &mut page)?,
                    ContentEvent::End(_) => return Ok(Had::Whole(page)),
                    ContentEvent::Failed(reason) => return Err(reason),
                }
                if page.len() > bytes_max {
                    let again = Resumed { begun: Some(SharedBytes::from(page)), rest: stream };
                    return Ok(Had::TooMuch(Body::Stream(Stream::new(again, length))));
                }
            }
        }
    };
    for segment in &segments {
        append(segment, &mut page)?;
    }
    Ok(Had::Whole(page))
}

/// Returns the content of a part of up to `bytes_max` bytes, or `None` if it is larger or incomplete. Content in a file
/// is not read into memory.
pub(super) async fn has_all(body: Body, bytes_max: u64) -> Option<Vec<Segment>> {
    if body.len() > bytes_max {
        return None;
    }
    match body {
        Body::Empty => Some(Vec::new()),
        Body::Bytes(bytes) => Some(vec![Segment::Bytes(bytes)]),
        Body::File(file) => Some(vec![Segment::File(file)]),
        Body::Segments(segments) => Some(segments),
        Body::Tunnel(_) => None,
        // Content that is still arriving may turn out to be truncated, so read all of it first.
        stream @ Body::Stream(_) => match read_page(stream, usize::try_from(bytes_max).ok()?).await {
            Ok(Had::Whole(bytes)) => Some(vec![Segment::Bytes(SharedBytes::from(bytes))]),
            Ok(Had::TooMuch(_)) | Err(_) => None,
        },
    }
}

/// Concatenates `segments` into a body.
pub(super) fn join(mut segments: Vec<Segment>) -> Body {
    let bytes: u64 = segments.iter().map(Segment::len).sum();
    let in_memory = segments.iter().all(|segment| matches!(segment, Segment::Bytes(_)));
    if segments.len() > 1 && in_memory && bytes <= JOINED_BYTES_MAX {
        let mut whole = Vec::new();
        for segment in &segments {
            if let Segment::Bytes(bytes) = segment {
                whole.extend_from_slice(bytes);
            }
        }
        return Body::Bytes(SharedBytes::from(whole));
    }
    match segments.len() {
        0 => Body::Empty,
        1 => match segments.remove(0) {
            Segment::Bytes(bytes) => Body::Bytes(bytes),
            Segment::File(file) => Body::File(file),
        },
        _ => Body::Segments(segments),
    }
}

fn append(segment: &Segment, page: &mut Vec<u8>) -> Result<(), CloseReason> {
    match segment {
        Segment::Bytes(bytes) => page.extend_from_slice(bytes),
        Segment::File(file) => read_file(file, page)?,
    }
    Ok(())
}

/// Appends the content of `file` to `page`. Blocks the event loop, which is acceptable because files of stored
/// responses are usually in the page cache.
fn read_file(file: &FileBody, page: &mut Vec<u8>) -> Result<(), CloseReason> {
    let start = page.len();
    let Ok(bytes) = usize::try_from(file.bytes) else { return Err(CloseReason::FileFailed) };
    page.resize(start + bytes, 0);
    let mut done = 0;
    while done < bytes {
        match pread(&file.file.fd, &mut page[start + done..], file.offset + done as u64) {
            Ok(0) => return Err(CloseReason::FileFailed),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(_) => return Err(CloseReason::FileFailed),
        }
    }
    Ok(())
}

/// A stream whose beginning has already been read into memory.
struct Resumed {
    begun: Option<SharedBytes>,
    rest: Stream,
}

impl ContentSource for Resumed {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<ContentEvent> {
        match self.begun.take() {
            Some(begun) => Poll::Ready(ContentEvent::Segment(Segment::Bytes(begun))),
            None => self.rest.poll_piece(context),
        }
    }
}
