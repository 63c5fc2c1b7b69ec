//! Failures of runs: one table with their names, statuses and meanings, for the log and the counters.

use flatout_template::LineMap;
use mlua::Lua;
use std::fmt::Write as _;

flatout_reason::reasons! {
    /// The reason why a run failed.
    pub enum FailureKind {
        name,
        /// The status of the response.
        status: u16,
        text,
    }
    ScriptError, "page_script_error", 500, "The page's code raised an error and did not catch it: 500.";
    CpuLimit, "page_cpu_limit", 503, "The page used up the CPU time allowed for one request: 503.";
    Held, "page_no_yield", 503, "The page computed for too long inside a metamethod or a callback, where it cannot yield: 503.";
    RunLimit, "page_run_limit", 503, "The page exceeded the time limit for one request, which includes waiting: 503.";
    Overloaded: overload, "page_overloaded", 503, "More pages need the CPU than the worker can run within the target delay: 503.";
    MemoryLimit, "page_memory_limit", 503, "The page used up the memory allowed for one request: 503.";
    MemoryBudget, "page_memory_budget", 503, "Pages have reached the memory limit for all clients or for this one: 503.";
    Stray, "page_stray_yield", 500, "The page's code yielded outside any coroutine: 500.";
}

/// The failure of a run: the reason, and the place in the page's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFailure {
    /// The reason of the failure.
    pub kind: FailureKind,
    /// A sentence about the problem, without the place.
    pub message: String,
    /// The name of the chunk, as passed to [`Sandbox::load`](super::Sandbox::load); empty if unknown.
    pub chunk: String,
    /// The line in the chunk, counted from 1; `None` if unknown.
    pub line: Option<u32>,
    /// The call stack, one call per line.
    pub traceback: String,
}

/// A place in the page's code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CodeLocation {
    chunk: String,
    line: Option<u32>,
    traceback: String,
}

/// The chunk name of this crate's own Luau code, which is never reported as the place of a failure.
pub(crate) const PRELUDE: &str = "[sandbox]";

/// A prefix of the names of all page chunks. Text that a page generates cannot start with it, and so cannot be mistaken
/// for a place.
pub(crate) const MARK: char = '\u{1}';

/// Maximum number of stack frames examined to find the place of a failure.
const FRAMES_MAX: usize = 64;

impl CodeLocation {
    /// Returns the current place: the innermost stack frame of page code in the running coroutine.
    pub(crate) fn here(lua: &Lua) -> Self {
        let mut place = Self::default();
        for level in 0..FRAMES_MAX {
            let Some(frame) = lua.inspect_stack(level, |frame| {
                let source = frame.source();
                let name = source.source.as_deref().map_or("", |name| name.strip_prefix('=').unwrap_or(name));
                let name = name.strip_prefix(MARK).unwrap_or(name);
                (name.to_owned(), frame.current_line(), source.what == "C")
            }) else {
                break;
            };
            let (name, line, native) = frame;
            if native || name == PRELUDE {
                continue;
            }
            let line = line.and_then(|line| u32::try_from(line).ok());
            if place.chunk.is_empty() {
                place.chunk.clone_from(&name);
                place.line = line;
            }
            let _ = writeln!(place.traceback, "{name}:{}", line.unwrap_or_default());
        }
        place
    }

    /// The line of the innermost frame of page code, if known.
    pub(crate) const fn line(&self) -> Option<u32> {
        self.line
    }

    /// Returns the first frame of page code in a traceback in Luau's format: one frame per line, with its name and line
    /// number.
    pub(crate) fn of_traceback(traceback: &str) -> Self {
        let mut place = Self::default();
        for frame in traceback.lines().map(str::trim_start) {
            let Some((chunk, line)) = framed(frame) else { continue };
            if chunk == PRELUDE {
                continue;
            }
            if place.chunk.is_empty() {
                chunk.clone_into(&mut place.chunk);
                place.line = Some(line);
            }
            let _ = writeln!(place.traceback, "{chunk}:{line}");
        }
        place
    }
}

/// Splits a frame of the form `name:line` into the name and the line number.
fn framed(frame: &str) -> Option<(&str, u32)> {
    let end = frame.find(": in ").or_else(|| frame.find(" function ")).unwrap_or(frame.len());
    let (name, line) = frame[..end].rsplit_once(':')?;
    Some((name.strip_prefix(MARK).unwrap_or(name), line.parse().ok()?))
}

