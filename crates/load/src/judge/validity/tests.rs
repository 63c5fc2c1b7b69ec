use super::{CROWDED_NS_MIN, Evidence, InvalidReason, JUDGED_NS_MIN, judge};
use crate::judge::little::Little;
use crate::judge::reconcile::{Reconciliation, ServerCounts};
use crate::judge::{Figure, Soundness};

const MS: u64 = 1_000_000;

/// A valid open-loop run of ten seconds.
fn good() -> Evidence {
    Evidence {
        elapsed_ns: 10_010 * MS,
        responses: 10_000,
        client_busy_share: 0.3,
        client_wait_share: 0.05,
        client_held_back_share: None,
        client_crowded_share: Some(0.01),
        server_crowded_cores: Some(0.01),
        server_cores: Some(0.4),
        offered_per_s: Some(1_000.0),
        begun_per_s: 1_000.0,
        intended_span_ns: 9_999 * MS,
        begun_span_ns: 9_999 * MS,
        connections_peak: 12,
        lag_p50_ns: 60_000,
        lag_p99_ns: 90_000,
        response_p50_ns: 400_000,
        response_p99_ns: 2 * MS,
        visits: 10_000,
        little: Some(Little { in_flight: 0.4, rate_times_service: 0.401 }),
        ..Evidence::default()
    }
}

fn reasons(evidence: &Evidence) -> Vec<InvalidReason> {
    judge(evidence).into_iter().map(|invalid| invalid.reason).collect()
}

#[test]
fn a_good_run_is_valid_and_so_is_one_of_nothing() {
    assert_eq!(reasons(&good()), vec![]);
    assert_eq!(reasons(&Evidence::default()), vec![]);
}

#[test]
fn names_are_unique_and_every_reason_can_come_up() {
    let names: std::collections::BTreeSet<_> = InvalidReason::ALL.iter().map(|reason| reason.name()).collect();
    assert_eq!(names.len(), InvalidReason::ALL.len());
    for reason in InvalidReason::ALL {
        assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
        assert!(!reason.text().is_empty() && !reason.remedy().is_empty());
    }
    let server = ServerCounts { source: "access.log".to_owned(), by_status: vec![], requests: 1 };
    let bad = Evidence {
        client_busy_share: 0.99,
        server_crowded_cores: Some(0.2),
        server_cpu_is_short: true,
        client_stopped_ns: 500 * MS,
        client_starved: 1,
        unconnected_share: 0.5,
        begun_span_ns: 12_000 * MS,
        connections_asked: Some(13),
        lag_p50_ns: MS,
        arrivals_dropped: 7,
        little: Some(Little { in_flight: 0.4, rate_times_service: 0.41 }),
        reconciliation: Some(Reconciliation {
            server,
            client_classes: [0; 5],
            uncertain: 0,
            sent_again: 0,
            client_requests: 2,
        }),
        counts_missing: Some("http://127.0.0.1:9/metrics: connection refused".to_owned()),
        part_missing: Some("no level was run after this one".to_owned()),
        agents_lost: 1,
        no_steady_state: true,
        stopped_early: Some("20 of 20 requests failed".to_owned()),
        interrupted: true,
        ..good()
    };
    let mut found = reasons(&bad);
    found.extend(reasons(&Evidence { elapsed_ns: 900 * MS, arrivals_waited: 5_000, client_starved: 0, ..bad }));
    assert!(InvalidReason::ALL.iter().all(|reason| found.contains(reason)), "{found:?}");
}

#[test]
fn a_stopped_client_is_named_if_it_was_stopped_for_more_than_a_hundredth() {
    let stopped = |stopped_ns: u64| Evidence { client_stopped_ns: stopped_ns, ..good() };
    assert_eq!(reasons(&stopped(100 * MS)), vec![]);
    assert_eq!(reasons(&stopped(101 * MS)), vec![InvalidReason::ClientStopped]);
    // The lag of so few requests says nothing about p99, and a closed loop has none.
    let few = Evidence { responses: 48, visits: 48, lag_p50_ns: 0, lag_p99_ns: 0, ..stopped(3_000 * MS) };
    let found = judge(&few);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].text.contains("did not run for 3.00 s of the 10.0 s"), "{}", found[0].text);
}

