use super::{ConnectionEnd, Counts, FailureDetail, Recorder, RecorderSettings, Sample, TIME_NS_MAX};
use crate::failure::FailureKind;
use std::borrow::Cow;

/// A response of 1,000 bytes on an existing connection.
pub(super) fn answered(intended_ns: u64, begun_ns: u64, ended_ns: u64) -> Sample {
    Sample {
        class: 0,
        step: 0,
        intended_ns,
        begun_ns,
        sent_ns: begun_ns + 1,
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

fn recorder(classes: usize, measured_from_ns: u64) -> Recorder {
    Recorder::new(RecorderSettings { classes, start_ns: 1_000, measured_from_ns }).unwrap()
}

#[test]
fn one_sample_is_in_every_figure_it_belongs_to() {
    let mut recorder = recorder(1, 1_000);
    recorder.record_connect_begun(2_000);
    recorder.record_connected(2_300, Some(true));
    recorder.record_begun(1, 1_500, 2_000);
    recorder.record(&Sample {
        sent_ns: 2_400,
        first_byte_ns: 2_900,
        connect_ns: 200,
        tls_ns: 100,
        resolve_ns: 30,
        is_new_connection: true,
        interim_responses: 2,
        ..answered(1_500, 2_000, 3_500)
    });
    recorder.finish(4_000);
    let counts = Counts {
        connects_begun: 1,
        connections: 1,
        tls_handshakes: 1,
        tls_resumed: 1,
        requests_begun: 1,
        requests_sent: 1,
        responses: 1,
        interim_responses: 2,
        bytes_out: 50,
        head_bytes_in: 100,
        body_bytes_in: 900,
        status_classes: [2, 1, 0, 0, 0],
        ..Counts::default()
    };
    assert_eq!(recorder.counts, counts);
    for (histogram, value_ns) in [
        (&recorder.response, 2_000),
        (&recorder.service, 1_500),
        (&recorder.lag, 500),
        (&recorder.phases.resolve, 30),
        (&recorder.phases.connect, 200),
        (&recorder.phases.tls, 100),
        (&recorder.phases.wait, 500),
        (&recorder.phases.transfer, 600),
    ] {
        assert_eq!(
            (histogram.histogram().len(), histogram.histogram().max()),
            (1, histogram.histogram().highest_equivalent(value_ns))
        );
    }
    assert_eq!((recorder.sums.response_ns.sum, recorder.sums.service_ns.sum), (2_000, 1_500));
    assert_eq!((recorder.sums.response_bytes.sum, recorder.sums.body_bytes.sum), (1_000, 900));
    assert_eq!((recorder.sums.wait_ns.max, recorder.sums.transfer_ns.max), (500, 600));
    assert_eq!((recorder.in_flight.integral_ns, recorder.in_flight.service_sum_ns), (1_500, 1_500));
    let class = &recorder.classes[0];
    assert_eq!((class.requests, class.responses, class.sums), (1, 1, recorder.sums));
    assert_eq!(recorder.last_ended_ns, 3_500);
}

#[test]
fn failures_are_counted_by_kind_and_detail_and_are_in_no_latency() {
    let mut recorder = recorder(1, 0);
    for (kind, detail) in [
        (FailureKind::BadResponse, "bad status line"),
        (FailureKind::BadResponse, "bad status line"),
        (FailureKind::BadResponse, "bad header"),
        (FailureKind::ConnReset, ""),
    ] {
        let failed = Sample { result: Err(kind), detail, sent_ns: 0, first_byte_ns: 0, ..answered(10, 20, 90) };
        recorder.record_begun(1, 10, 20);
        recorder.record(&failed);
    }
    assert_eq!((recorder.counts.failures_total(), recorder.counts.requests_sent), (4, 0));
    assert_eq!(recorder.counts.failures_of(FailureKind::BadResponse), 3);
    assert_eq!(
        (recorder.response.histogram().len(), recorder.service.histogram().len(), recorder.lag.histogram().len()),
        (0, 0, 4)
    );
    assert_eq!((recorder.sums.failed_ns.count, recorder.sums.failed_ns.max), (4, 80));
    let detail = |detail, count| FailureDetail { kind: FailureKind::BadResponse, detail: Cow::Borrowed(detail), count };
    assert_eq!(recorder.details, vec![detail("bad status line", 2), detail("bad header", 1)]);
    assert!((recorder.counts.error_share() - 1.0).abs() < f64::EPSILON);
}

#[test]
fn failures_in_the_warm_up_are_counted_apart() {
    let (mut one, mut other) = (recorder(1, 5_000), recorder(1, 5_000));
    for (result, intended_ns) in [
        (Ok(200), 1_000),
        (Ok(503), 1_000),
        (Err(FailureKind::ClientTimo), 4_999),
        (Ok(503), 5_000),
        (Err(FailureKind::ConnReset), 6_000),
    ] {
        for recorder in [&mut one, &mut other] {
            recorder.record_begun(1, intended_ns, intended_ns);
            recorder.record(&Sample { result, ..answered(intended_ns, intended_ns, intended_ns + 50) });
        }
    }
    one.merge(&other).unwrap();
    assert_eq!((one.warm_up_samples, one.counts.errors()), (6, 4));
    assert_eq!(one.warm_up_unexpected.iter().collect::<Vec<_>>(), [(503, 2)]);
    let failures = one.warm_up_failures;
    assert_eq!((failures.0.iter().sum::<u64>(), failures.0[FailureKind::ClientTimo.index()]), (2, 2));
}

#[test]
fn the_warm_up_is_in_no_figure_but_in_the_series() {
    let mut recorder = recorder(1, u64::MAX);
    recorder.record_connect_begun(1_500);
    recorder.record_connected(1_600, None);
    for intended_ns in [2_000, 3_000] {
        recorder.record_begun(1, intended_ns, intended_ns);
        recorder.record(&answered(intended_ns, intended_ns, intended_ns + 50));
    }
    assert_eq!(recorder.warm_up_unexpected.iter().count(), 0);
    recorder.begin_measuring(3_500);
    recorder.record_begun(1, 3_400, 3_600);
    recorder.record_begun(1, 3_600, 3_600);
    recorder.record(&answered(3_400, 3_600, 3_700));
    recorder.record(&answered(3_600, 3_600, 3_700));
    assert_eq!((recorder.warm_up_samples, recorder.counts.responses, recorder.counts.requests_begun), (3, 1, 1));
    assert_eq!(
        (recorder.response.histogram().len(), recorder.counts.connections, recorder.connections.open),
        (1, 0, 1)
    );
    assert_eq!(recorder.in_flight.now, 0);
    let point = &recorder.series.points()[0];
    assert_eq!((point.responses, point.begun, point.connections), (4, 4, 1));
    // When a connection from the warm-up closes, only the number of open connections falls.
    recorder.record_connection_end(&ConnectionEnd { begun_ns: 1_500, ended_ns: 9_000, replies: 4, by_server: true });
    assert_eq!(
        (recorder.connections.open, recorder.counts.server_closes, recorder.connections.replies.count),
        (0, 0, 0)
    );
}

#[test]
fn only_connections_with_an_answer_have_a_lifetime() {
    let mut recorder = recorder(1, 0);
    (0..3).for_each(|_| recorder.record_connected(5, None));
    for (replies, ended_ns, by_server) in [(0, 100, false), (2, 1_005, true), (4, 3_005, false)] {
        recorder.record_connection_end(&ConnectionEnd { begun_ns: 5, ended_ns, replies, by_server });
    }
    let connections = &recorder.connections;
    assert_eq!((connections.lifetime_ns.count, connections.lifetime_ns.sum, connections.replies.sum), (2, 4_000, 6));
    assert_eq!((connections.peak, connections.open, recorder.counts.server_closes), (3, 0, 1));
}

#[test]
fn classes_are_told_apart_and_add_up() {
    let mut recorder = recorder(3, 0);
    for class in [0, 1, 1, 2, 900] {
        recorder.record(&Sample { class, ..answered(0, 0, 1_000) });
    }
    recorder.record(&Sample { class: 1, result: Ok(404), ..answered(0, 0, 1_000) });
    recorder.record(&Sample { class: 1, result: Err(FailureKind::ClientTimo), ..answered(0, 0, 1_000) });
    recorder.finish(2_000);
    let of = |index: usize| {
        let class = &recorder.classes[index];
        (class.requests, class.responses, class.failures, class.errors)
    };
    assert_eq!((of(0), of(1), of(2)), ((1, 1, 0, 0), (4, 3, 1, 1), (2, 2, 0, 0)));
    assert_eq!(recorder.classes[1].response.histogram().len(), 2);
    // Of four requests, one got no response.
    let times = recorder.classes[1].percentiles().unwrap();
    assert_eq!((times.p50_ns.is_some(), times.p75_ns), (true, None));
}

#[test]
fn threads_merge_to_what_one_would_have_recorded() {
    let samples: Vec<Sample> = (0..1_000_u64)
        .map(|index| {
            let begun_ns = 2_000 + index * 37;
            let result = match index % 50 {
                7 => Err(FailureKind::ConnReset),
                9 => Ok(500),
                _ => Ok(200),
            };
            let detail = if result.is_err() { "ECONNRESET" } else { "" };
            Sample {
                class: (index % 3) as u16,
                result,
                detail,
                ..answered(begun_ns - index % 5, begun_ns, begun_ns + index * 99)
            }
        })
        .collect();
    let record = |samples: &[&Sample]| {
        let mut recorder = recorder(3, 0);
        // Sort the events by time, as in a thread.
        let mut events: Vec<(u64, bool, &Sample)> = samples
            .iter()
            .flat_map(|sample| [(sample.begun_ns, false, *sample), (sample.ended_ns, true, *sample)])
            .collect();
        events.sort_by_key(|(at_ns, ends, _)| (*at_ns, *ends));
        for (at_ns, ends, sample) in events {
            if ends { recorder.record(sample) } else { recorder.record_begun(1, sample.intended_ns, at_ns) }
        }
        recorder.finish(1_000_000);
        recorder
    };
    let whole = record(&samples.iter().collect::<Vec<_>>());
    let mut merged = record(&samples.iter().step_by(2).collect::<Vec<_>>());
    merged.merge(&record(&samples.iter().skip(1).step_by(2).collect::<Vec<_>>())).unwrap();
    assert!(merged.in_flight.peak >= whole.in_flight.peak);
    merged.in_flight.peak = whole.in_flight.peak;
    assert_eq!(serde_json::to_value(&merged).unwrap(), serde_json::to_value(&whole).unwrap());
    assert_eq!(whole.in_flight.integral_ns, whole.in_flight.service_sum_ns);
    assert_eq!(merged.merge(&recorder(1, 0)), Err(super::RecordError::Different));
}

#[test]
fn agents_with_clocks_of_their_own_merge_as_threads_do() {
    // The same second on two machines, one of which was booted a day earlier.
    let record = |booted_ns: u64, ended_ns: u64| {
        let settings =
            RecorderSettings { classes: 1, start_ns: booted_ns, measured_from_ns: booted_ns + 2_000_000_000 };
        let mut recorder = Recorder::new(settings).unwrap();
        let begun_ns = booted_ns + 3_000_000_000;
        recorder.record_begun(1, begun_ns, begun_ns);
        recorder.record(&answered(begun_ns, begun_ns, booted_ns + ended_ns));
        recorder.finish(booted_ns + ended_ns);
        recorder
    };
    const DAY_NS: u64 = 86_400_000_000_000;
    for (ours, theirs) in [(DAY_NS, 1), (1, DAY_NS)] {
        let mut merged = record(ours, 4_000_000_000);
        merged.merge(&record(theirs, 5_000_000_000)).unwrap();
        assert_eq!(merged.measured_from_ns, ours + 2_000_000_000);
        assert_eq!(merged.last_ended_ns, ours + 5_000_000_000);
        assert_eq!(merged.series.points().iter().map(|point| point.responses).collect::<Vec<_>>(), [0, 0, 0, 0, 1, 1]);
        // Samples of whole seconds lie within the measured part.
        let (_, rates) = merged.series.reply_rates(1, merged.measured_from_ns, ours + 6_000_000_000);
        assert_eq!(rates, [0.0, 0.0, 1.0, 1.0]);
    }
    // A record without measurements, or with an unknown start of measuring, does not change the times.
    let mut merged = record(DAY_NS, 4_000_000_000);
    let unknown = RecorderSettings { classes: 1, start_ns: 7, measured_from_ns: u64::MAX };
    merged.merge(&Recorder::new(unknown).unwrap()).unwrap();
    assert_eq!((merged.measured_from_ns, merged.last_ended_ns), (DAY_NS + 2_000_000_000, DAY_NS + 4_000_000_000));
}

#[test]
fn a_record_is_the_same_after_being_written_and_read() {
    let mut recorder = recorder(2, 0);
    for index in 0..500_u64 {
        recorder.record(&answered(index, index, index * index * 1_000));
    }
    recorder.record(&Sample { result: Err(FailureKind::ShortBody), detail: "x", ..answered(0, 0, u64::MAX) });
    let text = serde_json::to_string(&recorder).unwrap();
    let read: Recorder = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
    assert_eq!((read.response, read.counts), (recorder.response, recorder.counts));
}

#[test]
fn a_record_of_too_many_classes_is_refused() {
    let mut recorder = recorder(super::CLASSES_MAX, 0);
    let write = |recorder: &Recorder| serde_json::to_string(recorder).unwrap();
    assert!(serde_json::from_str::<Recorder>(&write(&recorder)).is_ok());
    recorder.classes.push(recorder.classes[0].clone());
    let error = serde_json::from_str::<Recorder>(&write(&recorder)).unwrap_err().to_string();
    assert!(error.contains("at most 256 classes"), "{error}");
}

#[test]
fn times_outside_the_range_are_kept_at_its_ends() {
    let mut recorder = recorder(1, 0);
    recorder.record(&answered(0, 0, 0));
    recorder.record(&answered(0, 0, u64::MAX));
    recorder.record(&Sample { result: Ok(0), ..answered(9, 5, 2) });
    recorder.record(&Sample { result: Ok(999), ..answered(0, 0, 1) });
    assert_eq!((recorder.response.histogram().len(), recorder.counts.unexpected_classes), (2, [1, 0, 0, 0, 0]));
    assert!(recorder.response.histogram().max() >= TIME_NS_MAX);
    assert_eq!((recorder.counts.status_classes, recorder.counts.other_statuses), ([1, 2, 0, 0, 0], 1));
}

#[test]
fn unexpected_statuses_are_recorded_apart() {
    let mut recorder = recorder(1, 0);
    recorder.expect(crate::plan::ExpectedStatuses::parse("200,404").unwrap());
    for (status, ended_ns) in [(200, 1_000), (404, 2_000), (301, 3_000), (503, 4_000), (503, 5_000)] {
        recorder.record(&Sample { result: Ok(status), ..answered(0, 0, ended_ns) });
    }
    recorder.record(&Sample { result: Err(FailureKind::ConnReset), ..answered(0, 0, 6_000) });
    recorder.finish(9_000);
    let counts = &recorder.counts;
    assert_eq!((counts.responses, counts.successes(), counts.unexpected(), counts.errors()), (5, 2, 3, 4));
    assert_eq!((counts.unexpected_classes, counts.error_share()), ([0, 0, 1, 0, 2], 4.0 / 6.0));
    assert_eq!(recorder.response.histogram().len(), 2);
    let unexpected = recorder.unexpected.as_ref().unwrap().histogram();
    assert_eq!((unexpected.len(), unexpected.min() >= 3_000), (3, true));
    assert_eq!((recorder.sums.response_ns.count, recorder.sums.failed_ns.count), (2, 4));
    assert_eq!((recorder.classes[0].responses, recorder.classes[0].errors, recorder.classes[0].failures), (5, 3, 1));
    assert_eq!(recorder.statuses.iter().collect::<Vec<_>>(), [(200, 1), (301, 1), (404, 1), (503, 2)]);
    assert_eq!(recorder.responses_in_time(), 2);
}
