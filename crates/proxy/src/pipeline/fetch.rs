//! Fetches for the cache: upstream requests and the handling of their responses.
//!
//! A shared fetch is a separate task on the worker that started it, so that it continues for other clients if the first
//! client disconnects.

mod conditions;
mod hanging;
mod keeping;
mod pumping;
mod separation;

use crate::exchange::{Answered, Manner, SendMark, ask_origin, cut_reason};
use crate::fill::{FetchState, FillHead, FillStorage, FillWriter, Interest, Use};
use crate::forward::{Return, Strip, forwarded_trailers, write_response_lines};
use crate::growing::MEMORY_BYTES_MAX;
use crate::meta::{Meta, StoredResponse};
use crate::parts::PartSet;
use crate::query::Query;
use crate::ranges;
use crate::worker::ProxyWorker;
pub(crate) use conditions::FetchConditions;
use flatout_cache::decision::{OriginFailureKind, Verdict, decide_failure};
use flatout_cache::reason::NoStore;
use flatout_cache::storable::{Ending, OriginResponse, Storing, decide_response};
use flatout_cache::stored::Stored;
use flatout_cache::tags::write_group_tag;
use flatout_cache::targeted::without_named_fields;
use flatout_cache::validate::{Freshening, freshen};
use flatout_handler::budget::{Budget, BudgetUser, Held};
use flatout_handler::content::Interims;
use flatout_handler::ending::CloseReason;
use flatout_handler::routed::Refusal;
use flatout_http::head::FieldStorage;
use flatout_http::lines;
use flatout_http::ranges::ByteRange;
use flatout_http::status::has_content;
use flatout_os::clock::{Now, monotonic_ms};
use flatout_store::{Purged, Store};
use flatout_upstream::origin::{Incoming, IncomingPiece, OutgoingContent};
use hanging::AttemptEnd;
use pumping::Pumping;
use separation::{Separation, earlier_misfit, forget_sharing, remember_sharing};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use tokio::sync::oneshot;
use tokio::task::spawn_local;

/// Result of a fetch, for the client that started it.
pub(crate) enum FetchResult {
    /// A response for this client only, and the reason for not storing it.
    Own(Box<Answered>, NoStore),
    /// The response is shared. Read it from the fill.
    Shared,
}

/// A fetch: an upstream request whose response may be stored.
pub(crate) struct Fetch {
    pub(crate) query: Rc<Query>,
    /// The stored response, which is to be validated or may be used if the origin fails.
    pub(crate) kept: Option<Arc<StoredResponse>>,
    /// Additions to the upstream request.
    pub(crate) question: FetchConditions,
    pub(crate) interims: Option<Interims>,
}

impl Fetch {
    /// Fetches into `writer`, and sends the result to the client that started the fetch through `direct`. If `direct`
    /// is `None`, no client waits, but the fetch continues to the end.
    pub(crate) async fn run(
        self,
        worker: Rc<ProxyWorker>,
        writer: FillWriter,
        direct: Option<oneshot::Sender<FetchResult>>,
    ) {
        let wanted = direct.is_none();
        let began_ms = monotonic_ms();
        let result = {
            let mut asking = pin!(self.ask_noting_hangs(&worker, &writer));
            poll_fn(|context| {
                if let Poll::Ready(result) = asking.as_mut().poll(context) {
                    return Poll::Ready(Some(result));
                }
                if !wanted && writer.poll_abandoned(context).is_ready() {
                    return Poll::Ready(None);
                }
                Poll::Pending
            })
            .await
        };
        match result {
            // No client is waiting any more, so cancel the request.
            None => {
                self.note_abandoned(began_ms);
                writer.settle(FetchState::Released);
            }
            Some(Asked::Settled(standing)) => {
                writer.settle(standing);
                tell(direct, FetchResult::Shared);
            }
            Some(Asked::Unshared(answered, reason)) => {
                writer.settle(FetchState::Released);
                tell(direct, FetchResult::Own(answered, reason));
            }
            Some(Asked::Shared(answered, stored, generation)) => {
                let head = self.fill_head(&worker, &answered, &stored, generation);
                let storage = head.storage.clone();
                writer.begin(head);
                tell(direct, FetchResult::Shared);
                let wanted = wanted || self.query.fetches_whole();
                self.pump(&worker, writer, *answered, *stored, generation, (wanted, storage)).await;
            }
        }
    }

