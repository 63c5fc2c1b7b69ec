//! Preconditions (RFC 9110 §13): five fields, evaluated in the order of §13.2.2.

use crate::date::parse_date;
use crate::etag::{ETag, list_matches};
use crate::head::Fields;

/// Validators of a representation.
#[derive(Clone, Copy, Debug)]
pub struct Validators<'a> {
    /// Opaque part of the entity tag, without quotes, or `None` if the representation has none. The tag is always a
    /// strong validator.
    pub etag: Option<&'a [u8]>,
    /// Last-Modified as a Unix time, in seconds, or `None` if the representation has none. Conditions with dates are then
    /// ignored (RFC 9110 §13.1.3, §13.1.4).
    pub last_modified_s: Option<i64>,
    /// False if another representation may have the same Last-Modified although the two were not modified in the same
    /// second, for example because an archive dates all files the same. The date is then no strong validator.
    pub date_is_strong: bool,
}

impl<'a> Validators<'a> {
    /// Returns whether there is an entity tag that `matches`.
    fn has_tag(&self, matches: impl Fn(&ETag<'a>) -> bool) -> bool {
        self.etag.is_some_and(|opaque| matches(&ETag { weak: false, opaque }))
    }
}

/// Result of evaluating preconditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Respond as if there were no preconditions.
    Proceed,
    /// Respond 304. Only for GET and HEAD.
    NotModified,
    /// Respond 412.
    Failed,
}

/// Evaluates the preconditions of a GET or HEAD request for an existing representation.
///
/// Ignores invalid dates (RFC 9110 §13.1.3, §13.1.4). A malformed tag list matches nothing.
pub fn decide_precondition(fields: &Fields<'_>, validators: &Validators<'_>) -> Precondition {
    if let Some(matched) = tags_match(fields, "if-match", |tag| validators.has_tag(|own| tag.matches_strongly(own))) {
        if !matched {
            return Precondition::Failed;
        }
    } else if let Some(date) = fields.first("if-unmodified-since").and_then(parse_date)
        && validators.last_modified_s.is_some_and(|last_modified_s| last_modified_s > date)
    {
        return Precondition::Failed;
    }
    if let Some(matched) = tags_match(fields, "if-none-match", |tag| validators.has_tag(|own| tag.matches_weakly(own)))
    {
        return if matched { Precondition::NotModified } else { Precondition::Proceed };
    }
    match fields.first("if-modified-since").and_then(parse_date) {
        Some(date) if validators.last_modified_s.is_some_and(|last_modified_s| last_modified_s <= date) => {
            Precondition::NotModified
        }
        _ => Precondition::Proceed,
    }
}

