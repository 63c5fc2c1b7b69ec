//! Parses the tables of requests in tests/vectors. The format is explained at the top of bad-requests.txt.

use flatout_handler::ending::CloseReason;
use flatout_http::refusal::Refusal;
use flatout_serve::outcome::FileOutcome;

/// Stands in a table for any outcome of a file that was sent; which one it is depends on the clock.
pub(crate) const SERVED: &str = "served";

/// One request, or several on one connection, and the expected results.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) answers: Vec<Expected>,
    /// Why the server closes the connection. `None` if the connection must stay open.
    pub(crate) closed: Option<CloseReason>,
}

/// One expected response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) status: u16,
    pub(crate) outcome: &'static str,
}

/// Parses all rows of the table `file` from `text`. Errors name the line.
pub(crate) fn parse_table(file: &str, text: &str) -> Result<Vec<Row>, String> {
    let mut rows: Vec<Row> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let parsed = match line {
            _ if line.is_empty() || line.starts_with("# ") || line == "#" || line.starts_with("=== ") => Ok(()),
            _ => match (line.strip_prefix("--- "), rows.last_mut()) {
                (Some(header), _) => parse_header(header).and_then(|row| {
                    let known = rows.iter().any(|other| other.name == row.name);
                    rows.push(row);
                    if known { Err("another row has this name".to_owned()) } else { Ok(()) }
                }),
                (None, Some(row)) => append_unescaped(line, &mut row.bytes),
                (None, None) => Err("bytes before the first row".to_owned()),
            },
        };
        parsed.map_err(|error| format!("{file}:{}: {error}: {line:?}", index + 1))?;
    }
    Ok(rows)
}

/// `name: STATUS OUTCOME, STATUS OUTCOME*COUNT, ENDING`.
fn parse_header(header: &str) -> Result<Row, String> {
    let (name, rest) = header.split_once(": ").ok_or("no colon behind the name")?;
    let mut parts: Vec<&str> = rest.split(", ").collect();
    let closed = match parts.pop() {
        Some("open") => None,
        Some(ending) => {
            let reason = CloseReason::ALL.iter().find(|reason| reason.name() == ending);
            Some(*reason.ok_or_else(|| format!("`{ending}` is neither `open` nor the reason of a close"))?)
        }
        None => return Err("no ending".to_owned()),
    };
    let mut answers = Vec::new();
    for part in parts {
        let (answer, count) = match part.split_once('*') {
            Some((answer, count)) => (answer, count.parse().map_err(|_| format!("`{count}` is not a count"))?),
            None => (part, 1),
        };
        let answer = parse_expected(answer)?;
        answers.extend(std::iter::repeat_n(answer, count));
    }
    Ok(Row { name: name.to_owned(), bytes: Vec::new(), answers, closed })
}

fn parse_expected(text: &str) -> Result<Expected, String> {
    let (status, outcome) = text.split_once(' ').ok_or_else(|| format!("`{text}` is not a status and an outcome"))?;
    let status = status.parse().map_err(|_| format!("`{status}` is not a status"))?;
    if let Some(refusal) = Refusal::ALL.iter().find(|refusal| refusal.name() == outcome) {
        return if refusal.status() == status {
            Ok(Expected { status, outcome: refusal.name() })
        } else {
            Err(format!("the status of {outcome} is {}", refusal.status()))
        };
    }
    let outcome = FileOutcome::NAMES.iter().chain(&[SERVED]).find(|name| **name == outcome);
    Ok(Expected { status, outcome: outcome.ok_or_else(|| format!("`{text}` has no known outcome"))? })
}

/// Appends the bytes that `text` stands for.
fn append_unescaped(text: &str, bytes: &mut Vec<u8>) -> Result<(), String> {
    match append_until(text.as_bytes(), None, bytes)? {
        [] => Ok(()),
        _ => Err("something is left over".to_owned()),
    }
}

