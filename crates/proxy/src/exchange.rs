//! One request to the origins: selection, waiting, and retries if safe.

use crate::accelerator::Accelerator;
use crate::forward::{Passage, Strip, retry, upgrade, write_interim_lines, write_request_lines};
use crate::outcome::ForwardOutcome;
use crate::outcome::origin_failed;
use crate::rules::CacheStep;
use crate::step::ProxyStep;
use crate::worker::ProxyWorker;
use flatout_balance::group::{Ending, Ticket, Tried, hash_request};
use flatout_balance::limit::{Permit, Sample};
use flatout_cache::key::write_query;
use flatout_handler::Request;
use flatout_handler::content::{InterimResponse, Interims};
use flatout_handler::ending::CloseReason;
use flatout_handler::owned::OwnedRequest;
use flatout_handler::response::Segment;
use flatout_handler::routed::Refusal;
use flatout_handler::stream::{ContentEvent, ContentSource};
use flatout_os::clock::{Now, precise_ns};
use flatout_upstream::origin::{
    ExchangeFailure, Incoming, IncomingBody, IncomingPiece, OriginClient, OriginFailure, OutgoingContent,
    OutgoingRequest, Repeat,
};
use flatout_upstream::permit::wait_for_permit;
use std::cell::Cell;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

/// An upstream request.
pub(crate) struct UpstreamRequest {
    pub(crate) request: OwnedRequest,
    /// Path and query as sent.
    pub(crate) target: Box<[u8]>,
    /// Offset of the query's `?` in it, or its length.
    pub(crate) path_bytes: usize,
    /// Value of Upgrade, if the upgrade is forwarded.
    pub(crate) upgrade: Option<Box<[u8]>>,
    /// Selects the origin under consistent hashing.
    pub(crate) balance_hash: u64,
    /// Progress made before the response future was polled.
    pub(crate) begun: Cell<Option<Box<Begun>>>,
}

/// Progress of an upstream request.
#[derive(Debug, Default)]
pub(crate) struct Begun {
    tried: Tried,
    attempts: u8,
    /// Time of the first attempt in milliseconds; `None` before it.
    first_ms: Option<u64>,
    last: Option<Refusal>,
    /// The selected origin, and a permit for it.
    place: Option<(Ticket, Option<Permit>)>,
    /// A pooled connection was found closed: open a new one instead of trying another.
    afresh: bool,
}

impl Begun {
    /// Progress with an origin selected and possibly a permit acquired.
    pub(crate) fn with_place(ticket: Ticket, permit: Option<Permit>) -> Self {
        Self { place: Some((ticket, permit)), ..Self::default() }
    }

    /// Progress after a failed attempt on a pooled connection at `first_ms`.
    pub(crate) fn with_kept_tried(ticket: Ticket, permit: Permit, first_ms: u64) -> Self {
        Self { afresh: true, first_ms: Some(first_ms), ..Self::with_place(ticket, Some(permit)) }
    }

    /// Progress after a request sent at `first_ms`.
    pub(crate) fn since(first_ms: u64) -> Self {
        Self { first_ms: Some(first_ms), ..Self::default() }
    }
}

impl UpstreamRequest {
    /// Copies the data of the upstream request.
    pub(crate) fn new(
        step: &ProxyStep,
        cache: Option<&CacheStep>,
        request: &Request<'_>,
        (path, query): (&[u8], Option<&[u8]>),
    ) -> Self {
        let mut target = Vec::with_capacity(path.len() + query.map_or(0, <[u8]>::len) + 1);
        target.extend_from_slice(path);
        let path_bytes = target.len();
        match (query, cache) {
            (None, _) => {}
            (Some(query), None) => {
                target.push(b'?');
                target.extend_from_slice(query);
            }
            // Parameters excluded from the key are removed from the request.
            (query, Some(cache)) => {
                target.push(b'?');
                if !write_query(query, &cache.rules.query, &mut target) {
                    target.truncate(path_bytes);
                }
            }
        }
        let upgrade = upgrade::asks(request.head, &step.settings);
        Self {
            balance_hash: hash_request(step.group.balance(), request),
            request: OwnedRequest::new(request),
            target: target.into(),
            path_bytes,
            upgrade: upgrade.map(Into::into),
            begun: Cell::new(None),
        }
    }

    /// Path and query of the target.
    pub(crate) fn path_and_query(&self) -> (&[u8], Option<&[u8]>) {
        let (path, rest) = self.target.split_at(self.path_bytes.min(self.target.len()));
        (path, rest.get(1..))
    }
}

/// Differences between the client's request and the upstream request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manner<'a> {
    /// Client fields to omit.
    pub(crate) strip: Strip,
    /// Lines to add.
    pub(crate) extra: &'a [u8],
    /// The method, if it differs from the client's.
    pub(crate) method: Option<&'a str>,
}

