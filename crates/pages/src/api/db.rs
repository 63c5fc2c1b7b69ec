//! `db`: the database. Runs statements with parameters, individually or in a transaction.
//!
//! Inside `db.transaction(function() ... end)`, the same functions use the transaction. This way, no statement can
//! bypass the transaction, and none waits for the writer that its own page holds.

use super::Api;
use super::refusal::{PageRefusal, RefusalCell};
use crate::exchange::{Exchange, Unfinished};
use crate::sandbox::Sandbox;
use crate::sandbox::failure::PRELUDE;
use crate::sandbox::json::object_mark;
use crate::sandbox::number::{EXACT_MAX, integer, is_exact};
use crate::sandbox::wait::{Made, NativeError, Wanted, wanted};
use flatout_data::{DataError, DataReason, Database, Parameters, Rows, Transaction, Value as Cell, ValueRef};
use mlua::{Function, IntoLuaMulti, Lua, LuaString, MultiValue, Value};
use std::cell::RefCell;
use std::rc::Rc;

/// The open transaction of a request's page.
#[derive(Clone, Default)]
struct Leading(Rc<RefCell<Option<Transaction>>>);

/// The Luau part of `db.transaction`. The page's function may wait, so it cannot be called from Rust.
const TRANSACTION: &str = r"
local begin, commit, rollback, pcall = ...
local error, pack, unpack = error, table.pack, table.unpack
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

/// The Luau part of `db.query` and `db.query_one`. It turns rows into tables in Luau, where the work counts towards the
/// page's time slice and creating a value needs no native call. Table layouts are cached by column names, because sites
/// repeat their queries. Each row is marked as a JSON object, which matters if all of its values are NULL.
const UNPACK: &str = r"
local ask, is_one, mark = ...
local setmetatable = setmetatable
local readu8, readu32, readf64, readstring = buffer.readu8, buffer.readu32, buffer.readf64, buffer.readstring
local new_buffer, copy = buffer.create, buffer.copy
local clone, new_table = table.clone, table.create
local SHAPES_MAX = 256
local shapes, shapes_count = {}, 0

