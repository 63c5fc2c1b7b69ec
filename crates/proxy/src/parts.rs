//! Stored parts of a representation, and responses from them. Stored ranges come from the store; missing ranges are
//! fetched from an origin and stored as well.

use crate::checked::CheckedReader;
use crate::fill::{FetchJoin, FetchState, FillHead, FillReader, Interest};
use crate::meta::{Meta, StoredResponse};
use crate::pipeline::deliver::stored::segment_of;
use crate::pipeline::fetch::{Fetch, FetchConditions};
use crate::pipeline::fetch_shared::stretch_key;
use crate::query::Query;
use crate::worker::ProxyWorker;
use flatout_cache::decision::{Verdict, decide_parts};
use flatout_cache::parts::{PARTS_MAX, Stretch, are_combinable, combine, cover, part_of, whole_of};
use flatout_cache::request::CacheRequest;
use flatout_cache::rules::Rules;
use flatout_cache::stored::Stored;
use flatout_cache::validate::Conditions;
use flatout_handler::ending::CloseReason;
use flatout_handler::response::{Body, Segment};
use flatout_handler::stream::{ContentEvent, ContentSource, Stream};
use flatout_http::ranges::ByteRange;
use flatout_store::{Purged, Store, StoredBody};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::sync::oneshot;
use tokio::task::spawn_local;

/// Combinable parts of one representation: at least one, at most [`PARTS_MAX`].
#[derive(Clone, Debug)]
pub(crate) struct PartSet {
    parts: Vec<Arc<StoredResponse>>,
    /// Byte range of each part.
    ranges: Vec<ByteRange>,
    newest: Arc<StoredResponse>,
    /// Metadata of the whole representation.
    whole: Stored,
    total: u64,
}

impl PartSet {
    /// Collects the parts among `objects` that can be combined with `newest`. Returns `None` if `newest` is not a
    /// combinable part.
    pub(crate) fn gather<'a>(
        store: &Store<Meta>,
        newest: &Arc<StoredResponse>,
        objects: impl Iterator<Item = &'a Arc<StoredResponse>>,
    ) -> Option<Self> {
        let (whole, total) = whole_of(&newest.meta().stored)?;
        let (mut parts, mut ranges) = (Vec::new(), Vec::new());
        for object in objects {
            let stored = &object.meta().stored;
            let Some(part) = part_of(stored) else { continue };
            let is_one = are_combinable(stored, &newest.meta().stored) && store.check(object) != Purged::Hard;
            if is_one && object.body().len() == part.len() && parts.len() < PARTS_MAX {
                parts.push(Arc::clone(object));
                ranges.push(part);
            }
        }
        Some(Self { parts, ranges, newest: Arc::clone(newest), whole, total })
    }

    /// Returns the same parts with the metadata of `new`, another part that is arriving.
    pub(crate) fn described_by(&self, new: &Stored) -> Self {
        Self { whole: combine(&self.whole, new), ..self.clone() }
    }

    /// Returns the newest part, whose metadata applies.
    pub(crate) const fn newest(&self) -> &Arc<StoredResponse> {
        &self.newest
    }

    /// Metadata of the whole representation.
    pub(crate) const fn whole(&self) -> &Stored {
        &self.whole
    }

    /// Returns the length of the whole representation in bytes.
    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// Decides how to handle `request`. `expired` is true if a soft purge has made the parts stale.
    pub(crate) fn decide(&self, request: &CacheRequest<'_>, expired: bool, rules: &Rules, now_s: i64) -> Verdict {
        if expired {
            let whole = self.whole.expired(now_s);
            return decide_parts(request, (&whole, self.total), &self.ranges, rules, now_s);
        }
        decide_parts(request, (&self.whole, self.total), &self.ranges, rules, now_s)
    }

    /// Removes all parts from the store, because the representation has changed or may no longer be stored.
    pub(crate) fn remove(&self, store: &Store<Meta>) {
        for part in &self.parts {
            store.remove_object(part);
        }
    }

    /// Returns whether the response `stored` contains the range `missing` of this representation.
    pub(crate) fn supplies(&self, stored: &Stored, missing: ByteRange) -> bool {
        let has = |part: ByteRange| part.first <= missing.first && missing.last <= part.last;
        part_of(stored).is_some_and(has) && are_combinable(stored, &self.newest.meta().stored)
    }

    /// Returns the stored ranges that make up `wanted`, each as the content of a part and the range within it. Returns
    /// `None` if any byte is not stored.
    pub(crate) fn held(&self, wanted: ByteRange) -> Option<Vec<(&StoredBody, ByteRange)>> {
        cover(&self.ranges, wanted).into_iter().map(|stretch| self.content_of(stretch)).collect()
    }

    fn content_of(&self, stretch: Stretch) -> Option<(&StoredBody, ByteRange)> {
        let Stretch::Held { index, part } = stretch else { return None };
        let (object, range) = (self.parts.get(index)?, self.ranges.get(index)?);
        object.touch();
        Some((object.body(), ByteRange { first: part.first - range.first, last: part.last - range.first }))
    }

    /// Returns the content of `wanted` as segments, or `None` if any byte is not stored or not verified.
    pub(crate) fn segments(&self, wanted: ByteRange) -> Option<Vec<Segment>> {
        let held = self.held(wanted)?;
        let ready = held.into_iter().filter(|(body, _)| body.is_verified());
        let segments: Vec<_> = ready.filter_map(|(body, part)| segment_of(body, part.first, part.len())).collect();
        (segments.iter().map(Segment::len).sum::<u64>() == wanted.len()).then_some(segments)
    }
}

