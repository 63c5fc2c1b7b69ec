//! Conflicting flags: reported before anything is sent, with an alternative.
//!
//! No flag is accepted and then ignored. Conflicts between two flags of one group are declared for clap in
//! [`super::flags`]; those that depend on values are here.

use super::flags::{BenchArgs, LoadArgs, OutputArgs, QuestionArgs, RequestArgs};
use flatout_http::url::Url;

/// Finds the first conflict in a command line whose flags are valid on their own.
pub(super) fn check(args: &BenchArgs, url: &Url) -> Result<(), String> {
    let BenchArgs { load, request, question, output, .. } = args;
    let rules = [
        of_questions(question, load, request),
        of_visits(load, request, question),
        of_replays(load, request),
        of_requests(request, question, url),
        of_agents(args),
        of_outputs(output),
    ];
    match rules.into_iter().flatten().find(|(is_broken, _)| *is_broken) {
        Some((_, text)) => Err(text),
        None => Ok(()),
    }
}

/// The mistakes to look for, and the message of each.
type Rule = (bool, String);

fn is_sweep(levels: Option<&str>) -> bool {
    levels.is_some_and(|levels| levels.contains(".."))
}

/// Returns true if the rate changes within a level.
fn has_steps(load: &LoadArgs) -> bool {
    load.arrivals.as_deref().is_some_and(|arrivals| arrivals.contains("steps:"))
}

/// Returns true if the clock decides when requests are due.
pub(super) fn is_open(load: &LoadArgs, request: &RequestArgs, question: &QuestionArgs) -> bool {
    let has_times = load.rate.is_some() || load.arrivals.is_some() || request.replay.is_some();
    has_times || question.find_knee.is_some() || question.overload
}

fn of_questions(question: &QuestionArgs, load: &LoadArgs, request: &RequestArgs) -> Vec<Rule> {
    let (knee, overload, versus) = (question.find_knee.is_some(), question.overload, question.compare.is_some());
    let name = match (knee, overload, versus) {
        (true, ..) => "--find-knee",
        (_, true, _) => "--overload",
        (.., true) => "--compare",
        _ => return Vec::new(),
    };
    let finds_rates = knee || overload;
    let (rate, replays) = (load.rate.as_deref(), request.replay.is_some());
    vec![
        (load.requests.is_some(), format!("{name} needs a duration: use --duration instead of --requests")),
        (load.precision.is_some(), format!("{name} sets the duration of each level itself: leave out --precision")),
        (is_sweep(load.connections.as_deref()), format!("{name} needs one number of connections: give -c N")),
        (
            knee && rate.is_some_and(|rate| rate.contains(':')),
            "--find-knee chooses the rates between the bounds: give --rate A..B without a step".to_owned(),
        ),
        (
            overload && is_sweep(rate),
            "--overload chooses the rates around one peak: give --rate PEAK".to_owned(),
        ),
        (versus && is_sweep(rate), "--compare compares at one rate: give --rate N".to_owned()),
        (
            finds_rates && replays,
            format!("a replay follows the times of its log, but {name} sets the rate: give the URLs of the log with --urls"),
        ),
        (
            versus && (replays || has_steps(load)),
            "--compare alternates between both URLs, and a replay or steps would restart each time: give one --rate, or none".to_owned(),
        ),
        (
            versus && (question.server_log.is_some() || question.server_metrics.is_some()),
            "--compare measures two servers, but the log or metrics belong to one: to compare counts, run a bench of each server".to_owned(),
        ),
        (question.limit, format!("--limit needs a plain run: run one bench with --limit and another with {name}")),
    ]
}

