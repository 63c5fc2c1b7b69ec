//! Failures of a run, and notes for readers.

use crate::failure::FailureKind;
use crate::plan::Plan;
use crate::record::{CookieCounts, Counts, Moments, Recorder};
use crate::report::Reason;
use crate::schedule::Tally;
use crate::stats::responses::levels_sized_differently;
use flatout_units::show::{self, percent, plural};
use std::cmp::Reverse;

flatout_reason::reasons! {
    /// Named failures and notes about a run.
    pub enum Finding { name, text, }
    NothingSent,     "nothing-sent",     "no request was sent";
    NotAllSent,      "not-all-sent",     "fewer requests were sent than planned";
    NothingAnswered, "nothing-answered", "requests were sent, but no response was complete";
    RequestsFailed,  "requests-failed",  "requests failed, not counting short bodies";
    BodiesShort,     "bodies-short",     "the connection closed before the end of a body";
    IdleCloses,      "idle-closes",      "the server closed idle connections before the responses to more than 0.1 % of the requests, and the client sent these again";
    ClientErrors,    "status-4xx",       "responses had an unexpected status of 4xx";
    ServerErrors,    "status-5xx",       "responses had an unexpected status of 5xx";
    OtherStatuses,   "status-other",     "responses had an unexpected status that is neither 4xx nor 5xx";
    OtherWork,       "other-work",       "other processes kept the machine busy";
    WarmUpFailed,    "warm-up-failed",   "requests failed in the warm-up, which no figure includes";
    FailuresAllowed, "failures-allowed", "requests failed, but a requirement or the kind of run allows this";
    Redirects,       "redirects",        "responses were redirects, which are not followed";
    SizesDiffer,     "sizes-differ",     "the mean size of the responses at a level differs by more than a tenth from that at the first level";
    SentAgain,       "sent-again",       "the server did not process requests, or closed an idle connection before a response, and the client sent them again";
    StreamsLimited,  "streams-limited",  "the server permits fewer concurrent streams on a connection than --streams, and only those were used";
    Cookies,         "cookies",          "responses set cookies; the text says what clients did with them";
    Reconnects,      "reconnects",       "the server closed persistent connections, and the client opened new ones";
}

impl Finding {
    /// Returns the finding with this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|finding| finding.name() == name)
    }

    /// Returns whether a run beyond the server's limit is expected to have this finding: requests that fail, but not
    /// requests that were never sent.
    pub const fn is_of_overload(self) -> bool {
        !matches!(self, Self::NothingSent | Self::NotAllSent)
    }

    fn with(self, text: String) -> Reason {
        Reason { name: self.name().to_owned(), text }
    }
}

/// Largest share of the machine's CPU that other processes may use before the figures are likely to vary.
pub const OTHER_CPU_SHARE_MAX: f64 = 0.1;

/// Share of all requests that may be sent again after an idle close, 0 to 1. If more are, and more than one, the run
/// fails.
const IDLE_CLOSE_SHARE_MAX: f64 = 0.001;

/// Returns whether requests were sent again after idle closes so often that the server may be failing.
fn has_many_idle_closes(counts: &Counts) -> bool {
    counts.sent_again_idle > 1 && counts.sent_again_idle as f64 > IDLE_CLOSE_SHARE_MAX * counts.ended() as f64
}

/// Returns the sentence on requests that were sent again after idle closes.
fn idle_closes(counts: &Counts) -> String {
    let requests = plural(counts.sent_again_idle, "request was", "requests were");
    format!("{requests} sent again after an idle close: the server closed an idle connection before a response")
}