#[test]
fn lag_invalidates_only_if_it_is_large_relative_to_the_response() {
    let lag = |p50: u64, p99: u64| reasons(&Evidence { lag_p50_ns: p50, lag_p99_ns: p99, ..good() });
    assert_eq!(lag(100_000, 100_000), vec![], "so much is always allowed");
    assert_eq!(lag(100_001, 100_001), vec![InvalidReason::ScheduleLag]);
    assert_eq!(lag(0, 500_000), vec![]);
    assert_eq!(lag(0, 500_001), vec![InvalidReason::ScheduleLag]);
    let slow = Evidence { response_p50_ns: 100 * MS, response_p99_ns: 900 * MS, ..good() };
    assert_eq!(reasons(&Evidence { lag_p50_ns: 10 * MS, lag_p99_ns: 200 * MS, ..slow }), vec![]);
}

#[test]
fn a_wait_for_connections_is_named_as_what_it_is() {
    let waiting = Evidence { lag_p50_ns: 300 * MS, response_p50_ns: 310 * MS, arrivals_waited: 4_000, ..good() };
    assert_eq!(reasons(&waiting), vec![InvalidReason::ConnectionsShort]);
    assert_eq!(reasons(&Evidence { overload: true, ..waiting.clone() }), vec![]);
    assert_eq!(reasons(&Evidence { arrivals_waited: 10, ..waiting }), vec![InvalidReason::ScheduleLag]);
}

#[test]
fn a_client_without_time_left_is_the_limit() {
    let busy = |busy, wait, elapsed_ns| {
        let evidence = Evidence { client_busy_share: busy, client_wait_share: wait, elapsed_ns, ..good() };
        judge(&evidence).into_iter().map(|invalid| invalid.text).collect::<Vec<_>>()
    };
    assert_eq!(busy(0.6, 0.3, JUDGED_NS_MIN), Vec::<String>::new());
    assert!(busy(0.05, 0.93, JUDGED_NS_MIN)[0].ends_with("on a core 5 % of the time and waited for one 93 %"));
    assert_eq!(busy(1.0, 0.0, JUDGED_NS_MIN - 1), Vec::<String>::new());
    let held_back = |share, elapsed_ns| {
        let evidence = Evidence { client_held_back_share: Some(share), elapsed_ns, ..good() };
        judge(&evidence).into_iter().map(|invalid| invalid.text).collect::<Vec<_>>()
    };
    assert_eq!(held_back(0.1, JUDGED_NS_MIN), Vec::<String>::new());
    assert!(held_back(0.93, JUDGED_NS_MIN)[0].ends_with("quota throttled it in 93 % of the periods"));
}

#[test]
fn a_rate_is_missed_by_being_late_or_by_dropping() {
    let reached = |begun_span_ns, visits, arrivals_dropped| {
        Evidence { begun_span_ns, arrivals_dropped, visits, ..good() }.reached_share().unwrap()
    };
    assert!((reached(9_999 * MS, 10_000, 0) - 1.0).abs() < 1e-9);
    assert!((reached(10_099 * MS, 10_000, 0) - 1.0).abs() < 1e-9, "one late request at the end");
    assert!((reached(19_998 * MS, 10_000, 0) - 0.5).abs() < 1e-9);
    assert!((reached(9_999 * MS, 9_000, 1_000) - 0.9).abs() < 1e-9);
    assert_eq!(Evidence { offered_per_s: None, ..good() }.reached_share(), None);
    let late = Evidence { begun_span_ns: 10_300 * MS, ..good() };
    assert_eq!(reasons(&late), vec![InvalidReason::RateNotReached]);
    assert_eq!(reasons(&Evidence { overload: true, ..late }), vec![]);
    let dropped = Evidence { arrivals_dropped: 1, ..good() };
    assert_eq!(reasons(&dropped), vec![InvalidReason::ArrivalsDropped]);
}

#[test]
fn connections_are_counted_where_all_are_held_at_once() {
    let asked = |connections_asked| reasons(&Evidence { connections_asked, ..good() });
    assert_eq!((asked(None), asked(Some(12))), (vec![], vec![]));
    assert_eq!(asked(Some(13)), vec![InvalidReason::ConnectionsNotReached]);
    let text = |connections_peak| {
        let evidence = Evidence { connections_asked: Some(13), connections_peak, ..good() };
        judge(&evidence).remove(0).text
    };
    assert_eq!(text(12), "only 12 of 13 connections were open at once");
    assert_eq!(text(0), "none of 13 connections could be opened");
}

