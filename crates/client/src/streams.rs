//! The loop of a slot over HTTP/2 and HTTP/3. Its requests are streams of a connection that a group of slots shares.
//!
//! | file | contents |
//! |---|---|
//! | `connection` | a connection of either version, and its streams |
//! | `group` | the connection that a group of slots shares |
//! | `stream` | one request in progress |

mod connection;
mod group;
mod stream;

pub(super) use group::SharedConnection;

use super::slot::ClientSlot;
use super::worker::{Alarm, ClientShared, OpenGuard, failure_of};
use super::{Drive, Made, RequestFailure, RequestRecord, StreamVersion};
use connection::StreamConnection;
use flatout_load::record::SentAgain;
use flatout_load::schedule::Begin;
use flatout_os::clock::precise_ns;
use group::{ConnectionUsage, SharedConnectionState, handle_lost};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use stream::{ClientStream, poll_open};

/// The shared connection, as one slot uses it.
struct SlotConnection {
    connection: StreamConnection,
    generation: u64,
    usage: Rc<ConnectionUsage>,
    /// Details of how the connection was opened, if it was opened for this slot.
    made: Option<Made>,
}

/// Runs a slot until the runtime is dropped.
pub(super) async fn run_slot<D: Drive + 'static>(shared: Rc<ClientShared<D>>, slot: Rc<ClientSlot>) {
    let _alarm = Alarm(Rc::clone(&shared));
    let streams = shared.settings.streams.map_or(1, |streams| streams.per_connection.max(1));
    let group = Rc::clone(&shared.groups[(slot.index / streams) as usize]);
    let mut next: Option<Begin> = None;
    let mut under_way: Vec<ClientStream> = Vec::new();
    let mut kept: Option<SlotConnection> = None;
    // The end of a burst is also the start of the next, so that one clock reading suffices for both.
    let mut begun_ns = precise_ns();
    loop {
        let mut begin = if let Some(begin) = next.take() {
            begin
        } else {
            let Some(begin) = slot.wait_or_close().await else {
                if streams == 1 {
                    group.forget(group.generation.get(), false);
                    kept = None;
                }
                continue;
            };
            begun_ns = precise_ns();
            begin
        };
        slot.take_close();
        if streams > 1
            && group.streams_max.get().is_none()
            && wait_streams_max(&shared, &slot, &group, begin.burst).await
        {
            let now_ns = precise_ns();
            let intended_ns = shared.drive.borrow().intended_after_wait(&begin, now_ns);
            // If the intended start remains, the request has begun, and the wait is part of it.
            if intended_ns != begin.intended_ns {
                (begin.intended_ns, begun_ns) = (intended_ns, now_ns);
            }
        }
        if let Some(streams_max) = group.streams_max.get()
            && slot.index % streams >= slots_usable(streams_max, begin.burst)
        {
            shared.withdraw(&begin, streams_max, precise_ns());
            continue;
        }
        // If several streams share a connection, a schedule that requests a new connection only gets a free stream.
        if streams == 1 && begin.connect {
            group.forget(group.generation.get(), false);
        }
        let outcome = run_burst(&shared, &slot, &group, begin, begun_ns, (&mut under_way, &mut kept)).await;
        slot.deadline.forget();
        begun_ns = precise_ns();
        next = match outcome {
            Ok(generation) => {
                let closes = streams == 1 && begin.closes;
                if closes {
                    group.forget(generation, false);
                }
                shared.after_answers(slot.index, begun_ns, !closes && group.has_connection())
            }
            Err(connected) => shared.after_failure(slot.index, begun_ns, connected),
        };
    }
}

/// Returns the number of slots of a group that can be used, if each sends `burst` requests at once.
fn slots_usable(streams_max: u32, burst: u32) -> u32 {
    (streams_max / burst.max(1)).max(1)
}

