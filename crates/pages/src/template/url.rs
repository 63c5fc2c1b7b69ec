//! Where in a URL an insertion stands, told by what is written in front of it.

use super::escape::SCHEMES;

/// How far a URL has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Url {
    /// Nothing but white space.
    Start,
    /// What may become a scheme, in lower case; its first characters only.
    Name([u8; 8], u8),
    /// A scheme that is allowed, and its colon.
    Scheme,
    /// One slash from the beginning, or behind the scheme.
    Slash,
    /// Behind two slashes: the host.
    Host,
    /// Behind the host, or in a relative URL: scheme and host are settled.
    Settled,
    /// It began with an insertion, and nothing since settled where it leads.
    Inserted,
    /// A scheme that is run, or is unknown.
    Foreign,
    /// Branches differ, or what was written cannot be told.
    Unclear,
}

impl Url {
    /// Reads a written character.
    #[must_use]
    pub(super) fn advance(self, character: char) -> Self {
        // Browsers drop these everywhere (URL Standard, section 4.4).
        if matches!(character, '\t' | '\n' | '\r') {
            return self;
        }
        let is_slash = matches!(character, '/' | '\\');
        match self {
            Self::Start if character <= ' ' => self,
            Self::Start if is_slash => Self::Slash,
            Self::Start if matches!(character, '?' | '#') => Self::Settled,
            Self::Start => Self::name([0; 8], 0, character),
            Self::Name(name, length) => match character {
                ':' if SCHEMES.iter().any(|scheme| scheme.as_bytes() == &name[..usize::from(length)]) => Self::Scheme,
                ':' => Self::Foreign,
                '/' | '\\' | '?' | '#' => Self::Settled,
                _ => Self::name(name, length, character),
            },
            Self::Scheme if is_slash => Self::Slash,
            Self::Scheme => Self::Settled,
            Self::Slash if is_slash => Self::Host,
            Self::Slash => Self::Settled,
            Self::Host if is_slash || matches!(character, '?' | '#') => Self::Settled,
            Self::Inserted if is_slash || matches!(character, '?' | '#') => Self::Settled,
            // What was inserted may be `javascript`; a colon would make a scheme of it.
            Self::Inserted if character == ':' => Self::Foreign,
            other => other,
        }
    }

    fn name(mut name: [u8; 8], length: u8, character: char) -> Self {
        let mut bytes = [0; 4];
        let first = character.to_ascii_lowercase().encode_utf8(&mut bytes).as_bytes()[0];
        match name.get_mut(usize::from(length)) {
            Some(place) => {
                *place = first;
                Self::Name(name, length + 1)
            }
            // No scheme that is allowed is as long.
            None => {
                name[0] = 0;
                Self::Name(name, length)
            }
        }
    }

    /// Where it is behind an insertion.
    #[must_use]
    pub(super) fn insert(self) -> Self {
        match self {
            Self::Start => Self::Inserted,
            // Whatever it says, it is no scheme that is allowed by what is written.
            Self::Name(_, length) => Self::Name([0; 8], length),
            // A part is encoded, so it brings neither a colon nor a slash.
            Self::Slash | Self::Scheme => Self::Settled,
            other => other,
        }
    }

    /// Two branches that come together.
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
            ("/", Url::Slash),
            ("//", Url::Host),
            ("\\\\", Url::Host),
            ("//host/", Url::Settled),
            ("https:", Url::Scheme),
            ("HTTPS://host", Url::Host),
            ("ht\ntps://host?", Url::Settled),
            ("mailto:a", Url::Settled),
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
            ("/$", Url::Settled),
            ("/$/", Url::Settled),
        ] {
            assert_eq!(read(text), url, "{text:?}");
        }
        assert!(matches!(read("java$"), Url::Name(..)));
        assert_eq!(read("java$script:"), Url::Foreign);
    }
}
