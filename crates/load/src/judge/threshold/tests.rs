use super::{Judged, Threshold, ThresholdOutcome};
use crate::failure::FailureKind;
use crate::judge::failing::Finding;
use crate::judge::{Figure, FigureVerdict, InvalidReason, Soundness};
use crate::record::{Recorder, RecorderSettings, Sample};

/// Returns a record of a thousand responses of 1 to 1,000 ms in ten seconds, including five with status 500 and ten
/// with 404, and of five failures.
fn recorder() -> Recorder {
    let mut recorder = Recorder::new(RecorderSettings { classes: 1, start_ns: 0, measured_from_ns: 0 }).unwrap();
    for index in 1..=1_005_u64 {
        let ended_ns = index * 1_000_000;
        let result = match index {
            1..=5 => Ok(500),
            6..=15 => Ok(404),
            1_001.. => Err(FailureKind::ConnReset),
            _ => Ok(200),
        };
        recorder.record(&Sample {
            class: 0,
            step: 0,
            intended_ns: 0,
            begun_ns: 400_000,
            sent_ns: 400_000,
            first_byte_ns: ended_ns,
            ended_ns,
            resolve_ns: 0,
            connect_ns: 0,
            tls_ns: 0,
            result,
            detail: "",
            head_bytes: 0,
            body_bytes: 10_000,
            sent_bytes: 1,
            interim_responses: 0,
            is_new_connection: false,
        });
    }
    recorder
}

fn judge(text: &str, record: &Recorder, elapsed_ns: u64) -> ThresholdOutcome {
    let judged = Judged { record, elapsed_ns, never_begun: 0, step: 3, failures_allowed: false };
    Threshold::parse(text).unwrap().judge(&judged, |_| FigureVerdict::default())
}

#[test]
fn requirements_are_judged_by_their_figure() {
    let recorder = recorder();
    for (text, met, found) in [
        ("p50<600ms", true, "510"),
        ("p99<990ms", false, "99"),
        ("p99 <= 1s", true, "99"),
        ("response.p99.3>990ms", true, "99"),
        ("p99.49<=1.001s", true, "1.0"), // of 990 the 985th, to three digits
        ("p99.5<1.1s", false, "5 of 990 requests never got a response"),
        ("p100<1.1s", false, "5 of 990 requests never got a response"),
        ("service.p100<1.1s", false, "5 of 990 requests never got a response"),
        ("mean<600ms", false, "5 of 990 requests never got a response"),
        ("min>15.9ms", true, "16.00"), // a histogram tells three digits
        ("max<2s", false, "5 of 990 requests never got a response"),
        ("lag.max<401us", true, "400"),
        ("service.p50<500ms", false, "5"),
        ("errors<2%", true, "1.990 %"),
        ("errors<1%", false, "1.990 %"),
        ("errors<=20", true, "20"),
        ("failures<5", false, "5"),
        ("failures<0.5%", true, "0.498 %"),
        ("4xx<11", true, "10"),
        ("5xx<0.1%", false, "0.498 %"),
        ("rate>=98", true, "98.5/s"),
        ("rate>0.1k/s", false, "98.5/s"),
        ("responses>=985", true, "985"),
        ("throughput>980kB", true, "0.985 MB/s"),
        ("throughput>1MB/s", false, "0.985 MB/s"),
    ] {
        let outcome = judge(text, &recorder, 10_000_000_000);
        assert_eq!((outcome.met, outcome.step, outcome.text.as_str()), (met, 3, text), "{outcome:?}");
        assert!(outcome.found.as_deref().unwrap().starts_with(found), "{outcome:?}");
    }
}

#[test]
fn a_value_that_is_not_there_is_a_requirement_missed() {
    let empty = Recorder::new(RecorderSettings { classes: 1, start_ns: 0, measured_from_ns: 0 }).unwrap();
    for text in ["p99<1h", "tls.p50<1h", "errors<100%", "rate>=0", "throughput>=0B"] {
        let outcome = judge(text, &empty, 0);
        assert_eq!((outcome.met, outcome.found), (false, None), "{text}");
    }
    assert!(judge("errors<1", &empty, 0).met, "none are fewer than one");
}