/// Appends the bytes that `rest` stands for, up to but not including `end`, and returns what follows `end`.
fn append_until<'a>(mut rest: &'a [u8], end: Option<u8>, bytes: &mut Vec<u8>) -> Result<&'a [u8], String> {
    loop {
        rest = match rest {
            [] if end.is_some() => return Err("a repetition has no end".to_owned()),
            [] => return Ok(rest),
            [byte, tail @ ..] if Some(*byte) == end => return Ok(tail),
            [b'\\', b'{', tail @ ..] => append_repeated(tail, bytes)?,
            [b'\\', b'x', high, low, tail @ ..] => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).map_err(|_| "\\x needs two hex digits")?;
                bytes.push(u8::from_str_radix(digits, 16).map_err(|_| "\\x needs two hex digits")?);
                tail
            }
            [b'\\', escaped, tail @ ..] => {
                bytes.push(match escaped {
                    b'r' => b'\r',
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'0' => 0,
                    b'\\' => b'\\',
                    _ => return Err(format!("unknown escape \\{}", char::from(*escaped))),
                });
                tail
            }
            [b'\\'] => return Err("a backslash at the end".to_owned()),
            [byte, tail @ ..] => {
                bytes.push(*byte);
                tail
            }
        };
    }
}

/// `COUNT*TEXT}`.
fn append_repeated<'a>(text: &'a [u8], bytes: &mut Vec<u8>) -> Result<&'a [u8], String> {
    let star = text.iter().position(|&byte| byte == b'*').ok_or("a repetition without a `*`")?;
    let count = std::str::from_utf8(&text[..star]).ok().and_then(|count| count.parse().ok());
    let count: usize = count.ok_or("a repetition without a count")?;
    let mut repeated = Vec::new();
    let rest = append_until(&text[star + 1..], Some(b'}'), &mut repeated)?;
    bytes.extend(repeated.repeat(count));
    Ok(rest)
}

#[test]
fn tables_are_parsed() {
    let text = "# comment\n\n=== Group\n--- a: 200 served*2, 400 bare_lf, refused\nG\\r\\n\\t\\0\\\\\\x7f{}\n\
                \\{2*a\\{3*\\x62}}\n--- b: client_closed\n--- c: 404 not_found, open\nx";
    let rows = parse_table("t", text).unwrap();
    let names: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.answers.len(), row.closed)).collect();
    assert_eq!(
        names,
        [("a", 3, Some(CloseReason::Refused)), ("b", 0, Some(CloseReason::ClientClosed)), ("c", 1, None)]
    );
    assert_eq!(rows[0].bytes, b"G\r\n\t\0\\\x7f{}abbbabbb");
    assert_eq!(rows[0].answers[2], Expected { status: 400, outcome: "bare_lf" });
}

#[test]
fn errors_in_tables_name_their_line() {
    for (text, error) in [
        ("GET", "t:1: bytes before the first row: \"GET\""),
        ("--- a", "t:1: no colon behind the name: \"--- a\""),
        ("--- a: 200", "t:1: `200` is neither `open` nor the reason of a close: \"--- a: 200\""),
        ("--- a: x bare_lf, open", "t:1: `x` is not a status: \"--- a: x bare_lf, open\""),
        ("--- a: 200, open", "t:1: `200` is not a status and an outcome: \"--- a: 200, open\""),
        ("--- a: 404 bare_lf, open", "t:1: the status of bare_lf is 400: \"--- a: 404 bare_lf, open\""),
        ("--- a: 404 none, open", "t:1: `404 none` has no known outcome: \"--- a: 404 none, open\""),
        ("--- a: 404 no_index*x, open", "t:1: `x` is not a count: \"--- a: 404 no_index*x, open\""),
        ("--- a: open\n--- a: open", "t:2: another row has this name: \"--- a: open\""),
        ("--- a: open\n\\q", "t:2: unknown escape \\q: \"\\\\q\""),
        ("--- a: open\n\\", "t:2: a backslash at the end: \"\\\\\""),
        ("--- a: open\n\\x4", "t:2: unknown escape \\x: \"\\\\x4\""),
        ("--- a: open\n\\xzz", "t:2: \\x needs two hex digits: \"\\\\xzz\""),
        ("--- a: open\n\\{3*a", "t:2: a repetition has no end: \"\\\\{3*a\""),
        ("--- a: open\n\\{a*a}", "t:2: a repetition without a count: \"\\\\{a*a}\""),
        ("--- a: open\n\\{3a}", "t:2: a repetition without a `*`: \"\\\\{3a}\""),
    ] {
        assert_eq!(parse_table("t", text).err().as_deref(), Some(error), "{text}");
    }
}
