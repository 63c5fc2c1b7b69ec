//! Turns flags into the specification of a bench.

use super::flags::{BenchArgs, LoadArgs, QuestionArgs, RequestArgs};
use super::sense;
use flatout_http::url::Url;
use flatout_lab::bench::question::OverloadPlan;
use flatout_lab::bench::{BenchRequests, BenchSpec, CounterSource, Speech};
use flatout_lab::cores::cores_allowed;
use flatout_lab::request::{HttpVersion, RequestField, is_method};
use flatout_lab::resolve::Routes;
use flatout_lab::workload::{read_content, read_filelist, read_sound_log, read_urls};
use flatout_load::judge::Threshold;
use flatout_load::plan::{Arrivals, CookieUse, Dist, Loop, Plan, Stop, Sweep, Visit, WarmUp};
use flatout_load::stats::knee::KneePlan;
use flatout_load::template::{Template, ValueSource};
use flatout_load::workload::{self, Replay, Workload};
use flatout_os::socket::is_local;
use flatout_units::quantity::{self, NANOSECOND, QuantityError, split_unit};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Default duration of a level.
const DURATION_DEFAULT: Duration = Duration::from_secs(10);

/// Longest warm-up that waits for a steady state.
const STEADY_WAIT_MAX: Duration = Duration::from_mins(2);

/// Default limit of a run that waits for a precise estimate.
const TIGHT_WAIT_MAX: Duration = Duration::from_mins(5);

/// Default number of requests per session. Chosen arbitrarily.
const SESSION_LENGTH_DEFAULT: &str = "5";

/// Default maximum number of connections for a replay. A guess: half of 20,000 descriptors.
const REPLAY_CONNECTIONS_MAX: u32 = 10_000;

/// Maximum number of levels in a run, over all rates and connections. The record of each level is held until the end.
const LEVELS_MAX: usize = 1_000;

/// Everything that a command line specifies.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) ask: BenchSpec,
    pub(super) counter_source: Option<CounterSource>,
    pub(super) question: BenchGoal,
    pub(super) thresholds: Vec<Threshold>,
}

/// The question that a run answers.
#[derive(Debug)]
pub(super) enum BenchGoal {
    /// The performance of the server at each level.
    Levels,
    /// The highest rate that meets all requirements.
    Knee(Vec<Threshold>, KneePlan),
    /// The throughput that remains beyond the peak.
    Overload(OverloadPlan),
    /// The faster of two servers.
    Versus(Box<BenchSpec>),
}

/// Returns what is wrong with a command line, without accessing the network or files.
pub(super) fn check(args: &BenchArgs) -> Result<(), String> {
    let url = parse_url(&args.url, args.request.fill)?;
    sense::check(args, &url)?;
    let BenchArgs { load, request, question, .. } = args;
    method(request.method.as_deref())?;
    request.verify_digest.as_deref().map_or(Ok(0.0), parse_share).map_err(of_flag("--verify-digest"))?;
    if request.fill {
        let values = request.header.iter().map(RequestField::value).chain(request.body_text.as_deref());
        values.map(|value| Template::parse(value.as_bytes())).collect::<Result<Vec<_>, _>>().map_err(text)?;
    }
    for requirement in &question.require {
        Threshold::parse(requirement).map_err(of_flag("--require"))?;
    }
    question.find_knee.as_deref().map(knee_requirements).transpose().map_err(of_flag("--find-knee"))?;
    if question.find_knee.is_some() {
        load.rate.as_deref().map(parse_bounds).transpose().map_err(of_flag("--rate"))?;
    } else if question.overload {
        load.rate.as_deref().map(Sweep::parse).transpose().map_err(of_flag("--rate"))?;
    }
    if let Some(url) = &question.compare {
        parse_url(url, request.fill)?;
    }
    // The times of a replay are in its log, which is a file.
    if request.replay.is_some() {
        return Ok(());
    }
    let work = match &request.workload {
        Some(name) => BenchRequests::Chosen(Arc::new(workload::parse_named(name)?)),
        None => BenchRequests::one(&url.target).ok_or_else(|| "the workload has no requests".to_owned())?,
    };
    plans(load, request, &work, question).map(|_| ())
}

