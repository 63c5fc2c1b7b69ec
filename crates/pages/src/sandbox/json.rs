//! Conversion between JSON (RFC 8259) and Luau values, within limits.
//!
//! A table with the keys 1 to n is an array. A table with string keys is an object, whose names are sorted. An empty
//! table is an array, unless it is marked as an object: by `json.object`, or because it was decoded from an object, is a
//! row of the database, or lists the fields of a request.
//!
//! When JSON is decoded, null becomes `json.null` everywhere, because an absent value in a list or an object would be
//! lost when it is encoded again. An integer that a double cannot represent exactly becomes a string of its digits. A
//! number beyond 2⁵³ is therefore encoded with an exponent, so that it remains a number when it is decoded again.

use super::number::{integer, is_exact};
use super::wait::NativeError;
use flatout_template::escape::json_string;
use mlua::{LightUserData, Lua, LuaString, Table, Value};
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::Write as _;

/// Maximum length of a JSON text, in bytes: its values are processed without interruption.
pub(crate) const TEXT_BYTES_MAX: usize = 256 * 1024;
/// Maximum number of values in a JSON text.
const VALUES_MAX: usize = 20_000;
/// Maximum nesting of arrays and objects.
const DEPTH_MAX: usize = 32;

/// Numbers above this magnitude are not written as integers, because doubles hold only 53 bits.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// The registry name of the metatable that marks empty tables as objects.
const OBJECT_MARK: &str = "flatout.json.object";

/// Registers the metatable that marks objects, and gives `json.null` its name. Must be called once per virtual machine.
pub(crate) fn prepare(lua: &Lua) -> mlua::Result<()> {
    // Without `__metatable`, pages can use `table.clone` and `setmetatable` on marked tables.
    let mark = lua.create_table()?;
    mark.set_readonly(true);
    lua.set_named_registry_value(OBJECT_MARK, mark)?;
    // `json.null` is the only light userdata that pages see.
    let null = lua.create_table()?;
    null.raw_set("__tostring", lua.create_function(|_, _: Value| Ok("null"))?)?;
    null.raw_set("__type", "null")?;
    null.raw_set("__metatable", false)?;
    null.set_readonly(true);
    lua.set_type_metatable::<LightUserData>(Some(null));
    Ok(())
}

/// Returns the metatable that marks objects.
pub(crate) fn object_mark(lua: &Lua) -> mlua::Result<Table> {
    lua.named_registry_value(OBJECT_MARK)
}

/// Marks `table` as an object, which matters if it is empty.
pub(crate) fn mark_object(lua: &Lua, table: &Table) -> mlua::Result<()> {
    table.set_metatable(Some(object_mark(lua)?))
}

/// How strings that are not UTF-8 are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InvalidText {
    /// They are an error, because JSON cannot represent them.
    Refuse,
    /// Invalid sequences become U+FFFD, as everywhere else in a template's output.
    Replace,
}

/// Encodes `value` as JSON that is safe anywhere in HTML: `<`, `>`, `&` and other characters that are special in
/// scripts are escaped.
pub(crate) fn encode(
    lua: &Lua,
    value: &Value,
    out: &mut Vec<u8>,
    invalid_text: InvalidText,
) -> Result<(), NativeError> {
    Encoder { mark: object_mark(lua)?, invalid_text, values: 0, start: out.len() }.value(value, out, 0)
}

struct Encoder {
    mark: Table,
    invalid_text: InvalidText,
    values: usize,
    /// The offset in the buffer at which the JSON text starts.
    start: usize,
}

