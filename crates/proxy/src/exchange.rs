//! Upstream request to a group of origins: selects an origin, waits for a permit, and retries if that is safe.

use crate::accelerator::Accelerator;
use crate::forward::upgrade::{self, WebSocketKey};
use crate::forward::{Passage, Strip, forwarded_trailers, retry, write_interim_lines, write_request_lines};
use crate::outcome::ForwardOutcome;
use crate::outcome::origin_failed;
use crate::rules::CacheStep;
use crate::step::ProxyStep;
use crate::sticky::Affinity;
use crate::worker::ProxyWorker;
use flatout_balance::group::{Ending, Preference, Ticket, Tried, hash_request};
use flatout_balance::limit::{Permit, Sample};
use flatout_cache::key::write_query;
use flatout_cache::rules::QueryKey;
use flatout_handler::Request;
use flatout_handler::content::{InterimResponse, Interims};
use flatout_handler::ending::CloseReason;
use flatout_handler::owned::OwnedRequest;
use flatout_handler::response::Segment;
use flatout_handler::routed::Refusal;
use flatout_handler::stream::{ContentEvent, ContentSource};
use flatout_http::framing::Version;
use flatout_http::proxy_protocol::ProxyClient;
use flatout_os::clock::{Now, precise_ns};
use flatout_upstream::origin::{
    ExchangeFailure, Incoming, IncomingBody, IncomingPiece, OriginClient, OriginFailure, OutgoingContent,
    OutgoingRequest, Repeat,
};
use flatout_upstream::permit::wait_for_permit;
use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

/// An upstream request.
pub(crate) struct UpstreamRequest {
    /// The client's request. Its addendum is the path and query sent to the origin.
    pub(crate) request: OwnedRequest,
    /// Length of the path in the addendum in bytes: the offset of `?`, or of the end.
    pub(crate) path_bytes: usize,
    /// Value of Upgrade, if it is forwarded.
    pub(crate) upgrade: Option<Box<[u8]>>,
    /// Key for the WebSocket handshake with the origin, if the client's handshake has none because it uses HTTP/2 or
    /// later.
    pub(crate) websocket_key: Option<WebSocketKey>,
    /// The properties that decide which origin is selected.
    pub(crate) preference: Preference,
    /// Address of the client that sent the request first, if it is known.
    pub(crate) client: Option<IpAddr>,
    /// The client's session; `None` if the response must not set the cookie for it.
    pub(crate) affinity: Option<Affinity>,
    /// Progress made before the response future was polled.
    pub(crate) begun: Cell<Option<Box<Begun>>>,
    /// State recorded before the attempt in `begun` was sent.
    pub(crate) mark: Cell<Option<SendMark>>,
}

/// State of the cache and the clock before a request is sent. Used to apply purges that occur before the response
/// arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendMark {
    /// Generation of the store.
    pub(crate) generation: u64,
    /// Number of invalidations of fetches so far.
    pub(crate) invalidations: u64,
    /// The time, in seconds since 1970.
    pub(crate) unix_s: i64,
}

impl SendMark {
    /// Records the current state. `unix_s` is the current time in seconds since 1970.
    pub(crate) fn read(worker: &ProxyWorker, unix_s: i64) -> Self {
        let generation = worker.store().map_or(0, |store| store.generation());
        Self { generation, invalidations: worker.accelerator().fills.invalidations(), unix_s }
    }
}

/// Progress of an upstream request.
#[derive(Debug, Default)]
pub(crate) struct Begun {
    tried: Tried,
    attempts: u8,
    /// Time of the first attempt in milliseconds of the monotonic clock; `None` before it.
    first_ms: Option<u64>,
    /// True if a head timeout has passed, and another origin got the request with a head timeout of its own.
    has_moved: bool,
    last: Option<Refusal>,
    /// The origin selected for the next attempt, and its permit if one has been acquired.
    place: Option<(Ticket, Option<Permit>)>,
    /// True if a pooled connection turned out to be closed: the next attempt opens a new connection instead of using
    /// another pooled one.
    afresh: bool,
    /// An attempt whose result has not been handled yet.
    attempt: Option<Attempt>,
}

/// An attempt that has resulted in a response head or a failure.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) result: Result<Incoming, ExchangeFailure>,
    pub(crate) ticket: Ticket,
    pub(crate) permit: Permit,
    /// When the request was sent, in nanoseconds of the precise monotonic clock.
    pub(crate) sent_ns: u64,
}

