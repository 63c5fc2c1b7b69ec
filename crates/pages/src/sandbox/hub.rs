//! What natives reach: the exchange of the run under way, its meter and the answer it waited for.

use super::meter::Meter;
use super::natives::{CANNOT_WAIT, ENDED};
use super::wait::{Answer, Fault};
use crate::exchange::Exchange;
use crate::template::Lines;
use mlua::Lua;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr;
use std::rc::Rc;

/// One a virtual machine; every native holds it.
pub(crate) struct Hub {
    pub(crate) meter: Meter,
    /// The exchange of the run under way.
    pub(crate) exchange: RefCell<Option<Box<Exchange>>>,
    /// What came of the wait, until the page takes it.
    pub(crate) answer: RefCell<Option<Answer>>,
    /// Where the lines of the chunk under way come from.
    pub(crate) lines: RefCell<Option<Rc<Lines>>>,
    /// The coroutine that the run began with, by its address: only to be compared.
    pub(crate) main: Cell<*const c_void>,
}

impl Default for Hub {
    fn default() -> Self {
        Self {
            meter: Meter::default(),
            exchange: RefCell::default(),
            answer: RefCell::default(),
            lines: RefCell::default(),
            main: Cell::new(ptr::null()),
        }
    }
}

impl Hub {
    /// What is said when a native is called while no run is under way, or from within another native.
    const UNREACHABLE: &'static str = "this cannot be called from here";

    /// Calls `act` with the exchange of the run under way. A page that has ended gets an error: nothing that it does
    /// afterwards has an effect.
    #[inline]
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut Exchange) -> Result<R, Fault>) -> Result<R, Fault> {
        let mut exchange = self.exchange.try_borrow_mut().map_err(|_| Fault::from(Self::UNREACHABLE))?;
        let exchange = exchange.as_deref_mut().ok_or(Fault::from(Self::UNREACHABLE))?;
        if exchange.halted {
            return Err(Fault::from(ENDED));
        }
        let result = act(exchange);
        if exchange.halted {
            self.meter.halt();
        }
        result
    }

    /// Bytes that the exchange holds; 0 while a native has it.
    pub(crate) fn held_bytes(&self) -> usize {
        self.exchange
            .try_borrow()
            .ok()
            .and_then(|exchange| exchange.as_deref().map(Exchange::held_bytes))
            .unwrap_or_default()
    }

    /// Refuses a wait that cannot be waited for, if there is one.
    pub(crate) fn refuse_wait(&self) -> Result<(), Fault> {
        let wanted = self.with(|exchange| Ok(exchange.wanted.take()))?;
        if wanted.is_some() {
            *self.answer.borrow_mut() = Some(Err(Fault::from(CANNOT_WAIT)));
        }
        Ok(())
    }

    /// Makes room for `bytes` more, or ends the run.
    pub(crate) fn reserve(&self, lua: &Lua, bytes: usize) -> Result<(), Fault> {
        if self.meter.may_go_on(lua, self.held_bytes().saturating_add(bytes)) {
            return Ok(());
        }
        self.meter.exceed_memory(lua);
        Err(Fault::from("not enough memory"))
    }

    /// No run is under way any more.
    pub(crate) fn forget(&self) {
        self.main.set(ptr::null());
        self.lines.take();
    }
}
