//! The functions that a template's chunk calls to write output: `__s` for static segments, the others for values.

use super::hub::Hub;
use super::json::{self, InvalidText};
use super::wait::NativeError;
use flatout_template::escape;
use mlua::{Lua, Table, Value};
use std::io::Write as _;
use std::rc::Rc;

/// An escaping function, and the maximum number of output bytes per input byte.
#[derive(Clone, Copy)]
struct Escape(fn(&[u8], &mut Vec<u8>), usize);

/// Functions that write a value as text. In a URL, an invalid UTF-8 byte becomes `%EF%BF%BD`. Elsewhere, the longest
/// escapes are `&#34;` and `\u003c`.
const TEXTS: &[(&str, Escape)] = &[
    ("__w", Escape(escape::text, 5)),
    ("__a", Escape(escape::attribute, 5)),
    ("__u", Escape(escape::url_part, 9)),
    ("__h", Escape(escape::url, 9)),
    ("__q", Escape(escape::script_text, 6)),
    ("__r", Escape(raw, 1)),
];

/// Functions that write a value as JSON: one escaping function for strings, and one for the JSON of all other values.
const VALUES: &[(&str, Escape, Escape)] = &[
    ("__j", Escape(escape::script_string, 6), Escape(escape::script_json, 6)),
    ("__d", Escape(escape::script_string, 6), Escape(escape::script_data, 6)),
    ("__e", Escape(escape::handler_string, 6), Escape(escape::handler_json, 6)),
];

/// Appends the input without escaping it.
fn raw(input: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(input);
}

/// Returns whether `name` is reserved for these functions.
pub(crate) fn is_name(name: &Value) -> bool {
    name.as_string().is_some_and(|name| name.as_bytes().starts_with(b"__"))
}

/// Adds the functions.
pub(crate) fn lay(lua: &Lua, hub: &Rc<Hub>, base: &Table) -> mlua::Result<()> {
    let at = Rc::clone(hub);
    let segment = lua.create_function(move |_, index: u32| {
        at.with(|exchange| {
            exchange.output.segment(index);
            Ok(())
        })?;
        Ok(())
    })?;
    base.set("__s", segment)?;
    for &(name, escape) in TEXTS {
        let at = Rc::clone(hub);
        base.set(name, lua.create_function(move |lua, value: Value| Ok(write_text(lua, &at, &value, escape)?))?)?;
    }
    for &(name, text, json) in VALUES {
        let at = Rc::clone(hub);
        let write = lua.create_function(move |lua, value: Value| Ok(write_json(lua, &at, &value, text, json)?))?;
        base.set(name, write)?;
    }
    Ok(())
}

/// Writes a value as text: strings and numbers as they are, booleans by name, nil and `json.null` as nothing, tables with
/// the result of their `__tostring`.
fn write_text(lua: &Lua, hub: &Hub, value: &Value, escape: Escape) -> Result<(), NativeError> {
    match value {
        Value::String(text) => write(lua, hub, &text.as_bytes(), escape),
        Value::Nil => Ok(()),
        null if *null == Value::NULL => Ok(()),
        Value::Boolean(truth) => write(lua, hub, if *truth { b"true" } else { b"false" }, escape),
        Value::Integer(number) => {
            let mut digits = [0; 24];
            let mut rest = &mut digits[..];
            // 24 bytes are enough for every 64-bit integer.
            let _ = write!(rest, "{number}");
            let length = 24 - rest.len();
            write(lua, hub, &digits[..length], escape)
        }
        Value::Number(_) => match lua.coerce_string(value.clone())? {
            Some(text) => write(lua, hub, &text.as_bytes(), escape),
            None => Ok(()),
        },
        Value::Table(table)
            if table.metatable().is_some_and(|known| known.contains_key("__tostring").unwrap_or(false)) =>
        {
            // This calls a function of the page, so the exchange must not be borrowed yet.
            let text = value.to_string()?;
            write(lua, hub, text.as_bytes(), escape)
        }
        other => Err(NativeError::from(format!("a {} cannot be inserted: convert it to a string", other.type_name()))),
    }
}

fn write(lua: &Lua, hub: &Hub, text: &[u8], Escape(escape, factor): Escape) -> Result<(), NativeError> {
    if text.len() > LONG_BYTES {
        hub.meter.hurry();
        hub.reserve(lua, text.len().saturating_mul(factor))?;
    }
    hub.with(|exchange| {
        exchange.output.write(|out| escape(text, out));
        Ok(())
    })
}

/// Size above which the limits are checked before and after writing, in bytes.
const LONG_BYTES: usize = 16 * 1024;

fn write_json(lua: &Lua, hub: &Hub, value: &Value, text: Escape, json: Escape) -> Result<(), NativeError> {
    if let Value::String(string) = value {
        return write(lua, hub, &string.as_bytes(), text);
    }
    let mut buffer = Vec::new();
    json::encode(lua, value, &mut buffer, InvalidText::Replace)?;
    write(lua, hub, &buffer, json)
}
