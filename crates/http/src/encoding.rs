//! Accept-Encoding (RFC 9110 §12.5.3): selection of a content coding.

use crate::accept::{Weight, parse_weight};
use crate::token::{is_token, trim};

flatout_reason::reasons! {
    /// A content coding of a representation.
    pub enum ContentCoding { name, }
    /// `identity`: no coding.
    Identity, "identity";
    /// `br` (RFC 7932).
    Brotli, "br";
    /// `zstd` (RFC 8878).
    Zstd, "zstd";
    /// `gzip` (RFC 1952), formerly `x-gzip`.
    Gzip, "gzip";
}

impl ContentCoding {
    /// Returns the coding called `name`, ignoring case (RFC 9110 §8.4.1).
    pub fn from_name(name: &[u8]) -> Option<Self> {
        if name.eq_ignore_ascii_case(b"x-gzip") {
            return Some(Self::Gzip);
        }
        Self::ALL.iter().copied().find(|coding| name.eq_ignore_ascii_case(coding.name().as_bytes()))
    }
}

/// Weights that a client assigns to content codings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedCodings([Weight; ContentCoding::ALL.len()]);

/// Weight of `identity` if the field does not mention it: acceptable, but less preferred than any listed coding.
const IDENTITY_UNNAMED: Weight = 1;

impl AcceptedCodings {
    /// Only `identity`, for clients that send no Accept-Encoding. RFC 9110 §12.5.3 permits any coding for them, but
    /// such clients rarely decode any.
    pub const PLAIN: Self = Self([IDENTITY_UNNAMED, 0, 0, 0]);

    /// Parses all Accept-Encoding lines as one list. Ignores elements that violate the grammar or name an unknown
    /// coding. If several elements name the same coding, the lowest weight counts, so an exclusion always applies.
    pub fn parse<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut named = [None::<Weight>; ContentCoding::ALL.len()];
        let mut others = None::<Weight>;
        for element in lines.into_iter().flat_map(|line| line.split(|&byte| byte == b',')) {
            let Some((name, weight)) = parse_element(trim(element)) else { continue };
            let slot = match ContentCoding::from_name(name) {
                Some(coding) => &mut named[coding as usize],
                None if name == b"*" => &mut others,
                None => continue,
            };
            *slot = Some(slot.map_or(weight, |before| before.min(weight)));
        }
        let mut weights = named.map(|weight| weight.or(others).unwrap_or(0));
        if named[0].is_none() && others.is_none() {
            weights[0] = IDENTITY_UNNAMED;
        }
        Self(weights)
    }

    /// Returns the weight of `coding`.
    pub const fn weight(&self, coding: ContentCoding) -> Weight {
        self.0[coding as usize]
    }

    /// Selects the coding with the highest weight from `available`, which is in the server's order of preference. Ties
    /// are decided by that order, with `identity` last. Returns `None` if the client accepts neither `identity` nor any
    /// of `available`; the server may then respond 406 or disregard the field (RFC 9110 §12.4.1).
    pub fn choose(&self, available: impl IntoIterator<Item = ContentCoding>) -> Option<ContentCoding> {
        let mut best = (ContentCoding::Identity, 0);
        for coding in available.into_iter().chain([ContentCoding::Identity]) {
            if self.weight(coding) > best.1 {
                best = (coding, self.weight(coding));
            }
        }
        (best.1 > 0).then_some(best.0)
    }
}

/// Parses `codings [ weight ]`, without surrounding white space.
fn parse_element(element: &[u8]) -> Option<(&[u8], Weight)> {
    let mut parts = element.splitn(2, |&byte| byte == b';');
    let name = trim(parts.next()?);
    if !is_token(name) {
        return None;
    }
    let Some(parameter) = parts.next() else { return Some((name, 1000)) };
    Some((name, parse_weight(trim(parameter))?))
}

#[cfg(test)]
mod tests {
    use super::{AcceptedCodings, ContentCoding};
    use ContentCoding::{Brotli, Gzip, Identity, Zstd};

    fn choose(value: &str) -> Option<ContentCoding> {
        AcceptedCodings::parse([value.as_bytes()]).choose([Brotli, Zstd, Gzip])
    }

    #[test]
    fn what_clients_send() {
        for (value, expected) in [
            ("gzip, deflate, br, zstd", Some(Brotli)),
            ("gzip, deflate", Some(Gzip)),
            ("deflate, gzip, zstd", Some(Zstd)),
            ("gzip;q=1.0, br;q=0.5", Some(Gzip)),
            ("x-gzip", Some(Gzip)),
            ("GZip", Some(Gzip)),
            ("identity", Some(Identity)),
            ("identity, gzip;q=0.5", Some(Identity)),
            ("identity;q=0.5, gzip", Some(Gzip)),
            ("", Some(Identity)),
            ("deflate", Some(Identity)),
            ("*", Some(Brotli)),
            ("*;q=0.5, br;q=0", Some(Zstd)),
            ("br;q=0, zstd;q=0, gzip;q=0", Some(Identity)),
            ("*;q=0, gzip", Some(Gzip)),
            ("*;q=0", None),
            ("identity;q=0", None),
            ("identity;q=0, *", Some(Brotli)),
            ("identity;q=0, gzip;q=0.001", Some(Gzip)),
            ("gzip;q=0.001", Some(Gzip)),
            ("gzip;q=0, gzip", Some(Identity)),
            ("gzip, gzip;q=0", Some(Identity)),
            (",, gzip ; q=0.5 ,", Some(Gzip)),
            ("gzip;Q=0", Some(Identity)),
            // Malformed elements are skipped, and the others apply.
            ("br;q=2, gzip", Some(Gzip)),
            ("br;q=, gzip", Some(Gzip)),
            ("br;level=5, gzip", Some(Gzip)),
            ("br q=1, gzip", Some(Gzip)),
            ("br;q=0.1234, gzip;q=0.1", Some(Gzip)),
            ("br;q=1;x, gzip", Some(Gzip)),
            (";q=1", Some(Identity)),
        ] {
            assert_eq!(choose(value), expected, "{value:?}");
        }
    }

    #[test]
    fn several_lines_are_one_list_and_no_line_is_plain() {
        let lines = [&b"br;q=0"[..], b"gzip"];
        assert_eq!(AcceptedCodings::parse(lines).choose([Brotli, Gzip]), Some(Gzip));
        assert_eq!(AcceptedCodings::PLAIN.choose([Brotli, Gzip]), Some(Identity));
        assert_eq!(AcceptedCodings::parse(lines).choose([]), Some(Identity));
        assert_eq!(AcceptedCodings::parse([]), AcceptedCodings::PLAIN);
    }
}
