use super::{Change, Ending, Group, OriginStatus, OtherOrigins, Preference, Ticket, Tried, hash_key};
use flatout_config::model::{Balance, HashKey, HealthCheck, Origin, Proxy};
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
use std::sync::Arc;

fn origin(index: usize, weight: u16) -> Origin {
    Origin { secure: false, host: format!("origin-{index}.example"), port: 80, weight, backup: false }
}

fn settings(balance: Balance, weights: &[u16]) -> Proxy {
    let origins = weights.iter().enumerate().map(|(index, &weight)| origin(index, weight)).collect();
    Proxy { origins, balance, ..Proxy::default() }
}

fn group(balance: Balance, weights: &[u16]) -> Arc<Group> {
    Arc::new(Group::new(&settings(balance, weights)))
}

fn hashing() -> Balance {
    Balance::ConsistentHash(HashKey::Uri)
}

fn by_key(key_hash: u64) -> Preference {
    Preference { key_hash: Some(key_hash), ..Preference::NONE }
}

fn choose(group: &Arc<Group>, now_ms: u64) -> Option<Ticket> {
    group.choose(now_ms, Preference::NONE, &Tried::NONE)
}

fn chosen(group: &Arc<Group>, now_ms: u64) -> usize {
    choose(group, now_ms).unwrap().index()
}

/// How often each origin is chosen for sequential requests.
fn counts(group: &Arc<Group>, now_ms: u64, requests: usize) -> Vec<usize> {
    let mut counts = vec![0; group.origins().len()];
    for _ in 0..requests {
        counts[chosen(group, now_ms)] += 1;
    }
    counts
}

fn fail(group: &Arc<Group>, index: usize, now_ms: u64) -> Option<Change> {
    let mut tried = Tried::NONE;
    for other in (0..group.origins().len()).filter(|&other| other != index) {
        tried.add(other);
    }
    group.choose(now_ms, Preference::NONE, &tried)?.finish(Ending::Failed, now_ms)
}

#[test]
fn least_connections_by_weight_and_in_turn_when_equal() {
    let group = group(Balance::LeastConnections, &[2, 1]);
    assert_eq!(counts(&group, 0, 300), [200, 100]);
    let held: Vec<_> = (0..30).map(|_| choose(&group, 0).unwrap()).collect();
    assert_eq!((group.under_way(0), group.under_way(1)), (20, 10));
    drop(held);
    assert_eq!((group.under_way(0), group.under_way(1)), (0, 0));
    // The one that is slow gets less.
    let mut slow = Vec::new();
    for _ in 0..10 {
        let ticket = choose(&group, 0).unwrap();
        if ticket.index() == 0 {
            slow.push(ticket);
        }
    }
    assert!(slow.len() < 5, "{}", slow.len());
}

#[test]
fn selectable_origins_are_those_that_are_available_and_else_backups() {
    let mut settings = settings(Balance::RoundRobin, &[1, 1, 1]);
    settings.origins[2].backup = true;
    settings.health_check = Some(HealthCheck { rise: 1, fall: 1, ..HealthCheck::default() });
    settings.passive.failures = 1;
    let group = Arc::new(Group::new(&settings));
    assert_eq!(group.selectable(0, Preference::NONE), [0, 1]);
    group.handle_check(0, false, 0);
    assert_eq!(group.selectable(0, Preference::NONE), [1]);
    fail(&group, 1, 0);
    assert_eq!(group.selectable(0, Preference::NONE), [2]);
    // If none is available, those that are only paused.
    group.handle_check(2, false, 0);
    assert_eq!(group.selectable(0, Preference::NONE), [1]);
    group.handle_check(1, false, 0);
    assert!(group.selectable(0, Preference::NONE).is_empty());
}

#[test]
fn the_selectable_origin_of_a_session_or_a_key_is_the_one_that_is_chosen() {
    for balance in [Balance::LeastConnections, Balance::RoundRobin, hashing()] {
        let is_hashing = balance == hashing();
        let mut settings = settings(balance, &[1, 1, 1, 1]);
        settings.origins[3].backup = true;
        settings.passive.failures = 1;
        let group = Arc::new(Group::new(&settings));
        let chosen = |preference| group.choose(0, preference, &Tried::NONE).unwrap().index();
        for key in 0..100 {
            let session = Preference { key_hash: Some(key), origin: Some(key as usize % 4) };
            assert_eq!(group.selectable(0, session), [chosen(session)]);
            let keyed = by_key(key);
            let expected = if is_hashing { vec![chosen(keyed)] } else { vec![0, 1, 2] };
            assert_eq!(group.selectable(0, keyed), expected);
        }
        fail(&group, 1, 0);
        let unavailable = Preference { key_hash: None, origin: Some(1) };
        assert_eq!(group.selectable(0, unavailable), [0, 2]);
    }
}

