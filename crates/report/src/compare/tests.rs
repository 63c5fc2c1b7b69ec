use super::{Blocks, compare};
use crate::tests::fixture;
use flatout_load::plan::{CookieUse, ExpectedStatuses};
use flatout_load::stats::compare::Finding;

#[test]
fn a_run_beside_itself_shows_no_difference() {
    let sweep = fixture::sweep("a", 10);
    let compared = compare(&[(sweep.clone(), sweep)], 1);
    assert_eq!((compared.blocks, compared.levels.len(), compared.pairs), (Blocks::Stretches, 10, 1));
    // The client was saturated at the last level, so its times are not valid.
    let compared_each: Vec<usize> = compared.levels.iter().map(|level| level.comparisons.len()).collect();
    assert_eq!(compared_each, [1, 1, 1, 1, 1, 1, 1, 1, 1, 0]);
    assert_eq!(
        compared.levels[9].left_out,
        [
            "mean response time: not compared, because it is not valid for A (client-saturated) and for B (client-saturated)"
        ]
    );
    for level in &compared.levels {
        assert!(level.comparisons.iter().all(|comparison| comparison.finding == Finding::NoDifference), "{level:?}");
    }
    assert!(compared.unlike.is_empty());
    assert!(compared.invalid[0].starts_with("A (a): client-saturated"), "{:?}", compared.invalid);
    let text = compared.print(("x.json", "y.json"));
    for words in ["A is x.json", "no difference shown", "only segments of these runs", "valid: B (a): client-saturated"]
    {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    assert_eq!(compared.value(("x", "y"))["levels"][0]["comparisons"][0]["finding"], "no-difference");
}

#[test]
fn a_slower_run_is_said_to_be_slower() {
    let a = fixture::sweep("a", 10);
    let mut b = a.clone();
    // The seventh step waits longer than the first six.
    b.steps[0].record.series = {
        let mut slow = a.steps[6].record.series.clone();
        slow.start_ns = a.steps[0].record.series.start_ns;
        slow
    };
    let compared = compare(&[(a, b)], 1);
    // The clock determines the rate.
    let [time] = &compared.levels[0].comparisons[..] else { panic!("{compared:?}") };
    assert_eq!(time.finding, Finding::Worse);
    assert!(time.sentence().starts_with("B's mean response time is "), "{}", time.sentence());
}

#[test]
fn with_five_pairs_the_runs_are_the_blocks() {
    let pair = (fixture::single(), fixture::even("even", None));
    let compared = compare(&vec![pair; 5], 1);
    assert_eq!(compared.blocks, Blocks::Runs);
    let names: Vec<&str> =
        compared.levels[0].comparisons.iter().map(|comparison| comparison.measure.name.as_str()).collect();
    assert_eq!(names, ["mean response time", "server CPU per response", "p50 response time", "p99 response time"]);
    let p99 = &compared.levels[0].comparisons[3];
    assert_eq!(p99.finding, Finding::Better);
}

#[test]
fn what_else_differs_is_said_and_too_little_is_no_judgement() {
    let a = fixture::single();
    let mut b = fixture::single();
    b.protocol = "HTTP/2".to_owned();
    b.machine.cores = 64;
    b.steps[0].plan.connections = 1;
    let compared = compare(&[(a, b)], 1);
    assert_eq!(compared.unlike.len(), 3, "{:?}", compared.unlike);
    // A server may permit fewer streams than requested, and a name may have several addresses.
    let mut limited = fixture::single();
    limited.steps[0].tally.slots_unusable = 1;
    limited.address = format!("{}, 127.0.0.2:80", limited.address);
    let slots = fixture::single().steps[0].slots_used();
    let unlike = compare(&[(fixture::single(), limited)], 1).unlike;
    let streams = format!("streams in use: {slots} and {}", slots - 1);
    assert_eq!(unlike, ["addresses of the server: 1 and 2", &streams]);
    // Requests with other cookies are other requests.
    let with = |cookies| {
        let mut run = fixture::single();
        run.steps[0].plan.cookies = cookies;
        run
    };
    let unlike = compare(&[(with(CookieUse::Stored), with(CookieUse::Off))], 1).unlike;
    assert!(unlike.len() == 1 && unlike[0].contains(", cookies of responses not sent,"), "{unlike:?}");
    let unlike = compare(&[(with(CookieUse::Stored), with(CookieUse::Specified))], 1).unlike;
    assert!(unlike.len() == 1 && unlike[0].contains(", one Cookie field for all requests,"), "{unlike:?}");
    // Six whole seconds.
    assert_eq!(compared.blocks, Blocks::Stretches);
    let mut empty = fixture::single();
    empty.steps.clear();
    let compared = compare(&[(empty.clone(), empty)], 1);
    assert_eq!(compared.blocks, Blocks::TooFew);
    assert!(compared.print(("a", "b")).contains("Nothing could be compared") && compared.is_worthless());
}

#[test]
fn nothing_compared_is_no_success_and_shows_what_was_measured() {
    let mut brief = fixture::single();
    brief.steps[0].record.series.start_ns = brief.steps[0].record.measured_from_ns;
    brief.steps[0].record.measured_from_ns += 60_000_000_000;
    let compared = compare(&[(brief.clone(), brief)], 1);
    assert!(compared.blocks == Blocks::TooFew && compared.is_worthless(), "{compared:?}");
    let text = compared.print(("a", "b"));
    assert!(
        text.contains("  A: ") && text.contains("; B: ") && text.contains("requests/s, mean response time"),
        "{text}"
    );
}

#[test]
fn runs_that_failed_in_different_shares_are_not_compared() {
    let (whole, failing) = (fixture::even("even", None), fixture::failing());
    let why = "mean response time: not compared, because 4.0 % of B's requests failed and 0.0 % of A's, more than 0.1 \
               percentage points apart";
    for pairs in [1, 5] {
        let compared = compare(&vec![(whole.clone(), failing.clone()); pairs], 1);
        assert!(compared.is_worthless() && compared.levels[0].left_out[0] == why, "{compared:?}");
        assert!(compared.print(("a", "b")).contains(why));
    }
    // The same share of failures on both sides is comparable, but not with rates that include failed responses.
    let mut earlier = failing.clone();
    earlier.schema_version = 2;
    let compared = |a: &flatout_load::report::RunReport| compare(&[(a.clone(), failing.clone())], 1);
    assert!(!compared(&failing).is_worthless());
    assert!(compared(&earlier).is_worthless() && compared(&earlier).levels[0].left_out[0].contains("earlier version"));
}

#[test]
fn runs_with_other_statuses_or_sizes_are_not_simply_faster() {
    let a = fixture::even("even", None);
    let with = |statuses: &str, expected: &str| {
        let mut run = a.clone();
        run.steps[0].record.statuses = serde_json::from_str(statuses).unwrap();
        run.steps[0].plan.expected = ExpectedStatuses::parse(expected).unwrap();
        run
    };
    let (page, redirect) = (r#"{"200": 1000}"#, r#"{"302": 1000}"#);
    let compared = |b: &str, expected: &str| compare(&[(with(page, expected), with(b, expected))], 1);
    let why = "mean response time: not compared, because the statuses of the responses differ (A: 100.0 % status 200; \
               B: 100.0 % status 302); if that is intended, name each of them with --expect-status";
    let different = compared(redirect, "2xx,3xx");
    assert!(different.is_worthless() && different.levels[0].left_out[0] == why, "{different:?}");
    assert!(!compared(redirect, "200,302").is_worthless() && !compared(page, "2xx,3xx").is_worthless());
    let mut smaller = a.clone();
    smaller.steps[0].record.counts.body_bytes_in /= 2;
    let compared = compare(&[(a.clone(), smaller)], 1);
    assert!(!compared.is_worthless(), "{compared:?}");
    assert!(compared.print(("a", "b")).contains("  B's responses are smaller: "), "{compared:?}");
    assert_eq!(compare(&[(a.clone(), a)], 1).levels[0].sizes, None);
}

#[test]
fn levels_are_compared_at_the_same_load() {
    let a = fixture::sweep("a", 10);
    let mut b = fixture::sweep("b", 10);
    b.steps.remove(0);
    let compared = compare(&[(a.clone(), b)], 1);
    assert_eq!((compared.levels.len(), compared.levels[0].load.as_str()), (9, "200 requests/s"));
    // A closed loop, and another rate, have no load in common with an open loop.
    let mut closed = fixture::single();
    closed.steps[0].plan.kind = flatout_load::plan::Loop::Closed;
    for other in [closed, fixture::single()] {
        let compared = compare(&[(a.clone(), other)], 1);
        assert!(compared.is_worthless() && compared.levels.is_empty(), "{compared:?}");
        assert!(compared.print(("a", "b")).contains("no load in common"));
    }
}
