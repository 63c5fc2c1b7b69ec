//! `html`, `url`, `json`, `hex` and `base64`: conversions of strings.

use crate::sandbox::Sandbox;
use crate::sandbox::json::{self, InvalidText};
use crate::sandbox::wait::NativeError;
use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE};
use flatout_http::base64;
use flatout_http::percent::{decode, encode, is_unreserved};
use flatout_template::escape;
use mlua::{LuaString, Table, Value};
use std::fmt::Write as _;

/// Maximum length of a string converted in one call, in bytes: the conversion blocks the worker.
pub(super) const INPUT_BYTES_MAX: usize = 256 * 1024;

type Convert = fn(&[u8]) -> Option<Vec<u8>>;

const CONVERSIONS: [(&str, &str, Convert); 9] = [
    ("html", "escape", |bytes| Some(escaped(bytes, escape::attribute))),
    ("url", "encode", |bytes| Some(encode(bytes, is_unreserved).into_bytes())),
    ("url", "decode", |bytes| Some(decode(bytes).collect())),
    ("hex", "encode", |bytes| Some(HEXLOWER.encode(bytes).into_bytes())),
    ("hex", "decode", |bytes| HEXLOWER_PERMISSIVE.decode(bytes).ok()),
    ("base64", "encode", |bytes| Some(BASE64.encode(bytes).into_bytes())),
    ("base64", "decode", |bytes| base64::decode(bytes, &BASE64_NOPAD)),
    ("base64", "url_encode", |bytes| Some(BASE64URL_NOPAD.encode(bytes).into_bytes())),
    ("base64", "url_decode", |bytes| base64::decode(bytes, &BASE64URL_NOPAD)),
];

fn escaped(bytes: &[u8], escape: fn(&[u8], &mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 8);
    escape(bytes, &mut out);
    out
}

/// Rejects strings whose conversion would take too long.
pub(super) fn check_length(text: &LuaString) -> Result<(), NativeError> {
    if text.as_bytes().len() > INPUT_BYTES_MAX {
        return Err("the string is longer than 256 KiB, the limit for one call".into());
    }
    Ok(())
}

pub(super) fn install(sandbox: &Sandbox) -> mlua::Result<()> {
    let lua = sandbox.lua();
    let mut tables: Vec<(&str, Table)> = Vec::new();
    for (table_name, name, convert) in CONVERSIONS {
        let made = sandbox.function(move |lua, _, text: LuaString| {
            check_length(&text)?;
            // Invalid input yields nil instead of an error, because it often comes from clients.
            convert(&text.as_bytes()).map(|made| lua.create_string(made)).transpose().map_err(NativeError::from)
        })?;
        let known = tables.iter().find(|(known, _)| *known == table_name).map(|(_, table)| table.clone());
        let table = if let Some(table) = known {
            table
        } else {
            let table = lua.create_table()?;
            tables.push((table_name, table.clone()));
            table
        };
        table.raw_set(name, made)?;
    }
    for (name, table) in tables {
        if name == "url" {
            table
                .raw_set("query", sandbox.function(|lua, _, fields: Table| Ok(lua.create_string(query(&fields)?)?))?)?;
        }
        sandbox.global(name, table)?;
    }

    let table = lua.create_table()?;
    let made = sandbox.function(|lua, _, value: Value| {
        let mut out = Vec::new();
        json::encode(lua, &value, &mut out, InvalidText::Refuse)?;
        Ok(lua.create_string(out)?)
    })?;
    table.raw_set("encode", made)?;
    // Invalid input yields nil and the reason instead of an error, because it often comes from clients.
    let made = sandbox.function(|lua, _, text: LuaString| Ok(json::decode(lua, &text.as_bytes())))?;
    table.raw_set("decode", made)?;
    let made = sandbox.function(|lua, _, table: Option<Table>| {
        let table = match table {
            Some(table) => table,
            None => lua.create_table()?,
        };
        json::mark_object(lua, &table)?;
        Ok(table)
    })?;
    table.raw_set("object", made)?;
    table.raw_set("null", Value::NULL)?;
    sandbox.global("json", table)
}

/// Encodes names and values as the query of a URL, sorted by name.
fn query(fields: &Table) -> Result<String, NativeError> {
    let mut pairs = Vec::new();
    fields.for_each(|name: LuaString, value: Value| {
        if pairs.len() == super::form::FIELDS_MAX {
            return Err(mlua::Error::runtime("a query may have at most 1,024 fields"));
        }
        let text = match value {
            Value::Boolean(value) => value.to_string().into_bytes(),
            Value::Integer(value) => value.to_string().into_bytes(),
            Value::Number(value) if value.is_finite() => value.to_string().into_bytes(),
            Value::Number(_) => return Err(mlua::Error::runtime("a number in a query must not be NaN or infinity")),
            Value::String(value) => {
                check_length(&value).map_err(|fault| mlua::Error::runtime(fault.to_string()))?;
                value.as_bytes().to_vec()
            }
            _ => return Err(mlua::Error::runtime("the values of a query must be strings, numbers or booleans")),
        };
        pairs.push((name.as_bytes().to_vec(), text));
        Ok(())
    })?;
    pairs.sort_unstable();
    let mut out = String::new();
    for (name, value) in pairs {
        let separator = if out.is_empty() { "" } else { "&" };
        let [name, value] = [name, value].map(|text| encode(&text, is_unreserved));
        // Writing to a String cannot fail.
        let _ = write!(out, "{separator}{name}={value}");
    }
    Ok(out)
}
