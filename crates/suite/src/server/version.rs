//! Versions: numbers with dots in a program's output.

/// Maximum number of components of a version. Further components only distinguish builds.
const NUMBERS_MAX: usize = 4;

/// Finds the first version in a string: `nginx version: nginx/1.22.1` gives 1.22.1. Returns an empty list if there is
/// none.
pub fn parse(text: &str) -> Vec<u64> {
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut whole = Vec::new();
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let end = text[at..].find(|c: char| !c.is_ascii_digit() && c != '.').map_or(text.len(), |length| at + length);
        let numbers: Vec<u64> =
            text[at..end].split('.').map_while(|part| part.parse().ok()).take(NUMBERS_MAX).collect();
        // A number without a dot may be anything, such as a year or a bit count.
        if numbers.len() > 1 {
            return numbers;
        }
        if whole.is_empty() {
            whole = numbers;
        }
        at = end.max(at + 1);
    }
    whole
}

/// Returns whether the version `found` is at least `asked`. Missing components count as 0.
pub fn is_at_least(found: &[u64], asked: &[u64]) -> bool {
    let length = found.len().max(asked.len());
    let number = |version: &[u64], index: usize| version.get(index).copied().unwrap_or(0);
    let differs =
        (0..length).map(|index| (number(found, index), number(asked, index))).find(|(found, asked)| found != asked);
    differs.is_none_or(|(found, asked)| found > asked)
}

#[cfg(test)]
mod tests {
    use super::{is_at_least, parse};

    #[test]
    fn programs_say_their_versions_in_many_ways() {
        for (said, numbers) in [
            ("nginx version: nginx/1.22.1", vec![1, 22, 1]),
            ("Server version: Apache/2.4.62 (Debian)\nServer built: 2024-10-04", vec![2, 4, 62]),
            ("lighttpd/1.4.69 (ssl) - a light server", vec![1, 4, 69]),
            ("PHP 8.2.29 (fpm-fcgi) (built: Jul 3 2025)", vec![8, 2, 29]),
            ("varnishd (varnish-7.1.1 revision 7cee1c)", vec![7, 1, 1]),
            ("v2", vec![2]),
            ("built 2024, version 3.1", vec![3, 1]),
            ("none", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(parse(said), numbers, "{said}");
        }
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(is_at_least(&[1, 22, 1], &[1, 9]) && is_at_least(&[1, 22], &[1, 22, 0]) && is_at_least(&[2], &[1, 99]));
        assert!(!is_at_least(&[1, 8], &[1, 18]) && !is_at_least(&[], &[0, 1]));
    }
}
