//! A compiled chunk and its idle closures.

use super::Inner;
use super::failure::{FailureKind, MARK, RunFailure};
use super::hub::Hub;
use flatout_template::LineMap;
use mlua::chunk::ChunkMode;
use mlua::{Function, Table};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Maximum number of closures kept per chunk. More concurrent runs of one page are rare.
const IDLE_MAX: usize = 16;

/// A closure of a chunk, with its table of globals.
pub(crate) struct Instance {
    pub(crate) function: Function,
    pub(crate) globals: Table,
}

/// A compiled chunk, of which any number of runs can exist at the same time.
#[derive(derive_more::Debug)]
#[debug("Code({name:?})")]
pub struct Code {
    name: String,
    /// Maps the chunk's lines to its source; `None` if the chunk was not generated.
    lines: Option<Rc<LineMap>>,
    /// The function that all instances are copies of; it is never run itself.
    original: Function,
    idle: RefCell<Vec<Instance>>,
    /// Memory of the chunk in the virtual machine, in bytes, which is not charged to any run.
    bytes: Cell<isize>,
    hub: Rc<Hub>,
}

impl Code {
    pub(crate) fn load(
        inner: &Inner,
        name: &str,
        source: &str,
        lines: Option<Rc<LineMap>>,
    ) -> Result<Self, RunFailure> {
        let lua = &inner.lua;
        let hub = Rc::clone(&inner.hub);
        let before = lua.used_memory().cast_signed();
        // The collector is stopped so that the difference is exactly the chunk's memory.
        lua.gc_stop();
        let loaded = lua
            .load(source)
            .set_name(format!("={MARK}{name}"))
            .set_mode(ChunkMode::Text)
            .set_environment(inner.base.clone())
            .into_function();
        lua.gc_restart();
        let original = loaded.map_err(|error| {
            let mut failure = RunFailure::of_error(&error);
            failure.kind = FailureKind::ScriptError;
            failure
        })?;
        let code = Self { name: name.to_owned(), lines, original, idle: RefCell::default(), bytes: Cell::new(0), hub };
        code.charge(lua.used_memory().cast_signed() - before);
        Ok(code)
    }

    /// The name with which the chunk was loaded.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Maps the chunk's lines to its source; `None` if the chunk was not generated.
    pub(crate) fn lines(&self) -> Option<Rc<LineMap>> {
        self.lines.clone()
    }

    /// Records that the chunk uses `bytes` more memory.
    fn charge(&self, bytes: isize) {
        self.bytes.set(self.bytes.get() + bytes);
        self.hub.meter.raise_floor(bytes);
    }

    /// Returns a closure with empty globals.
    pub(crate) fn take(&self, inner: &Inner) -> mlua::Result<Instance> {
        if let Some(instance) = self.idle.borrow_mut().pop() {
            return Ok(instance);
        }
        let before = inner.lua.used_memory().cast_signed();
        let globals = inner.lua.create_table()?;
        globals.set_metatable(Some(inner.globals_metatable.clone()))?;
        globals.set_safeenv(true);
        let function = self.original.deep_clone()?;
        function.set_environment(globals.clone())?;
        self.charge((inner.lua.used_memory().cast_signed() - before).max(0));
        Ok(Instance { function, globals })
    }

    /// Takes back a closure for reuse. Globals that the page has set are cleared. Nothing else of the run remains,
    /// because the chunk has no upvalues and values captured by its functions are garbage.
    pub(crate) fn put(&self, instance: Instance) {
        if !instance.globals.is_empty() && instance.globals.clear().is_err() {
            return;
        }
        let mut idle = self.idle.borrow_mut();
        if idle.len() < IDLE_MAX {
            idle.push(instance);
        }
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        self.charge(-self.bytes.get());
    }
}