    /// Sends the request. If a 304 does not apply to the stored response, repeats the request without conditions.
    pub(crate) async fn ask(&self, worker: &Rc<ProxyWorker>) -> Asked {
        let mut question = &self.question;
        let plain = FetchConditions::NONE;
        loop {
            let now = Now::read();
            let mark = self.query.ask.mark.take().unwrap_or_else(|| SendMark::read(worker, now.unix_s));
            let SendMark { generation, invalidations, unix_s: request_time_s } = mark;
            let asks_itself = !question.is_none() && !question.keeps_range;
            let strip = if asks_itself || self.query.fetches_whole() || self.query.cache.esi {
                Strip::CONDITIONS.and(Strip::RANGE)
            } else {
                Strip::CONDITIONS
            };
            // A partial or encoded template cannot be composed.
            let strip = if self.query.cache.esi { strip.and(Strip::ENCODING) } else { strip };
            let mut extra = question.conditions.as_ref().map_or_else(Vec::new, |conditions| conditions.0.clone());
            if let Some(missing) = question.stretch {
                lines::write_line(b"Range", write_range(missing).as_bytes(), &mut extra);
            }
            self.query.cache.write_capability(&mut extra);
            let manner = Manner { strip, extra: &extra, method: None };
            let (step, ask) = (&self.query.step, &self.query.ask);
            let asked = ask_origin(worker, step, ask, OutgoingContent::None, manner, self.interims.as_ref()).await;
            self.note_attempt(
                now.monotonic_ms,
                match &asked {
                    Ok(answered) => AttemptEnd::Response(answered.incoming.status),
                    Err(refused) => AttemptEnd::Refusal(refused.status),
                },
            );
            let answered = match asked {
                Ok(answered) => answered,
                Err(refused) => return self.settle_failure(worker, invalidations, refused),
            };
            let times = (request_time_s, Now::read().unix_s);
            let status = answered.incoming.status;
            if let (Some(set), Some(missing)) = (&question.set, question.stretch)
                && let Some(decided) = self.decide_stretch(worker, &answered.incoming, times, (set, missing))
            {
                return match decided {
                    Ok(stored) => Asked::Shared(Box::new(answered), stored, generation),
                    Err(standing) => Asked::Settled(standing),
                };
            }
            if self.query.fetches_whole()
                && status == 200
                && !self.may_be_fetched_whole(worker, &answered.incoming, times)
            {
                if let Some(fetch) = self.query.range_fetch.borrow().as_ref() {
                    fetch.count(ranges::GIVEN_UP_BYTES, Now::read().monotonic_ms);
                }
                // From now on, forward requests for ranges of this response individually for some time.
                if let Some(store) = worker.store() {
                    store.mark_ranges(self.query.key.hash(), ranges::marker(Now::read().monotonic_ms));
                }
                return Asked::Settled(FetchState::Released);
            }
            if status == 304
                && let (Some(kept), true) = (&self.kept, question.conditions.is_some() && question.stretch.is_none())
            {
                if let Some(standing) =
                    self.handle_not_modified(worker, kept, &answered.incoming, times, (generation, invalidations))
                {
                    return Asked::Settled(standing);
                }
                question = &plain;
                continue;
            }
            if status >= 500
                && let Some(kept) = &self.kept
                && self.may_stand_in(kept, OriginFailureKind::Status(status))
                && !is_revoked(worker, &self.query, kept, invalidations)
            {
                return Asked::Settled(FetchState::Use(Arc::clone(kept), Use::InsteadOfError));
            }
            let asked = self.decide(worker, answered, times, generation);
            // Another request may succeed, unless access to the resource is now restricted.
            let is_of_request = |reason| reason == NoStore::StatusOfRequest && !matches!(status, 401 | 403);
            if let (Asked::Unshared(_, reason), false, true, Some(store)) =
                (&asked, question.is_none(), status < 500, worker.store())
                && !is_of_request(*reason)
            {
                // The new response must not be stored, so the stored one is obsolete.
                self.drop_kept(store);
            }
            return asked;
        }
    }