impl Encoder {
    fn value(&mut self, value: &Value, out: &mut Vec<u8>, depth: usize) -> Result<(), NativeError> {
        self.values += 1;
        if self.values > VALUES_MAX || out.len() - self.start > TEXT_BYTES_MAX {
            return Err("the value is too large for JSON: it may have at most 20000 values and 256 KiB".into());
        }
        match value {
            Value::Nil => out.extend_from_slice(b"null"),
            null if *null == Value::NULL => out.extend_from_slice(b"null"),
            Value::Boolean(true) => out.extend_from_slice(b"true"),
            Value::Boolean(false) => out.extend_from_slice(b"false"),
            Value::Integer(number) if is_exact(*number) => append_display(number, out),
            // Luau's numbers are doubles, so the conversion is exact.
            Value::Integer(number) => append_display(&format_args!("{:e}", *number as f64), out),
            Value::Number(number) if !number.is_finite() => {
                return Err("JSON cannot represent infinity or NaN".into());
            }
            Value::Number(number) if number.abs() > EXACT_MAX => append_display(&format_args!("{number:e}"), out),
            Value::Number(number) if number.fract() == 0.0 => append_display(&(*number as i64), out),
            Value::Number(number) => append_display(number, out),
            Value::String(text) => self.text(text, out)?,
            Value::Table(table) => return self.table(table, out, depth),
            other => return Err(format!("a {} cannot be represented in JSON", type_name(other)).into()),
        }
        Ok(())
    }

    fn text(&self, text: &LuaString, out: &mut Vec<u8>) -> Result<(), NativeError> {
        // The length is checked before escaping, which lengthens the string.
        let bytes = text.as_bytes();
        if bytes.len() > TEXT_BYTES_MAX {
            return Err("a string is too long for JSON: it may be at most 256 KiB".into());
        }
        if self.invalid_text == InvalidText::Refuse && std::str::from_utf8(&bytes).is_err() {
            return Err("JSON strings must be UTF-8: use base64.encode".into());
        }
        json_string(&bytes, out);
        if out.len() - self.start > TEXT_BYTES_MAX {
            return Err("the value is too large for JSON: it may be at most 256 KiB".into());
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, out: &mut Vec<u8>, depth: usize) -> Result<(), NativeError> {
        if depth == DEPTH_MAX {
            return Err(
                "the value is nested too deeply for JSON, or contains itself: it may have at most 32 levels".into()
            );
        }
        let length = table.raw_len();
        if length > 0 {
            return self.array(table, length, out, depth);
        }
        let mut names: Vec<(LuaString, Value)> = Vec::new();
        let room = VALUES_MAX - self.values;
        table.for_each(|key: Value, value: Value| {
            let Value::String(name) = key else { return Err(mixed()) };
            if names.len() == room {
                return Err(mlua::Error::runtime("the value is too large for JSON: it may have at most 20000 values"));
            }
            names.push((name, value));
            Ok(())
        })?;
        if names.is_empty() && table.metatable().is_some_and(|known| known.contains_key("__iter").unwrap_or(false)) {
            return Err(
                "a table with __iter cannot be written as JSON: copy its values into a plain table in a loop".into()
            );
        }
        if names.is_empty() && table.metatable().is_none_or(|metatable| metatable != self.mark) {
            out.extend_from_slice(b"[]");
            return Ok(());
        }
        // Each value has exactly one encoding, because sessions are compared by it.
        names.sort_unstable_by_key(|(name, _)| name.as_bytes());
        out.push(b'{');
        for (index, (name, value)) in names.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            self.text(name, out)?;
            out.push(b':');
            self.value(value, out, depth + 1)?;
        }
        out.push(b'}');
        Ok(())
    }

    fn array(&mut self, table: &Table, length: usize, out: &mut Vec<u8>, depth: usize) -> Result<(), NativeError> {
        if length > VALUES_MAX - self.values {
            return Err("the value is too large for JSON: it may have at most 20000 values".into());
        }
        let mut count = 0;
        table.for_each(|key: Value, _: Value| {
            count += 1;
            if matches!(key, Value::Integer(_)) && count <= length { Ok(()) } else { Err(mixed()) }
        })?;
        out.push(b'[');
        for index in 1..=length {
            if index > 1 {
                out.push(b',');
            }
            self.value(&table.raw_get(index)?, out, depth + 1)?;
        }
        out.push(b']');
        Ok(())
    }
}

