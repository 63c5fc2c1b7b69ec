use super::{ArrivalKind, Arrivals, BURST_MAX, CONNECTIONS_MAX, Dist, Loop, Plan, PlanError, Stop, Visit};

#[test]
fn shares_add_up_exactly_over_threads_and_agents() {
    for connections in [1, 2, 3, 7, 64, 1000] {
        for threads in [1, 2, 3, 8, 100] {
            for agents in [1, 2, 5] {
                let plan = Plan { connections, ..Plan::default() };
                let shares: Vec<_> = (0..agents).flat_map(|agent| plan.shares(threads, agent, agents)).collect();
                assert_eq!(shares.iter().map(|share| share.connections).sum::<u32>(), connections);
                assert!(shares.iter().all(|share| share.connections > 0 && share.shares as usize == shares.len()));
                let mut firsts: Vec<_> = shares.iter().map(|share| (share.index, share.first_connection)).collect();
                firsts.sort_unstable();
                let mut first = 0;
                for (index, (at, first_connection)) in firsts.iter().enumerate() {
                    assert_eq!((*at, *first_connection), (index as u32, first));
                    first += shares.iter().find(|share| share.index == *at).map_or(0, |share| share.connections);
                }
            }
        }
    }
}

#[test]
fn few_requests_open_few_connections() {
    let plan = Plan { connections: 64, stop: Stop::Count(3), ..Plan::default() };
    assert_eq!((plan.connections_used(), plan.shares(8, 0, 1).len()), (3, 3));
}

#[test]
fn unusable_plans_are_named() {
    let good = Plan::default();
    assert_eq!(good.check(), Ok(()));
    let check = |plan: Plan| plan.check().unwrap_err();
    assert_eq!(check(Plan { connections: 0, ..good.clone() }), PlanError::Connections(0));
    assert_eq!(
        check(Plan { connections: CONNECTIONS_MAX + 1, ..good.clone() }),
        PlanError::Connections(CONNECTIONS_MAX + 1)
    );
    assert_eq!(check(Plan { stop: Stop::Count(0), ..good.clone() }), PlanError::NoWork);
    assert_eq!(check(Plan { stop: Stop::After { duration_ns: 0 }, ..good.clone() }), PlanError::NoWork);
    assert_eq!(check(Plan { burst: 0, ..good.clone() }), PlanError::Burst(0));
    assert_eq!(check(Plan { burst: BURST_MAX + 1, ..good.clone() }), PlanError::Burst(BURST_MAX + 1));
    assert_eq!(check(Plan { visit: Visit::Connection { calls: 0 }, ..good.clone() }), PlanError::NoCalls);
    for share in [0.0, 1.0, -1.0] {
        let stop = Stop::Tight { share, duration_ns_max: 1 };
        assert_eq!(check(Plan { stop, ..good.clone() }), PlanError::Tight(share));
    }
    assert!(matches!(check(Plan { think_ns: Dist::Exp(-1.0), ..good.clone() }), PlanError::Meaningless(_)));
    let kind = Loop::Open(Arrivals::constant(ArrivalKind::Fixed, 0.0));
    assert!(matches!(check(Plan { kind, ..good }), PlanError::Meaningless(_)));
}

#[test]
fn a_plan_is_the_same_after_being_written_and_read() {
    let plan = Plan {
        kind: Loop::Open(Arrivals::parse("exp:steps:100@10s,100..200@5s", None).unwrap()),
        visit: Visit::Session { length: Dist::parse_number("30%:1,70%:5..15").unwrap() },
        think_ns: Dist::Exp(1e7),
        stop: Stop::Tight { share: 0.02, duration_ns_max: 9 },
        ..Plan::default()
    };
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
}

#[test]
fn the_offered_rate_counts_every_request_of_a_visit() {
    let open = |visit, burst| Plan {
        kind: Loop::Open(Arrivals::constant(ArrivalKind::Exp, 10.0)),
        visit,
        burst,
        ..Plan::default()
    };
    assert_eq!(open(Visit::Request, 1).offered_per_s(), Some(10.0));
    assert_eq!(open(Visit::Connection { calls: 5 }, 2).offered_per_s(), Some(100.0));
    assert_eq!(open(Visit::Session { length: Dist::Fixed(3.0) }, 1).offered_per_s(), Some(30.0));
    assert_eq!(Plan::default().offered_per_s(), None);
    // A run by count ends after a number of visits in an open loop, and after a number of requests in a closed loop.
    let counted = |plan: Plan| Plan { stop: Stop::Count(3), ..plan }.counted();
    assert_eq!(counted(open(Visit::Connection { calls: 4 }, 2)), Some((3, "connections")));
    assert_eq!(counted(open(Visit::Request, 4)), Some((3, "bursts")));
    assert_eq!(counted(Plan { burst: 4, ..Plan::default() }), Some((12, "requests")));
    assert_eq!(Plan::default().counted(), None);
    // The unit of arrivals is shown with the rate.
    let said = |visit, burst| open(visit, burst).arrival().to_string();
    assert_eq!(said(Visit::Request, 1), "requests/s");
    assert_eq!(said(Visit::Connection { calls: 1 }, 1), "requests/s");
    assert_eq!(said(Visit::Request, 4), "bursts/s of 4 requests");
    assert_eq!(said(Visit::Connection { calls: 4 }, 1), "connections/s of 4 requests");
    assert_eq!(said(Visit::Session { length: Dist::Exp(5.0) }, 1), "sessions/s of 5.09 requests");
}
