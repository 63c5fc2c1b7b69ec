//! Waiting: a native leaves a future with the run, the driver polls it, and the page goes on with what came of it.

use mlua::{Lua, MultiValue};
use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

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

/// What came of waiting: values for the page, or an error at the place of the call.
pub type Answer = Result<MakeValues, Fault>;

/// What a page waits for. Its maker bounds how long that takes.
pub type Wanted = Pin<Box<dyn Future<Output = Answer>>>;

/// A wait whose answer is `values`, made when the future is ready.
pub fn wanted<F, R>(future: F) -> Wanted
where
    F: Future<Output = Result<R, Fault>> + 'static,
    R: mlua::IntoLuaMulti + 'static,
{
    Box::pin(async move {
        let values = future.await?;
        let make: MakeValues = Box::new(move |lua| values.into_lua_multi(lua));
        Ok(make)
    })
}
