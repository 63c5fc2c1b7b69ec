use super::goodput::{good, good_of_point, sustained_per_s};
use super::{
    ClientReport, Cpu, MachineReport, ReadError, RequestsReport, RunReport, SCHEMA, SCHEMA_VERSION, StepFacts,
    StepReport, Times, WarmUpReport,
};
use crate::failure::FailureKind;
use crate::judge::{InvalidReason, Threshold};
use crate::plan::{ArrivalKind, Arrivals, Loop, Plan, Stop, WarmUp};
use crate::record::{Hdr, Point, Recorder, RecorderSettings, Sample};
use crate::schedule::Tally;

const MS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000 * MS;

/// A record of `seconds` with 100 responses per second, whose service times depend on the second.
fn record(seconds: u64, service_ns: impl Fn(u64) -> u64) -> Recorder {
    let settings = RecorderSettings { classes: 1, start_ns: SECOND_NS, measured_from_ns: SECOND_NS };
    let mut recorder = Recorder::new(settings).unwrap();
    for index in 0..seconds * 100 {
        let begun_ns = SECOND_NS + index * 10 * MS;
        recorder.record_begun(1, begun_ns, begun_ns);
        recorder.record(&sample(begun_ns, begun_ns + service_ns(index / 100)));
    }
    recorder.finish(SECOND_NS + seconds * SECOND_NS);
    recorder
}

fn sample(begun_ns: u64, ended_ns: u64) -> Sample {
    Sample {
        class: 0,
        step: 0,
        intended_ns: begun_ns,
        begun_ns,
        sent_ns: begun_ns,
        first_byte_ns: ended_ns,
        ended_ns,
        resolve_ns: 0,
        connect_ns: 0,
        tls_ns: 0,
        result: Ok(200),
        detail: "",
        head_bytes: 100,
        body_bytes: 900,
        sent_bytes: 50,
        interim_responses: 0,
        is_new_connection: false,
    }
}

fn facts(seconds: u64) -> StepFacts {
    StepFacts {
        step: 0,
        plan: Plan {
            kind: Loop::Open(Arrivals::constant(ArrivalKind::Fixed, 100.0)),
            stop: Stop::After { duration_ns: seconds * SECOND_NS },
            warm_up: WarmUp::Steady { duration_ns_max: SECOND_NS },
            ..Plan::default()
        },
        elapsed_ns: seconds * SECOND_NS,
        tally: Tally { visits: seconds * 100, requests: seconds * 100, ..Tally::default() },
        warm_up: WarmUpReport { elapsed_ns: 5, samples: 0, steady: Some(true) },
        client: ClientReport {
            cpu: Cpu { user_ns: 4, system_ns: 5 },
            cpu_ns_per_response: Some(9.0),
            busy_wait_ns: 0,
            busy_share: 0.2,
            wait_share: 0.0,
            held_back_share: None,
            stopped_ns: 0,
            crowded_share: None,
            loop_lag: Times::of(Hdr::new().unwrap()),
            memory_bytes_peak: None,
            other_cpu_share: Some(0.3),
            agents: vec![],
        },
        server: None,
        kernel: None,
        reconciliation: None,
        agents_lost: 0,
        counts_missing: None,
        stopped_early: None,
        interrupted: false,
        overload: false,
    }
}

fn run() -> RunReport {
    let record = record(30, |_| 2 * MS);
    let mut run = RunReport {
        schema: SCHEMA.to_owned(),
        schema_version: SCHEMA_VERSION,
        label: "one".to_owned(),
        flatout_version: "0.1.0".to_owned(),
        command: vec!["flatout".to_owned(), "bench".to_owned()],
        begun_unix_ms: 1,
        url: "http://127.0.0.1/".to_owned(),
        address: "127.0.0.1:80".to_owned(),
        protocol: "HTTP/1.1".to_owned(),
        workload: "one URL".to_owned(),
        seed: u64::MAX,
        request_timeout_ns: 5,
        threads: 1,
        agents: 0,
        server_software: None,
        machine: MachineReport::default(),
        class_names: vec!["/".to_owned()],
        steps: vec![StepReport::of(record, facts(30))],
        limit: None,
        thresholds: Vec::new(),
        findings: serde_json::Map::new(),
    };
    run.require(&[Threshold::parse("p99<20ms").unwrap()]);
    run
}

