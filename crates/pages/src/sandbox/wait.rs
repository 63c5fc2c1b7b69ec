//! Waiting: a native leaves a future with the run, the driver polls it, and the page continues with its result.

use mlua::{Lua, MultiValue};
use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// An error of a native, which a page may catch like any other.
#[derive(Clone, Debug, PartialEq, Eq)]
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

impl fmt::Display for NativeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Creates the Luau values of a result, within the run that waited.
pub type MakeValues = Box<dyn FnOnce(&Lua) -> mlua::Result<MultiValue>>;

/// The result of a wait.
pub struct Made {
    /// Approximate memory of its values, in bytes; if they do not fit, the run ends.
    pub bytes: usize,
    /// Creates them.
    pub make: MakeValues,
}

impl Made {
    /// Values that take `bytes`.
    pub fn new(bytes: usize, make: impl FnOnce(&Lua) -> mlua::Result<MultiValue> + 'static) -> Self {
        Self { bytes, make: Box::new(make) }
    }
}

impl fmt::Debug for Made {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Made").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// The result of a wait: values for the page, or an error at the call.
pub type WaitResult = Result<Made, NativeError>;

/// A wait of a page.
pub struct Wanted {
    future: Pin<Box<dyn Future<Output = WaitResult>>>,
    is_of_client: bool,
}

impl Wanted {
    /// A wait for `future`, which bounds its own duration; the run's deadline also applies.
    pub fn new(future: impl Future<Output = WaitResult> + 'static) -> Self {
        Self { future: Box::pin(future), is_of_client: false }
    }

    /// Marks it as a wait for content from the client, whose slowness is bounded elsewhere and not charged to the
    /// page.
    #[must_use]
    pub fn of_client(self) -> Self {
        Self { is_of_client: true, ..self }
    }

    /// Returns whether it waits for the client.
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

impl fmt::Debug for Wanted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Wanted").field("is_of_client", &self.is_of_client).finish_non_exhaustive()
    }
}

/// A wait with the result `values`, created when the future is ready.
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
