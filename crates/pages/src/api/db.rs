//! `db`: the database. Statements with parameters, one by one or as a transaction.
//!
//! Within `db.transaction(function() ... end)` the same functions speak to the transaction, so that no statement can
//! miss it, and none waits for the writer that its own page holds.

use super::Api;
use crate::exchange::{Beside, Exchange, Held, Unfinished};
use crate::sandbox::Sandbox;
use crate::sandbox::failure::PRELUDE;
use crate::sandbox::wait::{Fault, Made, Wanted, wanted};
use flatout_data::{DataError, Database, Parameters, Rows, Transaction, Value as Cell, ValueRef};
use mlua::{AnyUserData, Function, IntoLuaMulti, Lua, LuaString, MultiValue, Table, Value};
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

/// The part of `db.query` that is Luau: rows become tables a block at a time, so that no call of ours runs for long.
const QUERY: &str = r"
local ask, add = ...
return function(...)
    local rows, rest = ask(...)
    while rest do
        rest = add(rows, rest)
    end
    return rows
end
";

/// Of a block: values, and bytes of texts and blobs. The first row of a block is in it, whatever its size.
const BLOCK_CELLS: usize = 512;
const BLOCK_BYTES: usize = 64 * 1024;

/// What makes values of an answer.
type Make = fn(&Lua, Rows, Beside) -> mlua::Result<MultiValue>;

pub(super) fn install(sandbox: &Sandbox, api: &Rc<Api>) -> mlua::Result<()> {
    let db = sandbox.lua().create_table()?;
    let functions: [(&str, bool, Make); 4] = [
        ("query", false, |lua, rows, beside| {
            let table = lua.create_table_with_capacity(rows.len(), 0)?;
            let rest = Cursor::new(lua, rows, &beside)?.add(lua, &table)?;
            let rest = rest.map(|rest| lua.create_any_userdata(RefCell::new(Some(rest)))).transpose()?;
            (table, rest).into_lua_multi(lua)
        }),
        ("query_one", false, |lua, rows, _| first(lua, &rows)?.into_lua_multi(lua)),
        ("value", false, |lua, rows, _| rows.get(0, 0).map(|cell| shown(lua, cell)).transpose()?.into_lua_multi(lua)),
        ("exec", true, |lua, rows, _| {
            let result = lua.create_table()?;
            result.raw_set("changes", rows.changes as f64)?;
            result.raw_set("last_id", integer(lua, rows.last_insert_rowid)?)?;
            result.into_lua_multi(lua)
        }),
    ];
    for (name, writes, make) in functions {
        let using = Rc::clone(api);
        let mut made = sandbox.waiting(move |_, exchange, (sql, parameters): (LuaString, mlua::Variadic<Value>)| {
            run(&using, exchange, &sql, &parameters, writes, make)
        })?;
        if name == "query" {
            let add = sandbox.lua().create_function(|lua, (table, rest): (Table, AnyUserData)| {
                let rest_of = rest.borrow::<RefCell<Option<Cursor>>>()?;
                let Some(cursor) = rest_of.take() else { return Ok(None) };
                let Some(cursor) = cursor.add(lua, &table)? else { return Ok(None) };
                rest_of.replace(Some(cursor));
                drop(rest_of);
                Ok(Some(rest))
            })?;
            made = sandbox.lua().load(QUERY).set_name(format!("={PRELUDE}")).call((made, add))?;
        }
        db.raw_set(name, made)?;
    }
    db.raw_set("transaction", transaction(sandbox, api)?)?;
    sandbox.global("db", db)
}

/// Rows of which some are tables already.
struct Cursor {
    rows: Rows,
    names: Vec<LuaString>,
    next: usize,
    #[expect(dead_code, reason = "what is held is held as long as this is there")]
    held: Held,
}

impl Cursor {
    fn new(lua: &Lua, rows: Rows, beside: &Beside) -> mlua::Result<Self> {
        let names = names(lua, &rows)?;
        let held = beside.hold(rows.bytes());
        Ok(Self { rows, names, next: 0, held })
    }

    /// Adds the next block to `table`; `None`: it was the last.
    fn add(mut self, lua: &Lua, table: &Table) -> mlua::Result<Option<Self>> {
        let (mut cells, mut bytes) = (0, 0);
        while self.next < self.rows.len() {
            if cells >= BLOCK_CELLS || bytes >= BLOCK_BYTES {
                return Ok(Some(self));
            }
            cells += self.names.len();
            bytes += self.rows.row(self.next).map(size).sum::<usize>();
            self.next += 1;
            table.raw_set(self.next, row(lua, &self.rows, self.next - 1, &self.names)?)?;
        }
        Ok(None)
    }
}

