//! Structured fields (RFC 9651) with their values: dictionaries and lists, as targeted fields, No-Vary-Search and
//! Cache-Groups have them.
//!
//! `flatout_http::structured` walks dictionaries for their integers without a copy; here the values themselves are
//! wanted. Parameters are checked and dropped: none of these fields gives them a meaning.

use flatout_http::token::{TCHAR, is};

/// A value, its parameters aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// An integer of at most 15 digits.
    Integer(i64),
    /// `?1` or `?0`, or a dictionary's key without a value: true.
    Boolean(bool),
    /// A string, unescaped.
    String(Vec<u8>),
    /// An inner list.
    List(Vec<Value>),
    /// A value of any other type, valid.
    Other,
}

/// Members of one field at the most; more break it.
const MEMBERS_MAX: usize = 1024;

/// Reads a dictionary. Of a key that comes again, the last value counts (RFC 9651 §4.2.2), in the first one's place.
/// `None`: the grammar is broken, and the field must be ignored.
pub(crate) fn parse_dictionary<'a>(bytes: &'a [u8]) -> Option<Vec<(&'a [u8], Value)>> {
    let mut members: Vec<(&'a [u8], Value)> = Vec::new();
    let mut input = Input(trim_spaces(bytes));
    while !input.0.is_empty() {
        let key = input.key()?;
        let value = if input.take(b'=') { input.item_or_list()? } else { Value::Boolean(true) };
        input.parameters()?;
        match members.iter().position(|(known, _)| *known == key) {
            Some(place) => members[place].1 = value,
            None if members.len() < MEMBERS_MAX => members.push((key, value)),
            None => return None,
        }
        input.next_member()?;
    }
    Some(members)
}

/// Reads a list. `None`: the grammar is broken.
pub(crate) fn parse_list(bytes: &[u8]) -> Option<Vec<Value>> {
    let mut members = Vec::new();
    let mut input = Input(trim_spaces(bytes));
    while !input.0.is_empty() {
        let value = input.item_or_list()?;
        input.parameters()?;
        if members.len() == MEMBERS_MAX {
            return None;
        }
        members.push(value);
        input.next_member()?;
    }
    Some(members)
}

/// Joins the lines of a field as RFC 9651 §4.2 asks; lines without anything are left out. `None`: there is no line.
pub(crate) fn join_lines<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
    let mut joined: Option<Vec<u8>> = None;
    for line in lines {
        let joined = joined.get_or_insert_default();
        if !joined.is_empty() && !line.is_empty() {
            joined.extend_from_slice(b", ");
        }
        joined.extend_from_slice(line);
    }
    joined
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

    /// The comma before another member, or the end. A comma must have one behind it.
    fn next_member(&mut self) -> Option<()> {
        self.take_while(|byte| matches!(byte, b' ' | b'\t'));
        if self.0.is_empty() {
            return Some(());
        }
        if !self.take(b',') {
            return None;
        }
        self.take_while(|byte| matches!(byte, b' ' | b'\t'));
        (!self.0.is_empty()).then_some(())
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

    fn item_or_list(&mut self) -> Option<Value> {
        if !self.take(b'(') {
            return self.bare_item();
        }
        let mut items = Vec::new();
        loop {
            self.take_while(|byte| byte == b' ');
            if self.take(b')') {
                return Some(Value::List(items));
            }
            if items.len() == MEMBERS_MAX {
                return None;
            }
            items.push(self.bare_item()?);
            self.parameters()?;
            if !matches!(self.0.first(), Some(b' ' | b')')) {
                return None;
            }
        }
    }

    fn bare_item(&mut self) -> Option<Value> {
        match *self.0.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string().map(Value::String),
            b'?' => {
                self.take(b'?');
                if self.take(b'1') {
                    return Some(Value::Boolean(true));
                }
                self.take(b'0').then_some(Value::Boolean(false))
            }
            b':' => {
                self.take(b':');
                self.take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='));
                self.take(b':').then_some(Value::Other)
            }
            b'@' => {
                self.take(b'@');
                matches!(self.number()?, Value::Integer(_)).then_some(Value::Other)
            }
            b'%' => {
                self.take(b'%');
                self.display_string()
            }
            b'*' | b'a'..=b'z' | b'A'..=b'Z' => {
                self.take_while(|byte| is(byte, TCHAR) || matches!(byte, b':' | b'/'));
                Some(Value::Other)
            }
            _ => None,
        }
    }

    /// An integer of 1 to 15 digits, or a decimal of 1 to 12 digits, a dot and 1 to 3 (RFC 9651 §4.2.4).
    fn number(&mut self) -> Option<Value> {
        let negative = self.take(b'-');
        let digits = self.take_while(|byte| byte.is_ascii_digit());
        if self.take(b'.') {
            let decimals = self.take_while(|byte| byte.is_ascii_digit());
            return ((1..=12).contains(&digits.len()) && (1..=3).contains(&decimals.len())).then_some(Value::Other);
        }
        if !(1..=15).contains(&digits.len()) {
            return None;
        }
        let value = digits.iter().fold(0_i64, |value, &digit| value * 10 + i64::from(digit - b'0'));
        Some(Value::Integer(if negative { -value } else { value }))
    }

    fn string(&mut self) -> Option<Vec<u8>> {
        self.take(b'"');
        let mut text = Vec::new();
        loop {
            match self.0 {
                [b'"', rest @ ..] => {
                    self.0 = rest;
                    return Some(text);
                }
                [b'\\', byte @ (b'"' | b'\\'), rest @ ..] => {
                    text.push(*byte);
                    self.0 = rest;
                }
                [b'\\', ..] => return None,
                [byte @ b' '..=b'~', rest @ ..] => {
                    text.push(*byte);
                    self.0 = rest;
                }
                _ => return None,
            }
        }
    }

    /// Behind its `%`: a quoted string whose bytes beyond ASCII are percent-encoded in lower case.
    fn display_string(&mut self) -> Option<Value> {
        if !self.take(b'"') {
            return None;
        }
        loop {
            match self.0 {
                [b'"', rest @ ..] => {
                    self.0 = rest;
                    return Some(Value::Other);
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
    use super::{Value, join_lines, parse_dictionary, parse_list};
    use flatout_http::structured::walk_dictionary;

    #[test]
    fn dictionaries_have_their_values() {
        let text = b"a, b=?0, c=\"x\\\"y\", d=(\"p\" 1;q), e=-5;f=1, g=1.5, h=tok/en, i=:aGk=:, j=@1, k=%\"%c3\", a=2";
        let members = parse_dictionary(text).unwrap();
        let expected = [
            ("a", Value::Integer(2)),
            ("b", Value::Boolean(false)),
            ("c", Value::String(b"x\"y".to_vec())),
            ("d", Value::List(vec![Value::String(b"p".to_vec()), Value::Integer(1)])),
            ("e", Value::Integer(-5)),
        ];
        for ((key, value), (expected_key, expected_value)) in members.iter().zip(&expected) {
            assert_eq!((*key, value), (expected_key.as_bytes(), expected_value));
        }
        assert!(members[expected.len()..].iter().all(|(_, value)| *value == Value::Other) && members.len() == 10);
    }

    #[test]
    fn lists_and_lines() {
        let string = |text: &str| Value::String(text.as_bytes().to_vec());
        assert_eq!(parse_list(b"\"a\" ,\t\"b c\";x=1"), Some(vec![string("a"), string("b c")]));
        assert_eq!(parse_list(b""), Some(vec![]));
        assert_eq!(parse_list(b"\"a\","), None);
        assert_eq!(parse_list(b"\"a\" \"b\""), None);
        assert_eq!(join_lines([&b"a"[..], b"", b"b"].into_iter()), Some(b"a, b".to_vec()));
        assert_eq!(join_lines(std::iter::empty()), None);
    }

    /// Both readers of the workspace take the same bytes for a dictionary.
    #[test]
    fn agrees_with_the_walk_of_the_http_crate() {
        let text =
            b"a=1.25;p=(, b=\"x\\\"y,\", c=tok/en:x, d=:aGk=:, e=?0, f=(1 \"a\";q=1  b);z, g=@123, h=%\"a%c3\", A=1";
        for end in 0..=text.len() {
            for start in 0..=end {
                let bytes = &text[start..end];
                let walked = walk_dictionary(bytes, |_, _| {}).is_some();
                assert_eq!(parse_dictionary(bytes).is_some(), walked, "{:?}", String::from_utf8_lossy(bytes));
            }
        }
    }
}
