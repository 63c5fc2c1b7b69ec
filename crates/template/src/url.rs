//! The position of an insertion in a URL, which the text before it determines.

use super::escape::SCHEMES;

/// The state of a URL up to a position in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Url {
    /// The URL has not begun; there is only white space so far.
    Start,
    /// The text may be a scheme. The values are its first characters in lower case, and their number.
    Name([u8; 8], u8),
    /// After an allowed scheme and its colon.
    Scheme,
    /// After one leading slash; true if an insertion follows the slash, which may be empty.
    Slash(bool),
    /// After two slashes or a scheme. True if the host has begun; until then, browsers skip any number of slashes.
    Host(bool),
    /// After the host, or in a relative URL: the scheme and the host are determined.
    Settled,
    /// The URL began with an insertion, and its target is still undetermined.
    Inserted,
    /// The URL has a scheme that is unknown or executes code.
    Foreign,
    /// The branches differ, or the literal text is ambiguous.
    Unclear,
}

impl Url {
    /// Advances by a literal character.
    #[must_use]
    pub(super) fn advance(self, character: char) -> Self {
        // Browsers remove these characters everywhere (URL Standard, section 4.4).
        if matches!(character, '\t' | '\n' | '\r') {
            return self;
        }
        let is_slash = matches!(character, '/' | '\\');
        match self {
            Self::Start if character <= ' ' => self,
            Self::Start if is_slash => Self::Slash(false),
            Self::Start if matches!(character, '?' | '#') => Self::Settled,
            Self::Start => Self::name([0; 8], 0, character),
            Self::Name(name, length) => match character {
                ':' if SCHEMES.iter().any(|scheme| scheme.as_bytes() == &name[..usize::from(length)]) => Self::Scheme,
                ':' => Self::Foreign,
                '/' | '\\' | '?' | '#' => Self::Settled,
                _ => Self::name(name, length, character),
            },
            Self::Scheme => Self::Host(!is_slash),
            Self::Slash(_) if is_slash => Self::Host(false),
            Self::Slash(_) => Self::Settled,
            Self::Host(false) if is_slash => self,
            Self::Host(_) if is_slash || matches!(character, '?' | '#') => Self::Settled,
            Self::Host(_) => Self::Host(true),
            Self::Inserted if is_slash || matches!(character, '?' | '#') => Self::Settled,
            // The inserted value may be `javascript`, which a colon would make a scheme.
            Self::Inserted if character == ':' => Self::Foreign,
            other => other,
        }
    }

    fn name(mut name: [u8; 8], length: u8, character: char) -> Self {
        let mut bytes = [0; 4];
        let first = character.to_ascii_lowercase().encode_utf8(&mut bytes).as_bytes()[0];
        if let Some(place) = name.get_mut(usize::from(length)) {
            *place = first;
            Self::Name(name, length + 1)
        } else {
            // No allowed scheme is that long.
            name[0] = 0;
            Self::Name(name, length)
        }
    }

    /// Returns the state after an insertion.
    #[must_use]
    pub(super) fn insert(self) -> Self {
        match self {
            Self::Start => Self::Inserted,
            // Whatever the inserted value is, the literal text before it is not an allowed scheme.
            Self::Name(_, length) => Self::Name([0; 8], length),
            // A part of a URL is encoded, so it contains no slash, but it may be empty.
            Self::Slash(_) => Self::Slash(true),
            other => other,
        }
    }

    /// Returns the state after two branches.
    #[must_use]
    pub(super) fn join(self, other: Self) -> Self {
        if self == other { self } else { Self::Unclear }
    }
}

#[cfg(test)]
mod tests {
    use super::Url;

    fn read(text: &str) -> Url {
        text.chars().fold(Url::Start, |url, character| match character {
            '$' => url.insert(),
            other => url.advance(other),
        })
    }

    #[test]
    fn what_is_written_in_front_tells_where_an_insertion_stands() {
        for (text, url) in [
            ("", Url::Start),
            (" \n", Url::Start),
            ("/", Url::Slash(false)),
            ("//", Url::Host(false)),
            ("\\\\", Url::Host(false)),
            ("//host/", Url::Settled),
            ("https:", Url::Scheme),
            ("https:host", Url::Host(true)),
            ("https:/host", Url::Host(true)),
            ("https:///", Url::Host(false)),
            ("https://$/", Url::Host(false)),
            ("HTTPS://host", Url::Host(true)),
            ("ht\ntps://host?", Url::Settled),
            ("mailto:a?", Url::Settled),
            ("a/b:c", Url::Settled),
            ("?a:b", Url::Settled),
            ("javascript:", Url::Foreign),
            ("java\tscript:", Url::Foreign),
            ("longer-than-any:", Url::Foreign),
            ("data:", Url::Foreign),
            ("é:", Url::Foreign),
            ("$", Url::Inserted),
            ("$/a", Url::Settled),
            ("$:", Url::Foreign),
            ("$$:", Url::Foreign),
            ("/$", Url::Slash(true)),
            ("/$/", Url::Host(false)),
            ("/$$/$", Url::Host(false)),
            ("/$a", Url::Settled),
        ] {
            assert_eq!(read(text), url, "{text:?}");
        }
        assert!(matches!(read("java$"), Url::Name(..)));
        assert_eq!(read("java$script:"), Url::Foreign);
    }
}
