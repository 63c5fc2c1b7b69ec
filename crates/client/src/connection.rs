//! The HTTP/1 loop of a slot: it connects, exchanges bursts and closes, again and again.

use super::content::check;
use super::cookies::append_field;
use super::failure::IDLE_NS_MIN;
use super::link::{BurstBytes, Link};
use super::reader::ResponseReader;
use super::slot::ClientSlot;
use super::worker::{Alarm, ClientShared, failure_of};
use super::{Drive, Made, RequestFailure, RequestRecord};
use flatout_load::record::SentAgain;
use flatout_load::schedule::Begin;
use flatout_os::clock::precise_ns;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

/// A burst in progress.
struct Burst {
    begin: Begin,
    begun_ns: u64,
    /// Time at which the burst was sent, in nanoseconds; 0 until then.
    sent_ns: u64,
    sent_bytes: usize,
    /// Time by which all responses must be complete, in nanoseconds, if the burst has been sent. It remains the same if
    /// the burst is sent again.
    due_ns: Option<u64>,
    /// True if the connection had been idle for [`IDLE_NS_MIN`] when the burst began.
    was_idle: bool,
    made: Option<Made>,
    /// Table index of the first request.
    first: u32,
    /// True if the burst has several requests, or its request has placeholders or cookies. Its bytes, or those before
    /// `rest_from`, are then in its pipeline.
    is_joined: bool,
    /// Index in the prepared request from which its bytes are sent unchanged, if the burst is that request with cookies.
    rest_from: usize,
}

/// Buffers that a slot reuses for each burst, so that no burst allocates.
#[derive(Default)]
struct Pipeline {
    requests: Vec<PipelinedRequest>,
    /// The bytes of all requests of the burst. The content of a single prepared request, which may be large, is not copied.
    bytes: Vec<u8>,
}

/// A request of a burst.
struct PipelinedRequest {
    /// Table index.
    index: u32,
    /// Its end in the burst.
    end: usize,
    has_cookies: bool,
}

/// The result of a burst whose responses are all complete.
struct Answered {
    /// Time at which the last response was complete and its cookies were stored, in nanoseconds.
    ended_ns: u64,
    /// True if the connection can be reused.
    is_open: bool,
    /// True if only the server prevents reuse.
    server_closed: bool,
}

/// The reason an idle slot was woken.
enum Woken {
    Begin(Begin),
    /// The connection has become unusable. A burst may have arrived at the same time.
    Lost(Option<Begin>),
    /// The connection must be closed.
    Closed,
}

/// Runs a slot until the runtime is dropped.
pub(super) async fn run_slot<D: Drive + 'static>(shared: Rc<ClientShared<D>>, slot: Rc<ClientSlot>) {
    let _alarm = Alarm(Rc::clone(&shared));
    let mut pipeline = Pipeline::default();
    let mut is_reconnect = false;
    let mut next: Option<Begin> = None;
    let mut again: Option<Burst> = None;
    // Each iteration is one connection.
    loop {
        let (mut burst, connecting_ns) = if let Some(burst) = again.take() {
            (burst, precise_ns())
        } else {
            let begin = match next.take().or_else(|| slot.take()) {
                Some(begin) => begin,
                None => slot.wait().await,
            };
            let begun_ns = precise_ns();
            (begin_burst(&shared, begin, begun_ns, &mut pipeline), begun_ns)
        };
        // A pending request to close concerned the previous connection.
        slot.take_close();
        shared.drive.borrow_mut().handle_connecting(connecting_ns);
        let opened = {
            let bytes = bytes_of(&shared, &burst, &pipeline);
            let due_ns = burst.due_ns.unwrap_or_else(|| shared.due_ns(connecting_ns));
            Link::open(&shared, &slot, bytes, (connecting_ns, due_ns), is_reconnect).await
        };
        is_reconnect = false;
        match opened {
            Ok(opened) => {
                shared.drive.borrow_mut().handle_connected(slot.index, &opened.made, opened.sent_ns);
                (burst.made, burst.sent_ns) = (Some(opened.made), opened.sent_ns);
                let mut link = opened.link;
                let left = run_connection(&shared, &slot, &mut link, burst, &mut pipeline).await;
                slot.deadline.forget();
                link.open.by_server.set(left.by_server);
                drop(link);
                (next, again, is_reconnect) = (left.next, left.again, left.by_server);
                if left.asks {
                    next = next.or_else(|| shared.dispatch(left.ended_ns, Some(slot.index)));
                }
            }
            Err(failure) => {
                let failure = failure_of(&slot, failure);
                slot.deadline.forget();
                let ended_ns = precise_ns();
                fail_from(&shared, &burst, &pipeline, 0, failure, ended_ns, &ResponseReader::new());
                next = shared.after_failure(slot.index, ended_ns, false);
            }
        }
    }
}