/// Returns all failures of a run with these counts. `requests_asked` is the number of requested requests, if known.
pub fn failing(counts: &Counts, requests_asked: Option<u64>) -> Vec<Reason> {
    let bodies_short = counts.failures_of(FailureKind::ShortBody);
    let failures = counts.failures_total() - bodies_short;
    // A request may have its response before it has been sent whole.
    let sent = counts.requests_sent.max(counts.responses);
    let mut failing = Vec::new();
    if sent == 0 {
        failing.push(Finding::NothingSent.with("no request was sent".to_owned()));
    } else if let Some(asked) = requests_asked.filter(|asked| sent < *asked) {
        failing.push(Finding::NotAllSent.with(format!("{sent} of {asked} {} sent", requests_were(asked))));
    }
    if sent > 0 && counts.responses == 0 {
        failing.push(Finding::NothingAnswered.with("there was no response".to_owned()));
    }
    if failures > 0 {
        let requests = if failures == 1 { "request" } else { "requests" };
        failing.push(Finding::RequestsFailed.with(format!("{failures} {requests} failed")));
    }
    if bodies_short > 0 {
        let bodies = if bodies_short == 1 { "body was" } else { "bodies were" };
        failing.push(
            Finding::BodiesShort.with(format!("{bodies_short} {bodies} cut: the connection closed before the end")),
        );
    }
    if has_many_idle_closes(counts) {
        let (found, percent) = (idle_closes(counts), 100.0 * IDLE_CLOSE_SHARE_MAX);
        let text = format!("{found}; more than {percent:.1} % of all requests may mean that the server fails");
        failing.push(Finding::IdleCloses.with(text));
    }
    for (class, count) in (1..).zip(counts.unexpected_classes).filter(|(_, count)| *count > 0) {
        let finding = match class {
            4 => Finding::ClientErrors,
            5 => Finding::ServerErrors,
            _ => Finding::OtherStatuses,
        };
        failing.push(finding.with(format!("{count} {} answered with {class}xx", requests_were(count))));
    }
    if counts.other_statuses > 0 {
        let count = counts.other_statuses;
        let text = format!("{count} {} answered with a status of 600 or more", requests_were(count));
        failing.push(Finding::OtherStatuses.with(text));
    }
    failing
}

/// Returns a failure that a requirement permits, as a note.
pub fn allowed(failing: &Reason) -> Reason {
    Finding::FailuresAllowed.with(format!("{}, which a requirement limits or this kind of run expects", failing.text))
}

/// Returns notes on these counts. `other_cpu_share` is the share of the machine's CPU used by other processes.
pub fn notes(counts: &Counts, other_cpu_share: Option<f64>) -> Vec<Reason> {
    let mut notes = Vec::new();
    if let Some(share) = other_cpu_share.filter(|share| *share > OTHER_CPU_SHARE_MAX) {
        let percent = 100.0 * share;
        let text =
            format!("other processes used {percent:.0} % of the machine during the run; expect the figures to vary");
        notes.push(Finding::OtherWork.with(text));
    }
    let redirects = counts.status_classes[2].saturating_sub(counts.unexpected_classes[2]);
    if redirects > 0 {
        let text =
            format!("{redirects} {} answered with 3xx; the client does not follow redirects", requests_were(redirects));
        notes.push(Finding::Redirects.with(text));
    }
    if counts.sent_again > 0 {
        let requests = plural(counts.sent_again, "request was", "requests were");
        let text = format!("{requests} sent again, because the server stated that it did not process them");
        notes.push(Finding::SentAgain.with(text));
    }
    if counts.sent_again_idle > 0 && !has_many_idle_closes(counts) {
        notes.push(Finding::SentAgain.with(idle_closes(counts)));
    }
    notes.extend(cookies(&counts.cookies));
    match counts.server_closes {
        0 => {}
        1 => {
            let text = "the server closed 1 persistent connection, and the client opened a new one";
            notes.push(Finding::Reconnects.with(text.to_owned()));
        }
        closes => {
            let text = format!("the server closed {closes} persistent connections, and the client opened new ones");
            notes.push(Finding::Reconnects.with(text));
        }
    }
    notes
}

/// Returns the note on cookies, if any response set one.
fn cookies(counts: &CookieCounts) -> Option<Reason> {
    let mut parts = Vec::new();
    if counts.stored > 0 {
        let (clients, cookies) =
            (plural(counts.clients, "client", "clients"), plural(counts.stored, "cookie", "cookies"));
        let requests = plural(counts.requests, "request", "requests");
        parts.push(format!(
            "{clients} stored {cookies} that responses set, and sent cookies with {requests}, including any warm-up"
        ));
    } else if counts.unused > 0 {
        let fields = plural(counts.unused, "Set-Cookie field was", "Set-Cookie fields were");
        parts.push(format!("{fields} not used, because no request of the same client followed"));
    }
    if counts.dropped > 0 {
        let cookies = plural(counts.dropped, "cookie was", "cookies were");
        parts.push(format!("{cookies} dropped: invalid, for another host, Secure without TLS, or too many"));
    }
    (!parts.is_empty()).then(|| Finding::Cookies.with(parts.join("; ")))
}

/// Largest number of statuses and kinds of failures that the note on the warm-up lists.
const WARM_UP_KINDS_MAX: usize = 5;

