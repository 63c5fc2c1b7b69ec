//! Simulations of an origin that gets several kinds of requests: some wait for something, and others need its capacity.

use super::{Waiters, teach};
use crate::group::Change;
use crate::limit::{Arrival, ConcurrencyLimiter, Permit, Sample};
use flatout_config::model::Concurrency;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

/// How often requests are sent.
#[derive(Clone, Copy)]
enum Sent {
    /// By this many clients, each of which sends the next one when it has a response, or 200 ms after a refusal.
    Clients(u64),
    /// One at the end of every such time, in microseconds.
    Every(u64),
    /// So many at once, and no more.
    Once(u64),
}

/// How long the origin takes.
#[derive(Clone, Copy)]
enum Takes {
    /// This long, in microseconds, whatever else is in progress.
    Wait(u64),
    /// The same, but the first request of each client is answered after a share of it, so that responses are spread.
    Spread(u64),
    /// Until an event, which comes at any time, on average after so many microseconds.
    Event(u64),
    /// Half to one and a half times as long as this, on one of the servers.
    Work(u64),
    /// As long as this on one of the servers, although the response comes after 20 ms.
    Background(u64),
}

struct Load {
    path: &'static str,
    sent: Sent,
    takes: Takes,
    from_us: u64,
}

/// Outcomes of the requests of a load.
#[derive(Clone, Copy, Debug, Default)]
struct LoadResult {
    answered: u64,
    /// Number of responses within a second.
    in_time: u64,
    refused: u64,
    /// The latest refusal, in milliseconds.
    refused_ms: u64,
    /// The longest time from the arrival to the response, in milliseconds.
    longest_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    load: usize,
    client: u64,
    arrived_us: u64,
}

enum Event {
    Arrives(Request),
    Done(usize),
    /// A server has finished work in the background.
    Free,
}

struct Origin {
    servers: usize,
    random: u64,
}