#[test]
fn tried_origins_are_not_selected_again() {
    for balance in [Balance::LeastConnections, Balance::RoundRobin, hashing()] {
        let group = group(balance, &[1, 1, 1]);
        let mut tried = Tried::NONE;
        for count in 0..3 {
            assert_eq!(tried.count(), count);
            let ticket = group.choose(0, by_key(7), &tried).unwrap();
            assert!(!tried.contains(ticket.index()) && !ticket.is_trial());
            tried.add(ticket.index());
        }
        assert!(group.choose(0, by_key(7), &tried).is_none());
    }
    let mut tried = Tried::NONE;
    (0..20).for_each(|index| tried.add(index));
    assert_eq!(tried.count(), super::TRIED_MAX);
    assert!(tried.contains(10) && !tried.contains(11));
}

#[test]
fn backups_serve_when_nobody_else_can() {
    let mut settings = settings(Balance::RoundRobin, &[1, 1, 1]);
    settings.origins[2].backup = true;
    settings.passive.failures = 1;
    let group = Arc::new(Group::new(&settings));
    assert_eq!(counts(&group, 0, 10), [5, 5, 0]);
    let mut tried = Tried::NONE;
    tried.add(0);
    assert_eq!(group.choose(0, Preference::NONE, &tried).unwrap().index(), 1);
    tried.add(1);
    assert_eq!(group.choose(0, Preference::NONE, &tried).unwrap().index(), 2);
    assert_eq!(fail(&group, 0, 0), Some(Change::Paused));
    assert_eq!(counts(&group, 0, 10), [0, 10, 0]);
    assert_eq!(fail(&group, 1, 0), Some(Change::Paused));
    assert_eq!(counts(&group, 0, 10), [0, 0, 10]);
}

#[test]
fn failures_in_a_row_pause_and_one_trial_ends_the_pause() {
    let group = group(Balance::RoundRobin, &[1, 1]);
    for _ in 0..4 {
        assert_eq!(fail(&group, 0, 100), None);
    }
    // One success, and the count starts over; who goes away says nothing.
    let mut tried = Tried::NONE;
    tried.add(1);
    assert_eq!(group.choose(100, Preference::NONE, &tried).unwrap().finish(Ending::Answered, 100), None);
    for _ in 0..4 {
        assert_eq!(fail(&group, 0, 100), None);
    }
    assert_eq!(group.choose(100, Preference::NONE, &tried).unwrap().finish(Ending::Abandoned, 100), None);
    assert_eq!(fail(&group, 0, 100), Some(Change::Paused));
    assert_eq!(group.standing(0, 100), Some(OriginStatus::PausedUntil(5_100)));
    assert_eq!(counts(&group, 5_099, 10), [0, 10]);

    // Exactly one request is tried; while it is, the others go elsewhere.
    let trial = choose(&group, 5_100).unwrap();
    assert!(trial.index() == 0 && trial.is_trial());
    assert_eq!(group.standing(0, 5_100), Some(OriginStatus::Trial));
    assert_eq!(counts(&group, 5_100, 10), [0, 10]);
    // Its client goes away: another one is tried.
    drop(trial);
    let trial = choose(&group, 5_100).unwrap();
    assert_eq!(trial.index(), 0);
    assert_eq!(trial.finish(Ending::Failed, 5_200), Some(Change::TrialFailed));
    assert_eq!(group.standing(0, 5_200), Some(OriginStatus::PausedUntil(10_200)));
    assert_eq!(counts(&group, 10_199, 10), [0, 10]);
    let trial = choose(&group, 10_200).unwrap();
    assert_eq!(trial.finish(Ending::Answered, 10_201), Some(Change::TrialPassed));
    assert_eq!(group.standing(0, 10_201), Some(OriginStatus::Well));
    // What it missed gives it one turn ahead, no more.
    let counts = counts(&group, 10_201, 100);
    assert!(counts[0].abs_diff(50) <= 1, "{counts:?}");
}