/// Returns the note on requests that failed in the warm-up, with the most frequent reasons, if there were any.
pub fn warm_up_failed(record: &Recorder) -> Option<Reason> {
    let statuses = record.warm_up_unexpected.iter().map(|(status, count)| (format!("status {status}"), count));
    let kinds = FailureKind::ALL.iter().map(|kind| (kind.name().to_owned(), record.warm_up_failures.0[kind.index()]));
    let mut kinds: Vec<(String, u64)> = statuses.chain(kinds).filter(|(_, count)| *count > 0).collect();
    kinds.sort_by_key(|(_, count)| Reverse(*count));
    let sum = |kinds: &[(String, u64)]| kinds.iter().map(|(_, count)| *count).fold(0, u64::saturating_add);
    let failed = sum(&kinds);
    let others = sum(kinds.get(WARM_UP_KINDS_MAX..).unwrap_or_default());
    kinds.truncate(WARM_UP_KINDS_MAX);
    let mut list: Vec<String> = kinds.iter().map(|(name, count)| format!("{} {name}", show::count(*count))).collect();
    if others > 0 {
        list.push(format!("{} for other reasons", show::count(others)));
    }
    let requests = plural(record.warm_up_samples, "request", "requests");
    let (count, list) = (show::count(failed), list.join(", "));
    let text = format!("{count} of {requests} in the warm-up failed ({list}); no figure includes them");
    (failed > 0).then(|| Finding::WarmUpFailed.with(text))
}

/// Returns the sentence that a run was stopped because the share of failed requests, including the warm-up, exceeded
/// `share_max`. If it was stopped in its warm-up, nothing was measured.
pub fn stopped_early(share: f64, share_max: f64, in_warm_up: bool) -> String {
    let (share, share_max) = (percent(share), percent(share_max));
    let (when, covered) = if in_warm_up {
        ("early, in its warm-up,", "nothing was measured")
    } else {
        ("early,", "the figures cover the part that ran")
    };
    format!(
        "the run was stopped {when} because {share} of the requests had failed, which is more than {share_max} \
         (--stop-when); {covered}, and no later level was run"
    )
}

/// Returns the note that not all streams of a plan could be used, if the server does not permit as many.
/// `in_flight_peak` is the maximum number of requests in flight.
pub fn streams_limited(tally: &Tally, plan: &Plan, in_flight_peak: u64) -> Option<Reason> {
    let permitted = plural(u64::from(tally.streams_max?), "concurrent stream", "concurrent streams");
    let streams = plan.connections_used();
    let usable = u64::from(streams.saturating_sub(tally.slots_unusable));
    // An open loop does not try to use the streams that its load does not need, so not all of the others are usable.
    let used = match in_flight_peak.div_ceil(u64::from(plan.burst.max(1))) {
        peak @ 1.. if plan.is_open() => peak.min(usable),
        _ => usable,
    };
    let text = format!("the server permits {permitted} on a connection, so {used} of {streams} were used");
    Some(Finding::StreamsLimited.with(text))
}

/// Returns the note that the mean size of successful responses differs from that at the first level. Each level is its
/// number, from 0, and the sizes of the bodies in bytes.
pub fn sizes_differ(first: (u16, &Moments), level: (u16, &Moments)) -> Option<Reason> {
    let [first_name, name] = [first.0, level.0].map(|step| format!("level {}", u32::from(step) + 1));
    let text = levels_sized_differently((&first_name, first.1), (&name, level.1))?;
    Some(Finding::SizesDiffer.with(text))
}

fn requests_were(count: u64) -> &'static str {
    if count == 1 { "request was" } else { "requests were" }
}

#[cfg(test)]
mod tests {
    use super::{Finding, failing, notes, stopped_early, streams_limited, warm_up_failed};
    use crate::failure::FailureKind;
    use crate::plan::{ArrivalKind, Arrivals, ExpectedStatuses, Loop, Plan};
    use crate::record::{CookieCounts, Counts, Recorder, RecorderSettings, Sample};
    use crate::schedule::Tally;

