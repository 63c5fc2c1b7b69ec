//! `session` and `csrf`: signed data that the visitor's browser stores, and tokens bound to that data.

use super::Api;
use super::content::{begin, read_form};
use super::cookie::{Cookie, SameSite};
use super::digest::fill;
use super::refusal::{PageRefusal, RefusalCell};
use super::request::sent_cookies;
use super::response::{check_open, set_cookie};
use super::seal::{ID_BYTES, SESSION_TEXT_BYTES_MAX, check_token, make_token, open_session, seal_session};
use super::secret::Secret;
use crate::exchange::Exchange;
use crate::exchange::facts::RequestFacts;
use crate::sandbox::Sandbox;
use crate::sandbox::json::{self, InvalidText};
use crate::sandbox::wait::{NativeError, wanted};
use flatout_os::clock::Now;
use mlua::{Lua, Table, Value};
use std::rc::Rc;
use std::sync::Arc;

/// The form field that contains the token. Clients may send the token in a header instead.
const TOKEN_FIELD: &str = "csrf";
const TOKEN_HEADER: &str = "x-csrf-token";
/// Maximum size of a session's content as JSON, in bytes. Signed and encoded in Base64, content of this size fits in a
/// cookie.
const CONTENT_BYTES_MAX: usize = SESSION_TEXT_BYTES_MAX / 4 * 3 - 64;

/// The `__metatable` value of `session`.
const SESSION: &str = "session";

/// The session of a request; `None` until the page accesses it.
#[derive(Default)]
struct OpenedSession(Option<Session>);

struct Session {
    table: Table,
    /// The content as JSON that the browser sent, or empty if the session should be signed again. `None` if the browser
    /// sent no valid session, or if the page discarded it.
    came: Option<Vec<u8>>,
    /// True if the browser sent a session cookie, valid or not.
    was_sent: bool,
    id: [u8; ID_BYTES],
    /// True if the page created a token for the session, so the session must be stored even if it is empty.
    is_bound: bool,
}

/// Returns the name of the session cookie. Over https, the prefix makes the browser ensure that the cookie belongs to
/// this host (RFC 6265bis §4.1.3.2).
fn cookie_name(facts: &RequestFacts) -> &'static [u8] {
    if facts.secure() { b"__Host-session" } else { b"session" }
}

pub(super) fn install(sandbox: &Sandbox, api: &Rc<Api>, listings: &Table) -> mlua::Result<()> {
    let lua = sandbox.lua();
    let session = lua.create_table()?;
    let using = Rc::clone(api);
    let made = sandbox.function(move |lua, exchange, _: Option<Value>| {
        check_open(exchange)?;
        let opened = open(&using, lua, exchange)?;
        opened.table.clear()?;
        opened.id = new_id()?;
        opened.came = None;
        opened.is_bound = false;
        Ok(())
    })?;
    session.raw_set("clear", made)?;
    let using = Rc::clone(api);
    let made = sandbox.function(move |lua, exchange, _: Option<Value>| {
        check_open(exchange)?;
        let opened = open(&using, lua, exchange)?;
        opened.id = new_id()?;
        opened.came = None;
        Ok(())
    })?;
    session.raw_set("renew", made)?;
    let metatable = lua.create_table()?;
    let using = Rc::clone(api);
    let made = sandbox.function(move |lua, exchange, (_, name): (Value, Value)| {
        Ok(open(&using, lua, exchange)?.table.raw_get::<Value>(name)?)
    })?;
    metatable.raw_set("__index", made)?;
    let using = Rc::clone(api);
    let made = sandbox.function(move |lua, exchange, (_, name, value): (Value, Value, Value)| {
        let Value::String(name) = name else { return Err("the keys of a session must be strings".into()) };
        check_open(exchange)?;
        let opened = open(&using, lua, exchange)?;
        let before: Value = opened.table.raw_get(&name)?;
        opened.table.raw_set(&name, value)?;
        // An invalid value is reported here, while the page's line is known, instead of at the end of the page.
        let checked = content(lua, &opened.table);
        if checked.is_err() {
            opened.table.raw_set(name, before)?;
        }
        checked.map(|_| ())
    })?;
    metatable.raw_set("__newindex", made)?;
    let next: Value = lua.globals().raw_get("next")?;
    let using = Rc::clone(api);
    let made = sandbox.function(move |lua, exchange, _: Value| Ok((next.clone(), values(&using, lua, exchange)?)))?;
    metatable.raw_set("__iter", made)?;
    let using = Rc::clone(api);
    listings.raw_set(SESSION, sandbox.function(move |lua, exchange, _: Value| values(&using, lua, exchange))?)?;
    metatable.raw_set("__metatable", SESSION)?;
    metatable.set_readonly(true);
    session.set_metatable(Some(metatable))?;
    sandbox.global("session", session)?;
    install_csrf(sandbox, api)
}