/// The result of using a connection.
#[derive(Default)]
struct Left {
    /// The slot's next burst, if known.
    next: Option<Begin>,
    /// The burst to send again on a new connection, if any. Its bytes, if it has its own, are still in the pipeline.
    again: Option<Burst>,
    /// True if the slot must still ask for its next burst.
    asks: bool,
    ended_ns: u64,
    /// True if the server closed the connection although it was reusable.
    by_server: bool,
}

/// Sends bursts and reads their responses until the connection can no longer be used.
async fn run_connection<D: Drive + 'static>(
    shared: &Rc<ClientShared<D>>,
    slot: &ClientSlot,
    link: &mut Link<D>,
    mut burst: Burst,
    pipeline: &mut Pipeline,
) -> Left {
    let mut reader = ResponseReader::with_cookies(shared.settings.stores_cookies);
    loop {
        let exchanged = exchange(shared, slot, link, &mut reader, &mut burst, pipeline).await;
        let (begin, begun_ns, idle_from_ns) = match exchanged {
            Err((nth, failure)) => {
                let failure = failure_of(slot, failure);
                if may_send_again(shared, &burst, pipeline, (nth, failure), &reader) {
                    shared.drive.borrow_mut().handle_sent_again(burst.begin.burst.max(1), SentAgain::IdleClose);
                    // The burst remains the same, and so do its intended start, the start of its service time and its
                    // deadline.
                    (burst.sent_ns, burst.sent_bytes, burst.was_idle) = (0, 0, false);
                    return Left { again: Some(burst), by_server: true, ..Left::default() };
                }
                let ended_ns = precise_ns();
                fail_from(shared, &burst, pipeline, nth, failure, ended_ns, &reader);
                let next = shared.after_failure(slot.index, ended_ns, true);
                return Left { next, ended_ns, ..Left::default() };
            }
            Ok(answered) => {
                slot.deadline.clear();
                let next = shared.after_answers(slot.index, answered.ended_ns, answered.is_open);
                if !answered.is_open {
                    let (ended_ns, by_server) = (answered.ended_ns, answered.server_closed);
                    return Left { next, ended_ns, by_server, ..Left::default() };
                }
                match next {
                    // The end of a burst is also the start of the next, so that one clock reading suffices for both.
                    Some(begin) => (begin, answered.ended_ns, answered.ended_ns),
                    None => match wait_begin_or_loss(shared, slot, link).await {
                        Woken::Begin(begin) => (begin, precise_ns(), answered.ended_ns),
                        Woken::Closed => {
                            return Left { ended_ns: precise_ns(), ..Left::default() };
                        }
                        Woken::Lost(next) => {
                            if next.is_none() {
                                shared.drive.borrow_mut().handle_closed(slot.index);
                            }
                            let asks = next.is_none();
                            return Left { next, asks, ended_ns: precise_ns(), by_server: true, ..Left::default() };
                        }
                    },
                }
            }
        };
        if begin.connect {
            return Left { next: Some(begin), ended_ns: begun_ns, ..Left::default() };
        }
        burst = begin_burst(shared, begin, begun_ns, pipeline);
        burst.was_idle = begun_ns.saturating_sub(idle_from_ns) >= IDLE_NS_MIN;
    }
}

