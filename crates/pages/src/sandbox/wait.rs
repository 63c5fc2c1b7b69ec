//! Waiting: a native leaves a future with the run, the driver polls it, and the page goes on with what came of it.

use mlua::{Lua, MultiValue};
use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// What a native could not do, as the page is told. A page may catch it, as any error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault(pub Cow<'static, str>);

impl From<&'static str> for Fault {
    fn from(text: &'static str) -> Self {
        Self(text.into())
    }
}

impl From<String> for Fault {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<mlua::Error> for Fault {
    fn from(error: mlua::Error) -> Self {
        Self(crate::sandbox::failure::plain_text(&error).into())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Makes the Luau values of an answer, within the run that waited.
pub type MakeValues = Box<dyn FnOnce(&Lua) -> mlua::Result<MultiValue>>;

/// What a page is given for its wait.
pub struct Made {
    /// Bytes of the run's memory that its values take, about; what has no room ends the run instead.
    pub bytes: usize,
    /// Makes them.
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

/// What came of waiting: values for the page, or an error at the place of the call.
pub type Answer = Result<Made, Fault>;

/// What a page waits for.
pub struct Wanted {
    future: Pin<Box<dyn Future<Output = Answer>>>,
    is_of_client: bool,
}

impl Wanted {
    /// A wait for `future`, whose maker bounds how long that takes; the run's own bound holds as well.
    pub fn new(future: impl Future<Output = Answer> + 'static) -> Self {
        Self { future: Box::pin(future), is_of_client: false }
    }

    /// The same, for what the client is yet to send: its slowness is bounded elsewhere, and is not the page's.
    #[must_use]
    pub fn of_client(self) -> Self {
        Self { is_of_client: true, ..self }
    }

    /// Whether it is the client who is waited for.
    pub const fn is_of_client(&self) -> bool {
        self.is_of_client
    }
}

impl Future for Wanted {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        self.future.as_mut().poll(context)
    }
}

impl fmt::Debug for Wanted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Wanted").field("is_of_client", &self.is_of_client).finish_non_exhaustive()
    }
}

/// A wait whose answer is `values`, made when the future is ready.
pub fn wanted<F, R>(future: F) -> Wanted
where
    F: Future<Output = Result<R, Fault>> + 'static,
    R: mlua::IntoLuaMulti + 'static,
{
    Wanted::new(async move {
        let values = future.await?;
        Ok(Made::new(0, move |lua| values.into_lua_multi(lua)))
    })
}