#[test]
fn what_comes_after_the_span_is_in_no_rate() {
    let mut recorder = record(2, |second| if second == 0 { 2 * MS } else { 5 * MS });
    // One request that began in the span and got its response six seconds after it, and one that timed out later.
    let begun_ns = 2 * SECOND_NS;
    recorder.record_begun(2, begun_ns, begun_ns);
    for (result, ended_ns) in [(Ok(200), 9 * SECOND_NS), (Err(FailureKind::ClientTimo), 12 * SECOND_NS)] {
        recorder.record(&Sample { ended_ns, result, ..sample(begun_ns, begun_ns) });
    }
    recorder.close_span(3 * SECOND_NS);
    let step = StepReport::of(recorder, facts(2));
    assert!((step.responses_per_s - 100.0).abs() < 1e-9, "{}", step.responses_per_s);
    assert!((step.bytes_in_per_s - 100_000.0).abs() < 1e-6, "{}", step.bytes_in_per_s);
    let RequestsReport { offered, begun, in_time, late, drain_ns, failed, unexpected, never_begun } = step.requests;
    assert_eq!((offered, begun, in_time, late), (Some(202), 202, 200, 1));
    assert_eq!((failed, unexpected, never_begun), (1, 0, 0));
    assert_eq!((drain_ns, step.record.counts.responses), (6 * SECOND_NS, 201));
    assert_eq!(step.record.late.drain_ns, 9 * SECOND_NS);
    let met = |text: &str| step.judge(&Threshold::parse(text).unwrap()).met;
    assert!(met("rate>=100") && !met("rate>100") && met("responses>=201"));
}

#[test]
fn a_span_that_the_plan_knows_is_kept_to_while_requests_are_begun_after_it() {
    let settings = RecorderSettings { classes: 1, start_ns: SECOND_NS, measured_from_ns: SECOND_NS };
    let mut recorder = Recorder::new(settings).unwrap();
    recorder.end_span_after(SECOND_NS);
    // Requests that waited for a connection may also begin after the span.
    for begun_ns in [SECOND_NS, 2 * SECOND_NS + 1, 3 * SECOND_NS] {
        recorder.record_begun(1, SECOND_NS, begun_ns);
        recorder.record(&sample(begun_ns, begun_ns + MS));
    }
    recorder.close_span(2 * SECOND_NS);
    assert_eq!((recorder.responses_in_time(), recorder.late.responses), (1, 2));
    assert_eq!((recorder.late.drain_ns, recorder.late.response_ns), (SECOND_NS + MS, SECOND_NS + MS));
}

#[test]
fn what_a_requirement_allows_for_has_not_failed() {
    let failing = || {
        let mut recorder = record(30, |_| 2 * MS);
        recorder.record_begun(1, 5 * SECOND_NS, 5 * SECOND_NS);
        recorder.record(&Sample { result: Err(FailureKind::ConnReset), ..sample(5 * SECOND_NS, 6 * SECOND_NS) });
        StepReport::of(recorder, facts(30))
    };
    let left = |thresholds: &[&str]| {
        let mut step = failing();
        let thresholds: Vec<_> = thresholds.iter().map(|text| Threshold::parse(text).unwrap()).collect();
        step.allow(&thresholds);
        (step.failing.len(), step.notes.iter().any(|note| note.name == "failures-allowed"))
    };
    assert_eq!((left(&[]), left(&["p99<1s"])), ((1, false), (1, false)));
    assert_eq!((left(&["errors<1%"]), left(&["failures<5"])), ((0, true), (0, true)));
    // Without requests, there is no error share.
    let mut nothing = StepReport::of(record(0, |_| 0), facts(30));
    nothing.allow(&[Threshold::parse("errors<5").unwrap()]);
    assert_eq!(nothing.failing[0].name, "nothing-sent");
}

#[test]
fn a_step_is_summed_up() {
    let step = StepReport::of(record(30, |_| 2 * MS), facts(30));
    assert!((step.responses_per_s - 100.0).abs() < 1e-9 && (step.bytes_in_per_s - 100_000.0).abs() < 1e-6);
    assert!((step.begun_per_s - 100.0).abs() < 1e-9, "{}", step.begun_per_s);
    assert_eq!(step.offered.rate_per_s, Some(100.0));
    assert!(step.response.unwrap().p99_ns.unwrap().abs_diff(2 * MS) < 2 * MS / 500);
    assert_eq!((step.invalid, step.failing), (vec![], vec![]));
    assert_eq!(step.notes.len(), 1, "other processes");
    let little = step.evidence.little.unwrap();
    assert!((little.in_flight - 0.2).abs() < 1e-9 && little.difference_share() < 1e-9, "{little:?}");
}