/// If the head arrives and the rest does not, that is a failure too, and the heads in between do not count as
/// successes.
#[test]
fn answers_that_break_off_are_failures() {
    let group = group(Balance::RoundRobin, &[1, 1]);
    let mut tried = Tried::NONE;
    tried.add(1);
    let mut changes = Vec::new();
    for _ in 0..5 {
        let mut ticket = group.choose(10, Preference::NONE, &tried).unwrap();
        assert_eq!(ticket.report(Ending::Answered, 10), None);
        changes.push(ticket.report(Ending::Failed, 20));
        assert_eq!(ticket.finish(Ending::Failed, 20), None);
    }
    assert_eq!(changes, [None, None, None, None, Some(Change::Paused)]);
    // A trial ends the pause at its head; when it breaks off, the count starts over.
    let mut trial = group.choose(5_020, Preference::NONE, &tried).unwrap();
    assert_eq!(trial.report(Ending::Answered, 5_020), Some(Change::TrialPassed));
    assert_eq!(trial.finish(Ending::Failed, 5_020), None);
    assert_eq!(group.standing(0, 5_020), Some(OriginStatus::Well));
}

#[test]
fn zero_failures_mean_never() {
    let mut settings = settings(Balance::RoundRobin, &[1, 1]);
    settings.passive.failures = 0;
    let group = Arc::new(Group::new(&settings));
    for _ in 0..100 {
        assert_eq!(fail(&group, 0, 0), None);
    }
    assert_eq!(group.standing(0, 0), Some(OriginStatus::Well));
}

#[test]
fn failures_at_the_same_time_pause_once() {
    let mut settings = settings(Balance::RoundRobin, &[1]);
    settings.passive.failures = 2;
    let group = Arc::new(Group::new(&settings));
    let tickets: Vec<_> = (0..6).map(|_| choose(&group, 0).unwrap()).collect();
    let changes: Vec<_> = tickets.into_iter().filter_map(|ticket| ticket.finish(Ending::Failed, 10)).collect();
    assert_eq!(changes, [Change::Paused]);
    assert_eq!(group.standing(0, 10), Some(OriginStatus::PausedUntil(5_010)));
}

#[test]
fn if_all_are_paused_the_first_to_return_is_selected() {
    let mut settings = settings(Balance::RoundRobin, &[1, 1]);
    settings.passive.failures = 1;
    let group = Arc::new(Group::new(&settings));
    assert_eq!(fail(&group, 1, 0), Some(Change::Paused));
    assert_eq!(fail(&group, 0, 10), Some(Change::Paused));
    let ticket = choose(&group, 20).unwrap();
    assert!(ticket.index() == 1 && ticket.is_trial());
    // It fails again: the other one is next, and nobody is notified again.
    assert_eq!(ticket.finish(Ending::Failed, 30), None);
    let ticket = choose(&group, 30).unwrap();
    assert_eq!(ticket.index(), 0);
    assert_eq!(ticket.finish(Ending::Answered, 40), Some(Change::TrialPassed));
    assert_eq!(counts(&group, 40, 4), [4, 0]);
    // A retry never goes to a paused origin.
    let mut tried = Tried::NONE;
    tried.add(0);
    assert!(group.choose(40, Preference::NONE, &tried).is_none());
}

#[test]
fn a_single_origin_is_always_selected() {
    let group = group(Balance::LeastConnections, &[1]);
    for round in 0..50 {
        assert!(fail(&group, 0, round) != Some(Change::TrialFailed), "round {round}");
    }
    assert_eq!(choose(&group, 60).unwrap().finish(Ending::Answered, 60), Some(Change::TrialPassed));
}

