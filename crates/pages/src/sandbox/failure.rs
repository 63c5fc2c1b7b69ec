//! How a run can fail: one table gives the name for the log and the counter, the status and the meaning.

use crate::template::Lines;
use mlua::Lua;
use std::fmt::Write as _;

flatout_reason::reasons! {
    /// Why a run did not come to its end.
    pub enum FailureKind {
        name,
        /// The status of the answer.
        status: u16,
        text,
    }
    ScriptError, "page_script_error", 500, "The page's code raised an error that nothing in it caught: 500.";
    CpuLimit, "page_cpu_limit", 503, "The page used all the CPU time that one request may have: 503.";
    Held, "page_held", 503, "The page computed for too long where it cannot make way for others, within a metamethod or a callback: 503.";
    RunLimit, "page_run_limit", 503, "The page took longer in all than one request may, its waiting included: 503.";
    MemoryLimit, "page_memory_limit", 503, "The page used all the memory that one request may have: 503.";
    MemoryBudget, "page_memory_budget", 503, "Pages, or those of one client, hold as much memory as all of them together may: 503.";
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

/// Where the page's code was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    chunk: String,
    line: Option<u32>,
    traceback: String,
}

/// The name under which this crate's own Luau runs: never the place of a failure.
pub(crate) const PRELUDE: &str = "[sandbox]";

/// Begins the name of every chunk of a page: no text that a page makes itself begins so, and none is taken for a place.
pub(crate) const MARK: char = '\u{1}';

/// Frames that are looked at for the place of a failure.
const FRAMES_MAX: usize = 64;

impl Place {
    /// Where the coroutine under way is: the innermost frame of a page's code.
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

    /// The line of that frame.
    pub(crate) const fn line(&self) -> Option<u32> {
        self.line
    }

    /// The first frame of a page's code in a traceback, as Luau writes it: a line for each, with name and line number.
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

/// Name and line number of a frame: `name:line`, and what follows.
fn framed(frame: &str) -> Option<(&str, u32)> {
    let end = frame.find(": in ").or_else(|| frame.find(" function ")).unwrap_or(frame.len());
    let (name, line) = frame[..end].rsplit_once(':')?;
    Some((name.strip_prefix(MARK).unwrap_or(name), line.parse().ok()?))
}

/// Name, line number and the rest of a text that Luau has begun with the place of an error: `name:line:`.
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

impl Failure {
    pub(crate) fn at(kind: FailureKind, message: String, place: Place) -> Self {
        Self { kind, message, chunk: place.chunk, line: place.line, traceback: place.traceback }
    }

    /// Says where it was.
    pub(crate) fn put(&mut self, place: Place) {
        if place.line.is_some() {
            self.chunk = place.chunk;
            self.line = place.line;
            self.traceback = place.traceback;
        }
    }

    /// What became of an error that nothing caught.
    pub(crate) fn of_error(error: &mlua::Error) -> Self {
        if is_memory(error) {
            let text = FailureKind::MemoryLimit.text().to_owned();
            return Self::at(FailureKind::MemoryLimit, text, place_of(error));
        }
        let text = plain_text(error);
        match placed(&text) {
            Some((chunk, line, message)) if !matches!(error, mlua::Error::CallbackError { .. }) => {
                let place = Place { chunk: chunk.to_owned(), line: Some(line), traceback: place_of(error).traceback };
                Self::at(FailureKind::ScriptError, message.to_owned(), place)
            }
            _ => Self::at(FailureKind::ScriptError, text, place_of(error)),
        }
    }

    /// The place in the chunk and the message, as Luau puts them for a chunk with a mark.
    pub(crate) fn marked_text(&self) -> String {
        match self.line {
            Some(line) => format!("{MARK}{}:{line}: {}", self.chunk, self.message),
            None => self.message.clone(),
        }
    }

    /// What a page gets that catches it: the place, in the file that the line of the chunk comes from by `lines`, and the
    /// message, as Luau puts them.
    pub(crate) fn text(&self, lines: Option<&Lines>) -> String {
        let Some(line) = self.line else { return self.message.clone() };
        let place = lines.filter(|_| self.chunk != PRELUDE).and_then(|lines| lines.place(line));
        match place {
            Some(place) => format!("{}:{}: {}", place.file, place.line, self.message),
            None => format!("{}:{line}: {}", self.chunk, self.message),
        }
    }
}

fn place_of(error: &mlua::Error) -> Place {
    match error {
        mlua::Error::CallbackError { traceback, cause } => {
            let place = Place::of_traceback(traceback);
            if place.chunk.is_empty() { place_of(cause) } else { place }
        }
        mlua::Error::RuntimeError(text) => match text.split_once(TRACEBACK) {
            Some((_, traceback)) => Place::of_traceback(traceback),
            None => Place::default(),
        },
        mlua::Error::WithContext { cause, .. } => place_of(cause),
        _ => Place::default(),
    }
}

/// Whether an error comes of the memory limit.
pub(crate) fn is_memory(error: &mlua::Error) -> bool {
    match error {
        mlua::Error::MemoryError(_) => true,
        mlua::Error::CallbackError { cause, .. } | mlua::Error::WithContext { cause, .. } => is_memory(cause),
        mlua::Error::RuntimeError(text) => text.split(TRACEBACK).next() == Some("not enough memory"),
        _ => false,
    }
}

/// What stands between an error's message and the calls that led to it.
const TRACEBACK: &str = "\nstack traceback:";

/// What an error says, without tracebacks.
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
                format!("invalid argument #{pos} ({to} expected, got {from})")
            }
            other => format!("invalid argument #{pos}: {}", plain_text(other)),
        },
        other => other.to_string(),
    }
}
