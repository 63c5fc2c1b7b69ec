//! A Luau virtual machine per worker. It runs the page of each request in a separate coroutine with separate globals,
//! and within time and memory limits.
//!
//! Usage: call [`Sandbox::new`], then add the API ([`Sandbox::global`], [`Sandbox::function`], [`Sandbox::waiting`]),
//! then freeze everything with [`Sandbox::seal`]. [`Sandbox::load`] compiles a chunk. [`Sandbox::start`] creates a
//! [`Run`] of the chunk, and [`Run::resume`] runs it until it ends, waits, flushes, has used its slice or has failed.
//!
//! Requests are isolated from each other. Everything shared is frozen (libraries, metatables of strings and vectors,
//! the API). A chunk's closure has no upvalues and belongs to one run at a time. Its globals are a separate table,
//! which is emptied afterwards. A coroutine is reset before it is reused.
//!
//! For limits, see `meter.rs`, and `prelude.luau`, which replaces library functions that run long or allocate much
//! memory with functions that reach the interrupt. Library functions that are not in [`LIBRARY`] are removed.
//!
//! Absent by design: files, processes, sockets, `loadstring`, `require`, `getfenv`, `setfenv`, `debug`, `newproxy`,
//! `os`, `collectgarbage`, `math.randomseed`, and any way to load bytecode.

mod code;
pub mod failure;
mod hub;
pub(crate) mod json;
pub mod limits;
mod meter;
mod natives;
pub(crate) mod number;
mod pattern;
mod run;
mod strings;
#[cfg(test)]
mod tests;
pub mod wait;
mod writers;

pub use code::Code;
pub use failure::{FailureKind, RunFailure};
pub use limits::Limits;
pub use run::{ResumeResult, Run};
pub use wait::{NativeError, WaitResult, Wanted, wanted};

use crate::exchange::Exchange;
use flatout_os::clock;
use flatout_template::LineMap;
use hub::Hub;
use mlua::{FromLuaMulti, Function, IntoLua, IntoLuaMulti, Lua, LuaOptions, StdLib, Table, Thread, Value};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Once;
use std::time::Duration;

/// The parts of Luau's libraries that are available to pages: the name of each library, then its functions and values.
pub const LIBRARY: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "_VERSION",
            "assert",
            "error",
            "getmetatable",
            "ipairs",
            "next",
            "pairs",
            "pcall",
            "print",
            "rawequal",
            "rawget",
            "rawlen",
            "rawset",
            "select",
            "setmetatable",
            "tonumber",
            "tostring",
            "type",
            "typeof",
            "xpcall",
        ],
    ),
    (
        "bit32",
        &[
            "arshift", "band", "bnot", "bor", "btest", "bxor", "byteswap", "countlz", "countrz", "extract", "lrotate",
            "lshift", "replace", "rrotate", "rshift",
        ],
    ),
    (
        "buffer",
        &[
            "copy",
            "create",
            "fill",
            "fromstring",
            "len",
            "readbits",
            "readf32",
            "readf64",
            "readi16",
            "readi32",
            "readi8",
            "readstring",
            "readu16",
            "readu32",
            "readu8",
            "tostring",
            "writebits",
            "writef32",
            "writef64",
            "writei16",
            "writei32",
            "writei8",
            "writestring",
            "writeu16",
            "writeu32",
            "writeu8",
        ],
    ),
    ("coroutine", &["close", "create", "isyieldable", "resume", "running", "status", "wrap", "yield"]),
    (
        "math",
        &[
            "abs", "acos", "asin", "atan", "atan2", "ceil", "clamp", "cos", "cosh", "deg", "exp", "floor", "fmod",
            "frexp", "huge", "isfinite", "isinf", "isnan", "ldexp", "lerp", "log", "log10", "map", "max", "min",
            "modf", "noise", "pi", "pow", "rad", "random", "round", "sign", "sin", "sinh", "sqrt", "tan", "tanh",
        ],
    ),
    (
        "string",
        &[
            "byte", "char", "find", "format", "gmatch", "gsub", "len", "lower", "match", "pack", "packsize", "rep",
            "reverse", "split", "sub", "unpack", "upper",
        ],
    ),
    (
        "table",
        &[
            "clear", "clone", "concat", "create", "find", "freeze", "insert", "isfrozen", "move", "pack", "remove",
            "sort", "unpack",
        ],
    ),
    ("utf8", &["char", "charpattern", "codepoint", "codes", "len", "offset"]),
    (
        "vector",
        &[
            "abs",
            "angle",
            "ceil",
            "clamp",
            "create",
            "cross",
            "dot",
            "floor",
            "lerp",
            "magnitude",
            "max",
            "min",
            "normalize",
            "one",
            "sign",
            "zero",
        ],
    ),
];

