//! `fetch`: sends a request to a configured upstream and reads the whole response.

use super::Api;
use super::budget::{Exhausted, RequestBudget};
use super::field::is_value;
use super::response::number;
use crate::sandbox::Sandbox;
use crate::sandbox::json::mark_object;
use crate::sandbox::wait::{Made, NativeError, Wanted};
use flatout_handler::shared::SharedBytes;
use flatout_http::head::FieldStorage;
use flatout_http::lines::is_of_a_connection;
use flatout_http::proxy_protocol::ProxyClient;
use flatout_http::token::is_token;
use flatout_http::url::OriginAddress;
use flatout_upstream::origin::{Incoming, IncomingPiece, OriginClient, OutgoingContent, OutgoingRequest};
use mlua::{IntoLuaMulti, Lua, LuaString, Table, Value};
use std::rc::Rc;

/// Maximum size of a response's content, in bytes.
const CONTENT_BYTES_MAX: usize = 2 << 20;
/// Default timeout of the request with its response, in milliseconds.
const TIMEOUT_MS: u64 = 5_000;
/// Longest timeout that a page may set, in milliseconds.
const TIMEOUT_MS_MAX: u64 = 60_000;
/// Maximum number of header fields in a request.
const FIELDS_MAX: usize = 64;

/// Fields that a page cannot set, in addition to connection-specific ones: message framing and Host.
const NOT_SENT: [&str; 3] = ["host", "content-length", "expect"];

/// A validated request.
struct Prepared {
    address: OriginAddress,
    method: String,
    target: Vec<u8>,
    lines: Vec<u8>,
    body: Option<Vec<u8>>,
    timeout_ms: u64,
}

/// A complete response.
struct Fetched {
    status: u16,
    /// Name in lower case and value of each field line.
    fields: Vec<(String, Vec<u8>)>,
    content: Vec<u8>,
}

pub(super) fn install(sandbox: &Sandbox, api: &Rc<Api>) -> mlua::Result<()> {
    let using = Rc::clone(api);
    let made =
        sandbox.waiting(move |_, exchange, (upstream, path, options): (LuaString, LuaString, Option<Table>)| {
            let client =
                using.client.clone().ok_or("`fetch` needs a running server, but this page runs without one")?;
            let prepared = prepare(&using, &upstream, &path, options.as_ref())?;
            let mut share = using.settings.budget.share(exchange.facts.client().map(|client| client.ip()));
            Ok(Wanted::new(async move {
                let fetched = fetch(&client, prepared, &mut share).await;
                let bytes = fetched.as_ref().map_or(0, |fetched| fetched.content.len());
                Ok(Made::new(bytes, move |lua| {
                    let _held = share;
                    match fetched {
                        Ok(fetched) => shown(lua, fetched)?.into_lua_multi(lua),
                        // By convention, an operation that may fail returns nil and the reason.
                        Err(reason) => (Value::Nil, reason).into_lua_multi(lua),
                    }
                }))
            }))
        })?;
    sandbox.global("fetch", made)
}

fn prepare(
    api: &Api,
    upstream: &LuaString,
    path: &LuaString,
    options: Option<&Table>,
) -> Result<Prepared, NativeError> {
    let upstreams = &api.settings.upstreams;
    let name = upstream.to_string_lossy();
    let address = upstreams.get(&name).ok_or_else(|| {
        let known: Vec<&str> = upstreams.keys().map(String::as_str).collect();
        NativeError::from(format!(
            "there is no upstream \"{}\": {}",
            name.escape_debug(),
            if known.is_empty() {
                "add `upstream \"name\" \"http://...\"` to the settings of these pages".to_owned()
            } else {
                format!("use one of: {}", known.join(", "))
            }
        ))
    })?;
    let target = path.as_bytes().to_vec();
    let is_target = target.first() == Some(&b'/') && target.len() <= 8192 && target.iter().all(u8::is_ascii_graphic);
    if !is_target || target.contains(&b'#') {
        return Err(
            "a path must begin with / and must not contain spaces, line breaks or #: use url.encode for untrusted values".into(),
        );
    }
    let mut prepared = Prepared {
        address: address.clone(),
        method: "GET".to_owned(),
        target,
        lines: format!("Host: {}\r\n", address.authority()).into_bytes(),
        body: None,
        timeout_ms: TIMEOUT_MS,
    };
    if let Some(options) = options {
        options.for_each(|name: LuaString, value: Value| prepared.take(&name.as_bytes(), &value))?;
    }
    Ok(prepared)
}

