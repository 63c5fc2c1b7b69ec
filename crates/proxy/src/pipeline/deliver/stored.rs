//! Construction of responses from stored content or from a fetch in progress.

use crate::checked::CheckedReader;
use crate::fill::{FillHead, Interest};
use crate::meta::{StoredResponse, without_trailer_field};
use crate::note::Note;
use crate::parts::{PartSet, Stitching};
use crate::query::{EsiSource, Query};
use crate::sticky::write_set_cookie;
use flatout_cache::condition::{SelectedForm, decide_conditions, write_not_modified_lines};
use flatout_cache::partial::parse_content_range;
use flatout_cache::reason::Lookup;
use flatout_cache::request::CacheRequest;
use flatout_cache::stored::{Extent, Stored};
use flatout_config::model::FieldOp;
use flatout_handler::response::{Body, FileBody, Head, Response, Segment};
use flatout_handler::routed::HeaderPolicy;
use flatout_handler::shared::SharedBytes;
use flatout_handler::stream::{ContentEvent, ContentSource, Stream};
use flatout_http::lines::{each_line, write_changed, write_line};
use flatout_http::ranges::{ByteRange, format_part_head, format_parts_end, make_boundary};
use flatout_http::status::has_content;
use flatout_os::file::OpenFile;
use flatout_os::huge::Joiner;
use flatout_store::StoredBody;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Appends the Via line of this proxy to `output` (RFC 9110 §7.6.3).
fn write_via(via: Option<&str>, output: &mut Vec<u8>) {
    if let Some(via) = via {
        output.extend_from_slice(b"Via: 1.1 ");
        output.extend_from_slice(via.as_bytes());
        output.extend_from_slice(b"\r\n");
    }
}

/// Returns the field lines of a stored response for clients, without fields that describe the length of the content.
fn lines_of(stored: &Stored, via: Option<&str>, changes: &[FieldOp]) -> Vec<u8> {
    // The operations also apply to Via, as when a response is forwarded.
    let mut own = Vec::with_capacity(stored.lines.len() + 128);
    own.extend_from_slice(&stored.lines);
    write_via(via, &mut own);
    if changes.is_empty() {
        return own;
    }
    let mut lines = Vec::with_capacity(own.len() + 128);
    write_changed(stored.status, &own, changes, &mut lines);
    lines
}

/// Returns the field lines of a fetched response for the client that requested it, including fields that are not
/// stored.
fn own_lines(query: &Query, head: &FillHead, changes: &[FieldOp]) -> Vec<u8> {
    let mut own = Vec::with_capacity(head.lines.len());
    for (name, line) in each_line(&head.lines) {
        // Content-Range is regenerated in a 206 or 416. In other responses, it is meaningless and left unchanged.
        let value = flatout_http::token::trim(line[name.len() + 1..].trim_ascii_end());
        let is_range = name.eq_ignore_ascii_case(b"content-range") && parse_content_range(value).is_some();
        let is_ours = name.eq_ignore_ascii_case(b"content-length") || name.eq_ignore_ascii_case(b"age");
        if !is_range && !is_ours {
            own.extend_from_slice(line);
        }
    }
    let mut lines = Vec::with_capacity(own.len());
    write_changed(head.meta.stored.status, &own, changes, &mut lines);
    write_session(query, head, head.meta.stored.status, &mut lines);
    lines
}

/// Appends the cookie for session affinity to `lines`, those of a response with `status` for the client, if the origin
/// has set a cookie that the client receives, which may begin its session.
fn write_session(query: &Query, head: &FillHead, status: u16, lines: &mut Vec<u8>) {
    let has_cookie = |lines: &[u8]| each_line(lines).any(|(name, _)| name.eq_ignore_ascii_case(b"set-cookie"));
    if has_cookie(&head.lines) && has_cookie(lines) {
        write_set_cookie(&query.step, &query.ask, (status, head.served), 0, lines);
    }
}

