//! Texts with placeholders, which are filled for each request: `{seq}`, `{uuid}` and `{random:A-B}`.
//!
//! Only these forms are placeholders. All other braces are sent unchanged, so JSON needs no escapes. A second brace makes
//! a placeholder literal: `{{seq}` is sent as `{seq}`.
//!
//! The values of a request depend only on the run's seed and the number of the request. A run therefore sends the same
//! requests on any number of threads, and a request that is sent again has the same values.

use crate::random::Random;
use flatout_http::token::append_decimal;

/// ID of the random streams for the values in the head of a request: its target and its fields.
const PURPOSE_HEAD: u64 = 4;

/// ID of the random streams for the values in the content of a request.
const PURPOSE_CONTENT: u64 = 5;

/// Maximum length of a malformed placeholder in an error, in characters.
const SHOWN_CHARS_MAX: usize = 40;

/// The reason a placeholder is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The range is missing, or is not two numbers that fit in 64 bits.
    #[error("the placeholder {0} has no valid range; write it as {{random:1-100}}, or as {{{0} to send it literally")]
    RangeInvalid(String),
    /// The last number of the range is below the first.
    #[error("the range of the placeholder {0} ends before it begins; write the smaller number first")]
    RangeReversed(String),
}

/// A text with any number of placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    parts: Box<[Part]>,
    /// True if the text has no placeholder and no escape.
    is_verbatim: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Box<[u8]>),
    /// The number of the request.
    Seq,
    /// A random UUID.
    Uuid,
    /// A random number in this closed range.
    Random {
        low: u64,
        high: u64,
    },
}

impl Template {
    /// Parses a text.
    ///
    /// # Errors
    /// Returns the first `{random…}` without a valid range.
    pub fn parse(text: &[u8]) -> Result<Self, TemplateError> {
        let (mut parts, mut literal) = (Vec::new(), Vec::new());
        let (mut rest, mut is_verbatim) = (text, true);
        while let Some(at) = rest.iter().position(|byte| *byte == b'{') {
            literal.extend_from_slice(&rest[..at]);
            rest = &rest[at..];
            if !matches!(read_placeholder(&rest[1..]), Ok(None)) {
                // An escape: the second brace and all after it are text.
                literal.push(b'{');
                rest = &rest[2..];
                is_verbatim = false;
                continue;
            }
            if let Some((part, bytes)) = read_placeholder(rest)? {
                push_text(&mut parts, &mut literal);
                parts.push(part);
                rest = &rest[bytes..];
                is_verbatim = false;
            } else {
                literal.push(b'{');
                rest = &rest[1..];
            }
        }
        literal.extend_from_slice(rest);
        push_text(&mut parts, &mut literal);
        Ok(Self { parts: parts.into(), is_verbatim })
    }

    /// Returns whether the text has neither a placeholder nor an escape, so that it is always sent as it was written.
    pub fn is_verbatim(&self) -> bool {
        self.is_verbatim
    }

    /// Returns whether the text has a placeholder.
    pub fn has_placeholder(&self) -> bool {
        !self.parts.iter().all(|part| matches!(part, Part::Text(_)))
    }

    /// Returns the length of the text without placeholders, in bytes.
    pub fn fixed_bytes(&self) -> usize {
        self.parts.iter().map(|part| if let Part::Text(text) = part { text.len() } else { 0 }).sum()
    }

    /// Appends the text with the values of a request. Does not allocate, except to enlarge `output`.
    pub fn fill(&self, values: &mut PlaceholderValues, output: &mut Vec<u8>) {
        for part in &self.parts {
            match part {
                Part::Text(text) => output.extend_from_slice(text),
                Part::Seq => append_decimal(output, values.seq),
                Part::Uuid => append_uuid(&mut values.random, output),
                Part::Random { low, high } => append_decimal(output, draw(&mut values.random, *low, *high)),
            }
        }
    }
}

/// The values of the placeholders of all requests of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueSource {
    /// Seed of the random values.
    pub seed: u64,
    /// Value of `{seq}` in the request with number 0.
    pub seq_first: u64,
}