impl Prepared {
    /// Applies an option that the page has passed.
    fn take(&mut self, name: &[u8], value: &Value) -> mlua::Result<()> {
        let wrong = |text: &'static str| Err(mlua::Error::runtime(text));
        match (name, value) {
            (b"method", Value::String(method)) => {
                let method = method.to_string_lossy();
                if !is_token(method.as_bytes()) || method.len() > 16 || method == "CONNECT" {
                    return wrong("a method must be a single word, such as GET");
                }
                self.method = method;
            }
            (b"headers", Value::Table(headers)) => {
                let mut count = 0;
                headers.for_each(|name: LuaString, value: LuaString| {
                    count += 1;
                    let (name, value) = (name.as_bytes(), value.as_bytes());
                    if count > FIELDS_MAX || !is_token(&name) || !is_value(&value) || value.len() > 8192 {
                        return wrong("`headers` may have at most 64 names and values, without line breaks");
                    }
                    if is_of_a_connection(&name) || NOT_SENT.iter().any(|own| name.eq_ignore_ascii_case(own.as_bytes()))
                    {
                        return wrong("a page cannot set Host or any framing or connection-specific header");
                    }
                    for part in [&name[..], b": ", &value, b"\r\n"] {
                        self.lines.extend_from_slice(part);
                    }
                    Ok(())
                })?;
            }
            (b"body", Value::String(body)) => self.body = Some(body.as_bytes().to_vec()),
            (b"timeout", Value::Integer(_) | Value::Number(_)) => {
                let milliseconds = number(value).unwrap_or_default() * 1000.0;
                if !(1.0..=TIMEOUT_MS_MAX as f64).contains(&milliseconds) {
                    return wrong("a timeout must be a number of seconds, at most 60");
                }
                self.timeout_ms = milliseconds as u64;
            }
            _ => {
                return wrong(
                    "the options of fetch must be method and body (strings), headers (a table), and timeout (seconds)",
                );
            }
        }
        Ok(())
    }
}

/// Sends the request. An error is the name of a failure reason.
async fn fetch(client: &OriginClient, prepared: Prepared, share: &mut RequestBudget) -> Result<Fetched, &'static str> {
    let timeout_ms = prepared.timeout_ms;
    client.within(timeout_ms, exchange(client, prepared, share)).await.unwrap_or(Err("fetch_timeout"))
}

async fn exchange(
    client: &OriginClient,
    prepared: Prepared,
    share: &mut RequestBudget,
) -> Result<Fetched, &'static str> {
    let content = match prepared.body {
        Some(body) => OutgoingContent::Bytes(SharedBytes::from_buffer(body)),
        None if matches!(&*prepared.method, "POST" | "PUT" | "PATCH") => OutgoingContent::Bytes(Vec::new().into()),
        None => OutgoingContent::None,
    };
    let mut request = OutgoingRequest {
        method: &prepared.method,
        target: &prepared.target,
        lines: &prepared.lines,
        content,
        upgrade: None,
        head_left_ms: None,
        client: ProxyClient::Sender,
    };
    let answered = client.exchange(&prepared.address, &mut request, |_, _| {}).await;
    let mut incoming = answered.map_err(|failure| failure.failure.name())?;
    let fields = fields(&incoming);
    let content = read(&mut incoming, share).await?;
    Ok(Fetched { status: incoming.status, fields, content })
}

fn fields(incoming: &Incoming) -> Vec<(String, Vec<u8>)> {
    let mut storage = FieldStorage::new();
    let fields = incoming.fields(&mut storage);
    fields.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.to_vec())).collect()
}

async fn read(incoming: &mut Incoming, share: &mut RequestBudget) -> Result<Vec<u8>, &'static str> {
    let mut content = Vec::new();
    loop {
        match incoming.body.piece().await {
            IncomingPiece::Bytes(bytes) if content.len() + bytes.len() > CONTENT_BYTES_MAX => {
                return Err("fetch_too_large");
            }
            IncomingPiece::Bytes(bytes) => {
                share.grow(bytes.len()).map_err(|Exhausted| "fetch_content_budget")?;
                content.extend_from_slice(&bytes);
            }
            IncomingPiece::End(_) => return Ok(content),
            IncomingPiece::Failed(failure) => return Err(failure.failure.name()),
        }
    }
}

fn shown(lua: &Lua, fetched: Fetched) -> mlua::Result<Table> {
    let answer = lua.create_table()?;
    answer.raw_set("status", fetched.status)?;
    let headers = lua.create_table()?;
    mark_object(lua, &headers)?;
    for (name, value) in fetched.fields {
        let value = match headers.raw_get::<Option<LuaString>>(&*name)? {
            Some(before) => [&before.as_bytes()[..], b", ", &value].concat(),
            None => value,
        };
        headers.raw_set(name, lua.create_string(value)?)?;
    }
    answer.raw_set("headers", headers)?;
    answer.raw_set("body", lua.create_string(fetched.content)?)?;
    Ok(answer)
}