/// Turns a command line into everything that a run needs.
pub(super) fn plan(args: BenchArgs) -> Result<Run, String> {
    let url = parse_url(&args.url, args.request.fill)?;
    sense::check(&args, &url)?;
    let BenchArgs { load, request, question, agents, .. } = args;
    let routes = Routes { resolved: request.resolve.clone(), redirected: request.connect_to.clone() };
    let cores = cores_allowed().len() as u32;
    let unix_socket = request.unix_socket.as_deref();
    let is_here = match unix_socket {
        Some(path) => check_unix_socket(path, agents.share.is_some()).map(|()| true)?,
        None => routes.resolve(&url).map_err(text)?.iter().any(|address| is_local(address.ip())),
    };
    // A server on the same machine also needs cores.
    let threads = if is_here { (cores / 2).max(1) } else { cores };
    let threads = load.threads.unwrap_or(threads);
    // The controller must not make an agent send files from the agent's machine.
    let has_agents = agents.agents.is_some() || agents.share.is_some();
    if agents.share.is_some() && request.body.as_deref() == Some(Path::new("-")) {
        return Err("an agent has no standard input to send".to_owned());
    }
    let work = read_work(&request, &url, !has_agents)?;
    let plans = plans(&load, &request, &work, &question)?;
    let ask = BenchSpec {
        work,
        plans,
        threads,
        request_timeout_ns: nanoseconds(load.timeout).max(1),
        method: method(request.method.as_deref())?,
        content: content(&request)?,
        fields: request.header.clone(),
        fill: request.fill,
        speech: speech(&request),
        routes,
        unix_socket: unix_socket.map(Arc::from),
        server_name: request.sni.clone(),
        sources: load.source_addresses,
        stop_when: load.stop_when,
        digest_share: request
            .verify_digest
            .as_deref()
            .map_or(Ok(0.0), parse_share)
            .map_err(of_flag("--verify-digest"))?,
        with_limit: question.limit,
        overload: question.overload,
        share: agents.share.unwrap_or((0, 1)),
        begin_at_ns: agents.begin_at,
        url,
    };
    let thresholds = question.require.iter().map(|text| Threshold::parse(text));
    let thresholds = thresholds.collect::<Result<Vec<_>, _>>().map_err(of_flag("--require"))?;
    let counter_source = match (&question.server_log, &question.server_metrics) {
        (Some(log), _) => Some(CounterSource::Log(log.clone())),
        (None, Some(url)) => Some(CounterSource::Metrics(Url::parse(url).map_err(text)?, ask.routes.clone())),
        (None, None) => None,
    };
    let question = read_question(&question, &load, &ask)?;
    Ok(Run { ask, counter_source, question, thresholds })
}

/// Parses the URL of a server. With `fill`, its path and query may have placeholders.
pub(super) fn parse_url(text: &str, fill: bool) -> Result<Url, String> {
    if !fill {
        return Url::parse(text).map_err(self::text);
    }
    // Braces are invalid in a URL, except in placeholders.
    let mut example = Vec::new();
    let template = Template::parse(text.as_bytes()).map_err(self::text)?;
    template.fill(&mut ValueSource::default().of_head(0), &mut example);
    Url::parse(&String::from_utf8_lossy(&example)).map_err(self::text)?;
    Url::parse_lenient(text).map_err(self::text)
}

/// Maximum length of the path of a Unix socket in bytes, which the kernel stores with a final zero (unix(7)).
const UNIX_PATH_BYTES_MAX: usize = 107;

/// Checks that the path of a Unix socket can be used.
fn check_unix_socket(path: &Path, is_agent: bool) -> Result<(), String> {
    let shown = path.display();
    if is_agent {
        // The controller must not reach services of the agent's machine that only local users may reach.
        return Err("an agent does not connect to Unix sockets".to_owned());
    }
    let bytes = path.as_os_str().len();
    if bytes > UNIX_PATH_BYTES_MAX {
        return Err(format!(
            "the path of the Unix socket has {bytes} bytes, but at most {UNIX_PATH_BYTES_MAX} are possible: use a \
             shorter path, such as a relative one or a symbolic link"
        ));
    }
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => Ok(()),
        Ok(_) => Err(format!("{shown} is not a Unix socket; specify the socket at which the server listens")),
        Err(error) => Err(format!("cannot use the Unix socket {shown}: {error}; is the server running?")),
    }
}

