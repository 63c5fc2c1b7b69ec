//! The fast path: the request is sent immediately on a pooled connection, and the response head and content are written
//! to one buffer for the client. Most forwarded requests take it.
//!
//! In unusual cases, such as no pooled connection, a response that is incomplete or may be stored, or a failure, the
//! request falls back to the pipeline's steps. The state of the first attempt is passed on as [`Begun`], so that the
//! steps continue where it ended.

use super::deliver::pass_on;
use super::fetch::note_storing;
use super::receive::with_status;
use super::{Step, pass, run};
use crate::exchange::{Attempt, Begun, SendMark, UpstreamRequest, finish_answer, interim};
use crate::forward::{Passage, Strip, write_request_lines};
use crate::note::Note;
use crate::outcome::ForwardOutcome;
use crate::query::Query;
use crate::step::ProxyStep;
use crate::worker::ProxyWorker;
use flatout_balance::group::{Ticket, Tried};
use flatout_balance::limit::Permit;
use flatout_cache::reason::Lookup;
use flatout_cache::storable::{Ending, OriginResponse, RequestFacts, Storing, decide_by_facts, decide_response};
use flatout_handler::response::Response;
use flatout_handler::routed::{Handling, HeaderPolicy, PendingResponse, Refusal, RoutedRequest};
use flatout_http::request::Method;
use flatout_os::clock::{precise_ns, unix_s};
use flatout_upstream::origin::{KeptAnswer, KeptExchange, WholeAnswer};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Maximum size in bytes of content that is copied after the head. Larger content stays in its receive buffer.
const CONTENT_BYTES_MAX: usize = 16 * 1024;

/// Purpose of a forwarded request.
pub(super) enum Aim {
    /// Forward the response without a cache.
    Plain { step: Arc<ProxyStep>, ask: Box<UpstreamRequest>, policy: Rc<HeaderPolicy> },
    /// Fetch the response to a cache miss for which no other request waits.
    Alone { query: Rc<Query>, reason: Lookup, facts: RequestFacts },
}

impl Aim {
    fn parts(&self) -> (&Arc<ProxyStep>, &UpstreamRequest) {
        match self {
            Self::Plain { step, ask, .. } => (step, ask),
            Self::Alone { query, .. } => (&query.step, &query.ask),
        }
    }
}

/// The first attempt at an upstream request.
struct Sent {
    exchange: KeptExchange,
    /// The selected origin and the permit; `None` after the attempt has ended.
    place: Option<(Ticket, Permit)>,
    since_ns: u64,
}

/// Future of a forwarded request, which makes the first attempt and falls back to the steps if necessary.
pub(super) struct ForwardedRequest {
    worker: Rc<ProxyWorker>,
    /// Purpose of the request; `None` after it has been passed to the steps.
    aim: Option<Aim>,
    sent: Option<Sent>,
    steps: Option<PendingResponse>,
    /// The query, for Cache-Status; `None` if there is no cache.
    query: Option<Rc<Query>>,
}

impl ForwardedRequest {
    /// Forwards `routed`: immediately if a permit and a pooled connection are available without waiting, otherwise
    /// through the steps. `strip` and `extra` are as in [`Passage`].
    pub(super) fn begin(
        worker: &Rc<ProxyWorker>,
        aim: Aim,
        routed: &RoutedRequest<'_>,
        (strip, extra): (Strip, &[u8]),
    ) -> Handling {
        let query = match &aim {
            Aim::Alone { query, .. } => Some(Rc::clone(query)),
            Aim::Plain { .. } => None,
        };
        let worker = Rc::clone(worker);
        let mut forwarded = Box::new(Self { worker, aim: Some(aim), sent: None, steps: None, query });
        forwarded.send(routed, (strip, extra));
        if forwarded.sent.is_none() {
            forwarded.take_steps();
        }
        Handling::Later(Box::into_pin(forwarded))
    }

