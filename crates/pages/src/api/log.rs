//! `log`: lines that a page writes to the server's log.

use crate::exchange::{Abandoned, Exchange};
use crate::sandbox::Sandbox;
use crate::sandbox::failure::MARK;
use crate::sandbox::wait::NativeError;
use mlua::{Lua, LuaString};
use std::borrow::Cow;

/// Maximum number of lines per request; any more are only counted.
pub const LINES_MAX: usize = 64;
/// Maximum length of a line, in bytes. Longer lines are truncated.
pub const LINE_BYTES_MAX: usize = 2048;

/// Message for a page that ends inside a transaction.
const ABANDONED: &str = "the page ended inside a transaction, which is rolled back: return from the transaction's \
                         function before you call response.redirect, response.json or exit";

flatout_reason::reasons! {
    /// The severity of a log line.
    pub enum LogLevel { name, }
    /// For debugging.
    Debug, "debug";
    /// Normal operation.
    Info, "info";
    /// Possibly a problem.
    Warn, "warn";
    /// A problem.
    Error, "error";
}

impl LogLevel {
    fn parse(name: &[u8]) -> Option<Self> {
        Self::ALL.iter().copied().find(|level| level.name().as_bytes().eq_ignore_ascii_case(name))
    }
}

/// A line logged by a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// The severity of the line.
    pub level: LogLevel,
    /// The text in a single line, without control characters.
    pub text: String,
    /// The name of the chunk that logged the line; empty if unknown.
    pub chunk: String,
    /// The line number in the chunk, counted from 1; `None` if unknown.
    pub line: Option<u32>,
}

#[derive(Default)]
struct LogLines {
    lines: Vec<LogLine>,
    left_out: usize,
}

/// Appends a line to the page's log lines.
pub(crate) fn add(exchange: &mut Exchange, line: LogLine) {
    let lines = exchange.slot::<LogLines>();
    if lines.lines.len() < LINES_MAX {
        lines.lines.push(line);
    } else {
        lines.left_out += 1;
    }
}

pub(super) fn take(exchange: &mut Exchange) -> Vec<LogLine> {
    if !exchange.printed().is_empty() {
        let printed = exchange.take_printed();
        for line in printed.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            let (text, chunk) = (one_line(line), String::new());
            add(exchange, LogLine { level: LogLevel::Info, text, chunk, line: None });
        }
    }
    if let Some(Abandoned { line }) = exchange.abandoned.take() {
        let text = ABANDONED.to_owned();
        add(exchange, LogLine { level: LogLevel::Warn, text, chunk: String::new(), line });
    }
    let Some(lines) = exchange.slot_if::<LogLines>() else { return Vec::new() };
    let mut taken = std::mem::take(&mut lines.lines);
    let left_out = std::mem::take(&mut lines.left_out);
    if left_out > 0 {
        let text = format!("{left_out} more lines from this request were omitted");
        taken.push(LogLine { level: LogLevel::Warn, text, chunk: String::new(), line: None });
    }
    taken
}

/// Returns `bytes` as a single line. Control characters, which could forge other lines, become spaces.
pub(crate) fn one_line(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let text = String::from_utf8_lossy(cut);
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

/// Returns the chunk name and the line of the calling code.
pub(crate) fn place(lua: &Lua) -> (String, Option<u32>) {
    lua.inspect_stack(1, |debug| {
        let chunk = debug.source().short_src.map(Cow::into_owned).unwrap_or_default();
        let chunk = chunk.strip_prefix(MARK).map(str::to_owned).unwrap_or(chunk);
        (chunk, debug.current_line().and_then(|line| u32::try_from(line).ok()))
    })
    .unwrap_or_default()
}

pub(super) fn install(sandbox: &Sandbox) -> mlua::Result<()> {
    let made = sandbox.function(|lua, exchange, (first, second): (LuaString, Option<LuaString>)| {
        let (level, text) = match second {
            Some(text) => {
                let level = LogLevel::parse(&first.as_bytes())
                    .ok_or_else(|| NativeError::from("a level must be \"debug\", \"info\", \"warn\" or \"error\""))?;
                (level, text)
            }
            None => (LogLevel::Info, first),
        };
        let (chunk, line) = place(lua);
        add(exchange, LogLine { level, text: one_line(&text.as_bytes()), chunk, line });
        Ok(())
    })?;
    sandbox.global("log", made)
}