impl Begun {
    /// Creates progress for a request whose first origin is selected, possibly with a permit.
    pub(crate) fn with_place(ticket: Ticket, permit: Option<Permit>) -> Self {
        Self { place: Some((ticket, permit)), ..Self::default() }
    }

    /// Creates progress for a request whose attempt on a pooled connection, begun at `first_ms`, failed because the
    /// connection was closed.
    pub(crate) fn with_kept_tried(ticket: Ticket, permit: Permit, first_ms: u64) -> Self {
        Self { afresh: true, first_ms: Some(first_ms), ..Self::with_place(ticket, Some(permit)) }
    }

    /// Creates progress for a request whose first attempt has ended but not been handled yet.
    pub(crate) fn with_attempt(attempt: Attempt) -> Self {
        Self { first_ms: Some(attempt.sent_ns / 1_000_000), attempt: Some(attempt), ..Self::default() }
    }
}

impl UpstreamRequest {
    /// Returns the client for a PROXY header. If a trusted proxy has named the client without a port, the
    /// port is 0.
    pub(crate) fn proxy_client(&self) -> ProxyClient {
        let Some(client) = self.client.map(|client| client.to_canonical()) else { return ProxyClient::Hidden };
        let peer = self.request.client().filter(|peer| peer.ip().to_canonical() == client);
        ProxyClient::At(SocketAddr::new(client, peer.map_or(0, |peer| peer.port())))
    }

    /// Copies from `request` the data needed for the upstream request. `path` and `query` are those to send. `affinity`
    /// selects the origin of the client's session, or is `None` if any origin will do. `client` is the result of
    /// [`ProxyStep::original_client`].
    pub(crate) fn new(
        step: &ProxyStep,
        cache: Option<&CacheStep>,
        request: &Request<'_>,
        (path, query): (&[u8], Option<&[u8]>),
        (client, affinity): (Option<IpAddr>, Option<Affinity>),
    ) -> Self {
        // Parameters excluded from the key are removed from the request.
        let rule = cache.map_or(&QueryKey::All, |cache| &cache.rules.query);
        let owned = OwnedRequest::with_addendum(request, |target| {
            target.extend_from_slice(path);
            let path_end = target.len();
            target.push(b'?');
            if !write_query(query, rule, target) {
                target.truncate(path_end);
            }
        });
        let upgrade = upgrade::asks(request.head, &step.settings);
        let is_connect = upgrade.is_some() && request.head.version > Version::Http11;
        let websocket_key = if is_connect { WebSocketKey::random() } else { None };
        let upgrade = upgrade.filter(|_| !is_connect || websocket_key.is_some());
        Self {
            preference: Preference {
                key_hash: hash_request(step.group.balance(), request, client),
                origin: affinity.and_then(|affinity| affinity.origin),
            },
            client,
            affinity,
            request: owned,
            path_bytes: path.len(),
            upgrade: upgrade.map(Into::into),
            websocket_key,
            begun: Cell::new(None),
            mark: Cell::new(None),
        }
    }

    /// Returns the path and query sent to the origin.
    pub(crate) fn target(&self) -> &[u8] {
        self.request.addendum()
    }

    /// Returns the path, and the query without `?`, sent to the origin.
    pub(crate) fn path_and_query(&self) -> (&[u8], Option<&[u8]>) {
        let (path, rest) = self.target().split_at(self.path_bytes.min(self.target().len()));
        (path, rest.get(1..))
    }
}

/// Differences between the client's request and the upstream request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manner<'a> {
    /// Client fields to omit.
    pub(crate) strip: Strip,
    /// Field lines to add.
    pub(crate) extra: &'a [u8],
    /// The method, if it differs from the client's.
    pub(crate) method: Option<&'a str>,
}

/// Head of a final response, with its body and the resources held for it.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) incoming: Incoming,
    pub(crate) hold: Hold,
    /// True if an earlier attempt at this request failed.
    pub(crate) again: bool,
}

/// Reports a truncated response as a failure of its origin.
#[derive(Debug)]
struct OriginReporter {
    accelerator: Arc<Accelerator>,
    /// Weak, because a tunnel may outlive its step.
    step: Weak<ProxyStep>,
}

/// The permit and ticket of a request, held until the response is complete.
#[derive(Debug)]
pub(crate) struct Hold {
    ticket: Ticket,
    watch: OriginReporter,
    /// `None` for a tunnel, which may last for days and no longer counts against the concurrency limit.
    _permit: Option<Permit>,
    /// Client whose timers a tunnel uses; `None` unless the response is a tunnel.
    client: Option<OriginClient>,
}

