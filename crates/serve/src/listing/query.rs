//! The requested format and order of a listing, from the query string and Accept (RFC 9110 §12.5.1).

use super::order::{By, ListingOrder};
use flatout_http::accept::{Weight, media_ranges};

/// The format of a listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    /// An HTML page.
    #[default]
    Html,
    Json,
}

/// The format and order that a request for a listing asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListingQuery {
    /// The output format.
    pub(crate) format: Format,
    /// The sort order.
    pub(crate) order: ListingOrder,
}

impl ListingQuery {
    /// Parses `sort=name|size|time`, `order=asc|desc` and `format=html|json` from the query string. Ignores other
    /// parameters. If a parameter is repeated, the last value counts. Without `format`, the Accept field decides.
    pub(crate) fn parse<'a>(query: Option<&[u8]>, accept: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut order = ListingOrder::default();
        let mut format = None;
        for pair in query.unwrap_or_default().split(|&byte| byte == b'&') {
            match pair {
                b"sort=name" => order.by = By::Name,
                b"sort=size" => order.by = By::Size,
                b"sort=time" => order.by = By::Time,
                b"order=asc" => order.descending = false,
                b"order=desc" => order.descending = true,
                b"format=html" => format = Some(Format::Html),
                b"format=json" => format = Some(Format::Json),
                _ => {}
            }
        }
        Self { format: format.unwrap_or_else(|| accepted(accept)), order }
    }

    /// Returns a key that differs for each combination of format and order.
    pub(crate) const fn key(self) -> [u8; 3] {
        [self.format as u8, self.order.by as u8, self.order.descending as u8]
    }
}

/// The client's preference for a media type: how specifically Accept names it (3 for the type itself, 2 for a range
/// such as `text/*`, 1 for `*/*`, 0 for none), and its weight in thousandths.
#[derive(Clone, Copy, Default)]
struct Liking {
    closeness: u8,
    weight: Weight,
}

impl Liking {
    /// Takes a media range into account. The most specific range decides (RFC 9110 §12.5.1); among equally specific
    /// ranges, the lowest weight.
    fn hear(&mut self, closeness: u8, weight: Weight) {
        if closeness > self.closeness || (closeness == self.closeness && weight < self.weight) {
            *self = Self { closeness, weight };
        }
    }
}

/// Returns the format that the client prefers. This is JSON if it has the greater weight, or if the weights are equal
/// and HTML is named less specifically, as in `application/json, */*`.
fn accepted<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Format {
    let (mut html, mut json) = (Liking::default(), Liking::default());
    for (range, weight) in media_ranges(lines) {
        match &range.to_ascii_lowercase()[..] {
            b"text/html" => html.hear(3, weight),
            b"text/*" => html.hear(2, weight),
            b"application/json" => json.hear(3, weight),
            b"application/*" => json.hear(2, weight),
            b"*/*" => {
                html.hear(1, weight);
                json.hear(1, weight);
            }
            _ => {}
        }
    }
    if json.weight > 0 && (json.weight, json.closeness) > (html.weight, html.closeness) {
        Format::Json
    } else {
        Format::Html
    }
}

#[cfg(test)]
mod tests {
    use super::{By, Format, ListingOrder, ListingQuery};

    fn order(query: &str) -> (By, bool) {
        let ListingOrder { by, descending } = ListingQuery::parse(Some(query.as_bytes()), []).order;
        (by, descending)
    }

    #[test]
    fn queries() {
        assert_eq!(ListingQuery::parse(None, []), ListingQuery::default());
        assert_eq!(order("sort=size&order=desc"), (By::Size, true));
        assert_eq!(order("order=desc"), (By::Name, true));
        assert_eq!(order("sort=size&sort=time&order=desc&order=asc"), (By::Time, false));
        for nonsense in
            ["", "&&", "sort", "sort=", "sort=SIZE", "sort=size2", "Sort=size", "sort=size;order=desc", "=", "\0"]
        {
            assert_eq!(order(nonsense), (By::Name, false), "{nonsense:?}");
        }
        assert_eq!(order("utm=1&sort=time&sort=what"), (By::Time, false));
    }

    #[test]
    fn formats() {
        const HTML: Format = Format::Html;
        const JSON: Format = Format::Json;
        for (accept, expected) in [
            (&[][..], HTML),
            (&["*/*"], HTML),
            (&["application/json"], JSON),
            (&["Application/JSON ; Q=0.1"], JSON),
            (&["application/json, text/plain, */*"], JSON),
            (&["application/json, text/html"], HTML),
            (&["text/html;q=0.9", "application/json"], JSON),
            (&["text/html", "application/json;q=0.9"], HTML),
            (&["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"], HTML),
            (&["application/*"], JSON),
            (&["text/*, application/json;q=0.5"], HTML),
            (&["*/*;q=0.5, text/html;q=0.1"], JSON),
            (&["*/*, application/json;q=0"], HTML),
            (&["application/json;q=0"], HTML),
            (&["application/json;q=2"], HTML),
            (&["application/json;charset=utf-8;q=0.5, text/html;q=0.4"], JSON),
            (&[",;,q=1, application/jsonx"], HTML),
        ] {
            let lines = accept.iter().map(|line| line.as_bytes());
            assert_eq!(ListingQuery::parse(None, lines).format, expected, "{accept:?}");
        }
        assert_eq!(ListingQuery::parse(Some(b"format=html"), [&b"application/json"[..]]).format, HTML);
        assert_eq!(ListingQuery::parse(Some(b"format=html&format=json"), []).format, JSON);
        assert_eq!(ListingQuery::parse(Some(b"format=xml"), []).format, HTML);
    }
}
