//! Priorities of responses (RFC 9218).

/// The priority of a response. Smaller values are served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Priority {
    /// Urgency from 0 to 7. Lower values are served first.
    pub urgency: u8,
    /// True if the client can process parts of the response, so that several responses may take turns (RFC 9218 §4.2).
    pub incremental: bool,
}

impl Priority {
    /// The priority of a response without a priority signal (RFC 9218 §4).
    pub const DEFAULT: Self = Self { urgency: 3, incremental: false };

    /// Parses the value of a Priority field. Ignores unknown and invalid members (RFC 9218 §4).
    pub fn parse(value: &[u8]) -> Self {
        let mut priority = Self::DEFAULT;
        for member in value.split(|&byte| byte == b',').map(crate::token::trim) {
            let bare = member.split(|&byte| byte == b';').next().map_or(member, crate::token::trim);
            match bare {
                [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
                b"i" | b"i=?1" => priority.incremental = true,
                b"i=?0" => priority.incremental = false,
                _ => {}
            }
        }
        priority
    }
}

#[cfg(test)]
mod tests {
    use super::Priority;

    #[test]
    fn fields_yield_urgency_and_increment() {
        for (value, urgency, incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=5, i", 5, true),
            ("i=?0,u=7", 7, false),
            ("u=8, i=1", 3, false),
            ("a=\"b\" , u=1;x=2", 1, false),
        ] {
            assert_eq!(Priority::parse(value.as_bytes()), Priority { urgency, incremental }, "{value}");
        }
    }
}
