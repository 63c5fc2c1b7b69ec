//! The listing query, from the query string and Accept (RFC 9110 §12.5.1).

use super::order::{By, ListingOrder};
use flatout_http::token::trim;

/// The format of a listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    /// An HTML page.
    #[default]
    Html,
    /// JSON.
    Json,
}

/// A listing query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListingQuery {
    /// The output format.
    pub(crate) format: Format,
    /// The sort order.
    pub(crate) order: ListingOrder,
}

impl ListingQuery {
    /// Parses `sort=name|size|time`, `order=asc|desc` and `format=html|json` from the query. Other parameters are
    /// ignored, and the last of several counts. Without `format` the Accept lines decide.
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

    /// A key that distinguishes listing queries.
    pub(crate) const fn key(self) -> [u8; 3] {
        [self.format as u8, self.order.by as u8, self.order.descending as u8]
    }
}

/// The preference for a media type: how specifically it is named (3 exactly, 1 by `*/*`, 0 not at all), and its
/// weight in thousandths.
#[derive(Clone, Copy, Default)]
struct Liking {
    closeness: u8,
    weight: u16,
}

impl Liking {
    /// The most specific range decides (RFC 9110 §12.5.1); among equals the least weight.
    fn hear(&mut self, closeness: u8, weight: u16) {
        if closeness > self.closeness || (closeness == self.closeness && weight < self.weight) {
            *self = Self { closeness, weight };
        }
    }
}

/// JSON if it has the greater weight, or the same while HTML is named less specifically (`application/json, */*`).
fn accepted<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Format {
    let (mut html, mut json) = (Liking::default(), Liking::default());
    for element in lines.into_iter().flat_map(|line| line.split(|&byte| byte == b',')) {
        let mut parts = element.split(|&byte| byte == b';').map(trim);
        let range = parts.next().unwrap_or_default().to_ascii_lowercase();
        let Some(weight) = weight_among(parts) else { continue };
        match &range[..] {
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

/// The weight among the parameters of a media range: 1000 if there is none, `None` if it is malformed.
fn weight_among<'a>(parameters: impl Iterator<Item = &'a [u8]>) -> Option<u16> {
    for parameter in parameters {
        if let [b'q' | b'Q', b'=', value @ ..] = parameter {
            return parse_weight(value);
        }
    }
    Some(1000)
}

/// `qvalue` (RFC 9110 §12.4.2) in thousandths.
fn parse_weight(value: &[u8]) -> Option<u16> {
    let (whole, decimals) = match value {
        [whole @ (b'0' | b'1')] => (*whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', decimals @ ..] if decimals.len() <= 3 => (*whole, decimals),
        _ => return None,
    };
    let mut weight = u16::from(whole - b'0');
    for at in 0..3 {
        let digit = *decimals.get(at).unwrap_or(&b'0');
        if !digit.is_ascii_digit() {
            return None;
        }
        weight = weight * 10 + u16::from(digit - b'0');
    }
    (weight <= 1000).then_some(weight)
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