/// The values of the placeholders of one request, in the order of the placeholders.
#[derive(Clone, Copy, Debug)]
pub struct PlaceholderValues {
    seq: u64,
    random: Random,
}

impl ValueSource {
    /// Returns the values in the head of request number `request`.
    pub const fn of_head(&self, request: u64) -> PlaceholderValues {
        self.values(PURPOSE_HEAD, request)
    }

    /// Returns the values in the content of request number `request`.
    pub const fn of_content(&self, request: u64) -> PlaceholderValues {
        self.values(PURPOSE_CONTENT, request)
    }

    const fn values(&self, purpose: u64, request: u64) -> PlaceholderValues {
        PlaceholderValues {
            seq: self.seq_first.wrapping_add(request),
            random: Random::stream(self.seed, purpose, request),
        }
    }
}

/// Reads a placeholder at the beginning of a text. Returns it with its length in bytes, or `None` if there is none.
fn read_placeholder(text: &[u8]) -> Result<Option<(Part, usize)>, TemplateError> {
    for (form, part) in [(&b"{seq}"[..], Part::Seq), (&b"{uuid}"[..], Part::Uuid)] {
        if text.starts_with(form) {
            return Ok(Some((part, form.len())));
        }
    }
    let Some(rest) = text.strip_prefix(b"{random").filter(|rest| matches!(rest.first(), Some(b':' | b'}'))) else {
        return Ok(None);
    };
    let shown = || {
        let end = text.iter().position(|byte| *byte == b'}').map_or(text.len(), |at| at + 1);
        String::from_utf8_lossy(&text[..end]).chars().take(SHOWN_CHARS_MAX).collect::<String>()
    };
    let range = || {
        let end = rest.iter().position(|byte| *byte == b'}')?;
        let (low, high) = std::str::from_utf8(rest[..end].strip_prefix(b":")?).ok()?.split_once('-')?;
        let number =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
        Some((number(low)?, number(high)?, b"{random".len() + end + 1))
    };
    match range() {
        None => Err(TemplateError::RangeInvalid(shown())),
        Some((low, high, _)) if high < low => Err(TemplateError::RangeReversed(shown())),
        Some((low, high, bytes)) => Ok(Some((Part::Random { low, high }, bytes))),
    }
}

fn push_text(parts: &mut Vec<Part>, literal: &mut Vec<u8>) {
    if !literal.is_empty() {
        parts.push(Part::Text(std::mem::take(literal).into()));
    }
}

/// Returns a random number in a closed range.
fn draw(random: &mut Random, low: u64, high: u64) -> u64 {
    match high.wrapping_sub(low).checked_add(1) {
        Some(count) => low.wrapping_add(random.below(count)),
        None => random.next_u64(),
    }
}

/// Appends a UUID of version 4 (RFC 9562 §5.4).
fn append_uuid(random: &mut Random, output: &mut Vec<u8>) {
    let bits = (u128::from(random.next_u64()) << 64) | u128::from(random.next_u64());
    let (version, variant) = (76, 62);
    let bits = (bits & !(0xf << version) & !(0x3 << variant)) | (0x4 << version) | (0x2 << variant);
    for (index, byte) in bits.to_be_bytes().into_iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            output.push(b'-');
        }
        output.extend([byte >> 4, byte & 0xf].map(|digit| b"0123456789abcdef"[usize::from(digit)]));
    }
}

#[cfg(test)]
mod tests {
    use super::{Template, TemplateError, ValueSource};

    const SOURCE: ValueSource = ValueSource { seed: 7, seq_first: 10 };