/// The limit of errors in a search, unless its condition has one.
const KNEE_ERRORS: &str = "errors<=1%";

/// Parses the condition of a search: requirements separated by commas. Adds a limit of errors if there is none, because
/// a server that refuses requests can be fast.
fn knee_requirements(condition: &str) -> Result<Vec<Threshold>, String> {
    let mut requirements = condition.split(',').map(Threshold::parse).collect::<Result<Vec<_>, _>>().map_err(text)?;
    if !requirements.iter().any(Threshold::bounds_errors) {
        requirements.push(Threshold::parse(KNEE_ERRORS).map_err(text)?);
    }
    Ok(requirements)
}

fn read_question(asked: &QuestionArgs, load: &LoadArgs, ask: &BenchSpec) -> Result<BenchGoal, String> {
    if let Some(requirement) = &asked.find_knee {
        let requirements = knee_requirements(requirement).map_err(of_flag("--find-knee"))?;
        let mut plan = KneePlan::DEFAULT;
        if let Some((low, high)) = load.rate.as_deref().map(parse_bounds).transpose().map_err(of_flag("--rate"))? {
            (plan.rate_min, plan.rate_max) = (low, high);
        }
        if let Some(duration) = load.duration {
            plan.long_ns = nanoseconds(duration);
            plan.short_ns = (plan.long_ns / 5).max(1);
        }
        return Ok(BenchGoal::Knee(requirements, plan));
    }
    if asked.overload {
        let rate = load.rate.as_deref().map(Sweep::parse).transpose().map_err(of_flag("--rate"))?;
        let rate = rate.map(|rate| rate.from);
        let level_ns = nanoseconds(load.duration.unwrap_or(DURATION_DEFAULT));
        return Ok(BenchGoal::Overload(OverloadPlan {
            peak_per_s: rate,
            level_ns,
            in_time_ns: nanoseconds(asked.deadline),
        }));
    }
    if let Some(url) = &asked.compare {
        let url = parse_url(url, ask.fill)?;
        if ask.unix_socket.is_none() {
            ask.routes.resolve(&url).map_err(text)?;
        }
        let work = match &ask.work {
            // If A is a single URL, B requests the other URL. If A is a list, B requests the same list.
            BenchRequests::Chosen(workload) if workload.entries.len() == 1 => {
                BenchRequests::one(&url.target).ok_or("the URL has no target to request")?
            }
            work => work.clone(),
        };
        return Ok(BenchGoal::Versus(Box::new(BenchSpec { url, work, ..ask.clone() })));
    }
    Ok(BenchGoal::Levels)
}

/// Parses a range `A..B`. `A` alone stands for both ends.
fn parse_bounds(text: &str) -> Result<(f64, f64), String> {
    let (low, high) = text.split_once("..").unwrap_or((text, text));
    let number = |text: &str| Sweep::parse(text).map(|sweep| sweep.from).map_err(self::text);
    let (low, high) = (number(low)?, number(high)?);
    if low > 0.0 && high >= low {
        Ok((low, high))
    } else {
        Err(format!("{text:?} is not a range of rates; write it as 100..2000"))
    }
}

