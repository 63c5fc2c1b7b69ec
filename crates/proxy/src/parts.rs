//! Stored parts of one representation, and responses from them: stored ranges come from the store, missing ones from
//! an origin, and are stored as well.

use crate::checked::CheckedReader;
use crate::fill::{FetchJoin, FetchState, FillHead, FillReader, Interest};
use crate::meta::{Meta, StoredResponse};
use crate::pipeline::deliver::stored::segment_of;
use crate::pipeline::fetch::{Fetch, FetchConditions};
use crate::pipeline::fetch_shared::stretch_key;
use crate::query::Query;
use crate::worker::ProxyWorker;
use flatout_cache::decision::{Verdict, decide_parts};
use flatout_cache::parts::{PARTS_MAX, Stretch, are_combinable, cover, part_of, whole_of};
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

/// Parts of one representation: at least one, at most [`PARTS_MAX`].
#[derive(Debug)]
pub(crate) struct PartSet {
    parts: Vec<Arc<StoredResponse>>,
    /// Byte range of each part.
    ranges: Vec<ByteRange>,
    newest: Arc<StoredResponse>,
    /// Metadata of the whole.
    whole: Stored,
    total: u64,
}

impl PartSet {
    /// Collects the parts among `objects` that can be combined with `newest`; `None` if `newest` is not a combinable
    /// part.
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

    /// The part whose metadata applies.
    pub(crate) const fn newest(&self) -> &Arc<StoredResponse> {
        &self.newest
    }

    /// Metadata of the whole.
    pub(crate) const fn whole(&self) -> &Stored {
        &self.whole
    }

    /// Length of the whole in bytes.
    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// Decides how to handle `request`. `expired`: a purge has made the parts stale.
    pub(crate) fn decide(&self, request: &CacheRequest<'_>, expired: bool, rules: &Rules, now_s: i64) -> Verdict {
        if expired {
            let whole = self.whole.expired(now_s);
            return decide_parts(request, (&whole, self.total), &self.ranges, rules, now_s);
        }
        decide_parts(request, (&self.whole, self.total), &self.ranges, rules, now_s)
    }

    /// Removes all parts: the representation has changed, or may no longer be stored.
    pub(crate) fn remove(&self, store: &Store<Meta>) {
        for part in &self.parts {
            store.remove_object(part);
        }
    }

    /// Returns whether the response `stored` supplies `missing` of this representation.
    pub(crate) fn supplies(&self, stored: &Stored, missing: ByteRange) -> bool {
        let has = |part: ByteRange| part.first <= missing.first && missing.last <= part.last;
        part_of(stored).is_some_and(has) && are_combinable(stored, &self.newest.meta().stored)
    }

    /// The stored ranges of `wanted`, each with its part's content and the range in it; `None`: not all is stored.
    pub(crate) fn held(&self, wanted: ByteRange) -> Option<Vec<(&StoredBody, ByteRange)>> {
        cover(&self.ranges, wanted).into_iter().map(|stretch| self.content_of(stretch)).collect()
    }

    fn content_of(&self, stretch: Stretch) -> Option<(&StoredBody, ByteRange)> {
        let Stretch::Held { index, part } = stretch else { return None };
        let (object, range) = (self.parts.get(index)?, self.ranges.get(index)?);
        object.touch();
        Some((object.body(), ByteRange { first: part.first - range.first, last: part.last - range.first }))
    }

    /// Segments of `wanted`; `None`: not all is stored and verified.
    pub(crate) fn segments(&self, wanted: ByteRange) -> Option<Vec<Segment>> {
        let held = self.held(wanted)?;
        let ready = held.into_iter().filter(|(body, _)| body.is_verified());
        let segments: Vec<_> = ready.filter_map(|(body, part)| segment_of(body, part.first, part.len())).collect();
        (segments.iter().map(Segment::len).sum::<u64>() == wanted.len()).then_some(segments)
    }
}

/// Source of the missing ranges of one response.
pub(crate) struct Supply {
    pub(crate) worker: Rc<ProxyWorker>,
    pub(crate) query: Rc<Query>,
    /// Conditions of requests for later ranges.
    pub(crate) conditions: Conditions,
    /// The first missing range, which is already arriving.
    pub(crate) first: (ByteRange, Arc<FillHead>, Interest),
}

/// Content from stored parts and, where they have gaps, from origins.
pub(crate) struct Stitching {
    pub(crate) set: Rc<PartSet>,
    /// `None`: all required ranges are stored.
    pub(crate) supply: Option<Supply>,
}

impl Stitching {
    /// Body of the range `wanted`; `None`: part of it is unavailable.
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

/// Reader of `missing` from a response that contains it.
fn reader(head: &FillHead, interest: Interest, missing: ByteRange) -> Option<FillReader> {
    let first = missing.first.checked_sub(part_of(&head.meta.stored)?.first)?;
    Some(interest.read(first, Some(first + missing.len())))
}

/// Source of the current range.
enum Current {
    Checked(CheckedReader),
    Coming(FillReader),
    /// It has been requested; the flag: by another request.
    Requested(ByteRange, Interest, bool),
}

/// Consecutive ranges.
struct Stitched {
    set: Rc<PartSet>,
    stretches: VecDeque<Stretch>,
    supply: Option<(Rc<ProxyWorker>, Rc<Query>, Conditions)>,
    /// The first missing range.
    awaited: Option<(ByteRange, FillReader)>,
    current: Option<Current>,
}

/// Promised content is unavailable: the representation has changed, or the origin failed.
const BROKEN: ContentEvent = ContentEvent::Failed(CloseReason::OriginTruncated);

impl Stitched {
    /// Requests a missing range, or joins a fetch of it.
    fn request(&mut self, missing: ByteRange) -> Option<Current> {
        if let Some((_, reader)) = self.awaited.take_if(|(awaited, _)| *awaited == missing) {
            return Some(Current::Coming(reader));
        }
        let (worker, query, conditions) = self.supply.as_ref()?;
        let key = stretch_key(query, &self.set, missing, conditions);
        Some(match worker.accelerator().fills.begin(&key) {
            FetchJoin::Theirs(interest) => Current::Requested(missing, interest, true),
            FetchJoin::Yours(writer) => {
                let interest = writer.join();
                let question = FetchConditions::stretch(&self.set, missing, conditions.clone());
                let kept = Some(Arc::clone(self.set.newest()));
                let fetch = Fetch { query: Rc::clone(query), kept, question, interims: None };
                // Only the fill reports the result.
                let (direct, _) = oneshot::channel();
                spawn_local(fetch.run(Rc::clone(worker), writer, Some(direct)));
                Current::Requested(missing, interest, false)
            }
        })
    }

    /// Returns the next range or segment.
    fn next(&mut self) -> Option<Result<Current, Segment>> {
        match self.stretches.pop_front()? {
            Stretch::Missing(missing) => self.request(missing).map(Ok),
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

    /// Returns whether the requested range may be sent to this client.
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
                    let Poll::Ready(standing) = interest.poll_standing(context) else {
                        self.current = Some(Current::Requested(missing, interest, is_theirs));
                        return Poll::Pending;
                    };
                    let FetchState::Streaming(head) = standing else { return Poll::Ready(BROKEN) };
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