/// Splits Luau's error message `name:line: message` into the name, the line number and the message.
fn placed(text: &str) -> Option<(&str, u32, &str)> {
    let text = text.strip_prefix(MARK).or_else(|| text.starts_with(PRELUDE).then_some(text))?;
    let mut from = 0;
    while let Some(found) = text.get(from..)?.find(':') {
        let (name, rest) = (&text[..from + found], &text[from + found + 1..]);
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 && rest.as_bytes().get(digits) == Some(&b':') && !name.is_empty() && !name.contains('\n') {
            let line = rest[..digits].parse().ok()?;
            return Some((name, line, rest[digits + 1..].trim_start()));
        }
        from += found + 1;
    }
    None
}

impl RunFailure {
    pub(crate) fn at(kind: FailureKind, message: String, place: CodeLocation) -> Self {
        Self { kind, message, chunk: place.chunk, line: place.line, traceback: place.traceback }
    }

    /// Sets the place, unless it is unknown.
    pub(crate) fn put(&mut self, place: CodeLocation) {
        if place.line.is_some() {
            self.chunk = place.chunk;
            self.line = place.line;
            self.traceback = place.traceback;
        }
    }

    /// Converts an error that the page did not catch.
    pub(crate) fn of_error(error: &mlua::Error) -> Self {
        if is_memory(error) {
            let text = FailureKind::MemoryLimit.text().to_owned();
            return Self::at(FailureKind::MemoryLimit, text, place_of(error));
        }
        let text = plain_text(error);
        match placed(&text) {
            Some((chunk, line, message)) if !matches!(error, mlua::Error::CallbackError { .. }) => {
                let place =
                    CodeLocation { chunk: chunk.to_owned(), line: Some(line), traceback: place_of(error).traceback };
                Self::at(FailureKind::ScriptError, message.to_owned(), place)
            }
            _ => Self::at(FailureKind::ScriptError, text, place_of(error)),
        }
    }

    /// The place in the chunk and the message, in Luau's format for a marked chunk name.
    pub(crate) fn marked_text(&self) -> String {
        match self.line {
            Some(line) => format!("{MARK}{}:{line}: {}", self.chunk, self.message),
            None => self.message.clone(),
        }
    }

    /// The text of an error that the page catches, in Luau's format: the message with the place, which `lines` maps to
    /// the source file.
    pub(crate) fn text(&self, lines: Option<&LineMap>) -> String {
        let Some(line) = self.line else { return self.message.clone() };
        let place = lines.filter(|_| self.chunk != PRELUDE).and_then(|lines| lines.place(line));
        match place {
            Some(place) => format!("{}:{}: {}", place.file, place.line, self.message),
            None => format!("{}:{line}: {}", self.chunk, self.message),
        }
    }
}

fn place_of(error: &mlua::Error) -> CodeLocation {
    match error {
        mlua::Error::CallbackError { traceback, cause } => {
            let place = CodeLocation::of_traceback(traceback);
            if place.chunk.is_empty() { place_of(cause) } else { place }
        }
        mlua::Error::RuntimeError(text) => match text.split_once(TRACEBACK) {
            Some((_, traceback)) => CodeLocation::of_traceback(traceback),
            None => CodeLocation::default(),
        },
        mlua::Error::WithContext { cause, .. } => place_of(cause),
        _ => CodeLocation::default(),
    }
}

/// Returns whether the memory limit caused the error.
pub(crate) fn is_memory(error: &mlua::Error) -> bool {
    match error {
        mlua::Error::MemoryError(_) => true,
        mlua::Error::CallbackError { cause, .. } | mlua::Error::WithContext { cause, .. } => is_memory(cause),
        mlua::Error::RuntimeError(text) => text.split(TRACEBACK).next() == Some("not enough memory"),
        _ => false,
    }
}

/// The separator between an error's message and its traceback.
const TRACEBACK: &str = "\nstack traceback:";

/// Returns the message of an error without tracebacks.
pub(crate) fn plain_text(error: &mlua::Error) -> String {
    match error {
        mlua::Error::CallbackError { cause, .. } | mlua::Error::WithContext { cause, .. } => plain_text(cause),
        mlua::Error::RuntimeError(text) | mlua::Error::MemoryError(text) => {
            text.split(TRACEBACK).next().unwrap_or_default().to_owned()
        }
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        mlua::Error::ExternalError(cause) => cause.to_string(),
        mlua::Error::BadArgument { pos, cause, .. } => match &**cause {
            mlua::Error::FromLuaConversionError { from, to, .. } => {
                let to = match to.as_str() {
                    "f64" | "f32" | "i64" | "i32" | "u64" | "u32" | "usize" | "u16" | "u8" => "number",
                    other => other,
                };
                // The only light userdata that pages see is `json.null`.
                let from = if *from == "lightuserdata" { "null" } else { *from };
                format!("invalid argument #{pos} ({to} expected, got {from})")
            }
            other => format!("invalid argument #{pos}: {}", plain_text(other)),
        },
        other => other.to_string(),
    }
}
