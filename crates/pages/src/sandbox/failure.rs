//! How a run can fail: one table gives the name for the log and the counter, the status and the meaning.

macro_rules! failures {
    ($($variant:ident, $name:literal, $status:literal, $text:literal;)+) => {
        /// Why a run did not come to its end.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum FailureKind {
            $(#[doc = $text] $variant,)+
        }

        impl FailureKind {
            /// All of them, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The names, in the order of the table.
            pub const NAMES: &'static [&'static str] = &[$($name,)+];

            /// The stable name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// The status of the answer.
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)+ }
            }

            /// What it means.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

failures! {
    ScriptError, "page_script_error", 500, "The page's code raised an error that nothing in it caught: 500.";
    CpuLimit, "page_cpu_limit", 503, "The page used all the CPU time that one request may have: 503.";
    MemoryLimit, "page_memory_limit", 503, "The page used all the memory that one request may have: 503.";
    Stray, "page_stray_yield", 500, "The page's code gave control away outside any coroutine of its own: 500.";
}

/// A run that failed: why, and where the page's code was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Why.
    pub kind: FailureKind,
    /// One sentence of what was wrong, without the place.
    pub message: String,
    /// Name of the chunk, as given to [`Sandbox::load`](super::Sandbox::load), where the code was; empty: not known.
    pub chunk: String,
    /// Line of the chunk, from 1.
    pub line: Option<u32>,
    /// The calls that led there, one a line.
    pub traceback: String,
}

/// What an error says, without tracebacks.
pub(crate) fn plain_text(error: &mlua::Error) -> String {
    match error {
        mlua::Error::CallbackError { cause, .. } => plain_text(cause),
        mlua::Error::RuntimeError(text) | mlua::Error::MemoryError(text) => text.clone(),
        mlua::Error::WithContext { cause, .. } => plain_text(cause),
        mlua::Error::ExternalError(cause) => cause.to_string(),
        other => other.to_string(),
    }
}
