//! Integers that Luau's numbers cannot represent. Luau's numbers are doubles, which hold 53 bits. A larger integer
//! becomes a string of its digits, so that it is never rounded silently.

use mlua::{Lua, Value};

/// Integers above this magnitude are not all exact as doubles.
pub(crate) const EXACT_MAX: i64 = 1 << 53;

/// Returns whether every integer of this magnitude is exact as a double.
pub(crate) fn is_exact(number: i64) -> bool {
    (-EXACT_MAX..=EXACT_MAX).contains(&number)
}

/// Converts a 64-bit integer to a number if that is exact, and otherwise to a string of its digits.
pub(crate) fn integer(lua: &Lua, number: i64) -> mlua::Result<Value> {
    if is_exact(number) {
        Ok(Value::Number(number as f64))
    } else {
        Ok(Value::String(lua.create_string(number.to_string())?))
    }
}
