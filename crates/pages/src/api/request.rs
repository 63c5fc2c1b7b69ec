//! `request`: the client's request.
//!
//! Data from the head are fields, which are created on first access. Anything that the page must wait for is a
//! function.

use super::Api;
use super::content::{ContentReading, ReadForm, begin, read_form, read_text};
use super::cookie::{COOKIES_MAX, decode_value, parse_cookies};
use super::form::{is_media_type, parse_form};
use super::reads::{is_private, note_all_fields, note_field, note_private};
use super::refusal::PageRefusal;
use super::upload;
use crate::exchange::Exchange;
use crate::exchange::facts::RequestFacts;
use crate::sandbox::Sandbox;
use crate::sandbox::json;
use crate::sandbox::wait::{Made, NativeError, Wanted};
use flatout_http::percent;
use mlua::{IntoLua, IntoLuaMulti, Lua, LuaString, Table, Value};
use std::rc::Rc;

/// The tables of a request that its page has accessed.
#[derive(Default)]
struct RequestTables {
    query: Option<Table>,
    headers: Option<Table>,
    cookies: Option<Table>,
}

pub(super) fn install(sandbox: &Sandbox, api: &Rc<Api>, listings: &Table) -> mlua::Result<()> {
    let lua = sandbox.lua();
    let request = lua.create_table()?;
    let made = sandbox.function(|lua, exchange, name: LuaString| {
        let name = name.as_bytes();
        let name = std::str::from_utf8(&name).map_err(|_| NativeError::from("a header's name must be ASCII"))?;
        note_field(exchange, name.as_bytes())?;
        Ok(joined(&exchange.facts, name).map(|value| lua.create_string(value)).transpose()?)
    })?;
    request.raw_set("header", made)?;
    let made = sandbox.function(|lua, exchange, name: LuaString| {
        let name = name.as_bytes();
        let all = lua.create_table()?;
        for field in parse_form(exchange.facts.query().unwrap_or_default()) {
            let (known, value) = field.map_err(|_| NativeError::from("the query has more than 1,024 fields"))?;
            if known.as_bytes() == &name[..] {
                all.raw_push(&*value)?;
            }
        }
        Ok(all)
    })?;
    request.raw_set("query_all", made)?;
    install_content(sandbox, api, &request)?;

    let headers = headers_metatable(sandbox, listings)?;
    let metatable = lua.create_table()?;
    let made = sandbox.function(move |lua, exchange, (_, name): (Value, Value)| {
        let Value::String(name) = name else { return Ok(Value::Nil) };
        field(lua, exchange, &name.as_bytes(), &headers)
    })?;
    metatable.raw_set("__index", made)?;
    metatable.raw_set("__metatable", "request")?;
    metatable.set_readonly(true);
    request.set_metatable(Some(metatable))?;
    sandbox.global("request", request)
}

/// The `__metatable` value of `request.headers`.
const HEADERS: &str = "headers";

/// Creates the metatable of `request.headers`. The table itself stays empty, so that every access, by name or in a
/// loop, is recorded.
fn headers_metatable(sandbox: &Sandbox, listings: &Table) -> mlua::Result<Table> {
    let lua = sandbox.lua();
    let metatable = lua.create_table()?;
    let made = sandbox.function(|lua, exchange, (_, name): (Value, Value)| {
        let Value::String(name) = name else { return Ok(None) };
        let name = name.as_bytes();
        // The keys of this table are in lower case.
        let Some(name) =
            std::str::from_utf8(&name).ok().filter(|name| !name.bytes().any(|byte| byte.is_ascii_uppercase()))
        else {
            return Ok(None);
        };
        note_field(exchange, name.as_bytes())?;
        Ok(joined(&exchange.facts, name).map(|value| lua.create_string(value)).transpose()?)
    })?;
    metatable.raw_set("__index", made)?;
    let next: Value = lua.globals().raw_get("next")?;
    let made = sandbox.function(move |lua, exchange, _: Value| Ok((next.clone(), all_headers(lua, exchange)?)))?;
    metatable.raw_set("__iter", made)?;
    metatable.raw_set("__metatable", HEADERS)?;
    metatable.set_readonly(true);
    let all = sandbox.function(|lua, exchange, _: Value| all_headers(lua, exchange))?;
    listings.raw_set(HEADERS, all)?;
    Ok(metatable)
}

