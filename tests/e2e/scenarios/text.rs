//! The text of a scenario before it is parsed: lines, tables, and names in braces.

use super::Failure;
use std::collections::BTreeMap;
use std::time::Duration;

/// An unindented line and the indented lines below it.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) line: usize,
    pub(crate) text: String,
    pub(crate) lines: Vec<(usize, String)>,
}

/// The blocks of a scenario's text. Lines that start with `#` and empty lines are ignored.
pub(crate) fn blocks(text: &str) -> Result<Vec<Block>, Failure> {
    let mut blocks: Vec<Block> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let (number, words) = (index + 1, line.trim());
        if words.is_empty() || words.starts_with('#') {
            continue;
        }
        if !line.starts_with(' ') {
            blocks.push(Block { line: number, text: words.to_owned(), lines: Vec::new() });
        } else if let Some(block) = blocks.last_mut() {
            block.lines.push((number, words.to_owned()));
        } else {
            return Err(Failure::at(number, "a line that is set in belongs to none before it"));
        }
    }
    Ok(blocks)
}

/// The values of names in braces.
pub(crate) type Names = BTreeMap<String, String>;

/// Removes the table from the blocks, and returns the names and values of each row. Without a table, there is one empty
/// row.
pub(crate) fn take_table(blocks: &mut Vec<Block>) -> Result<Vec<Names>, Failure> {
    let Some(at) = blocks.iter().position(|block| block.text.starts_with("each ")) else {
        return Ok(vec![Names::new()]);
    };
    let table = blocks.remove(at);
    let cells = |text: &str| text.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let columns = cells(table.text.trim_start_matches("each "));
    let mut rows = Vec::new();
    for (line, text) in &table.lines {
        let values = cells(text);
        if values.len() != columns.len() {
            let text = format!("{} columns, but {} values in this row", columns.len(), values.len());
            return Err(Failure::at(*line, text));
        }
        rows.push(columns.iter().cloned().zip(values).collect());
    }
    if rows.is_empty() { Err(Failure::at(table.line, "a table without rows")) } else { Ok(rows) }
}

/// Replaces names in braces. `now_s` is the time for `{now}`, `{now-10s}`, `{now+1h}`.
pub(crate) fn fill_in(blocks: &mut [Block], names: &Names, now_s: i64) -> Result<(), Failure> {
    for block in blocks {
        // A configuration contains braces of its own.
        let lenient = block.text.starts_with("accelerate");
        block.text = fill_in_line(&block.text, block.line, names, now_s, lenient)?;
        for (number, text) in &mut block.lines {
            *text = fill_in_line(text, *number, names, now_s, lenient)?;
        }
    }
    Ok(())
}

fn fill_in_line(text: &str, line: usize, names: &Names, now_s: i64, lenient: bool) -> Result<String, Failure> {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(start) = rest.find('{') {
        let (before, from) = rest.split_at(start);
        out.push_str(before);
        let name = from[1..].split_once('}').map(|(name, _)| name).filter(|name| looks_like_a_name(name));
        let Some(name) = name else {
            out.push('{');
            rest = &from[1..];
            continue;
        };
        if let Some(value) = names.get(name) {
            // A value in a table may itself contain a name.
            out.push_str(&fill_in_line(value, line, &Names::new(), now_s, true)?);
        } else if let Some(date) = parse_time(name, now_s) {
            out.push_str(&date);
        } else if lenient || name == "server" {
            out.push_str(&from[..name.len() + 2]);
        } else {
            return Err(Failure::at(line, format!("nothing is called {{{name}}} here")));
        }
        rest = &from[name.len() + 2..];
    }
    Ok(out + rest)
}

fn looks_like_a_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_+-".contains(c))
}

/// Converts `now`, `now-10s`, `now+1h` to an HTTP date.
fn parse_time(name: &str, now_s: i64) -> Option<String> {
    let rest = name.strip_prefix("now")?;
    let offset_s = match rest.split_at_checked(1) {
        None => 0,
        Some(("+", duration)) => parse_duration(duration)?.as_secs().cast_signed(),
        Some(("-", duration)) => -parse_duration(duration)?.as_secs().cast_signed(),
        Some(_) => return None,
    };
    let date = flatout_http::date::format_date(now_s + offset_s);
    Some(String::from_utf8_lossy(&date).into_owned())
}

/// Parses `250ms`, `10s`, `2m`, `1h`, `7d`.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..digits].parse().ok()?;
    Some(match &text[digits..] {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number * 60),
        "h" => Duration::from_secs(number * 3_600),
        "d" => Duration::from_secs(number * 86_400),
        _ => return None,
    })
}

/// Parses a quoted string with `\r`, `\n`, `\t`, `\"`, `\\` and `\x41`, or `bytes 1000`, or `bytes 1000 from 10 to 19`:
/// generated letters with a long period, or these bytes of them.
pub(crate) fn parse_content(text: &str) -> Result<Vec<u8>, String> {
    if let Some(rest) = text.strip_prefix("bytes ") {
        let words: Vec<&str> = rest.split_whitespace().collect();
        let number = |word: &str| word.parse::<usize>().map_err(|_| format!("{word} is not a number of bytes"));
        let (first, end) = match words.as_slice() {
            [all] => (0, number(all)?),
            [_, "from", first, "to", last] => (number(first)?, number(last)? + 1),
            _ => return Err("it is `bytes N` or `bytes N from FIRST to LAST`".to_owned()),
        };
        return Ok((first..end).map(letter).collect());
    }
    let inside = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let inside = inside.ok_or_else(|| format!("content stands in double quotes, not so: {text}"))?;
    let (mut out, mut bytes) = (Vec::new(), inside.bytes());
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        out.push(match bytes.next() {
            Some(b'r') => b'\r',
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(byte @ (b'"' | b'\\')) => byte,
            Some(b'x') => {
                let digits = [bytes.next().unwrap_or(0), bytes.next().unwrap_or(0)];
                let digits = std::str::from_utf8(&digits).ok().and_then(|text| u8::from_str_radix(text, 16).ok());
                digits.ok_or("two hexadecimal digits stand behind \\x")?
            }
            _ => return Err("behind a backslash stands r, n, t, x, a quote or a backslash".to_owned()),
        });
    }
    Ok(out)
}

/// The letter at this index of the generated text.
fn letter(index: usize) -> u8 {
    let mixed = (index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    b'a' + (mixed % 26) as u8
}
