//! Wildcard patterns for file names: `*` matches any number of characters, `?` matches exactly one.

/// Returns true if `text` contains a wildcard.
pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// Returns true if the pattern matches the whole name. Takes at most pattern length × name length steps.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut in_name) = (0, 0);
    // The position after the last star in the pattern, and the position in the name up to which that star matches.
    let mut retry: Option<(usize, usize)> = None;
    while in_name < name.len() {
        match pattern.get(at) {
            Some('*') => {
                retry = Some((at + 1, in_name));
                at += 1;
            }
            Some(c) if *c == '?' || *c == name[in_name] => (at, in_name) = (at + 1, in_name + 1),
            _ => {
                let Some((behind, taken)) = retry else { return false };
                retry = Some((behind, taken + 1));
                (at, in_name) = (behind, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, name, expected) in [
            ("*.kdl", "a.kdl", true),
            ("*.kdl", ".kdl", true),
            ("*.kdl", "a.kdl.bak", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("?.kdl", "ä.kdl", true),
            ("?.kdl", "ab.kdl", false),
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
        assert!(!matches(&"*a".repeat(50), &"a".repeat(2_000).replace("aaaaaaaaaa", "aaaaaaaaab")));
    }
}