/// Builds a 206 from a fetch in progress, for the client that requested it.
fn own_part(query: &Query, head: &FillHead, interest: Interest, note: &Note, now_s: i64) -> Response {
    let mut lines = Vec::with_capacity(head.lines.len());
    write_changed(206, &head.lines, &query.policy.fields, &mut lines);
    write_session(query, head, 206, &mut lines);
    let body = Body::Stream(Stream::new(interest.read(0, None), head.length));
    let mut response = Response::new(206, Head::from_lines(206, &lines), body, note.reason);
    response.extra = Some(note.lines(None, Some(head.meta.stored.ttl_s(now_s)), query.shows_status));
    response
}

/// A stored response with a prebuilt head and body. Belongs to one worker.
#[derive(Debug)]
pub(crate) struct PrebuiltResponse {
    pub(crate) object: Arc<StoredResponse>,
    pub(crate) policy_id: u32,
    head: Head,
    body: Body,
    /// The lines of Age and Cache-Status, and the time for which they are valid, in seconds since 1970.
    note: RefCell<(i64, Rc<[u8]>)>,
}

/// Moves repeatedly requested content into huge pages, in a separate thread.
fn join_pages(object: &StoredResponse) {
    // Only one file is moved at a time. If another is being moved, a later request tries again.
    if let Some(joiner) = Joiner::take()
        && let Some((fd, bytes)) = object.take_unjoined()
    {
        joiner.join(fd, bytes);
    }
}

impl PrebuiltResponse {
    /// Builds the head and body of a whole stored response.
    pub(crate) fn new(object: &Arc<StoredResponse>, via: Option<&str>, policy: &HeaderPolicy) -> Self {
        let stored = &object.meta().stored;
        let mut lines = lines_of(stored, via, &policy.fields);
        if has_content(stored.status) {
            write_line(b"Content-Length", object.body().len().to_string().as_bytes(), &mut lines);
        }
        join_pages(object);
        Self {
            object: Arc::clone(object),
            policy_id: policy.id,
            head: Head::from_lines(stored.status, &lines),
            body: body_of(object.body(), 0, object.body().len()),
            note: RefCell::new((i64::MIN, Rc::from(&b""[..]))),
        }
    }

    /// Returns the whole response with the Age at `now_s`, when it must be fresh.
    #[inline]
    pub(crate) fn answer(&self, now_s: i64, shows_status: bool) -> Response {
        let mut response =
            Response::new(self.object.meta().stored.status, self.head.clone(), self.body.clone(), Lookup::HitFresh);
        if self.note.borrow().0 != now_s {
            let stored = &self.object.meta().stored;
            let age_s = stored.current_age_s(now_s);
            let lines = Note::hit(Lookup::HitFresh).lines(Some(age_s), Some(stored.ttl_s(now_s)), true);
            *self.note.borrow_mut() = (now_s, lines);
        }
        response.extra = if shows_status {
            Some(Rc::clone(&self.note.borrow().1))
        } else {
            let age_s = self.object.meta().stored.current_age_s(now_s);
            Some(Note::hit(Lookup::HitFresh).lines(Some(age_s), None, false))
        };
        response
    }

    /// Returns the approximate memory use in bytes, excluding the stored object.
    pub(crate) fn bytes(&self) -> usize {
        self.head.len() + size_of::<Self>() + 256
    }
}

/// Returns a range of a stored body as a segment, or `None` if the body is too short.
pub(crate) fn segment_of(body: &StoredBody, first: u64, length: u64) -> Option<Segment> {
    match body {
        StoredBody::Empty => None,
        StoredBody::Memory(bytes) => {
            let whole = SharedBytes::from(Arc::clone(bytes));
            let (first, end) = (usize::try_from(first).ok()?, usize::try_from(first.checked_add(length)?).ok()?);
            (end <= whole.len()).then(|| Segment::Bytes(whole.slice(first..end)))
        }
        StoredBody::File { fd, bytes, .. } => (first.checked_add(length)? <= *bytes).then(|| {
            Segment::File(FileBody { file: Rc::new(OpenFile::own(Arc::clone(fd))), offset: first, bytes: length })
        }),
    }
}