/// Appends a number in decimal digits.
pub(crate) fn append_display(value: &impl fmt::Display, out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "{value}");
}

fn mixed() -> mlua::Error {
    mlua::Error::runtime(
        "a table becomes a JSON array if its keys are 1 to n, or an object if all keys are strings: this table is neither",
    )
}

/// Returns the name of a value's type for messages to page authors.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        null if *null == Value::NULL => "null",
        Value::LightUserData(_) | Value::UserData(_) => "userdata",
        other => other.type_name(),
    }
}

/// Decodes a JSON text. An error is a message about the problem and its position.
pub(crate) fn decode(lua: &Lua, text: &[u8]) -> Result<Value, String> {
    if text.len() > TEXT_BYTES_MAX {
        return Err("the string is longer than 256 KiB".to_owned());
    }
    let values = Cell::new(0);
    let numerals = RefCell::new(Numerals { rest: text, passed: 0 });
    let mut reader = serde_json::Deserializer::from_slice(text);
    let seed = Seed { lua, depth: 0, values: &values, numerals: &numerals };
    let value = seed.deserialize(&mut reader).map_err(|error| error.to_string())?;
    reader.end().map_err(|error| error.to_string())?;
    Ok(value)
}

/// Creates Luau values while the JSON text is parsed.
#[derive(Clone, Copy)]
struct Seed<'a> {
    lua: &'a Lua,
    depth: usize,
    values: &'a Cell<usize>,
    numerals: &'a RefCell<Numerals<'a>>,
}

/// The numbers of a JSON text as they are written, in order. serde_json rounds integers of more than 64 bits, and may
/// round other numbers to a double beside the nearest one, so both are read from the text. The text is scanned only if
/// it contains such a number.
struct Numerals<'a> {
    rest: &'a [u8],
    /// How many numbers the parser has visited that are still in `rest`.
    passed: usize,
}

impl<'a> Numerals<'a> {
    /// Returns the number that the parser visits now, and passes it.
    fn current(&mut self) -> Option<&'a [u8]> {
        let passed = std::mem::take(&mut self.passed);
        self.nth(passed)
    }
}

impl<'a> Iterator for Numerals<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let start = self.rest.iter().position(|byte| matches!(byte, b'"' | b'-' | b'0'..=b'9'))?;
            let rest = &self.rest[start..];
            if rest[0] == b'"' {
                let mut end = 1;
                while let Some(byte) = rest.get(end).filter(|byte| **byte != b'"') {
                    end += if *byte == b'\\' { 2 } else { 1 };
                }
                self.rest = rest.get(end + 1..).unwrap_or_default();
                continue;
            }
            let is_part = |byte: &u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
            let (numeral, after) = rest.split_at(rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len()));
            self.rest = after;
            return Some(numeral);
        }
    }
}

impl Seed<'_> {
    fn digits<E: serde::de::Error>(self, digits: impl AsRef<[u8]>) -> Result<Value, E> {
        self.lua.create_string(digits).map(Value::String).map_err(E::custom)
    }

    fn pass(self) {
        self.numerals.borrow_mut().passed += 1;
    }

    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth == DEPTH_MAX {
            return Err(E::custom("nested too deeply"));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }

    fn count<E: serde::de::Error>(self) -> Result<(), E> {
        self.values.set(self.values.get() + 1);
        if self.values.get() > VALUES_MAX { Err(E::custom("more than 20000 values")) } else { Ok(()) }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.count()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Boolean(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        self.pass();
        integer(self.lua, value).map_err(E::custom)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        self.pass();
        match i64::try_from(value) {
            Ok(value) if is_exact(value) => Ok(Value::Number(value as f64)),
            _ => self.digits(value.to_string()),
        }
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let numeral = self.numerals.borrow_mut().current().unwrap_or_default();
        let is_integer = numeral.iter().all(|byte| *byte == b'-' || byte.is_ascii_digit());
        if is_integer && value.abs() >= EXACT_MAX && !numeral.is_empty() {
            return self.digits(numeral);
        }
        let nearest = std::str::from_utf8(numeral).ok().and_then(|numeral| numeral.parse().ok());
        Ok(Value::Number(nearest.unwrap_or(value)))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::NULL)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        self.lua.create_string(text).map(Value::String).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let table = self.lua.create_table().map_err(A::Error::custom)?;
        let mut count = 0_usize;
        while let Some(item) = items.next_element_seed(self.deeper()?)? {
            count += 1;
            table.raw_set(count, item).map_err(A::Error::custom)?;
        }
        Ok(Value::Table(table))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let table = self.lua.create_table().map_err(A::Error::custom)?;
        while let Some(name) = members.next_key::<std::borrow::Cow<'de, str>>()? {
            let value = members.next_value_seed(self.deeper()?)?;
            table.raw_set(&*name, value).map_err(A::Error::custom)?;
        }
        if table.is_empty() {
            mark_object(self.lua, &table).map_err(A::Error::custom)?;
        }
        Ok(Value::Table(table))
    }
}

