//! Conflicting flags, which are reported before anything is sent, together with an alternative.
//!
//! No flag is accepted and then ignored. Conflicts between two flags of one group are declared for clap in
//! [`super::flags`]. Conflicts that depend on values are checked here.

use super::flags::{BenchArgs, LoadArgs, OutputArgs, QuestionArgs, RequestArgs};
use super::plan::parse_url;
use flatout_http::url::Url;
use flatout_lab::resolve::Routes;
use std::path::{Path, PathBuf};

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

/// A check of the command line: true if it has the mistake, and the message.
type Rule = (bool, String);

fn is_sweep(levels: Option<&str>) -> bool {
    levels.is_some_and(|levels| levels.contains(".."))
}

/// Returns whether the rate changes within a level.
fn has_steps(load: &LoadArgs) -> bool {
    load.arrivals.as_deref().is_some_and(|arrivals| arrivals.contains("steps:"))
}

/// Returns whether the clock determines when requests are due.
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
        (load.precision.is_some(), format!("{name} sets the duration of each level itself: remove --precision")),
        (is_sweep(load.connections.as_deref()), format!("{name} works with a single number of connections: use -c N")),
        (
            knee && rate.is_some_and(|rate| rate.contains(':')),
            "--find-knee itself chooses the rates within a range: use --rate A..B without a step".to_owned(),
        ),
        (
            overload && is_sweep(rate),
            "--overload itself chooses rates around the peak: use --rate PEAK".to_owned(),
        ),
        (versus && is_sweep(rate), "--compare works at a single rate: use --rate N".to_owned()),
        (
            finds_rates && replays,
            format!("a replay follows the times in its log, but {name} sets the rate: list the log's URLs in a file and use --urls"),
        ),
        (
            versus && (replays || has_steps(load)),
            "--compare alternates between the URLs, so a replay or steps would restart at each change: use a single --rate, or none".to_owned(),
        ),
        (
            versus && (question.server_log.is_some() || question.server_metrics.is_some()),
            "--compare measures two servers, but a log or metrics belong to one: to compare counts, run a separate bench for each server".to_owned(),
        ),
        (
            load.stop_when.is_some(),
            format!("{name} decides itself when to stop, and may need failed requests: remove --stop-when"),
        ),
        (
            load.ramp.is_some(),
            format!("{name} changes the load several times, and would raise it slowly each time: remove --ramp"),
        ),
        (question.limit, format!("--limit cannot be combined with {name}: run a separate bench for each")),
    ]
}

fn of_visits(load: &LoadArgs, request: &RequestArgs, question: &QuestionArgs) -> Vec<Rule> {
    let (calls, close, length) = (load.calls.is_some(), load.close, load.session_length.is_some());
    let per = load.arrival_unit.as_deref();
    let is_session = per == Some("session") || per.is_none() && length;
    let connects = is_session || per == Some("connection") || calls || close;
    let asks_once = !is_session && load.calls.unwrap_or(1) == 1;
    let is_open = is_open(load, request, question);
    let has_streams = matches!(&*request.http, "2" | "3");
    let rule = |is_broken: bool, text: &str| (is_broken, text.to_owned());
    vec![
        rule(calls && per == Some("request"), "--calls is only for --arrival-unit connection"),
        rule(
            close && per == Some("request"),
            "--close is shorthand for --arrival-unit connection and conflicts with --arrival-unit request",
        ),
        rule(
            length && matches!(per, Some("request" | "connection")),
            "--session-length is only for --arrival-unit session; to set the requests per connection, use --calls",
        ),
        rule(
            calls && is_session,
            "--calls is only for --arrival-unit connection; to set the requests per session, use --session-length",
        ),
        rule(
            close && is_session,
            "--close is shorthand for --arrival-unit connection; each session already has its own connection",
        ),
        rule(
            close && calls,
            "--close means one request per connection, and --calls multiple requests: use only one of the two",
        ),
        rule(
            load.think_time.is_some() && is_open && asks_once,
            "--think-time is between the requests of a connection or session, but each has only one: add --calls or \
             --arrival-unit session, or remove --think-time",
        ),
        rule(
            has_streams && request.streams > 1 && connects,
            "streams share a connection, so --streams conflicts with --close, --calls, --session-length and --arrival-unit: \
             remove --streams or the others",
        ),
        rule(!has_streams && request.streams > 1, "--streams needs HTTP/2 or HTTP/3: use --http 2 or --http 3"),
        rule(
            load.ramp.is_some() && has_steps(load),
            "steps specify the rate from the start: instead of --ramp, begin with a step such as 0..100@10s",
        ),
        rule(
            load.precision.is_some() && has_steps(load),
            "--precision needs a steady mean, but with steps the mean changes: use a single --rate, or --duration",
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
            "--precision needs a steady mean, but in a replay the mean changes: to replay a part, use --duration or --requests",
        ),
        rule(is_sweep(load.connections.as_deref()), "a replay works with a single number of connections: use -c N"),
        rule(request.streams > 1, "a replay uses separate connections for each client in the log: remove --streams"),
        rule(
            is_session || several,
            "a replay sends each request in its log once: remove --calls, --burst and --session-length",
        ),
    ]
}

