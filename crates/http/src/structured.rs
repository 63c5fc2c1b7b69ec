//! Structured fields (RFC 9651): joins the lines of a field, which the `sfv` crate then parses.

use sfv::{Dictionary, FieldType, List, Parser};

/// Parses the lines of a field as one dictionary. Returns `None` if there is no line, or if the field violates the
/// grammar and must be ignored (RFC 9651 §4.2).
pub fn parse_dictionary<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Option<Dictionary> {
    parse(lines)
}

/// Parses the lines of a field as one list. Returns `None` in the same cases as [`parse_dictionary`].
pub fn parse_list<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Option<List> {
    parse(lines)
}

/// Joins the lines, skipping empty lines, and parses the result.
fn parse<'a, T: FieldType>(lines: impl IntoIterator<Item = &'a [u8]>) -> Option<T> {
    let mut lines = lines.into_iter();
    let mut joined = lines.next()?.to_vec();
    for line in lines {
        if !joined.is_empty() && !line.is_empty() {
            joined.extend_from_slice(b", ");
        }
        joined.extend_from_slice(line);
    }
    Parser::new(&joined).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{parse_dictionary, parse_list};

    #[test]
    fn lines_are_joined() {
        assert_eq!(parse_list([&b"a"[..], b"", b"b"]).map(|members| members.len()), Some(2));
        assert_eq!(parse_list([&b""[..]]).map(|members| members.len()), Some(0));
        assert_eq!(parse_list(std::iter::empty()), None);
        let members = parse_dictionary([&b"a=1, b"[..], b"a=?0"]).unwrap();
        assert_eq!(members.keys().map(|key| key.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn a_broken_line_breaks_the_field() {
        for text in ["a=1,", ",a=1", "a=1 b=2", "A=1", "a=", "a= 1", "a=1;X", "a=\"x", "a=(1,2)", "a=@1.5"] {
            assert_eq!(parse_dictionary([&b"b=2"[..], text.as_bytes()]), None, "{text:?}");
        }
    }
}
