//! Statuses of successful responses: `2xx,3xx`, `200,404`, `400-451`.
//!
//! ```text
//! statuses = range *( "," range )
//! range    = DIGIT "xx" | CODE [ "-" CODE ]       a class, one status, or the statuses from one to another
//! ```

use serde::{Deserialize, Serialize};
use std::fmt::{self, Write as _};

/// The lowest and highest status that can be expected. Interim responses (1xx) are no responses of their own.
const STATUS_MIN: u16 = 200;
const STATUS_MAX: u16 = 599;

/// The statuses with which a response is successful. All other complete responses are unexpected, and count as failed.
/// In JSON it is the text, with the ranges in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ExpectedStatuses(Vec<(u16, u16)>);

/// The reason a text does not name statuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a status from 200 to 599, a range such as 400-404, or a class such as 4xx")]
pub struct StatusesError(String);

impl Default for ExpectedStatuses {
    /// 2xx and 3xx.
    fn default() -> Self {
        Self(vec![(200, 399)])
    }
}

impl ExpectedStatuses {
    /// Parses statuses, classes and ranges that are separated by commas.
    pub fn parse(text: &str) -> Result<Self, StatusesError> {
        let mut ranges = Vec::new();
        for part in text.split(',').map(str::trim) {
            ranges.push(range(part).ok_or_else(|| StatusesError(part.to_owned()))?);
        }
        Ok(Self::of_ranges(ranges))
    }

    /// Creates the set of these statuses.
    pub fn of(statuses: impl IntoIterator<Item = u16>) -> Self {
        Self::of_ranges(statuses.into_iter().map(|status| (status, status)).collect())
    }

    fn of_ranges(mut ranges: Vec<(u16, u16)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(u16, u16)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some((_, end)) if first <= *end + 1 => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    /// Returns whether a response with this status is successful.
    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&status))
    }
}

fn range(text: &str) -> Option<(u16, u16)> {
    let code = |text: &str| {
        let is_code = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|code| is_code && (STATUS_MIN..=STATUS_MAX).contains(code))
    };
    if let Some(class) = text.strip_suffix("xx").or_else(|| text.strip_suffix("XX")) {
        let first = code(&format!("{class}00"))?;
        return Some((first, first + 99));
    }
    match text.split_once('-') {
        Some((first, last)) => Some((code(first)?, code(last)?)).filter(|(first, last)| first <= last),
        None => code(text).map(|code| (code, code)),
    }
}

impl fmt::Display for ExpectedStatuses {
    /// Writes classes for ranges of whole classes.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for (first, last) in &self.0 {
            if first % 100 == 0 && last % 100 == 99 {
                (first / 100..=last / 100).try_for_each(|class| write!(text, ",{class}xx"))?;
            } else if first == last {
                write!(text, ",{first}")?;
            } else {
                write!(text, ",{first}-{last}")?;
            }
        }
        formatter.write_str(text.trim_start_matches(','))
    }
}

impl TryFrom<String> for ExpectedStatuses {
    type Error = StatusesError;

    fn try_from(text: String) -> Result<Self, StatusesError> {
        Self::parse(&text)
    }
}

impl From<ExpectedStatuses> for String {
    fn from(statuses: ExpectedStatuses) -> Self {
        statuses.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::ExpectedStatuses;

    #[test]
    fn statuses_classes_and_ranges_are_parsed() {
        for (text, shown, inside, outside) in [
            ("2xx,3xx", "2xx,3xx", &[200, 399][..], &[100, 400][..]),
            ("404", "404", &[404], &[403, 405]),
            ("5XX", "5xx", &[500, 599], &[499]),
            ("429, 2xx", "2xx,429", &[200, 299, 429], &[300, 428, 430]),
            ("400-404,401-410", "400-410", &[400, 410], &[399, 411]),
            ("204,205,206", "204-206", &[204, 206], &[203, 207]),
        ] {
            let statuses = ExpectedStatuses::parse(text).unwrap();
            assert_eq!(statuses.to_string(), shown);
            assert!(inside.iter().all(|status| statuses.contains(*status)), "{text}");
            assert!(!outside.iter().any(|status| statuses.contains(*status)), "{text}");
            assert_eq!(ExpectedStatuses::parse(shown), Ok(statuses));
        }
        assert_eq!(ExpectedStatuses::default().to_string(), "2xx,3xx");
        assert_eq!(ExpectedStatuses::of([204, 200, 205]).to_string(), "200,204-205");
    }

    #[test]
    fn what_is_no_status_is_refused() {
        for text in
            ["", "2xx,", "ok", "1xx", "100", "600", "6xx", "404-400", "+200", "20", "2000", "xx", "200-", "-299"]
        {
            assert!(ExpectedStatuses::parse(text).is_err(), "{text}");
        }
        let error = ExpectedStatuses::parse("200,ok").unwrap_err().to_string();
        assert_eq!(error, r#""ok" is not a status from 200 to 599, a range such as 400-404, or a class such as 4xx"#);
    }
}
