//! Compares the matcher with Luau's own.

use super::*;
use mlua::{Lua, MultiValue, Value};
use proptest::prelude::*;
use std::rc::Rc;

fn ours(subject: &[u8], pattern: &[u8], budget: usize) -> Result<Option<(usize, usize, Vec<Capture>)>, String> {
    let mut search = PatternSearch::new(Rc::new(Pattern::parse(pattern, true)?), 0);
    for _ in 0..1_000_000 {
        let mut budget = budget;
        match search.run(subject, &mut budget) {
            MatchProgress::Found(first, end) => return Ok(Some((first, end, search.captures().to_vec()))),
            MatchProgress::Absent => return Ok(None),
            MatchProgress::Unfinished => {}
        }
    }
    panic!("no end");
}

fn integer(number: usize) -> Value {
    Value::Integer(i64::try_from(number).unwrap())
}

/// Luau's own result; `None`: it raised an error.
fn theirs(lua: &Lua, subject: &[u8], pattern: &[u8]) -> Option<Vec<Value>> {
    let find: mlua::Function = lua.globals().get::<mlua::Table>("string").unwrap().get("find").unwrap();
    let given = (lua.create_string(subject).unwrap(), lua.create_string(pattern).unwrap());
    find.call::<MultiValue>(given).ok().map(|values| values.into_iter().collect())
}

/// Compares both matchers. Returns false if ours refuses the pattern; Luau notices a mistake only if the match gets
/// there, but then ours must have refused it.
fn check(lua: &Lua, subject: &[u8], pattern: &[u8]) -> bool {
    let Ok(ours_whole) = ours(subject, pattern, 1 << 20) else { return false };
    let theirs = theirs(lua, subject, pattern).unwrap_or_else(|| panic!("Luau refuses {pattern:?} for {subject:?}"));
    assert_eq!(Ok(ours_whole.clone()), ours(subject, pattern, 1), "in single steps");
    let mut expected = Vec::new();
    match ours_whole {
        None => expected.push(Value::Nil),
        Some((first, end, captures)) => {
            expected.extend([integer(first + 1), integer(end)]);
            for capture in captures {
                expected.push(match capture {
                    Capture::Text { start, end } => Value::String(lua.create_string(&subject[start..end]).unwrap()),
                    Capture::Position(at) => integer(at + 1),
                    Capture::Open { .. } => Value::Nil,
                });
            }
        }
    }
    // A text of Luau's need not be UTF-8.
    let one = |value: &Value| match value {
        Value::String(text) => format!("{:?}", text.as_bytes().to_vec()),
        other => other.to_string().unwrap(),
    };
    let show = |values: &[Value]| values.iter().map(one).collect::<Vec<_>>().join(",");
    let (subject, pattern) = (String::from_utf8_lossy(subject), String::from_utf8_lossy(pattern));
    assert_eq!(show(&expected), show(&theirs), "{subject:?} for {pattern:?}");
    true
}

#[test]
fn matches_as_luau_does() {
    let lua = Lua::new();
    for (subject, pattern) in [
        ("hello world", "o w"),
        ("hello", "l+"),
        ("hello", "l-o"),
        ("key=value", "^(%w+)=(%w*)$"),
        ("  trim  ", "^%s*(.-)%s*$"),
        ("f(a(b)c)d", "%b()"),
        ("THE (quick) fox", "%((%a+)%)"),
        ("THE (quick) fox", "%f[%a]%a+%f[%A]"),
        ("abcabc", "(abc)%1"),
        ("aaa", "a?a?a?aaa"),
        ("x]y", "[]]"),
        ("x^y", "[x^]+"),
        ("a-b", "[a%-]+"),
        ("abc", "[^a]"),
        ("abc", "()b()"),
        ("", ""),
        ("abc", "$"),
        ("a$c", "a$c"),
        ("a*c", "a%*c"),
        ("0x1F", "0[xX](%x+)"),
        ("\0a", "%z"),
        ("a\0b", "a.b"),
        ("((a)", "%b()"),
        ("aXb", "%u"),
        ("abab", "(a)(b)%1%2"),
        ("x", "[a-]"),
        ("-", "[a-]"),
        ("äöx", "[^%w]+"),
    ] {
        assert!(check(&lua, subject.as_bytes(), pattern.as_bytes()), "{pattern:?} is refused");
    }
}

#[test]
fn refuses_what_is_no_pattern() {
    for pattern in ["[", "[a", "[^", "[]", "%", "(", "(a", ")", "a)", "%b", "%bx", "%f", "%fa", "%1", "(%1)", "%0"] {
        assert!(Pattern::parse(pattern.as_bytes(), true).is_err(), "{pattern}");
    }
    assert!(Pattern::parse(&b"()".repeat(33), true).is_err());
    assert!(Pattern::parse(&b"a".repeat(PATTERN_BYTES_MAX + 1), true).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, max_global_rejects: 100_000, ..ProptestConfig::default() })]

    /// Patterns of few characters over subjects of few characters: most match somewhere.
    #[test]
    fn matches_what_luau_matches(
        subject in "[ab()1 %-]{0,12}",
        pattern in r"\^?(a|b|\.|%a|%d|%A|1|%-|%\[|%s|\[ab\]|\[\^a\]|\[%d-\]|\(a\)|\(b\*\)|\(\.-\)|\(\)|%b\(\)|%f\[a\]|%1){1,5}(\*|\+|-|\?)?(a|b|\.){0,2}\$?",
    ) {
        let lua = Lua::new();
        prop_assume!(check(&lua, subject.as_bytes(), pattern.as_bytes()), "the pattern is refused");
    }

    /// Any bytes as a pattern: no panic, and both matchers agree on every pattern that both accept.
    #[test]
    fn reads_anything(subject in prop::collection::vec(any::<u8>(), 0..12), pattern in prop::collection::vec(prop::sample::select(b"ab.%[]^$*+-?()1dbf \0\xff".to_vec()), 0..9)) {
        let lua = Lua::new();
        prop_assume!(check(&lua, &subject, &pattern), "the pattern is refused");
    }
}

#[test]
fn comes_back_in_time() {
    // Exponential for a matcher that goes back.
    let pattern = Rc::new(Pattern::parse(b"(.-)(.-)(.-)(.-)(.-)(.-)x", true).unwrap());
    let subject = vec![b'a'; 4000];
    let mut search = PatternSearch::new(pattern, 0);
    for _ in 0..1000 {
        let mut budget = 1000;
        assert_eq!(search.run(&subject, &mut budget), MatchProgress::Unfinished);
    }
}