fn of_visits(load: &LoadArgs, request: &RequestArgs, question: &QuestionArgs) -> Vec<Rule> {
    let (calls, close, length) = (load.calls.is_some(), load.close, load.session_length.is_some());
    let per = load.arrival_unit.as_deref();
    let is_session = per == Some("session") || per.is_none() && length;
    let connects = is_session || per == Some("connection") || calls || close;
    let asks_once = !is_session && load.calls.unwrap_or(1) == 1;
    let is_open = is_open(load, request, question);
    let rule = |is_broken: bool, text: &str| (is_broken, text.to_owned());
    vec![
        rule(calls && per == Some("request"), "--calls is for --arrival-unit connection"),
        rule(
            close && per == Some("request"),
            "--close is short for --arrival-unit connection and conflicts with --arrival-unit request",
        ),
        rule(
            length && matches!(per, Some("request" | "connection")),
            "--session-length is for --arrival-unit session; for the requests of a connection, use --calls",
        ),
        rule(
            calls && is_session,
            "--calls is for --arrival-unit connection; for the requests of a session, use --session-length",
        ),
        rule(
            close && is_session,
            "--close is short for --arrival-unit connection; each session has its own connection anyway",
        ),
        rule(close && calls, "--close means one request per connection, --calls several: give one of them"),
        rule(
            load.think_time.is_some() && is_open && asks_once,
            "--think-time is between the requests of a connection or session, but each has only one: add --calls or \
             --arrival-unit session, or leave out --think-time",
        ),
        rule(
            request.http == "2" && request.streams > 1 && connects,
            "--streams share a connection, which conflicts with --close, --calls, --session-length and --arrival-unit: leave \
             out --streams or the others",
        ),
        rule(request.http != "2" && request.streams > 1, "--streams needs HTTP/2: give --http 2"),
        rule(
            load.precision.is_some() && has_steps(load),
            "--precision waits for one mean, but with steps the mean changes: give one --rate, or --duration",
        ),
    ]
}

fn of_replays(load: &LoadArgs, request: &RequestArgs) -> Vec<Rule> {
    if request.replay.is_none() {
        return Vec::new();
    }
    let rule = |is_broken: bool, text: &str| (is_broken, text.to_owned());
    let is_session = load.arrival_unit.as_deref() == Some("session") || load.session_length.is_some();
    let several = load.calls.is_some_and(|calls| calls > 1) || load.burst.is_some_and(|burst| burst > 1);
    vec![
        rule(
            load.precision.is_some(),
            "--precision waits for one mean, but in a replay the mean changes: to replay a part, give --duration or --requests",
        ),
        rule(is_sweep(load.connections.as_deref()), "a replay is one level: give -c N"),
        rule(
            request.streams > 1,
            "a replay has connections for each client of the log and does not share them: leave out --streams",
        ),
        rule(
            is_session || several,
            "a replay requests each line of its log once: leave out --calls, --burst and --session-length",
        ),
    ]
}

fn of_requests(request: &RequestArgs, question: &QuestionArgs, url: &Url) -> Vec<Rule> {
    let is_secure = url.secure || question.compare.as_deref().is_some_and(|other| other.starts_with("https:"));
    let of_tls = [
        (request.insecure, "--insecure"),
        (request.cacert.is_some(), "--cacert"),
        (request.tls_resume, "--tls-resume"),
        (request.no_tls_resume, "--no-tls-resume"),
    ];
    let mut rules: Vec<Rule> = of_tls
        .into_iter()
        .map(|(is_given, name)| {
            (is_given && !is_secure, format!("{name} needs TLS, but {url} does not use it: give https://"))
        })
        .collect();
    rules.push((
        request.insecure && request.cacert.is_some(),
        "--insecure accepts any certificate, and --cacert restricts the authorities: give one of the two".to_owned(),
    ));
    rules.push((
        request.verify_digest.is_some() && request.method.as_deref() == Some("HEAD"),
        "a response to HEAD has no content, so --verify-digest has nothing to check".to_owned(),
    ));
    rules
}

fn of_agents(args: &BenchArgs) -> Vec<Rule> {
    let has_agents = args.agents.agents.is_some();
    vec![(
        has_agents && args.load.precision.is_some(),
        "each agent would stop at its own end: use --duration instead of --precision".to_owned(),
    )]
}

fn of_outputs(output: &OutputArgs) -> Vec<Rule> {
    let all = [
        ("--json", &output.json),
        ("--html", &output.html),
        ("--prometheus", &output.prometheus),
        ("--hlog", &output.hlog),
    ];
    let given: Vec<(&str, &str)> = all.iter().filter_map(|(flag, name)| Some((*flag, name.as_deref()?))).collect();
    let mut rules: Vec<Rule> = Vec::new();
    for (index, (flag, name)) in given.iter().enumerate() {
        let other = given[..index].iter().find(|(_, other)| other == name);
        // A device takes whatever comes, one after the other.
        let is_twice = other.filter(|_| !name.starts_with("/dev/"));
        rules.extend(
            is_twice.map(|(other, _)| (true, format!("{other} and {flag} both go to {name}: give each its own"))),
        );
        let is_hidden = *name == "-" && output.view.is_some();
        rules.push((
            is_hidden,
            format!("with {flag} -, standard output contains nothing else: leave out --view, or give a file"),
        ));
    }
    rules
}

#[cfg(test)]
mod tests;
