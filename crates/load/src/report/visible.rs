//! Escaping of text from untrusted sources: control characters and characters that change the text direction.

use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns whether a character is invisible but has an effect: C0 and C1 controls, line and paragraph separators, and
/// direction controls (Unicode Standard Annex 9).
pub fn is_unseen(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
        )
}

/// Escapes the invisible characters in a line of text, as in `\u{1b}`. Other text is unchanged.
pub fn visible(text: &str) -> Cow<'_, str> {
    visible_but(text, |_| None)
}

/// Escapes the invisible characters in text of several lines, except for line breaks and tabs.
pub fn visible_lines(text: &str) -> Cow<'_, str> {
    visible_but(text, |rest| rest.starts_with(['\n', '\t']).then_some(1))
}

/// Escapes the invisible characters in text, except for sequences that are permitted. When the remaining text begins
/// with a permitted sequence, `passes` returns its length in bytes.
pub fn visible_but(text: &str, passes: impl Fn(&str) -> Option<usize>) -> Cow<'_, str> {
    if !text.chars().any(is_unseen) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let taken = if is_unseen(character) { passes(rest) } else { Some(character.len_utf8()) };
        let taken = taken.and_then(|bytes| rest.get(..bytes)).filter(|taken| !taken.is_empty());
        if let Some(taken) = taken {
            shown.push_str(taken);
            rest = &rest[taken.len()..];
        } else {
            // Writing to a String cannot fail.
            let _ = write!(shown, "{}", character.escape_unicode());
            rest = &rest[character.len_utf8()..];
        }
    }
    Cow::Owned(shown)
}

/// Escapes every string in a document, including field names. The field `command` is unchanged, because the command may
/// be run again, and shell quoting makes its contents visible.
pub(super) fn make_visible(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(shown) = visible(text) {
                *text = shown;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(make_visible),
        Value::Object(fields) => {
            if fields.keys().any(|name| name.chars().any(is_unseen)) {
                *fields = std::mem::take(fields)
                    .into_iter()
                    .map(|(name, value)| (visible(&name).into_owned(), value))
                    .collect();
            }
            fields.values_mut().for_each(make_visible);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::{make_visible, visible, visible_lines};
    use serde_json::json;
    use std::borrow::Cow;

    #[test]
    fn what_a_terminal_obeys_is_written_out() {
        for (text, shown) in [
            ("\x1b]0;title\x07", "\\u{1b}]0;title\\u{7}"),
            ("\u{9b}31mred", "\\u{9b}31mred"),
            ("a\r\nb\tc\0\x7f", "a\\u{d}\\u{a}b\\u{9}c\\u{0}\\u{7f}"),
            ("\u{202e}gpj.exe\u{2066}x\u{2069}", "\\u{202e}gpj.exe\\u{2066}x\\u{2069}"),
            ("\u{2028}\u{200f}\u{61c}\u{feff}", "\\u{2028}\\u{200f}\\u{61c}\\u{feff}"),
            ("größe µs ± 中 👍\u{fe0f}", "größe µs ± 中 👍\u{fe0f}"),
            ("", ""),
        ] {
            assert_eq!(visible(text), shown);
        }
        assert!(matches!(visible("plain"), Cow::Borrowed("plain")));
        assert_eq!(visible_lines("a\n\tb\x1b[2J\r"), "a\n\tb\\u{1b}[2J\\u{d}");
    }

    #[test]
    fn a_whole_document_is_made_visible_wherever_it_is() {
        let mut value = json!({ "a\x1b": ["b\u{9b}", { "c": "d\u{202e}" }], "n": 1.5, "x": null });
        make_visible(&mut value);
        let shown = json!({ "a\\u{1b}": ["b\\u{9b}", { "c": "d\\u{202e}" }], "n": 1.5, "x": null });
        assert_eq!(value, shown);
    }
}