local function learn(packed, key, at, last)
    local names, row = {}, {}
    while at < last do
        local length = readu32(packed, at)
        local name = readstring(packed, at + 4, length)
        names[#names + 1] = name
        row[name] = false
        at += 4 + length
    end
    if shapes_count == SHAPES_MAX then
        shapes, shapes_count = {}, 0
    end
    local shape = { names = names, row = setmetatable(row, mark) }
    shapes[key] = shape
    shapes_count += 1
    return shape
end

return function(...)
    local packed, count = ask(...)
    local at = 4 + readu32(packed, 0)
    local key = readstring(packed, 4, at - 4)
    local shape = shapes[key] or learn(packed, key, 4, at)
    local names, row = shape.names, shape.row
    local width = #names
    local rows = new_table(count)
    for number = 1, count do
        local made = clone(row)
        for column = 1, width do
            local kind = readu8(packed, at)
            if kind == 1 then
                local length = readu32(packed, at + 1)
                made[names[column]] = readstring(packed, at + 5, length)
                at += 5 + length
            elseif kind == 2 then
                made[names[column]] = readf64(packed, at + 1)
                at += 9
            elseif kind == 0 then
                made[names[column]] = nil
                at += 1
            else
                local length = readu32(packed, at + 1)
                local blob = new_buffer(length)
                copy(blob, 0, packed, at + 5, length)
                made[names[column]] = blob
                at += 5 + length
            end
        end
        if is_one then
            return made
        end
        rows[number] = made
    end
    if is_one then
        return nil
    end
    return rows
end
";

/// Type tags of the values in the input of [`UNPACK`]; each value begins with its tag.
const NULL: u8 = 0;
const TEXT: u8 = 1;
const NUMBER: u8 = 2;
const BLOB: u8 = 3;

/// Creates the Luau values of a result.
type Make = fn(&Lua, &Rows) -> mlua::Result<MultiValue>;

pub(super) fn install(sandbox: &Sandbox, api: &Rc<Api>) -> mlua::Result<()> {
    let db = sandbox.lua().create_table()?;
    let packed: Make = |lua, rows| (lua.create_buffer(pack(rows))?, rows.len()).into_lua_multi(lua);
    let functions: [(&str, bool, Make); 4] = [
        ("query", false, packed),
        ("query_one", false, packed),
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
        let mut made = sandbox.waiting(move |_, exchange, (sql, parameters): (LuaString, mlua::Variadic<Value>)| {
            run(&using, exchange, &sql, &parameters, writes, make)
        })?;
        if name.starts_with("query") {
            let unpack = sandbox.lua().load(UNPACK).set_name(format!("={PRELUDE}"));
            made = unpack.call((made, name == "query_one", object_mark(sandbox.lua())?))?;
        }
        db.raw_set(name, made)?;
    }
    db.raw_set("transaction", transaction(sandbox, api)?)?;
    sandbox.global("db", db)
}

/// Encodes rows in the form that [`UNPACK`] reads: the total length of all names, the names, and the values row by row.
/// Lengths have four bytes, little-endian, as `buffer.readu32` expects.
fn pack(rows: &Rows) -> Vec<u8> {
    let cells = rows.len() * rows.columns().len();
    let mut packed = Vec::with_capacity(rows.bytes() + 5 * cells + 64);
    packed.extend_from_slice(&[0; 4]);
    for name in rows.columns() {
        append(&mut packed, name.as_bytes());
    }
    let names_bytes = (packed.len() - 4) as u32;
    packed[..4].copy_from_slice(&names_bytes.to_le_bytes());
    for cell in (0..rows.len()).flat_map(|index| rows.row(index)) {
        match cell {
            ValueRef::Null => packed.push(NULL),
            ValueRef::Integer(number) if is_exact(number) => append_number(&mut packed, number as f64),
            ValueRef::Integer(number) => append_as(&mut packed, TEXT, number.to_string().as_bytes()),
            ValueRef::Real(number) => append_number(&mut packed, number),
            ValueRef::Text(text) => append_as(&mut packed, TEXT, text),
            ValueRef::Blob(bytes) => append_as(&mut packed, BLOB, bytes),
        }
    }
    packed
}

fn append(packed: &mut Vec<u8>, bytes: &[u8]) {
    packed.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    packed.extend_from_slice(bytes);
}

fn append_as(packed: &mut Vec<u8>, mark: u8, bytes: &[u8]) {
    packed.push(mark);
    append(packed, bytes);
}

fn append_number(packed: &mut Vec<u8>, number: f64) {
    packed.push(NUMBER);
    packed.extend_from_slice(&number.to_le_bytes());
}

fn transaction(sandbox: &Sandbox, api: &Rc<Api>) -> mlua::Result<Function> {
    let using = Rc::clone(api);
    let begin = sandbox.waiting(move |_, exchange, _: Function| {
        let leading = exchange.slot::<Leading>().clone();
        if leading.0.borrow().is_some() {
            return Err("transactions cannot be nested".into());
        }
        let pending = database(&using)?.begin();
        let refused = RefusalCell::of(exchange);
        let unfinished = Unfinished::of(exchange);
        Ok(wanted(async move {
            let transaction = pending.await.map_err(|error| told(&error, &refused))?;
            unfinished.set(true);
            *leading.0.borrow_mut() = Some(transaction);
            Ok(())
        }))
    })?;
    let commit = sandbox.waiting(|_, exchange, (): ()| {
        Unfinished::of(exchange).set(false);
        let transaction = exchange.slot::<Leading>().0.take();
        let pending = transaction.ok_or("the transaction has already ended")?.commit();
        let refused = RefusalCell::of(exchange);
        Ok(wanted(async move { pending.await.map_err(|error| told(&error, &refused)) }))
    })?;
    let rollback = sandbox.waiting(|_, exchange, (): ()| {
        Unfinished::of(exchange).set(false);
        let transaction = exchange.slot::<Leading>().0.take();
        Ok(wanted(async move {
            if let Some(transaction) = transaction {
                // An error of the rollback is less useful than the error that made the page give up.
                let _ = transaction.rollback().await;
            }
            Ok(())
        }))
    })?;
    sandbox.lua().load(TRANSACTION).set_name(format!("={PRELUDE}")).call((begin, commit, rollback, sandbox.raw_pcall()))
}

fn database(api: &Api) -> Result<&Database, NativeError> {
    api.settings
        .database
        .as_ref()
        .ok_or_else(|| "there is no database: add `database \"./data/site.db\"` to the settings of these pages".into())
}

/// Sends a statement to the database, or to the page's open transaction if there is one.
fn run(
    api: &Api,
    exchange: &mut Exchange,
    sql: &LuaString,
    parameters: &[Value],
    writes: bool,
    make: Make,
) -> Result<Wanted, NativeError> {
    let sql = sql.as_bytes();
    let sql = std::str::from_utf8(&sql).map_err(|_| "a statement must be a UTF-8 string")?;
    let parameters = bound(parameters)?;
    let database = database(api)?;
    let refused = RefusalCell::of(exchange);
    let leading = exchange.slot_if::<Leading>().map(|leading| leading.0.borrow());
    let pending = match leading.as_deref().and_then(Option::as_ref) {
        Some(transaction) => transaction.execute(sql, parameters),
        None if writes => database.execute(sql, parameters),
        None => database.query(sql, parameters),
    };
    Ok(Wanted::new(async move {
        let rows = pending.await.map_err(|error| told(&error, &refused))?;
        Ok(Made::new(rows.bytes(), move |lua| make(lua, &rows)))
    }))
}

/// Converts a database error to an error for the page. If the page does not catch it, the response is 503 if the
/// statement was never started because the database is overloaded, and 507 if the disk is full.
fn told(error: &DataError, refused: &RefusalCell) -> NativeError {
    match error.reason {
        DataReason::QueueFull | DataReason::QueueTimeout | DataReason::LockTimeout => {
            format!("{error} {}", refused.refuse(PageRefusal::DatabaseBusy)).into()
        }
        DataReason::DiskFull => format!("{error} {}", refused.refuse(PageRefusal::DatabaseDiskFull)).into(),
        _ => error.to_string().into(),
    }
}

/// Converts the parameters of a statement: values for `?` in order, or a single table with the values for `:name`.
fn bound(values: &[Value]) -> Result<Parameters, NativeError> {
    if let [Value::Table(named)] = values {
        let mut parameters = Vec::new();
        named.for_each(|name: Value, value: Value| {
            let Value::String(name) = name else {
                return Err(mlua::Error::runtime(
                    "the keys of a parameter table must be names: pass values for ? as separate arguments",
                ));
            };
            let name = name.to_str().map_err(|_| mlua::Error::runtime("a parameter's name must be a UTF-8 string"))?;
            parameters.push((name.to_owned(), cell(&value).map_err(|fault| mlua::Error::runtime(fault.to_string()))?));
            Ok(())
        })?;
        return Ok(Parameters::Named(parameters));
    }
    Ok(Parameters::from(values.iter().map(cell).collect::<Result<Vec<Cell>, NativeError>>()?))
}

/// Converts a Luau value to an SQLite value.
fn cell(value: &Value) -> Result<Cell, NativeError> {
    match value {
        Value::Nil => Ok(Cell::Null),
        null if *null == Value::NULL => Ok(Cell::Null),
        Value::Boolean(value) => Ok(Cell::Integer(i64::from(*value))),
        Value::Integer(number) if number.abs() < EXACT_MAX => Ok(Cell::Integer(*number)),
        Value::Integer(number) => Ok(Cell::Real(*number as f64)),
        Value::Number(number) if number.is_finite() => Ok(Cell::Real(*number)),
        // SQLite would store NaN as NULL, and infinity as a number that most programs cannot read.
        Value::Number(number) => Err(format!(
            "a parameter must be a finite number, not {}: check the results of tonumber and divisions",
            if number.is_nan() { "NaN" } else { "infinity" }
        )
        .into()),
        Value::String(text) => match text.to_str() {
            Ok(text) => Ok(Cell::Text(text.to_owned())),
            Err(_) => Err("strings for the database must be UTF-8: pass other bytes as a buffer".into()),
        },
        Value::Buffer(buffer) => Ok(Cell::Blob(buffer.to_vec())),
        other => Err(format!(
            "a parameter must be a string, a number, a boolean, nil or a buffer, not a {}",
            other.type_name()
        )
        .into()),
    }
}

/// Converts an SQLite value to a Luau value. NULL becomes nil.
fn shown(lua: &Lua, cell: ValueRef<'_>) -> mlua::Result<Value> {
    Ok(match cell {
        ValueRef::Null => Value::Nil,
        ValueRef::Integer(number) => integer(lua, number)?,
        ValueRef::Real(number) => Value::Number(number),
        ValueRef::Text(text) => Value::String(lua.create_string(text)?),
        ValueRef::Blob(bytes) => Value::Buffer(lua.create_buffer(bytes)?),
    })
}

#[cfg(test)]
mod tests {
    use super::{UNPACK, pack};
    use flatout_data::{Database, Limits, Parameters};
    use mlua::{Function, Lua};

    #[test]
    fn rows_are_the_same_on_the_other_side() {
        let path = std::env::temp_dir().join(format!("flatout-rows-{}.db", std::process::id()));
        let database = Database::open(&path, 1, Limits::default()).unwrap();
        let sql =
            "SELECT 1 AS whole, 1.5 AS part, 'text' AS text, NULL AS none, x'00ff' AS blob, 9007199254740993 AS large
            UNION ALL SELECT -2, 0.0, '', 'one', x'', -9007199254740993";
        let lua = Lua::new();
        for query in [sql, "SELECT 1 AS whole WHERE 0"] {
            let rows = database.query(query, Parameters::None).wait().unwrap();
            for is_one in [false, true] {
                let (packed, count) = (pack(&rows), rows.len());
                let ask = lua.create_function(move |lua, ()| Ok((lua.create_buffer(&packed)?, count))).unwrap();
                let unpack: Function = lua.load(UNPACK).call((ask, is_one, lua.create_table().unwrap())).unwrap();
                lua.globals().set("unpacked", unpack).unwrap();
                let check = match (is_one, count) {
                    (true, 0) => "assert(unpacked() == nil)",
                    (false, 0) => "assert(#unpacked() == 0)",
                    (true, _) => {
                        "local row = unpacked() assert(row.whole == 1 and row.none == nil and row.text == 'text')"
                    }
                    (false, _) => {
                        "local rows = unpacked() local a, b = rows[1], rows[2]
                        assert(#rows == 2 and a.whole == 1 and a.part == 1.5 and a.text == 'text' and a.none == nil)
                        assert(buffer.tostring(a.blob) == '\\0\\255' and a.large == '9007199254740993')
                        assert(b.whole == -2 and b.part == 0 and b.text == '' and b.none == 'one')
                        assert(buffer.len(b.blob) == 0 and b.large == '-9007199254740993')
                        rows[1].whole = 'poison' assert(unpacked()[1].whole == 1)"
                    }
                };
                lua.load(check).exec().unwrap();
            }
        }
        drop(database);
        for ending in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{ending}", path.display()));
        }
    }
}
