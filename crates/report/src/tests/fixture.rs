//! Invented results for tests of the reports; every figure in them can be calculated by hand.

use flatout_load::FailureKind;
use flatout_load::judge::threshold::ThresholdOutcome;
use flatout_load::judge::{Invalid, InvalidReason};
use flatout_load::plan::{ArrivalKind, Arrivals, Loop, Plan, Stop, Visit};
use flatout_load::random::Random;
use flatout_load::record::{ConnectionEnd, Hdr, Recorder, RecorderSettings, Sample};
use flatout_load::report::step::StepFacts;
use flatout_load::report::{
    AgentReport, ClientReport, Cpu, KernelReport, LimitReport, MachineReport, RunReport, SCHEMA, SCHEMA_VERSION,
    ServerReport, StepReport, Times, WarmUpReport,
};
use flatout_load::schedule::Tally;

const SECOND_NS: u64 = 1_000_000_000;

/// The start of the first step on the run's clock.
const START_NS: u64 = 7_000_000_000;

/// The properties of an invented step.
struct Shape {
    rate: u64,
    seconds: u64,
    /// Time to connect and to wait for the first byte, in nanoseconds, of the response of this number.
    connect_ns: fn(u64) -> u64,
    wait_ns: fn(u64, &mut Random) -> u64,
    /// One in this many requests fails; `None` if no request fails.
    fails_each: Option<u64>,
}

fn step(number: u16, start_ns: u64, shape: &Shape) -> StepReport {
    let plan = Plan {
        kind: Loop::Open(Arrivals::constant(ArrivalKind::Fixed, shape.rate as f64)),
        visit: Visit::Connection { calls: 1 },
        connections: 1_000,
        stop: Stop::After { duration_ns: shape.seconds * SECOND_NS },
        seed: 42,
        ..Plan::default()
    };
    let settings = RecorderSettings { classes: 2, start_ns, measured_from_ns: start_ns };
    let mut record = Recorder::new(settings).unwrap();
    let mut random = Random::new(u64::from(number) + 1);
    let visits = shape.rate * shape.seconds;
    let mut samples: Vec<Sample> = Vec::new();
    for visit in 0..visits {
        let intended_ns = start_ns + visit * SECOND_NS / shape.rate;
        let begun_ns = intended_ns + 10_000;
        let (connect_ns, wait_ns) = ((shape.connect_ns)(visit), (shape.wait_ns)(visit, &mut random));
        let sent_ns = begun_ns + connect_ns + 5_000;
        let fails = shape.fails_each.is_some_and(|each| visit % each == each - 1);
        samples.push(Sample {
            class: (visit % 2) as u16,
            step: number,
            intended_ns,
            begun_ns,
            sent_ns,
            first_byte_ns: if fails { 0 } else { sent_ns + wait_ns },
            ended_ns: sent_ns + wait_ns + 20_000,
            resolve_ns: 0,
            connect_ns,
            tls_ns: 0,
            result: if fails { Err(FailureKind::ConnReset) } else { Ok(200) },
            detail: if fails { "epipe" } else { "" },
            head_bytes: if fails { 0 } else { 187 },
            body_bytes: if fails { 0 } else { 1010 },
            sent_bytes: 72,
            interim_responses: 0,
            is_new_connection: true,
        });
    }
    // All events in order of time, as a client reports them.
    let mut events: Vec<(u64, u8, usize)> = Vec::new();
    for (index, sample) in samples.iter().enumerate() {
        events.push((sample.begun_ns, 0, index));
        events.push((sample.begun_ns + sample.connect_ns, 1, index));
        events.push((sample.ended_ns, 2, index));
    }
    events.sort_unstable();
    let mut last_ns = start_ns;
    for (at_ns, what, index) in events {
        let sample = &samples[index];
        last_ns = at_ns;
        match what {
            0 => {
                record.record_begun(1, sample.intended_ns, at_ns);
                record.record_connect_begun(at_ns);
            }
            1 => record.record_connected(at_ns, None),
            _ => {
                record.record(sample);
                record.record_connection_end(&ConnectionEnd {
                    begun_ns: sample.begun_ns,
                    ended_ns: at_ns,
                    replies: u64::from(sample.result.is_ok()),
                    by_server: false,
                });
            }
        }
    }
    record.finish(last_ns);
    let responses = record.counts.responses;
    let mut loop_lag = Hdr::new().unwrap();
    for _ in 0..100 {
        loop_lag.record(8_000);
    }
    let facts = StepFacts {
        step: number,
        plan,
        elapsed_ns: shape.seconds * SECOND_NS,
        tally: Tally { visits, visits_completed: responses, bursts: visits, ..Tally::default() },
        warm_up: WarmUpReport::default(),
        client: ClientReport {
            cpu: Cpu { user_ns: SECOND_NS / 4, system_ns: SECOND_NS / 2 },
            cpu_ns_per_response: Some(0.75e9 / responses.max(1) as f64),
            busy_wait_ns: SECOND_NS / 8,
            busy_share: 0.125,
            wait_share: 0.01,
            held_back_share: None,
            stopped_ns: 0,
            crowded_share: None,
            loop_lag: Times::of(loop_lag),
            memory_bytes_peak: Some(12 << 20),
            other_cpu_share: Some(0.03),
            agents: Vec::new(),
        },
        server: Some(ServerReport {
            cpu: Cpu { user_ns: SECOND_NS / 5, system_ns: SECOND_NS / 5 },
            cpu_ns_per_response: Some(0.4e9 / responses.max(1) as f64),
            cores_used: 0.4 / shape.seconds as f64,
            memory_bytes: Some(9 << 20),
            memory_bytes_peak: Some(10 << 20),
            switches_voluntary: Some(1_234),
            switches_forced: Some(5),
            processes: 1,
            ..ServerReport::default()
        }),
        kernel: Some(KernelReport { tcp_retransmits: 3, listen_overflows: 2, ..KernelReport::default() }),
        reconciliation: None,
        agents_lost: 0,
        counts_missing: None,
        stopped_early: None,
        interrupted: false,
        overload: false,
    };
    let mut step = StepReport::of(record, facts);
    // The verdict is tested elsewhere; here, the test sets it.
    step.invalid = Vec::new();
    step
}