impl Hold {
    /// Reports a response head with `status`, received `delay_us` microseconds after the request was sent.
    pub(crate) fn new(
        worker: &ProxyWorker,
        step: &Arc<ProxyStep>,
        (mut ticket, mut permit): (Ticket, Permit),
        status: u16,
        delay_us: u64,
    ) -> Self {
        report_answer(worker, step, &mut ticket, &mut permit, status, delay_us);
        let watch = OriginReporter { accelerator: worker.shared(), step: Arc::downgrade(step) };
        let client = (status == 101).then(|| worker.client(step));
        Self { ticket, watch, _permit: (status != 101).then_some(permit), client }
    }

    /// Returns the index of the origin that has responded.
    pub(crate) const fn index(&self) -> usize {
        self.ticket.index()
    }

    /// Takes the client whose timers a tunnel uses. Returns `None` on later calls.
    pub(crate) fn take_client(&mut self) -> Option<OriginClient> {
        self.client.take()
    }

    /// Reports that the response was truncated.
    pub(crate) fn report_cut(&mut self, failure: ExchangeFailure) {
        if failure.failure.is_origin_fault() {
            let now_ms = Now::read().monotonic_ms;
            let change = self.ticket.report(Ending::Failed, now_ms);
            if let Some(step) = self.watch.step.upgrade() {
                let index = self.ticket.index();
                self.watch.accelerator.tell_failure(&step, index, (failure.failure, change), now_ms);
            }
        }
    }
}

/// Sends a request to the origins of `step`, retrying if permitted. Interim responses are forwarded to `interims`.
pub(crate) async fn ask_origin(
    worker: &ProxyWorker,
    step: &Arc<ProxyStep>,
    ask: &UpstreamRequest,
    mut content: OutgoingContent,
    manner: Manner<'_>,
    interims: Option<&Interims>,
) -> Result<Answered, Refusal> {
    let method = manner.method.unwrap_or(ask.request.method());
    let mut begun = ask.begun.take().unwrap_or_default();
    let mut lines = Vec::new();
    loop {
        // The fast path may have made the first attempt.
        let attempt = match begun.attempt.take() {
            Some(attempt) => attempt,
            None => begun.send(worker, step, ask, &mut content, &manner, (&mut lines, interims)).await?,
        };
        let Attempt { result, ticket, permit, sent_ns } = attempt;
        match result {
            Ok(incoming) => {
                // The client's upload is no work of the origin.
                let asked_ns = content.arrived_ms().map_or(sent_ns, |ms| sent_ns.max(ms.saturating_mul(1_000_000)));
                let delay_us = precise_ns().saturating_sub(asked_ns) / 1000;
                step.versions.note(ticket.index(), incoming.version, incoming.status);
                let hold = Hold::new(worker, step, (ticket, permit), incoming.status, delay_us);
                return Ok(Answered { incoming, hold, again: begun.attempts > 0 });
            }
            Err(failure) => {
                begun.handle_failure(worker, step, (ticket, permit), (method, &content), failure)?;
            }
        }
    }
}

/// Minimum time left for another attempt, in milliseconds. Larger than the error of the clocks.
const LEFT_MS_MIN: u64 = 20;

/// Creates the interim response for the client from the origin's field `lines`.
pub(crate) fn interim(status: u16, lines: &[u8]) -> InterimResponse {
    let mut passed = Vec::with_capacity(lines.len());
    write_interim_lines(lines, &mut passed);
    InterimResponse { status, lines: passed.into() }
}

impl Begun {
    /// Selects the next origin. When all origins have been tried, starts again from the first choice. Returns `None` if
    /// no origin is available.
    fn choose(&mut self, step: &ProxyStep, preference: Preference, now_ms: u64) -> Option<(Ticket, Option<Permit>)> {
        let chosen = step.group.choose(now_ms, preference, &self.tried).or_else(|| {
            self.tried = Tried::NONE;
            step.group.choose(now_ms, preference, &self.tried)
        });
        Some((chosen?, None))
    }