#[cfg(test)]
mod tests {
    use super::{DEPTH_MAX, InvalidText, TEXT_BYTES_MAX, VALUES_MAX, decode, encode, prepare};
    use mlua::{Lua, Value};
    use proptest::prelude::*;

    fn machine() -> Lua {
        let lua = Lua::new();
        prepare(&lua).unwrap();
        lua.globals().set("null", Value::NULL).unwrap();
        lua
    }

    fn encoded(lua: &Lua, code: &str) -> Result<String, String> {
        let value: Value = lua.load(code).eval().unwrap();
        let mut out = b"x".to_vec();
        encode(lua, &value, &mut out, InvalidText::Refuse).map_err(|fault| fault.to_string())?;
        Ok(String::from_utf8(out.split_off(1)).unwrap())
    }

    #[test]
    fn values_have_their_texts() {
        let lua = machine();
        for (code, text) in [
            ("nil", "null"),
            ("null", "null"),
            ("true", "true"),
            ("1", "1"),
            ("-0.5", "-0.5"),
            ("2^53 - 1", "9007199254740991"),
            ("2^53", "9007199254740992"),
            ("1e20", "1e20"),
            ("-1.5e300", "-1.5e300"),
            ("'a\"\\\\\\n\\0'", "\"a\\\"\\\\\\n\\u0000\""),
            ("'</script><!--&\\u{2028}'", "\"\\u003c/script\\u003e\\u003c!--\\u0026\\u2028\""),
            ("{1, 'a', {b = 2, a = {}}}", "[1,\"a\",{\"a\":[],\"b\":2}]"),
            ("{}", "[]"),
            ("{1, null, 3}", "[1,null,3]"),
        ] {
            assert_eq!(encoded(&lua, code).as_deref(), Ok(text), "{code}");
        }
    }

    #[test]
    fn what_has_no_text() {
        let lua = machine();
        for (code, part) in [
            ("0/0", "NaN"),
            ("1/0", "infinity"),
            ("'\\xff'", "UTF-8"),
            ("print", "function"),
            ("{1, a = 2}", "neither"),
            ("{[2] = 1, [4] = 1, a = 1}", "neither"),
            ("{[true] = 1}", "neither"),
            ("(function() local t = {} t.t = t return t end)()", "contains itself"),
            ("table.create(20001, 1)", "20000"),
            ("string.rep('x', 300000)", "256 KiB"),
            ("string.rep('<', 200000)", "256 KiB"),
            ("table.create(1000, string.rep('x', 1000))", "256 KiB"),
        ] {
            let error = encoded(&lua, code).unwrap_err();
            assert!(error.contains(part), "{code}: {error}");
        }
    }

