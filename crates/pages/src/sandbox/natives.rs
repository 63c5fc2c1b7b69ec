//! Native functions: making Rust functions available to pages, and the native functions of the prelude.

use super::failure::{CodeLocation, MARK, RunFailure, is_memory};
use super::hub::Hub;
use super::wait::NativeError;
use crate::exchange::Exchange;
use mlua::{FromLuaMulti, Function, IntoLuaMulti, Lua, LuaString, MultiValue, Table, Thread, Value};
use std::rc::Rc;

impl From<NativeError> for mlua::Error {
    fn from(fault: NativeError) -> Self {
        Self::RuntimeError(fault.0.into_owned())
    }
}

/// Implements [`Sandbox::function`](super::Sandbox::function).
pub(crate) fn function<A, R>(
    lua: &Lua,
    hub: &Rc<Hub>,
    act: impl Fn(&Lua, &mut Exchange, A) -> Result<R, NativeError> + 'static,
) -> mlua::Result<Function>
where
    A: FromLuaMulti,
    R: IntoLuaMulti,
{
    let hub = Rc::clone(hub);
    lua.create_function(move |lua, given: A| Ok(hub.with(|exchange| act(lua, exchange, given))?))
}

/// Creates a native function that ends the page if `act` succeeds; implements
/// [`Sandbox::ending`](super::Sandbox::ending).
pub(crate) fn ending<A: FromLuaMulti>(
    lua: &Lua,
    hub: &Rc<Hub>,
    act: impl Fn(&Lua, &mut Exchange, A) -> Result<(), NativeError> + 'static,
) -> mlua::Result<Function> {
    function(lua, hub, move |lua, exchange, given: A| {
        act(lua, exchange, given)?;
        exchange.halt(|| CodeLocation::here(lua).line());
        Ok(())
    })
}

/// The error of a native function that is called after the page has ended.
pub(crate) const ENDED: &str = "the page has ended";

/// The error of a wait in a context where waiting is impossible.
pub(crate) const CANNOT_WAIT: &str = "cannot yield inside a metamethod or a callback of a built-in function";

/// Adds the native functions of the prelude, except for string searches.
pub(crate) fn lay(lua: &Lua, hub: &Rc<Hub>, natives: &Table) -> mlua::Result<()> {
    let at = Rc::clone(hub);
    let error_text = lua.create_function(move |lua, (error, goes_on): (Value, Option<bool>)| {
        error_text(lua, &at, error, goes_on.unwrap_or(false))
    })?;
    natives.set("error_text", error_text)?;
    let at = Rc::clone(hub);
    natives.set("refuse_wait", lua.create_function(move |_, ()| Ok(at.refuse_wait()?))?)?;
    let cannot_wait = lua.create_function(|_, ()| Err::<(), _>(NativeError::from(CANNOT_WAIT).into()))?;
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

/// Converts the error of a native function to a string for the page, with its place. If memory is exhausted, ends the
/// run.
///
/// If `goes_on` is true, the error keeps its mark, for the handler that catches it.
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
    let failure = RunFailure::of_error(&error);
    let text = if goes_on { failure.marked_text() } else { failure.text(hub.lines.borrow().as_deref()) };
    lua.create_string(text).map(Value::String)
}

/// Returns the result of the wait to the page.
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
        None => Err(mlua::Error::runtime("there is no result to return")),
    }
}