#[test]
fn a_server_that_was_down_for_a_while_makes_the_figures_of_a_closed_loop_unknown() {
    let down = |unconnected_share| Evidence { unconnected_share, offered_per_s: None, ..good() };
    assert_eq!(reasons(&down(0.05)), vec![]);
    let (evidence, invalid) = (down(0.667), judge(&down(0.667)));
    assert_eq!(invalid.len(), 1, "{invalid:?}");
    assert!(invalid[0].text.contains("could not be opened for 67 % of their time"), "{}", invalid[0].text);
    let worth = |figure| crate::judge::figures::verdict(figure, &evidence, &invalid).soundness;
    for figure in [Figure::Rate, Figure::Median, Figure::Tail, Figure::ServerCpu] {
        assert_eq!(worth(figure), Soundness::Unknown, "{figure:?}");
    }
    assert_eq!((worth(Figure::ClientCpu), worth(Figure::Counts)), (Soundness::Sound, Soundness::AtLeast));
    // The client's own lack of descriptors has its own name, and without a response, there are no figures.
    let starved = Evidence { client_starved: 1, ..down(0.5) };
    assert_eq!(reasons(&starved), vec![InvalidReason::ClientStarved]);
    assert_eq!(reasons(&Evidence { responses: 0, ..down(1.0) }), vec![]);
}

#[test]
fn the_slowest_of_a_few_requests_is_not_their_99th_percentile() {
    let late = |responses| Evidence { responses, lag_p99_ns: MS, response_p99_ns: MS, ..good() };
    assert_eq!(reasons(&late(99)), vec![]);
    assert_eq!(reasons(&late(100)), vec![InvalidReason::ScheduleLag]);
    // The median of a few requests can be judged.
    let evidence = Evidence { lag_p50_ns: MS, response_p50_ns: MS, ..late(9) };
    assert_eq!(reasons(&evidence), vec![InvalidReason::ScheduleLag]);
}

#[test]
fn a_crowd_touches_the_tail_before_the_rest() {
    let crowded = |client, server, elapsed_ns| {
        let evidence = Evidence { client_crowded_share: client, server_crowded_cores: server, elapsed_ns, ..good() };
        (evidence.is_crowded(), evidence.is_rate_contended(), evidence.is_median_contended())
    };
    let long_ns = 10_000 * MS;
    assert_eq!(crowded(None, None, long_ns), (false, false, false));
    assert_eq!(crowded(Some(0.01), Some(0.01), long_ns), (false, false, false));
    let is_light = |evidence: Evidence| (evidence.is_crowded(), evidence.is_rate_contended());
    let of_a_busy_thread =
        Evidence { client_crowded_share: Some(0.015), client_busy_share: 0.9, server_crowded_cores: None, ..good() };
    assert_eq!(is_light(of_a_busy_thread), (true, false), "1.6 % of what it would have run is none of the rate");
    assert_eq!(crowded(Some(0.03), None, long_ns), (true, true, false), "beside 30 % on a core");
    assert_eq!(crowded(None, Some(0.2), long_ns), (true, true, true), "beside 40 %");
    assert_eq!(crowded(Some(0.9), Some(0.9), 999 * MS), (true, true, true), "in a short run it may be");
    assert_eq!(CROWDED_NS_MIN, 1_000 * MS);
    let evidence = Evidence { server_crowded_cores: Some(0.2), ..good() };
    assert_eq!(reasons(&evidence), vec![InvalidReason::CpuContention]);
    for elapsed_ns in [999 * MS, 50 * MS] {
        let short = Evidence { elapsed_ns, ..evidence.clone() };
        let invalid = judge(&short);
        assert_eq!(reasons(&short), vec![InvalidReason::CpuContentionUnknown], "a tick is too much of so short a run");
        let worth = |figure| crate::judge::figures::verdict(figure, &short, &invalid).soundness;
        assert_eq!((worth(Figure::Median), worth(Figure::Tail)), (Soundness::AtMost, Soundness::AtMost));
        // If nothing else ran, there is no reason.
        assert_eq!(reasons(&Evidence { elapsed_ns, ..good() }), vec![]);
    }
}