/// Sends one burst and reads its responses. The error contains the index of the failed request.
async fn exchange<D: Drive + 'static>(
    shared: &Rc<ClientShared<D>>,
    slot: &ClientSlot,
    link: &mut Link<D>,
    reader: &mut ResponseReader,
    burst: &mut Burst,
    pipeline: &Pipeline,
) -> Result<Answered, (u32, RequestFailure)> {
    let count = burst.begin.burst.max(1);
    if burst.sent_ns == 0 {
        burst.sent_ns = burst.begun_ns;
    }
    slot.deadline.set(*burst.due_ns.get_or_insert(shared.due_ns(burst.sent_ns)));
    let bytes = bytes_of(shared, burst, pipeline);
    let (mut sent_bytes, mut first_byte_ns) = (0, 0);
    let (mut early, mut send_failure) = (None, None);
    if count == 1 {
        let index = burst.first;
        let is_head = shared.settings.requests[index as usize].is_head;
        reader.begin(is_head, is_last(&burst.begin, 0), false, shared.sampling.next());
        let sent = link.send_request(shared, (reader, index), bytes, (&mut sent_bytes, &mut first_byte_ns)).await;
        burst.sent_bytes = sent_bytes;
        early = sent.map_err(|failure| (0, failure))?;
    } else {
        // If the server reads no more, responses may have arrived nevertheless.
        send_failure = link.send(bytes, &mut sent_bytes).await.err();
        burst.sent_bytes = sent_bytes;
    }
    // The rest of a request that already has its response is not sent, so the connection is of no use.
    let is_whole = sent_bytes == bytes.len();
    for nth in 0..count {
        let index = request_of(burst, pipeline, nth);
        let request = &shared.settings.requests[index as usize];
        let more_due = nth + 1 < count;
        if count > 1 {
            first_byte_ns = 0;
            reader.begin(request.is_head, is_last(&burst.begin, nth), more_due, shared.sampling.next());
        }
        let mut server_closed = early.as_ref().is_some_and(|received| received.server_closed);
        let mut answer = match nth {
            0 => early.take().and_then(|received| received.answer),
            _ => reader.read_stash(shared.room.borrow_mut().parts(index).1).map_err(|failure| (nth, failure))?,
        };
        while answer.is_none() {
            let received = link.receive(shared, reader, index).await;
            let received =
                received.map_err(|failure| (nth, send_failure.filter(|_| failure.is_close()).unwrap_or(failure)))?;
            (answer, server_closed) = (received.answer, received.server_closed);
            if answer.is_none() && first_byte_ns == 0 {
                first_byte_ns = precise_ns();
            }
        }
        let Some(answer) = answer else { return Err((nth, RequestFailure::ClosedEarly)) };
        let ended_ns = precise_ns();
        let received = reader.received();
        let digest = reader.take_digest();
        let is_digested = digest.is_some();
        let result = check(request, answer.status, received.body_bytes, digest);
        link.open.replies.set(link.open.replies.get() + 1);
        let ended = RequestRecord {
            is_digested,
            first_byte_ns: if first_byte_ns == 0 { ended_ns } else { first_byte_ns },
            head_bytes: received.total_bytes - received.body_bytes,
            body_bytes: received.body_bytes,
            interim_responses: received.interim_responses,
            ..ended_of(shared, burst, pipeline, nth, result, ended_ns)
        };
        shared.drive.borrow_mut().handle_ended(&ended);
        shared.count_cookies(ended.is_sent && has_cookies(burst, pipeline, nth));
        let request = (index, burst.begin.request.saturating_add(u64::from(nth)));
        let stored_ns = shared.store_cookies(&burst.begin, request, reader.set_cookies());
        let may_go_on = answer.persistent && !server_closed && is_whole;
        if !more_due {
            // If the request announced the close, the close is no failure of the server.
            let is_by_server = !may_go_on && is_whole && !burst.begin.closes;
            // The time to store cookies is not part of the next response time.
            let ended_ns = stored_ns.unwrap_or(ended_ns);
            return Ok(Answered { ended_ns, is_open: may_go_on, server_closed: is_by_server });
        }
        if !answer.persistent {
            // The server announced that it would close, so the other requests get no response.
            return Err((nth + 1, RequestFailure::ClosedEarly));
        }
    }
    Err((0, RequestFailure::ClosedEarly))
}

