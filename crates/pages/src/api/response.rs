//! `response` and `cache`: the response and its caching policy.

use super::Api;
use super::cookie::{Cookie, SameSite};
use super::field::{FIELDS_MAX, FieldError, check_field, location};
use super::policy::{self, CachePolicy, TAGS_MAX, is_tag, parse_seconds};
use super::reads;
use super::session;
use crate::exchange::Exchange;
use crate::sandbox::Sandbox;
use crate::sandbox::json::{self, InvalidText};
use crate::sandbox::wait::NativeError;
use mlua::{Lua, LuaString, Table, Value};

/// The fields that `cache` writes.
const POLICY_FIELDS: [&[u8]; 3] = [b"Cache-Control", b"CDN-Cache-Control", b"Surrogate-Key"];

pub(super) fn install(sandbox: &Sandbox) -> mlua::Result<()> {
    let lua = sandbox.lua();
    let response = lua.create_table()?;
    let made = sandbox.function(|_, exchange, (name, value): (LuaString, Option<Value>)| {
        check_open(exchange)?;
        let name = name.as_bytes();
        match value {
            None | Some(Value::Nil) => exchange.draft.remove_field(&name),
            Some(value) => {
                exchange.draft.remove_field(&name);
                add_field(exchange, &name, &field_value(&value)?)?;
            }
        }
        Ok(())
    })?;
    response.raw_set("header", made)?;
    let made = sandbox.function(|_, exchange, (name, value): (LuaString, Value)| {
        check_open(exchange)?;
        add_field(exchange, &name.as_bytes(), &field_value(&value)?)
    })?;
    response.raw_set("add_header", made)?;
    let made = sandbox.ending(|_, exchange, (target, status): (LuaString, Option<f64>)| {
        check_open(exchange)?;
        let status = status.unwrap_or(303.0);
        if ![301.0, 302.0, 303.0, 307.0, 308.0].contains(&status) {
            return Err("the status of a redirect must be 301, 302, 303, 307 or 308".into());
        }
        let target = location(&target.as_bytes()).ok_or(
            "the target of a redirect must be a path or URL without spaces or line breaks: use url.encode for untrusted values",
        )?;
        exchange.draft.status = status as u16;
        exchange.draft.set_field(b"Location", &target);
        exchange.output.clear();
        Ok(())
    })?;
    response.raw_set("redirect", made)?;
    let made = sandbox.function(|_, exchange, (name, value, options): (LuaString, LuaString, Option<Table>)| {
        let options = CookieOptions::read(exchange, options.as_ref())?;
        set_cookie(exchange, &options.cookie(&name.as_bytes(), &value.as_bytes()))
    })?;
    response.raw_set("cookie", made)?;
    let made = sandbox.function(|_, exchange, (name, options): (LuaString, Option<Table>)| {
        let mut options = CookieOptions::read(exchange, options.as_ref())?;
        options.max_age_s = Some(0);
        set_cookie(exchange, &options.cookie(&name.as_bytes(), b""))
    })?;
    response.raw_set("delete_cookie", made)?;
    let made = sandbox.ending(|lua, exchange, (value, status): (Value, Option<f64>)| {
        check_open(exchange)?;
        let mut text = Vec::new();
        json::encode(lua, &value, &mut text, InvalidText::Refuse)?;
        if let Some(status) = status {
            exchange.draft.status = checked_status(status)?;
        }
        exchange.draft.set_field(b"Content-Type", b"application/json");
        exchange.output.clear();
        exchange.output.write(|out| out.extend_from_slice(&text));
        Ok(())
    })?;
    response.raw_set("json", made)?;

    let made = sandbox.function(|_, exchange, (): ()| {
        check_open(exchange)?;
        exchange.draft.ranges = true;
        Ok(())
    })?;
    response.raw_set("ranges", made)?;

    let metatable = lua.create_table()?;
    let made = sandbox.function(|_, exchange, (_, name): (Value, Value)| match name {
        Value::String(name) if *name.as_bytes() == *b"status" => Ok(Value::Number(f64::from(exchange.draft.status))),
        _ => Ok(Value::Nil),
    })?;
    metatable.raw_set("__index", made)?;
    let made = sandbox.function(|_, exchange, (_, name, value): (Value, Value, Value)| {
        match (name, number(&value)) {
            (Value::String(name), Some(status)) if *name.as_bytes() == *b"status" => {
                check_open(exchange)?;
                exchange.draft.status = checked_status(status)?;
                Ok(())
            }
            _ => Err(NativeError::from(
                "only `status` can be set on response, and only to a number; otherwise use response.header, response.cookie or response.redirect",
            )),
        }
    })?;
    metatable.raw_set("__newindex", made)?;
    metatable.raw_set("__metatable", "response")?;
    metatable.set_readonly(true);
    response.set_metatable(Some(metatable))?;
    sandbox.global("response", response)?;

    let made = sandbox.function(|_, exchange, (fresh, options): (Value, Option<Table>)| {
        set_policy(exchange, &fresh, options.as_ref())
    })?;
    sandbox.global("cache", made)
}

