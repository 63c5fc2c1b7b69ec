//! `kv`: in-memory values that all workers share.

use super::Api;
use super::policy::parse_seconds;
use crate::sandbox::Sandbox;
use crate::sandbox::json::type_name;
use crate::sandbox::number::{EXACT_MAX, integer};
use crate::sandbox::wait::NativeError;
use flatout_data::{KvError, KvValue};
use flatout_os::clock::Now;
use mlua::{Lua, LuaString, Value};
use std::rc::Rc;

pub(super) fn install(sandbox: &Sandbox, api: &Rc<Api>) -> mlua::Result<()> {
    let kv = sandbox.lua().create_table()?;
    let store = Rc::clone(api);
    let made = sandbox.function(move |lua, _, key: LuaString| {
        let value = store.settings.kv.get(&key.as_bytes(), now_ms());
        value.map_or(Ok(Value::Nil), |value| shown(lua, &value))
    })?;
    kv.raw_set("get", made)?;
    let store = Rc::clone(api);
    let made = sandbox.function(move |_, _, (key, value, ttl): (LuaString, Value, Option<Value>)| {
        let value = kept(&value)?;
        store.settings.kv.set(&key.as_bytes(), value, ttl_ms(ttl.as_ref())?, now_ms()).map_err(told)
    })?;
    kv.raw_set("set", made)?;
    let store = Rc::clone(api);
    let made = sandbox.function(move |_, _, (key, value, ttl): (LuaString, Value, Option<Value>)| {
        let value = kept(&value)?;
        store.settings.kv.add(&key.as_bytes(), value, ttl_ms(ttl.as_ref())?, now_ms()).map_err(told)
    })?;
    kv.raw_set("add", made)?;
    let store = Rc::clone(api);
    let made = sandbox.function(move |lua, _, (key, by, ttl): (LuaString, Option<f64>, Option<Value>)| {
        let by = by.unwrap_or(1.0);
        if by.fract() != 0.0 || by.abs() > EXACT_MAX as f64 {
            return Err("kv.incr can add only whole numbers".into());
        }
        let sum = store.settings.kv.incr(&key.as_bytes(), by as i64, ttl_ms(ttl.as_ref())?, now_ms()).map_err(told)?;
        shown(lua, &KvValue::Integer(sum))
    })?;
    kv.raw_set("incr", made)?;
    let store = Rc::clone(api);
    let made = sandbox.function(move |_, _, key: LuaString| Ok(store.settings.kv.delete(&key.as_bytes(), now_ms())))?;
    kv.raw_set("delete", made)?;
    sandbox.global("kv", kv)
}

fn now_ms() -> u64 {
    Now::read().monotonic_ms
}

/// Parses a lifetime: a number of seconds, or a string such as `"5m"`. Returns milliseconds.
fn ttl_ms(ttl: Option<&Value>) -> Result<Option<u64>, NativeError> {
    let seconds = match ttl {
        None | Some(Value::Nil) => return Ok(None),
        Some(Value::Integer(number)) => u64::try_from(*number).ok().map(|seconds| seconds.saturating_mul(1000)),
        Some(Value::Number(number)) if *number > 0.0 => Some((number * 1000.0) as u64),
        Some(Value::String(text)) => {
            text.to_str().ok().and_then(|text| parse_seconds(&text)).map(|seconds| seconds * 1000)
        }
        Some(_) => None,
    };
    match seconds {
        Some(milliseconds) if milliseconds > 0 => Ok(Some(milliseconds)),
        _ => Err(
            "a time to live must be a number of seconds above 0, or a string such as \"60s\", \"5m\", \"2h\" or \"1d\""
                .into(),
        ),
    }
}

fn kept(value: &Value) -> Result<KvValue, NativeError> {
    match value {
        Value::String(text) => Ok(KvValue::Bytes(text.as_bytes()[..].into())),
        Value::Boolean(value) => Ok(KvValue::Boolean(*value)),
        Value::Integer(number) if number.abs() < EXACT_MAX => Ok(KvValue::Integer(*number)),
        Value::Integer(number) => Ok(KvValue::Real(*number as f64)),
        Value::Number(number) => Ok(KvValue::Real(*number)),
        Value::Buffer(buffer) => Ok(KvValue::Bytes(buffer.to_vec().into())),
        other => {
            Err(format!("kv can store strings, numbers and booleans, but not a {}: use json.encode", type_name(other))
                .into())
        }
    }
}

fn shown(lua: &Lua, value: &KvValue) -> Result<Value, NativeError> {
    Ok(match value {
        KvValue::Bytes(bytes) => Value::String(lua.create_string(bytes)?),
        KvValue::Integer(number) => integer(lua, *number)?,
        KvValue::Real(number) => Value::Number(*number),
        KvValue::Boolean(value) => Value::Boolean(*value),
    })
}

fn told(error: KvError) -> NativeError {
    match error {
        KvError::Key => "the key is empty or too long".into(),
        KvError::Value => "the value is too large for kv".into(),
        KvError::NotInteger => "kv.incr can increment only whole numbers, and this key has another value".into(),
        KvError::Overflow => "the sum is too large".into(),
    }
}