/// Returns whether any tag in the field `name` satisfies `matches`, or `None` if the field is absent. Several lines
/// form one list (RFC 9110 §5.3).
fn tags_match(fields: &Fields<'_>, name: &'static str, matches: impl Fn(&ETag<'_>) -> bool) -> Option<bool> {
    let mut lines = fields.all(name).peekable();
    lines.peek()?;
    Some(lines.any(|line| line == b"*" || list_matches(line, &matches)))
}

/// Returns whether If-Range permits Range (RFC 9110 §13.1.5): the field is absent, or has a strong tag that matches
/// strongly, or a strong date equal to Last-Modified.
///
/// A date is strong if it is at least one second before the Date of its response, according to the same clock
/// (§8.8.2.2; RFC 2616 and 7232 required 60 seconds). The client must check this before it sends the date (§13.1.5);
/// the server can only check that `now_s` is past that second, and that its dates tell versions apart
/// ([`Validators::date_is_strong`]).
pub fn if_range_holds(fields: &Fields<'_>, validators: &Validators<'_>, now_s: i64) -> bool {
    let Some(value) = fields.first("if-range") else { return true };
    if let Some(tag) = ETag::parse(value) {
        return validators.has_tag(|own| tag.matches_strongly(own));
    }
    let is_same = |date| Some(date) == validators.last_modified_s && date < now_s;
    validators.date_is_strong && parse_date(value).is_some_and(is_same)
}

#[cfg(test)]
mod tests {
    use super::{Precondition, Validators, decide_precondition, if_range_holds};
    use crate::head::{FieldStorage, parse_fields};
    use crate::limits::Limits;

    const VALIDATORS: Validators<'_> =
        Validators { etag: Some(b"v2"), last_modified_s: Some(784_111_777), date_is_strong: true };
    const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn decide(lines: &[(&str, &str)]) -> Precondition {
        let section: String = lines.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let section = section + "\r\n";
        let mut storage = FieldStorage::new();
        let fields = parse_fields(section.as_bytes(), &Limits::DEFAULT, &mut storage).unwrap();
        decide_precondition(&fields, &VALIDATORS)
    }

    #[test]
    fn each_field_alone() {
        use Precondition::{Failed, NotModified, Proceed};
        for (name, value, expected) in [
            ("If-Match", "\"v2\"", Proceed),
            ("If-Match", "*", Proceed),
            ("If-Match", "\"v1\", \"v2\"", Proceed),
            ("If-Match", "\"v1\"", Failed),
            ("If-Match", "W/\"v2\"", Failed),
            ("If-Match", "nonsense", Failed),
            ("If-None-Match", "\"v2\"", NotModified),
            ("If-None-Match", "W/\"v2\"", NotModified),
            ("If-None-Match", "*", NotModified),
            ("If-None-Match", "\"v1\"", Proceed),
            ("If-Modified-Since", SAME, NotModified),
            ("If-Modified-Since", AFTER, NotModified),
            ("If-Modified-Since", BEFORE, Proceed),
            ("If-Modified-Since", "nonsense", Proceed),
            ("If-Unmodified-Since", SAME, Proceed),
            ("If-Unmodified-Since", AFTER, Proceed),
            ("If-Unmodified-Since", BEFORE, Failed),
            ("If-Unmodified-Since", "nonsense", Proceed),
        ] {
            assert_eq!(decide(&[(name, value)]), expected, "{name}: {value}");
        }
        assert_eq!(decide(&[]), Proceed);
    }

    #[test]
    fn tags_come_before_dates_and_match_before_none_match() {
        use Precondition::{Failed, NotModified, Proceed};
        assert_eq!(decide(&[("If-None-Match", "\"v1\""), ("If-Modified-Since", AFTER)]), Proceed);
        assert_eq!(decide(&[("If-Match", "\"v2\""), ("If-Unmodified-Since", BEFORE)]), Proceed);
        assert_eq!(decide(&[("If-Match", "\"v1\""), ("If-None-Match", "\"v2\"")]), Failed);
        assert_eq!(decide(&[("If-Match", "\"v2\""), ("If-None-Match", "\"v2\"")]), NotModified);
        assert_eq!(decide(&[("If-None-Match", "\"v1\""), ("If-None-Match", "\"v2\"")]), NotModified);
    }

    #[test]
    fn if_range_needs_a_strong_match() {
        for (value, now_s, expected) in [
            ("\"v2\"", 0, true),
            ("W/\"v2\"", 0, false),
            ("\"v1\"", 0, false),
            (SAME, 784_111_778, true),
            (SAME, 784_111_777, false),
            (AFTER, 784_999_999, false),
            (BEFORE, 784_999_999, false),
            ("nonsense", 784_999_999, false),
        ] {
            let section = format!("If-Range: {value}\r\n\r\n");
            let mut storage = FieldStorage::new();
            let fields = parse_fields(section.as_bytes(), &Limits::DEFAULT, &mut storage).unwrap();
            assert_eq!(if_range_holds(&fields, &VALIDATORS, now_s), expected, "{value}");
            // A date that another content may have as well matches nothing; a tag does.
            let weak = Validators { date_is_strong: false, ..VALIDATORS };
            assert_eq!(if_range_holds(&fields, &weak, now_s), expected && value != SAME, "{value}");
        }
    }
}
