//! A `pairs` that also supports `request.headers` and `session`, because Luau has no metamethod for `pairs`.

use crate::sandbox::Sandbox;
use crate::sandbox::failure::PRELUDE;
use crate::sandbox::json::type_name;
use mlua::{Table, Value};

/// The function is written in Luau because pages call it often: a native call costs several times as much.
const PAIRS: &str = r"
local next, type, getmetatable, listings, refuse = ...
return function(t)
    if type(t) ~= 'table' then
        refuse(t)
    end
    local kind = getmetatable(t)
    local list = if kind then listings[kind] else nil
    return next, if list then list(t) else t, nil
end
";

/// Installs `pairs`. `listings` maps the `__metatable` value of a table with virtual values to a function that returns
/// an ordinary table with these values.
pub(super) fn install(sandbox: &Sandbox, listings: Table) -> mlua::Result<()> {
    let globals = sandbox.lua().globals();
    let refuse = sandbox.function(|_, _, value: Value| {
        let given = type_name(&value);
        Err::<(), _>(format!("invalid argument #1 to 'pairs' (table expected, got {given})").into())
    })?;
    let get = |name: &str| globals.raw_get::<Value>(name);
    let pairs = sandbox.lua().load(PAIRS).set_name(format!("={PRELUDE}"));
    let pairs: Value = pairs.call((get("next")?, get("type")?, get("getmetatable")?, listings, refuse))?;
    sandbox.global("pairs", pairs)
}