/// Memory use above which a run's coroutine and globals are left to the collector instead of being reused, in bytes.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of coroutines kept for later runs.
const THREADS_MAX: usize = 256;

/// Maximum time spent per resume on collecting the garbage of large runs.
const TIDY: Duration = Duration::from_micros(100);

/// State that the runs of a virtual machine share.
pub(crate) struct Inner {
    lua: Lua,
    hub: Rc<Hub>,
    /// The table in which the names that are missing from a page's globals are looked up.
    base: Table,
    /// The metatable of every page's globals.
    globals_metatable: Table,
    /// A function that does nothing, used to reset coroutines.
    nothing: Function,
    /// Converts a native function to a waiting function.
    waiting: Function,
    /// Converts a native function to a function that ends the page.
    ending: Function,
    /// Luau's `debug.traceback`, which is not available to pages.
    traceback: Function,
    /// Luau's original `pcall`, which does not change errors.
    raw_pcall: Function,
    threads: RefCell<Vec<Thread>>,
    owes_collection: Cell<bool>,
}

impl Inner {
    fn put_thread(&self, thread: Thread) {
        let mut threads = self.threads.borrow_mut();
        if threads.len() < THREADS_MAX {
            threads.push(thread);
        }
    }

    /// Records that a large run has ended.
    fn owe_collection(&self) {
        self.owes_collection.set(true);
    }

    /// Collects part of the garbage of large runs, if there is any.
    fn tidy(&self) {
        if !self.owes_collection.get() {
            return;
        }
        let began = clock::now();
        while clock::since(began) < TIDY {
            if self.lua.gc_step().unwrap_or(true) {
                self.owes_collection.set(false);
                return;
            }
        }
    }
}

/// A memory check for native functions that create large values.
pub(crate) struct MemoryCheck(Rc<Hub>);

impl MemoryCheck {
    /// Returns whether the current run, which operates on `exchange`, may use `bytes` more memory.
    pub(crate) fn has_room(&self, lua: &Lua, exchange: &Exchange, bytes: usize) -> bool {
        self.0.meter.may_go_on(lua, bytes, || exchange.held_bytes())
    }
}

/// The virtual machine of one worker.
#[derive(derive_more::Debug)]
#[debug("Sandbox({} bytes)", self.used_bytes())]
pub struct Sandbox {
    inner: Rc<Inner>,
}

impl Sandbox {
    /// Creates a machine with the libraries and the functions that templates call. It is not sealed yet.
    pub fn new() -> mlua::Result<Self> {
        static FLAGS: Once = Once::new();
        // With this flag, a table that cannot grow for lack of memory is left unchanged. The flag is global to the
        // process and is set before any machine is created. A version of Luau without the flag always behaves like
        // this.
        FLAGS.call_once(|| {
            let _ = Lua::set_fflag("LuauTableRobustOom", true);
        });
        let libraries = StdLib::COROUTINE
            | StdLib::TABLE
            | StdLib::STRING
            | StdLib::UTF8
            | StdLib::BIT
            | StdLib::MATH
            | StdLib::BUFFER
            | StdLib::VECTOR
            | StdLib::DEBUG;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        json::prepare(&lua)?;
        let hub = Rc::new(Hub::default());
        let base = lua.globals();
        let natives = lua.create_table()?;
        natives::lay(&lua, &hub, &natives)?;
        strings::lay(&lua, &hub, &natives)?;
        writers::lay(&lua, &hub, &base)?;
        natives.set_readonly(true);
        let prelude: Table = lua
            .load(include_str!("sandbox/prelude.luau"))
            .set_name(format!("={}", failure::PRELUDE))
            .call((natives, lua.create_table()?))?;
        let waiting = prelude.get("waiting")?;
        let ending = prelude.get("ending")?;
        let traceback = base.raw_get::<Table>("debug")?.raw_get("traceback")?;
        let raw_pcall = base.raw_get("pcall")?;
        admit(&lua, &base, &prelude)?;
        let globals_metatable = lua.create_table()?;
        globals_metatable.set("__index", &base)?;
        globals_metatable.set("__metatable", false)?;
        globals_metatable.set_readonly(true);
        let nothing = lua.load("").into_function()?;
        lua.set_interrupt({
            let hub = Rc::clone(&hub);
            move |lua| hub.meter.interrupt(lua, || hub.held_bytes())
        });
        let inner = Inner {
            lua,
            hub,
            base,
            globals_metatable,
            nothing,
            waiting,
            ending,
            traceback,
            raw_pcall,
            threads: RefCell::default(),
            owes_collection: Cell::new(false),
        };
        Ok(Self { inner: Rc::new(inner) })
    }

