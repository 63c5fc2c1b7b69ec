//! `TIMEDATE()`, `time()`, `date` and `sleep`: the current time, date formats, and waiting for a time.

use super::Api;
use crate::sandbox::Sandbox;
use crate::sandbox::wait::{NativeError, wanted};
use flatout_net::task_deadlines::{DeadlineTable, DeadlineTimer};
use flatout_os::clock::Now;
use jiff::civil::DateTime;
use jiff::fmt::rfc2822;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use mlua::{Function, Lua, LuaString};
use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;

/// The format of `TIMEDATE()`, such as `Sat 21 Nov 2026 10:32:30 CET`.
const TIMEDATE_FORMAT: &str = "%a %d %b %Y %H:%M:%S %Z";
/// The default format of `date.format`.
const DEFAULT_FORMAT: &str = "%Y-%m-%d %H:%M:%S";
/// Longest time for which one call of `sleep` waits, in seconds.
const SLEEP_S_MAX: f64 = 60.0;
/// Precision of `sleep`, in milliseconds. While pages sleep, a worker checks for expired sleeps at this interval.
const SLEEP_PRECISION_MS: u64 = 10;
/// Maximum length of a format, in bytes.
const FORMAT_BYTES_MAX: usize = 256;
/// Maximum length of a string that is parsed as a date, in bytes.
const TEXT_BYTES_MAX: usize = 128;

/// A string that is formatted once per second and shared.
#[derive(Default)]
struct Ticking {
    second: i64,
    text: Option<LuaString>,
}

impl Ticking {
    fn text(&mut self, lua: &Lua, zone: &TimeZone) -> Result<LuaString, NativeError> {
        let now_s = Now::read().unix_s;
        if let Some(text) = self.text.as_ref().filter(|_| self.second == now_s) {
            return Ok(text.clone());
        }
        let text = lua.create_string(format(&zoned(now_s as f64, zone)?, TIMEDATE_FORMAT)?)?;
        *self = Self { second: now_s, text: Some(text.clone()) };
        Ok(text)
    }
}

