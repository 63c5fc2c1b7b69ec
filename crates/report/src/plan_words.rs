//! Descriptions of plans in words.

use flatout_load::plan::{ArrivalKind, CookieUse, Dist, ExpectedStatuses, Loop, Plan, Stop, Visit, WarmUp};
use flatout_units::show;

/// Describes a plan in one line.
pub fn of(plan: &Plan) -> String {
    let mut parts = vec![kind(plan), visit(plan)];
    if plan.burst > 1 {
        parts.push(format!("{} requests pipelined", plan.burst));
    }
    if plan.think_ns != Dist::Fixed(0.0) {
        parts.push(format!("think time {}", dist(&plan.think_ns, show::duration)));
    }
    if plan.expected != ExpectedStatuses::default() {
        parts.push(format!("statuses {} expected", plan.expected));
    }
    match plan.cookies {
        CookieUse::Stored => {}
        CookieUse::Specified => parts.push("one Cookie field for all requests".to_owned()),
        CookieUse::Off => parts.push("cookies of responses not sent".to_owned()),
    }
    if plan.ramp_ns > 0 {
        parts.push(format!("{} of ramp", show::duration(plan.ramp_ns as f64)));
    }
    parts.push(match plan.warm_up {
        WarmUp::None => "no warm-up".to_owned(),
        WarmUp::For { duration_ns } => format!("{} of warm-up", show::duration(duration_ns as f64)),
        WarmUp::Steady { duration_ns_max } => {
            format!("warm-up until steady, at most {}", show::duration(duration_ns_max as f64))
        }
    });
    parts.push(match plan.stop {
        Stop::After { duration_ns } => format!("for {}", show::duration(duration_ns as f64)),
        Stop::Count(_) => {
            let (count, what) = plan.counted().unwrap_or_default();
            format!("until {} {what} have started", show::count(count))
        }
        Stop::Tight { share, duration_ns_max } => format!(
            "until the mean is known to ± {}, at most {}",
            show::percent(share),
            show::duration(duration_ns_max as f64)
        ),
    });
    parts.join(", ")
}

fn kind(plan: &Plan) -> String {
    let connections = show::plural(u64::from(plan.connections), "connection", "connections");
    let Loop::Open(arrivals) = &plan.kind else { return format!("closed loop of {connections}") };
    let what = plan.visits();
    if arrivals.replay.is_some() {
        return format!(
            "open loop, {what} at the times of a log, a separate session for each of its clients, at most {connections}"
        );
    }
    let gaps = match arrivals.kind {
        ArrivalKind::Fixed => "equal gaps".to_owned(),
        ArrivalKind::Exp => "exponential gaps".to_owned(),
        ArrivalKind::Uniform { spread } => format!("gaps uniform within ± {}", show::percent(spread)),
    };
    let rate = match &arrivals.levels[..] {
        [level] if level.from_per_s.total_cmp(&level.to_per_s).is_eq() => show::figure(level.from_per_s),
        levels => levels
            .iter()
            .map(|level| {
                let (from, to) = (show::figure(level.from_per_s), show::figure(level.to_per_s));
                let rate = if from == to { from } else { format!("{from} to {to}") };
                if level.duration_ns == u64::MAX {
                    rate
                } else {
                    format!("{rate} for {}", show::duration(level.duration_ns as f64))
                }
            })
            .collect::<Vec<_>>()
            .join(", then "),
    };
    format!("open loop, {rate} {what}/s, {gaps}, at most {connections}")
}

fn visit(plan: &Plan) -> String {
    match &plan.visit {
        Visit::Request => "persistent connections".to_owned(),
        Visit::Connection { calls: 1 } => "one request per connection".to_owned(),
        Visit::Connection { calls } => format!("{calls} calls per connection"),
        Visit::Session { length } => format!("{} calls per session", dist(length, |value| format!("{value}"))),
    }
}

fn dist(dist_of: &Dist, show: impl Fn(f64) -> String + Copy) -> String {
    match dist_of {
        Dist::Fixed(value) => show(*value),
        Dist::Exp(mean) => format!("exponential, mean {}", show(*mean)),
        Dist::Uniform { from, to } => format!("{} to {}", show(*from), show(*to)),
        Dist::Mix(parts) => {
            let parts: Vec<String> =
                parts.iter().map(|(weight, part)| format!("{weight} parts {}", dist(part, show))).collect();
            parts.join(" and ")
        }
    }
}