/// Waits until the number of streams that the server permits on a connection is known, at most for the timeout. Returns
/// whether it waited and did not time out: false, at once, if this slot must open the connection. Slots for which the
/// server permits no stream are not used: their requests would wait in the client, and the wait would look like a slow
/// response.
async fn wait_streams_max<D: Drive + 'static>(
    shared: &Rc<ClientShared<D>>,
    slot: &ClientSlot,
    group: &Rc<SharedConnection>,
    burst: u32,
) -> bool {
    let wanted = streams_wanted(shared, burst);
    let mut has_waited = false;
    slot.deadline.watch_stream();
    slot.deadline.set(shared.due_ns(precise_ns()));
    while group.streams_max.get().is_none() && slot.deadline.cut().is_none() {
        let mut changed = pin!(group.changed.notified());
        let opened = match &*group.state.borrow() {
            SharedConnectionState::None => break,
            SharedConnectionState::Connecting => None,
            SharedConnectionState::Open(connection, _) => Some(connection.clone()),
        };
        has_waited = true;
        let known = poll_fn(|context| {
            slot.register(context);
            if slot.deadline.cut().is_some() {
                return Poll::Ready(None);
            }
            match &opened {
                None => changed.as_mut().poll(context).map(|()| None),
                Some(connection) => connection.poll_streams_max(wanted, context).map(Result::ok),
            }
        });
        let known = known.await;
        let Some(connection) = opened else { continue };
        group.streams_max.set(known);
        match known {
            None => break,
            Some(known) if known < wanted => {
                let (shared, group) = (Rc::clone(shared), Rc::clone(group));
                tokio::task::spawn_local(use_more_streams(shared, group, connection, (slot.index, burst)));
            }
            Some(_) => {}
        }
    }
    let has_timed_out = slot.deadline.cut().is_some();
    slot.deadline.forget();
    has_waited && !has_timed_out
}

/// Returns the number of streams on a connection that its slots can use at once.
fn streams_wanted<D: Drive>(shared: &ClientShared<D>, burst: u32) -> u32 {
    shared.settings.streams.map_or(1, |streams| streams.per_connection.max(1)).saturating_mul(burst.max(1))
}

/// Uses further slots of a group when the server permits more streams on its connection, as an HTTP/3 server may do at
/// any time. `slot` is any slot of the group, and `burst` the number of requests that each slot sends at once.
async fn use_more_streams<D: Drive + 'static>(
    shared: Rc<ClientShared<D>>,
    group: Rc<SharedConnection>,
    connection: StreamConnection,
    (slot, burst): (u32, u32),
) {
    let streams = shared.settings.streams.map_or(1, |streams| streams.per_connection.max(1));
    let (first, wanted) = (slot - slot % streams, streams_wanted(&shared, burst));
    while let Some(before) = group.streams_max.get().filter(|max| *max < wanted) {
        let Ok(now) = poll_fn(|context| connection.poll_more_streams(before, wanted, context)).await else { return };
        group.streams_max.set(Some(now));
        shared.use_again(first + slots_usable(before, burst)..first + slots_usable(now, burst), now);
    }
}

/// A request of a burst that has not been sent: its number, and its index in the table if it has been chosen.
type Due = (u32, Option<u32>);

/// Maximum number of times that requests of a burst are sent again.
const AGAIN_MAX: u32 = 8;

