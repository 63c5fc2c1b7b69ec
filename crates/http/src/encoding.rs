//! Accept-Encoding (RFC 9110 §12.5.3): selection of a content coding.

use crate::token::{is_token, trim};

/// A content coding of a representation, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContentCoding {
    /// `identity`: no coding.
    Identity,
    /// `br` (RFC 7932).
    Brotli,
    /// `zstd` (RFC 8878).
    Zstd,
    /// `gzip` (RFC 1952), formerly `x-gzip`.
    Gzip,
}

impl ContentCoding {
    /// All codings.
    pub const ALL: [Self; 4] = [Self::Identity, Self::Brotli, Self::Zstd, Self::Gzip];

    /// Name in Accept-Encoding and Content-Encoding.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    /// The coding called `name`, case-insensitive (RFC 9110 §8.4.1).
    pub fn from_name(name: &[u8]) -> Option<Self> {
        if name.eq_ignore_ascii_case(b"x-gzip") {
            return Some(Self::Gzip);
        }
        Self::ALL.into_iter().find(|coding| name.eq_ignore_ascii_case(coding.name().as_bytes()))
    }
}

/// Weight in thousandths, 0 to 1000 (RFC 9110 §12.4.2). 0 means "not acceptable".
pub type Weight = u16;

/// Weights that a client gives to codings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedCodings([Weight; ContentCoding::ALL.len()]);

/// Identity is acceptable unless excluded, but less than any listed coding.
const IDENTITY_UNNAMED: Weight = 1;

impl AcceptedCodings {
    /// Identity only, for clients without Accept-Encoding. RFC 9110 §12.5.3 would permit any coding, but such clients
    /// rarely decode one.
    pub const PLAIN: Self = Self([IDENTITY_UNNAMED, 0, 0, 0]);

    /// Parses all Accept-Encoding lines as one list. Ignores elements that break the grammar or name an unknown
    /// coding. Of several elements for one coding the least weight counts, so that an exclusion always holds.
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

    /// Weight of `coding`.
    pub const fn weight(&self, coding: ContentCoding) -> Weight {
        self.0[coding as usize]
    }

    /// Selects the coding with the highest weight among `available`, which are in the server's order of preference.
    /// Ties follow that order, with identity last. `None`: the client accepts none of them, nor identity. The server
    /// may respond 406 or disregard the field (RFC 9110 §12.4.1).
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
    match trim(parameter) {
        [b'q' | b'Q', b'=', value @ ..] => Some((name, parse_weight(value)?)),
        _ => None,
    }
}

/// Parses `qvalue`: 0 to 1 with at most three decimals.
pub(crate) fn parse_weight(value: &[u8]) -> Option<Weight> {
    let (whole, decimals) = match value {
        [whole @ (b'0' | b'1')] => (*whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', decimals @ ..] if decimals.len() <= 3 => (*whole, decimals),
        _ => return None,
    };
    let mut weight = Weight::from(whole - b'0');
    for at in 0..3 {
        let digit = *decimals.get(at).unwrap_or(&b'0');
        if !digit.is_ascii_digit() {
            return None;
        }
        weight = weight * 10 + Weight::from(digit - b'0');
    }
    (weight <= 1000).then_some(weight)
}

#[cfg(test)]
mod tests {
    use super::{AcceptedCodings, ContentCoding, parse_weight};
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
            // Malformed elements are passed over, the others hold.
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

    #[test]
    fn weights_have_three_decimals() {
        for (text, weight) in [("0", 0), ("1", 1000), ("0.", 0), ("1.", 1000), ("0.5", 500), ("0.05", 50)] {
            assert_eq!(parse_weight(text.as_bytes()), Some(weight), "{text}");
        }
        assert_eq!((parse_weight(b"0.001"), parse_weight(b"1.000")), (Some(1), Some(1000)));
        for bad in ["", "1.001", "2", "0.1234", ".5", "0,5", "+1", "1.0 ", "0.x", "00"] {
            assert_eq!(parse_weight(bad.as_bytes()), None, "{bad}");
        }
    }
}
