//! Storage of fetched content, alone or joined with parts of the same representation.

use super::Fetch;
use super::pumping::Pumping;
use super::separation::forget_sharing;
use crate::growing::Growing;
use crate::meta::{Meta, StoredResponse, without_trailer_field};
use crate::worker::ProxyWorker;
use flatout_cache::parts::{Held, JoinedPiece, PARTS_MAX, PlacedContent, Placing, cut_short, decide_placing, part_of};
use flatout_cache::reason::NoStore;
use flatout_cache::stored::{Extent, Stored};
use flatout_store::{ObjectKey, Purged, Store, StoredBody};
use std::sync::Arc;

/// Separator between the variant key and the offset in the name of a part. As a length, it is too large to occur in a
/// variant key.
const PART: [u8; 4] = (u32::MAX - 1).to_le_bytes();

/// Returns the name of `stored` among the entries of its key. Each part of a variant has a different name, which
/// contains the offset of its first byte.
fn name_of(stored: &Stored) -> Vec<u8> {
    let mut name = stored.variant_key.to_vec();
    if let Some(part) = part_of(stored) {
        name.extend_from_slice(&PART);
        name.extend_from_slice(&part.first.to_le_bytes());
    }
    name
}

impl Fetch {
    /// Stores the content, which has arrived completely.
    pub(super) fn finish(
        &self,
        worker: &ProxyWorker,
        pumping: &mut Pumping,
        stored: Stored,
        generation: u64,
        trailers: Option<&[u8]>,
    ) {
        let whole = pumping.writer.look(Growing::bytes);
        let is_whole = pumping.length.is_none_or(|length| length == whole)
            && stored.content_bytes().is_none_or(|promised| promised == whole);
        if !is_whole {
            self.note_incomplete(worker, pumping, stored.status);
        } else if pumping.unkept.is_none() {
            self.keep_content(worker, pumping, stored, generation, trailers);
        }
    }

    /// Records that the content is truncated, unless there was another reason for not storing it.
    pub(super) fn note_incomplete(&self, worker: &ProxyWorker, pumping: &Pumping, status: u16) {
        if pumping.unkept.is_none() {
            pumping.logged.set(NoStore::Incomplete.name());
            worker.note_not_kept(&self.query, NoStore::Incomplete, status);
        }
    }

    /// Stores truncated content as a part, if the rest can be requested by range (RFC 9111 §3.3).
    pub(super) fn keep_beginning(&self, worker: &ProxyWorker, pumping: &mut Pumping, stored: &Stored, generation: u64) {
        let bytes = pumping.writer.look(Growing::bytes);
        if pumping.unkept.is_none()
            && !self.query.cache.esi
            && let Some(part) = cut_short(stored, pumping.length, bytes)
        {
            self.keep_content(worker, pumping, part, generation, None);
        }
    }

    /// Stores the content, unless the response was invalidated in flight.
    fn keep_content(
        &self,
        worker: &ProxyWorker,
        pumping: &mut Pumping,
        stored: Stored,
        generation: u64,
        trailers: Option<&[u8]>,
    ) {
        if pumping.writer.is_invalidated() {
            return;
        }
        let body = match pumping.body.take() {
            Some(body) => body.finish(),
            None => pumping
                .writer
                .look(Growing::join)
                .map(|bytes| if bytes.is_empty() { StoredBody::Empty } else { StoredBody::Memory(bytes) }),
        };
        let Some(body) = body else { return };
        // Trailers of a part do not apply to the whole representation.
        let own = trailers.filter(|_| stored.extent == Extent::Whole);
        let object = self.keep(worker, stored, (body, own), generation);
        // The response may have been invalidated between the check above and the insertion.
        if let (Some(object), true, Some(store)) = (object, pumping.writer.is_invalidated(), worker.store()) {
            store.remove_object(&object);
        }
    }

    fn keep(
        &self,
        worker: &ProxyWorker,
        stored: Stored,
        (body, trailers): (StoredBody, Option<&[u8]>),
        generation: u64,
    ) -> Option<Arc<StoredResponse>> {
        let store = worker.store()?;
        let query = &self.query;
        let path_key = || {
            query.in_realm(&query.with(|request| {
                let mut key = Vec::new();
                flatout_cache::search::write_path_key(request, &mut key);
                key
            }))
        };
        worker.accelerator().searches.learn(path_key, &stored);
        let key = worker.stored_key(query, stored.search.as_ref());
        let beside = stored_beside(store, &key, &stored);
        let ObjectInsertion { mut stored, name, body, trailers, superseded } =
            place(stored, (body, trailers.unwrap_or_default().into()), &beside)?;
        if trailers.is_empty() {
            // No trailers are sent when this response is served.
            stored.lines = without_trailer_field(&stored.lines).into();
        }
        let meta = Meta { trailers, ..self.meta_of(stored) };
        let object = StoredResponse::new(key, &name, meta, Arc::from(&b""[..]), body, generation);
        let (object, inserted) = store.insert(object, query.cache.rules.variants_max as usize);
        for other in superseded {
            store.remove_object(&other);
        }
        forget_sharing(store, query, &object, inserted);
        Some(object)
    }
}