fn run(label: &str, steps: Vec<StepReport>) -> RunReport {
    RunReport {
        schema: SCHEMA.to_owned(),
        schema_version: SCHEMA_VERSION,
        label: label.to_owned(),
        flatout_version: "1.2.3".to_owned(),
        command: ["flatout", "bench", "http://127.0.0.1:18080/index.html", "--rate", "50", "-H", "X-A: b c"]
            .map(str::to_owned)
            .to_vec(),
        begun_unix_ms: 1_795_265_627_000,
        url: "http://127.0.0.1:18080/index.html".to_owned(),
        address: "127.0.0.1:18080".to_owned(),
        protocol: "HTTP/1.1".to_owned(),
        workload: "one URL".to_owned(),
        seed: 42,
        request_timeout_ns: 5 * SECOND_NS,
        threads: 2,
        agents: 0,
        server_software: Some("flatout".to_owned()),
        machine: MachineReport {
            cpu_model: "Some CPU @ 2 GHz".to_owned(),
            cpu_mhz: Some(2000),
            cores: 2,
            kernel: "6.12.0".to_owned(),
            memory_bytes: 16 << 30,
            host: Some("lab".to_owned()),
            cpu_governor: Some("performance".to_owned()),
            files_max: Some(20_000),
            sysctls: vec![("net.core.somaxconn".to_owned(), "4096".to_owned())],
            binary_digest: Some("c0ffee".to_owned()),
        },
        class_names: vec!["/index.html".to_owned(), "/b".to_owned()],
        steps,
        limit: Some(LimitReport {
            measure: "http_keep_alive".to_owned(),
            words: "bare loop, one request per connection".to_owned(),
            unit: "requests/s".to_owned(),
            value: 20_000.0,
            reached: 5_000.0,
            share: 0.25,
        }),
        thresholds: Vec::new(),
        findings: serde_json::Map::new(),
    }
}

