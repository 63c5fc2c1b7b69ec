//! Simulations of an origin that is overloaded by one kind of requests.

use super::{Waiters, at, limit_to, teach};
use crate::limit::{ConcurrencyLimiter, Permit, Sample};
use flatout_config::model::Concurrency;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

/// An origin in virtual time: it works on a fixed number of requests at once, and the others wait within it; each takes
/// between half and one and a half times the mean. Requests beyond `thrash` slow all of them down.
struct Simulation {
    servers: usize,
    mean_us: u64,
    thrash: Option<u32>,
    random: u64,
    /// The highest number of requests in progress in the last half.
    most: u32,
}

/// Time after which a client whose request was refused sends another one.
const REFUSED_US: u64 = 200_000;

struct Run {
    limits: Vec<u32>,
    answered: u64,
}

impl Simulation {
    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn work_us(&mut self, under_way: u32) -> u64 {
        let work = self.mean_us / 2 + self.next() % self.mean_us;
        match self.thrash {
            Some(thrash) if under_way > thrash => work * u64::from(under_way) / u64::from(thrash),
            _ => work,
        }
    }

    /// `clients` that send the next request as soon as they get a response, and a refused one again after a while, for
    /// `duration_ms`. Limits and throughput are those of the last half.
    fn run(&mut self, limiter: &Arc<ConcurrencyLimiter>, clients: usize, duration_ms: u64) -> Run {
        let mut run = Run { limits: Vec::new(), answered: 0 };
        let (mut now_us, end_us) = (0_u64, duration_ms * 1000);
        let mut idle = clients;
        let mut refused_until_us: VecDeque<u64> = VecDeque::new();
        let mut waiting = Waiters::new();
        let mut inside: Vec<Option<(Permit, u64)>> = Vec::new();
        let mut backlog: VecDeque<usize> = VecDeque::new();
        let mut busy: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        while now_us < end_us {
            let mut begun = Vec::new();
            while refused_until_us.front().is_some_and(|&until_us| until_us <= now_us) {
                refused_until_us.pop_front();
                idle += 1;
            }
            for (result, ()) in waiting.poll(now_us / 1000) {
                match result {
                    Ok(permit) => begun.push(permit),
                    Err(_) => refused_until_us.push_back(now_us + REFUSED_US),
                }
            }
            while idle > 0 {
                idle -= 1;
                match limiter.try_acquire(&at(now_us / 1000)) {
                    Some(permit) => begun.push(permit),
                    None => match limiter.enqueue(&at(now_us / 1000)) {
                        Ok(one) => waiting.push(one, ()),
                        Err(_) => refused_until_us.push_back(now_us + REFUSED_US),
                    },
                }
            }
            for permit in begun {
                inside.push(Some((permit, now_us)));
                backlog.push_back(inside.len() - 1);
            }
            while busy.len() < self.servers
                && let Some(request) = backlog.pop_front()
            {
                let work_us = self.work_us(limiter.status().under_way);
                busy.push(Reverse((now_us + work_us, request)));
            }
            let Some(Reverse((done_us, request))) = busy.pop() else { break };
            now_us = done_us;
            let (mut permit, began_us) = inside[request].take().unwrap();
            permit.report(Sample::Answered { delay_us: now_us - began_us }, now_us / 1000);
            drop(permit);
            idle += 1;
            if now_us > end_us / 2 {
                run.answered += 1;
                run.limits.extend(limiter.status().quick.limit);
            }
        }
        run
    }
}

impl Simulation {
    /// Clients that arrive every `gap_us` for `duration_ms` and do not return. Returns the responses within a second of
    /// the arrival, and the later ones, in the last half.
    fn run_open(&mut self, limiter: &Arc<ConcurrencyLimiter>, gap_us: u64, duration_ms: u64) -> (u64, u64) {
        let (mut in_time, mut late) = (0, 0);
        let (mut arrival_us, end_us) = (0_u64, duration_ms * 1000);
        let mut waiting = Waiters::new();
        let mut backlog: VecDeque<(Permit, u64, u64)> = VecDeque::new();
        let mut busy: BinaryHeap<Reverse<(u64, u64, u64, usize)>> = BinaryHeap::new();
        let mut permits: Vec<Option<Permit>> = Vec::new();
        loop {
            let next_done_us = busy.peek().map_or(u64::MAX, |next| next.0.0);
            let now_us = arrival_us.min(next_done_us);
            if now_us >= end_us {
                return (in_time, late);
            }
            if now_us == next_done_us
                && let Some(Reverse((_, began_us, arrived_us, number))) = busy.pop()
            {
                let mut permit = permits[number].take().unwrap();
                permit.report(Sample::Answered { delay_us: now_us - began_us }, now_us / 1000);
                drop(permit);
                if now_us > end_us / 2 {
                    self.most = self.most.max(limiter.status().under_way);
                    if now_us - arrived_us <= 1_000_000 { in_time += 1 } else { late += 1 }
                }
            } else {
                arrival_us += gap_us;
                match limiter.try_acquire(&at(now_us / 1000)) {
                    Some(permit) => backlog.push_back((permit, now_us, now_us)),
                    None => {
                        if let Ok(one) = limiter.enqueue(&at(now_us / 1000)) {
                            waiting.push(one, now_us);
                        }
                    }
                }
            }
            // Permits are granted when a response completes, and as time passes.
            if now_us == next_done_us {
                // Clients leave after a second.
                waiting.retain(|arrived_us| now_us - arrived_us <= 1_000_000);
                for (result, arrived_us) in waiting.poll(now_us / 1000) {
                    backlog.extend(result.ok().map(|permit| (permit, now_us, arrived_us)));
                }
            }
            while busy.len() < self.servers
                && let Some((permit, began_us, arrived_us)) = backlog.pop_front()
            {
                let work_us = self.work_us(limiter.status().under_way);
                permits.push(Some(permit));
                busy.push(Reverse((now_us + work_us, began_us, arrived_us, permits.len() - 1)));
            }
        }
    }
}