fn body_of(body: &StoredBody, first: u64, length: u64) -> Body {
    if length == 0 {
        return Body::Empty;
    }
    match segment_of(body, first, length) {
        None => Body::Empty,
        Some(Segment::Bytes(bytes)) => Body::Bytes(bytes),
        Some(file) if !body.is_verified() => checked(vec![file], body),
        Some(Segment::File(file)) => Body::File(file),
    }
}

/// Creates a body from `segments` of `body`. Each segment is verified against its checksums before it is sent, unless
/// all of `body` has been verified.
fn checked(segments: Vec<Segment>, body: &StoredBody) -> Body {
    match body {
        StoredBody::File { place: Some(place), .. } if !place.is_verified() => {
            let length = segments.iter().map(Segment::len).sum();
            Body::Stream(Stream::new(CheckedReader::new(segments, place), Some(length)))
        }
        _ => Body::Segments(segments),
    }
}

/// Number of bytes of stored content that are verified before the head is sent, so that corrupt content results in a
/// miss. Beyond that, content is verified while it is sent.
const CHECKED_FIRST_BYTES: u64 = 16 * 1024 * 1024;

/// Returns the ranges of the content of `object` to verify before the response to `query` is sent.
pub(crate) fn first_ranges(query: &Query, object: &StoredResponse, now_s: i64) -> Vec<Range<u64>> {
    let (stored, held_bytes) = (&object.meta().stored, object.body().len());
    let (total, offset) = match stored.extent {
        Extent::Whole => (Some(held_bytes), 0),
        Extent::Part { first, total, .. } => (total, first),
    };
    let range = |part: ByteRange| part.first.saturating_sub(offset)..(part.last + 1).saturating_sub(offset);
    let mut left = CHECKED_FIRST_BYTES;
    wanted_parts(query, stored, total, now_s).into_iter().filter_map(|part| shorten(range(part), &mut left)).collect()
}

/// Returns the ranges of the content of `set` to verify before the response to `query` is sent, each with the stored
/// body that contains it.
pub(crate) fn first_ranges_of<'a>(query: &Query, set: &'a PartSet, now_s: i64) -> Vec<(&'a StoredBody, Range<u64>)> {
    let wanted = wanted_parts(query, set.whole(), Some(set.total()), now_s);
    let held = wanted.into_iter().filter_map(|part| set.held(part)).flatten();
    let mut left = CHECKED_FIRST_BYTES;
    held.filter_map(|(body, part)| Some((body, shorten(part.first..part.last + 1, &mut left)?))).collect()
}

/// Returns the ranges of the representation that the response to `query` contains.
fn wanted_parts(query: &Query, stored: &Stored, total: Option<u64>, now_s: i64) -> Vec<ByteRange> {
    match query.with(|request: &CacheRequest<'_>| decide_conditions(request, stored, total, now_s)) {
        SelectedForm::Whole => {
            total.and_then(|total| total.checked_sub(1)).map(|last| ByteRange { first: 0, last }).into_iter().collect()
        }
        SelectedForm::Part(part) => vec![part],
        SelectedForm::Parts(parts) => parts.as_slice().to_vec(),
        SelectedForm::NotModified | SelectedForm::Unsatisfiable | SelectedForm::NotHeld => Vec::new(),
    }
}

/// Truncates `range` to `left` bytes, and subtracts its length from `left`. Returns `None` if nothing remains.
fn shorten(range: Range<u64>, left: &mut u64) -> Option<Range<u64>> {
    let end = range.end.min(range.start.saturating_add(*left));
    *left -= end.saturating_sub(range.start);
    (range.start < end).then_some(range.start..end)
}