    /// Returns whether to fetch and store the whole response, whose head has arrived, on behalf of a range request.
    fn may_be_fetched_whole(&self, worker: &ProxyWorker, incoming: &Incoming, times: (i64, i64)) -> bool {
        let query = &self.query;
        let storing = with_response(incoming, times, |response| {
            query.with(|request| decide_response(request, response, &query.cache.rules))
        });
        let Some(length) = content_length(incoming).filter(|_| matches!(storing, Storing::Store(_))) else {
            return false;
        };
        let has_room = |budget: &Budget| length <= MEMORY_BYTES_MAX || budget.has_room(length);
        length <= query.cache.range_fetch_bytes_max
            && has_room(worker.accelerator().budget())
            && query.range_fetch.borrow().as_ref().is_some_and(|fetch| fetch.charge(length, Now::read().monotonic_ms))
    }

    /// Decides how to use the response to a request for the range `missing` of `set`. Returns the metadata if it may be
    /// stored and shared, or the result of the fetch if not. Returns `None` if the response must be handled like a
    /// response to the client's own request.
    fn decide_stretch(
        &self,
        worker: &ProxyWorker,
        incoming: &Incoming,
        times: (i64, i64),
        (set, missing): (&PartSet, ByteRange),
    ) -> Option<Result<Box<Stored>, FetchState>> {
        if !matches!(incoming.status, 206 | 416) {
            return None;
        }
        let query = &self.query;
        let storing = with_response(incoming, times, |response| {
            let response = OriginResponse { is_stretch: true, ..*response };
            query.with(|request| decide_response(request, &response, &query.cache.rules))
        });
        Some(match storing {
            Storing::Store(stored) if set.supplies(&stored, missing) => Ok(stored),
            // The representation has changed or must not be stored: let clients send their own requests.
            _ => {
                if let Some(store) = worker.store() {
                    set.remove(store);
                }
                Err(FetchState::Released)
            }
        })
    }

    /// Removes the stored response or parts from the store.
    fn drop_kept(&self, store: &Store<Meta>) {
        match (&self.question.set, &self.kept) {
            (Some(set), _) => set.remove(store),
            (None, Some(kept)) => {
                store.remove_object(kept);
            }
            (None, None) => {}
        }
    }

    /// Returns the result of a fetch whose request failed. `since` is the number of invalidations before it was sent.
    fn settle_failure(&self, worker: &ProxyWorker, since: u64, refused: Refusal) -> Asked {
        Asked::Settled(match &self.kept {
            Some(kept)
                if self.may_stand_in(kept, OriginFailureKind::Unreachable)
                    && !is_revoked(worker, &self.query, kept, since) =>
            {
                FetchState::Use(Arc::clone(kept), Use::InsteadOfError)
            }
            _ => FetchState::Failed(refused),
        })
    }

    fn may_stand_in(&self, kept: &StoredResponse, failure: OriginFailureKind) -> bool {
        // If there are several parts, each request checks whether they suffice.
        let stored = self.question.set.as_ref().map_or(&kept.meta().stored, |set| set.whole());
        may_stand_in(&self.query, kept, stored, failure)
    }