#[test]
fn failed_requests_are_in_no_rate_and_behind_all_times() {
    let mut recorder = record(30, |_| 2 * MS);
    let refused = Sample { result: Ok(503), ..sample(5 * SECOND_NS, 5 * SECOND_NS + MS) };
    let missing = Sample { result: Err(FailureKind::ClientTimo), ..sample(5 * SECOND_NS, 6 * SECOND_NS) };
    for _ in 0..100 {
        recorder.record_begun(2, 5 * SECOND_NS, 5 * SECOND_NS);
        recorder.record(&refused);
        recorder.record(&missing);
    }
    let step = StepReport::of(recorder, facts(30));
    assert!((step.responses_per_s - 100.0).abs() < 1e-9, "{}", step.responses_per_s);
    assert!((step.error_share - 200.0 / 3_200.0).abs() < 1e-9, "{}", step.error_share);
    let response = step.response.unwrap();
    assert_eq!(
        (response.count, response.p95_ns.is_some(), response.p99_ns, response.max_ns),
        (3_000, true, None, None)
    );
    assert_eq!(step.unexpected.unwrap().count, 100);
    assert_eq!(step.record.statuses.iter().collect::<Vec<_>>(), [(200, 3_000), (503, 100)]);
    let names: Vec<_> = step.failing.iter().map(|reason| reason.name.as_str()).collect();
    assert_eq!(names, ["requests-failed", "status-5xx"]);
    // In a document of an earlier version, the responses of 4xx and 5xx are those that failed.
    let mut run = run();
    run.steps[0].record.counts.status_classes = [0, 10, 10, 2, 3];
    run.schema_version = 2;
    let read = RunReport::parse(&run.encode().unwrap()).unwrap();
    assert!(read.has_all_responses() && !run_of_now().has_all_responses());
    let counts = read.steps[0].record.counts;
    assert_eq!(
        (counts.unexpected_classes, counts.unexpected(), read.steps[0].requests.unexpected),
        ([0, 0, 0, 2, 3], 5, 0)
    );
}

/// Returns a document of this version.
fn run_of_now() -> RunReport {
    RunReport::parse(&run().encode().unwrap()).unwrap()
}

#[test]
fn what_was_measured_must_be_steady_where_a_steady_state_was_asked_for() {
    let reasons = |service: fn(u64) -> u64, steady| {
        let facts = StepFacts { warm_up: WarmUpReport { steady, ..WarmUpReport::default() }, ..facts(30) };
        let step = StepReport::of(record(30, service), facts);
        step.invalid.iter().map(|invalid| invalid.reason).collect::<Vec<_>>()
    };
    assert_eq!(reasons(|_| 2 * MS, Some(true)), vec![]);
    assert_eq!(reasons(|_| 2 * MS, Some(false)), vec![InvalidReason::NoSteadyState]);
    assert_eq!(reasons(|second| (second + 1) * MS / 4, Some(true)), vec![InvalidReason::NoSteadyState]);
    assert_eq!(reasons(|second| (second + 1) * MS / 4, None), vec![]);
}

#[test]
fn a_run_by_count_that_sent_too_few_fails() {
    let plan = Plan { stop: Stop::Count(4_000), warm_up: WarmUp::None, ..Plan::default() };
    let step = StepReport::of(record(30, |_| MS), StepFacts { plan, ..facts(30) });
    assert_eq!(step.failing[0].text, "3000 of 4000 requests were sent");
}

#[test]
fn goodput_is_of_the_seconds_in_which_load_was_offered() {
    let plan = |stop| Plan { stop, ..facts(10).plan };
    let step = |stop, service: fn(u64) -> u64| {
        StepReport::of(record(10, service), StepFacts { plan: plan(stop), elapsed_ns: 13 * SECOND_NS, ..facts(10) })
    };
    let ten = Stop::After { duration_ns: 10 * SECOND_NS };
    // From the fifth second on, responses take three seconds, so those of the last three seconds arrive after the load
    // has ended.
    let queue = |second| if second < 5 { 2 * MS } else { 3 * SECOND_NS };
    let sustained = |step: &StepReport, in_time_ns| (10.0 * sustained_per_s(step, in_time_ns)).round() as u64;
    assert_eq!(sustained(&step(ten, queue), 5 * SECOND_NS), 700);
    assert_eq!(sustained(&step(ten, queue), SECOND_NS), 500);
    assert_eq!((good(&step(ten, queue), 5 * SECOND_NS), good(&step(ten, queue), SECOND_NS)), (1_000, 500));
    // A warm-up of two and a half seconds, which no figure includes.
    let mut warmed = step(Stop::After { duration_ns: 7 * SECOND_NS + SECOND_NS / 2 }, queue);
    warmed.record.measured_from_ns += 2 * SECOND_NS + SECOND_NS / 2;
    assert_eq!(sustained(&warmed, SECOND_NS), 286, "of the third to the ninth second: two of seven");
    // In a run by count, the last second may be incomplete.
    assert_eq!(sustained(&step(Stop::Count(1_000), |_| 2 * MS), SECOND_NS), 1_000);
    // A run of less than a second counts with its whole length.
    let short = Stop::After { duration_ns: SECOND_NS / 2 };
    assert_eq!(sustained(&step(short, |_| 2 * MS), SECOND_NS), 769, "a thousand in thirteen seconds");
}

