//! String searches as native functions for the prelude: `find`, `match`, `gmatch`, `gsub`.
//!
//! If a search does not finish within [`BUDGET`] steps, the function returns a userdata value, and the prelude
//! continues the search with `search_on`, so that Luau's interrupt is reached in between.

use super::hub::Hub;
use super::pattern::{Capture, MatchProgress, Pattern, PatternSearch};
use super::wait::NativeError;
use flatout_os::random::HashState;
use mlua::{AnyUserData, Function, IntoLuaMulti, Lua, LuaString, MultiValue, Table, Value};
use std::cell::RefCell;
use std::io::Write as _;
use std::rc::Rc;

/// Maximum number of steps in one call, which take some tens of microseconds.
const BUDGET: usize = 8 * 1024;

/// Number of steps after which the next interrupt checks the clock.
const LONG_STEPS: usize = 2 * 1024;

/// Number of parsed patterns that are cached, each at the index given by its hash.
const KEPT: usize = 128;

/// Maximum length of a cached pattern, in bytes.
const KEPT_BYTES_MAX: usize = 256;

/// A cached pattern: its text, whether `^` is an anchor, and the parsed pattern.
type CachedPattern = Option<(Box<[u8]>, bool, Rc<Pattern>)>;

/// The state that the native functions share.
struct Strings {
    hub: Rc<Hub>,
    kept: RefCell<Vec<CachedPattern>>,
    hasher: HashState,
    /// A search whose buffers can be reused.
    spare: RefCell<Option<PatternSearch>>,
}

/// The library function that a match is computed for.
enum Aim {
    Find,
    Match,
    Gmatch,
    Span,
    Gsub(Box<Substitution>),
}

struct Substitution {
    replacement: LuaString,
    out: Vec<u8>,
    /// The offset up to which the string has been copied.
    copied: usize,
    count: usize,
    max: usize,
}

/// A search and what it is for.
struct Task {
    search: PatternSearch,
    subject: LuaString,
    aim: Aim,
    /// The range of the match, if one has been found.
    found: Option<(usize, usize)>,
}

/// Adds the native functions for searches.
pub(crate) fn lay(lua: &Lua, hub: &Rc<Hub>, natives: &Table) -> mlua::Result<()> {
    let strings = Rc::new(Strings {
        hub: Rc::clone(hub),
        kept: RefCell::new((0..KEPT).map(|_| None).collect()),
        hasher: HashState::default(),
        spare: RefCell::default(),
    });
    let at = Rc::clone(&strings);
    natives.set("find", lua.create_function(move |lua, given| at.find(lua, given))?)?;
    let at = Rc::clone(&strings);
    natives.set(
        "match",
        lua.create_function(move |lua, (subject, pattern, init): (_, LuaString, _)| match start(&subject, init) {
            Some(from) => at.begin(lua, subject, &pattern, true, from, Aim::Match),
            None => Ok(nil()),
        })?,
    )?;
    let at = Rc::clone(&strings);
    natives.set(
        "gmatch",
        lua.create_function(move |lua, (subject, pattern, from): (_, LuaString, usize)| {
            at.begin(lua, subject, &pattern, false, from.saturating_sub(1), Aim::Gmatch)
        })?,
    )?;
    let at = Rc::clone(&strings);
    natives.set(
        "span",
        lua.create_function(move |lua, (subject, pattern, from): (_, LuaString, usize)| {
            at.begin(lua, subject, &pattern, true, from.saturating_sub(1), Aim::Span)
        })?,
    )?;
    natives.set("gsub", gsub(lua, &strings)?)?;
    let at = Rc::clone(&strings);
    natives.set(
        "check_pattern",
        lua.create_function(move |_, (_, pattern): (LuaString, LuaString)| {
            at.pattern(&pattern.as_bytes(), true)?;
            Ok(())
        })?,
    )?;
    let at = Rc::clone(&strings);
    natives.set(
        "search_on",
        lua.create_function(move |lua, task: AnyUserData| {
            let mut task = task.borrow_mut::<Task>()?;
            Ok(at.run(lua, &mut task)?)
        })?,
    )?;
    natives.set(
        "search_result",
        lua.create_function(move |lua, task: AnyUserData| strings.result(lua, task.take::<Task>()?))?,
    )
}