    /// Applies a 304 to the stored response. Returns `None` if the 304 applies to a different response.
    fn handle_not_modified(
        &self,
        worker: &ProxyWorker,
        kept: &Arc<StoredResponse>,
        incoming: &Incoming,
        times: (i64, i64),
        (generation, invalidations): (u64, u64),
    ) -> Option<FetchState> {
        let store = worker.store()?;
        let query = &self.query;
        let freshening = with_response(incoming, times, |response| {
            query.with(|request| freshen(request, &kept.meta().stored, response, &query.cache.rules))
        });
        let again = |stored: Box<Stored>| {
            let mut meta = kept.meta().freshened(*stored);
            meta.trailers = self.shared_trailers(&meta.trailers, &meta.stored).as_deref().unwrap_or_default().into();
            StoredResponse::new(
                kept.key().clone(),
                kept.variant(),
                meta,
                Arc::from(&b""[..]),
                kept.body().clone(),
                generation,
            )
        };
        let prefix = query.fetch_prefix();
        let is_invalidated = || worker.accelerator().fills.is_invalidated_since(invalidations, &prefix);
        match freshening {
            // The response was invalidated during the validation (RFC 9111 §4.4) or replaced by a newer one: serve it
            // to waiting clients, but do not store it.
            Freshening::Fresh(stored) if kept.is_replaced() || is_invalidated() => {
                Some(FetchState::Use(Arc::new(again(stored)), Use::Validated))
            }
            Freshening::Fresh(stored) => {
                remember_sharing(worker, query, &stored);
                let (object, inserted) = store.insert(again(stored), query.cache.rules.variants_max as usize);
                forget_sharing(store, query, &object, inserted);
                // The response may have been invalidated between the check above and the insertion.
                if is_invalidated() {
                    store.remove_object(&object);
                }
                Some(FetchState::Use(object, Use::Validated))
            }
            Freshening::FreshOnce(stored, reason) => {
                worker.note_not_kept(query, reason, 304);
                self.drop_kept(store);
                Some(FetchState::Use(Arc::new(again(stored)), Use::ValidatedOnce))
            }
            Freshening::Mismatch(_) => {
                self.drop_kept(store);
                None
            }
        }
    }

    pub(crate) fn decide(&self, worker: &ProxyWorker, answered: Answered, times: (i64, i64), generation: u64) -> Asked {
        let query = &self.query;
        let storing = with_response(&answered.incoming, times, |response| {
            query.with(|request| decide_response(request, response, &query.cache.rules))
        });
        let Some(store) = worker.store() else { return Asked::Unshared(Box::new(answered), NoStore::Off) };
        match note_storing(worker, query, answered.incoming.status, storing) {
            Ok(stored) => {
                remember_sharing(worker, query, &stored);
                Asked::Shared(Box::new(answered), stored, generation)
            }
            Err((reason, is_remembered)) => {
                if is_remembered {
                    // The origin's response has changed, so the stored one is obsolete.
                    self.drop_kept(store);
                }
                Asked::Unshared(Box::new(answered), reason)
            }
        }
    }

    pub(crate) fn fill_head(
        &self,
        worker: &ProxyWorker,
        answered: &Answered,
        stored: &Stored,
        generation: u64,
    ) -> FillHead {
        let (incoming, served) = (&answered.incoming, answered.hold.index());
        let length = content_length(incoming);
        let mut lines = Vec::with_capacity(512);
        let mut storage = FieldStorage::new();
        let fields = incoming.fields(&mut storage);
        // RFC 9110 §6.6.1: a recipient adds Date if it is missing.
        let keep_length = length.is_some();
        let date_s = Some(stored.response_time_s);
        let back = Return { version: incoming.version, keep_length, keep_upgrade: false, date_s };
        write_response_lines(fields, &self.query.step.settings, &back, &mut lines);
        if let Some(length) = length.filter(|_| incoming.content_length.is_none() && has_content(incoming.status)) {
            // The content was chunked, but all of it arrived with the head, so its length is known.
            lines::write_line(b"Content-Length", length.to_string().as_bytes(), &mut lines);
        }
        let bytes_max = self.query.cache.rules.object_bytes_max;
        let unkept = match length {
            Some(length) => Pumping::decide_room(worker, length, bytes_max),
            None => earlier_misfit(worker, &self.query),
        };
        let (meta, storage) = (self.meta_of(stored.clone()), FillStorage::new(unkept));
        FillHead { meta, lines: lines.into(), length, storage, generation, served }
    }