/// Source of the missing ranges of a response.
pub(crate) struct Supply {
    pub(crate) worker: Rc<ProxyWorker>,
    pub(crate) query: Rc<Query>,
    /// Conditions for the requests of later ranges.
    pub(crate) conditions: Conditions,
    /// The first missing range, which is already arriving.
    pub(crate) first: (ByteRange, Arc<FillHead>, Interest),
}

/// Content combined from stored parts and, for missing ranges, from an origin.
pub(crate) struct Stitching {
    pub(crate) set: Rc<PartSet>,
    /// Source of the missing ranges, or `None` if all required ranges are stored.
    pub(crate) supply: Option<Supply>,
}

impl Stitching {
    /// Returns a body with the content of the range `wanted`, or `None` if some of it is unavailable.
    pub(crate) fn into_body(self, wanted: ByteRange) -> Option<Body> {
        let Self { set, supply } = self;
        if supply.is_none() {
            set.held(wanted)?;
        }
        if let Some(mut segments) = set.segments(wanted) {
            return Some(match segments.pop() {
                Some(Segment::Bytes(bytes)) if segments.is_empty() => Body::Bytes(bytes),
                Some(Segment::File(file)) if segments.is_empty() => Body::File(file),
                last => {
                    segments.extend(last);
                    Body::Segments(segments)
                }
            });
        }
        let stretches = cover(&set.ranges, wanted).into();
        let mut stitched = Stitched { set, stretches, supply: None, current: None, awaited: None };
        if let Some(Supply { worker, query, conditions, first: (missing, head, interest) }) = supply {
            stitched.awaited = Some((missing, reader(&head, interest, missing)?));
            stitched.supply = Some((worker, query, conditions));
        }
        Some(Body::Stream(Stream::new(stitched, Some(wanted.len()))))
    }
}

/// Creates a reader of the range `missing` from a response that contains it. Returns `None` if it does not.
fn reader(head: &FillHead, interest: Interest, missing: ByteRange) -> Option<FillReader> {
    let first = missing.first.checked_sub(part_of(&head.meta.stored)?.first)?;
    Some(interest.read(first, Some(first + missing.len())))
}

/// Source of the range being sent.
enum Current {
    Checked(CheckedReader),
    Coming(FillReader),
    /// The range has been requested. The flag is true if another request did so.
    Requested(ByteRange, Interest, bool),
}

/// Content source that yields the stored and missing ranges in order.
struct Stitched {
    set: Rc<PartSet>,
    stretches: VecDeque<Stretch>,
    supply: Option<(Rc<ProxyWorker>, Rc<Query>, Conditions)>,
    /// The first missing range, and its reader.
    awaited: Option<(ByteRange, FillReader)>,
    current: Option<Current>,
}

/// Event if content that the response head has promised is unavailable because the representation has changed or the
/// origin failed.
const BROKEN: ContentEvent = ContentEvent::Failed(CloseReason::OriginTruncated);