/// Sends one burst, with all its streams at once. Sends requests again that the server did not process. If the connection
/// was idle and the server closes it before any response, sends idempotent requests again once. Returns the generation
/// of the connection on which the burst completed. The error says whether there was a connection.
async fn run_burst<D: Drive + 'static>(
    shared: &Rc<ClientShared<D>>,
    slot: &ClientSlot,
    group: &Rc<SharedConnection>,
    begin: Begin,
    begun_ns: u64,
    (under_way, kept): (&mut Vec<ClientStream>, &mut Option<SlotConnection>),
) -> Result<u64, bool> {
    if shared.drive.borrow_mut().handle_begun(&begin, begun_ns) {
        shared.count_from_now();
    }
    let mut frame = BurstContext { shared, begin, begun_ns, made: None };
    let mut due_ns = None;
    let mut again: Vec<Due> = Vec::new();
    let (mut rounds, mut has_failed) = (0, false);
    loop {
        let count = if rounds == 0 { begin.burst.max(1) } else { again.len() as u32 };
        let due = |again: &[Due], index: u32| again.get(index as usize).copied().unwrap_or((index, None));
        // Cloning the handle of a connection is expensive, so a slot keeps its clone while the connection is current.
        let opened = match kept {
            Some(opened) if group.is_open(opened.generation) => opened,
            _ => match open(shared, slot, group, due_ns).await {
                Ok(opened) => kept.insert(opened),
                Err(failure) => {
                    let ended_ns = precise_ns();
                    frame.fail((0..count).map(|index| due(&again, index)), failure_of(slot, failure), ended_ns);
                    return Err(false);
                }
            },
        };
        let made = opened.made.take().map(|made| (due(&again, 0).0, made));
        frame.made = made.or(frame.made);
        slot.deadline.watch_stream();
        let now_ns = precise_ns();
        let mut ended_ns = now_ns;
        slot.deadline.set(*due_ns.get_or_insert(shared.due_ns(now_ns)));
        under_way.clear();
        let (mut is_lost, mut idle_closes) = (false, 0);
        let mut unsettled: Vec<Due> = Vec::new();
        let may_repeat = rounds < AGAIN_MAX;
        // The server may have closed the connection because it was idle, before the requests arrived.
        let was_idle = opened.usage.begin(now_ns) && rounds == 0;
        for index in 0..count {
            let (nth, request) = due(&again, index);
            match begin_stream(shared, slot, &opened.connection, &begin, (nth, request)).await {
                Ok(stream) => under_way.push(stream),
                // Nothing of this request and of those after it was sent.
                Err(failure) if failure.is_unprocessed() && may_repeat || failure.is_close() && was_idle => {
                    unsettled.extend((index..count).map(|index| due(&again, index)));
                    idle_closes += if failure.is_close() { count - index } else { 0 };
                    is_lost |= is_of_connection(failure);
                    break;
                }
                Err(failure) => {
                    ended_ns = precise_ns();
                    let rest = (index..count).map(|index| due(&again, index));
                    frame.fail(rest, failure_of(slot, failure), ended_ns);
                    has_failed = true;
                    is_lost |= is_of_connection(failure);
                    break;
                }
            }
        }
        poll_fn(|context| {
            slot.register(context);
            // A late stream is dropped, which resets it.
            let cut = slot.deadline.cut();
            under_way.retain_mut(|stream| {
                let polled = match cut {
                    Some(failure) => Poll::Ready(Err(failure)),
                    None => stream.poll(context, shared),
                };
                let Poll::Ready(result) = polled else { return true };
                ended_ns = precise_ns();
                match result {
                    Err(failure) => {
                        is_lost |= is_of_connection(failure);
                        let is_idle_close = failure.is_close() && was_idle && stream.may_send_again(shared);
                        if failure.is_unprocessed() && may_repeat || is_idle_close {
                            unsettled.push((stream.nth, Some(stream.request)));
                            idle_closes += u32::from(is_idle_close);
                            return false;
                        }
                        // The schedule may continue after a body that was wrong.
                        has_failed |= !matches!(failure, RequestFailure::WrongLength | RequestFailure::WrongDigest);
                    }
                    Ok(_) => opened.usage.replies.set(opened.usage.replies.get() + 1),
                }
                let result = result.map_err(|failure| stream.name_failure(failure));
                // A body that is wrong is complete, as over HTTP/1.
                if matches!(result, Ok(_) | Err(RequestFailure::WrongLength | RequestFailure::WrongDigest)) {
                    let request = (stream.request, begin.request + u64::from(stream.nth));
                    shared.store_cookies(&begin, request, &stream.set_cookies);
                }
                frame.end(stream, result, ended_ns);
                if let Some(filled) = stream.filled.take() {
                    shared.fill_buffers.borrow_mut().give_back(filled);
                }
                false
            });
            if under_way.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        opened.usage.end(ended_ns);
        let generation = opened.generation;
        if is_lost {
            handle_lost(shared, group, slot.index, generation);
        }
        if unsettled.is_empty() {
            return if has_failed { Err(true) } else { Ok(generation) };
        }
        let unprocessed = unsettled.len() as u32 - idle_closes;
        for (requests, why) in [(unprocessed, SentAgain::Unprocessed), (idle_closes, SentAgain::IdleClose)] {
            if requests > 0 {
                shared.drive.borrow_mut().handle_sent_again(requests, why);
            }
        }
        again = unsettled;
        rounds += 1;
    }
}

/// Returns whether the connection is of no more use after a failure. It remains usable after a stream that was aborted,
/// or whose body was wrong.
const fn is_of_connection(failure: RequestFailure) -> bool {
    !matches!(
        failure,
        RequestFailure::WrongLength
            | RequestFailure::WrongDigest
            | RequestFailure::TimedOut
            | RequestFailure::StreamReset(_)
            | RequestFailure::Http3Reset(_)
            | RequestFailure::Abandoned
            | RequestFailure::ShortBody
    )
}

/// Returns the group's connection. The first slot that needs the connection opens it, by its deadline `due_ns` if it has
/// one.
async fn open<D: Drive + 'static>(
    shared: &Rc<ClientShared<D>>,
    slot: &ClientSlot,
    group: &Rc<SharedConnection>,
    due_ns: Option<u64>,
) -> Result<SlotConnection, RequestFailure> {
    loop {
        let changed = group.changed.notified();
        // The first slot connects. Slots that come later wait for it.
        let is_ours = match &mut *group.state.borrow_mut() {
            SharedConnectionState::Open(connection, usage) => {
                let (connection, usage) = (connection.clone(), Rc::clone(usage));
                return Ok(SlotConnection { connection, generation: group.generation.get(), usage, made: None });
            }
            SharedConnectionState::Connecting => false,
            state @ SharedConnectionState::None => {
                *state = SharedConnectionState::Connecting;
                true
            }
        };
        if is_ours {
            return connect(shared, slot, group, due_ns).await;
        }
        // The connecting slot has its own deadline, and in any case leaves the group's state settled.
        changed.await;
    }
}

async fn connect<D: Drive + 'static>(
    shared: &Rc<ClientShared<D>>,
    slot: &ClientSlot,
    group: &Rc<SharedConnection>,
    due_ns: Option<u64>,
) -> Result<SlotConnection, RequestFailure> {
    let attempt = try_connect(shared, slot, group, due_ns).await;
    match attempt {
        Ok(opened) => {
            group.settle(SharedConnectionState::Open(opened.connection.clone(), Rc::clone(&opened.usage)));
            if let Some(made) = &opened.made {
                shared.drive.borrow_mut().handle_connected(slot.index, made, precise_ns());
            }
            Ok(opened)
        }
        Err(failure) => {
            group.settle(SharedConnectionState::None);
            Err(failure)
        }
    }
}