    fn meta_of(&self, stored: Stored) -> Meta {
        let group_tags = self.query.with(|request| {
            let tag = |group: &[u8]| {
                let mut tag = Vec::new();
                write_group_tag(request, group, &mut tag);
                Box::from(tag)
            };
            stored.groups.iter().map(tag).collect()
        });
        Meta { stored, group_tags, trailers: Box::default() }
    }

    /// Returns the trailer field lines among `lines` that may be stored and shared with other clients. The directives of
    /// the response apply to trailer fields as to header fields.
    fn shared_trailers(&self, lines: &[u8], stored: &Stored) -> Option<Rc<[u8]>> {
        let lines = forwarded_trailers(lines, &[])?;
        let shared = without_named_fields(&lines, &stored.lines, &self.query.cache.rules);
        (!shared.is_empty()).then(|| shared.into())
    }

    /// Streams the response to the client that fetched it, and stores it. `since` is the number of
    /// invalidations before the request was sent, of which `own` were made by the request itself.
    pub(super) fn stream(
        self,
        worker: &Rc<ProxyWorker>,
        answered: Answered,
        stored: Stored,
        generation: u64,
        (since, own): (u64, usize),
    ) -> (Arc<FillHead>, Interest) {
        let fills = &worker.accelerator().fills;
        let prefix = self.query.fetch_prefix();
        let writer = fills.begin_alone(&prefix);
        if fills.is_invalidated_again_since(since, &prefix, own) {
            writer.invalidate();
        }
        let interest = writer.join();
        let head = Arc::new(self.fill_head(worker, &answered, &stored, generation));
        let (worker, storage) = (Rc::clone(worker), head.storage.clone());
        spawn_local(async move { self.pump(&worker, writer, answered, stored, generation, (false, storage)).await });
        (head, interest)
    }

    /// Passes the content from the origin to all readers, and stores it when it is complete. If `wanted` is true,
    /// continues even without readers. `storage` is that of the head.
    pub(crate) async fn pump(
        &self,
        worker: &Rc<ProxyWorker>,
        writer: FillWriter,
        answered: Answered,
        stored: Stored,
        generation: u64,
        (wanted, storage): (bool, FillStorage),
    ) {
        let Answered { incoming, mut hold, .. } = answered;
        let length = content_length(&incoming);
        // Release the head, since its buffer also contains the beginning of the content.
        let mut body = incoming.into_body();
        let held = Held::new(Arc::clone(worker.accelerator().budget()), BudgetUser::Fills);
        writer.add_last(|content| content.count_by(held));
        // The beginning of a response that is too large may be stored if its length is known.
        let known = storage.unkept.filter(|reason| *reason == NoStore::NoRoom || length.is_none());
        let (logged, separation) = (storage.logged, Separation::of(&self.query));
        let mut pumping = Pumping { writer, body: None, unkept: None, logged, wanted, length, separation };
        if let Some(reason) = known {
            pumping.stop_storing(worker, reason);
            worker.note_not_kept(&self.query, reason, stored.status);
        }
        let bytes_max = self.query.cache.rules.object_bytes_max;
        let client = worker.client(&self.query.step);
        let ended = loop {
            let piece = pumping.next(&mut body).await;
            match piece {
                None => break Err(CloseReason::OriginTruncated),
                Some(IncomingPiece::Bytes(bytes)) => {
                    let before = pumping.unkept;
                    pumping.add(worker, &client, bytes, bytes_max).await;
                    if let (None, Some(reason)) = (before, pumping.unkept) {
                        worker.note_not_kept(&self.query, reason, stored.status);
                    }
                }
                Some(IncomingPiece::End(trailers)) => {
                    drop(hold);
                    break Ok(trailers.and_then(|trailers| self.shared_trailers(&trailers, &stored)));
                }
                Some(IncomingPiece::Failed(failure)) => {
                    hold.report_cut(failure);
                    self.note_incomplete(worker, &pumping, stored.status);
                    break Err(cut_reason(failure));
                }
            }
        };
        match ended {
            Ok(trailers) => {
                self.finish(worker, &mut pumping, stored, generation, trailers.as_deref());
                pumping.writer.end(trailers.as_deref().map(Arc::from));
            }
            Err(reason) => {
                self.keep_beginning(worker, &mut pumping, &stored, generation);
                pumping.writer.cut(reason);
            }
        }
        Pumping::release(worker, pumping.body);
    }
}