/// Rejects changes to a head that has already been sent.
pub(super) fn check_open(exchange: &Exchange) -> Result<(), NativeError> {
    if exchange.head_sent {
        return Err("flush() has already sent the head of the response".into());
    }
    Ok(())
}

/// Returns the value of a number, whether it is an integer or not.
pub(super) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(whole) => Some(*whole as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

fn checked_status(status: f64) -> Result<u16, NativeError> {
    if status.fract() == 0.0 && (200.0..=599.0).contains(&status) {
        Ok(status as u16)
    } else {
        Err(format!("a page cannot respond with the status {status}").into())
    }
}

fn field_value(value: &Value) -> Result<Vec<u8>, NativeError> {
    match value {
        Value::String(text) => Ok(text.as_bytes().to_vec()),
        Value::Integer(number) => Ok(number.to_string().into_bytes()),
        Value::Number(number) if number.is_finite() => Ok(number.to_string().into_bytes()),
        Value::Number(_) => Err("a header's value must not be NaN or infinity".into()),
        other => Err(format!("a header's value must be a string or a number, not a {}", json::type_name(other)).into()),
    }
}

fn add_field(exchange: &mut Exchange, name: &[u8], value: &[u8]) -> Result<(), NativeError> {
    let checked = match check_field(name, value) {
        Ok(()) if exchange.draft.fields().count() >= FIELDS_MAX => Err(FieldError::TooMany),
        checked => checked,
    };
    checked.map_err(|error| {
        NativeError::from(format!(
            "{}: {}",
            String::from_utf8_lossy(&name[..name.len().min(64)]).escape_debug(),
            error.text()
        ))
    })?;
    exchange.draft.add_field(name, value);
    Ok(())
}

/// The attributes of a cookie that a page has passed.
struct CookieOptions {
    path: Vec<u8>,
    domain: Option<Vec<u8>>,
    max_age_s: Option<i64>,
    secure: bool,
    http_only: bool,
    same_site: SameSite,
}

impl CookieOptions {
    fn read(exchange: &Exchange, options: Option<&Table>) -> Result<Self, NativeError> {
        let mut read = Self {
            path: b"/".to_vec(),
            domain: None,
            max_age_s: None,
            secure: exchange.facts.secure(),
            http_only: true,
            same_site: SameSite::Lax,
        };
        let Some(options) = options else { return Ok(read) };
        // A misspelt attribute must not be ignored silently, because it may be relevant to security.
        options.for_each(|name: LuaString, value: Value| {
            let wrong = |what: &str| Err(mlua::Error::runtime(what));
            match (&*name.as_bytes(), value) {
                (b"path", Value::String(path)) => read.path = path.as_bytes().to_vec(),
                (b"domain", Value::String(domain)) => read.domain = Some(domain.as_bytes().to_vec()),
                (b"max_age", Value::Integer(seconds)) => read.max_age_s = Some(seconds),
                (b"max_age", Value::String(text)) => match text.to_str().ok().and_then(|text| parse_seconds(&text)) {
                    Some(seconds) => read.max_age_s = i64::try_from(seconds).ok(),
                    None => return wrong("max_age must be a number of seconds, or a duration such as \"30d\""),
                },
                (b"secure", Value::Boolean(secure)) => read.secure = secure,
                (b"http_only", Value::Boolean(http_only)) => read.http_only = http_only,
                (b"same_site", Value::String(text)) => match text.to_str().ok().and_then(|text| SameSite::parse(&text))
                {
                    Some(same_site) => read.same_site = same_site,
                    None => return wrong("same_site must be \"strict\", \"lax\" or \"none\""),
                },
                _ => {
                    return wrong(
                        "a cookie's options must be path and domain (strings), max_age (seconds), secure and http_only \
                         (true or false), and same_site (\"strict\", \"lax\" or \"none\")",
                    );
                }
            }
            Ok(())
        })?;
        Ok(read)
    }

    fn cookie<'a>(&'a self, name: &'a [u8], value: &'a [u8]) -> Cookie<'a> {
        Cookie {
            name,
            value,
            path: &self.path,
            domain: self.domain.as_deref(),
            max_age_s: self.max_age_s,
            secure: self.secure,
            http_only: self.http_only,
            same_site: self.same_site,
        }
    }
}