    /// The Lua state, for creating tables and strings of the API.
    pub fn lua(&self) -> &Lua {
        &self.inner.lua
    }

    /// Creates a memory check for native functions that create large values.
    pub(crate) fn memory(&self) -> MemoryCheck {
        MemoryCheck(Rc::clone(&self.inner.hub))
    }

    /// Creates a native function that operates on the exchange of the calling run. A [`NativeError`] that it returns is
    /// an ordinary error for the page. The function must return within a few microseconds, because it cannot be
    /// interrupted.
    pub fn function<A, R>(
        &self,
        act: impl Fn(&Lua, &mut Exchange, A) -> Result<R, NativeError> + 'static,
    ) -> mlua::Result<Function>
    where
        A: FromLuaMulti,
        R: IntoLuaMulti,
    {
        natives::function(&self.inner.lua, &self.inner.hub, act)
    }

    /// Creates a native function that waits: it returns a future, and the page continues with the future's values, or
    /// with its error. In one of the page's own coroutines, it suspends the whole page. Inside a metamethod, waiting is
    /// an error.
    pub fn waiting<A>(
        &self,
        act: impl Fn(&Lua, &mut Exchange, A) -> Result<Wanted, NativeError> + 'static,
    ) -> mlua::Result<Function>
    where
        A: FromLuaMulti,
    {
        let start = natives::function(&self.inner.lua, &self.inner.hub, move |lua, exchange, given: A| {
            exchange.wanted = Some(act(lua, exchange, given)?);
            Ok(())
        })?;
        self.inner.waiting.call(start)
    }

    /// Creates a native function that ends the page if it succeeds. No statement after the call runs, even if the call
    /// is inside `pcall`, a coroutine, a metamethod or a transaction, which is rolled back. If the function fails, the
    /// page receives the error and continues.
    pub fn ending<A>(
        &self,
        act: impl Fn(&Lua, &mut Exchange, A) -> Result<(), NativeError> + 'static,
    ) -> mlua::Result<Function>
    where
        A: FromLuaMulti,
    {
        let start = natives::ending(&self.inner.lua, &self.inner.hub, act)?;
        self.inner.ending.call(start)
    }

    /// Adds a global value for all pages. Must be called before [`Sandbox::seal`], which freezes the value.
    pub fn global(&self, name: &str, value: impl IntoLua) -> mlua::Result<()> {
        self.inner.base.raw_set(name, value)
    }

    /// Returns a `pcall` for this crate's own Luau code that does not change errors.
    pub(crate) fn raw_pcall(&self) -> Function {
        self.inner.raw_pcall.clone()
    }

    /// Freezes everything that pages share. Nothing can be added afterwards.
    pub fn seal(&self) -> mlua::Result<()> {
        let lua = &self.inner.lua;
        for metatable in [
            lua.type_metatable::<mlua::LuaString>(),
            lua.type_metatable::<mlua::Vector>(),
            lua.type_metatable::<Function>(),
            lua.type_metatable::<Thread>(),
            lua.type_metatable::<mlua::Number>(),
            lua.type_metatable::<bool>(),
        ]
        .into_iter()
        .flatten()
        {
            if !metatable.is_readonly() {
                metatable.raw_set("__metatable", false)?;
            }
            freeze(&metatable, 0)?;
        }
        freeze(&self.inner.base, 0)?;
        lua.sandbox(true)?;
        lua.gc_collect()?;
        lua.gc_collect()?;
        self.inner.hub.meter.raise_floor(lua.used_memory().cast_signed());
        Ok(())
    }