fn plans(
    load: &LoadArgs,
    request: &RequestArgs,
    work: &BenchRequests,
    question: &QuestionArgs,
) -> Result<Vec<Plan>, String> {
    let streams = if matches!(request.http.as_str(), "2" | "3") { request.streams } else { 1 };
    let is_open = sense::is_open(load, request, question);
    let base = Plan {
        kind: Loop::Closed,
        visit: visit(load, work)?,
        burst: load.burst.unwrap_or(1),
        think_ns: load
            .think_time
            .as_deref()
            .map_or(Ok(Dist::Fixed(0.0)), Dist::parse_time)
            .map_err(of_flag("--think-time"))?,
        ramp_ns: load.ramp.map_or(0, nanoseconds),
        warm_up: warm_up(load.warm_up.as_deref()).map_err(of_flag("--warm-up"))?,
        stop: stop(load, is_open)?,
        drain_ns: nanoseconds(load.timeout),
        timeout_ns: nanoseconds(load.timeout),
        expected: request.expect_status.clone(),
        cookies: cookies(request),
        seed: load.seed,
        ..Plan::default()
    };
    let connections = match (&load.connections, is_open, &base.visit) {
        (Some(connections), _, _) => connections.as_str(),
        (None, false, _) => "64",
        (None, true, Visit::Request) => "256",
        (None, true, _) => "1000",
    };
    let connections = Sweep::parse(connections).map_err(of_flag("--connections"))?;
    if let BenchRequests::Replayed(replay) = work {
        let lines = replay.lines();
        let stop = match load.requests {
            Some(_) => base.stop,
            // Replay the whole log, unless a flag limits the replay.
            None => match load.duration {
                Some(_) => base.stop,
                None => Stop::Count(lines.len() as u64),
            },
        };
        let connections = match load.connections {
            Some(_) => connections_of(connections.from, streams)?,
            // Leave room for all clients that are active at once, even if every response is late.
            None => lines.sessions_at_once(base.drain_ns).clamp(connections.from as u32, REPLAY_CONNECTIONS_MAX),
        };
        let plan = Plan { kind: Loop::Open(Arrivals::replay(Arc::new(lines))), connections, stop, ..base };
        plan.check().map_err(text)?;
        return Ok(vec![plan]);
    }
    let rates = match (&load.rate, &load.arrivals) {
        (None, None) => None,
        // A search, and an overload test, find their rates themselves.
        (Some(_), _) if question.find_knee.is_some() || question.overload => None,
        (None, Some(arrivals)) if question.find_knee.is_some() || question.overload => {
            // Only the regularity of the arrivals matters here. They are parsed again when the rates are known.
            Arrivals::parse(arrivals, Some(1.0)).map_err(of_flag("--arrivals"))?;
            None
        }
        (Some(rate), arrivals) => {
            let sweep = Sweep::parse(rate).map_err(of_flag("--rate"))?;
            let kind = arrivals.as_deref().unwrap_or("fixed");
            let levels = sweep.levels().into_iter().map(|rate| Arrivals::parse(kind, Some(rate)));
            Some(levels.collect::<Result<Vec<_>, _>>().map_err(of_flag("--arrivals"))?)
        }
        (None, Some(arrivals)) => Some(vec![Arrivals::parse(arrivals, None).map_err(of_flag("--arrivals"))?]),
    };
    let levels = connections.levels().len() * rates.as_ref().map_or(1, Vec::len);
    if levels > LEVELS_MAX {
        return Err(format!(
            "--rate and --connections specify {levels} combinations, more than the limit of {LEVELS_MAX}"
        ));
    }
    let mut plans = Vec::new();
    for connections in connections.levels() {
        let connections = connections_of(connections, streams)?;
        let base = Plan { connections, ..base.clone() };
        match &rates {
            Some(rates) => {
                plans.extend(rates.iter().map(|arrivals| Plan {
                    stop: stop_of_steps(load, arrivals).unwrap_or(base.stop),
                    kind: Loop::Open(arrivals.clone()),
                    ..base.clone()
                }));
            }
            None if question.find_knee.is_some() || question.overload => {
                let kind = load.arrivals.as_deref().unwrap_or("fixed");
                let arrivals = Arrivals::parse(kind, Some(1.0)).map_err(of_flag("--arrivals"))?;
                plans.push(Plan { kind: Loop::Open(arrivals), ..base });
            }
            None => plans.push(base),
        }
    }
    for plan in &plans {
        plan.check().map_err(text)?;
    }
    Ok(plans)
}

/// Returns the number of slots for this number of connections with this number of streams each.
fn connections_of(level: f64, streams: u32) -> Result<u32, String> {
    let slots = level.round() * f64::from(streams);
    if (0.0..=f64::from(u32::MAX)).contains(&slots) {
        Ok(slots as u32)
    } else {
        Err(format!("{slots} connections are too many"))
    }
}

fn visit(load: &LoadArgs, work: &BenchRequests) -> Result<Visit, String> {
    let calls = load.calls.unwrap_or(1);
    match load.arrival_unit.as_deref() {
        Some("session") => session(load, work),
        Some("connection") => Ok(Visit::Connection { calls }),
        None if load.session_length.is_some() => session(load, work),
        None if load.close || load.calls.is_some() => Ok(Visit::Connection { calls }),
        Some(_) | None => Ok(Visit::Request),
    }
}