#[test]
fn checks_take_out_and_bring_back() {
    let mut settings = settings(Balance::RoundRobin, &[1, 1]);
    settings.health_check = Some(HealthCheck { rise: 2, fall: 3, ..HealthCheck::default() });
    let group = Arc::new(Group::new(&settings));
    let mut changes = Vec::new();
    for good in [false, false, true, false, false, false, false, true, false, true, true, true] {
        changes.push(group.handle_check(0, good, 0));
    }
    let (failed, passed) = (Some(Change::ChecksFailed), Some(Change::ChecksPassed));
    assert_eq!(changes, [None, None, None, None, None, failed, None, None, None, None, passed, None]);
    for index in 0..2 {
        for _ in 0..3 {
            group.handle_check(index, false, 0);
        }
        assert_eq!(group.standing(index, 0), Some(OriginStatus::Down));
    }
    assert!(choose(&group, 0).is_none());
    assert_eq!(group.handle_check(9, false, 0), None);
    assert_eq!(group.standing(9, 0), None);
    // Back, whatever the requests before met.
    group.handle_check(1, true, 0);
    assert_eq!(group.handle_check(1, true, 0), passed);
    assert_eq!(counts(&group, 0, 4), [0, 4]);
}

/// In each tenth of slow start, the origin gets its linear share, within 2 %.
#[test]
fn slow_start_is_a_straight_line() {
    for balance in [Balance::RoundRobin, Balance::LeastConnections] {
        let mut settings = settings(balance, &[1, 1]);
        settings.slow_start_ms = 10_000;
        settings.health_check = Some(HealthCheck { rise: 1, fall: 1, ..HealthCheck::default() });
        let group = Arc::new(Group::new(&settings));
        group.handle_check(0, false, 1_000);
        counts(&group, 1_000, 5_000);
        group.handle_check(0, true, 20_000);
        assert_eq!(group.standing(0, 20_000), Some(OriginStatus::Starting(10)));
        for tenth in 0..10_u64 {
            let mut got = 0;
            for step in 0..1_000_u64 {
                got += u32::from(chosen(&group, 20_000 + tenth * 1_000 + step) == 0);
            }
            // The share beside a whole one, at the middle of the tenth.
            let share = (tenth as f64 + 0.5) / 10.0;
            let expected = 1_000.0 * share / (1.0 + share);
            assert!((f64::from(got) - expected).abs() < 20.0, "tenth {tenth}: {got} instead of {expected}");
        }
        assert_eq!(group.standing(0, 30_000), Some(OriginStatus::Well));
        let counts = counts(&group, 30_000, 1_000);
        assert!(counts[0].abs_diff(500) <= 1, "{counts:?}");
    }
}

/// Also if the other origin is never idle, so that the recovered one always has the fewest requests in progress.
#[test]
fn slow_start_holds_under_load() {
    let mut settings = settings(Balance::LeastConnections, &[1, 1]);
    settings.slow_start_ms = 10_000;
    settings.passive.failures = 1;
    let group = Arc::new(Group::new(&settings));
    assert_eq!(fail(&group, 0, 1), Some(Change::Paused));
    let held: Vec<_> = (0..50).map(|_| choose(&group, 2).unwrap()).collect();
    let trial = choose(&group, 6_000).unwrap();
    assert_eq!(trial.finish(Ending::Answered, 6_000), Some(Change::TrialPassed));
    let got = counts(&group, 6_000 + 1_000, 1_000)[0];
    assert!(got < 110, "{got} of 1,000 at a tenth of the share");
    drop(held);
}

#[test]
fn a_key_stays_where_it_is() {
    let group = group(hashing(), &[1, 2, 3]);
    let place = |key: u64| group.choose(0, by_key(hash_key(&key.to_le_bytes())), &Tried::NONE).unwrap().index();
    let places: Vec<_> = (0..6_000).map(place).collect();
    assert_eq!(places, (0..6_000).map(place).collect::<Vec<_>>());
    for (index, weight) in [1_000, 2_000, 3_000].into_iter().enumerate() {
        let count = places.iter().filter(|&&place| place == index).count();
        assert!(count.abs_diff(weight) < 150, "origin {index}: {count} instead of {weight}");
    }
    // The same hash in every process.
    assert_eq!(hash_key(b"example.com/a?b"), 12_166_333_917_593_822_228);
}

/// All visitors behind one proxy share an address, so it must not decide.
#[test]
fn requests_without_a_key_are_distributed_by_load() {
    let group = group(hashing(), &[1, 1, 1]);
    assert_eq!(counts(&group, 0, 300), [100, 100, 100]);
    let held: Vec<_> = (0..6).map(|_| choose(&group, 0).unwrap()).collect();
    assert_eq!([0, 1, 2].map(|index| group.under_way(index)), [2, 2, 2]);
    drop(held);
}