/// Returns the entries under `key` that are relevant to storing `stored`, newest first: parts of any variant and, if
/// `stored` is a part, a whole response of the same variant.
fn stored_beside(store: &Store<Meta>, key: &ObjectKey, stored: &Stored) -> Vec<Arc<StoredResponse>> {
    let Some(bucket) = store.peek(key.hash(), key.as_bytes()) else { return Vec::new() };
    let is_whole = stored.extent == Extent::Whole;
    let concerns = |object: &&Arc<StoredResponse>| {
        let other = &object.meta().stored;
        other.search == stored.search
            && (object.is_part() || (!is_whole && other.variant_key == stored.variant_key))
            && store.check(object) != Purged::Hard
    };
    bucket.objects().iter().filter(concerns).cloned().collect()
}

/// An object to insert, and the objects that it supersedes.
struct ObjectInsertion {
    stored: Stored,
    name: Vec<u8>,
    body: StoredBody,
    trailers: Box<[u8]>,
    superseded: Vec<Arc<StoredResponse>>,
}

/// Decides how to store a response alongside `beside`, the stored responses of its key.
fn place(
    stored: Stored,
    (body, trailers): (StoredBody, Box<[u8]>),
    beside: &[Arc<StoredResponse>],
) -> Option<ObjectInsertion> {
    let variant_key = stored.variant_key.clone();
    let is_same = |object: &&Arc<StoredResponse>| object.meta().stored.variant_key == variant_key;
    let (mine, others): (Vec<_>, Vec<_>) = beside.iter().partition(is_same);
    let is_inline = |body: &StoredBody| matches!(body, StoredBody::Memory(_));
    let held: Vec<_> =
        mine.iter().map(|object| Held { stored: &object.meta().stored, is_inline: is_inline(object.body()) }).collect();
    let Placing { stored, content, superseded } = decide_placing(&held, stored, is_inline(&body));
    let mut gone: Vec<_> =
        superseded.iter().filter_map(|&index| mine.get(index)).map(|&object| object.clone()).collect();
    // All variants of a key share the limit on parts.
    if part_of(&stored).is_some() {
        let room = PARTS_MAX.saturating_sub(mine.len().saturating_sub(gone.len()) + 1);
        gone.extend(others.iter().skip(room).map(|&object| object.clone()));
    }
    let (body, name, trailers) = match content {
        PlacedContent::New => (body, name_of(&stored), trailers),
        PlacedContent::Held(index) => {
            let object = mine.get(index)?;
            (object.body().clone(), object.variant().to_vec(), object.meta().trailers.clone())
        }
        PlacedContent::Joined(pieces) => (join(&stored, &body, &mine, &pieces)?, name_of(&stored), Box::default()),
    };
    Some(ObjectInsertion { stored, name, body, trailers, superseded: gone })
}

/// Joins the content of `pieces`. `body` is the content of the new response. Returns `None` if some content is missing
/// or not in memory.
fn join(
    stored: &Stored,
    body: &StoredBody,
    mine: &[&Arc<StoredResponse>],
    pieces: &[JoinedPiece],
) -> Option<StoredBody> {
    let mut joined = Vec::new();
    for piece in pieces {
        let (StoredBody::Memory(bytes), first) = (match piece.from {
            None => (body, piece.part.first),
            Some(index) => {
                let object = mine.get(index)?;
                (object.body(), part_of(&object.meta().stored)?.first)
            }
        }) else {
            return None;
        };
        let start = usize::try_from(piece.part.first.checked_sub(first)?).ok()?;
        let end = start.checked_add(usize::try_from(piece.part.len()).ok()?)?;
        joined.extend_from_slice(bytes.get(start..end)?);
    }
    let is_whole = stored.content_bytes().is_none_or(|bytes| bytes == joined.len() as u64);
    is_whole.then(|| StoredBody::Memory(joined.into()))
}