fn begin_burst<D: Drive>(shared: &ClientShared<D>, begin: Begin, begun_ns: u64, pipeline: &mut Pipeline) -> Burst {
    let visitor = shared.visitor_with_cookies(&begin);
    let mut drive = shared.drive.borrow_mut();
    if drive.handle_begun(&begin, begun_ns) {
        shared.count_from_now();
    }
    let requests = &shared.settings.requests;
    // A drive that chooses an index out of range has a bug, which must not cause a panic here.
    let mut choose = |nth| drive.choose(&begin, nth) % requests.len() as u32;
    let first = choose(0);
    let mut burst = Burst {
        begin,
        begun_ns,
        sent_ns: 0,
        sent_bytes: 0,
        due_ns: None,
        was_idle: false,
        made: None,
        first,
        is_joined: false,
        rest_from: usize::MAX,
    };
    let is_prepared = begin.burst <= 1 && requests[first as usize].template.is_none();
    let cookies = &mut *shared.cookies.borrow_mut();
    pipeline.requests.clear();
    pipeline.bytes.clear();
    for nth in 0..begin.burst.max(1) {
        let index = if nth == 0 { first } else { choose(nth) };
        let (request, is_last) = (&requests[index as usize], is_last(&begin, nth));
        let number = begin.request.saturating_add(u64::from(nth));
        let cookie = visitor.as_ref().and_then(|visitor| {
            let request = (&shared.settings, (index, number));
            cookies.value_for(visitor, request, begun_ns)
        });
        if is_prepared && cookie.is_none() {
            return burst;
        }
        let mut rest_bytes = 0;
        if let Some(template) = &request.template {
            let (values, buffers) = (&shared.settings.values, &mut *shared.fill_buffers.borrow_mut());
            template.fill_http1(values, (number, is_last), cookie, buffers, &mut pipeline.bytes);
        } else {
            let fields_end = request.fields_end(is_last);
            let (fields, rest) = request.bytes(is_last).split_at(fields_end);
            pipeline.bytes.extend_from_slice(fields);
            append_field(cookie, &mut pipeline.bytes);
            if is_prepared {
                (burst.rest_from, rest_bytes) = (fields_end, rest.len());
            } else {
                pipeline.bytes.extend_from_slice(rest);
            }
        }
        let (has_cookies, end) = (cookie.is_some(), pipeline.bytes.len() + rest_bytes);
        pipeline.requests.push(PipelinedRequest { index, end, has_cookies });
    }
    burst.is_joined = true;
    burst
}

const fn is_last(begin: &Begin, nth: u32) -> bool {
    begin.closes && nth + 1 >= begin.burst
}

fn request_of(burst: &Burst, pipeline: &Pipeline, nth: u32) -> u32 {
    if burst.is_joined { pipeline.requests[nth as usize].index } else { burst.first }
}

fn has_cookies(burst: &Burst, pipeline: &Pipeline, nth: u32) -> bool {
    burst.is_joined && pipeline.requests[nth as usize].has_cookies
}

fn bytes_of<'a, D: Drive>(shared: &'a ClientShared<D>, burst: &Burst, pipeline: &'a Pipeline) -> BurstBytes<'a> {
    let prepared = shared.settings.requests[burst.first as usize].bytes(burst.begin.closes);
    if burst.is_joined {
        BurstBytes(&pipeline.bytes, prepared.get(burst.rest_from..).unwrap_or_default())
    } else {
        BurstBytes(prepared, &[])
    }
}

/// Creates the record of one request of a burst, without its response.
fn ended_of<D: Drive>(
    shared: &ClientShared<D>,
    burst: &Burst,
    pipeline: &Pipeline,
    nth: u32,
    result: Result<u16, RequestFailure>,
    ended_ns: u64,
) -> RequestRecord {
    let end_of = |nth| pipeline.requests[nth as usize].end;
    let (before, end) = match (burst.is_joined, nth.checked_sub(1)) {
        (true, Some(previous)) => (end_of(previous), end_of(nth)),
        (true, None) => (0, end_of(nth)),
        (false, _) => (0, bytes_of(shared, burst, pipeline).len()),
    };
    let whole = end - before;
    let sent_bytes = burst.sent_bytes.saturating_sub(before).min(whole);
    RequestRecord {
        begin: burst.begin,
        request: request_of(burst, pipeline, nth),
        begun_ns: burst.begun_ns,
        sent_ns: if burst.sent_ns == 0 { ended_ns } else { burst.sent_ns },
        first_byte_ns: ended_ns,
        ended_ns,
        made: burst.made.filter(|_| nth == 0),
        result,
        is_digested: false,
        is_sent: sent_bytes == whole,
        sent_bytes: sent_bytes as u64,
        head_bytes: 0,
        body_bytes: 0,
        interim_responses: 0,
    }
}

