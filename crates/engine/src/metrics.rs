//! Content negotiation of metrics: Prometheus text, or OpenMetrics if the request prefers it.

use flatout_http::token::trim;
use std::sync::Arc;

/// A format of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    /// Prometheus text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

/// Writes the metrics in a format.
pub type MetricsText = Arc<dyn Fn(MetricsFormat) -> String + Send + Sync>;

impl MetricsFormat {
    /// The media type.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The format for a request with these values of Accept (RFC 9110 §12.5.1): OpenMetrics if the request names it
    /// and does not prefer plain text.
    pub fn of_accept<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let (mut open, mut text) = (0, 0);
        for range in values.flat_map(|value| value.split(|&byte| byte == b',')) {
            let mut parts = range.split(|&byte| byte == b';').map(trim);
            let media_type = parts.next().unwrap_or_default();
            let quality = parts.find_map(quality).unwrap_or(1000);
            if media_type.eq_ignore_ascii_case(b"application/openmetrics-text") {
                open = open.max(quality);
            } else if media_type.eq_ignore_ascii_case(b"text/plain") {
                text = text.max(quality);
            }
        }
        if open > 0 && open >= text { Self::OpenMetrics } else { Self::Text }
    }
}

/// A weight in thousandths (RFC 9110 §12.4.2); `None` if it is malformed.
fn quality(parameter: &[u8]) -> Option<u32> {
    let (name, value) = parameter.split_at_checked(2)?;
    if !name.eq_ignore_ascii_case(b"q=") {
        return None;
    }
    let digits = value.iter().filter(|byte| byte.is_ascii_digit()).take(4);
    let (read, count) = digits.fold((0, 0), |(read, count), digit| (read * 10 + u32::from(digit - b'0'), count + 1));
    Some(read * 10_u32.pow(4 - count))
}

#[cfg(test)]
mod tests {
    use super::MetricsFormat;

    #[test]
    fn open_metrics_is_for_who_asks_for_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, is_open) in [
            (&[][..], false),
            (&["*/*"], false),
            (&["text/plain;version=0.0.4;q=0.5, */*;q=0.1"], false),
            (&[prometheus], true),
            (&["text/html", "Application/OpenMetrics-Text; version=1.0.0; Q=0.3"], true),
            (&["application/openmetrics-text;q=0"], false),
            (&["application/openmetrics-text;q=0.4, text/plain"], false),
            (&["application/openmetrics-text;q=0.40, text/plain;q=0.400"], true),
            (&["application/openmetrics-text;q=99999999999, \u{7f};;;q=,"], true),
        ] {
            let found = MetricsFormat::of_accept(accept.iter().map(|value| value.as_bytes()));
            assert_eq!(found == MetricsFormat::OpenMetrics, is_open, "{accept:?}");
        }
    }
}