/// Whatever the number of requests in each session.
#[test]
fn new_sessions_are_distributed_evenly() {
    for balance in [Balance::RoundRobin, Balance::LeastConnections, hashing()] {
        let group = group(balance, &[1, 1, 1]);
        let mut sessions = [0; 3];
        for _ in 0..30 {
            let index = chosen(&group, 0);
            sessions[index] += 1;
            for _ in 0..5 {
                let preference = Preference { key_hash: None, origin: Some(index) };
                assert_eq!(group.choose(0, preference, &Tried::NONE).unwrap().index(), index);
            }
        }
        assert_eq!(sessions, [10, 10, 10]);
    }
}

#[test]
fn a_session_stays_with_its_origin_while_that_is_available() {
    for balance in [Balance::RoundRobin, Balance::LeastConnections, hashing()] {
        let mut settings = settings(balance, &[1, 1, 1]);
        settings.health_check = Some(HealthCheck { rise: 1, fall: 1, ..HealthCheck::default() });
        settings.passive.failures = 1;
        settings.slow_start_ms = 10_000;
        let group = Arc::new(Group::new(&settings));
        let of_session = Preference { key_hash: Some(3), origin: Some(1) };
        let place = |now_ms, tried: &Tried| group.choose(now_ms, of_session, tried).unwrap().index();
        let held: Vec<_> = (0..50).map(|_| group.choose(0, of_session, &Tried::NONE).unwrap()).collect();
        assert!(held.iter().all(|ticket| ticket.index() == 1));
        drop(held);
        // After a failed attempt, the retry goes to another origin.
        let mut tried = Tried::NONE;
        tried.add(1);
        assert_ne!(place(0, &tried), 1);
        // A pause: the session moves, until a trial is due, which may be its own request.
        assert_eq!(fail(&group, 1, 10), Some(Change::Paused));
        assert_ne!(place(20, &Tried::NONE), 1);
        let trial = group.choose(6_000, of_session, &Tried::NONE).unwrap();
        assert_eq!((trial.index(), trial.is_trial()), (1, true));
        assert_ne!(place(6_000, &Tried::NONE), 1, "only one trial at a time");
        assert_eq!(trial.finish(Ending::Answered, 6_001), Some(Change::TrialPassed));
        // In slow start, the origin gets its sessions at once.
        assert_eq!(place(6_002, &Tried::NONE), 1);
        group.handle_check(1, false, 7_000);
        assert_ne!(place(7_000, &Tried::NONE), 1);
        // An origin that has been removed.
        let removed = Preference { origin: Some(9), ..of_session };
        assert!(group.choose(7_000, removed, &Tried::NONE).is_some());
    }
}