/// Returns the whole stored content and its Content-Length. If there are trailers, there is no Content-Length, because
/// trailers require chunked transfer coding over HTTP/1.1 (RFC 9112 §7.1.2).
fn whole_of(object: &StoredResponse) -> (Body, Option<u64>) {
    let bytes = object.body().len();
    let trailers = &object.meta().trailers;
    if trailers.is_empty() || !has_content(object.meta().stored.status) {
        return (body_of(object.body(), 0, bytes), Some(bytes));
    }
    let (segment, stream) = match body_of(object.body(), 0, bytes) {
        Body::Bytes(bytes) => (Some(Segment::Bytes(bytes)), None),
        Body::File(file) => (Some(Segment::File(file)), None),
        // Content that is verified while it is sent.
        Body::Stream(stream) => (None, Some(stream)),
        Body::Empty | Body::Segments(_) | Body::Tunnel(_) => (None, None),
    };
    (Body::Stream(Stream::new(Trailed { segment, stream, trailers: Rc::from(&trailers[..]) }, None)), None)
}

/// Stored content followed by its trailers.
struct Trailed {
    segment: Option<Segment>,
    stream: Option<Stream>,
    trailers: Rc<[u8]>,
}

impl ContentSource for Trailed {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<ContentEvent> {
        if let Some(segment) = self.segment.take() {
            return Poll::Ready(ContentEvent::Segment(segment));
        }
        match self.stream.as_ref().map(|stream| stream.poll_piece(context)) {
            None | Some(Poll::Ready(ContentEvent::End(_))) => {
                Poll::Ready(ContentEvent::End(Some(Rc::clone(&self.trailers))))
            }
            Some(polled) => polled,
        }
    }
}

/// Where the content of a response comes from.
pub(crate) enum ResponseContent {
    /// A stored response.
    Kept(Arc<StoredResponse>),
    /// A fetch in progress.
    Coming(Arc<FillHead>, Interest),
    /// Stored parts, some of which may be missing.
    Parts(Stitching),
}

impl ResponseContent {
    fn stored(&self) -> &Stored {
        match self {
            Self::Kept(object) => &object.meta().stored,
            Self::Coming(head, _) => &head.meta.stored,
            Self::Parts(parts) => parts.set.whole(),
        }
    }

    /// Returns the remaining freshness in seconds, for `ttl` in Cache-Status. At most 0 if a soft purge has made the
    /// response stale.
    fn ttl_s(&self, now_s: i64) -> i64 {
        let is_stale = match self {
            Self::Kept(object) => object.is_soft_purged(),
            Self::Coming(..) => false,
            Self::Parts(parts) => parts.set.newest().is_soft_purged(),
        };
        let ttl_s = self.stored().ttl_s(now_s);
        if is_stale { ttl_s.min(0) } else { ttl_s }
    }

    /// Returns the length of the content in bytes, if known.
    fn bytes(&self) -> Option<u64> {
        match self {
            Self::Kept(object) => Some(object.body().len()),
            Self::Coming(head, _) => head.length,
            Self::Parts(parts) => Some(parts.set.total()),
        }
    }

    /// Returns the whole content, and its Content-Length if it has one. Returns `None` if some of the content is
    /// unavailable.
    fn into_whole(self) -> Option<(Body, Option<u64>)> {
        Some(match self {
            Self::Kept(object) => whole_of(&object),
            Self::Coming(head, _) if head.length == Some(0) => (Body::Empty, head.length),
            Self::Coming(head, interest) => {
                (Body::Stream(Stream::new(interest.read(0, None), head.length)), head.length)
            }
            Self::Parts(parts) => {
                let total = parts.set.total();
                (parts.into_body(ByteRange { first: 0, last: total.checked_sub(1)? })?, Some(total))
            }
        })
    }
}