/// Creates `gsub` with a replacement string.
fn gsub(lua: &Lua, strings: &Rc<Strings>) -> mlua::Result<Function> {
    let at = Rc::clone(strings);
    lua.create_function(move |lua, given: (LuaString, LuaString, LuaString, Option<f64>)| {
        let (subject, pattern, replacement, max) = given;
        let max = max.map_or(usize::MAX, |max| max.max(0.0) as usize);
        let aim = Substitution { replacement, out: Vec::new(), copied: 0, count: 0, max };
        at.begin(lua, subject, &pattern, true, 0, Aim::Gsub(Box::new(aim)))
    })
}

/// The result of a search without a match.
fn nil() -> MultiValue {
    MultiValue::from_iter([Value::Nil])
}

/// Converts a position to a Luau number. Positions in strings are far below 64 bits.
fn integer(number: usize) -> Value {
    Value::Integer(number.cast_signed() as i64)
}

/// Returns the offset at which a search starts, for a position that is counted from 1, or from the end if it is
/// negative.
fn start(subject: &LuaString, init: Option<f64>) -> Option<usize> {
    let length = subject.as_bytes().len();
    let init = init.map_or(1, |init| init as i64);
    let from = if init < 0 { (init + length.cast_signed() as i64 + 1).max(1) } else { init.max(1) } as usize - 1;
    (from <= length).then_some(from)
}

impl Strings {
    /// Returns the parsed pattern, from the cache if possible.
    fn pattern(&self, text: &[u8], anchors: bool) -> Result<Rc<Pattern>, NativeError> {
        if text.len() > KEPT_BYTES_MAX {
            self.hub.meter.hurry();
            return Ok(Rc::new(Pattern::parse(text, anchors)?));
        }
        let place = std::hash::BuildHasher::hash_one(&self.hasher, (text, anchors)) as usize % KEPT;
        let mut kept = self.kept.borrow_mut();
        if let Some((known, how, pattern)) = &kept[place]
            && &known[..] == text
            && *how == anchors
        {
            return Ok(Rc::clone(pattern));
        }
        let pattern = Rc::new(Pattern::parse(text, anchors)?);
        kept[place] = Some((text.into(), anchors, Rc::clone(&pattern)));
        Ok(pattern)
    }

    fn find(
        &self,
        lua: &Lua,
        (subject, pattern, init, plain): (LuaString, LuaString, Option<f64>, Option<bool>),
    ) -> mlua::Result<MultiValue> {
        let Some(from) = start(&subject, init) else { return Ok(nil()) };
        if !plain.unwrap_or(false) && !Pattern::is_plain(&pattern.as_bytes()) {
            return self.begin(lua, subject, &pattern, true, from, Aim::Find);
        }
        let (bytes, wanted) = (subject.as_bytes(), pattern.as_bytes());
        if bytes.len() - from > 64 * LONG_STEPS {
            self.hub.meter.hurry();
        }
        match memchr::memmem::find(&bytes[from..], &wanted) {
            Some(found) => (from + found + 1, from + found + wanted.len()).into_lua_multi(lua),
            None => Ok(nil()),
        }
    }

    fn begin(
        &self,
        lua: &Lua,
        subject: LuaString,
        pattern: &LuaString,
        anchors: bool,
        from: usize,
        aim: Aim,
    ) -> mlua::Result<MultiValue> {
        let pattern = self.pattern(&pattern.as_bytes(), anchors)?;
        let search = match self.spare.borrow_mut().take() {
            Some(spare) => spare.with(pattern, from),
            None => PatternSearch::new(pattern, from),
        };
        let mut task = Task { search, subject, aim, found: None };
        if self.run(lua, &mut task)? {
            return self.result(lua, task);
        }
        lua.create_any_userdata(task)?.into_lua_multi(lua)
    }

    /// Continues the search with one budget. Returns whether the search is finished.
    fn run(&self, lua: &Lua, task: &mut Task) -> Result<bool, NativeError> {
        let mut budget = BUDGET;
        let subject = task.subject.as_bytes();
        let finished = match &mut task.aim {
            Aim::Gsub(substitution) => {
                let room = self.hub.meter.room(lua, self.hub.held_bytes());
                let finished = substitution.run(&mut task.search, &subject, &mut budget, room)?;
                if substitution.out.len() > room {
                    self.hub.meter.exceed_memory(lua);
                    return Err(NativeError::from("not enough memory"));
                }
                finished
            }
            _ => match task.search.run(&subject, &mut budget) {
                MatchProgress::Found(first, end) => {
                    task.found = Some((first, end));
                    true
                }
                MatchProgress::Absent => true,
                MatchProgress::Unfinished => false,
            },
        };
        if BUDGET - budget > LONG_STEPS {
            self.hub.meter.hurry();
        }
        Ok(finished)
    }