/// Returns whether a burst whose `nth` request failed can be sent again on a new connection: the server closed the
/// connection, which had been idle, before any byte of a response, and all requests are idempotent (RFC 9110 §9.2.2, RFC
/// 9112 §9.3.1). A burst is sent again once, because its second connection is new.
fn may_send_again<D: Drive>(
    shared: &ClientShared<D>,
    burst: &Burst,
    pipeline: &Pipeline,
    (nth, failure): (u32, RequestFailure),
    reader: &ResponseReader,
) -> bool {
    let requests = &shared.settings.requests;
    let is_idempotent = |nth| requests[request_of(burst, pipeline, nth) as usize].is_idempotent;
    burst.was_idle
        && nth == 0
        && failure.is_close()
        && reader.received().total_bytes == 0
        && (0..burst.begin.burst.max(1)).all(is_idempotent)
}

/// Reports the `nth` request of a burst and all later requests as failed. The record of the `nth` request includes the
/// part of its response that has arrived.
fn fail_from<D: Drive>(
    shared: &ClientShared<D>,
    burst: &Burst,
    pipeline: &Pipeline,
    nth: u32,
    failure: RequestFailure,
    ended_ns: u64,
    reader: &ResponseReader,
) {
    let mut drive = shared.drive.borrow_mut();
    for later in nth..burst.begin.burst.max(1) {
        let mut ended = ended_of(shared, burst, pipeline, later, Err(failure), ended_ns);
        if later == nth && reader.is_due() {
            let received = reader.received();
            ended.head_bytes = received.total_bytes.saturating_sub(received.body_bytes);
            ended.body_bytes = received.body_bytes;
            ended.interim_responses = received.interim_responses;
        }
        drive.handle_ended(&ended);
        shared.count_cookies(ended.is_sent && has_cookies(burst, pipeline, later));
    }
}

/// Waits until the slot receives a burst or its connection becomes unusable.
async fn wait_begin_or_loss<D: Drive + 'static>(
    shared: &ClientShared<D>,
    slot: &ClientSlot,
    link: &mut Link<D>,
) -> Woken {
    poll_fn(|context| {
        if link.poll_lost(context, shared).is_ready() {
            return Poll::Ready(Woken::Lost(slot.take()));
        }
        if let Some(begin) = slot.take() {
            Poll::Ready(Woken::Begin(begin))
        } else if slot.take_close() {
            Poll::Ready(Woken::Closed)
        } else {
            slot.register(context);
            Poll::Pending
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::{Pipeline, begin_burst, bytes_of};
    use crate::pacer::Pacer;
    use crate::tests::{Script, settings};
    use crate::worker::build_shared;
    use crate::{ClientSettings, PreparedRequest};
    use flatout_load::schedule::{Begin, Visitor};
    use flatout_os::clock::precise_ns;
    use flatout_os::runtime::build_runtime;

    #[test]
    fn cookies_do_not_copy_the_content_of_a_request() {
        let content = vec![b'x'; 100_000];
        let head = |path| format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n");
        let upload = |path| PreparedRequest::plain([head(path).as_bytes(), b"\r\n", &content].concat());
        let requests = [upload("/a/"), upload("/b/")].into();
        let settings = ClientSettings { requests, ..settings("127.0.0.1:1".parse().unwrap()) };
        let mut script = Script::new(1, 0);
        script.visitor = Some(|_| Visitor { number: 0, visit: 0, is_last: false });
        let runtime = build_runtime().unwrap();
        let pacer = runtime.block_on(async { Pacer::new(0) }).unwrap();
        let shared = build_shared(settings, script, pacer);
        let (slot, burst) = (0, 1);
        let begin = Begin { slot, connect: true, burst, closes: false, intended_ns: 0, visit: 0, request: 0, call: 0 };
        let prepared = &shared.settings.requests[0].kept;
        let mut pipeline = Pipeline::default();
        // The client has a cookie, but not for this request.
        shared.store_cookies(&begin, (1, 0), b"b=1\n");
        let burst = begin_burst(&shared, begin, precise_ns(), &mut pipeline);
        let bytes = bytes_of(&shared, &burst, &pipeline);
        assert_eq!((bytes.0.as_ptr(), bytes.len(), pipeline.bytes.capacity()), (prepared.as_ptr(), prepared.len(), 0));
        shared.store_cookies(&begin, (0, 0), b"a=1\n");
        let burst = begin_burst(&shared, begin, precise_ns(), &mut pipeline);
        let bytes = bytes_of(&shared, &burst, &pipeline);
        assert_eq!(bytes.0, format!("{}Cookie: a=1\r\n", head("/a/")).as_bytes());
        assert_eq!(bytes.1.as_ptr_range(), prepared[head("/a/").len()..].as_ptr_range());
        assert!(pipeline.bytes.capacity() < 1_000);
    }
}