    fn names_and_texts(reasons: &[crate::report::Reason]) -> Vec<(&str, &str)> {
        reasons.iter().map(|reason| (reason.name.as_str(), reason.text.as_str())).collect()
    }

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<_> = Finding::ALL.iter().map(|finding| finding.name()).collect();
        assert_eq!(names.len(), Finding::ALL.len());
        assert!(Finding::ALL.iter().all(|finding| !finding.text().is_empty()));
    }

    #[test]
    fn every_reason_to_fail_is_named_once() {
        let mut counts =
            Counts { requests_sent: 5, responses: 3, unexpected_classes: [0, 0, 0, 1, 2], ..Counts::default() };
        counts.failures.0[FailureKind::ShortBody.index()] = 1;
        counts.failures.0[FailureKind::ConnReset.index()] = 1;
        assert_eq!(
            names_and_texts(&failing(&counts, None)),
            [
                ("requests-failed", "1 request failed"),
                ("bodies-short", "1 body was cut: the connection closed before the end"),
                ("status-4xx", "1 request was answered with 4xx"),
                ("status-5xx", "2 requests were answered with 5xx"),
            ]
        );
    }

    #[test]
    fn every_unexpected_status_is_a_failure() {
        for (status, name, text) in [
            (101, "status-other", "1 request was answered with 1xx"),
            (204, "status-other", "1 request was answered with 2xx"),
            (302, "status-other", "1 request was answered with 3xx"),
            (404, "status-4xx", "1 request was answered with 4xx"),
            (503, "status-5xx", "1 request was answered with 5xx"),
            (600, "status-other", "1 request was answered with a status of 600 or more"),
            (999, "status-other", "1 request was answered with a status of 600 or more"),
        ] {
            let mut recorder =
                Recorder::new(RecorderSettings { classes: 1, start_ns: 0, measured_from_ns: 0 }).unwrap();
            recorder.expect(ExpectedStatuses::parse("200").unwrap());
            recorder.record_begun(1, 1, 1);
            recorder.record(&Sample {
                class: 0,
                step: 0,
                intended_ns: 1,
                begun_ns: 1,
                sent_ns: 2,
                first_byte_ns: 3,
                ended_ns: 4,
                resolve_ns: 0,
                connect_ns: 0,
                tls_ns: 0,
                result: Ok(status),
                detail: "",
                head_bytes: 40,
                body_bytes: 0,
                sent_bytes: 40,
                interim_responses: 0,
                is_new_connection: false,
            });
            assert_eq!(names_and_texts(&failing(&recorder.counts, None)), [(name, text)], "{status}");
            assert_eq!((recorder.counts.unexpected(), recorder.counts.successes()), (1, 0), "{status}");
            assert_eq!(recorder.statuses.iter().collect::<Vec<_>>(), [(status, 1)]);
        }
    }

    #[test]
    fn sent_but_never_answered_is_told_apart_from_never_sent() {
        let mut counts = Counts::default();
        assert_eq!(names_and_texts(&failing(&counts, Some(2))), [("nothing-sent", "no request was sent")]);
        counts.requests_sent = 1;
        assert_eq!(
            names_and_texts(&failing(&counts, Some(2))),
            [("not-all-sent", "1 of 2 requests were sent"), ("nothing-answered", "there was no response")]
        );
        counts.responses = 1;
        assert_eq!((failing(&counts, Some(1)), failing(&counts, None)), (vec![], vec![]));
    }

    #[test]
    fn redirects_reconnects_and_crowds_are_notes_not_failures() {
        let mut counts = Counts { requests_sent: 1, responses: 1, server_closes: 1, ..Counts::default() };
        counts.status_classes[2] = 1;
        assert_eq!(failing(&counts, None), vec![]);
        let found = notes(&counts, Some(0.5));
        let names: Vec<_> = found.iter().map(|note| note.name.as_str()).collect();
        assert_eq!(names, ["other-work", "redirects", "reconnects"]);
        assert_eq!(
            found[0].text,
            "other processes used 50 % of the machine during the run; expect the figures to vary"
        );
        assert_eq!(notes(&Counts::default(), Some(0.1)), vec![]);
    }

    #[test]
    fn idle_closes_are_a_note_up_to_a_share_of_the_requests() {
        let of = |idle, responses| {
            let counts = Counts {
                requests_sent: responses,
                responses,
                sent_again: 3,
                sent_again_idle: idle,
                ..Counts::default()
            };
            (failing(&counts, None), notes(&counts, None))
        };
        let unprocessed = "3 requests were sent again, because the server stated that it did not process them";
        let closed = "sent again after an idle close: the server closed an idle connection before a response";
        for (idle, responses, note) in [(1, 5, "1 request was"), (2, 2_000, "2 requests were")] {
            let (failing, notes) = of(idle, responses);
            let note = format!("{note} {closed}");
            assert_eq!(names_and_texts(&notes), [("sent-again", unprocessed), ("sent-again", note.as_str())]);
            assert_eq!(failing, vec![]);
        }
        let (failing, notes) = of(2, 1_999);
        let text = format!("2 requests were {closed}; more than 0.1 % of all requests may mean that the server fails");
        assert_eq!(names_and_texts(&failing), [("idle-closes", text.as_str())]);
        assert_eq!(names_and_texts(&notes), [("sent-again", unprocessed)]);
    }

    #[test]
    fn failures_in_the_warm_up_are_noted_with_their_reasons() {
        let mut record = Recorder::new(RecorderSettings { classes: 1, start_ns: 0, measured_from_ns: 0 }).unwrap();
        record.warm_up_samples = 200;
        assert_eq!(warm_up_failed(&record), None);
        record.warm_up_unexpected = serde_json::from_str(r#"{"503": 168}"#).unwrap();
        record.warm_up_failures.0[FailureKind::ClientTimo.index()] = 2;
        let text = "168 status 503, 2 client-timo); no figure includes them";
        let note = warm_up_failed(&record).unwrap();
        assert_eq!(note.name, "warm-up-failed");
        assert_eq!(note.text, format!("170 of 200 requests in the warm-up failed ({text}"));
        record.warm_up_unexpected =
            serde_json::from_str(r#"{"500": 1, "501": 2, "502": 3, "503": 4, "504": 5}"#).unwrap();
        let text = warm_up_failed(&record).unwrap().text;
        assert!(text.contains("17 of 200 requests") && text.contains("(5 status 504, 4 status 503, "), "{text}");
        assert!(text.contains(", 2 status 501, 2 client-timo, 1 for other reasons)"), "{text}");
    }

    #[test]
    fn a_stop_in_the_warm_up_is_said_to_be_one() {
        assert!(stopped_early(0.5, 0.1, false).contains("stopped early, because 50"));
        let text = stopped_early(0.5, 0.1, true);
        assert!(text.contains("stopped early, in its warm-up, because 50") && text.contains("; nothing was"), "{text}");
    }

    #[test]
    fn the_streams_that_were_used_are_counted() {
        let used = |kind: Loop, slots_unusable, in_flight_peak, burst| {
            let plan = Plan { kind, connections: 100, burst, ..Plan::default() };
            let tally = Tally { slots_unusable, streams_max: Some(10), ..Tally::default() };
            let text = streams_limited(&tally, &plan, in_flight_peak).unwrap().text;
            text.rsplit(", so ").next().unwrap().to_owned()
        };
        let open = || Loop::Open(Arrivals::constant(ArrivalKind::Fixed, 100.0));
        assert_eq!(used(Loop::Closed, 80, 20, 1), "20 of 100 were used");
        // An open loop has tried only some of the streams that cannot be used.
        assert_eq!(used(open(), 40, 20, 1), "20 of 100 were used");
        assert_eq!(used(open(), 80, 25, 1), "20 of 100 were used", "the sum over threads is an upper bound");
        assert_eq!(used(open(), 80, 20, 4), "5 of 100 were used");
        assert_eq!(used(open(), 80, 0, 1), "20 of 100 were used", "nothing was measured");
        assert_eq!(streams_limited(&Tally::default(), &Plan::default(), 9), None);
    }

    #[test]
    fn cookies_are_noted_if_a_response_set_one() {
        let note = |cookies| {
            let notes = notes(&Counts { cookies, ..Counts::default() }, None);
            notes.into_iter().map(|note| format!("{}: {}", note.name, note.text)).collect::<String>()
        };
        assert_eq!(note(CookieCounts::default()), "");
        let sent = CookieCounts { clients: 12, stored: 24, requests: 4_812, unused: 3, dropped: 0 };
        assert_eq!(
            note(sent),
            "cookies: 12 clients stored 24 cookies that responses set, and sent cookies with 4,812 requests, including any \
             warm-up"
        );
        let text = note(CookieCounts { clients: 1, stored: 1, requests: 1, unused: 0, dropped: 2 });
        assert!(
            text.starts_with("cookies: 1 client stored 1 cookie that responses set, and sent cookies with 1 request")
        );
        assert!(text.ends_with("; 2 cookies were dropped: invalid, for another host, Secure without TLS, or too many"));
        let text = note(CookieCounts { unused: 5, ..CookieCounts::default() });
        assert_eq!(text, "cookies: 5 Set-Cookie fields were not used, because no request of the same client followed");
        let text = note(CookieCounts { unused: 1, dropped: 2, ..CookieCounts::default() });
        let expected =
            "cookies: 1 Set-Cookie field was not used, because no request of the same client followed; 2 cookies";
        assert!(text.starts_with(expected), "{text}");
        assert!(
            note(CookieCounts { dropped: 1, ..CookieCounts::default() }).starts_with("cookies: 1 cookie was dropped")
        );
    }
}