fn install_csrf(sandbox: &Sandbox, api: &Rc<Api>) -> mlua::Result<()> {
    let csrf = sandbox.lua().create_table()?;
    let using = Rc::clone(api);
    csrf.raw_set("token", sandbox.function(move |lua, exchange, (): ()| token(&using, lua, exchange))?)?;
    let using = Rc::clone(api);
    let made = sandbox.function(move |lua, exchange, (): ()| {
        let token = token(&using, lua, exchange)?;
        Ok(format!("<input type=\"hidden\" name=\"{TOKEN_FIELD}\" value=\"{token}\">"))
    })?;
    csrf.raw_set("field", made)?;
    let using = Rc::clone(api);
    let made = sandbox.waiting(move |lua, exchange, (): ()| {
        let secret = secret(&using)?;
        let refused = RefusalCell::of(exchange);
        let header = exchange.facts.field(TOKEN_HEADER).map(<[u8]>::to_vec);
        let opened = open(&using, lua, exchange)?;
        // A token cannot exist without a session, so the token is not even examined.
        if opened.came.is_none() {
            return Err(refused.refuse(PageRefusal::CsrfInvalid));
        }
        let id = opened.id;
        let reading = header.is_none().then(|| begin(&using, exchange)).transpose()?;
        Ok(wanted(async move {
            let form = match reading {
                Some(reading) => Some(read_form(reading).await?),
                None => None,
            };
            let in_form = form.as_ref().and_then(|form| form.first(TOKEN_FIELD.as_bytes()));
            let token = header.as_deref().or(in_form.as_deref()).unwrap_or_default();
            if check_token(&secret, &id, token) { Ok(true) } else { Err(refused.refuse(PageRefusal::CsrfInvalid)) }
        })
        .of_client())
    })?;
    csrf.raw_set("check", made)?;
    sandbox.global("csrf", csrf)
}

/// Copies the names and values of the session into a separate table, because the page may change the session during a
/// loop.
fn values(api: &Api, lua: &Lua, exchange: &mut Exchange) -> Result<Table, NativeError> {
    let opened = open(api, lua, exchange)?;
    let values = lua.create_table()?;
    opened.table.for_each(|name: Value, value: Value| values.raw_set(name, value))?;
    Ok(values)
}

/// Returns the current keys.
fn secret(api: &Api) -> Result<Arc<Secret>, NativeError> {
    api.settings.secret.as_ref().map(|file| file.keys()).ok_or_else(|| {
        "sessions and tokens need a key: add `secret \"./data/secret\"` to the settings of these pages".into()
    })
}

fn new_id() -> Result<[u8; ID_BYTES], NativeError> {
    let mut id = [0; ID_BYTES];
    fill(&mut id)?;
    Ok(id)
}

/// Returns the session of the request, which is opened on first access.
fn open<'a>(api: &Api, lua: &Lua, exchange: &'a mut Exchange) -> Result<&'a mut Session, NativeError> {
    if exchange.slot::<OpenedSession>().0.is_none() {
        // The head that was sent may have declared the response as shareable.
        check_open(exchange)?;
        let opened = read(api, lua, &exchange.facts)?;
        exchange.slot::<OpenedSession>().0 = Some(opened);
    }
    exchange.slot::<OpenedSession>().0.as_mut().ok_or_else(|| "the session cannot be opened".into())
}

fn read(api: &Api, lua: &Lua, facts: &RequestFacts) -> Result<Session, NativeError> {
    let secret = secret(api)?;
    let name = cookie_name(facts);
    let sent = sent_cookies(facts).find_map(|(known, value)| (known == name).then_some(value));
    let believed = sent.and_then(|text| open_session(&secret, text, Now::read().unix_s));
    if let Some(believed) = believed
        && let Ok(Value::Table(table)) = json::decode(lua, &believed.content)
    {
        let came = Some(if believed.is_due { Vec::new() } else { believed.content });
        return Ok(Session { table, came, was_sent: true, id: believed.id, is_bound: false });
    }
    Ok(Session { table: lua.create_table()?, came: None, was_sent: sent.is_some(), id: new_id()?, is_bound: false })
}

/// Encodes the content of a session as JSON.
fn content(lua: &Lua, table: &Table) -> Result<Vec<u8>, NativeError> {
    let mut text = Vec::new();
    if table.raw_len() > 0 {
        return Err("the keys of a session must be strings".into());
    }
    json::encode(lua, &Value::Table(table.clone()), &mut text, InvalidText::Refuse)?;
    if text.len() > CONTENT_BYTES_MAX {
        return Err(format!(
            "the session has {} bytes, but a cookie can contain only {CONTENT_BYTES_MAX}: store the rest in the database, and its id in the session",
            text.len()
        )
        .into());
    }
    Ok(text)
}

fn token(api: &Api, lua: &Lua, exchange: &mut Exchange) -> Result<String, NativeError> {
    let secret = secret(api)?;
    let opened = open(api, lua, exchange)?;
    let needs_cookie = opened.came.is_none() && !opened.is_bound;
    if needs_cookie {
        check_open(exchange)?;
    }
    let opened = open(api, lua, exchange)?;
    opened.is_bound = true;
    let mut nonce = [0; 16];
    fill(&mut nonce)?;
    make_token(&secret, &opened.id, nonce).ok_or_else(|| "there is no key with which to sign a token".into())
}

/// Sets the session's cookie if necessary. Returns whether the page has accessed the session.
pub(super) fn finish(api: &Api, lua: &Lua, exchange: &mut Exchange) -> Result<bool, NativeError> {
    let Some(opened) = exchange.slot_if::<OpenedSession>().and_then(|opened| opened.0.as_mut()) else {
        return Ok(false);
    };
    let text = content(lua, &opened.table)?;
    let is_kept = opened.is_bound || opened.came.is_some() || !opened.table.is_empty();
    let (id, was_sent) = (opened.id, opened.was_sent);
    let is_same = opened.came.as_ref() == Some(&text);
    if is_same || (!is_kept && !was_sent) {
        return Ok(true);
    }
    let is_secure = exchange.facts.secure();
    let name = cookie_name(&exchange.facts);
    let sealed = if is_kept {
        seal_session(&*secret(api)?, id, &text, Now::read().unix_s)
            .map_err(|_| NativeError::from("the session is too large for a cookie"))?
    } else {
        String::new()
    };
    let cookie = Cookie {
        name,
        value: sealed.as_bytes(),
        path: b"/",
        domain: None,
        max_age_s: (!is_kept).then_some(0),
        secure: is_secure,
        http_only: true,
        same_site: SameSite::Lax,
    };
    set_cookie(exchange, &cookie)?;
    Ok(true)
}