    /// Makes the next attempt. `lines` is a buffer for the request's field lines.
    async fn send(
        &mut self,
        worker: &ProxyWorker,
        step: &Arc<ProxyStep>,
        ask: &UpstreamRequest,
        content: &mut OutgoingContent,
        manner: &Manner<'_>,
        (lines, interims): (&mut Vec<u8>, Option<&Interims>),
    ) -> Result<Attempt, Refusal> {
        let client = worker.client(step);
        let now_ms = Now::read().monotonic_ms;
        let chosen = self.place.take().or_else(|| self.choose(step, ask.preference, now_ms));
        let Some((ticket, permit)) = chosen else {
            return Err(self.last.take().unwrap_or_else(|| Refusal::from(ForwardOutcome::NoHealthyOrigin)));
        };
        let index = ticket.index();
        let (Some(limiter), Some(address)) = (step.limiters.get(index), step.addresses.get(index)) else {
            return Err(Refusal::from(ForwardOutcome::NoHealthyOrigin));
        };
        // The content was too large to be buffered, or the version became known since. The origin would take it for
        // empty.
        if content.has_unknown_length() && ask.upgrade.is_none() && step.versions.is_http10(index) {
            return Err(Refusal::from(ForwardOutcome::LengthRequired));
        }
        let permit = if let Some(permit) = permit {
            permit
        } else {
            let arrival = step.arrival(ask.path_and_query().0, ask.client, now_ms);
            if let Some(permit) = limiter.try_acquire(&arrival) {
                permit
            } else {
                let waiting = limiter.enqueue(&arrival).map_err(ForwardOutcome::from)?;
                Box::pin(wait_for_permit(&client, waiting)).await.map_err(ForwardOutcome::from)?
            }
        };
        lines.clear();
        let passage =
            Passage { origin: ticket.origin(), loop_mark: &step.loop_mark, strip: manner.strip, extra: manner.extra };
        ask.request.with(|request| write_request_lines(request, &step.settings, &passage, lines))?;
        if let Some(key) = &ask.websocket_key {
            key.write(lines);
        }
        let sent_ns = precise_ns();
        let first_ms = *self.first_ms.get_or_insert(sent_ns / 1_000_000);
        let head_timeout_ms = step.settings.timeouts.head_timeout_ms;
        let deadline_ms = retry::head_deadline_ms(head_timeout_ms, first_ms, content.arrived_ms());
        let left_ms = deadline_ms.map(|deadline_ms| deadline_ms.saturating_sub(sent_ns / 1_000_000));
        let head_left_ms = left_ms.filter(|_| self.attempts > 0);
        let mut outgoing = OutgoingRequest {
            method: manner.method.unwrap_or(ask.request.method()),
            target: ask.target(),
            lines,
            content: std::mem::take(content),
            upgrade: ask.upgrade.as_deref(),
            head_left_ms,
            client: ask.proxy_client(),
        };
        let tell = |status: u16, lines: &[u8]| {
            if let Some(interims) = interims {
                interims.send(interim(status, lines));
            }
        };
        let result = if std::mem::take(&mut self.afresh) {
            // Box this rare case to keep the future of ordinary requests small.
            Box::pin(client.exchange_afresh(address, &mut outgoing, tell)).await
        } else if let Some(left_ms) = head_left_ms.filter(|_| matches!(outgoing.content, OutgoingContent::None)) {
            // The time limit includes connecting. It applies only without content, because sending content may take
            // longer.
            let late = ExchangeFailure::new(OriginFailure::HeadTimeout, Repeat::Idempotent);
            let exchange = client.exchange(address, &mut outgoing, tell);
            Box::pin(client.within(left_ms, exchange)).await.unwrap_or(Err(late))
        } else {
            client.exchange(address, &mut outgoing, tell).await
        };
        *content = outgoing.content;
        Ok(Attempt { result, ticket, permit, sent_ns })
    }