    /// Sends the first attempt. If that is impossible, an acquired permit is passed on with the request. A pipelined
    /// request behind unfinished responses acquires no permit yet, since a client that does not read those responses
    /// would hold it.
    fn send(&mut self, routed: &RoutedRequest<'_>, (strip, extra): (Strip, &[u8])) -> Option<()> {
        let (step, ask) = self.aim.as_ref()?.parts();
        let (worker, request) = (&self.worker, routed.request);
        let is_bare = matches!(request.head.method, Method::Get | Method::Head) && !request.offers.has_content();
        if !is_bare || request.offers.is_behind() || ask.upgrade.is_some() || step.settings.http2 {
            return None;
        }
        let ticket = step.group.choose(routed.now.monotonic_ms, ask.preference, &Tried::NONE)?;
        let (limiter, address) = (step.limiters.get(ticket.index())?, step.addresses.get(ticket.index())?);
        let arrival = step.arrival(ask.path_and_query().0, ask.client, routed.now.monotonic_ms);
        let Some(permit) = limiter.try_acquire(&arrival) else {
            ask.begun.set(Some(Box::new(Begun::with_place(ticket, None))));
            return None;
        };
        let mark = SendMark::read(worker, routed.now.unix_s);
        let passage = Passage { origin: ticket.origin(), loop_mark: &step.loop_mark, strip, extra };
        let write_lines = |lines: &mut Vec<u8>| write_request_lines(request, &step.settings, &passage, lines).ok();
        let method = request.head.method.as_str();
        let line = (method, ask.target());
        let exchange =
            worker.with_client(step, |client| client.send_kept(address, line, ask.proxy_client(), write_lines));
        let Some(exchange) = exchange else {
            ask.begun.set(Some(Box::new(Begun::with_place(ticket, Some(permit)))));
            return None;
        };
        ask.mark.set(Some(mark));
        self.sent = Some(Sent { exchange, place: Some((ticket, permit)), since_ns: precise_ns() });
        Some(())
    }

    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<Result<Response, Refusal>> {
        if let (Some(aim), Some(sent)) = (&self.aim, &mut self.sent) {
            let (worker, (step, ask)) = (&self.worker, aim.parts());
            let served = sent.place.as_ref().map_or(usize::MAX, |(ticket, _)| ticket.index());
            let tell = |status: u16, lines: &[u8]| ask.request.offers().interims().send(interim(status, lines));
            let sent_s = ask.mark.get().map_or(0, |mark| mark.unix_s);
            let mut response = None;
            let mut version = None;
            let polled = ready!(sent.exchange.poll(context, tell, |answer| {
                version = Some(answer.head.version);
                response = look(worker, aim, (sent_s, served), answer);
                response.is_some()
            }));
            let Some((ticket, permit)) = sent.place.take() else { return Poll::Pending };
            let sent_ns = sent.since_ns;
            let begun = match (polled, response) {
                (KeptAnswer::Taken, Some(response)) => {
                    let ns = precise_ns();
                    let delay_us = ns.saturating_sub(sent_ns) / 1000;
                    if let Some(version) = version {
                        step.versions.note(ticket.index(), version, response.status);
                    }
                    // The precise clock has the same epoch as the coarse clock.
                    finish_answer(worker, step, (ticket, permit), response.status, delay_us, ns / 1_000_000);
                    return Poll::Ready(Ok(response));
                }
                (KeptAnswer::Taken | KeptAnswer::Again, _) => {
                    // This attempt does not count as one, because the pooled connection was closed before the origin
                    // processed the request.
                    ask.mark.set(None);
                    Begun::with_kept_tried(ticket, permit, sent_ns / 1_000_000)
                }
                (KeptAnswer::Incoming(incoming), _) => {
                    Begun::with_attempt(Attempt { result: Ok(incoming), ticket, permit, sent_ns })
                }
                (KeptAnswer::Failed(failure), _) => {
                    Begun::with_attempt(Attempt { result: Err(failure), ticket, permit, sent_ns })
                }
            };
            ask.begun.set(Some(Box::new(begun)));
            self.take_steps();
        }
        match &mut self.steps {
            Some(steps) => steps.as_mut().poll(context),
            None => Poll::Pending,
        }
    }

    /// Leaves the fast path: passes the request to the steps.
    fn take_steps(&mut self) {
        let worker = Rc::clone(&self.worker);
        self.steps = match self.aim.take() {
            Some(Aim::Plain { step, ask, policy }) => Some(Box::pin(pass::plain(worker, step, *ask, policy))),
            Some(Aim::Alone { query, reason, .. }) => Some(Box::pin(run(worker, query, Step::fetch_alone(reason)))),
            None => None,
        };
    }
}

impl Future for ForwardedRequest {
    type Output = Result<Response, Refusal>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let forwarded = self.get_mut();
        let made = ready!(forwarded.poll_answer(context));
        Poll::Ready(match &forwarded.query {
            Some(query) => made.map_err(|refusal| with_status(refusal, query)),
            None => made,
        })
    }
}

/// Builds the client's response from the response of the origin with the index `served` to a request that was sent at
/// `sent_s`, in seconds since 1970. Returns `None` if the steps must handle it.
fn look(worker: &ProxyWorker, aim: &Aim, (sent_s, served): (i64, usize), answer: &WholeAnswer<'_>) -> Option<Response> {
    if answer.content.len() > CONTENT_BYTES_MAX {
        return None;
    }
    match aim {
        Aim::Plain { step, ask, policy } => {
            let served = (&**step, &**ask, served);
            Some(pass_on(worker, served, &policy.fields, answer, None, ForwardOutcome::Forwarded.into()))
        }
        Aim::Alone { query, reason, facts } => {
            let head = answer.head;
            let response = OriginResponse {
                status: head.status,
                fields: head.fields,
                request_time_s: sent_s,
                response_time_s: unix_s(),
                ending: head.content_length.map_or(Ending::Framed, Ending::Length),
                is_stretch: false,
            };
            let storing = decide_by_facts(*facts, &response, &query.cache.rules)
                .unwrap_or_else(|| query.with(|request| decide_response(request, &response, &query.cache.rules)));
            if matches!(storing, Storing::Store(_)) {
                return None;
            }
            let Err((why, _)) = note_storing(worker, query, head.status, storing) else { return None };
            let note = query.shows_status.then(|| Note { why: Some(why), ..Note::forwarded(*reason) });
            let served = (&*query.step, &query.ask, served);
            let mut response = pass_on(worker, served, &query.policy.fields, answer, note, (*reason).into());
            response.logged.cache = Some(why.name().into());
            Some(response)
        }
    }
}