/// Returns whether the user specifies the cookies of every request.
pub(super) fn specifies_cookies(request: &RequestArgs) -> bool {
    request.header.iter().any(|field| field.is_named("cookie"))
}

fn of_requests(request: &RequestArgs, question: &QuestionArgs, url: &Url) -> Vec<Rule> {
    let is_secure = url.secure || question.compare.as_deref().is_some_and(|other| other.starts_with("https:"));
    let of_tls = [
        (request.insecure, "--insecure"),
        (request.sni.is_some(), "--sni"),
        (request.cacert.is_some(), "--cacert"),
        (request.tls_resume, "--tls-resume"),
        (request.no_tls_resume, "--no-tls-resume"),
    ];
    let mut rules: Vec<Rule> = of_tls
        .into_iter()
        .map(|(is_given, name)| {
            (is_given && !is_secure, format!("{name} needs TLS, but {url} does not use it: use https://"))
        })
        .collect();
    let routes = Routes { resolved: request.resolve.clone(), redirected: request.connect_to.clone() };
    let other = question.compare.as_deref().and_then(|other| parse_url(other, request.fill).ok());
    let metrics = question.server_metrics.as_deref().and_then(|metrics| Url::parse(metrics).ok());
    let urls: Vec<&Url> = std::iter::once(url).chain(&other).chain(&metrics).collect();
    // Requests would go to another server than the one that the route names.
    rules.extend(routes.first_unused(&urls).map(|(flag, route)| {
        let port = url.port;
        (true, format!("{flag} {route} does not apply to {url}: write its host and its port, which is {port}"))
    }));
    let is_http3 = request.http == "3";
    rules.push((
        is_http3 && !url.secure,
        format!("HTTP/3 needs TLS, but {url} does not use it: use https://, or --http 2"),
    ));
    rules.push((
        is_http3 && request.unix_socket.is_some(),
        "HTTP/3 needs UDP, but --unix-socket connects to a Unix socket: use --http 2".to_owned(),
    ));
    rules.push((
        is_http3 && question.compare.as_deref().is_some_and(|other| !other.starts_with("https:")),
        "HTTP/3 needs TLS, but the --compare URL does not use it: use https://, or --http 2".to_owned(),
    ));
    rules.push((
        request.no_cookies && specifies_cookies(request),
        "a Cookie header replaces the cookies that responses set: remove it, or --no-cookies".to_owned(),
    ));
    rules.push((
        request.insecure && request.cacert.is_some(),
        "--insecure accepts any certificate, but --cacert restricts the authorities: use only one of the two"
            .to_owned(),
    ));
    rules.push((
        request.verify_digest.is_some() && request.method.as_deref() == Some("HEAD"),
        "a response to HEAD has no content, so --verify-digest has nothing to check".to_owned(),
    ));
    rules.push((
        request.verify_digest.is_some() && request.fill,
        "--verify-digest compares responses to the same request, but --fill makes each request different: remove one of \
         the two"
            .to_owned(),
    ));
    rules
}

fn of_agents(args: &BenchArgs) -> Vec<Rule> {
    let has_agents = args.agents.agents.is_some();
    let is_stdin = |path: &Option<PathBuf>| path.as_deref() == Some(Path::new("-"));
    let RequestArgs { body, urls, filelist, .. } = &args.request;
    vec![
        (
            has_agents && args.load.precision.is_some(),
            "with --precision, each agent would stop at a different time: use --duration".to_owned(),
        ),
        (
            has_agents && is_stdin(body),
            "--body - reads standard input, but the agents send the requests: use a file on each agent".to_owned(),
        ),
        (
            is_stdin(body) && args.output.bundle.is_some(),
            "--body - reads standard input, which --bundle cannot store: use a file".to_owned(),
        ),
        (
            is_stdin(body) && (is_stdin(urls) || is_stdin(filelist)),
            "--body - and the list would both be read from standard input: use a file for one of them".to_owned(),
        ),
    ]
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
        // A device accepts several outputs, one after the other.
        let is_twice = other.filter(|_| !name.starts_with("/dev/"));
        rules.extend(
            is_twice.map(|(other, _)| (true, format!("{other} and {flag} both write to {name}: use separate files"))),
        );
        let is_hidden = *name == "-" && output.view.is_some();
        rules.push((
            is_hidden,
            format!("{flag} - and --view would both write to standard output: remove --view, or specify a file"),
        ));
    }
    rules
}

#[cfg(test)]
mod tests;
