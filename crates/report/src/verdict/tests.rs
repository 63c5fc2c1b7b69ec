use super::{Tone, of};
use crate::tests::fixture;
use flatout_load::judge::threshold::ThresholdOutcome;
use flatout_load::judge::{Invalid, InvalidReason};
use flatout_load::report::Reason;

#[test]
fn one_rate_is_told_in_a_sentence() {
    let verdict = of(&fixture::single());
    assert_eq!((verdict.tone, verdict.headline.as_str()), (Tone::Good, "Valid: the figures are reliable."));
    assert_eq!(
        verdict.figures,
        "At 50.0 requests/s offered: 50.0 responses/s, half of them within 635 µs, 99 of 100 within 3.14 ms."
    );
    assert!(verdict.reasons.is_empty());
}

#[test]
fn the_gravest_finding_is_the_headline_and_all_are_reasons() {
    let mut report = fixture::failing();
    report.steps[0].failing =
        vec![Reason { name: "requests-failed".to_owned(), text: "12 requests failed".to_owned() }];
    let verdict = of(&report);
    assert_eq!((verdict.tone, verdict.headline.as_str()), (Tone::Failed, "Valid, but requests failed."));
    assert_eq!(verdict.reasons, ["12 requests failed"]);
    report.thresholds =
        vec![ThresholdOutcome { text: "p99<1ms".to_owned(), step: 0, found: None, met: false, unsound: Vec::new() }];
    let verdict = of(&report);
    assert_eq!(verdict.headline, "Valid, but 1 requirement was not met.");
    assert_eq!(verdict.reasons[1], "required p99<1ms, found no such value");
    report.steps[0].invalid.push(Invalid { reason: InvalidReason::ClientSaturated, text: "97 % busy".to_owned() });
    let verdict = of(&report);
    // The clock determines the rate, and the client kept it.
    let headline = "Partly valid: requests/s, server CPU, client CPU, counts are valid; p50, p99 are at most this.";
    assert_eq!((verdict.tone, verdict.headline.as_str()), (Tone::Partly, headline));
    let reason = "client-saturated: 97 % busy. It affects p50, p99: give the client more cores with --threads";
    assert!(verdict.reasons[0].starts_with(reason), "{:?}", verdict.reasons);
    report.steps[0].invalid[0].reason = InvalidReason::CountsDiffer;
    let verdict = of(&report);
    assert_eq!((verdict.tone, verdict.headline.as_str()), (Tone::Invalid, "Invalid: do not rely on these figures."));
    assert_eq!(verdict.reasons.len(), 3);
}

#[test]
fn a_sweep_says_how_far_the_server_kept_up() {
    let verdict = of(&fixture::sweep("sweep", 10));
    assert_eq!(verdict.headline, "Partly valid: not every figure of 1 step is valid.");
    assert!(
        verdict.figures.starts_with(
            "10 steps from 100 requests/s to 1,000 requests/s. The highest rate with which the server kept up is 800 responses/s at 800 requests/s, with 99 of 100"
        ),
        "{}",
        verdict.figures
    );
    assert!(verdict.reasons[0].starts_with("step 10 (1,000 requests/s): client-saturated: 97 % busy"), "{verdict:?}");
    let mut empty = fixture::single();
    empty.steps.clear();
    assert_eq!(of(&empty).figures, "There are no steps in this result.");
}