fn session(load: &LoadArgs, work: &BenchRequests) -> Result<Visit, String> {
    let by_workload = work.workload().session_length.unwrap_or(SESSION_LENGTH_DEFAULT);
    let length = load.session_length.as_deref().unwrap_or(by_workload);
    Ok(Visit::Session { length: Dist::parse_number(length).map_err(of_flag("--session-length"))? })
}

/// Returns a stop condition after the last rate step, unless another flag determines the end of the run.
fn stop_of_steps(load: &LoadArgs, arrivals: &Arrivals) -> Option<Stop> {
    if load.rate.is_some() || load.duration.is_some() || load.requests.is_some() || load.precision.is_some() {
        return None;
    }
    let duration_ns = arrivals.levels.iter().map(|level| level.duration_ns).fold(0, u64::saturating_add);
    Some(Stop::After { duration_ns })
}

fn stop(load: &LoadArgs, is_open: bool) -> Result<Stop, String> {
    if let Some(percent) = &load.precision {
        let share = parse_percent(percent).map_err(of_flag("--precision"))?;
        let duration_ns_max = nanoseconds(load.duration.unwrap_or(TIGHT_WAIT_MAX));
        return Ok(Stop::Tight { share, duration_ns_max });
    }
    Ok(match load.requests {
        // An open loop counts arrivals, a closed loop counts bursts.
        Some(arrivals) if is_open => Stop::Count(arrivals),
        Some(requests) => {
            let burst = u64::from(load.burst.unwrap_or(1).max(1));
            if requests % burst != 0 {
                return Err(format!("--requests {requests} is not a multiple of --burst {burst}"));
            }
            Stop::Count(requests / burst)
        }
        None => Stop::After { duration_ns: nanoseconds(load.duration.unwrap_or(DURATION_DEFAULT)) },
    })
}

fn warm_up(asked: Option<&str>) -> Result<WarmUp, String> {
    Ok(match asked {
        None | Some("none") => WarmUp::None,
        Some("auto") => WarmUp::Steady { duration_ns_max: nanoseconds(STEADY_WAIT_MAX) },
        Some(time) => WarmUp::For { duration_ns: nanoseconds(parse_duration(time)?) },
    })
}

fn speech(request: &RequestArgs) -> Speech {
    Speech {
        version: match request.http.as_str() {
            "1.0" => HttpVersion::Http10,
            "2" => HttpVersion::Http2 { streams: request.streams },
            "3" => HttpVersion::Http3 { streams: request.streams },
            _ => HttpVersion::Http11,
        },
        resumes: request.tls_resume || !request.no_tls_resume,
        insecure: request.insecure,
        authorities: request.cacert.clone(),
    }
}

fn cookies(request: &RequestArgs) -> CookieUse {
    if sense::specifies_cookies(request) {
        CookieUse::Specified
    } else if request.no_cookies {
        CookieUse::Off
    } else {
        CookieUse::Stored
    }
}

fn method(asked: Option<&str>) -> Result<Option<String>, String> {
    match asked {
        Some("CONNECT") => Err("CONNECT is for proxies; a bench cannot send it".to_owned()),
        Some(name) if !is_method(name) => Err(format!("{name:?} is not a valid method name")),
        method => Ok(method.map(str::to_owned)),
    }
}

fn content(request: &RequestArgs) -> Result<Arc<[u8]>, String> {
    match (&request.body, &request.body_text) {
        (Some(path), _) => read_content(path).map(Arc::from).map_err(text),
        (None, Some(text)) => Ok(text.as_bytes().into()),
        (None, None) => Ok(Arc::from([])),
    }
}

fn read_work(request: &RequestArgs, url: &Url, may_read_files: bool) -> Result<BenchRequests, String> {
    let chosen = |workload: Workload| BenchRequests::Chosen(Arc::new(workload));
    if let Some(path) = &request.urls {
        return read_urls(path, may_read_files).map(chosen).map_err(text);
    }
    if let Some(path) = &request.filelist {
        return read_filelist(path).map(chosen).map_err(text);
    }
    if let Some(name) = &request.workload {
        return workload::parse_named(name).map(chosen);
    }
    if let Some(replay) = &request.replay {
        let (path, speed) = match replay.rsplit_once(",x") {
            Some((path, speed)) => {
                (path, speed.parse::<f64>().map_err(|_| format!("{speed:?} is not a number; write LOG,x10"))?)
            }
            None => (replay.as_str(), 1.0),
        };
        if !(speed.is_finite() && speed > 0.0) {
            return Err("the speed of a replay must be above 0".to_owned());
        }
        let log = read_sound_log(Path::new(path)).map_err(text)?;
        let mut replay = Replay::of(&log, speed).map_err(|faults| format!("{path}: {faults}"))?;
        if !request.verify_sizes {
            replay.forget_sizes();
        }
        return Ok(BenchRequests::Replayed(Arc::new(replay)));
    }
    BenchRequests::one(&url.target).ok_or_else(|| "the workload has no requests".to_owned())
}

