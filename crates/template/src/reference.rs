//! Character references in the values of attributes.

/// The meaning of a character reference.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Resolved {
    Character(char),
    /// It is not a reference but literal text.
    Literal,
    /// It is a reference with an unknown name.
    Unclear,
}

/// Resolves a reference in an attribute's value (HTML, section 13.2.5.72 and following).
pub(super) fn resolve(name: &[u8], closed: bool, next: u8) -> Resolved {
    if let Some(number) = name.strip_prefix(b"#") {
        let (digits, radix) = match number {
            [b'x' | b'X', digits @ ..] => (digits, 16),
            digits => (digits, 10),
        };
        let number = std::str::from_utf8(digits).ok().and_then(|digits| u32::from_str_radix(digits, radix).ok());
        return number.and_then(char::from_u32).map_or(Resolved::Unclear, Resolved::Character);
    }
    let character = match name {
        b"amp" | b"AMP" => '&',
        b"lt" | b"LT" => '<',
        b"gt" | b"GT" => '>',
        b"quot" | b"QUOT" => '"',
        _ if !closed => return Resolved::Literal,
        b"apos" => '\'',
        b"colon" => ':',
        b"sol" => '/',
        b"Tab" => '\t',
        b"NewLine" => '\n',
        b"nbsp" => '\u{a0}',
        b"" => return Resolved::Literal,
        _ => return Resolved::Unclear,
    };
    // In an attribute, a reference without `;` that is followed by `=` is literal text.
    if closed || next != b'=' { Resolved::Character(character) } else { Resolved::Literal }
}
