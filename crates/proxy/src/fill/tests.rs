use super::readers::PAUSE_MS_MAX;
use super::{FetchJoin, FetchState, FillHead, FillStorage, FillWriter, Fills, Interest};
use crate::meta::tests::meta;
use flatout_handler::ending::CloseReason;
use flatout_handler::response::Segment;
use flatout_handler::stream::{ContentEvent, ContentSource};
use flatout_os::clock::SettableClock;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Counts how often it was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Woken {
    fn new() -> (Arc<Self>, Waker) {
        let woken = Arc::<Self>::default();
        (Arc::clone(&woken), Waker::from(woken))
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

fn mine(fills: &Arc<Fills>, key: &[u8]) -> FillWriter {
    match fills.begin(key) {
        FetchJoin::Yours(writer) => writer,
        FetchJoin::Theirs(_) => panic!("somebody fetches {key:?}"),
    }
}

fn theirs(fills: &Arc<Fills>, key: &[u8]) -> Interest {
    match fills.begin(key) {
        FetchJoin::Theirs(interest) => interest,
        FetchJoin::Yours(_) => panic!("nobody fetches {key:?}"),
    }
}

#[test]
fn a_fetch_whose_response_is_stored_meanwhile_is_not_repeated() {
    let fills = Arc::<Fills>::default();
    let writer = mine(&fills, b"key");
    // While the fetch is in progress, it is joined, whatever the store holds.
    let joined = fills.begin_unless(b"key", || panic!("the store was searched while the fetch is in progress"));
    assert!(matches!(joined, Some(FetchJoin::Theirs(_))), "{joined:?}");
    drop(joined);
    writer.end(None);
    assert!(fills.begin_unless(b"key", || true).is_none() && !fills.is_under_way(b"key"));
    assert!(matches!(fills.begin_unless(b"key", || false), Some(FetchJoin::Yours(_))));
}

fn head() -> FillHead {
    let storage = FillStorage::new(None);
    FillHead { meta: meta(), lines: Arc::from(&b""[..]), length: None, storage, generation: 0, served: 0 }
}

fn standing(interest: &Interest) -> Option<FetchState> {
    match interest.poll_standing(false, &mut Context::from_waker(Waker::noop())) {
        Poll::Ready(standing) => Some(standing),
        Poll::Pending => None,
    }
}

fn push(writer: &FillWriter, bytes: &[u8]) {
    writer.add(|content| content.push(bytes.into()));
}

/// A reader's next piece: bytes, `.` at the end, `!` if it was cut; `None` if the reader must wait.
fn next(reader: &mut impl ContentSource, waker: &Waker) -> Option<String> {
    match reader.poll_piece(&mut Context::from_waker(waker)) {
        Poll::Ready(ContentEvent::Segment(Segment::Bytes(bytes))) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        Poll::Ready(ContentEvent::Segment(Segment::File(file))) => Some(format!("file {}+{}", file.offset, file.bytes)),
        Poll::Ready(ContentEvent::End(trailers)) => Some(format!(".{}", trailers.map_or(0, |trailers| trailers.len()))),
        Poll::Ready(ContentEvent::Failed(reason)) => Some(format!("!{}", reason.name())),
        Poll::Pending => None,
    }
}

#[test]
fn who_asks_for_the_same_joins_until_it_has_ended() {
    let fills = Arc::<Fills>::default();
    let writer = mine(&fills, b"a");
    let first = writer.join();
    let second = theirs(&fills, b"a");
    assert!(fills.is_under_way(b"a") && !fills.is_under_way(b"b"));
    assert!(standing(&first).is_none() && standing(&second).is_none());
    drop(mine(&fills, b"b"));
    writer.begin(head());
    push(&writer, b"abc");
    let mut early = second.read(0, None);
    let mut late = theirs(&fills, b"a").read(1, Some(2));
    writer.end(Some(Arc::from(&b"T: 1\r\n"[..])));
    assert!(!fills.is_under_way(b"a"));
    for expected in ["abc", ".6"] {
        assert_eq!(next(&mut early, Waker::noop()).as_deref(), Some(expected));
    }
    for expected in ["b", ".0"] {
        assert_eq!(next(&mut late, Waker::noop()).as_deref(), Some(expected));
    }
    assert!(matches!(standing(&first), Some(FetchState::Streaming(_))));
}

#[test]
fn clients_that_may_leave_are_woken_if_the_head_is_late() {
    let fills = Arc::<Fills>::default();
    let writer = mine(&fills, b"a");
    let (leaving, staying) = (writer.join(), theirs(&fills, b"a"));
    let (woken, waker) = Woken::new();
    let context = &mut Context::from_waker(&waker);
    assert!(leaving.poll_standing(true, context).is_pending());
    writer.set_late();
    assert_eq!(woken.count(), 1);
    assert!(matches!(leaving.poll_standing(true, context), Poll::Ready(FetchState::Asking)));
    assert!(staying.poll_standing(false, context).is_pending());
    writer.begin(head());
    assert!(matches!(staying.poll_standing(false, context), Poll::Ready(FetchState::Streaming(_))));
    assert!(matches!(leaving.poll_standing(true, context), Poll::Ready(FetchState::Streaming(_))));
}

#[test]
fn a_reader_is_woken_by_what_comes_and_by_the_end() {
    let fills = Arc::<Fills>::default();
    let writer = mine(&fills, b"a");
    let interest = writer.join();
    let (woken, waker) = Woken::new();
    assert!(interest.poll_standing(false, &mut Context::from_waker(&waker)).is_pending());
    // Anyone who asks twice is woken once.
    assert!(interest.poll_standing(false, &mut Context::from_waker(&waker)).is_pending());
    writer.begin(head());
    assert_eq!(woken.count(), 1);
    let mut reader = interest.read(0, None);
    assert_eq!(next(&mut reader, &waker), None);
    push(&writer, b"a");
    assert_eq!((woken.count(), next(&mut reader, &waker).as_deref()), (2, Some("a")));
    assert_eq!(next(&mut reader, &waker), None);
    writer.end(None);
    assert_eq!((woken.count(), next(&mut reader, &waker).as_deref()), (3, Some(".0")));
}

#[test]
fn a_writer_that_is_dropped_or_cuts_ends_nothing_as_whole() {
    let fills = Arc::<Fills>::default();
    for drops in [true, false] {
        let writer = mine(&fills, b"a");
        let mut reader = writer.join().read(0, None);
        let waits = writer.join();
        writer.begin(head());
        push(&writer, b"ab");
        let (woken, waker) = Woken::new();
        assert_eq!(next(&mut reader, &waker).as_deref(), Some("ab"));
        assert_eq!(next(&mut reader, &waker), None);
        if drops {
            drop(writer);
        } else {
            writer.cut(CloseReason::OriginCutBody);
        }
        let reason = if drops { CloseReason::SocketFailed } else { CloseReason::OriginCutBody };
        assert_eq!(woken.count(), 1);
        assert_eq!(next(&mut reader, &waker), Some(format!("!{}", reason.name())));
        assert_eq!(next(&mut waits.read(2, None), &waker), Some(format!("!{}", reason.name())));
        assert!(!fills.is_under_way(b"a"));
    }
    // Nobody waits for ever for a task that is gone before it knew anything.
    let writer = mine(&fills, b"a");
    let interest = theirs(&fills, b"a");
    drop(writer);
    assert!(matches!(standing(&interest), Some(FetchState::Released)));
}

#[test]
fn what_is_settled_is_known_to_all_and_joined_by_nobody() {
    let fills = Arc::<Fills>::default();
    let writer = mine(&fills, b"a");
    let interest = theirs(&fills, b"a");
    writer.settle(FetchState::Released);
    assert!(matches!(standing(&interest), Some(FetchState::Released)));
    let again = mine(&fills, b"a");
    // The end of the first must not take the second from the list.
    drop(interest);
    assert!(fills.is_under_way(b"a"));
    drop(again);
    assert!(!fills.is_under_way(b"a"));
}

#[test]
fn what_is_made_invalid_is_joined_by_nobody_and_not_kept() {
    let fills = Arc::<Fills>::default();
    let (named, other) = (mine(&fills, b"/a\0gzip"), mine(&fills, b"/ab\0"));
    let alone = fills.begin_alone(b"/a\0");
    let alone_too = fills.begin_alone(b"/a\0");
    let waits = theirs(&fills, b"/a\0gzip");
    fills.invalidate(b"/a\0");
    assert!(named.is_invalidated() && alone.is_invalidated() && alone_too.is_invalidated() && !other.is_invalidated());
    let new = mine(&fills, b"/a\0gzip");
    assert!(!new.is_invalidated());
    // Those who waited are served all the same.
    named.begin(head());
    push(&named, b"x");
    assert_eq!(next(&mut waits.read(0, None), Waker::noop()).as_deref(), Some("x"));
    named.end(None);
    assert!(fills.is_under_way(b"/a\0gzip") && fills.is_under_way(b"/ab\0"));
}

/// A fetch stores its response, then checks whether it has been invalidated. So whatever it stores before the removal is
/// removed, and afterwards it notices the invalidation.
#[test]
fn fetches_are_invalidated_before_stored_responses_are_removed() {
    let fills = Arc::<Fills>::default();
    let writer = mine(&fills, b"/a\0en");
    let since = fills.invalidations();
    fills.invalidate_and_remove(b"/a\0", || {
        assert!(writer.is_invalidated() && fills.is_invalidated_since(since, b"/a\0"));
    });
}

#[test]
fn an_invalidation_of_ones_own_is_not_one_of_others() {
    let fills = Arc::<Fills>::default();
    let since = fills.invalidations();
    let again = |own| fills.is_invalidated_again_since(since, b"/a\0", own);
    assert!(!again(0));
    fills.invalidate(b"/a\0");
    fills.invalidate(b"/b\0");
    assert!(again(0) && !again(1));
    fills.invalidate(b"/a\0");
    assert!(again(1) && !again(2));
    (0..super::RECENT_MAX).for_each(|_| fills.invalidate(b"/b\0"));
    assert!(again(2));
}

#[test]
fn a_fetch_can_be_closed_by_who_reads_and_only_itself() {
    let fills = Arc::<Fills>::default();
    let mut old = mine(&fills, b"a");
    let interest = theirs(&fills, b"a");
    fills.close(b"a", &interest);
    let new = mine(&fills, b"a");
    fills.close(b"a", &interest);
    old.close();
    assert!(fills.is_under_way(b"a"));
    drop(new);
    assert!(!fills.is_under_way(b"a"));
}

#[test]
fn the_writer_hears_when_the_last_one_leaves() {
    let fills = Arc::<Fills>::default();
    let writer = mine(&fills, b"a");
    let (woken, waker) = Woken::new();
    let mut context = Context::from_waker(&waker);
    assert!(writer.poll_abandoned(&mut context).is_ready());
    let (waits, reads) = (writer.join(), theirs(&fills, b"a").read(0, None));
    assert!(writer.poll_abandoned(&mut context).is_pending());
    drop(waits);
    assert_eq!((woken.count(), writer.is_abandoned()), (0, false));
    drop(reads);
    assert_eq!((woken.count(), writer.is_abandoned()), (1, true));
    assert!(writer.poll_abandoned(&mut context).is_ready());
    // Who comes now finds it under way.
    let _late = theirs(&fills, b"a");
    assert!(writer.poll_abandoned(&mut context).is_pending());
}

#[test]
fn the_writer_waits_for_the_slowest() {
    let fills = Arc::<Fills>::default();
    let writer = mine(&fills, b"a");
    assert_eq!(writer.slowest(), None);
    let (fast, slow) = (writer.join(), writer.join());
    writer.begin(head());
    push(&writer, b"abc");
    push(&writer, b"def");
    let mut fast = fast.read(0, None);
    assert_eq!(next(&mut fast, Waker::noop()).as_deref(), Some("abc"));
    assert_eq!(next(&mut fast, Waker::noop()).as_deref(), Some("def"));
    assert_eq!(next(&mut fast, Waker::noop()), None);
    // Somebody who has not begun needs all.
    assert_eq!(writer.slowest(), Some(0));
    let mut slow = slow.read(0, None);
    let (woken, waker) = Woken::new();
    let mut context = Context::from_waker(&waker);
    assert!(writer.poll_slowest(0, &mut context).is_pending());
    assert_eq!(next(&mut slow, Waker::noop()).as_deref(), Some("abc"));
    // It has been given the first piece, but is known to have sent it only when it asks for more.
    assert_eq!((writer.slowest(), woken.count()), (Some(0), 0));
    assert_eq!(next(&mut slow, Waker::noop()).as_deref(), Some("def"));
    assert_eq!((writer.slowest(), woken.count()), (Some(3), 1));
    assert!(writer.poll_slowest(0, &mut context).is_ready());
    writer.add(|content| content.forget_before(3));
    // The slowest leaves: that wakes too.
    assert!(writer.poll_slowest(3, &mut context).is_pending());
    let before = woken.count();
    drop(slow);
    assert_eq!(woken.count(), before + 1);
    assert!(writer.poll_slowest(3, &mut context).is_ready());
    drop(fast);
    assert!(writer.poll_slowest(u64::MAX, &mut context).is_ready());
}

#[test]
fn a_reader_that_pauses_while_others_are_delayed_is_cut_off() {
    let clock = SettableClock::new();
    let _entered = clock.enter();
    let fills = Arc::<Fills>::default();
    let writer = mine(&fills, b"a");
    let (mut fast, mut slow) = (writer.join().read(0, None), writer.join().read(0, None));
    // It counts before it starts reading.
    let idle = writer.join();
    writer.begin(head());
    push(&writer, b"abc");
    push(&writer, b"def");
    assert_eq!(next(&mut slow, Waker::noop()).as_deref(), Some("abc"));
    for expected in ["abc", "def"] {
        assert_eq!(next(&mut fast, Waker::noop()).as_deref(), Some(expected));
    }
    let wait = |milliseconds| {
        writer.begin_wait(0);
        assert!(writer.poll_slowest(0, &mut Context::from_waker(Waker::noop())).is_pending());
        clock.advance(Duration::from_millis(milliseconds));
        writer.end_wait()
    };
    // The fast reader is still busy with the second piece.
    assert!(wait(60_000).is_empty());
    assert_eq!(next(&mut fast, Waker::noop()), None);
    assert!(wait(PAUSE_MS_MAX - 1).is_empty());
    assert_eq!((wait(1), writer.readers(), writer.slowest()), (vec![0, 0], 1, Some(6)));
    push(&writer, b"ghi");
    for reader in [&mut slow, &mut idle.read(0, None)] {
        assert_eq!(next(reader, Waker::noop()).as_deref(), Some("!delayed_others"));
    }
    drop(slow);
    assert_eq!((writer.readers(), next(&mut fast, Waker::noop()).as_deref()), (1, Some("ghi")));
    writer.end(None);
    assert_eq!(next(&mut fast, Waker::noop()).as_deref(), Some(".0"));
}

#[test]
fn the_writer_hears_of_those_who_need_less_than_all() {
    let fills = Arc::<Fills>::default();
    let writer = mine(&fills, b"a");
    let (reads, begins, leaves) = (writer.join(), writer.join(), writer.join());
    writer.begin(head());
    push(&writer, b"abc");
    let mut reads = reads.read(0, None);
    assert_eq!(next(&mut reads, Waker::noop()).as_deref(), Some("abc"));
    assert_eq!(next(&mut reads, Waker::noop()), None);
    let (woken, waker) = Woken::new();
    let mut context = Context::from_waker(&waker);
    assert!(writer.poll_slowest(0, &mut context).is_pending());
    // Neither of the two will ever take a piece: only the writer can go on.
    drop(leaves);
    assert_eq!(woken.count(), 1);
    assert!(writer.poll_slowest(0, &mut context).is_pending());
    let mut begins = begins.read(8, None);
    assert_eq!(next(&mut begins, Waker::noop()), None);
    assert_eq!(woken.count(), 2);
    assert!(writer.poll_slowest(0, &mut context).is_ready());
}
