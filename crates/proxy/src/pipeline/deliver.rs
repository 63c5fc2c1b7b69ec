//! Construction of the response to the client: in this file from an origin's response, in `stored` from stored or
//! arriving content.

pub(crate) mod stored;

use super::tunnel::tunnel;
use crate::exchange::{Answered, Through, UpstreamRequest};
use crate::forward::{Return, upgrade, write_response_lines};
use crate::note::Note;
use crate::outcome::ForwardOutcome;
use crate::query::{EsiSource, Query};
use crate::step::ProxyStep;
use crate::sticky::write_set_cookie;
use crate::worker::ProxyWorker;
use flatout_config::model::FieldOp;
use flatout_handler::response::{Body, Head, Response, write_reason_line, write_status_line};
use flatout_handler::routed::Refusal;
use flatout_handler::stream::{Stream, TunnelStart};
use flatout_http::head::{FieldStorage, Fields};
use flatout_http::lines::{write_changed, write_line};
use flatout_http::status::has_content;
use flatout_os::clock::unix_s;
use flatout_reason::Outcome;
use flatout_upstream::origin::WholeAnswer;
use std::rc::Rc;
use std::sync::Arc;

/// Builds the response to `query` from the origin's response, which is not stored.
pub(super) fn respond_to(query: &Query, answered: Answered, note: &Note) -> Result<Response, Refusal> {
    let extra = note.lines(None, None, query.shows_status);
    let extra = (!extra.is_empty()).then_some(extra);
    let is_template = query.is_template_here(&answered.incoming);
    // Header operations are applied to a template after composition.
    let changes = if is_template { &[][..] } else { &query.policy.fields };
    let outcome = note.reason.into();
    let (response, lines) = respond(&query.step, &query.ask, changes, answered, extra, outcome)?;
    if is_template {
        query.template.replace(Some(EsiSource::Page(lines)));
    }
    Ok(response)
}

/// Builds the client's response from the origin's response. Also returns its field lines.
pub(super) fn respond(
    step: &Arc<ProxyStep>,
    ask: &UpstreamRequest,
    changes: &[FieldOp],
    answered: Answered,
    extra: Option<Rc<[u8]>>,
    outcome: Outcome,
) -> Result<(Response, Vec<u8>), Refusal> {
    let Answered { mut incoming, hold, .. } = answered;
    let served = hold.index();
    let (status, reason) = (incoming.status, incoming.reason.take());
    let is_upgrade = status == 101;
    let to_head = ask.request.method() == "HEAD";
    let mut lines = Vec::with_capacity(incoming.lines().len() + 256);
    {
        let mut storage = FieldStorage::new();
        let fields = incoming.fields(&mut storage);
        let is_stream = incoming.version.has_streams();
        if is_upgrade && !agrees(ask, &fields, is_stream) {
            return Err(Refusal::from(ForwardOutcome::UpgradeInvalid));
        }
        let keep_length = incoming.content_length.is_some() && !is_upgrade && status != 204;
        let keep_upgrade = is_upgrade || status == 426;
        let back = Return { version: incoming.version, keep_length, keep_upgrade, date_s: None };
        write_lines(step, (status, changes), fields, &back, &mut lines);
        write_set_cookie(step, ask, (status, served), 0, &mut lines);
        if is_upgrade && is_stream {
            // RFC 8441 §5: the handshake with the origin uses no key, but the handshake with the client may.
            ask.request.with(|request| {
                if let Some(key) = request.head.fields.first("sec-websocket-key") {
                    write_line("Sec-WebSocket-Accept", upgrade::accept_key(key).as_bytes(), &mut lines);
                }
            });
        }
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
    let mut response = Response::new(status, Head::forwarded(status, reason.as_deref(), &lines), body, outcome);
    response.extra = extra;
    Ok((response, lines))
}

/// Builds the client's response from an origin's response that has been received completely. Writes the head and
/// content to one buffer. `ask` is the request, and `served` the origin's index.
pub(super) fn pass_on(
    worker: &ProxyWorker,
    (step, ask, served): (&ProxyStep, &UpstreamRequest, usize),
    changes: &[FieldOp],
    answer: &WholeAnswer<'_>,
    note: Option<Note>,
    outcome: Outcome,
) -> Response {
    let head = answer.head;
    let keep_length = head.content_length.is_some() && head.status != 204;
    let back = Return { version: head.version, keep_length, keep_upgrade: head.status == 426, date_s: None };
    let mut head_bytes = 0;
    let bytes = worker.write_answer(|room| {
        match head.unusual_reason() {
            Some(reason) => write_reason_line(head.status, reason, room),
            None => write_status_line(head.status, room),
        }
        let lines_at = room.len();
        write_lines(step, (head.status, changes), head.fields, &back, room);
        write_set_cookie(step, ask, (head.status, served), lines_at, room);
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

/// Appends the field lines for the client of a response with `status` to `lines`.
fn write_lines(
    step: &ProxyStep,
    (status, changes): (u16, &[FieldOp]),
    fields: Fields<'_>,
    back: &Return,
    lines: &mut Vec<u8>,
) {
    // RFC 9110 §6.6.1: a recipient adds Date if it is missing.
    let back = Return { date_s: Some(unix_s()), ..*back };
    if changes.is_empty() {
        write_response_lines(fields, &step.settings, &back, lines);
    } else {
        let mut unchanged = Vec::with_capacity(1024);
        write_response_lines(fields, &step.settings, &back, &mut unchanged);
        write_changed(status, &unchanged, changes, lines);
    }
}

/// Returns whether a 101 accepts the requested upgrade. `is_stream` is true if the upgrade was an extended CONNECT,
/// which has no key.
fn agrees(ask: &UpstreamRequest, fields: &Fields<'_>, is_stream: bool) -> bool {
    let Some(asked) = &ask.upgrade else { return false };
    let is_accepted = is_stream || ask.websocket_key.as_ref().is_none_or(|key| key.is_accepted(*fields));
    is_accepted && upgrade::agrees(asked, *fields)
}