/// Parses the condition of `--stop-when`: `errors>5%`. Returns the share, 0 to below 1.
pub(super) fn parse_stop_when(text: &str) -> Result<f64, String> {
    let share = text.strip_prefix("errors>").map(str::trim).and_then(|share| match share {
        "0" | "0%" => Some(0.0),
        share => parse_share(share).ok().filter(|share| *share < 1.0),
    });
    share.ok_or_else(|| format!("{text:?} is not a condition; write it as errors>5%"))
}

/// Parses a share such as `1%` or `0.01`: above 0, at most 1.
fn parse_share(text: &str) -> Result<f64, String> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let share = number.trim().parse::<f64>().map_err(|_| format!("{text:?} is not a share; write 1% or 0.01"))? / scale;
    if share > 0.0 && share <= 1.0 {
        Ok(share)
    } else {
        Err(format!("{text:?} is out of range; use more than 0 and at most 100%"))
    }
}

/// Parses a percentage such as `1` or `1%`, as a share.
fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    number.parse::<f64>().map(|percent| percent / 100.0).map_err(|_| format!("{text:?} is not a percentage"))
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Returns a function that names the flag whose value is invalid before the reason.
fn of_flag<E: std::fmt::Display>(flag: &str) -> impl Fn(E) -> String {
    move |error| format!("{flag}: {error}")
}

/// Parses a duration such as `10s`, `500ms`, `2m` or `1h`. A number without a unit is in seconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let with_unit = if split_unit(text).1.is_empty() { format!("{text}s") } else { text.to_owned() };
    match quantity::parse_duration(&with_unit, NANOSECOND) {
        Ok(0) => Err("a duration must be longer than 0".to_owned()),
        Ok(duration_ns) => Ok(Duration::from_nanos(duration_ns)),
        Err(QuantityError::Range) => Err("the duration is too long, or finer than a nanosecond".to_owned()),
        Err(_) => Err(format!("{text:?} is not a duration; use a number and a unit, such as 500ms or 10s")),
    }
}

#[cfg(test)]
mod tests {
    use super::{parse_bounds, parse_duration, parse_share, parse_stop_when};
    use std::time::Duration;

    #[test]
    fn times_have_units_or_are_seconds() {
        for (text, expected_ms) in [("10s", 10_000), ("500ms", 500), ("2m", 120_000), ("1.5", 1_500), ("1h", 3_600_000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(expected_ms)), "{text}");
        }
        for text in ["", "s", "10x", "-1s", "0", "1e9s", "1..2s", "99999999999999999999999h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_run_stops_at_a_share_of_errors() {
        assert_eq!((parse_stop_when("errors>5%"), parse_stop_when("errors> 0.5")), (Ok(0.05), Ok(0.5)));
        assert_eq!(parse_stop_when("errors>0"), Ok(0.0));
        for text in ["errors", "errors<5%", "errors>=5%", "p99>5ms", "errors>100%", "errors>-1%"] {
            assert!(parse_stop_when(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares_and_bounds_mean_something() {
        assert_eq!((parse_share("1%"), parse_share("0.5"), parse_share("100%")), (Ok(0.01), Ok(0.5), Ok(1.0)));
        for text in ["0", "-1%", "101%", "x", ""] {
            assert!(parse_share(text).is_err(), "{text}");
        }
        assert_eq!(parse_bounds("100..2000"), Ok((100.0, 2000.0)));
        assert_eq!(parse_bounds("500"), Ok((500.0, 500.0)));
        for text in ["5..1", "x", "100..2000:50"] {
            assert!(parse_bounds(text).is_err(), "{text}");
        }
    }
}