/// Adds a Set-Cookie field.
pub(super) fn set_cookie(exchange: &mut Exchange, cookie: &Cookie<'_>) -> Result<(), NativeError> {
    check_open(exchange)?;
    let mut line = String::new();
    cookie.encode_to(&mut line).map_err(|error| NativeError::from(error.text()))?;
    if exchange.draft.fields().count() >= FIELDS_MAX {
        return Err(FieldError::TooMany.text().into());
    }
    exchange.draft.add_field(b"Set-Cookie", line.as_bytes());
    Ok(())
}

/// Implements `cache(fresh, options)`.
fn set_policy(exchange: &mut Exchange, fresh: &Value, options: Option<&Table>) -> Result<(), NativeError> {
    check_open(exchange)?;
    for name in POLICY_FIELDS {
        exchange.draft.remove_field(name);
    }
    if matches!(fresh, Value::Boolean(false)) {
        exchange.draft.add_field(b"Cache-Control", b"no-store");
        return Ok(());
    }
    let policy = read_policy(fresh, options)?;
    let mut lines = String::new();
    policy.write_lines(&mut lines);
    for line in lines.split_terminator("\r\n") {
        if let Some((name, value)) = line.split_once(": ") {
            exchange.draft.add_field(name.as_bytes(), value.as_bytes());
        }
    }
    Ok(())
}

const TIME: &str =
    "a duration must be a number of seconds, or a string such as \"60s\", \"5m\", \"2h\" or \"1d\", at most a year";

fn seconds(value: &Value) -> mlua::Result<u64> {
    let read = match value {
        Value::Integer(number) => u64::try_from(*number).ok().filter(|&number| number <= policy::SECONDS_MAX),
        Value::String(text) => text.to_str().ok().and_then(|text| parse_seconds(&text)),
        _ => None,
    };
    read.ok_or_else(|| mlua::Error::runtime(TIME))
}

fn read_policy(fresh: &Value, options: Option<&Table>) -> Result<CachePolicy, NativeError> {
    let mut policy = CachePolicy { fresh_s: seconds(fresh)?, ..CachePolicy::default() };
    let Some(options) = options else { return Ok(policy) };
    options.for_each(|name: LuaString, value: Value| {
        match (&*name.as_bytes(), &value) {
            (b"browser", value) => policy.browser_s = Some(seconds(value)?),
            (b"swr", value) => policy.revalidate_s = Some(seconds(value)?),
            (b"sie", value) => policy.error_s = Some(seconds(value)?),
            (b"private", Value::Boolean(private)) => policy.private = *private,
            (b"tags", Value::Table(tags)) => {
                for tag in tags.sequence_values::<LuaString>() {
                    let tag = tag?;
                    if policy.tags.len() == TAGS_MAX || !is_tag(&tag.as_bytes()) {
                        return Err(mlua::Error::runtime(
                            "a page may have at most 64 tags, each of at most 128 visible ASCII characters without commas",
                        ));
                    }
                    policy.tags.push(tag.to_string_lossy().into());
                }
            }
            _ => {
                return Err(mlua::Error::runtime(
                    "the options of cache must be browser, swr and sie (durations), private (true or false), and tags (a list)",
                ));
            }
        }
        Ok(())
    })?;
    if policy.private && (!policy.tags.is_empty() || policy.browser_s.is_some() || policy.revalidate_s.is_some()) {
        return Err("only browsers cache private responses: use tags, browser and swr only for public responses".into());
    }
    Ok(policy)
}

/// Checks that a 206 says which part of the content it has (RFC 9110 §15.3.7). A client would otherwise take the part for
/// another one, or for the whole.
fn check_part(exchange: &Exchange) -> Result<(), NativeError> {
    let draft = &exchange.draft;
    let is_multipart = || {
        let content_type = draft.field(b"content-type").unwrap_or_default();
        content_type.get(..20).is_some_and(|begin| begin.eq_ignore_ascii_case(b"multipart/byteranges"))
    };
    if draft.status == 206 && draft.field(b"content-range").is_none() && !is_multipart() {
        return Err("a response with the status 206 must have Content-Range, or the type multipart/byteranges".into());
    }
    Ok(())
}

/// Implements [`Api::finish_head`].
pub(super) fn finish(api: &Api, lua: &Lua, exchange: &mut Exchange) -> Result<(), NativeError> {
    if exchange.head_sent {
        return Ok(());
    }
    check_part(exchange)?;
    let used_session = session::finish(api, lua, exchange)?;
    exchange.head_sent = true;
    reads::finish(exchange, used_session);
    Ok(())
}
