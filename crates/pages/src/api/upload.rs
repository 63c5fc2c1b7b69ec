//! The files of a form, as a page has them: a table each, with functions to read what is in them.

use super::content::{ReadForm, known_form};
use crate::exchange::Exchange;
use crate::sandbox::Sandbox;
use crate::sandbox::wait::Fault;
use mlua::{Function, Lua, Table};

/// Bytes of a file that one call reads at the most.
const READ_BYTES_MAX: usize = 1 << 20;

/// What the tables of files have in common.
#[derive(Clone)]
pub(super) struct Functions {
    read: Function,
    buffer: Function,
}

impl Functions {
    pub(super) fn new(sandbox: &Sandbox) -> mlua::Result<Self> {
        Ok(Self {
            read: sandbox.function(|lua, exchange, (file, offset, count): (Table, Option<f64>, Option<f64>)| {
                Ok(lua.create_string(read(exchange, &file, offset, count)?)?)
            })?,
            buffer: sandbox.function(|lua, exchange, (file, offset, count): (Table, Option<f64>, Option<f64>)| {
                Ok(lua.create_buffer(read(exchange, &file, offset, count)?)?)
            })?,
        })
    }
}

/// The files of `form`, in the order in which they came.
pub(super) fn tables(lua: &Lua, functions: &Functions, form: &ReadForm) -> mlua::Result<Table> {
    let all = lua.create_table()?;
    for (index, file) in form.form.files.iter().enumerate() {
        let table = lua.create_table()?;
        table.raw_set("number", index + 1)?;
        table.raw_set("field", lua.create_string(&file.field)?)?;
        table.raw_set("name", lua.create_string(&file.name)?)?;
        if let Some(media_type) = &file.media_type {
            table.raw_set("type", lua.create_string(media_type)?)?;
        }
        table.raw_set("size", file.spool.len() as f64)?;
        table.raw_set("read", &functions.read)?;
        table.raw_set("buffer", &functions.buffer)?;
        all.raw_push(table)?;
    }
    Ok(all)
}

/// `count` bytes of a file from `offset` on; without a count, all that one call may have.
fn read(exchange: &mut Exchange, file: &Table, offset: Option<f64>, count: Option<f64>) -> Result<Vec<u8>, Fault> {
    let number: Option<usize> = file.raw_get("number")?;
    let form = known_form(exchange);
    let file = form.as_ref().zip(number).and_then(|(form, number)| form.form.files.get(number.checked_sub(1)?));
    let file = file.ok_or("this is no file of this request: call it as file:read()")?;
    let (offset, count) = (offset.unwrap_or(0.0), count.unwrap_or(READ_BYTES_MAX as f64));
    if !(offset >= 0.0 && (0.0..=READ_BYTES_MAX as f64).contains(&count)) {
        return Err("a file is read from an offset of 0 or more, and up to 1 MiB at once".into());
    }
    file.spool.read(offset as u64, count as usize).map_err(|error| format!("the file cannot be read: {error}").into())
}
