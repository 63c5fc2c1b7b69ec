//! Fast path: a request sent at once on a pooled connection, whose response is passed on without copying its head.
//! Nearly all forwarded requests take this path.
//!
//! Anything unusual leaves it: a connection closed by the origin, a response that is incomplete or may be stored, a
//! failure. The progress so far goes along as [`Begun`].

use super::deliver::{pass_on, respond};
use super::fetch::{Asked, Fetch, FetchConditions, note_storing};
use super::receive::with_status;
use super::{Step, fetch_alone, pass, run};
use crate::exchange::{Answered, Begun, Hold, UpstreamRequest, finish_answer, interim};
use crate::forward::{Passage, Strip, write_request_lines};
use crate::note::Note;
use crate::outcome::ForwardOutcome;
use crate::query::Query;
use crate::step::ProxyStep;
use crate::worker::ProxyWorker;
use flatout_balance::group::{Ticket, Tried};
use flatout_balance::limit::Permit;
use flatout_cache::reason::Lookup;
use flatout_cache::storable::{Ending, OriginResponse, Storing, decide_response};
use flatout_handler::response::Response;
use flatout_handler::routed::{HeaderPolicy, PendingResponse, Refusal, RoutedRequest};
use flatout_http::request::Method;
use flatout_os::clock::{Now, precise_ns};
use flatout_upstream::origin::{
    ExchangeFailure, Incoming, KeptAnswer, KeptExchange, OutgoingContent, OutgoingRequest, WholeAnswer,
};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Content up to this many bytes is copied after its head; larger content stays in its receive buffer.
const CONTENT_BYTES_MAX: usize = 16 * 1024;

/// Purpose of a request.
pub(super) enum Aim {
    /// Pass the response on, without a cache.
    Plain(Box<Plain>),
    /// A cache miss for which no other request waits.
    Alone { query: Rc<Query>, reason: Lookup },
}

/// A request passed on without a cache.
pub(super) struct Plain {
    pub(super) step: Arc<ProxyStep>,
    pub(super) ask: UpstreamRequest,
    pub(super) policy: Rc<HeaderPolicy>,
}

impl Aim {
    fn step(&self) -> &Arc<ProxyStep> {
        match self {
            Self::Plain(plain) => &plain.step,
            Self::Alone { query, .. } => &query.step,
        }
    }

    fn ask(&self) -> &UpstreamRequest {
        match self {
            Self::Plain(plain) => &plain.ask,
            Self::Alone { query, .. } => &query.ask,
        }
    }
}

/// A request that has been sent.
pub(super) struct Sent {
    exchange: KeptExchange,
    ticket: Ticket,
    permit: Permit,
    since_ns: u64,
    since_s: i64,
    /// Store generation before it was sent.
    generation: u64,
    /// Count of invalidations before it was sent.
    invalidations: u64,
}

/// Sends a request if a permit and a pooled connection are available without waiting. Otherwise anything acquired
/// stays with `ask`. A pipelined request behind unfinished responses acquires nothing yet: a client that does not read
/// them would hold it.
pub(super) fn send(
    worker: &ProxyWorker,
    step: &Arc<ProxyStep>,
    ask: &UpstreamRequest,
    routed: &RoutedRequest<'_>,
    (strip, extra): (Strip, &[u8]),
) -> Option<Sent> {
    let request = routed.request;
    let is_bare = matches!(request.head.method, Method::Get | Method::Head) && !request.offers.has_content();
    if !is_bare || request.offers.is_behind() || ask.upgrade.is_some() || step.settings.http2 {
        return None;
    }
    let ticket = step.group.choose(routed.now.monotonic_ms, ask.balance_hash, &Tried::NONE)?;
    let place = |ticket, permit| ask.begun.set(Some(Box::new(Begun::with_place(ticket, permit))));
    let (limiter, address) = (step.limiters.get(ticket.index())?, step.addresses.get(ticket.index())?);
    let Some(permit) = limiter.try_acquire() else {
        place(ticket, None);
        return None;
    };
    // Read this before sending: a purge in the meantime must apply to the response.
    let generation = worker.store().map_or(0, |store| store.generation());
    let invalidations = worker.accelerator().fills.invalidations();
    let exchange = worker.with_lines(|lines| {
        let passage = Passage { origin: ticket.origin(), strip, extra };
        write_request_lines(request, &step.settings, &passage, lines).ok()?;
        let mut outgoing = OutgoingRequest {
            method: request.head.method.as_str(),
            target: &ask.target,
            lines,
            content: OutgoingContent::None,
            upgrade: None,
        };
        worker.client(step).send_kept(address, &mut outgoing)
    });
    let Some(exchange) = exchange else {
        place(ticket, Some(permit));
        return None;
    };
    Some(Sent {
        exchange,
        ticket,
        permit,
        since_ns: precise_ns(),
        since_s: routed.now.unix_s,
        generation,
        invalidations,
    })
}

/// A request on the fast path, which may fall back to the general one.
pub(super) struct DirectRequest {
    worker: Rc<ProxyWorker>,
    /// `None` after the fallback.
    under_way: Option<(Aim, Sent)>,
    slow: Option<PendingResponse>,
    shows_status: bool,
}