    /// Returns the result values of a finished search.
    fn result(&self, lua: &Lua, task: Task) -> mlua::Result<MultiValue> {
        let Task { search, subject, aim, found } = task;
        let values = match (aim, found) {
            (Aim::Gsub(substitution), _) => {
                (lua.create_string(&substitution.out)?, substitution.count).into_lua_multi(lua)?
            }
            (_, None) => return Ok(nil()),
            (aim, Some((first, end))) => {
                let mut values = MultiValue::with_capacity(search.captures().len() + 2);
                match aim {
                    Aim::Find | Aim::Span => values.extend([integer(first + 1), integer(end)]),
                    Aim::Gmatch => values.push_back(integer(end + 1 + usize::from(first == end))),
                    _ => {}
                }
                let bytes = subject.as_bytes();
                if search.captures().is_empty() && !matches!(aim, Aim::Find) {
                    values.push_back(Value::String(lua.create_string(&bytes[first..end])?));
                }
                for capture in search.captures() {
                    values.push_back(match *capture {
                        Capture::Text { start, end } => Value::String(lua.create_string(&bytes[start..end])?),
                        Capture::Position(at) => integer(at + 1),
                        Capture::Open { .. } => return Err(mlua::Error::runtime("unfinished capture")),
                    });
                }
                values
            }
        };
        *self.spare.borrow_mut() = Some(search);
        Ok(values)
    }
}

impl Substitution {
    /// Continues until everything has been replaced or the budget is used up. Returns whether the substitution is
    /// finished. Stops soon after the result is larger than `room` bytes.
    fn run(
        &mut self,
        search: &mut PatternSearch,
        subject: &[u8],
        budget: &mut usize,
        room: usize,
    ) -> Result<bool, NativeError> {
        while self.count < self.max {
            let (first, end) = match search.run(subject, budget) {
                MatchProgress::Found(first, end) => (first, end),
                MatchProgress::Absent => break,
                MatchProgress::Unfinished => return Ok(false),
            };
            self.count += 1;
            self.out.extend_from_slice(&subject[self.copied..first]);
            self.replace(search.captures(), subject, first, end, room)?;
            self.copied = end;
            *budget = budget.saturating_sub(self.replacement.as_bytes().len() / 8);
            if self.out.len() > room {
                return Ok(true);
            }
            let from = if end == first { end + 1 } else { end };
            if from > subject.len() || search.pattern().anchored {
                break;
            }
            search.restart(from);
            if *budget == 0 {
                return Ok(self.count == self.max && self.finish(subject));
            }
        }
        Ok(self.finish(subject))
    }

    fn finish(&mut self, subject: &[u8]) -> bool {
        self.out.extend_from_slice(subject.get(self.copied..).unwrap_or_default());
        self.copied = subject.len();
        true
    }

    /// Appends the replacement string, with `%0` to `%9` replaced by captures.
    fn replace(
        &mut self,
        captures: &[Capture],
        subject: &[u8],
        first: usize,
        end: usize,
        room: usize,
    ) -> Result<(), NativeError> {
        let replacement = self.replacement.as_bytes();
        let mut rest = &replacement[..];
        while let Some(at) = memchr::memchr(b'%', rest) {
            self.out.extend_from_slice(&rest[..at]);
            let capture = match rest.get(at + 1) {
                Some(b'%') => {
                    self.out.push(b'%');
                    rest = &rest[at + 2..];
                    continue;
                }
                Some(b'0') => Capture::Text { start: first, end },
                Some(b'1') if captures.is_empty() => Capture::Text { start: first, end },
                Some(&digit @ b'1'..=b'9') => *captures
                    .get(usize::from(digit - b'1'))
                    .ok_or_else(|| NativeError::from(format!("invalid capture index %{}", char::from(digit))))?,
                _ => return Err(NativeError::from("invalid use of '%' in replacement string")),
            };
            match capture {
                Capture::Text { start, end } => self.out.extend_from_slice(&subject[start..end]),
                // Writing to a vector of bytes cannot fail.
                Capture::Position(at) => drop(write!(self.out, "{}", at + 1)),
                Capture::Open { .. } => return Err(NativeError::from("unfinished capture")),
            }
            rest = &rest[at + 2..];
            if self.out.len() > room {
                return Ok(());
            }
        }
        self.out.extend_from_slice(rest);
        Ok(())
    }
}
