//! Natives: how a Rust function becomes one that pages call, and those that the prelude stands on.

use super::failure::{Failure, MARK, Place, is_memory};
use super::hub::Hub;
use super::wait::Fault;
use crate::exchange::Exchange;
use mlua::{FromLuaMulti, Function, IntoLuaMulti, Lua, LuaString, MultiValue, Table, Thread, Value};
use std::rc::Rc;

impl From<Fault> for mlua::Error {
    fn from(fault: Fault) -> Self {
        Self::RuntimeError(fault.0.into_owned())
    }
}

/// See [`Sandbox::function`](super::Sandbox::function).
pub(crate) fn function<A, R>(
    lua: &Lua,
    hub: &Rc<Hub>,
    act: impl Fn(&Lua, &mut Exchange, A) -> Result<R, Fault> + 'static,
) -> mlua::Result<Function>
where
    A: FromLuaMulti,
    R: IntoLuaMulti,
{
    let hub = Rc::clone(hub);
    lua.create_function(move |lua, given: A| Ok(hub.with(|exchange| act(lua, exchange, given))?))
}

/// A native that ends the page when `act` succeeds; see [`Sandbox::ending`](super::Sandbox::ending).
pub(crate) fn ending<A: FromLuaMulti>(
    lua: &Lua,
    hub: &Rc<Hub>,
    act: impl Fn(&Lua, &mut Exchange, A) -> Result<(), Fault> + 'static,
) -> mlua::Result<Function> {
    function(lua, hub, move |lua, exchange, given: A| {
        act(lua, exchange, given)?;
        exchange.halt(|| Place::here(lua).line());
        Ok(())
    })
}

/// The error that a page gets which calls a native after it has ended.
pub(crate) const ENDED: &str = "the page has ended";

/// What is said of a wait that cannot be.
pub(crate) const CANNOT_WAIT: &str = "a metamethod or a callback of a native cannot wait";

/// What the prelude stands on, beside the searches in strings.
pub(crate) fn lay(lua: &Lua, hub: &Rc<Hub>, natives: &Table) -> mlua::Result<()> {
    let at = Rc::clone(hub);
    let error_text = lua.create_function(move |lua, (error, goes_on): (Value, Option<bool>)| {
        error_text(lua, &at, error, goes_on.unwrap_or(false))
    })?;
    natives.set("error_text", error_text)?;
    let at = Rc::clone(hub);
    natives.set("refuse_wait", lua.create_function(move |_, ()| Ok(at.refuse_wait()?))?)?;
    let cannot_wait = lua.create_function(|_, ()| Err::<(), _>(Fault::from(CANNOT_WAIT).into()))?;
    natives.set("cannot_wait", cannot_wait)?;
    let fail = lua.create_function(|_, text: LuaString| Err::<(), _>(mlua::Error::runtime(text.to_string_lossy())))?;
    natives.set("fail", fail)?;
    let at = Rc::clone(hub);
    natives.set("is_main", lua.create_function(move |_, thread: Thread| Ok(thread.to_pointer() == at.main.get()))?)?;
    let at = Rc::clone(hub);
    natives.set("take", lua.create_function(move |lua, ()| take(lua, &at))?)?;
    let at = Rc::clone(hub);
    let reserve = lua.create_function(move |lua, bytes: f64| Ok(at.reserve(lua, bytes as usize)?))?;
    natives.set("reserve", reserve)?;
    natives.set(
        "flush",
        function(lua, hub, |_, exchange, ()| {
            exchange.flush = true;
            Ok(())
        })?,
    )?;
    natives.set("halt", ending(lua, hub, |_, _, ()| Ok(()))?)?;
    natives.set("refuse", function(lua, hub, |_, _, ()| Err::<(), _>(ENDED.into()))?)?;
    natives.set(
        "print",
        function(lua, hub, |_, exchange, text: LuaString| {
            exchange.print(&text.as_bytes());
            Ok(())
        })?,
    )
}

/// A native's error as the text that the page is to see, with its place; and a want of memory, which ends the run.
///
/// One that goes on, to whoever catches it, keeps its mark.
fn error_text(lua: &Lua, hub: &Hub, error: Value, goes_on: bool) -> mlua::Result<Value> {
    let error = match error {
        Value::Error(error) => *error,
        Value::String(text) if text.as_bytes().starts_with(&[MARK as u8]) => {
            mlua::Error::RuntimeError(text.to_string_lossy())
        }
        other => {
            if other.is_string() {
                hub.meter.exceed_memory(lua);
            }
            return Ok(other);
        }
    };
    if is_memory(&error) {
        hub.meter.exceed_memory(lua);
    }
    let failure = Failure::of_error(&error);
    let text = if goes_on { failure.marked_text() } else { failure.text(hub.lines.borrow().as_deref()) };
    lua.create_string(text).map(Value::String)
}

/// What came of the wait.
fn take(lua: &Lua, hub: &Hub) -> mlua::Result<MultiValue> {
    let answer = hub.answer.borrow_mut().take();
    match answer {
        Some(Ok(made)) => {
            if made.bytes > 0 {
                hub.reserve(lua, made.bytes)?;
            }
            (made.make)(lua)
        }
        Some(Err(fault)) => Err(fault.into()),
        None => Err(mlua::Error::runtime("nothing was waited for")),
    }
}