impl Stitched {
    /// Requests a missing range, or joins a fetch of the same range if `may_join` is true.
    fn request(&mut self, missing: ByteRange, may_join: bool) -> Option<Current> {
        if let Some((_, reader)) = self.awaited.take_if(|(awaited, _)| *awaited == missing) {
            return Some(Current::Coming(reader));
        }
        let (worker, query, conditions) = self.supply.as_ref()?;
        let fills = &worker.accelerator().fills;
        let join = if may_join {
            fills.begin(&stretch_key(query, &self.set, missing, conditions))
        } else {
            FetchJoin::Yours(fills.begin_alone(&query.fetch_prefix()))
        };
        Some(match join {
            FetchJoin::Theirs(interest) => Current::Requested(missing, interest, true),
            FetchJoin::Yours(writer) => {
                let interest = writer.join();
                let question = FetchConditions::stretch(&self.set, missing, conditions.clone());
                let kept = Some(Arc::clone(self.set.newest()));
                let fetch = Fetch { query: Rc::clone(query), kept, question, interims: None };
                // The receiver is dropped, because the result is read from the fill.
                let (direct, _) = oneshot::channel();
                spawn_local(fetch.run(Rc::clone(worker), writer, Some(direct)));
                Current::Requested(missing, interest, false)
            }
        })
    }

    /// Returns a source for the next range, or the next segment if it can be sent immediately. Returns `None` if it is
    /// unavailable.
    fn next(&mut self) -> Option<Result<Current, Segment>> {
        match self.stretches.pop_front()? {
            Stretch::Missing(missing) => self.request(missing, true).map(Ok),
            held @ Stretch::Held { .. } => {
                let (body, part) = self.set.content_of(held)?;
                let segment = segment_of(body, part.first, part.len())?;
                match body {
                    StoredBody::File { place: Some(place), .. } if !body.is_verified() => {
                        Some(Ok(Current::Checked(CheckedReader::new([segment], place))))
                    }
                    _ => Some(Err(segment)),
                }
            }
        }
    }

    /// Returns whether the response `head` to the request for `missing` may be sent to this client.
    fn may_send(&self, head: &FillHead, missing: ByteRange, is_theirs: bool) -> bool {
        let Some((worker, query, _)) = &self.supply else { return false };
        let is_purged = || {
            let store = worker.store();
            store.is_none_or(|store| store.check_coming(&query.key, &head.meta, head.generation) != Purged::No)
        };
        self.set.supplies(&head.meta.stored, missing)
            && (!is_theirs || (head.meta.stored.is_reusable() && !is_purged()))
    }
}

impl ContentSource for Stitched {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<ContentEvent> {
        loop {
            let piece = match self.current.take() {
                None if self.stretches.is_empty() => return Poll::Ready(ContentEvent::End(None)),
                None => match self.next() {
                    None => return Poll::Ready(BROKEN),
                    Some(Err(segment)) => return Poll::Ready(ContentEvent::Segment(segment)),
                    Some(Ok(current)) => {
                        self.current = Some(current);
                        continue;
                    }
                },
                Some(Current::Requested(missing, interest, is_theirs)) => {
                    let Poll::Ready(standing) = interest.poll_standing(false, context) else {
                        self.current = Some(Current::Requested(missing, interest, is_theirs));
                        return Poll::Pending;
                    };
                    let FetchState::Streaming(head) = standing else { return Poll::Ready(BROKEN) };
                    if is_theirs && head.is_too_large_to_share() {
                        let Some(own) = self.request(missing, false) else { return Poll::Ready(BROKEN) };
                        self.current = Some(own);
                        continue;
                    }
                    if !self.may_send(&head, missing, is_theirs) {
                        return Poll::Ready(BROKEN);
                    }
                    let Some(reader) = reader(&head, interest, missing) else { return Poll::Ready(BROKEN) };
                    self.current = Some(Current::Coming(reader));
                    continue;
                }
                Some(Current::Checked(mut reader)) => {
                    let polled = reader.poll_piece(context);
                    self.current = Some(Current::Checked(reader));
                    ready!(polled)
                }
                Some(Current::Coming(mut reader)) => {
                    let polled = reader.poll_piece(context);
                    self.current = Some(Current::Coming(reader));
                    ready!(polled)
                }
            };
            match piece {
                ContentEvent::End(_) => self.current = None,
                piece => return Poll::Ready(piece),
            }
        }
    }
}