    /// Compiles a chunk from source; bytecode is rejected. `name` identifies the chunk in messages. The machine must be
    /// sealed.
    pub fn load(&self, name: &str, source: &str) -> Result<Rc<Code>, Box<RunFailure>> {
        Code::load(&self.inner, name, source, None).map(Rc::new).map_err(Box::new)
    }

    /// Compiles a chunk that was generated from several files, like [`Self::load`]. `lines` maps the lines in the
    /// messages of errors to these files.
    pub fn load_page(&self, name: &str, source: &str, lines: LineMap) -> Result<Rc<Code>, Box<RunFailure>> {
        Code::load(&self.inner, name, source, Some(Rc::new(lines))).map(Rc::new).map_err(Box::new)
    }

    /// Creates a run of `code` that operates on `exchange`, but does not start it.
    pub fn start(&self, code: &Rc<Code>, exchange: Box<Exchange>, limits: Limits) -> Run {
        Run::new(Rc::clone(&self.inner), Rc::clone(code), exchange, limits)
    }

    /// Number of bytes that the machine uses, including garbage.
    pub fn used_bytes(&self) -> usize {
        self.inner.lua.used_memory()
    }

    /// Collects all garbage, which may take milliseconds; for tests, and for an idle worker.
    pub fn collect(&self) {
        // A search that a limit interrupted refers to its subject until it is collected itself, so the subject is
        // garbage only for the second collection.
        for _ in 0..2 {
            // This could fail only in a finaliser, and there are none.
            let _ = self.inner.lua.gc_collect();
        }
    }
}

/// Maximum nesting depth of tables in the API.
const LEVELS_MAX: usize = 16;

/// Freezes a table and all tables and metatables in it.
fn freeze(table: &Table, level: usize) -> mlua::Result<()> {
    if level > LEVELS_MAX {
        return Err(mlua::Error::runtime("the interface is nested too deeply"));
    }
    if level > 0 && table.is_readonly() {
        return Ok(());
    }
    table.set_readonly(true);
    if let Some(metatable) = table.metatable() {
        freeze(&metatable, level + 1)?;
    }
    for pair in table.pairs::<Value, Value>() {
        if let (_, Value::Table(inner)) = pair? {
            freeze(&inner, level + 1)?;
        }
    }
    Ok(())
}

/// Installs the functions of the prelude, and removes library functions that are not in [`LIBRARY`].
fn admit(lua: &Lua, base: &Table, prelude: &Table) -> mlua::Result<()> {
    let mut admitted = Vec::new();
    for (library, names) in LIBRARY {
        let found: Table = if library.is_empty() { base.clone() } else { base.raw_get(*library)? };
        let ours: Option<Table> = prelude.raw_get(*library)?;
        let kept = lua.create_table()?;
        for name in *names {
            let mine: Value = ours.as_ref().map_or(Ok(Value::Nil), |ours| ours.raw_get(*name))?;
            let value: Value = if mine.is_nil() { found.raw_get(*name)? } else { mine };
            kept.raw_set(*name, value)?;
        }
        admitted.push((*library, kept));
    }
    let writers: Vec<(Value, Value)> = base
        .pairs::<Value, Value>()
        .filter(|pair| pair.as_ref().is_ok_and(|(name, _)| writers::is_name(name)))
        .collect::<mlua::Result<_>>()?;
    base.clear()?;
    for (name, value) in writers {
        base.raw_set(name, value)?;
    }
    for (library, kept) in admitted {
        if library.is_empty() {
            for pair in kept.pairs::<Value, Value>() {
                let (name, value) = pair?;
                base.raw_set(name, value)?;
            }
        } else {
            base.raw_set(library, kept)?;
        }
    }
    let extra: Table = prelude.raw_get("")?;
    for name in ["flush", "exit"] {
        base.raw_set(name, extra.raw_get::<Value>(name)?)?;
    }
    let strings: Table = base.raw_get("string")?;
    if let Some(metatable) = lua.type_metatable::<mlua::LuaString>() {
        // This makes calls such as `("text"):find(...)` work.
        metatable.raw_set("__index", strings)?;
    }
    base.raw_set("_G", base)
}