    /// Handles a failed attempt. `content_taken` is true if some of the request's content can no longer be sent again.
    /// Returns an error if the request must not be retried.
    pub(crate) fn handle_failure(
        &mut self,
        worker: &ProxyWorker,
        step: &Arc<ProxyStep>,
        (ticket, mut permit): (Ticket, Permit),
        (method, content): (&str, &OutgoingContent),
        failure: ExchangeFailure,
    ) -> Result<(), Refusal> {
        let now_ms = Now::read().monotonic_ms;
        let index = ticket.index();
        let limited = permit.report(sample_of(failure), now_ms);
        worker.accelerator().tell_change(limited);
        // A URL that times out must not take an origin that answers others out of rotation.
        let others_are_answered = failure.failure == OriginFailure::HeadTimeout
            && step.limiters.get(index).is_some_and(|limiter| limiter.is_answering(now_ms));
        let failed = failure.failure.is_origin_fault() && !others_are_answered;
        let change = ticket.finish(if failed { Ending::Failed } else { Ending::Abandoned }, now_ms);
        if failed {
            worker.accelerator().tell_failure(step, index, (failure.failure, change), now_ms);
        } else {
            worker.accelerator().tell_change(change);
        }
        self.tried.add(index);
        self.attempts = self.attempts.saturating_add(1);
        let attempt = retry::Attempt {
            method,
            content_taken: content.is_spent(),
            progress: match failure.repeat {
                Repeat::Always => retry::AttemptProgress::NotSent,
                Repeat::Idempotent => retry::AttemptProgress::Sent,
                Repeat::Never => retry::AttemptProgress::Answering,
            },
            attempts: self.attempts,
        };
        let refused = origin_failed(failure.failure);
        // One origin may hang while the others respond. A safe request then has a whole head timeout for one of them.
        let moves = failure.failure == OriginFailure::HeadTimeout
            && matches!(method, "GET" | "HEAD")
            && !self.has_moved
            && self.tried.count() < step.addresses.len();
        if moves {
            self.has_moved = true;
            self.first_ms = None;
        }
        let head_timeout_ms = step.settings.timeouts.head_timeout_ms;
        let is_late = self
            .first_ms
            .and_then(|first_ms| retry::head_deadline_ms(head_timeout_ms, first_ms, content.arrived_ms()))
            .is_some_and(|deadline_ms| now_ms + LEFT_MS_MIN >= deadline_ms);
        if is_late || retry::decide(&attempt, step.settings.retries) != retry::Retry::Again {
            return Err(refused);
        }
        self.last = Some(refused);
        Ok(())
    }
}

const fn sample_of_answer(status: u16, delay_us: u64) -> Sample {
    match status {
        503 => Sample::Refused,
        // Failures are often faster than responses, and say nothing about load.
        101 | 429 | 500.. => Sample::Nothing,
        _ => Sample::Answered { delay_us },
    }
}

/// Reports a complete response with `status`, received `delay_us` microseconds after the request was sent, and releases
/// its permit.
pub(crate) fn finish_answer(
    worker: &ProxyWorker,
    step: &ProxyStep,
    (mut ticket, permit): (Ticket, Permit),
    status: u16,
    delay_us: u64,
    now_ms: u64,
) {
    let limited = permit.finish(sample_of_answer(status, delay_us), now_ms);
    worker.accelerator().tell_change(limited);
    let change = ticket.report(Ending::Answered, now_ms);
    worker.accelerator().tell_answer(step, ticket.index(), change, now_ms);
}

/// Reports a response head with `status`, received `delay_us` microseconds after the request was sent.
fn report_answer(
    worker: &ProxyWorker,
    step: &ProxyStep,
    ticket: &mut Ticket,
    permit: &mut Permit,
    status: u16,
    delay_us: u64,
) {
    let now_ms = Now::read().monotonic_ms;
    let limited = permit.report(sample_of_answer(status, delay_us), now_ms);
    worker.accelerator().tell_change(limited);
    let change = ticket.report(Ending::Answered, now_ms);
    worker.accelerator().tell_answer(step, ticket.index(), change, now_ms);
}

const fn sample_of(failure: ExchangeFailure) -> Sample {
    match failure.failure {
        OriginFailure::ConnectTimeout => Sample::Overloaded,
        OriginFailure::HeadTimeout | OriginFailure::UploadTimeout => Sample::Late,
        _ => Sample::Nothing,
    }
}

/// Content of an origin's response that is streamed to a single client without being stored.
#[derive(Debug)]
pub(crate) struct Through {
    body: IncomingBody,
    hold: Hold,
}

impl Through {
    pub(crate) const fn new(body: IncomingBody, hold: Hold) -> Self {
        Self { body, hold }
    }
}

/// Returns the reason for closing the client's stream if the origin's response was truncated because of `failure`.
pub(crate) const fn cut_reason(failure: ExchangeFailure) -> CloseReason {
    match failure.failure {
        OriginFailure::BodyTimeout => CloseReason::OriginBodyTimeout,
        OriginFailure::BodyMalformed => CloseReason::OriginBodyMalformed,
        OriginFailure::CutBody => CloseReason::OriginCutBody,
        _ => CloseReason::OriginTruncated,
    }
}

impl ContentSource for Through {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<ContentEvent> {
        self.body.poll_piece(context).map(|piece| match piece {
            IncomingPiece::Bytes(bytes) => ContentEvent::Segment(Segment::Bytes(bytes)),
            IncomingPiece::End(trailers) => {
                ContentEvent::End(trailers.and_then(|trailers| forwarded_trailers(&trailers, &[])))
            }
            IncomingPiece::Failed(failure) => {
                self.hold.report_cut(failure);
                ContentEvent::Failed(cut_reason(failure))
            }
        })
    }
}