/// Bytes of a value beside itself.
fn size(cell: ValueRef<'_>) -> usize {
    match cell {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
        _ => 0,
    }
}

fn transaction(sandbox: &Sandbox, api: &Rc<Api>) -> mlua::Result<Function> {
    let using = Rc::clone(api);
    let begin = sandbox.waiting(move |_, exchange, _: Function| {
        let leading = exchange.slot::<Leading>().clone();
        if leading.0.borrow().is_some() {
            return Err("a transaction within a transaction is not possible".into());
        }
        let pending = database(&using)?.begin();
        let unfinished = Unfinished::of(exchange);
        Ok(wanted(async move {
            let transaction = pending.await.map_err(|error| told(&error))?;
            unfinished.set(true);
            *leading.0.borrow_mut() = Some(transaction);
            Ok(())
        }))
    })?;
    let commit = sandbox.waiting(|_, exchange, (): ()| {
        Unfinished::of(exchange).set(false);
        let transaction = exchange.slot::<Leading>().0.take();
        let pending = transaction.ok_or("the transaction has ended already")?.commit();
        Ok(wanted(async move { pending.await.map_err(|error| told(&error)) }))
    })?;
    let rollback = sandbox.waiting(|_, exchange, (): ()| {
        Unfinished::of(exchange).set(false);
        let transaction = exchange.slot::<Leading>().0.take();
        Ok(wanted(async move {
            if let Some(transaction) = transaction {
                // Whatever it says, what made the page give up is what it should hear of.
                let _ = transaction.rollback().await;
            }
            Ok(())
        }))
    })?;
    sandbox.lua().load(TRANSACTION).set_name(format!("={PRELUDE}")).call((begin, commit, rollback))
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
    make: Make,
) -> Result<Wanted, Fault> {
    let sql = sql.as_bytes();
    let sql = std::str::from_utf8(&sql).map_err(|_| "a statement is text of UTF-8")?;
    let parameters = bound(parameters)?;
    let database = database(api)?;
    let beside = Beside::of(exchange);
    let leading = exchange.slot_if::<Leading>().map(|leading| leading.0.borrow());
    let pending = match leading.as_deref().and_then(Option::as_ref) {
        Some(transaction) => transaction.execute(sql, parameters),
        None if writes => database.execute(sql, parameters),
        None => database.query(sql, parameters),
    };
    Ok(Wanted::new(async move {
        let rows = pending.await.map_err(|error| told(&error))?;
        Ok(Made::new(rows.bytes(), move |lua| make(lua, rows, beside)))
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

fn first(lua: &Lua, rows: &Rows) -> mlua::Result<Option<Table>> {
    if rows.is_empty() {
        return Ok(None);
    }
    row(lua, rows, 0, &names(lua, rows)?).map(Some)
}

#[cfg(test)]
mod tests {
    use super::{BLOCK_CELLS, Beside, Cursor};
    use flatout_data::{Database, Limits, Parameters};
    use mlua::Lua;

    /// No call of ours makes more than a block of values, and rows count as held until the last is made.
    #[test]
    fn rows_become_tables_a_block_at_a_time() {
        let path = std::env::temp_dir().join(format!("flatout-rows-{}.db", std::process::id()));
        let database = Database::open(&path, 1, Limits::default()).unwrap();
        let sql =
            "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 1000) SELECT n, n AS m FROM c";
        let rows = database.query(sql, Parameters::None).wait().unwrap();
        let (lua, beside) = (Lua::new(), Beside::default());
        let table = lua.create_table().unwrap();
        let mut cursor = Some(Cursor::new(&lua, rows, &beside).unwrap());
        let mut counts = Vec::new();
        while let Some(rest) = cursor {
            assert_eq!(beside.held_bytes(), 16_000);
            cursor = rest.add(&lua, &table).unwrap();
            counts.push(table.raw_len());
        }
        assert_eq!(counts, [BLOCK_CELLS / 2, BLOCK_CELLS, BLOCK_CELLS * 3 / 2, 1000]);
        assert_eq!(beside.held_bytes(), 0);
        let sql =
            "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 9) SELECT zeroblob(50000) FROM c";
        let rows = database.query(sql, Parameters::None).wait().unwrap();
        let table = lua.create_table().unwrap();
        assert!(Cursor::new(&lua, rows, &beside).unwrap().add(&lua, &table).unwrap().is_some());
        assert_eq!(table.raw_len(), 2);
        drop(database);
        for ending in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{ending}", path.display()));
        }
    }
}
