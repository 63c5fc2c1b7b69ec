//! Compares what was received with what was expected.

use super::script::{Expect, Test, What};
use super::wire::Message;
use std::time::Duration;

/// The observations that conditions are checked against.
pub(crate) struct Seen<'a> {
    pub(crate) message: &'a Message,
    /// From the first byte of the request to the last byte of the response.
    pub(crate) took: Duration,
    /// True if the other side has closed the connection.
    pub(crate) closed: bool,
    /// True if the connection carried other requests before.
    pub(crate) kept: bool,
}

/// Checks one condition. The error describes what was observed instead.
pub(crate) fn judge(expect: &Expect, seen: &Seen<'_>) -> Result<(), String> {
    let message = seen.message;
    match &expect.what {
        What::Status(statuses) => {
            let status = message.head.status();
            hold(statuses.contains(&status), || format!("the status is {status}"))
        }
        What::Body(bytes) => hold(message.body == *bytes, || format!("the content is {}", show(&message.body))),
        What::BodyContains(bytes, wanted) => {
            let there = message.body.windows(bytes.len()).any(|window| window == bytes);
            hold(there == *wanted, || format!("the content is {}", show(&message.body)))
        }
        What::Field(name, test) => judge_values(name, test, &message.head.values(name)),
        What::Trailer(name, test) => {
            let values = message.trailers.iter().filter(|(field, _)| field.eq_ignore_ascii_case(name));
            judge_values(name, test, &values.map(|(_, value)| value.as_str()).collect::<Vec<_>>())
        }
        What::Interim(status, field) => {
            let mut matching = message.interims.iter().filter(|interim| interim.status() == *status).peekable();
            hold(matching.peek().is_some(), || format!("no {status} came before"))?;
            let Some((name, test)) = field else { return Ok(()) };
            let verdicts: Vec<_> = matching.map(|head| judge_values(name, test, &head.values(name))).collect();
            if verdicts.iter().any(Result::is_ok) { Ok(()) } else { verdicts.into_iter().next().unwrap_or(Ok(())) }
        }
        What::NoInterim(status) => {
            let came = message.interims.iter().any(|interim| interim.status() == *status);
            hold(!came, || format!("a {status} came before"))
        }
        What::Cache(parameters) => judge_cache(parameters, &message.head.values("Cache-Status")),
        What::Cut => hold(!message.complete, || "the message is whole".to_owned()),
        What::Closed => hold(seen.closed, || "the connection is still open".to_owned()),
        What::Kept => hold(seen.kept, || "it came over a new connection".to_owned()),
        What::Within(limit) => hold(seen.took <= *limit, || format!("it took {:?}", seen.took)),
        What::NotWithin(limit) => hold(seen.took > *limit, || format!("it took {:?}", seen.took)),
        What::Target(target) => {
            let there = message.head.start.split(' ').nth(1).unwrap_or("");
            hold(there == target, || format!("the target is {there}"))
        }
        What::Exit(_) | What::Output(..) => Err("this can only be expected of a command".to_owned()),
    }
}

fn hold(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

fn judge_values(name: &str, test: &Test, values: &[&str]) -> Result<(), String> {
    let joined = values.join(", ");
    if let Test::Lines(count) = test {
        return hold(values.len() == *count, || format!("{name} comes {} times", values.len()));
    }
    judge_value(name, test, (!values.is_empty()).then_some(joined.as_str()))
}

fn judge_value(name: &str, test: &Test, value: Option<&str>) -> Result<(), String> {
    let number = || value.and_then(|value| value.trim().parse::<i64>().ok());
    let holds = match test {
        Test::Absent => value.is_none(),
        Test::Present => value.is_some(),
        Test::Equals(wanted) => value == Some(wanted),
        Test::OneOf(wanted) => value.is_some_and(|value| wanted.iter().any(|wanted| wanted == value)),
        Test::Differs(from) => value.is_some_and(|value| value != from),
        Test::Contains(part) => value.is_some_and(|value| value.contains(part.as_str())),
        Test::Lacks(part) => !value.is_some_and(|value| value.contains(part.as_str())),
        Test::AtMost(limit) => number().is_some_and(|number| number <= *limit),
        Test::AtLeast(limit) => number().is_some_and(|number| number >= *limit),
        Test::Lines(_) => false,
    };
    hold(holds, || match value {
        Some(value) => format!("{name} is {value}"),
        None => format!("there is no {name}"),
    })
}

/// RFC 9211 §2: the last member is the cache closest to the client.
fn judge_cache(tests: &[(String, Test)], values: &[&str]) -> Result<(), String> {
    let joined = values.join(", ");
    let members = split_outside_quotes(&joined, ',');
    let member = members.last().map_or("", |member| member.trim());
    let parameters: Vec<(String, String)> = split_outside_quotes(member, ';')
        .into_iter()
        .map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, "?1"));
            (name.trim().to_owned(), value.trim().trim_matches('"').to_owned())
        })
        .collect();
    let name = parameters.first().map_or("", |(name, _)| name.as_str());
    hold(name == "flatout", || format!("the last member of Cache-Status is not flatout's: {joined}"))?;
    for (name, test) in tests {
        let value = parameters.iter().skip(1).find(|(parameter, _)| parameter == name).map(|(_, value)| value.as_str());
        judge_value(name, test, value).map_err(|why| format!("{why} in Cache-Status: {joined}"))?;
    }
    Ok(())
}

fn split_outside_quotes(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut start, mut quoted) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        if c == '"' {
            quoted = !quoted;
        } else if c == separator && !quoted {
            parts.push(&text[start..at]);
            start = at + c.len_utf8();
        }
    }
    parts.push(&text[start..]);
    parts
}

/// Bytes in readable form, shortened if necessary.
pub(crate) fn show(bytes: &[u8]) -> String {
    const SHOWN_BYTES: usize = 200;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES)]);
    if bytes.len() > SHOWN_BYTES { format!("{} bytes: {text:?}…", bytes.len()) } else { format!("{text:?}") }
}
