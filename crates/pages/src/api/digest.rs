//! `hash`, `uuid` and `random`.

use super::convert::check_length;
use crate::exchange::{Beside, Exchange, Held};
use crate::sandbox::Sandbox;
use crate::sandbox::failure::PRELUDE;
use crate::sandbox::wait::NativeError;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::{digest, hmac};
use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use flatout_os::{clock, random};
use mlua::{AnyUserData, Lua, LuaString, Table, UserData, Value};
use std::sync::Mutex;
use uuid::{Builder, ContextV7, Timestamp, Uuid};

/// Maximum number of random bytes per call.
const RANDOM_BYTES_MAX: usize = 4096;

/// The Luau part of `hash`. It passes long input to the native functions in blocks, between which the page can be
/// preempted. A hash is a table with the native state, because methods of a native object could not be preempted.
/// Input of one block needs no state, which would hold memory until it is collected.
const HASH: &str = r"
local start, start_hmac, add, finish, consume, once = ...
local type, setmetatable = type, setmetatable
local sub, readstring, length = string.sub, buffer.readstring, buffer.len
local BLOCK = 65536

local function feed(state, data)
    if type(data) == 'buffer' then
        local size = length(data)
        for at = 0, size - 1, BLOCK do
            add(state, readstring(data, at, if size - at < BLOCK then size - at else BLOCK))
        end
    elseif type(data) == 'string' and #data > BLOCK then
        for at = 1, #data, BLOCK do
            add(state, sub(data, at, at + BLOCK - 1))
        end
    else
        add(state, data)
    end
end

local function is_long(data)
    return if type(data) == 'buffer' then length(data) > BLOCK else type(data) == 'string' and #data > BLOCK
end

-- Other types than buffers are left to the native functions, which refuse them.
local function text_of(data)
    return if type(data) == 'buffer' then readstring(data, 0, length(data)) else data
end

local function state_of(hash)
    return if type(hash) == 'table' then hash.state else nil
end

local methods = table.freeze({
    update = function(hash, data)
        feed(state_of(hash), data)
        return hash
    end,
    hex = function(hash)
        return finish(state_of(hash))
    end,
})
local metatable = table.freeze({ __index = methods, __metatable = 'hash' })

local hash = {
    new = function(algorithm)
        return setmetatable({ state = start(algorithm) }, metatable)
    end,
    new_hmac = function(algorithm, key)
        return setmetatable({ state = start_hmac(algorithm, key) }, metatable)
    end,
}
for _, algorithm in { 'sha256', 'sha512' } do
    local digest = once[algorithm]
    hash[algorithm] = function(data)
        if not is_long(data) then
            return digest(text_of(data))
        end
        local state = start(algorithm)
        feed(state, data)
        return consume(state)
    end
    local hmac = once['hmac_' .. algorithm]
    hash['hmac_' .. algorithm] = function(key, data)
        if not is_long(data) then
            return hmac(key, text_of(data))
        end
        if type(key) ~= 'string' then
            -- Its error says which argument is wrong.
            hmac(key, '')
        end
        local state = start_hmac(algorithm, key)
        feed(state, data)
        return consume(state)
    end
end
return hash
";

/// Maximum memory use of a [`HashState`] outside of the virtual machine, in bytes.
const STATE_BYTES: usize = 2048;

/// The algorithms of digests, by name.
const ALGORITHMS: [(&str, &digest::Algorithm, hmac::Algorithm); 2] =
    [("sha256", &digest::SHA256, hmac::HMAC_SHA256), ("sha512", &digest::SHA512, hmac::HMAC_SHA512)];

/// A digest or an HMAC of the input so far.
#[derive(Clone)]
enum Context {
    Digest(digest::Context),
    Hmac(Box<hmac::Context>),
}

/// The state of a hash, with its share of the run's memory limit.
struct HashState {
    context: Context,
    _held: Held,
}

impl UserData for HashState {}

impl Context {
    fn update(&mut self, data: &[u8]) {
        match self {
            Self::Digest(context) => context.update(data),
            Self::Hmac(context) => context.update(data),
        }
    }

    fn hex(self) -> String {
        match self {
            Self::Digest(context) => HEXLOWER.encode(context.finish().as_ref()),
            Self::Hmac(context) => HEXLOWER.encode(context.sign().as_ref()),
        }
    }
}

/// Returns the algorithms with this name.
fn algorithm(name: &LuaString) -> Result<(&'static digest::Algorithm, hmac::Algorithm), NativeError> {
    let known = ALGORITHMS.iter().find(|(known, ..)| name.as_bytes() == known.as_bytes());
    known
        .map(|(_, digest, hmac)| (*digest, *hmac))
        .ok_or_else(|| "the algorithm must be \"sha256\" or \"sha512\"".into())
}

fn new_state(lua: &Lua, exchange: &mut Exchange, context: Context) -> Result<AnyUserData, NativeError> {
    Ok(lua.create_userdata(HashState { context, _held: Beside::of(exchange).hold(STATE_BYTES) })?)
}

