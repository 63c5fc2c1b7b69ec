//! Flags that make no sense together: said before anything is sent, with what to do instead.
//!
//! A flag is never taken and then left aside. What only two flags of one group exclude is said to clap in
//! [`super::flags`]; what needs a look at values is here.

use super::flags::{BenchArgs, LoadArgs, OutputArgs, QuestionArgs, RequestArgs};
use flatout_http::url::Url;

/// Says what is wrong with a command line whose every flag is right by itself.
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
    let (knee, overload, versus) = (question.find_knee.is_some(), question.overload, question.vs.is_some());
    let name = match (knee, overload, versus) {
        (true, ..) => "--find-knee",
        (_, true, _) => "--overload",
        (.., true) => "--vs",
        _ => return Vec::new(),
    };
    let finds_rates = knee || overload;
    let (rate, replays) = (load.rate.as_deref(), request.replay.is_some());
    vec![
        (load.requests.is_some(), format!("{name} goes by time: give --duration in place of --requests")),
        (load.until_tight.is_some(), format!("{name} has a time of its own for each level: leave out --until-tight")),
        (is_sweep(load.connections.as_deref()), format!("{name} holds one number of connections: give -c N")),
        (
            knee && rate.is_some_and(|rate| rate.contains(':')),
            "--find-knee finds its own way between the bounds: give --rate A..B without a step".to_owned(),
        ),
        (
            overload && is_sweep(rate),
            "--overload goes from half of one rate to a multiple of it: give --rate PEAK".to_owned(),
        ),
        (versus && is_sweep(rate), "--vs compares at one rate: give --rate N".to_owned()),
        (
            finds_rates && replays,
            format!("a replay has times of its own, and {name} sets the rate: give the URLs of the log by --urls"),
        ),
        (
            versus && (replays || has_steps(load)),
            "--vs alternates between both URLs, and a replay or steps would restart each time: give one --rate, or none".to_owned(),
        ),
        (
            versus && (question.server_log.is_some() || question.server_metrics.is_some()),
            "--vs is between two servers, and the books are of one: bench each alone for its books".to_owned(),
        ),
        (question.limit, format!("--limit is measured beside a plain run: bench once with it, and once with {name}")),
    ]
}

fn of_visits(load: &LoadArgs, request: &RequestArgs, question: &QuestionArgs) -> Vec<Rule> {
    let (calls, close, length) = (load.calls.is_some(), load.close, load.session_length.is_some());
    let per = load.per.as_deref();
    let is_session = per == Some("session") || per.is_none() && length;
    let connects = is_session || per == Some("connection") || calls || close;
    let asks_once = !is_session && load.calls.unwrap_or(1) == 1;
    let is_open = is_open(load, request, question);
    let rule = |is_broken: bool, text: &str| (is_broken, text.to_owned());
    vec![
        rule(calls && per == Some("request"), "--calls is for --per connection"),
        rule(close && per == Some("request"), "--close is short for --per connection, and not for --per request"),
        rule(
            length && matches!(per, Some("request" | "connection")),
            "--session-length is for --per session; the requests of a connection are its --calls",
        ),
        rule(
            calls && is_session,
            "--calls is for --per connection; the requests of a session are its --session-length",
        ),
        rule(
            close && is_session,
            "--close is short for --per connection; a session has a connection of its own anyway",
        ),
        rule(close && calls, "--close is a request a connection, --calls so many: give one of them"),
        rule(
            load.think.is_some() && is_open && asks_once,
            "--think is between the requests of one visit, and here each has one: give --calls or --per session too, or \
             leave the times to --arrivals",
        ),
        rule(
            request.http == "2" && request.streams > 1 && connects,
            "--streams share a connection, so none can have one of its own: leave out --streams, or --close, --calls, \
             --session-length and --per",
        ),
        rule(request.http != "2" && request.streams > 1, "--streams are of HTTP/2: give --http 2"),
        rule(
            load.until_tight.is_some() && has_steps(load),
            "--until-tight waits for one mean, and with steps there is none: give one --rate, or --duration",
        ),
    ]
}

fn of_replays(load: &LoadArgs, request: &RequestArgs) -> Vec<Rule> {
    if request.replay.is_none() {
        return Vec::new();
    }
    let rule = |is_broken: bool, text: &str| (is_broken, text.to_owned());
    let is_session = load.per.as_deref() == Some("session") || load.session_length.is_some();
    let several = load.calls.is_some_and(|calls| calls > 1) || load.burst.is_some_and(|burst| burst > 1);
    vec![
        rule(
            load.until_tight.is_some(),
            "--until-tight waits for one mean, and a replay has none: give --duration or --requests for a part of it",
        ),
        rule(is_sweep(load.connections.as_deref()), "a replay is one level: give -c N"),
        rule(
            request.streams > 1,
            "a replay has connections of its own for each client of the log, and these are not shared: leave out --streams",
        ),
        rule(
            is_session || several,
            "a replay asks once for each line of its log: leave out --calls, --burst and --session-length",
        ),
    ]
}

fn of_requests(request: &RequestArgs, question: &QuestionArgs, url: &Url) -> Vec<Rule> {
    let is_secure = url.secure || question.vs.as_deref().is_some_and(|other| other.starts_with("https:"));
    let of_tls = [
        (request.insecure, "--insecure"),
        (request.cacert.is_some(), "--cacert"),
        (request.tls_resume, "--tls-resume"),
        (request.no_tls_resume, "--no-tls-resume"),
    ];
    let mut rules: Vec<Rule> = of_tls
        .into_iter()
        .map(|(is_given, name)| (is_given && !is_secure, format!("{name} is of TLS, and {url} is not: give https://")))
        .collect();
    rules.push((
        request.insecure && request.cacert.is_some(),
        "--insecure believes any certificate, --cacert few of them: give one of the two".to_owned(),
    ));
    rules.push((
        request.verify_digest.is_some() && request.method.as_deref() == Some("HEAD"),
        "an answer to HEAD has no content: --verify-digest has nothing to look at".to_owned(),
    ));
    rules
}

fn of_agents(args: &BenchArgs) -> Vec<Rule> {
    let has_agents = args.agents.agents.is_some();
    vec![(
        has_agents && args.load.until_tight.is_some(),
        "each agent would find its own end: give --duration in place of --until-tight".to_owned(),
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
            format!("{flag} - is all that standard output has then: leave out --view, or give a file"),
        ));
    }
    rules
}

#[cfg(test)]
mod tests;