/// Returns whether the stored response `kept` has been purged, or invalidated since the number of invalidations was
/// `since`. It must then not be served without validation.
pub(super) fn is_revoked(worker: &ProxyWorker, query: &Query, kept: &StoredResponse, since: u64) -> bool {
    worker.store().is_none_or(|store| store.check(kept) == Purged::Hard)
        || worker.accelerator().fills.is_invalidated_since(since, &query.fetch_prefix())
}

/// Returns whether the stored response `kept`, with the metadata `stored`, may be served to `query` after `failure`.
pub(super) fn may_stand_in(query: &Query, kept: &StoredResponse, stored: &Stored, failure: OriginFailureKind) -> bool {
    let now_s = Now::read().unix_s;
    let expired = kept.is_soft_purged().then(|| stored.expired(now_s));
    let stored = expired.as_ref().unwrap_or(stored);
    let verdict = query.with(|request| decide_failure(request, stored, failure, &query.cache.rules, now_s));
    matches!(verdict, Verdict::ServeStale { .. } | Verdict::Serve { .. })
}

/// Counts and records a response with `status` if it is not stored. Returns the metadata to store, or the reason for
/// not storing the response and whether its key was marked as hit-for-miss.
pub(crate) fn note_storing(
    worker: &ProxyWorker,
    query: &Query,
    status: u16,
    storing: Storing,
) -> Result<Box<Stored>, (NoStore, bool)> {
    let (reason, seconds) = match storing {
        Storing::Store(stored) => return Ok(stored),
        Storing::No(reason) => (reason, None),
        Storing::Remember(reason, seconds) => (reason, Some(seconds)),
    };
    worker.note_not_kept(query, reason, status);
    if let Some(seconds) = seconds {
        Separation::lasting(query, seconds).mark(worker, reason);
    }
    Err((reason, seconds.is_some()))
}

/// Returns the value of Range for `part`.
pub(crate) fn write_range(part: ByteRange) -> String {
    format!("bytes={}-{}", part.first, part.last)
}

/// Result of an upstream request of a fetch.
pub(crate) enum Asked {
    /// The fetch has ended, and there is no content to stream.
    Settled(FetchState),
    /// The response is for one client only.
    Unshared(Box<Answered>, NoStore),
    /// The response may be shared: its metadata, and the store generation before the request.
    Shared(Box<Answered>, Box<Stored>, u64),
}

fn tell(direct: Option<oneshot::Sender<FetchResult>>, said: FetchResult) {
    if let Some(direct) = direct {
        // If the client has disconnected, its response is dropped.
        let _ = direct.send(said);
    }
}

/// Returns the length of the content in bytes, if Content-Length states it or all content has been received. Returns
/// `None` for chunked content with trailers, because trailers require chunked transfer coding over HTTP/1.1 (RFC 9112
/// §7.1.2).
pub(crate) fn content_length(incoming: &Incoming) -> Option<u64> {
    match incoming.body.whole() {
        Some((whole, None)) => Some(whole.len() as u64),
        _ => incoming.content_length,
    }
}

/// Calls `look` with the response in the form that `flatout_cache` requires.
pub(crate) fn with_response<T>(
    incoming: &Incoming,
    (request_time_s, response_time_s): (i64, i64),
    look: impl FnOnce(&OriginResponse<'_>) -> T,
) -> T {
    let mut storage = FieldStorage::new();
    let fields = incoming.fields(&mut storage);
    let ending = match (incoming.content_length, incoming.ends_with_connection) {
        (_, true) => Ending::Close,
        (Some(length), _) => Ending::Length(length),
        (None, _) => Ending::Framed,
    };
    let status = incoming.status;
    look(&OriginResponse { status, fields, request_time_s, response_time_s, ending, is_stretch: false })
}