/// Head of a final response, and its body.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) incoming: Incoming,
    pub(crate) hold: Hold,
    /// True if an earlier attempt failed.
    pub(crate) again: bool,
}

/// Reporter of the origin's result.
#[derive(Debug)]
struct OriginReporter {
    accelerator: Arc<Accelerator>,
    /// A tunnel may outlive its step.
    step: Weak<ProxyStep>,
}

/// The permit and ticket of a request, held until the response is complete.
#[derive(Debug)]
pub(crate) struct Hold {
    ticket: Ticket,
    watch: OriginReporter,
    /// `None` for a tunnel, which may last for days and no longer counts as a request.
    _permit: Option<Permit>,
    /// For a tunnel: its source of timers.
    client: Option<OriginClient>,
}

impl Hold {
    /// Records a response with this `status`, received after `delay_us`.
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

    /// Takes a tunnel's source of timers; available once.
    pub(crate) fn take_client(&mut self) -> Option<OriginClient> {
        self.client.take()
    }

    /// Reports that the response was truncated.
    pub(crate) fn report_cut(&mut self, failure: ExchangeFailure) {
        if failure.failure.is_origin_fault() {
            let change = self.ticket.report(Ending::Failed, Now::read().monotonic_ms);
            if let Some(step) = self.watch.step.upgrade() {
                self.watch.accelerator.tell_change(&step, self.ticket.index(), change);
            }
        }
    }
}

/// Sends a request to the origins of `step`. Interim responses go to `interims`.
pub(crate) async fn ask_origin(
    worker: &ProxyWorker,
    step: &Arc<ProxyStep>,
    ask: &UpstreamRequest,
    mut content: OutgoingContent,
    manner: Manner<'_>,
    interims: Option<&Interims>,
) -> Result<Answered, Refusal> {
    let client = worker.client(step);
    let method = manner.method.unwrap_or(ask.request.method());
    let mut begun = ask.begun.take().unwrap_or_default();
    let mut lines = Vec::with_capacity(1024);
    loop {
        let now_ms = Now::read().monotonic_ms;
        // After all origins have been tried, they are tried again.
        let chosen = begun.place.take().or_else(|| begun.choose(step, ask.balance_hash, now_ms));
        let Some((ticket, permit)) = chosen else {
            return Err(begun.last.unwrap_or_else(|| Refusal::from(ForwardOutcome::NoHealthyOrigin)));
        };
        let index = ticket.index();
        let (Some(limiter), Some(address)) = (step.limiters.get(index), step.addresses.get(index)) else {
            return Err(Refusal::from(ForwardOutcome::NoHealthyOrigin));
        };
        let permit = if let Some(permit) = permit.or_else(|| limiter.try_acquire()) {
            permit
        } else {
            let waiting = limiter.enqueue(now_ms).map_err(ForwardOutcome::from)?;
            Box::pin(wait_for_permit(&client, waiting)).await.map_err(ForwardOutcome::from)?
        };
        lines.clear();
        let passage = Passage { origin: ticket.origin(), strip: manner.strip, extra: manner.extra };
        ask.request.with(|request| write_request_lines(request, &step.settings, &passage, &mut lines))?;
        let mut outgoing = OutgoingRequest {
            method,
            target: &ask.target,
            lines: &lines,
            content: std::mem::take(&mut content),
            upgrade: ask.upgrade.as_deref(),
        };
        let sent_ns = precise_ns();
        let first_ms = *begun.first_ms.get_or_insert(sent_ns / 1_000_000);
        let tell = |status: u16, lines: &[u8]| {
            if let Some(interims) = interims {
                interims.send(interim(status, lines));
            }
        };
        let result = if std::mem::take(&mut begun.afresh) {
            // Rare: box it to keep the future of ordinary requests small.
            Box::pin(client.exchange_afresh(address, &mut outgoing, tell)).await
        } else if begun.attempts > 0 && matches!(outgoing.content, OutgoingContent::None) {
            // All attempts together share the deadline of one, since the client has waited since the first.
            let left_ms = head_deadline_ms(step, first_ms).saturating_sub(sent_ns / 1_000_000);
            let late = ExchangeFailure::new(OriginFailure::HeadTimeout, Repeat::Idempotent);
            let exchange = client.exchange(address, &mut outgoing, tell);
            Box::pin(client.within(left_ms, exchange)).await.unwrap_or(Err(late))
        } else {
            client.exchange(address, &mut outgoing, tell).await
        };
        content = outgoing.content;
        match result {
            Ok(incoming) => {
                let delay_us = precise_ns().saturating_sub(sent_ns) / 1000;
                let hold = Hold::new(worker, step, (ticket, permit), incoming.status, delay_us);
                return Ok(Answered { incoming, hold, again: begun.attempts > 0 });
            }
            Err(failure) => {
                begun.handle_failure(worker, step, (ticket, permit), (method, content.is_taken()), failure)?;
            }
        }
    }
}