async fn try_connect<D: Drive + 'static>(
    shared: &Rc<ClientShared<D>>,
    slot: &ClientSlot,
    group: &Rc<SharedConnection>,
    due_ns: Option<u64>,
) -> Result<SlotConnection, RequestFailure> {
    // If the slot waited for another slot's attempt, its own attempt starts now.
    let connecting_ns = precise_ns();
    let times = (connecting_ns, due_ns.unwrap_or_else(|| shared.due_ns(connecting_ns)));
    shared.drive.borrow_mut().handle_connecting(connecting_ns);
    let is_reconnect = group.was_lost.replace(false);
    let is_http3 = shared.settings.streams.is_some_and(|streams| streams.version == StreamVersion::Http3);
    let (connection, task, made) = if is_http3 {
        connection::open_http3(shared, slot, times, is_reconnect).await?
    } else {
        connection::open_http2(shared, slot, times, is_reconnect).await?
    };
    let generation = group.generation.get() + 1;
    group.generation.set(generation);
    let open = OpenGuard::new(shared, connecting_ns);
    let usage = Rc::new(ConnectionUsage::new(Rc::clone(&open.replies)));
    let (shared, group, slot) = (Rc::clone(shared), Rc::clone(group), slot.index);
    tokio::task::spawn_local(async move {
        // Streams report how the connection ended; this task only drives it.
        task.await;
        handle_lost(&shared, &group, slot, generation);
        // After a GOAWAY, a slot has forgotten the connection before it ends.
        open.by_server.set(group.lost.get() == generation);
    });
    Ok(SlotConnection { connection, generation, usage, made: Some(made) })
}

