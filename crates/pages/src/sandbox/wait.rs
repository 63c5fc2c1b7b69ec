//! Waiting: a native function leaves a future with the run, the driver polls the future, and the page continues with
//! its result.

use mlua::{Lua, MultiValue};
use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// An error of a native function, which a page may catch like any other error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NativeError(pub Cow<'static, str>);

impl From<&'static str> for NativeError {
    fn from(text: &'static str) -> Self {
        Self(text.into())
    }
}

impl From<String> for NativeError {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<mlua::Error> for NativeError {
    fn from(error: mlua::Error) -> Self {
        Self(crate::sandbox::failure::plain_text(&error).into())
    }
}

/// A function that creates the Luau values of a result, within the run that has waited.
pub type MakeValues = Box<dyn FnOnce(&Lua) -> mlua::Result<MultiValue>>;

/// The values that a wait results in.
#[derive(derive_more::Debug)]
#[debug("Made({bytes} bytes)")]
pub struct Made {
    /// Approximate memory use of the values, in bytes. If they do not fit into the memory limit, the run ends.
    pub bytes: usize,
    /// Creates the values.
    pub make: MakeValues,
}

impl Made {
    /// A result whose values use about `bytes` bytes of memory.
    pub fn new(bytes: usize, make: impl FnOnce(&Lua) -> mlua::Result<MultiValue> + 'static) -> Self {
        Self { bytes, make: Box::new(make) }
    }
}

/// The result of a wait: values for the page, or an error that the call raises.
pub type WaitResult = Result<Made, NativeError>;

/// An operation that a page waits for.
#[derive(derive_more::Debug)]
#[debug("Wanted(is_of_client: {is_of_client})")]
pub struct Wanted {
    future: Pin<Box<dyn Future<Output = WaitResult>>>,
    is_of_client: bool,
}

impl Wanted {
    /// Waits for `future`, which must limit its own duration. The run's deadline also applies.
    pub fn new(future: impl Future<Output = WaitResult> + 'static) -> Self {
        Self { future: Box::pin(future), is_of_client: false }
    }

    /// Marks this as a wait for content from the client. Other limits apply to the client's slowness, which does not
    /// count towards the page's deadline.
    #[must_use]
    pub fn of_client(self) -> Self {
        Self { is_of_client: true, ..self }
    }

    /// Returns whether this is a wait for the client.
    pub const fn is_of_client(&self) -> bool {
        self.is_of_client
    }
}

impl Future for Wanted {
    type Output = WaitResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<WaitResult> {
        self.future.as_mut().poll(context)
    }
}

/// Waits for `future` and returns its result to the page.
pub fn wanted<F, R>(future: F) -> Wanted
where
    F: Future<Output = Result<R, NativeError>> + 'static,
    R: mlua::IntoLuaMulti + 'static,
{
    Wanted::new(async move {
        let values = future.await?;
        Ok(Made::new(0, move |lua| values.into_lua_multi(lua)))
    })
}