/// Wherever the origin's knee is, the limit settles near it, and the origin stays busy.
#[test]
fn the_limit_finds_the_knee() {
    for (servers, mean_us, clients, thrash) in [
        (10_usize, 20_000_u64, 400, None),
        (10, 2_000, 2_000, None),
        (40, 50_000, 600, None),
        (100, 40_000, 1_000, None),
        (500, 50_000, 2_500, None),
        (10, 20_000, 600, Some(40)),
    ] {
        for seed in 1..=3_u64 {
            let limiter = ConcurrencyLimiter::new(&Concurrency::default());
            let mut simulation = Simulation { servers, mean_us, thrash, random: seed, most: 0 };
            let duration_ms = if thrash.is_some() { 120_000 } else { 60_000 };
            let run = simulation.run(&limiter, clients, duration_ms);
            let mut limits = run.limits.clone();
            limits.sort_unstable();
            assert!(!limits.is_empty(), "{servers} servers, {mean_us} us: no limit");
            let median = limits[limits.len() / 2] as usize;
            let possible = servers as u64 * duration_ms * 500 / mean_us;
            let case = format!(
                "seed {seed}, {servers} servers, {mean_us} us: limit {median} ({} to {}), {} of {possible} answered",
                limits[0],
                limits[limits.len() - 1],
                run.answered
            );
            println!("{case}");
            assert!((servers * 2 / 3..=servers * 5 / 2).contains(&median), "{case}");
            assert!(run.answered * 100 >= possible * 85, "{case}");
        }
    }
}

/// An origin with spare capacity is not held back for long, even if there is a limit at first.
#[test]
fn an_origin_without_a_knee_gets_all() {
    let limiter = ConcurrencyLimiter::new(&Concurrency::default());
    teach(&limiter, b"/page", 100_000, 1);
    limit_to(&limiter, 8);
    let mut simulation = Simulation { servers: 5_000, mean_us: 100_000, thrash: None, random: 7, most: 0 };
    let run = simulation.run(&limiter, 900, 60_000);
    let limit = limiter.status().quick.limit;
    assert!(limit.is_none_or(|limit| limit >= 800), "{limit:?}");
    assert!(run.answered * 100 >= 900 * 30_000 / 100 * 90, "{}", run.answered);
}

/// Clients that do not wait for one another: more arrive than the origin can serve, indefinitely.
#[test]
fn under_any_load_the_origin_serves_in_time_what_it_can() {
    for (servers, mean_us) in [(10_usize, 20_000_u64), (40, 50_000), (4, 5_000)] {
        for times in [2, 5, 10] {
            let limiter = ConcurrencyLimiter::new(&Concurrency::default());
            let mut simulation = Simulation { servers, mean_us, thrash: None, random: 3, most: 0 };
            let gap_us = mean_us / servers as u64 / times;
            let (in_time, late) = simulation.run_open(&limiter, gap_us, 10_000);
            let possible = servers as u64 * 5_000_000 / mean_us;
            let case = format!("{servers} servers, {mean_us} us, {times} x: {in_time} of {possible}, {late} late");
            println!("{case}");
            // With ten servers, a limit of eight is within the precision of the climb.
            assert!(in_time * 100 >= possible * 85, "{case}");
            assert!(late * 100 <= possible, "{case}");
        }
    }
}

/// An origin that serves only a few requests per second, so that most of them take longer than a second.
#[test]
fn a_slow_origin_is_not_overrun() {
    for (servers, mean_us) in [(1_usize, 200_000_u64), (2, 400_000)] {
        let limiter = ConcurrencyLimiter::new(&Concurrency::default());
        let mut simulation = Simulation { servers, mean_us, thrash: None, random: 5, most: 0 };
        simulation.run_open(&limiter, 20_000, 120_000);
        assert!(simulation.most <= 48, "{servers} servers, {mean_us} us: {} in progress", simulation.most);
    }
}