/// Returns all fields except those that identify one visitor, with names in lower case and lines with the same name
/// joined (RFC 9110 §5.3).
fn all_headers(lua: &Lua, exchange: &mut Exchange) -> Result<Table, NativeError> {
    note_all_fields(exchange)?;
    let facts = &exchange.facts;
    let table = lua.create_table()?;
    for (name, _) in facts.fields().filter(|(name, _)| !is_private(name)) {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        if table.raw_get::<Value>(&*name)?.is_nil() {
            let value = joined(facts, &name).unwrap_or_default();
            table.raw_set(&*name, lua.create_string(value)?)?;
        }
    }
    Ok(table)
}

/// Installs the functions that wait for content.
fn install_content(sandbox: &Sandbox, api: &Rc<Api>, request: &Table) -> mlua::Result<()> {
    let files = upload::Functions::new(sandbox)?;
    let using = Rc::clone(api);
    let made = sandbox.waiting(move |_, exchange, (): ()| {
        let reading = begin(&using, exchange)?;
        Ok(waiting(async move { read_form(reading).await }, |lua, form| form.fields(lua)))
    })?;
    request.raw_set("form", made)?;
    let using = Rc::clone(api);
    let made = sandbox.waiting(move |_, exchange, name: LuaString| {
        let reading = begin(&using, exchange)?;
        let name = name.as_bytes().to_vec();
        Ok(waiting(async move { read_form(reading).await }, move |lua, form| form.all(lua, &name)))
    })?;
    request.raw_set("form_all", made)?;
    let using = Rc::clone(api);
    let made = sandbox.waiting(move |_, exchange, (): ()| {
        let reading = begin(&using, exchange)?;
        let files = files.clone();
        Ok(waiting(async move { read_form(reading).await }, move |lua, form| upload::tables(lua, &files, &form)))
    })?;
    request.raw_set("files", made)?;
    let using = Rc::clone(api);
    let made = sandbox.waiting(move |_, exchange, (): ()| {
        let reading = begin(&using, exchange)?;
        Ok(waiting(async move { read_text(reading).await }, |lua, text| lua.create_string(&*text)))
    })?;
    request.raw_set("text", made)?;
    let using = Rc::clone(api);
    let made = sandbox.waiting(move |_, exchange, (): ()| {
        let reading = begin(&using, exchange)?;
        let refused = reading.refused.clone();
        Ok(waiting(async move { read_json(reading).await }, move |lua, text| {
            json::decode(lua, &text).map_err(|why| {
                let NativeError(told) = refused.refuse(PageRefusal::JsonMalformed);
                mlua::Error::runtime(format!("{told} ({why})"))
            })
        }))
    })?;
    request.raw_set("json", made)
}

/// Content that has been read and will be converted to Luau values.
trait ReadContent {
    /// Approximate memory use of the values, in bytes.
    fn bytes(&self) -> usize;
}

impl ReadContent for Rc<ReadForm> {
    fn bytes(&self) -> usize {
        ReadForm::bytes(self)
    }
}

impl ReadContent for Rc<[u8]> {
    fn bytes(&self) -> usize {
        self.len()
    }
}

/// Creates a waiting function whose result `make` converts to a Luau value.
fn waiting<T, V>(
    future: impl Future<Output = Result<T, NativeError>> + 'static,
    make: impl FnOnce(&Lua, T) -> mlua::Result<V> + 'static,
) -> Wanted
where
    T: ReadContent + 'static,
    V: IntoLua,
{
    Wanted::new(async move {
        let read = future.await?;
        let bytes = read.bytes();
        Ok(Made::new(bytes, move |lua| make(lua, read)?.into_lua_multi(lua)))
    })
    .of_client()
}

/// Reads the content as JSON text. Content with another declared type is rejected, because a cross-site form can send
/// any text but cannot declare this type.
async fn read_json(reading: ContentReading) -> Result<Rc<[u8]>, NativeError> {
    if !is_json(&reading.content_type) {
        return Err(reading.refused.refuse(PageRefusal::ContentType));
    }
    let refused = reading.refused.clone();
    let text = read_text(reading).await?;
    if text.len() > json::TEXT_BYTES_MAX {
        return Err(refused.refuse(PageRefusal::FormTooLarge));
    }
    Ok(text)
}

fn is_json(content_type: &[u8]) -> bool {
    let end = memchr::memchr(b';', content_type).unwrap_or(content_type.len());
    let bare = flatout_http::token::trim(&content_type[..end]).to_ascii_lowercase();
    is_media_type(&bare, "application/json") || (bare.starts_with(b"application/") && bare.ends_with(b"+json"))
}