/// Sends one request of a burst.
async fn begin_stream<D: Drive>(
    shared: &ClientShared<D>,
    slot: &ClientSlot,
    connection: &StreamConnection,
    begin: &Begin,
    (nth, mut chosen): Due,
) -> Result<ClientStream, RequestFailure> {
    let digesting = shared.sampling.next();
    let opened = poll_fn(|context| {
        slot.register(context);
        if let Some(failure) = slot.deadline.cut() {
            return Poll::Ready(Err(failure));
        }
        let requests = &shared.settings.requests;
        let request =
            *chosen.get_or_insert_with(|| shared.drive.borrow_mut().choose(begin, nth) % requests.len() as u32);
        let number = begin.request + u64::from(nth);
        let opened = poll_open(shared, connection, (begin, (request, number)), digesting.is_some(), context);
        opened.map_ok(|opened| (request, opened))
    });
    let (request, opened) = opened.await?;
    Ok(ClientStream {
        nth,
        request,
        sent_ns: precise_ns(),
        sent_bytes: opened.http1_bytes as u64,
        unsent_from: opened.has_content.then_some(0),
        is_stopped: false,
        filled: opened.filled,
        has_cookies: opened.has_cookies,
        stream: opened.stream,
        status: None,
        first_byte_ns: 0,
        head_bytes: 0,
        body_bytes: 0,
        interim_responses: 0,
        set_cookies: Vec::new(),
        is_digested: digesting.is_some(),
        digesting,
    })
}

/// The data that all requests of a burst share, for their records.
struct BurstContext<'a, D: Drive> {
    shared: &'a ClientShared<D>,
    begin: Begin,
    begun_ns: u64,
    /// The connection that was opened for the burst, and the number of the request that it counts for.
    made: Option<(u32, Made)>,
}

impl<D: Drive> BurstContext<'_, D> {
    fn made_for(&self, nth: u32) -> Option<Made> {
        self.made.filter(|(first, _)| *first == nth).map(|(_, made)| made)
    }

    fn end(&self, stream: &ClientStream, result: Result<u16, RequestFailure>, ended_ns: u64) {
        let first_byte_ns = if stream.first_byte_ns == 0 { ended_ns } else { stream.first_byte_ns };
        let unsent = stream.unsent(self.shared).len() as u64;
        self.shared.count_cookies(unsent == 0 && stream.has_cookies);
        self.shared.drive.borrow_mut().handle_ended(&RequestRecord {
            begin: self.begin,
            request: stream.request,
            begun_ns: self.begun_ns,
            sent_ns: stream.sent_ns,
            first_byte_ns,
            ended_ns,
            made: self.made_for(stream.nth),
            result,
            is_digested: stream.is_digested,
            is_sent: unsent == 0,
            sent_bytes: stream.sent_bytes.saturating_sub(unsent),
            head_bytes: stream.head_bytes,
            body_bytes: stream.body_bytes,
            interim_responses: stream.interim_responses,
        });
    }

    /// Reports these requests, which were not sent, as failed.
    fn fail(&self, due: impl Iterator<Item = Due>, failure: RequestFailure, ended_ns: u64) {
        let mut drive = self.shared.drive.borrow_mut();
        for (nth, request) in due {
            let count = self.shared.settings.requests.len() as u32;
            let request = request.unwrap_or_else(|| drive.choose(&self.begin, nth) % count);
            drive.handle_ended(&RequestRecord {
                begin: self.begin,
                request,
                begun_ns: self.begun_ns,
                sent_ns: ended_ns,
                first_byte_ns: ended_ns,
                ended_ns,
                made: self.made_for(nth),
                result: Err(failure),
                is_digested: false,
                is_sent: false,
                sent_bytes: 0,
                head_bytes: 0,
                body_bytes: 0,
                interim_responses: 0,
            });
        }
    }
}