impl Origin {
    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Runs loads for `duration_ms`. Returns their results and how often a limit began.
    fn run(&mut self, limiter: &Arc<ConcurrencyLimiter>, loads: &[Load], duration_ms: u64) -> (Vec<LoadResult>, u32) {
        let mut results = vec![LoadResult::default(); loads.len()];
        let mut begun_limits = 0;
        let mut events = BinaryHeap::new();
        let mut kept: Vec<Event> = Vec::new();
        let at = |events: &mut BinaryHeap<Reverse<(u64, usize)>>, kept: &mut Vec<Event>, us: u64, event: Event| {
            kept.push(event);
            events.push(Reverse((us, kept.len() - 1)));
        };
        let mut inside: Vec<Option<(Permit, Request, u64)>> = Vec::new();
        let (mut backlog, mut busy) = (VecDeque::<usize>::new(), 0);
        let mut waiting = Waiters::new();
        for (load, one) in loads.iter().enumerate() {
            let clients = if let Sent::Clients(count) | Sent::Once(count) = one.sent { count } else { 1 };
            for client in 0..clients {
                let request = Request { load, client, arrived_us: one.from_us };
                at(&mut events, &mut kept, one.from_us, Event::Arrives(request));
            }
        }
        let mut has_repeated = std::collections::BTreeSet::new();
        while let Some(Reverse((now_us, index))) = events.pop() {
            if now_us >= duration_ms * 1_000 {
                break;
            }
            let now_ms = now_us / 1_000;
            let mut begun = Vec::new();
            let mut refused = Vec::new();
            match std::mem::replace(&mut kept[index], Event::Free) {
                Event::Free => busy -= 1,
                Event::Arrives(request) => {
                    let load = &loads[request.load];
                    if let Sent::Every(gap_us) = load.sent {
                        let next = Request { arrived_us: now_us + gap_us, ..request };
                        at(&mut events, &mut kept, now_us + gap_us, Event::Arrives(next));
                    }
                    let arrival = Arrival { path: load.path.as_bytes(), client: None, now_ms };
                    match limiter.try_acquire(&arrival) {
                        Some(permit) => begun.push((permit, request)),
                        None => match limiter.enqueue(&arrival) {
                            Ok(one) => waiting.push(one, request),
                            Err(_) => refused.push(request),
                        },
                    }
                }
                Event::Done(number) => {
                    let (mut permit, request, began_us) = inside[number].take().unwrap();
                    let change = permit.report(Sample::Answered { delay_us: now_us - began_us }, now_ms);
                    begun_limits += u32::from(change == Some(Change::LimitBegan));
                    drop(permit);
                    let load = &loads[request.load];
                    busy -= usize::from(matches!(load.takes, Takes::Work(_)));
                    let result = &mut results[request.load];
                    let took_ms = (now_us - request.arrived_us) / 1_000;
                    result.answered += 1;
                    result.in_time += u64::from(took_ms <= 1_000);
                    result.longest_ms = result.longest_ms.max(took_ms);
                    if matches!(load.sent, Sent::Clients(_)) {
                        at(&mut events, &mut kept, now_us, Event::Arrives(Request { arrived_us: now_us, ..request }));
                    }
                }
            }
            for (result, request) in waiting.poll(now_ms) {
                match result {
                    Ok(permit) => begun.push((permit, request)),
                    Err(_) => refused.push(request),
                }
            }
            for request in refused {
                let result = &mut results[request.load];
                result.refused += 1;
                result.refused_ms = now_ms;
                if matches!(loads[request.load].sent, Sent::Clients(_)) {
                    let again_us = now_us + 200_000;
                    at(&mut events, &mut kept, again_us, Event::Arrives(Request { arrived_us: again_us, ..request }));
                }
            }
            for (permit, request) in begun {
                inside.push(Some((permit, request, now_us)));
                let number = inside.len() - 1;
                let wait_us = match (loads[request.load].takes, loads[request.load].sent) {
                    (Takes::Work(_) | Takes::Background(_), _) => {
                        backlog.push_back(number);
                        continue;
                    }
                    (Takes::Spread(us), Sent::Clients(clients))
                        if has_repeated.insert((request.load, request.client)) =>
                    {
                        us * request.client / clients
                    }
                    (Takes::Event(us), _) => {
                        let share = (self.next() % 1_000_000 + 1) as f64 / 1_000_000.0;
                        (us as f64 * -share.ln()) as u64
                    }
                    (Takes::Wait(us) | Takes::Spread(us), _) => us,
                };
                at(&mut events, &mut kept, now_us + wait_us, Event::Done(number));
            }
            while busy < self.servers
                && let Some(number) = backlog.pop_front()
            {
                let Some((_, request, _)) = &inside[number] else { continue };
                busy += 1;
                let work_us = match loads[request.load].takes {
                    Takes::Background(us) => {
                        at(&mut events, &mut kept, now_us + us, Event::Free);
                        20_000
                    }
                    Takes::Work(mean_us) => mean_us / 2 + self.next() % mean_us,
                    _ => continue,
                };
                at(&mut events, &mut kept, now_us + work_us, Event::Done(number));
            }
        }
        (results, begun_limits)
    }
}

fn page(path: &'static str, every_us: u64, work_us: u64) -> Load {
    Load { path, sent: Sent::Every(every_us), takes: Takes::Work(work_us), from_us: 0 }
}

fn clients(path: &'static str, count: u64, takes: Takes) -> Load {
    Load { path, sent: Sent::Clients(count), takes, from_us: 1_000_000 }
}

fn burst(count: u64, work_us: u64, from_us: u64) -> Load {
    Load { path: "/page", sent: Sent::Once(count), takes: Takes::Work(work_us), from_us }
}

fn run(seed: u64, servers: usize, loads: &[Load], duration_ms: u64) -> (Vec<LoadResult>, u32, Arc<ConcurrencyLimiter>) {
    let limiter = ConcurrencyLimiter::new(&Concurrency::default());
    let (results, limits) = Origin { servers, random: seed }.run(&limiter, loads, duration_ms);
    (results, limits, limiter)
}

/// Runs loads on a pool of `processes`.
fn run_pool(seed: u64, processes: usize, loads: &[Load]) -> (Vec<LoadResult>, u32, Arc<ConcurrencyLimiter>) {
    let limiter = ConcurrencyLimiter::for_pool(&Concurrency { min: 2, max: 512, ..Concurrency::default() });
    let (results, limits) = Origin { servers: processes, random: seed }.run(&limiter, loads, 120_000);
    (results, limits, limiter)
}