#[test]
fn what_cannot_be_read_is_refused_with_its_reason() {
    for (text, reason) in [
        ("", "no comparison"),
        ("p99", "no comparison"),
        ("p99=20ms", "compare with"),
        ("p99==20ms", "compare with"),
        ("p99<", "is missing"),
        ("p99<20", "unit"),
        ("p99<20 parsecs", "unit of time"),
        ("p99<-1ms", "number"),
        ("p0<1ms", "not a percentile"),
        ("p101<1ms", "not a percentile"),
        ("pear<1ms", "no figure"),
        ("p<1ms", "no figure"),
        ("latency<1ms", "no figure"),
        ("cake.p99<1ms", "no times"),
        ("errors<200%", "more than 100 %"),
        ("errors<few", "number"),
        ("errors<1ms", "plain number"),
        ("rate>1ms", "plain number"),
        ("throughput>5", "bytes with a unit"),
        ("throughput>5Mbit", "bytes with a unit"),
        ("<20ms", "no figure"),
        ("p99<20ms<30ms", "unit"),
    ] {
        let error = Threshold::parse(text).unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn requirements_are_written_as_they_were_given() {
    let threshold = Threshold::parse("p99 < 20ms").unwrap();
    assert_eq!(serde_json::to_string(&threshold).unwrap(), "\"p99 < 20ms\"");
    assert_eq!(serde_json::from_str::<Threshold>("\"p99 < 20ms\"").unwrap(), threshold);
    assert!(serde_json::from_str::<Threshold>("\"p99\"").is_err());
}

#[test]
fn requests_that_were_never_begun_are_slower_than_every_other() {
    let record = recorder();
    let judge = |text: &str, never_begun| {
        let judged = Judged { record: &record, elapsed_ns: 1, never_begun, step: 0, failures_allowed: false };
        Threshold::parse(text).unwrap().judge(&judged, |_| FigureVerdict::default()).met
    };
    // Of 1,971 requests, 985 of which have a time, the median is the 986th.
    assert_eq!([0, 980, 981].map(|never_begun| judge("p50<1.1s", never_begun)), [true, true, false]);
    assert!(judge("service.p50<1.1s", 1_000), "what was never begun was no service");
}

#[test]
fn a_mean_is_of_those_that_were_answered_where_failures_are_allowed() {
    let record = recorder();
    let judge = |never_begun, failures_allowed| {
        let judged = Judged { record: &record, elapsed_ns: 1, never_begun, step: 0, failures_allowed };
        Threshold::parse("mean<600ms").unwrap().judge(&judged, |_| FigureVerdict::default()).met
    };
    assert_eq!([judge(0, false), judge(0, true), judge(1, true)], [false, true, false]);
}

#[test]
fn a_figure_that_does_not_hold_decides_only_by_its_bound() {
    let record = recorder();
    let decides = |text: &str, soundness| {
        let judged =
            Judged { record: &record, elapsed_ns: 10_000_000_000, never_begun: 0, step: 0, failures_allowed: false };
        let reasons = vec![InvalidReason::ClientSaturated];
        let verdict = |figure: Figure| FigureVerdict { figure, soundness, reasons: reasons.clone() };
        let outcome = Threshold::parse(text).unwrap().judge(&judged, verdict);
        (outcome.met, outcome.unsound.is_empty())
    };
    use Soundness::{AtLeast, AtMost, Unknown};
    // The rate is 100/s.
    assert_eq!(decides("rate>=90", AtLeast), (true, true));
    assert_eq!(decides("rate>=110", AtLeast), (false, false));
    assert_eq!(decides("rate<90", AtLeast), (false, true));
    assert_eq!(decides("rate>=90", Unknown), (true, false));
    // The median is 500 ms.
    assert_eq!(decides("p50<600ms", AtMost), (true, true));
    assert_eq!(decides("p50<400ms", AtMost), (false, false));
    assert_eq!(decides("max<1h", AtMost), (false, true), "some never had one, whatever the bound");
    assert_eq!(decides("lag.p50<1s", Unknown), (true, true), "lag is what a verdict is found from");
}

#[test]
fn a_requirement_allows_for_what_it_bounds() {
    let allows = |text: &str| {
        let threshold = Threshold::parse(text).unwrap();
        Finding::ALL.iter().copied().filter(|finding| threshold.allows(*finding)).collect::<Vec<_>>()
    };
    let failures = [Finding::RequestsFailed, Finding::BodiesShort];
    assert_eq!(
        allows("errors<1%"),
        [&failures[..], &[Finding::ClientErrors, Finding::ServerErrors, Finding::OtherStatuses]].concat()
    );
    assert_eq!(allows("failures<3"), failures);
    assert_eq!(allows("5xx<3"), [Finding::ServerErrors]);
    assert_eq!(allows("p99<1s"), []);
}