impl DirectRequest {
    pub(super) fn new(worker: &Rc<ProxyWorker>, aim: Aim, sent: Sent) -> Self {
        let shows_status = matches!(&aim, Aim::Alone { query, .. } if query.shows_status);
        Self { worker: Rc::clone(worker), under_way: Some((aim, sent)), slow: None, shows_status }
    }

    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<Result<Response, Refusal>> {
        if let Some((aim, sent)) = &mut self.under_way {
            let tell = |status: u16, lines: &[u8]| {
                aim.ask().request.offers().interims().send(interim(status, lines));
            };
            let worker = &self.worker;
            let look = |answer: &WholeAnswer<'_>| look(worker, aim, sent.since_s, answer);
            let polled = ready!(sent.exchange.poll(context, tell, look));
            let Some((aim, sent)) = self.under_way.take() else { return Poll::Pending };
            match polled {
                KeptAnswer::Taken(response) => {
                    let ns = precise_ns();
                    let delay_us = ns.saturating_sub(sent.since_ns) / 1000;
                    // Same epoch as the coarse clock, with finer resolution.
                    let (place, now_ms) = ((sent.ticket, sent.permit), ns / 1_000_000);
                    finish_answer(worker, aim.step(), place, response.status, delay_us, now_ms);
                    return Poll::Ready(Ok(response));
                }
                KeptAnswer::Incoming(incoming) => return Poll::Ready(answer(worker, aim, sent, incoming)),
                KeptAnswer::Again => {
                    aim.ask().begun.set(Some(Box::new(Begun::with_kept_tried(
                        sent.ticket,
                        sent.permit,
                        sent.since_ns / 1_000_000,
                    ))));
                    self.slow = Some(go_on(worker, aim));
                }
                KeptAnswer::Failed(failure) => match give_up(worker, aim, sent, failure) {
                    Ok(slow) => self.slow = Some(slow),
                    Err(refused) => return Poll::Ready(Err(refused)),
                },
            }
        }
        match &mut self.slow {
            Some(slow) => slow.as_mut().poll(context),
            None => Poll::Pending,
        }
    }
}

impl Future for DirectRequest {
    type Output = Result<Response, Refusal>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let direct = self.get_mut();
        let made = ready!(direct.poll_answer(context));
        Poll::Ready(if direct.shows_status { made.map_err(with_status) } else { made })
    }
}

/// Builds the client's response from the origin's; `None`: use the general path.
fn look(worker: &ProxyWorker, aim: &Aim, sent_s: i64, answer: &WholeAnswer<'_>) -> Option<Response> {
    if answer.content.len() > CONTENT_BYTES_MAX {
        return None;
    }
    match aim {
        Aim::Plain(plain) => {
            let outcome = ForwardOutcome::Forwarded.into();
            Some(pass_on(worker, &plain.step, &plain.policy.fields, answer, None, outcome))
        }
        Aim::Alone { query, reason } => {
            let head = answer.head;
            let response = OriginResponse {
                status: head.status,
                fields: head.fields,
                request_time_s: sent_s,
                response_time_s: Now::read().unix_s,
                ending: head.content_length.map_or(Ending::Framed, Ending::Length),
                is_stretch: false,
            };
            let storing = query.with(|request| decide_response(request, &response, &query.cache.rules));
            if matches!(storing, Storing::Store(_)) {
                return None;
            }
            let Err((why, _)) = note_storing(worker, query, head.status, storing) else { return None };
            let note = query.shows_status.then(|| Note { why: Some(why), ..Note::forwarded(*reason) });
            let mut response = pass_on(worker, &query.step, &query.policy.fields, answer, note, (*reason).into());
            response.cache = Some(why.name());
            Some(response)
        }
    }
}

/// Continues with a response on the general path.
fn answer(worker: &Rc<ProxyWorker>, aim: Aim, sent: Sent, incoming: Incoming) -> Result<Response, Refusal> {
    let Sent { ticket, permit, since_ns, since_s, generation, invalidations, .. } = sent;
    let delay_us = precise_ns().saturating_sub(since_ns) / 1000;
    let hold = Hold::new(worker, aim.step(), (ticket, permit), incoming.status, delay_us);
    let answered = Answered { incoming, hold, again: false };
    match aim {
        Aim::Plain(plain) => {
            let Plain { step, ask, policy } = *plain;
            let outcome = ForwardOutcome::Forwarded.into();
            respond(&step, &ask, &policy.fields, answered, None, outcome).map(|(response, _)| response)
        }
        Aim::Alone { query, reason } => {
            let fetch = Fetch { query, kept: None, question: FetchConditions::NONE, interims: None };
            let asked: Asked = fetch.decide(worker, answered, (since_s, Now::read().unix_s), generation);
            fetch_alone::respond(worker, fetch, asked, invalidations, reason)
        }
    }
}

/// Handles a failed exchange: refuses, or retries on the general path.
fn give_up(
    worker: &Rc<ProxyWorker>,
    aim: Aim,
    sent: Sent,
    failure: ExchangeFailure,
) -> Result<PendingResponse, Refusal> {
    let mut begun = Box::new(Begun::since(sent.since_ns / 1_000_000));
    let ask = aim.ask();
    begun.handle_failure(worker, aim.step(), (sent.ticket, sent.permit), (ask.request.method(), false), failure)?;
    ask.begun.set(Some(begun));
    Ok(go_on(worker, aim))
}

/// Continues on the general path.
fn go_on(worker: &Rc<ProxyWorker>, aim: Aim) -> PendingResponse {
    let worker = Rc::clone(worker);
    match aim {
        Aim::Plain(plain) => Box::pin(pass::plain(worker, plain.step, plain.ask, plain.policy)),
        Aim::Alone { query, reason } => Box::pin(run(worker, query, Step::fetch_alone(reason))),
    }
}
