//! Structured fields (RFC 9651): a strict walk over dictionaries, which copies nothing.
//!
//! Whoever asks wants integers; members of every other type are checked in full and passed by.

use crate::token::{TCHAR, is};

/// The value of a dictionary's member, its parameters aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Member {
    /// An integer of at most 15 digits.
    Integer(i64),
    /// A value of any other type.
    Other,
}

/// Calls `handle` with each key and value of the dictionary in `bytes`. A key may come again: the last one counts
/// (RFC 9651 §4.2.2).
///
/// `None` when the grammar is broken anywhere: then the whole field must be ignored, whatever was handled before.
pub fn walk_dictionary<'a>(bytes: &'a [u8], mut handle: impl FnMut(&'a [u8], Member)) -> Option<()> {
    let mut input = Input(trim_spaces(bytes));
    while !input.0.is_empty() {
        let key = input.key()?;
        let member = if input.take(b'=') { input.item_or_inner_list()? } else { Member::Other };
        input.parameters()?;
        handle(key, member);
        input.skip_ows();
        if input.0.is_empty() {
            return Some(());
        }
        if !input.take(b',') {
            return None;
        }
        input.skip_ows();
        if input.0.is_empty() {
            return None;
        }
    }
    Some(())
}

fn trim_spaces(mut bytes: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] | [rest @ .., b' '] = bytes {
        bytes = rest;
    }
    bytes
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, byte: u8) -> bool {
        match self.0 {
            [first, rest @ ..] if *first == byte => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    fn take_while(&mut self, accept: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.0.iter().position(|&byte| !accept(byte)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(end);
        self.0 = rest;
        taken
    }

    fn skip_ows(&mut self) {
        self.take_while(|byte| matches!(byte, b' ' | b'\t'));
    }

    /// `key = ( lcalpha / "*" ) *( lcalpha / DIGIT / "_" / "-" / "." / "*" )`.
    fn key(&mut self) -> Option<&'a [u8]> {
        if !matches!(self.0.first(), Some(b'a'..=b'z' | b'*')) {
            return None;
        }
        Some(self.take_while(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*')))
    }

    fn parameters(&mut self) -> Option<()> {
        while self.take(b';') {
            self.take_while(|byte| byte == b' ');
            self.key()?;
            if self.take(b'=') {
                self.bare_item()?;
            }
        }
        Some(())
    }

    fn item_or_inner_list(&mut self) -> Option<Member> {
        if !self.take(b'(') {
            return self.bare_item();
        }
        loop {
            let spaces = self.take_while(|byte| byte == b' ');
            if self.take(b')') {
                return Some(Member::Other);
            }
            // Items stand apart by spaces; before the first there need be none.
            let _ = spaces;
            self.bare_item()?;
            self.parameters()?;
            if !matches!(self.0.first(), Some(b' ' | b')')) {
                return None;
            }
        }
    }

    fn bare_item(&mut self) -> Option<Member> {
        match self.0.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string().map(|()| Member::Other),
            b'?' => {
                self.take(b'?');
                (self.take(b'0') || self.take(b'1')).then_some(Member::Other)
            }
            b':' => {
                self.take(b':');
                self.take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='));
                self.take(b':').then_some(Member::Other)
            }
            b'@' => {
                self.take(b'@');
                matches!(self.number()?, Member::Integer(_)).then_some(Member::Other)
            }
            b'%' => {
                self.take(b'%');
                self.display_string().map(|()| Member::Other)
            }
            b'*' | b'a'..=b'z' | b'A'..=b'Z' => {
                self.take_while(|byte| is(byte, TCHAR) || matches!(byte, b':' | b'/'));
                Some(Member::Other)
            }
            _ => None,
        }
    }

    /// An integer of 1 to 15 digits, or a decimal of 1 to 12 digits, a dot and 1 to 3 (RFC 9651 §4.2.4).
    fn number(&mut self) -> Option<Member> {
        let negative = self.take(b'-');
        let digits = self.take_while(|byte| byte.is_ascii_digit());
        if self.take(b'.') {
            let decimals = self.take_while(|byte| byte.is_ascii_digit());
            return ((1..=12).contains(&digits.len()) && (1..=3).contains(&decimals.len())).then_some(Member::Other);
        }
        if !(1..=15).contains(&digits.len()) {
            return None;
        }
        let value = digits.iter().fold(0_i64, |value, &digit| value * 10 + i64::from(digit - b'0'));
        Some(Member::Integer(if negative { -value } else { value }))
    }

    fn string(&mut self) -> Option<()> {
        self.take(b'"');
        loop {
            match self.0 {
                [b'"', rest @ ..] => {
                    self.0 = rest;
                    return Some(());
                }
                [b'\\', b'"' | b'\\', rest @ ..] => self.0 = rest,
                [b'\\', ..] => return None,
                [b' '..=b'~', rest @ ..] => self.0 = rest,
                _ => return None,
            }
        }
    }

    /// Behind its `%`: a quoted string whose bytes beyond ASCII are percent-encoded in lower case.
    fn display_string(&mut self) -> Option<()> {
        if !self.take(b'"') {
            return None;
        }
        loop {
            match self.0 {
                [b'"', rest @ ..] => {
                    self.0 = rest;
                    return Some(());
                }
                [b'%', b'0'..=b'9' | b'a'..=b'f', b'0'..=b'9' | b'a'..=b'f', rest @ ..] => self.0 = rest,
                [b'%', ..] => return None,
                [b' '..=b'~', rest @ ..] => self.0 = rest,
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Member, walk_dictionary};

    fn walk(text: &str) -> Option<Vec<(String, Member)>> {
        let mut members = Vec::new();
        walk_dictionary(text.as_bytes(), |key, member| {
            members.push((String::from_utf8_lossy(key).into_owned(), member));
        })?;
        Some(members)
    }

    #[test]
    fn members_and_their_types() {
        let integer = |key: &str, value| (key.to_owned(), Member::Integer(value));
        let other = |key: &str| (key.to_owned(), Member::Other);
        assert_eq!(walk(""), Some(vec![]));
        assert_eq!(walk("  "), Some(vec![]));
        assert_eq!(walk("a=1"), Some(vec![integer("a", 1)]));
        assert_eq!(walk(" sha-256=10 ,\tsha-512=0 "), Some(vec![integer("sha-256", 10), integer("sha-512", 0)]));
        assert_eq!(walk("a=-999999999999999;x;y=1.5, b"), Some(vec![integer("a", -999_999_999_999_999), other("b")]));
        let all =
            "a=1.25, b=\"x\\\"y,\", c=tok/en:x, d=:aGk=:, e=?0, f=(1 \"a\";q=1  b);z, g=@123, h=%\"a%c3%bc\", *i=()";
        let keys: Vec<_> = ["a", "b", "c", "d", "e", "f", "g", "h", "*i"].map(other).into();
        assert_eq!(walk(all), Some(keys));
    }

    #[test]
    fn anything_broken_breaks_all() {
        for text in [
            "a=1,",
            ",a=1",
            "a=1 b=2",
            "a=1,,b=2",
            "A=1",
            "1=1",
            "a=",
            "a= 1",
            "a =1",
            "a=1;",
            "a=1;X",
            "a=1.",
            "a=.5",
            "a=1.2345",
            "a=1234567890123456",
            "a=--1",
            "a=\"x",
            "a=\"\\x\"",
            "a=\"\u{fc}\"",
            "a=:x",
            "a=:-:",
            "a=?2",
            "a=(1",
            "a=(1,2)",
            "a=(1\"x\")",
            "a=@1.5",
            "a=%x",
            "a=%\"%C3\"",
            "a=1\t;b",
            "\ta=1",
            "a=\u{fc}",
        ] {
            assert_eq!(walk(text), None, "{text:?}");
        }
    }

    /// A prefix is a dictionary, or it is not; either way nothing panics and no key lies outside the input.
    #[test]
    fn every_prefix_is_decided() {
        let text = b"a=1.25;p=(, b=\"x\\\"y,\", c=tok/en:x, d=:aGk=:, e=?0, f=(1 \"a\";q=1), g=@123, h=%\"a%c3\"";
        for end in 0..=text.len() {
            for start in 0..=end {
                let _ = walk_dictionary(&text[start..end], |key, _| assert!(!key.is_empty()));
            }
        }
    }
}