/// Returns the value of a field of `request`.
fn field(lua: &Lua, exchange: &mut Exchange, name: &[u8], headers_metatable: &Table) -> Result<Value, NativeError> {
    match name {
        b"cookies" => note_field(exchange, b"Cookie")?,
        b"content_type" => note_field(exchange, b"Content-Type")?,
        b"client" => note_private(exchange)?,
        _ => {}
    }
    let facts = &exchange.facts;
    let text = |bytes: &[u8]| Ok(Value::String(lua.create_string(bytes)?));
    match name {
        b"method" => text(facts.method()),
        b"path" => text(&percent::decode(facts.path()).collect::<Vec<u8>>()),
        b"query_string" => text(facts.query().unwrap_or_default()),
        b"host" => text(facts.host().unwrap_or_default()),
        b"secure" => Ok(Value::Boolean(facts.secure())),
        b"scheme" => text(scheme(facts)),
        b"url" => text(&url(facts)),
        b"client" => match facts.client() {
            Some(client) => text(client.ip().to_canonical().to_string().as_bytes()),
            None => Ok(Value::Nil),
        },
        b"content_type" => facts.field("content-type").map_or(Ok(Value::Nil), text),
        b"query" => looked(exchange, |looked| &mut looked.query, |facts| query(lua, facts)),
        b"headers" => looked(exchange, |looked| &mut looked.headers, |_| headers(lua, headers_metatable)),
        b"cookies" => looked(exchange, |looked| &mut looked.cookies, |facts| cookies(lua, facts)),
        _ => Ok(Value::Nil),
    }
}

/// Returns a table that is created at most once per request.
fn looked(
    exchange: &mut Exchange,
    place: fn(&mut RequestTables) -> &mut Option<Table>,
    make: impl FnOnce(&RequestFacts) -> Result<Table, NativeError>,
) -> Result<Value, NativeError> {
    if let Some(table) = place(exchange.slot::<RequestTables>()) {
        return Ok(Value::Table(table.clone()));
    }
    let table = make(&exchange.facts)?;
    *place(exchange.slot::<RequestTables>()) = Some(table.clone());
    Ok(Value::Table(table))
}

/// Creates a table with the first value of each name in the query.
fn query(lua: &Lua, facts: &RequestFacts) -> Result<Table, NativeError> {
    let table = lua.create_table()?;
    for field in parse_form(facts.query().unwrap_or_default()) {
        let (name, value) = field.map_err(|_| NativeError::from("the query has more than 1,024 fields"))?;
        if !table.contains_key(&*name)? {
            table.raw_set(&*name, &*value)?;
        }
    }
    json::mark_object(lua, &table)?;
    Ok(table)
}

/// Creates an empty table with the metatable of [`headers_metatable`].
fn headers(lua: &Lua, metatable: &Table) -> Result<Table, NativeError> {
    let table = lua.create_table()?;
    table.set_metatable(Some(metatable.clone()))?;
    Ok(table)
}

/// Returns the joined value of all field lines with this name. Cookie lines are joined with semicolons (RFC 9113
/// §8.2.3).
fn joined(facts: &RequestFacts, name: &str) -> Option<Vec<u8>> {
    let mut lines =
        facts.fields().filter(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value);
    let mut value = lines.next()?.to_vec();
    let between: &[u8] = if name.eq_ignore_ascii_case("cookie") { b"; " } else { b", " };
    for line in lines {
        value.extend_from_slice(between);
        value.extend_from_slice(line);
    }
    Some(value)
}

/// Creates a table with the first cookie of each name, whose value is percent-decoded. Browsers send the cookie with the
/// longest path first (RFC 6265 §5.4).
fn cookies(lua: &Lua, facts: &RequestFacts) -> Result<Table, NativeError> {
    let table = lua.create_table()?;
    for (name, value) in sent_cookies(facts) {
        let name = lua.create_string(name)?;
        if !table.contains_key(&name)? {
            table.raw_set(name, lua.create_string(decode_value(value))?)?;
        }
    }
    json::mark_object(lua, &table)?;
    Ok(table)
}

/// Returns the cookies of a request, at most [`COOKIES_MAX`], with values as they were sent.
pub(super) fn sent_cookies(facts: &RequestFacts) -> impl Iterator<Item = (&[u8], &[u8])> {
    let lines = facts.fields().filter(|(name, _)| name.eq_ignore_ascii_case(b"cookie"));
    lines.flat_map(|(_, value)| parse_cookies(value)).take(COOKIES_MAX)
}

fn scheme(facts: &RequestFacts) -> &'static [u8] {
    if facts.secure() { b"https" } else { b"http" }
}

fn url(facts: &RequestFacts) -> Vec<u8> {
    let mut url = scheme(facts).to_vec();
    url.extend_from_slice(b"://");
    url.extend_from_slice(facts.host().unwrap_or_default());
    url.extend_from_slice(facts.path());
    if let Some(query) = facts.query() {
        url.push(b'?');
        url.extend_from_slice(query);
    }
    url
}
