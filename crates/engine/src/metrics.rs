//! Content negotiation for metrics: Prometheus text, or OpenMetrics if the request prefers it.

use flatout_http::accept::media_ranges;
use std::sync::Arc;

/// Text formats of metrics that Prometheus supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    /// Prometheus text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

/// Function that returns the metrics in a format.
pub type MetricsText = Arc<dyn Fn(MetricsFormat) -> String + Send + Sync>;

impl MetricsFormat {
    /// Returns the media type.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Selects the format for a request with these values of Accept (RFC 9110 §12.5.1): OpenMetrics if the request
    /// accepts it and does not prefer plain text.
    pub fn of_accept<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let (mut open, mut text) = (0, 0);
        for (media_type, weight) in media_ranges(values) {
            if media_type.eq_ignore_ascii_case(b"application/openmetrics-text") {
                open = open.max(weight);
            } else if media_type.eq_ignore_ascii_case(b"text/plain") {
                text = text.max(weight);
            }
        }
        if open > 0 && open >= text { Self::OpenMetrics } else { Self::Text }
    }
}

#[cfg(test)]
mod tests {
    use super::MetricsFormat;

    #[test]
    fn open_metrics_is_sent_on_request() {
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
            (&["application/openmetrics-text;q=99999999999, \u{7f};;;q=,"], false),
        ] {
            let found = MetricsFormat::of_accept(accept.iter().map(|value| value.as_bytes()));
            assert_eq!(found == MetricsFormat::OpenMetrics, is_open, "{accept:?}");
        }
    }
}
