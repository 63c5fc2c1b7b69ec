use super::{Failing, LatencySummary, Note, RunFacts, Summary, Verdict};
use crate::failure::FailureKind;
use crate::recorder::{Exchange, Recorder};

fn second() -> RunFacts {
    RunFacts { elapsed_ns: 1_000_000_000, ..RunFacts::default() }
}

fn answer(recorder: &mut Recorder, status: u16, latency_ns: u64) {
    recorder.record_sent(50);
    recorder.record_received(100, 900);
    recorder.record_exchange(Exchange { status, latency_ns });
}

#[test]
fn an_empty_run_sent_nothing_and_divides_nothing_by_zero() {
    let summary = Summary::of(&Recorder::new().unwrap(), RunFacts::default());
    assert_eq!(summary.verdict.failing, vec![Failing::NothingSent]);
    assert!(summary.requests_per_s.abs() < f64::EPSILON);
    assert_eq!((summary.latency, summary.client_cpu_ns_per_request), (None, None));
}

#[test]
fn rates_and_costs_are_by_answered_request() {
    let mut recorder = Recorder::new().unwrap();
    for index in 1..=1000_u64 {
        answer(&mut recorder, 200, index * 1_000);
    }
    let facts = RunFacts { client_cpu_ns: 4_000_000, server_cpu_ns: Some(6_000_000), ..second() };
    let summary = Summary::of(&recorder, facts);
    assert!(summary.verdict.passed() && summary.notes.is_empty());
    assert!((summary.requests_per_s - 1000.0).abs() < 1e-9);
    assert!((summary.bytes_in_per_s - 1_000_000.0).abs() < 1e-6);
    assert_eq!(summary.client_cpu_ns_per_request, Some(4_000.0));
    assert_eq!(summary.server_cpu_ns_per_request, Some(6_000.0));
    let latency = summary.latency.unwrap();
    assert_eq!(latency.count, 1000);
    for (value_ns, expected_ns) in [
        (latency.p50_ns, 500_000_u64),
        (latency.p90_ns, 900_000),
        (latency.p99_ns, 990_000),
        (latency.p99_9_ns, 999_000),
        (latency.max_ns, 1_000_000),
    ] {
        assert!(value_ns.abs_diff(expected_ns) <= expected_ns / 500, "{value_ns} {expected_ns}");
    }
}

#[test]
fn percentiles_never_cross() {
    let mut recorder = Recorder::new().unwrap();
    answer(&mut recorder, 200, 7);
    let one = LatencySummary::of(recorder.latency()).unwrap();
    assert!(one.min_ns <= one.p50_ns && one.p50_ns <= one.p99_ns && one.p99_9_ns <= one.max_ns);
}

#[test]
fn every_reason_to_fail_is_named_once() {
    let mut recorder = Recorder::new().unwrap();
    answer(&mut recorder, 404, 1);
    answer(&mut recorder, 500, 1);
    answer(&mut recorder, 503, 1);
    recorder.record_failure(FailureKind::ShortBody, "");
    recorder.record_failure(FailureKind::ConnReset, "");
    let verdict = Verdict::of(recorder.counts(), None);
    assert_eq!(
        verdict.failing,
        vec![Failing::RequestsFailed(1), Failing::BodiesShort(1), Failing::ClientErrors(1), Failing::ServerErrors(2)]
    );
    let text: Vec<_> = verdict.failing.iter().map(ToString::to_string).collect();
    assert_eq!(text[0], "1 request failed");
    assert_eq!(text[1], "1 body was shorter than declared");
    assert_eq!(text[2], "1 request was answered 4xx");
    assert_eq!(text[3], "2 requests were answered 5xx");
}

#[test]
fn sent_but_never_answered_is_told_apart_from_never_sent() {
    let mut recorder = Recorder::new().unwrap();
    recorder.record_sent(10);
    recorder.record_failure(FailureKind::ClientTimo, "");
    let verdict = Verdict::of(recorder.counts(), None);
    assert_eq!(verdict.failing, vec![Failing::NothingAnswered, Failing::RequestsFailed(1)]);
}

#[test]
fn a_run_that_sent_fewer_than_asked_says_so() {
    let mut recorder = Recorder::new().unwrap();
    let failing = |recorder: &Recorder, asked| Verdict::of(recorder.counts(), asked).failing;
    assert_eq!(failing(&recorder, Some(2)), vec![Failing::NothingSent]);
    answer(&mut recorder, 200, 1);
    assert_eq!(failing(&recorder, Some(2)), vec![Failing::NotAllSent { sent: 1, asked: 2 }]);
    assert_eq!(failing(&recorder, Some(2))[0].to_string(), "1 of 2 requests were sent");
    assert_eq!((failing(&recorder, Some(1)), failing(&recorder, None)), (vec![], vec![]));
}

#[test]
fn a_client_that_waits_for_a_core_is_a_limit_too() {
    let mut recorder = Recorder::new().unwrap();
    answer(&mut recorder, 200, 1);
    let note = |busy, wait| {
        Summary::of(&recorder, RunFacts { client_busy_share: busy, client_wait_share: wait, ..second() }).notes
    };
    let short = RunFacts { client_busy_share: 1.0, elapsed_ns: 1_000_000, ..RunFacts::default() };
    assert_eq!(Summary::of(&recorder, short).notes, vec![]);
    assert_eq!(note(0.89, 0.0), vec![]);
    assert_eq!(note(0.95, 0.0), vec![Note::ClientLimit { busy_share: 0.95, wait_share: 0.0 }]);
    let crowded = note(0.6, 0.38);
    assert_eq!(crowded.len(), 1);
    assert!(crowded[0].to_string().ends_with("on a core 60 % of the time and waited for one 38 %"));
}

#[test]
fn a_machine_that_others_use_is_noted() {
    let mut recorder = Recorder::new().unwrap();
    answer(&mut recorder, 200, 1);
    let note = |share| Summary::of(&recorder, RunFacts { other_cpu_share: share, ..second() }).notes;
    assert_eq!((note(None), note(Some(0.1))), (vec![], vec![]));
    assert_eq!(note(Some(0.5)), vec![Note::Crowded(0.5)]);
}

#[test]
fn redirects_reconnects_and_interruptions_are_notes_not_failures() {
    let mut recorder = Recorder::new().unwrap();
    answer(&mut recorder, 302, 1);
    recorder.record_connect(1, true);
    let summary = Summary::of(&recorder, RunFacts { interrupted: true, ..second() });
    assert!(summary.verdict.passed());
    assert_eq!(summary.notes, vec![Note::Interrupted, Note::Redirects(1), Note::Reconnects(1)]);
}