proptest! {
    #[test]
    fn turns_are_by_weight(weights in proptest::collection::vec(1_u16..=1_000, 1..6), seed in any::<u16>()) {
        let group = group(Balance::RoundRobin, &weights);
        let total: usize = weights.iter().map(|&weight| usize::from(weight)).sum();
        counts(&group, 0, usize::from(seed) % total);
        let counts = counts(&group, 0, total);
        for (index, &weight) in weights.iter().enumerate() {
            prop_assert!(counts[index].abs_diff(usize::from(weight)) <= 2, "{:?} for {:?}", counts, weights);
        }
    }

    #[test]
    fn connections_are_by_weight(weights in proptest::collection::vec(1_u16..=50, 1..6)) {
        let group = group(Balance::LeastConnections, &weights);
        let total: usize = weights.iter().map(|&weight| usize::from(weight)).sum();
        let held: Vec<_> = (0..total * 3).map(|_| choose(&group, 0).unwrap()).collect();
        for (index, &weight) in weights.iter().enumerate() {
            let under_way = group.under_way(index) as usize;
            prop_assert!(under_way.abs_diff(usize::from(weight) * 3) <= 3, "{} for {:?}", under_way, weights);
        }
        drop(held);
        prop_assert!((0..weights.len()).all(|index| group.under_way(index) == 0));
    }

    /// If an origin is removed, only its keys move; if it returns, only they return. Its position in the list does not
    /// matter.
    #[test]
    fn few_keys_move(weights in proptest::collection::vec(1_u16..=100, 2..7), gone in any::<usize>()) {
        let all = settings(hashing(), &weights);
        let gone = gone % weights.len();
        let mut fewer = all.clone();
        let absent = fewer.origins.remove(gone).host;
        fewer.origins.reverse();
        let (all, fewer) = (Arc::new(Group::new(&all)), Arc::new(Group::new(&fewer)));
        let host = |group: &Arc<Group>, key: u64| {
            group.choose(0, by_key(hash_key(&key.to_le_bytes())), &Tried::NONE).unwrap().origin().host.clone()
        };
        for key in 0..500 {
            let before = host(&all, key);
            let after = host(&fewer, key);
            prop_assert!(before == absent || before == after, "a key moved from {} to {}", before, after);
            // A retry of a key goes where the key goes when its origin is out.
            let mut tried = Tried::NONE;
            tried.add(gone);
            let retried = all.choose(0, by_key(hash_key(&key.to_le_bytes())), &tried).unwrap();
            prop_assert_eq!(&retried.origin().host, &after);
        }
    }

    /// Whatever happens, requests in progress are counted, an origin is selected unless all are down, and a trial is a
    /// single request.
    #[test]
    fn no_history_breaks_the_count(history in proptest::collection::vec((0_u8..8, 0_usize..3, 0_u64..4_000), 0..200)) {
        let mut settings = settings(Balance::LeastConnections, &[1, 2, 3]);
        settings.slow_start_ms = 500;
        settings.passive.failures = 2;
        let group = Arc::new(Group::new(&settings));
        let (mut now_ms, mut held) = (1, Vec::<Ticket>::new());
        for (event, index, wait_ms) in history {
            now_ms += wait_ms;
            match event {
                0..=2 => held.extend(choose(&group, now_ms)),
                3 | 4 if !held.is_empty() => drop(held.remove(index % held.len()).finish(Ending::Failed, now_ms)),
                5 if !held.is_empty() => drop(held.remove(index % held.len()).finish(Ending::Answered, now_ms)),
                6 if !held.is_empty() => drop(held.remove(index % held.len())),
                7 => drop(group.handle_check(index, wait_ms % 2 == 0, now_ms)),
                _ => {}
            }
            let under_way: u32 = (0..3).map(|index| group.under_way(index)).sum();
            prop_assert_eq!(under_way as usize, held.len());
            let all_down = (0..3).all(|index| group.standing(index, now_ms) == Some(OriginStatus::Down));
            prop_assert_eq!(choose(&group, now_ms).is_none(), all_down);
        }
    }
}

#[test]
fn workers_share_it() {
    let mut settings = settings(Balance::RoundRobin, &[3, 1]);
    settings.passive.failures = 0;
    let group = Arc::new(Group::new(&settings));
    let counts: Vec<usize> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(|| counts(&group, 0, 10_000))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).fold(vec![0, 0], |mut sum, counts| {
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            sum
        })
    });
    assert!(counts[0].abs_diff(30_000) < 1_500, "{counts:?}");
    assert_eq!((group.under_way(0), group.under_way(1)), (0, 0));
}

/// A message must not say that an origin gets no requests while it does.
#[test]
fn the_only_origin_is_out_of_rotation_only_if_it_gets_no_requests() {
    let group = group(Balance::RoundRobin, &[1]);
    let paused = (0..10).find_map(|_| fail(&group, 0, 1_000)).unwrap();
    assert!(
        choose(&group, 1_000).is_some() && paused.effect(OtherOrigins::Nowhere).contains("still gets all requests")
    );
    let check = HealthCheck { fall: 1, ..HealthCheck::default() };
    let checked = Proxy { health_check: Some(check), ..settings(Balance::RoundRobin, &[1]) };
    let group = Arc::new(Group::new(&checked));
    let failed = group.handle_check(0, false, 1_000).unwrap();
    assert!(
        choose(&group, 1_000).is_none()
            && failed.effect(OtherOrigins::Nowhere).contains("gets no requests until its checks pass")
    );
    for change in Change::ALL {
        let is_other = matches!(change, Change::LimitBegan | Change::LimitEnded | Change::Removed);
        assert_eq!(change.effect(OtherOrigins::Everywhere).ends_with("rotation"), !is_other, "{change:?}");
        assert!(!change.effect(OtherOrigins::Nowhere).contains("rotation"), "{change:?}");
    }
}