/// Requests that wait, and whose responses come at different times, stop no others, however rare these are. If they
/// themselves are limited by mistake, the first others show it.
#[test]
fn waiting_of_any_length_stops_nobody() {
    let waits = [
        ("reports", 600, Takes::Spread(3_000_000)),
        ("reports at once", 600, Takes::Wait(3_000_000)),
        ("polls", 2_000, Takes::Spread(25_000_000)),
        ("polls at once", 2_000, Takes::Wait(25_000_000)),
        ("events", 2_000, Takes::Event(25_000_000)),
        ("frequent events", 500, Takes::Event(400_000)),
    ];
    for (name, count, takes) in waits {
        for every_us in [2_000, 20_000, 300_000, 3_000_000] {
            let seeds = if matches!(takes, Takes::Event(_)) { 3 } else { 1 };
            for seed in 1..=seeds {
                let loads = [page("/page", every_us, 1_000), clients("/wait", count, takes)];
                let (results, _, limiter) = run(seed, 8, &loads, 40_000);
                let case =
                    format!("seed {seed}, {name} beside a page every {every_us} us: {results:?}, {}", limiter.status());
                let [pages, waiting] = results[..] else { panic!("{case}") };
                assert!(pages.answered >= 40_000_000 / every_us - 1 && pages.refused == 0, "{case}");
                assert!(pages.longest_ms < 50, "{case}");
                // Events that come soon resemble requests that the origin works on.
                let until_ms = if name == "frequent events" { 13_000 } else { 4_000 + every_us / 1_000 };
                assert!(waiting.refused == 0 || waiting.refused_ms < until_ms, "{case}");
                assert_eq!(limiter.slow.limit(), None, "{case}");
            }
        }
    }
}

/// If there are no others, a limit that does not help ends after a few responses.
#[test]
fn a_limit_that_does_not_help_ends() {
    for (name, count, takes, refused_ms) in [
        ("reports", 600, Takes::Spread(3_000_000), Some(14_000)),
        ("polls", 2_000, Takes::Spread(25_000_000), Some(102_000)),
        ("events", 2_000, Takes::Event(25_000_000), None),
    ] {
        let (results, limits, limiter) = run(1, 8, &[clients("/wait", count, takes)], 150_000);
        let case = format!("{name} alone: {limits} limits, {results:?}, {}", limiter.status());
        assert_eq!(limits, u32::from(refused_ms.is_some()), "{case}");
        assert!(results[0].refused_ms <= refused_ms.unwrap_or(0), "{case}");
        assert_eq!((limiter.quick.limit(), limiter.slow.limit()), (None, None), "{case}");
    }
}

/// Three kinds of pages share the capacity of an origin that works on eight requests at a time, with and without others
/// that wait.
#[test]
fn an_overloaded_origin_serves_in_time_what_it_can() {
    for times in [2, 4, 8] {
        for has_reports in [false, true] {
            // As many as the origin can serve, times so many, of which a few come before.
            let often = |path| Load { from_us: 3_000_000, ..page(path, 3 * 2_500 / times, 20_000) };
            let paths = ["/a", "/b", "/c"];
            let mut loads: Vec<_> = paths.iter().map(|path| page(path, 100_000, 20_000)).collect();
            loads.extend(paths.map(often));
            if has_reports {
                loads.push(clients("/wait", 600, Takes::Spread(3_000_000)));
            }
            let (results, limits, limiter) = run(1, 8, &loads, 23_000);
            let in_time: u64 = results[..6].iter().map(|result| result.in_time).sum();
            let case = format!("{times} x, reports {has_reports}: {limits} limits, {results:?}, {}", limiter.status());
            assert!(limits == 1 && in_time >= 8_000, "{in_time} of 8000, {case}");
            assert!(results.get(6).is_none_or(|reports| reports.refused == 0), "{case}");
        }
    }
}

