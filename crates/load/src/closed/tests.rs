use super::{
    CONNECTIONS_MAX, ConnectionUse, Next, Plan, PlanError, RETRY_PAUSE_NS_MAX, RETRY_PAUSE_NS_MIN, Retry, Share, Stop,
    ThreadPlan,
};

/// Longer than any pause between two attempts.
const PATIENCE_NS: u64 = 10 * RETRY_PAUSE_NS_MAX;

fn plan(connections: u32, threads: u32, stop: Stop) -> Plan {
    Plan { connections, threads, stop, connection_use: ConnectionUse::KeepAlive }
}

fn requests_of(share: &Share) -> u64 {
    match share.stop {
        Stop::Requests(requests) => requests,
        Stop::After { .. } => 0,
    }
}

#[test]
fn shares_add_up_exactly() {
    for connections in [1, 2, 3, 7, 64, 1000] {
        for threads in [1, 2, 3, 8, 100] {
            for requests in [1, 2, 5, 63, 64, 65, 9_999, 1 << 40, u64::MAX] {
                let plan = plan(connections, threads, Stop::Requests(requests));
                let shares = plan.shares();
                assert_eq!(shares.iter().map(requests_of).map(u128::from).sum::<u128>(), u128::from(requests));
                assert_eq!(shares.iter().map(|share| share.connections).sum::<u32>(), plan.connections_used());
                assert!(shares.iter().all(|share| share.connections > 0 && requests_of(share) > 0));
                assert!(shares.len() <= threads as usize);
            }
        }
    }
}

#[test]
fn few_requests_open_few_connections() {
    let plan = plan(64, 8, Stop::Requests(3));
    assert_eq!(plan.connections_used(), 3);
    assert_eq!(plan.shares(), vec![Share { connections: 1, stop: Stop::Requests(1) }; 3]);
}

#[test]
fn a_share_sends_exactly_its_requests() {
    let mut thread = ThreadPlan::begin(Share { connections: 4, stop: Stop::Requests(10) }, 5, PATIENCE_NS);
    let sent = (0..50).filter(|now_ns| thread.decide_next(*now_ns) == Next::Send).count();
    assert_eq!(sent, 10);
    assert!(!thread.wants_more(50));
}

#[test]
fn nothing_is_sent_at_or_after_the_deadline() {
    let mut thread =
        ThreadPlan::begin(Share { connections: 1, stop: Stop::After { duration_ns: 100 } }, 1_000, PATIENCE_NS);
    assert_eq!(thread.decide_next(1_000), Next::Send);
    assert_eq!(thread.decide_next(1_099), Next::Send);
    assert!(thread.wants_more(1_099));
    assert_eq!(thread.decide_next(1_100), Next::Stop);
    assert!(!thread.wants_more(1_100));
}

#[test]
fn a_deadline_past_the_end_of_time_saturates() {
    let share = Share { connections: 1, stop: Stop::After { duration_ns: u64::MAX } };
    let mut thread = ThreadPlan::begin(share, 10, PATIENCE_NS);
    assert_eq!(thread.decide_next(u64::MAX - 1), Next::Send);
}

#[test]
fn stop_ends_either_kind_of_run() {
    for stop in [Stop::Requests(9), Stop::After { duration_ns: 9 }] {
        let mut thread = ThreadPlan::begin(Share { connections: 1, stop }, 0, PATIENCE_NS);
        assert_eq!(thread.decide_next(0), Next::Send);
        thread.stop();
        assert_eq!(thread.decide_next(0), Next::Stop);
    }
}

#[test]
fn a_server_that_never_answered_is_given_up() {
    let mut thread = ThreadPlan::begin(Share { connections: 1, stop: Stop::Requests(9) }, 0, PATIENCE_NS);
    assert_eq!(thread.decide_retry(0, 1), Retry::GiveUp);
    thread.handle_connected();
    assert_eq!(thread.decide_retry(0, 1), Retry::After { pause_ns: RETRY_PAUSE_NS_MIN });
    assert_eq!(thread.decide_retry(0, 2), Retry::After { pause_ns: 2 * RETRY_PAUSE_NS_MIN });
    assert_eq!(thread.decide_retry(0, u32::MAX), Retry::After { pause_ns: RETRY_PAUSE_NS_MAX });
}

#[test]
fn a_server_that_died_is_given_up_after_a_while_and_one_that_came_back_is_not() {
    let mut thread = ThreadPlan::begin(Share { connections: 1, stop: Stop::Requests(9) }, 0, PATIENCE_NS);
    thread.handle_connected();
    let died_ns = 1_000 * PATIENCE_NS;
    assert_eq!(thread.decide_retry(died_ns, 1), Retry::After { pause_ns: RETRY_PAUSE_NS_MIN });
    let last_ns = died_ns + PATIENCE_NS - 1;
    assert_eq!(thread.decide_retry(last_ns, 99), Retry::After { pause_ns: 1 });
    thread.handle_connected();
    assert_eq!(thread.decide_retry(last_ns + 1, 1), Retry::After { pause_ns: RETRY_PAUSE_NS_MIN });
    assert_eq!(thread.decide_retry(last_ns + 1 + PATIENCE_NS, 99), Retry::GiveUp);
}

#[test]
fn a_run_for_a_time_waits_for_its_server_until_the_time_is_over() {
    let share = Share { connections: 1, stop: Stop::After { duration_ns: 9 * PATIENCE_NS } };
    let mut thread = ThreadPlan::begin(share, 0, PATIENCE_NS);
    thread.handle_connected();
    for failures in 1..=8 {
        let retry = thread.decide_retry(failures * PATIENCE_NS, 99);
        assert_eq!(retry, Retry::After { pause_ns: RETRY_PAUSE_NS_MAX });
    }
}

#[test]
fn a_pause_never_outlasts_the_run() {
    let mut thread = ThreadPlan::begin(Share { connections: 1, stop: Stop::After { duration_ns: 7 } }, 0, PATIENCE_NS);
    thread.handle_connected();
    assert_eq!(thread.decide_retry(5, 1), Retry::After { pause_ns: 2 });
    assert_eq!(thread.decide_retry(99, 1), Retry::After { pause_ns: 0 });
}

#[test]
fn unusable_plans_are_named() {
    let hour = Stop::After { duration_ns: 1 };
    assert_eq!(plan(0, 1, hour).check(), Err(PlanError::Connections(0)));
    assert_eq!(plan(CONNECTIONS_MAX + 1, 1, hour).check(), Err(PlanError::Connections(CONNECTIONS_MAX + 1)));
    assert_eq!(plan(1, 0, hour).check(), Err(PlanError::NoThreads));
    assert_eq!(plan(1, 1, Stop::Requests(0)).check(), Err(PlanError::NoWork));
    assert_eq!(plan(1, 1, Stop::After { duration_ns: 0 }).check(), Err(PlanError::NoWork));
    assert_eq!(plan(1, 1, hour).check(), Ok(()));
}