    fn filled(text: &str, request: u64) -> String {
        let template = Template::parse(text.as_bytes()).unwrap();
        let mut output = Vec::new();
        template.fill(&mut SOURCE.of_head(request), &mut output);
        assert!(output.len() >= template.fixed_bytes());
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn the_number_of_the_request_is_the_same_throughout_a_request() {
        assert_eq!(filled("/a/{seq}?b={seq}", 0), "/a/10?b=10");
        assert_eq!(filled("{seq}", 90), "100");
        let last = ValueSource { seed: 1, seq_first: u64::MAX };
        let mut output = Vec::new();
        Template::parse(b"{seq}").unwrap().fill(&mut last.of_content(0), &mut output);
        assert_eq!(output, u64::MAX.to_string().as_bytes());
    }

    #[test]
    fn random_values_are_in_their_closed_range_and_follow_from_seed_and_number() {
        let mut seen = [0; 3];
        for request in 0..300 {
            let number: usize = filled("{random:5-7}", request).parse().unwrap();
            seen[number - 5] += 1;
        }
        assert!(seen.iter().all(|count| *count > 50), "{seen:?}");
        assert_eq!(filled("{random:3-3}", 1), "3");
        assert!(filled("{random:0-18446744073709551615}", 1).parse::<u64>().unwrap() > 0);
        let text = "{random:0-4000000000}-{random:0-4000000000}";
        assert_eq!(filled(text, 4), filled(text, 4));
        assert_ne!(filled(text, 4), filled(text, 5));
        let values = filled(text, 4);
        let (one, two) = values.split_once('-').unwrap();
        assert_ne!(one, two, "each placeholder has its own value");
    }

    #[test]
    fn identifiers_are_uuids_of_version_4() {
        let text = filled("{uuid}", 3);
        assert_eq!(text.len(), 36);
        let lengths: Vec<_> = text.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert!(text.bytes().all(|byte| byte == b'-' || matches!(byte, b'0'..=b'9' | b'a'..=b'f')));
        for request in 0..50 {
            let text = filled("{uuid}", request);
            assert_eq!(&text[14..15], "4", "{text}");
            assert!(["8", "9", "a", "b"].contains(&&text[19..20]), "{text}");
        }
        assert_ne!(filled("{uuid}", 3), filled("{uuid}", 4));
        let both = filled("{uuid}{uuid}", 3);
        assert_ne!(both[..36], both[36..]);
    }

    #[test]
    fn head_and_content_have_values_of_their_own() {
        let template = Template::parse(b"{uuid}").unwrap();
        let (mut head, mut content) = (Vec::new(), Vec::new());
        template.fill(&mut SOURCE.of_head(0), &mut head);
        template.fill(&mut SOURCE.of_content(0), &mut content);
        assert_ne!(head, content);
    }

    #[test]
    fn other_braces_are_text() {
        for text in [
            "",
            "a",
            "{",
            "}",
            "{}",
            "{a}",
            "{seq",
            "{ seq}",
            "{SEQ}",
            "{randomly}",
            "{\"a\":{\"b\":1}}",
            "{{",
            "{{a}}",
        ] {
            assert_eq!(filled(text, 0), text);
            let template = Template::parse(text.as_bytes()).unwrap();
            assert!(template.is_verbatim() && !template.has_placeholder(), "{text}");
        }
        assert_eq!(filled("{\"id\":{seq}}", 0), "{\"id\":10}");
    }

    #[test]
    fn a_second_brace_makes_a_placeholder_literal() {
        for (text, sent) in [
            ("{{seq}", "{seq}"),
            ("a{{uuid}b{seq}", "a{uuid}b10"),
            ("{{random:9-1}", "{random:9-1}"),
            ("{{random:1-9}", "{random:1-9}"),
            ("{{{seq}", "{{seq}"),
        ] {
            assert_eq!(filled(text, 0), sent);
            assert!(!Template::parse(text.as_bytes()).unwrap().is_verbatim(), "{text}");
        }
    }

    #[test]
    fn malformed_ranges_are_refused() {
        let error = |text: &str| Template::parse(text.as_bytes()).unwrap_err();
        for text in [
            "{random}",
            "{random:}",
            "{random:1}",
            "{random:-1-5}",
            "{random:a-b}",
            "{random:1-}",
            "{random:-}",
            "{random:+1-5}",
            "{random:1-18446744073709551616}",
            "{random:1-5",
        ] {
            assert_eq!(error(text), TemplateError::RangeInvalid(text.to_owned()));
        }
        assert_eq!(error("/a?{random:9-1}&x"), TemplateError::RangeReversed("{random:9-1}".to_owned()));
        assert!(error("{random:9-1}").to_string().contains("{random:9-1} ends before it begins"));
        assert!(error("{random}").to_string().contains("as {random:1-100}, or as {{random} to send"));
    }
}
