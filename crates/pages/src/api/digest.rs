//! `hash`, `uuid` and `random`.

use super::convert::check_length;
use crate::sandbox::Sandbox;
use crate::sandbox::wait::NativeError;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{Algorithm, SHA256, SHA512, digest};
use aws_lc_rs::hmac;
use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use flatout_os::{clock, random};
use mlua::LuaString;
use std::sync::Mutex;
use uuid::{Builder, ContextV7, Timestamp, Uuid};

/// Maximum number of random bytes per call.
const RANDOM_BYTES_MAX: usize = 4096;

pub(super) fn install(sandbox: &Sandbox) -> mlua::Result<()> {
    let hash = sandbox.lua().create_table()?;
    let plain: [(&str, &'static Algorithm); 2] = [("sha256", &SHA256), ("sha512", &SHA512)];
    for (name, algorithm) in plain {
        let made = sandbox.function(move |_, _, text: LuaString| {
            check_length(&text)?;
            Ok(HEXLOWER.encode(digest(algorithm, &text.as_bytes()).as_ref()))
        })?;
        hash.raw_set(name, made)?;
    }
    for (name, algorithm) in [("hmac_sha256", hmac::HMAC_SHA256), ("hmac_sha512", hmac::HMAC_SHA512)] {
        let made = sandbox.function(move |_, _, (key, text): (LuaString, LuaString)| {
            check_length(&text)?;
            check_length(&key)?;
            let tag = hmac::sign(&hmac::Key::new(algorithm, &key.as_bytes()), &text.as_bytes());
            Ok(HEXLOWER.encode(tag.as_ref()))
        })?;
        hash.raw_set(name, made)?;
    }
    let made = sandbox.function(|_, _, (one, other): (LuaString, LuaString)| {
        Ok(verify_slices_are_equal(&one.as_bytes(), &other.as_bytes()).is_ok())
    })?;
    hash.raw_set("equal", made)?;
    sandbox.global("hash", hash)?;

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
