//! Parses the conditions after `expect`.

use super::Failure;
use super::script::{Expect, Test, What};
use super::text::{parse_content, parse_duration};

/// Parses the text after `expect`. Errors name `line`.
pub(crate) fn parse_condition(line: usize, text: &str) -> Result<Expect, Failure> {
    let what = parse_what(text).map_err(|why| Failure::at(line, why))?;
    Ok(Expect { line, text: text.to_owned(), what })
}

fn parse_what(text: &str) -> Result<What, String> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let duration = |rest: &str| parse_duration(rest).ok_or_else(|| format!("{rest} is not a time"));
    Ok(match (word, rest) {
        ("status", rest) => What::Status(rest.split(" or ").map(parse_status).collect::<Result<_, _>>()?),
        ("no", "body") => What::Body(Vec::new()),
        ("no", rest) if rest.starts_with("interim ") => What::NoInterim(parse_status(&rest["interim ".len()..])?),
        ("body", rest) if rest.starts_with("contains ") => {
            What::BodyContains(parse_content(&rest["contains ".len()..])?, true)
        }
        ("body", rest) if rest.starts_with("lacks ") => {
            What::BodyContains(parse_content(&rest["lacks ".len()..])?, false)
        }
        ("body", rest) => What::Body(parse_content(rest)?),
        ("interim", rest) => match rest.split_once(' ') {
            Some((status, field)) => What::Interim(parse_status(status)?, Some(parse_field(field)?)),
            None => What::Interim(parse_status(rest)?, None),
        },
        ("trailer", rest) => {
            let (name, test) = parse_field(rest)?;
            What::Trailer(name, test)
        }
        ("cache", rest) => What::Cache(parse_parameters(rest)?),
        ("cut", "") => What::Cut,
        ("closed", "") => What::Closed,
        ("kept", "connection") => What::Kept,
        ("within", rest) => What::Within(duration(rest)?),
        ("not", rest) if rest.starts_with("within ") => What::NotWithin(duration(&rest["within ".len()..])?),
        ("target", rest) => What::Target(rest.to_owned()),
        ("exit", rest) => What::Exit(rest.parse().map_err(|_| "an exit code is a number")?),
        ("output", rest) if rest.starts_with("contains ") => What::Output(rest["contains ".len()..].to_owned(), true),
        ("output", rest) if rest.starts_with("lacks ") => What::Output(rest["lacks ".len()..].to_owned(), false),
        _ => {
            let (name, test) = parse_field(text)?;
            What::Field(name, test)
        }
    })
}

fn parse_status(word: &str) -> Result<u16, String> {
    word.trim().parse().map_err(|_| format!("{word} is not a status"))
}

/// Parses `Name: value`, `Name absent`, `Name <= 3` and the like.
fn parse_field(text: &str) -> Result<(String, Test), String> {
    let end = text.find([':', ' ']).ok_or_else(|| format!("what is to hold for {text}?"))?;
    let (name, rest) = text.split_at(end);
    if !name.starts_with(|c: char| c.is_ascii_uppercase()) {
        return Err(format!("nothing is expected so: {text}"));
    }
    let test = match rest.strip_prefix(':') {
        Some(value) => Test::Equals(value.trim().to_owned()),
        None => parse_test(rest.trim())?,
    };
    Ok((name.to_owned(), test))
}

fn parse_test(text: &str) -> Result<Test, String> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let number = || rest.trim().parse::<i64>().map_err(|_| format!("{rest} is not a number"));
    Ok(match word {
        "absent" => Test::Absent,
        "present" => Test::Present,
        "contains" => Test::Contains(rest.to_owned()),
        "lacks" => Test::Lacks(rest.to_owned()),
        "differs" => Test::Differs(rest.trim_start_matches("from ").to_owned()),
        "<=" => Test::AtMost(number()?),
        ">=" => Test::AtLeast(number()?),
        "once" => Test::Lines(1),
        "twice" => Test::Lines(2),
        _ => return Err(format!("no test is called {word}")),
    })
}

/// Parses `hit`, `fwd=miss|uri-miss`, `stored`, `not stored`, `ttl<=60`, separated by spaces.
fn parse_parameters(text: &str) -> Result<Vec<(String, Test)>, String> {
    let (mut parameters, mut words) = (Vec::new(), text.split_whitespace());
    while let Some(word) = words.next() {
        let parameter = if word == "not" {
            (words.next().ok_or("not what?")?.to_owned(), Test::Absent)
        } else if let Some((name, value)) = word.split_once("<=") {
            (name.to_owned(), Test::AtMost(value.parse().map_err(|_| format!("{value} is not a number"))?))
        } else if let Some((name, value)) = word.split_once(">=") {
            (name.to_owned(), Test::AtLeast(value.parse().map_err(|_| format!("{value} is not a number"))?))
        } else if let Some((name, values)) = word.split_once('=') {
            (name.to_owned(), Test::OneOf(values.split('|').map(str::to_owned).collect()))
        } else {
            (word.to_owned(), Test::Present)
        };
        parameters.push(parameter);
    }
    if parameters.is_empty() { Err("what about the cache?".to_owned()) } else { Ok(parameters) }
}