/// Minimum time left for another attempt, in milliseconds; clocks differ by less.
const LEFT_MS_MIN: u64 = 20;

/// Deadline for retries of a request whose first attempt began at `first_ms`: one head timeout in total, not one per
/// origin.
fn head_deadline_ms(step: &ProxyStep, first_ms: u64) -> u64 {
    first_ms.saturating_add(step.settings.timeouts.head_timeout_ms)
}

/// Interim response with `lines`, as sent to the client.
pub(crate) fn interim(status: u16, lines: &[u8]) -> InterimResponse {
    let mut passed = Vec::with_capacity(lines.len());
    write_interim_lines(lines, &mut passed);
    InterimResponse { status, lines: passed.into() }
}

impl Begun {
    /// Selects the next origin. After all have been tried, they are tried again.
    fn choose(&mut self, step: &ProxyStep, balance_hash: u64, now_ms: u64) -> Option<(Ticket, Option<Permit>)> {
        let chosen = step.group.choose(now_ms, balance_hash, &self.tried).or_else(|| {
            self.tried = Tried::NONE;
            step.group.choose(now_ms, balance_hash, &self.tried)
        });
        Some((chosen?, None))
    }

    /// Handles a failed attempt of a request with `method`, some of whose content may have been sent. Returns an error
    /// unless the request is retried.
    pub(crate) fn handle_failure(
        &mut self,
        worker: &ProxyWorker,
        step: &Arc<ProxyStep>,
        (ticket, mut permit): (Ticket, Permit),
        (method, content_taken): (&str, bool),
        failure: ExchangeFailure,
    ) -> Result<(), Refusal> {
        let now_ms = Now::read().monotonic_ms;
        let index = ticket.index();
        permit.report(sample_of(failure), now_ms);
        let ending = if failure.failure.is_origin_fault() { Ending::Failed } else { Ending::Abandoned };
        let change = ticket.finish(ending, now_ms);
        worker.accelerator().tell_change(step, index, change);
        self.tried.add(index);
        self.attempts = self.attempts.saturating_add(1);
        let attempt = retry::Attempt {
            method,
            content_taken,
            progress: match failure.repeat {
                Repeat::Always => retry::AttemptProgress::NotSent,
                Repeat::Idempotent => retry::AttemptProgress::Sent,
                Repeat::Never => retry::AttemptProgress::Answering,
            },
            attempts: self.attempts,
        };
        let refused = origin_failed(failure.failure);
        let is_late = self.first_ms.is_some_and(|first_ms| now_ms + LEFT_MS_MIN >= head_deadline_ms(step, first_ms));
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
        101 | 429 => Sample::Nothing,
        _ => Sample::Answered { delay_us },
    }
}

/// Handles a complete response with `status`, received `delay_us` after the request was sent.
pub(crate) fn finish_answer(
    worker: &ProxyWorker,
    step: &ProxyStep,
    (mut ticket, permit): (Ticket, Permit),
    status: u16,
    delay_us: u64,
    now_ms: u64,
) {
    permit.finish(sample_of_answer(status, delay_us), now_ms);
    let change = ticket.report(Ending::Answered, now_ms);
    worker.accelerator().tell_change(step, ticket.index(), change);
}

/// Handles a response head with `status`, received `delay_us` after the request was sent.
fn report_answer(
    worker: &ProxyWorker,
    step: &ProxyStep,
    ticket: &mut Ticket,
    permit: &mut Permit,
    status: u16,
    delay_us: u64,
) {
    let now_ms = Now::read().monotonic_ms;
    permit.report(sample_of_answer(status, delay_us), now_ms);
    let change = ticket.report(Ending::Answered, now_ms);
    worker.accelerator().tell_change(step, ticket.index(), change);
}

const fn sample_of(failure: ExchangeFailure) -> Sample {
    match failure.failure {
        OriginFailure::ConnectTimeout | OriginFailure::HeadTimeout | OriginFailure::UploadTimeout => Sample::Overloaded,
        _ => Sample::Nothing,
    }
}

/// An origin's response on its way to one client.
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

/// Close reason for a response truncated at the origin.
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
            IncomingPiece::End(trailers) => ContentEvent::End(trailers),
            IncomingPiece::Failed(failure) => {
                self.hold.report_cut(failure);
                ContentEvent::Failed(cut_reason(failure))
            }
        })
    }
}