pub(super) fn install(sandbox: &Sandbox, api: &Rc<Api>) -> mlua::Result<()> {
    let ticking = RefCell::new(Ticking::default());
    let zone = api.settings.zone.clone();
    let timedate = sandbox.function(move |lua, _, (): ()| match ticking.try_borrow_mut() {
        Ok(mut ticking) => ticking.text(lua, &zone),
        Err(_) => Err("TIMEDATE must not refer to itself".into()),
    })?;
    sandbox.global("TIMEDATE", timedate)?;
    sandbox.global("time", sandbox.function(|_, _, (): ()| Ok(Now::read().unix_s as f64))?)?;

    sandbox.global("sleep", sleep(sandbox)?)?;

    let date = sandbox.lua().create_table()?;
    let local = api.settings.zone.clone();
    let made =
        sandbox.function(move |_, _, (time_s, how, zone): (Option<f64>, Option<LuaString>, Option<LuaString>)| {
            let zoned = zoned(or_now(time_s), &named_zone(zone.as_ref(), &local)?)?;
            match how {
                Some(how) => format(&zoned, &text_of(&how)?),
                None => format(&zoned, DEFAULT_FORMAT),
            }
        })?;
    date.raw_set("format", made)?;
    let local = api.settings.zone.clone();
    let made = sandbox.function(move |_, _, (time_s, zone): (Option<f64>, Option<LuaString>)| {
        let zoned = zoned(or_now(time_s), &named_zone(zone.as_ref(), &local)?)?;
        format(&zoned, if zoned.offset().is_zero() { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S%:z" })
    })?;
    date.raw_set("iso", made)?;
    let made = sandbox.function(|lua, _, time_s: Option<f64>| {
        let bytes = flatout_http::date::format_date(whole(or_now(time_s))?);
        Ok(lua.create_string(bytes)?)
    })?;
    date.raw_set("http", made)?;
    let local = api.settings.zone.clone();
    let made = sandbox.function(move |lua, _, (time_s, zone): (Option<f64>, Option<LuaString>)| {
        let zoned = zoned(or_now(time_s), &named_zone(zone.as_ref(), &local)?)?;
        let parts = lua.create_table()?;
        parts.raw_set("year", zoned.year())?;
        parts.raw_set("month", zoned.month())?;
        parts.raw_set("day", zoned.day())?;
        parts.raw_set("hour", zoned.hour())?;
        parts.raw_set("minute", zoned.minute())?;
        parts.raw_set("second", zoned.second())?;
        parts.raw_set("weekday", zoned.weekday().to_monday_one_offset())?;
        parts.raw_set("day_of_year", zoned.day_of_year())?;
        Ok(parts)
    })?;
    date.raw_set("parts", made)?;
    let local = api.settings.zone.clone();
    let made = sandbox.function(move |_, _, (text, zone): (LuaString, Option<LuaString>)| {
        let zone = named_zone(zone.as_ref(), &local)?;
        Ok(parse(&text.as_bytes(), &zone).map(|time_s| time_s as f64))
    })?;
    date.raw_set("parse", made)?;
    sandbox.global("date", date)
}

/// Creates `sleep`. The page waits like for a database, and the worker serves other requests.
fn sleep(sandbox: &Sandbox) -> mlua::Result<Function> {
    let deadlines = Rc::<DeadlineTable>::default();
    sandbox.waiting(move |_, exchange, seconds: f64| {
        if !(0.0..=SLEEP_S_MAX).contains(&seconds) {
            return Err("sleep accepts 0 to 60 seconds".into());
        }
        if exchange.is_unfinished() {
            return Err("sleep must not be called inside a transaction, because all other writes would wait".into());
        }
        let deadlines = Rc::clone(&deadlines);
        Ok(wanted(async move {
            let mut timer = DeadlineTimer::new(&deadlines);
            timer.begin((seconds * 1000.0).ceil() as u64);
            deadlines.keep_swept(SLEEP_PRECISION_MS);
            poll_fn(|context| timer.poll_expired(context)).await;
            Ok(())
        }))
    })
}

fn or_now(time_s: Option<f64>) -> f64 {
    time_s.unwrap_or_else(|| Now::read().unix_s as f64)
}

fn whole(time_s: f64) -> Result<i64, NativeError> {
    // All formats can represent the years 1 to 9999.
    let whole = time_s.floor();
    if (-62_135_596_800.0..253_402_207_200.0).contains(&whole) {
        Ok(whole as i64)
    } else {
        Err("the time is outside the years 1 to 9999".into())
    }
}

fn zoned(time_s: f64, zone: &TimeZone) -> Result<Zoned, NativeError> {
    let timestamp = Timestamp::from_second(whole(time_s)?).map_err(|error| NativeError::from(error.to_string()))?;
    Ok(timestamp.to_zoned(zone.clone()))
}

fn named_zone(name: Option<&LuaString>, local: &TimeZone) -> Result<TimeZone, NativeError> {
    let Some(name) = name else { return Ok(local.clone()) };
    let name = text_of(name)?;
    if name.eq_ignore_ascii_case("UTC") {
        return Ok(TimeZone::UTC);
    }
    if name.len() > 64 {
        return Err("the name of the time zone is too long".into());
    }
    TimeZone::get(&name).map_err(|_| format!("there is no time zone \"{name}\" here").into())
}

fn text_of(text: &LuaString) -> Result<String, NativeError> {
    let bytes = text.as_bytes();
    if bytes.len() > FORMAT_BYTES_MAX {
        return Err("the format is longer than 256 bytes".into());
    }
    std::str::from_utf8(&bytes).map(str::to_owned).map_err(|_| "the string is not valid UTF-8".into())
}

fn format(zoned: &Zoned, how: &str) -> Result<String, NativeError> {
    jiff::fmt::strtime::format(how, zoned).map_err(|error| format!("the format \"{how}\" is invalid: {error}").into())
}

/// Parses an ISO 8601 date with or without a time and an offset, an HTTP date, or an RFC 2822 date. A date without an
/// offset is in `zone`.
fn parse(text: &[u8], zone: &TimeZone) -> Option<i64> {
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?.trim();
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Some(timestamp.as_second());
    }
    if let Ok(civil) = text.parse::<DateTime>() {
        return civil.to_zoned(zone.clone()).ok().map(|zoned| zoned.timestamp().as_second());
    }
    flatout_http::date::parse_date(text.as_bytes())
        .or_else(|| rfc2822::parse(text).ok().map(|zoned| zoned.timestamp().as_second()))
}

#[cfg(test)]
mod tests {
    use super::parse;
    use jiff::tz::{TimeZone, offset};
    use proptest::prelude::*;

    #[test]
    fn texts_that_name_a_time() {
        let zone = TimeZone::fixed(offset(2));
        for (text, expected) in [
            ("1994-11-06T08:49:37Z", Some(784_111_777)),
            ("1994-11-06T10:49:37+02:00", Some(784_111_777)),
            ("1994-11-06 10:49:37", Some(784_111_777)),
            ("1994-11-06T10:49", Some(784_111_740)),
            ("1994-11-06", Some(784_072_800)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            ("Sun, 6 Nov 1994 09:49:37 +0100", Some(784_111_777)),
            ("yesterday", None),
            ("", None),
            ("1994-13-01", None),
        ] {
            assert_eq!(parse(text.as_bytes(), &zone), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn nothing_that_comes_is_fatal(text in any::<Vec<u8>>(), words in "[0-9TZ:+ -]{0,30}") {
            parse(&text, &TimeZone::UTC);
            parse(words.as_bytes(), &TimeZone::UTC);
        }
    }
}
