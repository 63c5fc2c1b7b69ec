//! Kinds of requests that take longer than others, and clients that send many.

use super::*;

/// How long requests wait because of a limit depends on their kind.
#[test]
fn long_requests_wait_for_longer() {
    let limiter = ConcurrencyLimiter::new(&Concurrency { max: 8, ..Concurrency::default() });
    teach(&limiter, b"/page", 2_000, 1);
    for (path, delay_us) in [("/long", 100_000), ("/longer", 400_000), ("/slow", 800_000)] {
        teach(&limiter, path.as_bytes(), delay_us, 1);
    }
    let _places: Vec<_> = (0..8).map(|_| limiter.try_acquire(&at(0)).unwrap()).collect();
    let send =
        |path: &'static str| limiter.enqueue(&Arrival { path: path.as_bytes(), client: None, now_ms: 0 }).unwrap();
    let waiting = ["/page", "/long", "/longer", "/slow"].map(send);
    assert_eq!(waiting.each_ref().map(WaitingRequest::deadline_ms), [10_000; 4]);
    limit_to(&limiter, 8);
    assert_eq!(waiting.each_ref().map(WaitingRequest::deadline_ms), [1_000, 5_000, 10_000, 10_000]);
    // A kind that has turned out to be slow has a queue of its own.
    limiter.kinds.forget(|_| true);
    (0..SAMPLES_MIN).for_each(|_| limiter.kinds.add_missing(limiter.kinds.find(b"/page"), 2_000_000));
    assert_eq!(waiting[0].deadline_ms(), 1_000);
}

/// Requests that may wait longer leave room in the queue for others.
#[test]
fn long_requests_leave_room_in_the_queue() {
    let limiter = ConcurrencyLimiter::new(&Concurrency::default());
    teach(&limiter, b"/page", 2_000, 1);
    teach(&limiter, b"/longer", 400_000, 1);
    limit_to(&limiter, 8);
    let send = |path: &'static str, now_ms| limiter.enqueue(&Arrival { path: path.as_bytes(), client: None, now_ms });
    let places: Vec<_> = (0..8).map(|_| limiter.try_acquire(&at(0)).unwrap()).collect();
    limiter.kinds.note_grown(limiter.kinds.base(limiter.kinds.find(b"/longer"), SAMPLES_MIN).unwrap(), 1);
    let _waiting: Vec<_> = (0..150).map(|_| send("/longer", 0).unwrap()).collect();
    // Eight requests are answered, and as many are sent, which takes 400 ms.
    for (number, place) in (1_u64..).zip(places) {
        limiter.latest_ms.store(number * 50, Ordering::Relaxed);
        drop(place);
    }
    // The origin answers 20 a second.
    let pages: Vec<_> = std::iter::from_fn(|| send("/page", 400).ok()).collect();
    assert_eq!(pages.len(), 20);
    assert!(send("/longer", 400).is_ok());
}

/// Long polls by thousands limit nothing, neither while they are unknown nor later, and the pages beside them are sent
/// at once.
#[test]
fn waiting_is_no_load() {
    let limiter = ConcurrencyLimiter::new(&Concurrency::default());
    let poll = |now_ms| Arrival { path: b"/poll", client: None, now_ms };
    teach(&limiter, b"/page", 2_000, 1);
    for round in 0..4_u64 {
        let now_ms = round * 30_000;
        let mut polls: Vec<_> = (0..2_000).map(|_| limiter.try_acquire(&poll(now_ms)).unwrap()).collect();
        for page in 0..200 {
            let mut permit = limiter.try_acquire(&at(now_ms + page)).unwrap();
            assert_eq!(permit.report(Sample::Answered { delay_us: 2_000 + page }, now_ms + page), None);
        }
        for permit in &mut polls {
            assert_eq!(permit.report(Sample::Answered { delay_us: 25_000_000 }, now_ms + 25_000), None);
        }
        let status = limiter.status();
        assert_eq!((status.quick.limit, status.slow.limit), (None, None));
    }
    let polls: Vec<_> = (0..300).map(|_| limiter.try_acquire(&poll(200_000)).unwrap()).collect();
    let status = limiter.status();
    assert_eq!((status.quick.asking, status.slow.asking), (0, 300));
    assert_eq!(status.paths, [("/poll".to_owned(), 300)]);
    drop(polls);
    assert_eq!(limiter.status().paths, []);
}