    #[test]
    fn templates_replace_invalid_text() {
        let lua = machine();
        let value: Value = lua.load("{'a\\xffb'}").eval().unwrap();
        let mut out = Vec::new();
        encode(&lua, &value, &mut out, InvalidText::Replace).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "[\"a\u{fffd}b\"]");
    }

    #[test]
    fn texts_have_their_values() {
        let lua = machine();
        for text in [
            "null",
            "true",
            "1",
            "-0.5",
            "9007199254740992",
            "\"a\\u0000\"",
            "[1,[],{}]",
            "[null,1]",
            "{\"a\":{\"b\":[1,2]}}",
            "{\"a\":null,\"b\":[null,{\"c\":null}]}",
        ] {
            let value = decode(&lua, text.as_bytes()).unwrap();
            let mut out = Vec::new();
            encode(&lua, &value, &mut out, InvalidText::Refuse).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    #[test]
    fn large_integers_keep_their_digits() {
        let lua = machine();
        for (text, expected) in [
            ("9007199254740993", "\"9007199254740993\""),
            ("-9007199254740993", "\"-9007199254740993\""),
            ("18446744073709551615", "\"18446744073709551615\""),
            ("-9223372036854775809", "\"-9223372036854775809\""),
            // The digits are those of the right number, whatever precedes it.
            (
                "[1,-2.5,\"3\\\"4\",1e30,{\"5\":100000000000000000001},0.5,100000000000000000002 ]",
                "[1,-2.5,\"3\\\"4\",1e30,{\"5\":\"100000000000000000001\"},0.5,\"100000000000000000002\"]",
            ),
        ] {
            let value = decode(&lua, text.as_bytes()).unwrap();
            let mut out = Vec::new();
            encode(&lua, &value, &mut out, InvalidText::Refuse).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn large_numbers_remain_numbers() {
        let lua = machine();
        for code in
            ["1e20", "2^60", "-1e300", "2^53", "-2^53", "2^53 + 2", "2^64", "1.7976931348623157e308", "0.1 + 0.2"]
        {
            let value = decode(&lua, encoded(&lua, code).unwrap().as_bytes()).unwrap();
            assert_eq!(value.type_name(), "number", "{code}");
            assert_eq!(value, lua.load(code).eval().unwrap(), "{code}");
        }
    }

    #[test]
    fn what_is_no_text() {
        let lua = machine();
        let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(decode(&lua, deep(DEPTH_MAX).as_bytes()).is_ok());
        let many = format!("[{}1]", "1,".repeat(VALUES_MAX));
        let long = format!("\"{}\"", "x".repeat(TEXT_BYTES_MAX));
        for text in [
            "",
            "{",
            "[1,]",
            "1 2",
            "nul",
            "\"\\ud800\"",
            "\u{feff}1",
            "'a'",
            "NaN",
            "{1:2}",
            &deep(DEPTH_MAX + 1),
            &deep(50_000),
            &many,
            &long,
        ] {
            assert!(decode(&lua, text.as_bytes()).is_err(), "{}", &text[..text.len().min(50)]);
        }
        assert!(decode(&lua, b"\"\xff\"").is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn nothing_that_comes_is_fatal(text in any::<Vec<u8>>()) {
            let _ = decode(&machine(), &text);
        }

        #[test]
        fn a_number_is_a_number(number in any::<f64>()) {
            let lua = machine();
            let mut out = Vec::new();
            encode(&lua, &Value::Number(number), &mut out, InvalidText::Refuse).unwrap();
            prop_assert_eq!(decode(&lua, &out).unwrap(), Value::Number(number));
        }

        #[test]
        fn a_text_is_a_text(text in any::<String>()) {
            let lua = machine();
            let mut out = Vec::new();
            encode(&lua, &Value::String(lua.create_string(&text).unwrap()), &mut out, InvalidText::Refuse).unwrap();
            let out = String::from_utf8(out).unwrap();
            let is_harmless = !out.contains(['<', '>', '&', '\u{2028}']);
            prop_assert!(is_harmless);
            prop_assert_eq!(serde_json::from_str::<String>(&out).unwrap(), text);
        }
    }
}
