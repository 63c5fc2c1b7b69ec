//! State that native functions access: the exchange of the current run, its meter and the result of its wait.

use super::meter::Meter;
use super::natives::{CANNOT_WAIT, ENDED};
use super::wait::{NativeError, WaitResult};
use crate::exchange::Exchange;
use flatout_template::LineMap;
use mlua::Lua;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr;
use std::rc::Rc;

flatout_reason::defaults! {
    /// The state of a virtual machine that every native function references.
    pub(crate) struct Hub {
        pub(crate) meter: Meter,
        /// The exchange of the current run.
        pub(crate) exchange: RefCell<Option<Box<Exchange>>>,
        /// The result of a wait, until the page takes it.
        pub(crate) answer: RefCell<Option<WaitResult>>,
        /// Maps the lines of the current chunk to its source.
        pub(crate) lines: RefCell<Option<Rc<LineMap>>>,
        /// Address of the run's main coroutine, which is only compared.
        pub(crate) main: Cell<*const c_void> = Cell::new(ptr::null()),
    }
}

impl Hub {
    /// The error of a native function that is called without a current run, or from within another native function.
    const UNREACHABLE: &'static str = "this function cannot be called here";

    /// Calls `act` with the exchange of the current run. If the page has already ended, returns an error instead, so
    /// that nothing that the page does afterwards has an effect.
    #[inline]
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut Exchange) -> Result<R, NativeError>) -> Result<R, NativeError> {
        let mut exchange = self.exchange.try_borrow_mut().map_err(|_| NativeError::from(Self::UNREACHABLE))?;
        let exchange = exchange.as_deref_mut().ok_or(NativeError::from(Self::UNREACHABLE))?;
        if exchange.halted {
            return Err(NativeError::from(ENDED));
        }
        let result = act(exchange);
        if exchange.halted {
            self.meter.halt();
        }
        result
    }

    /// Number of bytes that the exchange holds; 0 while a native function uses it.
    pub(crate) fn held_bytes(&self) -> usize {
        self.exchange
            .try_borrow()
            .ok()
            .and_then(|exchange| exchange.as_deref().map(Exchange::held_bytes))
            .unwrap_or_default()
    }

    /// If the page has begun to wait in a context where waiting is impossible, turns the wait into an error.
    pub(crate) fn refuse_wait(&self) -> Result<(), NativeError> {
        let wanted = self.with(|exchange| Ok(exchange.wanted.take()))?;
        if wanted.is_some() {
            *self.answer.borrow_mut() = Some(Err(NativeError::from(CANNOT_WAIT)));
        }
        Ok(())
    }

    /// Checks that the run may use `bytes` more memory. If not, ends the run and returns an error.
    pub(crate) fn reserve(&self, lua: &Lua, bytes: usize) -> Result<(), NativeError> {
        if self.meter.may_go_on(lua, bytes, || self.held_bytes()) {
            return Ok(());
        }
        self.meter.exceed_memory(lua);
        Err(NativeError::from("not enough memory"))
    }

    /// Clears the references to the current run.
    pub(crate) fn forget(&self) {
        self.main.set(ptr::null());
        self.lines.take();
    }
}