/// A limit that exists is not filled by requests that wait for something else, whether they are known to or not.
#[test]
fn slow_requests_do_not_fill_a_limit() {
    let limiter = ConcurrencyLimiter::new(&Concurrency::default());
    teach(&limiter, b"/page", 2_000, 1);
    limit_to(&limiter, 8);
    let poll = |now_ms| Arrival { path: b"/poll", client: None, now_ms };
    // Unknown ones do so for a second.
    let mut polls: Vec<_> = (0..8).map(|_| limiter.try_acquire(&poll(0)).unwrap()).collect();
    assert!(limiter.try_acquire(&at(10)).is_none());
    let mut waiting = limiter.enqueue(&at(600)).unwrap();
    assert_eq!((waiting.next_poll_ms(600), waiting.next_poll_ms(1_500), waiting.deadline_ms()), (850, 1_600, 1_600));
    assert!(self::poll(&mut waiting, 850).is_pending() && self::poll(&mut waiting, 1_260).is_ready());
    assert_eq!(limiter.status().aged, 8);
    let shown = limiter.status().to_string();
    assert!(shown.contains("0 waiting for a response head (limit 8), 0 queued, 8 waiting for more than"), "{shown}");
    for permit in &mut polls {
        permit.report(Sample::Answered { delay_us: 25_000_000 }, 25_000);
    }
    let known: Vec<_> = (0..500).map(|_| limiter.try_acquire(&poll(26_000)).unwrap()).collect();
    assert_eq!((limiter.status().aged, limiter.status().quick.asking, limiter.status().slow.asking), (0, 0, 500));
    assert!((0..8).map(|_| limiter.try_acquire(&at(26_010))).all(|page| page.is_some()));
    drop((polls, known));
    assert_eq!(under_way(&limiter), 0);
}

/// One URL that no longer responds says nothing about the others, and neither does one that never did.
#[test]
fn timeouts_of_one_url_limit_nothing() {
    let limiter = ConcurrencyLimiter::new(&Concurrency::default());
    teach(&limiter, b"/page", 2_000, 1);
    teach(&limiter, b"/report", 3_000, 1);
    for round in 0..20_u64 {
        for path in [&b"/report"[..], b"/never"] {
            let now_ms = round * 5_000;
            let arrival = Arrival { path, client: None, now_ms };
            let mut late: Vec<_> = (0..12).map(|_| limiter.try_acquire(&arrival).unwrap()).collect();
            teach(&limiter, b"/page", 2_000, now_ms + 3_990);
            for permit in &mut late {
                assert_eq!(permit.report(Sample::Late, now_ms + 4_000), None);
            }
            teach(&limiter, b"/page", 2_000, now_ms + 4_000);
        }
    }
    let status = limiter.status();
    assert_eq!((status.quick.limit, status.slow.limit), (None, None));
    // An origin that no longer responds to anything is another matter.
    let mut late: Vec<_> = (0..50).map(|_| limiter.try_acquire(&at(200_000)).unwrap()).collect();
    let changes: Vec<_> = late.iter_mut().filter_map(|permit| permit.report(Sample::Late, 230_000)).collect();
    assert_eq!(changes, [Change::LimitBegan]);
    assert_eq!(limiter.status().quick.limit, Some(8));
}

/// With a configured maximum, slow requests leave places for others, if there are others.
#[test]
fn slow_kinds_leave_a_quarter_of_the_maximum() {
    let limiter = ConcurrencyLimiter::new(&Concurrency { max: 64, ..Concurrency::default() });
    let poll = |now_ms| Arrival { path: b"/poll", client: None, now_ms };
    let fill = |now_ms| std::iter::from_fn(|| limiter.try_acquire(&poll(now_ms))).collect::<Vec<_>>();
    assert_eq!(fill(0).len(), 64);
    teach(&limiter, b"/page", 2_000, 1_000);
    // Unknown, then known.
    let mut polls = fill(2_000);
    assert_eq!(polls.len(), 48);
    for permit in &mut polls {
        permit.report(Sample::Answered { delay_us: 25_000_000 }, 27_000);
    }
    drop(polls);
    let polls = fill(28_000);
    assert_eq!(polls.len(), 48);
    assert!(limiter.try_acquire(&at(28_001)).is_some());
    drop(polls);
    // Nothing else for a minute.
    assert_eq!(fill(100_000).len(), 64);
}

/// One client that sends more than the others leaves them most of the queue.
#[test]
fn no_client_fills_the_queue() {
    let limiter = limiter(1, 1, 400);
    let _place = limiter.try_acquire(&at(0)).unwrap();
    let of = |last: u8| Arrival::new(b"/page", Some([192, 0, 2, last].into()), 0);
    let mut held: Vec<_> = std::iter::from_fn(|| limiter.enqueue(&of(1)).ok()).collect();
    assert_eq!(held.len(), 100);
    assert_eq!(limiter.enqueue(&of(1)).unwrap_err(), QueueRefusal::ClientShare);
    held.extend((2..=101).map(|last| limiter.enqueue(&of(last)).unwrap()));
    held.extend((0..200).map(|_| limiter.enqueue(&at(0)).unwrap()));
    assert_eq!(limiter.enqueue(&of(102)).unwrap_err(), QueueRefusal::Full);
    // All addresses of a subscriber are one client. Those of private networks may be proxies.
    let client = |text: &str| Arrival::new(b"", Some(text.parse().unwrap()), 0).client;
    assert_eq!(client("2001:db8::1"), client("2001:db8::2"));
    assert_eq!(["127.0.0.1", "10.0.0.1", "::ffff:192.168.0.1", "::1", "fd00::1"].map(client), [None; 5]);
}