#[test]
fn only_errors_that_were_in_time_are_subtracted_from_goodput() {
    let plan = Plan { stop: Stop::After { duration_ns: 2 * SECOND_NS }, ..facts(2).plan };
    let settings = RecorderSettings { classes: 1, start_ns: 0, measured_from_ns: 0 };
    let mut recorder = Recorder::new(settings).unwrap();
    let mut respond = |count, status, due_ns, ended_ns| {
        (0..count).for_each(|_| recorder.record(&Sample { result: Ok(status), ..sample(due_ns, ended_ns) }));
    };
    // In the second second: correct responses and refusals in time, and others that come after 1.5 s.
    respond(40, 200, SECOND_NS, SECOND_NS + MS);
    respond(30, 503, SECOND_NS, SECOND_NS + MS);
    respond(20, 200, 0, SECOND_NS + SECOND_NS / 2);
    respond(100, 503, 0, SECOND_NS + SECOND_NS / 2);
    let step = StepReport::of(recorder, StepFacts { plan, ..facts(2) });
    let sustained = |in_time_ns| (10.0 * sustained_per_s(&step, in_time_ns)).round() as u64;
    assert_eq!((sustained(SECOND_NS), sustained(2 * SECOND_NS)), (200, 300), "40 or 60 in two seconds");
    // Documents of earlier versions do not tell which errors were late.
    let point = Point { error_heat: Vec::new(), ..step.record.series.points()[1].clone() };
    assert_eq!((good_of_point(&point, SECOND_NS), good_of_point(&point, 2 * SECOND_NS)), (0, 60));
}

#[test]
fn a_document_is_the_same_after_being_written_and_read() {
    let text = run().encode().unwrap();
    let read = RunReport::parse(&text).unwrap();
    // Parsing a fraction may change its last digit, but records contain none.
    let record = |run: &RunReport| serde_json::to_string(&run.steps[0].record).unwrap();
    assert!(record(&read) == record(&run()));
    assert_eq!((&read.steps[0].plan, read.steps[0].tally), (&run().steps[0].plan, run().steps[0].tally));
    assert_eq!((&read.command, &read.thresholds), (&run().command, &run().thresholds));
    assert!(read.is_valid() && read.thresholds.iter().all(|outcome| outcome.met) && read.steps.len() == 1);
    assert_eq!((read.seed, read.steps[0].record.response.histogram().len()), (u64::MAX, 3_000));
}

#[test]
fn other_documents_are_refused_with_a_clear_reason() {
    let text = run().encode().unwrap();
    let change = |from: &str, to: &str| RunReport::parse(&text.replacen(from, to, 1)).unwrap_err();
    let newer = change("\"schema_version\": 3", "\"schema_version\": 4");
    assert_eq!(newer, ReadError::Newer(4));
    assert_eq!(
        newer.to_string(),
        "written by a newer flatout: its schema version is 4, but this one reads only up to 3"
    );
    assert_eq!(
        change("\"schema\": \"flatout-run\"", "\"schema\": \"cake\""),
        ReadError::OtherSchema("cake".to_owned())
    );
    assert_eq!(RunReport::parse("{}").unwrap_err(), ReadError::OtherSchema(String::new()));
    for broken in ["", "[7]", "{", "7", "null"] {
        assert!(matches!(RunReport::parse(broken), Err(ReadError::Malformed(_))), "{broken}");
    }
    for (from, to) in [("\"seed\":", "\"sead\":"), ("HISTFAAA", "HISTFAAB"), ("\"step_s\": 1", "\"step_s\": 2")] {
        assert!(matches!(change(from, to), ReadError::Malformed(_)), "{from}");
    }
}

#[test]
fn fields_of_a_later_day_do_not_hinder_a_reader() {
    let text = run().encode().unwrap().replacen("\"label\":", "\"added_later\": [1], \"label\":", 1);
    assert!(RunReport::parse(&text).is_ok());
}
