//! `db`: the database. Statements with parameters, one by one or as a transaction.
//!
//! Within `db.transaction(function() ... end)` the same functions speak to the transaction, so that no statement can
//! miss it, and none waits for the writer that its own page holds.

use super::Api;
use crate::exchange::Exchange;
use crate::sandbox::Sandbox;
use crate::sandbox::wait::{Fault, MakeValues, Wanted, wanted};
use flatout_data::{DataError, Database, Parameters, Rows, Transaction, Value as Cell, ValueRef};
use mlua::{Function, IntoLuaMulti, Lua, LuaString, MultiValue, Table, Value};
use std::cell::RefCell;
use std::rc::Rc;

/// A number of this size and above may stand for another one: doubles hold 53 bits.
const EXACT_MAX: i64 = 1 << 53;

/// The transaction that one request's page leads.
#[derive(Clone, Default)]
struct Leading(Rc<RefCell<Option<Transaction>>>);

/// The part of `db.transaction` that is Luau: the page's function may wait, so it cannot be called from here.
const TRANSACTION: &str = r"
local begin, commit, rollback = ...
local pcall, error, pack, unpack = pcall, error, table.pack, table.unpack
return function(work)
    begin(work)
    local results = pack(pcall(work))
    if not results[1] then
        rollback()
        error(results[2], 0)
    end
    commit()
    return unpack(results, 2, results.n)
end
";

pub(super) fn install(sandbox: &Sandbox, api: &Rc<Api>) -> mlua::Result<()> {
    let db = sandbox.lua().create_table()?;
    type Make = fn(&Lua, &Rows) -> mlua::Result<MultiValue>;
    let functions: [(&str, bool, Make); 4] = [
        ("query", false, |lua, rows| all(lua, rows)?.into_lua_multi(lua)),
        ("query_one", false, |lua, rows| first(lua, rows)?.into_lua_multi(lua)),
        ("value", false, |lua, rows| rows.get(0, 0).map(|cell| shown(lua, cell)).transpose()?.into_lua_multi(lua)),
        ("exec", true, |lua, rows| {
            let result = lua.create_table()?;
            result.raw_set("changes", rows.changes as f64)?;
            result.raw_set("last_id", integer(lua, rows.last_insert_rowid)?)?;
            result.into_lua_multi(lua)
        }),
    ];
    for (name, writes, make) in functions {
        let using = Rc::clone(api);
        let made = sandbox.waiting(move |_, exchange, (sql, parameters): (LuaString, mlua::Variadic<Value>)| {
            run(&using, exchange, &sql, &parameters, writes, make)
        })?;
        db.raw_set(name, made)?;
    }
    db.raw_set("transaction", transaction(sandbox, api)?)?;
    sandbox.global("db", db)
}

fn transaction(sandbox: &Sandbox, api: &Rc<Api>) -> mlua::Result<Function> {
    let using = Rc::clone(api);
    let begin = sandbox.waiting(move |_, exchange, _: Function| {
        let leading = exchange.slot::<Leading>().clone();
        if leading.0.borrow().is_some() {
            return Err("a transaction within a transaction is not possible".into());
        }
        let pending = database(&using)?.begin();
        Ok(wanted(async move {
            let transaction = pending.await.map_err(|error| told(&error))?;
            *leading.0.borrow_mut() = Some(transaction);
            Ok(())
        }))
    })?;
    let commit = sandbox.waiting(|_, exchange, (): ()| {
        let transaction = exchange.slot::<Leading>().0.take();
        let pending = transaction.ok_or("the transaction has ended already")?.commit();
        Ok(wanted(async move { pending.await.map_err(|error| told(&error)) }))
    })?;
    let rollback = sandbox.waiting(|_, exchange, (): ()| {
        let transaction = exchange.slot::<Leading>().0.take();
        Ok(wanted(async move {
            if let Some(transaction) = transaction {
                // Whatever it says, what made the page give up is what it should hear of.
                let _ = transaction.rollback().await;
            }
            Ok(())
        }))
    })?;
    sandbox.lua().load(TRANSACTION).set_name("=db.transaction").call((begin, commit, rollback))
}

fn database(api: &Api) -> Result<&Database, Fault> {
    api.settings
        .database
        .as_ref()
        .ok_or_else(|| "there is no database: add `database \"./data/site.db\"` to the settings of these pages".into())
}