/// Builds the response to `query` from `content`. Returns `None` if `content` does not contain the requested range.
pub(crate) fn answer_from(query: &Query, content: ResponseContent, note: &Note, now_s: i64) -> Option<Response> {
    let held_bytes = content.bytes();
    let stored = content.stored();
    if query.is_template(stored) {
        return whole_answer(query, content, note, now_s);
    }
    let stored_extent = stored.extent;
    let total = match stored_extent {
        Extent::Whole => held_bytes,
        Extent::Part { total, .. } => total,
    };
    let content = match content {
        // The origin chooses which part to send (RFC 9110 §15.3.7). The client that requested the part receives it
        // unchanged.
        ResponseContent::Coming(head, interest) if !note.collapsed && stored_extent != Extent::Whole => {
            return Some(own_part(query, &head, interest, note, now_s));
        }
        content => content,
    };
    let stored = content.stored();
    let decided = query.with(|request: &CacheRequest<'_>| decide_conditions(request, stored, total, now_s));
    let via = query.step.settings.via.as_deref();
    let status = stored.status;
    let age_s = stored.current_age_s(now_s);
    // A response that has just been fetched is sent without Age, unless the origin sent one.
    let shown_age = (note.fwd.is_none() || age_s > 0).then_some(age_s);
    let ttl = (note.fwd.is_none() || note.stored).then(|| content.ttl_s(now_s));
    let extra = note.lines(shown_age, ttl, query.shows_status);
    let all = match &content {
        // The client whose request was forwarded also receives fields that must not be stored (RFC 9111 §5.2.2.4,
        // §5.2.2.7).
        ResponseContent::Coming(head, _) if !note.collapsed => own_lines(query, head, &query.policy.fields),
        _ => lines_of(stored, via, &query.policy.fields),
    };
    let offset = match stored.extent {
        Extent::Whole => 0,
        Extent::Part { first, .. } => first,
    };
    let mut response = match decided {
        SelectedForm::NotHeld => return None,
        SelectedForm::NotModified => {
            let mut lines = Vec::with_capacity(all.len());
            let mut unchanged = Vec::with_capacity(stored.lines.len());
            write_not_modified_lines(stored, &mut unchanged);
            write_via(via, &mut unchanged);
            write_changed(304, &unchanged, &query.policy.fields, &mut lines);
            Response::new(304, Head::from_lines(304, &lines), Body::Empty, note.reason)
        }
        SelectedForm::Unsatisfiable => {
            let mut lines = Vec::new();
            write_line(b"Content-Range", format!("bytes */{}", total.unwrap_or(0)).as_bytes(), &mut lines);
            write_line(b"Content-Length", b"0", &mut lines);
            write_via(via, &mut lines);
            let mut head = Vec::new();
            write_date(&stored.lines, &mut head);
            head.extend_from_slice(&lines);
            Response::new(416, Head::from_lines(416, &head), Body::Empty, note.reason)
        }
        SelectedForm::Whole => {
            let mut lines = all;
            let (body, length) = content.into_whole()?;
            if let Some(length) = length.filter(|_| has_content(status)) {
                write_line(b"Content-Length", length.to_string().as_bytes(), &mut lines);
            }
            Response::new(status, Head::from_lines(status, &lines), body, note.reason)
        }
        SelectedForm::Part(part) => {
            // The trailers apply to the whole content, so they are not sent with a part.
            let mut lines = without_trailer_field(&all);
            write_part_lines(part, total, &mut lines);
            let first = part.first.checked_sub(offset)?;
            let body = match content {
                ResponseContent::Kept(object) => body_of(object.body(), first, part.len()),
                ResponseContent::Parts(parts) => parts.into_body(part)?,
                ResponseContent::Coming(_, interest) => {
                    Body::Stream(Stream::new(interest.read(first, Some(first + part.len())), Some(part.len())))
                }
            };
            Response::new(206, Head::from_lines(206, &lines), body, note.reason)
        }
        SelectedForm::Parts(parts) => match content {
            ResponseContent::Kept(object) => {
                let segment = |part: &ByteRange| {
                    Some(vec![segment_of(object.body(), part.first.checked_sub(offset)?, part.len())?])
                };
                answer_parts(
                    &object,
                    &without_trailer_field(&all),
                    parts.as_slice(),
                    total.unwrap_or(0),
                    note.reason,
                    segment,
                )?
            }
            ResponseContent::Parts(Stitching { set, .. }) => {
                answer_parts(set.newest(), &all, parts.as_slice(), set.total(), note.reason, |part| {
                    set.segments(*part)
                })?
            }
            // Content that is still arriving is not split into several parts. A server may ignore Range.
            ResponseContent::Coming(_, interest) => {
                let mut lines = all;
                if let Some(length) = held_bytes {
                    write_line(b"Content-Length", length.to_string().as_bytes(), &mut lines);
                }
                let body = Body::Stream(Stream::new(interest.read(0, None), held_bytes));
                Response::new(status, Head::from_lines(status, &lines), body, note.reason)
            }
        },
    };
    response.extra = Some(extra);
    Some(response)
}

/// Builds a response with all of `content`, without evaluating conditions and ranges. For templates, and for methods to
/// which conditions do not apply.
pub(crate) fn whole_answer(query: &Query, content: ResponseContent, note: &Note, now_s: i64) -> Option<Response> {
    let stored = content.stored();
    let status = stored.status;
    let is_template = query.is_template(stored);
    // The fields of a template are modified after composition.
    let changes = if is_template { &[][..] } else { &query.policy.fields };
    let mut lines = match &content {
        ResponseContent::Coming(head, _) if is_template && !note.collapsed => own_lines(query, head, changes),
        _ => lines_of(stored, query.step.settings.via.as_deref(), changes),
    };
    if is_template {
        query.template.replace(Some(EsiSource::Page(lines.clone())));
    }
    let extra = note.lines(None, Some(content.ttl_s(now_s)), query.shows_status);
    let (body, length) = content.into_whole()?;
    if let Some(length) = length.filter(|_| has_content(status)) {
        write_line(b"Content-Length", length.to_string().as_bytes(), &mut lines);
    }
    let mut response = Response::new(status, Head::from_lines(status, &lines), body, note.reason);
    response.extra = Some(extra);
    Some(response)
}

/// Appends the Date line from `lines` to `output`.
fn write_date(lines: &[u8], output: &mut Vec<u8>) {
    if let Some((_, line)) = each_line(lines).find(|(name, _)| name.eq_ignore_ascii_case(b"date")) {
        output.extend_from_slice(line);
    }
}

fn write_part_lines(part: ByteRange, total: Option<u64>, lines: &mut Vec<u8>) {
    let total = total.map_or_else(|| "*".to_owned(), |total| total.to_string());
    write_line(b"Content-Range", format!("bytes {}-{}/{total}", part.first, part.last).as_bytes(), lines);
    write_line(b"Content-Length", part.len().to_string().as_bytes(), lines);
}

/// Builds a `multipart/byteranges` response (RFC 9110 §14.6). Returns `None` if some of the content is unavailable.
fn answer_parts(
    object: &Arc<StoredResponse>,
    all: &[u8],
    parts: &[ByteRange],
    total: u64,
    reason: Lookup,
    content: impl Fn(&ByteRange) -> Option<Vec<Segment>>,
) -> Option<Response> {
    let stored = &object.meta().stored;
    let is_type = |name: &[u8]| name.eq_ignore_ascii_case(b"content-type");
    let content_type = each_line(all).find(|(name, _)| is_type(name)).map(|(_, line)| line);
    let own = content_type.map_or_else(String::new, |line| String::from_utf8_lossy(line).into_owned());
    let seed = stored.etag.as_deref().unwrap_or(b"");
    let boundary =
        make_boundary(seed, object.generation() ^ stored.response_time_s.unsigned_abs() ^ object.key().hash());
    let bytes = |text: String| Segment::Bytes(SharedBytes::from(text.into_bytes()));
    let mut segments = Vec::with_capacity(2 * parts.len() + 1);
    for (index, part) in parts.iter().enumerate() {
        segments.push(bytes(format_part_head(&boundary, &own, *part, total, index == 0)));
        segments.extend(content(part)?);
    }
    segments.push(bytes(format_parts_end(&boundary)));
    let mut lines = Vec::with_capacity(all.len() + 128);
    for (_, line) in each_line(all).filter(|(name, _)| !is_type(name)) {
        lines.extend_from_slice(line);
    }
    write_line(b"Content-Type", format!("multipart/byteranges; boundary={boundary}").as_bytes(), &mut lines);
    let length: u64 = segments.iter().map(Segment::len).sum();
    write_line(b"Content-Length", length.to_string().as_bytes(), &mut lines);
    Some(Response::new(206, Head::from_lines(206, &lines), checked(segments, object.body()), reason))
}
