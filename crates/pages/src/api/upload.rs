//! The files of a form, as tables with functions that read their content.

use super::content::{ReadForm, known_form};
use crate::exchange::Exchange;
use crate::sandbox::wait::NativeError;
use crate::sandbox::{MemoryCheck, Sandbox};
use flatout_os::spool::Spool;
use mlua::{Function, Lua, Table};
use std::rc::Rc;

/// Number of bytes read from a file at a time.
const PIECE_BYTES: u64 = 64 << 10;

/// The functions shared by all file tables.
#[derive(Clone)]
pub(super) struct Functions {
    read: Function,
    buffer: Function,
}

impl Functions {
    pub(super) fn new(sandbox: &Sandbox) -> mlua::Result<Self> {
        let memory = sandbox.memory();
        let room = sandbox.memory();
        Ok(Self {
            read: sandbox.function(move |lua, exchange, (file, offset, count): Arguments| {
                let part = UploadRange::new(exchange, &file, offset, count)?;
                part.check_room(&memory, lua, exchange, "read")?;
                let mut text = Vec::with_capacity(part.bytes as usize);
                part.read(|piece, _| text.extend_from_slice(piece))?;
                Ok(lua.create_string(text)?)
            })?,
            buffer: sandbox.function(move |lua, exchange, (file, offset, count): Arguments| {
                let part = UploadRange::new(exchange, &file, offset, count)?;
                part.check_room(&room, lua, exchange, "buffer")?;
                let buffer = lua.create_buffer_with_capacity(part.bytes as usize)?;
                part.read(|piece, at| buffer.write_bytes(at, piece))?;
                Ok(buffer)
            })?,
        })
    }
}

/// The arguments of the functions: the file's table, an offset and a count.
type Arguments = (Table, Option<f64>, Option<f64>);

/// Creates tables for the files of `form`, in order of arrival.
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

/// A range of an uploaded file.
struct UploadRange {
    spool: Rc<Spool>,
    start: u64,
    bytes: u64,
}

impl UploadRange {
    /// Selects up to `count` bytes of `file` from `offset` on; by default the whole file.
    fn new(
        exchange: &mut Exchange,
        file: &Table,
        offset: Option<f64>,
        count: Option<f64>,
    ) -> Result<Self, NativeError> {
        let number: Option<usize> = file.raw_get("number")?;
        let form = known_form(exchange);
        let file = form.as_ref().zip(number).and_then(|(form, number)| form.form.files.get(number.checked_sub(1)?));
        let file = file.ok_or("this is not a file from this request: call the method as file:read()")?;
        let (offset, count) = (offset.unwrap_or(0.0), count.unwrap_or(f64::INFINITY));
        if !(offset >= 0.0 && count >= 0.0) {
            return Err("the offset and the count must be numbers of at least 0".into());
        }
        let start = (offset as u64).min(file.spool.len());
        let bytes = (count as u64).min(file.spool.len() - start);
        Ok(Self { spool: Rc::clone(&file.spool), start, bytes })
    }

    /// Rejects the range if it does not fit into the page's memory limit.
    fn check_room(&self, memory: &MemoryCheck, lua: &Lua, exchange: &Exchange, name: &str) -> Result<(), NativeError> {
        if memory.has_room(lua, exchange, usize::try_from(self.bytes).unwrap_or(usize::MAX)) {
            return Ok(());
        }
        Err(format!(
            "{} bytes of the file are more than the page's memory-limit allows: read the file in pieces with \
             file:{name}(offset, count)",
            self.bytes
        )
        .into())
    }

    /// Reads the range and calls `take` with each piece and the piece's offset within the range.
    fn read(&self, mut take: impl FnMut(&[u8], usize)) -> Result<(), NativeError> {
        let mut at = 0;
        while at < self.bytes {
            let wanted = PIECE_BYTES.min(self.bytes - at) as usize;
            let piece = self
                .spool
                .read(self.start + at, wanted)
                .map_err(|error| format!("the file cannot be read: {error}"))?;
            if piece.len() < wanted {
                return Err("the file cannot be read: it is shorter than before".into());
            }
            take(&piece, at as usize);
            at += wanted as u64;
        }
        Ok(())
    }
}