/// 50 connections per second for 6 seconds, one request each. Responses take 0.5 ms, every tenth 3 ms; connecting takes
/// 0.1 ms.
pub(crate) fn single() -> RunReport {
    let shape = Shape {
        rate: 50,
        seconds: 6,
        connect_ns: |_| 100_000,
        wait_ns: |visit, _| if visit % 10 == 9 { 3_000_000 } else { 500_000 },
        fails_each: None,
    };
    run("one rate", vec![step(0, START_NS, &shape)])
}

/// Like [`single`], but all responses take 0.5 ms, and one request in `fails_each` is reset.
pub(crate) fn even(label: &str, fails_each: Option<u64>) -> RunReport {
    let shape = Shape { rate: 50, seconds: 6, connect_ns: |_| 100_000, wait_ns: |_, _| 500_000, fails_each };
    run(label, vec![step(0, START_NS, &shape)])
}

/// Like [`even`]; one request in 25 is reset.
pub(crate) fn failing() -> RunReport {
    even("failing", Some(25))
}

/// 100 to 1,000 requests/s in steps of 100, for ten seconds each. The last two overload the server, and the last one is
/// invalid.
pub(crate) fn sweep(label: &str, factor: u64) -> RunReport {
    let waits: [fn(u64, &mut Random) -> u64; 3] = [
        |_, random| (300_000.0 + 400_000.0 * random.next_exp()) as u64,
        |_, random| (500_000.0 + 1_500_000.0 * random.next_exp()) as u64,
        |visit, random| (2_000_000.0 + 20_000_000.0 * random.next_exp()) as u64 + visit * 30_000,
    ];
    let steps = (1..=10_u64).map(|index| {
        let wait_ns = waits[if index < 6 { 0 } else { usize::from(index > 8) + 1 }];
        let shape = Shape {
            rate: 100 * index,
            seconds: 10,
            connect_ns: |_| 60_000,
            wait_ns,
            fails_each: (index > 8).then_some(40),
        };
        let mut step = step(index as u16 - 1, START_NS + (index - 1) * 10 * SECOND_NS, &shape);
        if index > 8 {
            // The rate of a server at its limit.
            step.responses_per_s = 830.0 * factor as f64 / 10.0;
        }
        step
    });
    let mut report = run(label, steps.collect());
    if let Some(last) = report.steps.last_mut() {
        last.invalid.push(Invalid { reason: InvalidReason::ClientSaturated, text: "97 % busy".to_owned() });
        last.client.agents = vec![
            AgentReport { name: "lab1".to_owned(), skew_ns: 12_000, busy_share: 0.5, responses: 4_000, lost: false },
            AgentReport { name: "lab2".to_owned(), skew_ns: -3_000, busy_share: 0.4, responses: 1_000, lost: true },
        ];
    }
    report.thresholds = vec![
        ThresholdOutcome {
            text: "p99<20ms".to_owned(),
            step: 9,
            found: Some("341 ms".to_owned()),
            met: false,
            unsound: Vec::new(),
        },
        ThresholdOutcome {
            text: "errors<5%".to_owned(),
            step: 9,
            found: Some("2.5 %".to_owned()),
            met: true,
            unsound: Vec::new(),
        },
    ];
    report.findings.insert(
        "knee".to_owned(),
        serde_json::json!({
            "sentence": "The highest rate with p99 < 50 ms is 800 requests/s.",
            "rate_per_s": 800,
            "tries": [{ "rate_per_s": 400, "met": true }, { "rate_per_s": 900, "met": false }],
        }),
    );
    report
}
