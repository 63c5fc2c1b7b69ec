//! Encoding of a page's values as JSON (RFC 8259), bounded because it is not interruptible.

use super::wait::Fault;
use crate::template::escape::json_string;
use mlua::{Table, Value};
use std::io::Write as _;

/// Upper bound of nested arrays and objects.
const LEVELS_MAX: usize = 64;

/// Upper bound of values: some milliseconds of work.
const VALUES_MAX: usize = 20_000;

/// Upper bound of the text, in bytes.
const BYTES_MAX: usize = 4 << 20;

/// Appends the JSON of `value`. A table with a first element, or an empty one, is an array if its keys are exactly 1
/// to its length; every other table is an object, whose keys are texts. Metatables are ignored.
pub(crate) fn append_json(value: &Value, out: &mut Vec<u8>) -> Result<(), Fault> {
    let mut left = VALUES_MAX;
    append(value, out, 0, &mut left)
}

fn append(value: &Value, out: &mut Vec<u8>, level: usize, left: &mut usize) -> Result<(), Fault> {
    *left = left.checked_sub(1).ok_or_else(|| Fault::from("too many values for JSON in one piece"))?;
    if out.len() > BYTES_MAX {
        return Err(Fault::from("too long for JSON in one piece"));
    }
    match value {
        Value::Nil => out.extend_from_slice(b"null"),
        Value::Boolean(truth) => out.extend_from_slice(if *truth { b"true" } else { b"false" }),
        Value::Integer(number) => append_display(number, out),
        Value::Number(number) if number.is_finite() => append_display(number, out),
        Value::Number(_) => return Err(Fault::from("JSON has no infinite and no undefined numbers")),
        Value::String(text) => json_string(&text.as_bytes(), out),
        Value::Table(table) => append_table(table, out, level, left)?,
        other => return Err(Fault::from(format!("JSON has no {}", other.type_name()))),
    }
    Ok(())
}

fn append_table(table: &Table, out: &mut Vec<u8>, level: usize, left: &mut usize) -> Result<(), Fault> {
    if level == LEVELS_MAX {
        return Err(Fault::from("nested too deep for JSON"));
    }
    let length = table.raw_len();
    if length > 0 || table.is_empty() {
        out.push(b'[');
        let mut count = 0;
        for element in table.sequence_values::<Value>() {
            if count > 0 {
                out.push(b',');
            }
            append(&element?, out, level + 1, left)?;
            count += 1;
        }
        out.push(b']');
        // `sequence_values` stops at the first gap, and ignores other keys.
        let mut pairs = table.pairs::<Value, Value>();
        let others = (0..=count).find_map(|_| match pairs.next() {
            Some(Ok((Value::Integer(key), _))) if key >= 1 && key as usize <= count => None,
            Some(Ok((Value::Number(key), _))) if key >= 1.0 && key <= count as f64 => None,
            None => None,
            Some(_) => Some(()),
        });
        return match others {
            None => Ok(()),
            Some(()) => Err(Fault::from("a table is neither an array nor an object: its keys are mixed")),
        };
    }
    out.push(b'{');
    let mut first = true;
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let Value::String(key) = key else {
            return Err(Fault::from("keys of JSON objects are texts"));
        };
        if !first {
            out.push(b',');
        }
        first = false;
        json_string(&key.as_bytes(), out);
        out.push(b':');
        append(&value, out, level + 1, left)?;
    }
    out.push(b'}');
    Ok(())
}

/// Numbers, in digits. A vector of bytes takes all that is written.
pub(crate) fn append_display(value: &impl std::fmt::Display, out: &mut Vec<u8>) {
    let _ = write!(out, "{value}");
}