/// Calls `act` with the state of a hash.
fn with_state<R>(state: &Value, act: impl FnOnce(&mut HashState) -> R) -> Result<R, NativeError> {
    let state = state.as_userdata().and_then(|state| state.borrow_mut::<HashState>().ok());
    let mut state = state.ok_or("this is not a hash: call the methods as h:update(text) and h:hex()")?;
    Ok(act(&mut state))
}

fn install_hash(sandbox: &Sandbox) -> mlua::Result<()> {
    let start = sandbox.function(|lua, exchange, name: LuaString| {
        let (algorithm, _) = algorithm(&name)?;
        new_state(lua, exchange, Context::Digest(digest::Context::new(algorithm)))
    })?;
    let start_hmac = sandbox.function(|lua, exchange, (name, key): (LuaString, LuaString)| {
        let (_, algorithm) = algorithm(&name)?;
        check_length(&key)?;
        let key = hmac::Key::new(algorithm, &key.as_bytes());
        new_state(lua, exchange, Context::Hmac(Box::new(hmac::Context::with_key(&key))))
    })?;
    let add = sandbox.function(|_, _, (state, text): (Value, LuaString)| {
        check_length(&text)?;
        with_state(&state, |state| state.context.update(&text.as_bytes()))
    })?;
    let finish = sandbox.function(|_, _, state: Value| with_state(&state, |state| state.context.clone().hex()))?;
    let consume = sandbox.function(|_, _, state: AnyUserData| Ok(state.take::<HashState>()?.context.hex()))?;
    let once = sandbox.lua().create_table()?;
    for (name, digest_algorithm, hmac_algorithm) in ALGORITHMS {
        let made = sandbox.function(move |_, _, text: LuaString| {
            check_length(&text)?;
            Ok(HEXLOWER.encode(digest::digest(digest_algorithm, &text.as_bytes()).as_ref()))
        })?;
        once.raw_set(name, made)?;
        let made = sandbox.function(move |_, _, (key, text): (LuaString, LuaString)| {
            check_length(&key)?;
            check_length(&text)?;
            let key = hmac::Key::new(hmac_algorithm, &key.as_bytes());
            Ok(HEXLOWER.encode(hmac::sign(&key, &text.as_bytes()).as_ref()))
        })?;
        once.raw_set(format!("hmac_{name}"), made)?;
    }
    let code = sandbox.lua().load(HASH).set_name(format!("={PRELUDE}"));
    let hash: Table = code.call((start, start_hmac, add, finish, consume, once))?;
    let made = sandbox.function(|_, _, (one, other): (LuaString, LuaString)| {
        Ok(verify_slices_are_equal(&one.as_bytes(), &other.as_bytes()).is_ok())
    })?;
    hash.raw_set("equal", made)?;
    sandbox.global("hash", hash)
}

pub(super) fn install(sandbox: &Sandbox) -> mlua::Result<()> {
    install_hash(sandbox)?;
    let uuid = sandbox.lua().create_table()?;
    uuid.raw_set("v4", sandbox.function(|_, _, (): ()| Ok(new_v4()?.to_string()))?)?;
    uuid.raw_set("v7", sandbox.function(|_, _, (): ()| Ok(new_v7().to_string()))?)?;
    sandbox.global("uuid", uuid)?;

    let table = sandbox.lua().create_table()?;
    let made = sandbox.function(|lua, _, count: Option<f64>| Ok(lua.create_string(random_bytes(count)?)?))?;
    table.raw_set("bytes", made)?;
    let made = sandbox.function(|_, _, count: Option<f64>| Ok(BASE64URL_NOPAD.encode(&random_bytes(count)?)))?;
    table.raw_set("token", made)?;
    sandbox.global("random", table)
}

/// Creates a time-ordered UUID (RFC 9562 §5.7), which sorts after those that this process has created before.
fn new_v7() -> Uuid {
    static ORDER: Mutex<ContextV7> = Mutex::new(ContextV7::new());
    let now_ns = clock::unix_ns().max(0);
    let (seconds, nanoseconds) = (now_ns / 1_000_000_000, now_ns % 1_000_000_000);
    Uuid::new_v7(Timestamp::from_unix(&ORDER, seconds as u64, nanoseconds as u32))
}

/// Creates a random UUID (RFC 9562 §5.4).
fn new_v4() -> Result<Uuid, NativeError> {
    let mut bytes = [0; 16];
    fill(&mut bytes)?;
    Ok(Builder::from_random_bytes(bytes).into_uuid())
}

fn random_bytes(count: Option<f64>) -> Result<Vec<u8>, NativeError> {
    let count = count.unwrap_or(16.0);
    if count.fract() != 0.0 || !(1.0..=RANDOM_BYTES_MAX as f64).contains(&count) {
        return Err("one call can return 1 to 4,096 random bytes".into());
    }
    let mut bytes = vec![0; count as usize];
    fill(&mut bytes)?;
    Ok(bytes)
}

/// Fills `bytes` with cryptographically secure random bytes.
pub(super) fn fill(bytes: &mut [u8]) -> Result<(), NativeError> {
    random::fill(bytes).map_err(|_| "the system cannot provide random numbers".into())
}