/// An origin that works on all requests at the same time is overloaded, too, although short requests overtake long ones.
#[test]
fn an_origin_that_shares_its_time_can_be_overloaded() {
    let limiter = ConcurrencyLimiter::new(&Concurrency::default());
    teach(&limiter, b"/short", 1_000, 1);
    teach(&limiter, b"/items/first", 1_000, 1);
    teach(&limiter, b"/long", 100_000, 1);
    let send = |path: &[u8], now_ms| limiter.try_acquire(&Arrival { path, client: None, now_ms });
    let mut long: Vec<_> = (0..200).filter_map(|_| send(b"/long", 1_000)).collect();
    let mut changes = Vec::new();
    for (number, permit) in long.iter_mut().enumerate() {
        let now_ms = 2_000 + number as u64;
        // Most of these are requested once.
        for path in ["/short".to_owned(), format!("/items/{number}")] {
            let mut short = send(path.as_bytes(), now_ms - 10).unwrap();
            short.report(Sample::Answered { delay_us: 10_000 }, now_ms);
        }
        changes.extend(permit.report(Sample::Answered { delay_us: (now_ms - 1_000) * 1_000 }, now_ms));
    }
    assert_eq!(changes, [Change::LimitBegan]);
}

/// A pool of few processes gets several requests at once that take much longer than those before, with the same path: the
/// pool answers all of them one after another, so that none may be refused.
#[test]
fn a_burst_that_takes_long_is_answered() {
    for processes in [2, 5, 20] {
        for rounds in [2, 3] {
            for (name, every_us) in [("nothing", 60_000_000), ("few pages", 200_000), ("pages", 50_000)] {
                for seed in 1..=3 {
                    let count = processes as u64 * rounds;
                    let mut loads = vec![page("/page", every_us, 20_000)];
                    loads.push(Load { from_us: 500_000, sent: Sent::Once(2), ..page("/page", 0, 20_000) });
                    loads.push(Load { from_us: 700_000, sent: Sent::Once(8), ..page("/page", 0, 20_000) });
                    loads.extend([2, 40, 80].map(|from_s| burst(count, 2_000_000, from_s * 1_000_000)));
                    let (results, limits, limiter) = run_pool(seed, processes, &loads);
                    let refused: u64 = results.iter().map(|result| result.refused).sum();
                    let case = format!(
                        "seed {seed}, {count} at once for {processes} processes beside {name}: {limits} limits, \
                         {results:?}, {}",
                        limiter.status()
                    );
                    assert_eq!(refused, 0, "{case}");
                }
            }
        }
    }
}

/// Processes that work in the background for a while let others wait, however few these are.
#[test]
fn work_in_the_background_refuses_nobody() {
    for every_us in [50_000, 200_000, 1_000_000] {
        for seed in 1..=3 {
            let jobs =
                |from_us| Load { path: "/job", sent: Sent::Once(5), takes: Takes::Background(8_000_000), from_us };
            let loads = [page("/page", every_us, 20_000), jobs(5_000_000), jobs(30_000_000)];
            let (results, limits, limiter) = run_pool(seed, 5, &loads);
            let case =
                format!("seed {seed}, a page every {every_us} us: {limits} limits, {results:?}, {}", limiter.status());
            assert_eq!((limits, results[0].refused), (0, 0), "{case}");
        }
    }
}

/// Both in turn, for the same path.
#[test]
fn bursts_and_work_in_the_background_refuse_nobody() {
    for seed in 1..=20 {
        let mut loads = Vec::new();
        for number in 0..10 {
            loads.push(Load { from_us: number * 10_000 + 1, sent: Sent::Once(1), ..page("/page", 0, 5_000) });
        }
        for from_us in [1_000_000, 5_000_000] {
            loads.push(Load { from_us, sent: Sent::Once(25), ..page("/page", 0, 600_000) });
            loads.push(Load { from_us: from_us + 3_700_000, sent: Sent::Once(20), ..page("/page", 0, 5_000) });
        }
        let jobs = |from_us| Load { path: "/job", sent: Sent::Once(5), takes: Takes::Background(2_000_000), from_us };
        for from_us in [9_000_000, 11_200_000] {
            loads.push(jobs(from_us));
            loads.push(Load { from_us: from_us + 30_000, sent: Sent::Once(40), ..page("/page", 0, 5_000) });
        }
        let (results, limits, limiter) = run_pool(seed, 5, &loads);
        let refused: u64 = results.iter().map(|result| result.refused).sum();
        assert_eq!(refused, 0, "seed {seed}: {limits} limits, {}", limiter.status());
    }
}
