//! The client's response: here from an origin's, in `stored` from stored or arriving content.

pub(crate) mod stored;

use super::tunnel::tunnel;
use crate::exchange::{Answered, Through, UpstreamRequest};
use crate::forward::{Return, upgrade, write_response_lines};
use crate::note::Note;
use crate::outcome::ForwardOutcome;
use crate::query::{EsiSource, Query};
use crate::step::ProxyStep;
use crate::worker::ProxyWorker;
use flatout_config::model::FieldOp;
use flatout_handler::response::{Body, Head, Response, write_status_line};
use flatout_handler::routed::Refusal;
use flatout_handler::stream::{Stream, TunnelStart};
use flatout_http::head::{FieldStorage, Fields};
use flatout_http::lines::{write_changed, write_line};
use flatout_http::status::has_content;
use flatout_os::clock::Now;
use flatout_reason::Outcome;
use flatout_upstream::origin::WholeAnswer;
use std::rc::Rc;
use std::sync::Arc;

/// Builds the response to `query` from the origin's.
pub(super) fn respond_to(query: &Query, answered: Answered, note: &Note) -> Result<Response, Refusal> {
    let extra = note.lines(None, None, query.shows_status);
    let extra = (!extra.is_empty()).then_some(extra);
    let is_template = query.is_template_here(&answered.incoming);
    // The fields of a template are modified after composition.
    let changes = if is_template { &[][..] } else { &query.policy.fields };
    let outcome = note.reason.into();
    let (response, lines) = respond(&query.step, &query.ask, changes, answered, extra, outcome)?;
    if is_template {
        query.template.replace(Some(EsiSource::Page(lines)));
    }
    Ok(response)
}

/// Builds a client's response, with its field lines, from the origin's.
pub(super) fn respond(
    step: &Arc<ProxyStep>,
    ask: &UpstreamRequest,
    changes: &[FieldOp],
    answered: Answered,
    extra: Option<Rc<[u8]>>,
    outcome: Outcome,
) -> Result<(Response, Vec<u8>), Refusal> {
    let Answered { mut incoming, hold, .. } = answered;
    let status = incoming.status;
    let is_upgrade = status == 101;
    let to_head = ask.request.method() == "HEAD";
    let mut lines = Vec::with_capacity(incoming.lines().len() + 256);
    {
        let mut storage = FieldStorage::new();
        let fields = incoming.fields(&mut storage);
        if is_upgrade && !agrees(ask, &fields) {
            return Err(Refusal::from(ForwardOutcome::UpgradeInvalid));
        }
        let keep_length = incoming.content_length.is_some() && !is_upgrade && status != 204;
        let keep_upgrade = is_upgrade || status == 426;
        let back = Return { version: incoming.version, keep_length, keep_upgrade, date: None };
        write_lines(step, changes, fields, &back, &mut lines);
    }
    let (body, outcome) = if let Some(origin) = incoming.upgraded.take() {
        let idle_ms = step.settings.timeouts.stream_timeout_ms;
        let start = TunnelStart::new(move |client| Box::pin(tunnel(client, origin, hold, idle_ms)));
        (Body::Tunnel(start), ForwardOutcome::Upgraded.into())
    } else if to_head || !has_content(status) {
        (Body::Empty, outcome)
    } else {
        let declared = incoming.content_length;
        let whole = match incoming.body.whole() {
            Some((whole, None)) => Some(whole.clone()),
            _ => None,
        };
        let body = match whole {
            Some(whole) => {
                if declared.is_none() {
                    write_line(b"Content-Length", whole.len().to_string().as_bytes(), &mut lines);
                }
                if whole.is_empty() { Body::Empty } else { Body::Bytes(whole) }
            }
            None => Body::Stream(Stream::new(Through::new(incoming.body, hold), declared)),
        };
        (body, outcome)
    };
    let mut response = Response::new(status, Head::from_lines(status, &lines), body, outcome);
    response.extra = extra;
    Ok((response, lines))
}

/// The same in one buffer, from a response whose content is here.
pub(super) fn pass_on(
    worker: &ProxyWorker,
    step: &ProxyStep,
    changes: &[FieldOp],
    answer: &WholeAnswer<'_>,
    note: Option<Note>,
    outcome: Outcome,
) -> Response {
    let head = answer.head;
    let keep_length = head.content_length.is_some() && head.status != 204;
    let back = Return { version: head.version, keep_length, keep_upgrade: head.status == 426, date: None };
    let mut head_bytes = 0;
    let bytes = worker.write_answer(|room| {
        write_status_line(head.status, room);
        write_lines(step, changes, head.fields, &back, room);
        if let Some(note) = note {
            note.write_lines(None, None, true, room);
        }
        head_bytes = room.len();
        room.extend_from_slice(answer.content);
    });
    let body = match answer.content.len() {
        0 => Body::Empty,
        _ => Body::Bytes(bytes.slice(head_bytes..bytes.len())),
    };
    Response::new(head.status, Head::from_bytes(bytes.slice(0..head_bytes)), body, outcome)
}
/// Appends the field lines for the client.
fn write_lines(step: &ProxyStep, changes: &[FieldOp], fields: Fields<'_>, back: &Return<'_>, lines: &mut Vec<u8>) {
    // RFC 9110 §6.6.1: a recipient adds Date if it is missing.
    let date = fields.first("date").is_none().then(|| flatout_http::date::format_date(Now::read().unix_s));
    let back = Return { date: date.as_ref(), ..*back };
    if changes.is_empty() {
        write_response_lines(fields, &step.settings, &back, lines);
    } else {
        let mut unchanged = Vec::with_capacity(1024);
        write_response_lines(fields, &step.settings, &back, &mut unchanged);
        write_changed(&unchanged, changes, lines);
    }
}

/// Returns whether a 101 accepts the requested upgrade.
fn agrees(ask: &UpstreamRequest, fields: &Fields<'_>) -> bool {
    let Some(asked) = &ask.upgrade else { return false };
    upgrade::agrees(asked, *fields)
}