/// Gives a statement to the database, or to the transaction that the page leads.
fn run(
    api: &Api,
    exchange: &mut Exchange,
    sql: &LuaString,
    parameters: &[Value],
    writes: bool,
    make: fn(&Lua, &Rows) -> mlua::Result<MultiValue>,
) -> Result<Wanted, Fault> {
    let sql = sql.as_bytes();
    let sql = std::str::from_utf8(&sql).map_err(|_| "a statement is text of UTF-8")?;
    let parameters = bound(parameters)?;
    let database = database(api)?;
    let leading = exchange.slot_if::<Leading>().map(|leading| leading.0.borrow());
    let pending = match leading.as_deref().and_then(Option::as_ref) {
        Some(transaction) => transaction.execute(sql, parameters),
        None if writes => database.execute(sql, parameters),
        None => database.query(sql, parameters),
    };
    Ok(Box::pin(async move {
        let rows = pending.await.map_err(|error| told(&error))?;
        let make: MakeValues = Box::new(move |lua| make(lua, &rows));
        Ok(make)
    }))
}

fn told(error: &DataError) -> Fault {
    error.to_string().into()
}

/// Values for `?`, one after the other, or one table of names for `:name`.
fn bound(values: &[Value]) -> Result<Parameters, Fault> {
    if let [Value::Table(named)] = values {
        let mut parameters = Vec::new();
        named.for_each(|name: Value, value: Value| {
            let Value::String(name) = name else {
                return Err(mlua::Error::runtime(
                    "a table of parameters has names as keys: give values for ? one by one",
                ));
            };
            let name = name.to_str().map_err(|_| mlua::Error::runtime("a parameter's name is text of UTF-8"))?;
            parameters.push((name.to_owned(), cell(&value).map_err(|fault| mlua::Error::runtime(fault.to_string()))?));
            Ok(())
        })?;
        return Ok(Parameters::Named(parameters));
    }
    Ok(Parameters::from(values.iter().map(cell).collect::<Result<Vec<Cell>, Fault>>()?))
}

/// A page's value as SQLite has it.
fn cell(value: &Value) -> Result<Cell, Fault> {
    match value {
        Value::Nil => Ok(Cell::Null),
        null if *null == Value::NULL => Ok(Cell::Null),
        Value::Boolean(value) => Ok(Cell::Integer(i64::from(*value))),
        Value::Integer(number) if number.abs() < EXACT_MAX => Ok(Cell::Integer(*number)),
        Value::Integer(number) => Ok(Cell::Real(*number as f64)),
        Value::Number(number) => Ok(Cell::Real(*number)),
        Value::String(text) => match text.to_str() {
            Ok(text) => Ok(Cell::Text(text.to_owned())),
            Err(_) => Err("a text for the database is UTF-8: give other bytes as a buffer".into()),
        },
        Value::Buffer(buffer) => Ok(Cell::Blob(buffer.to_vec())),
        other => {
            Err(format!("a parameter is a text, a number, true, false, nil or a buffer, not a {}", other.type_name())
                .into())
        }
    }
}

/// SQLite's value as a page has it. NULL is nil.
fn shown(lua: &Lua, cell: ValueRef<'_>) -> mlua::Result<Value> {
    Ok(match cell {
        ValueRef::Null => Value::Nil,
        ValueRef::Integer(number) => integer(lua, number)?,
        ValueRef::Real(number) => Value::Number(number),
        ValueRef::Text(text) => Value::String(lua.create_string(text)?),
        ValueRef::Blob(bytes) => Value::Buffer(lua.create_buffer(bytes)?),
    })
}

/// A whole number of 64 bits: as a number where that is exact, else as a text, which loses nothing.
pub(super) fn integer(lua: &Lua, number: i64) -> mlua::Result<Value> {
    if (-EXACT_MAX..=EXACT_MAX).contains(&number) {
        Ok(Value::Number(number as f64))
    } else {
        Ok(Value::String(lua.create_string(number.to_string())?))
    }
}

/// The columns' names as the page's texts, made once for all rows.
fn names(lua: &Lua, rows: &Rows) -> mlua::Result<Vec<LuaString>> {
    rows.columns().iter().map(|name| lua.create_string(&**name)).collect()
}

fn row(lua: &Lua, rows: &Rows, index: usize, names: &[LuaString]) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(0, names.len())?;
    for (name, cell) in names.iter().zip(rows.row(index)) {
        let value = shown(lua, cell)?;
        if !value.is_nil() {
            table.raw_set(name, value)?;
        }
    }
    Ok(table)
}

fn all(lua: &Lua, rows: &Rows) -> mlua::Result<Table> {
    let names = names(lua, rows)?;
    let table = lua.create_table_with_capacity(rows.len(), 0)?;
    for index in 0..rows.len() {
        table.raw_set(index + 1, row(lua, rows, index, &names)?)?;
    }
    Ok(table)
}

fn first(lua: &Lua, rows: &Rows) -> mlua::Result<Option<Table>> {
    if rows.is_empty() {
        return Ok(None);
    }
    row(lua, rows, 0, &names(lua, rows)?).map(Some)
}
