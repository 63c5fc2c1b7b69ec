//! Binary encoding of [`Stored`] for disk volumes.
//!
//! All numbers are little-endian:
//!
//! ```text
//! version u8 | bytes that follow u32 | status u16 | request, response and Date's time 3 × i64
//! | Age, initial age, lifetime, stale while revalidate, stale if error 5 × u32 | lifetime's source u8 | flags u16
//! | Last-Modified: 0, or 1 and i64 | extent: 0 whole; 1 first, last; 2 first, last, total, each u64
//! | ETag: 0, or 1 and text | Vary text | variant key text | tags text | groups text | lines text
//! | No-Vary-Search: 0; or 1 (params) or 2 (except), key-order u8, count u16, names text each
//! ```
//!
//! Each `text` is encoded as its length in bytes (u32), followed by the bytes. There is no checksum: the storage layer
//! verifies the bytes.

use crate::directive::SECONDS_MAX;
use crate::freshness::LifetimeSource;
use crate::lines::{LINES_BYTES_MAX, with_fields};
use crate::search::{Ignored, NAMES_MAX, NoVarySearch};
use crate::stored::{Extent, Flags, Stored};
use crate::tags::{TAG_BYTES_MAX, TAGS_MAX, Tags};
use crate::vary::VARIANT_KEY_BYTES_MAX;
use flatout_http::etag::ETag;

/// Version of the encoding: the first byte that [`encode`] writes.
pub const VERSION: u8 = 1;

/// Maximum size of an encoded value in bytes, excluding the version byte and the length.
const BYTES_MAX: usize = 2 * (TAGS_MAX * (TAG_BYTES_MAX + 2)) + 3 * LINES_BYTES_MAX + VARIANT_KEY_BYTES_MAX + 4096;

/// Error in decoding a stored value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The version byte is not [`VERSION`].
    Version,
    /// The encoding contains a value that [`encode`] never writes.
    Value,
    /// The encoded length exceeds the limit.
    TooLarge,
}

/// Appends the encoding of `stored` to `output`.
pub fn encode(stored: &Stored, output: &mut Vec<u8>) {
    output.push(VERSION);
    let length_at = output.len();
    output.extend_from_slice(&[0; 4]);
    output.extend_from_slice(&stored.status.to_le_bytes());
    for time_s in [stored.request_time_s, stored.response_time_s, stored.date_s] {
        output.extend_from_slice(&time_s.to_le_bytes());
    }
    for seconds in [
        stored.age_field_s,
        stored.initial_age_s,
        stored.lifetime_s,
        stored.stale_while_revalidate_s,
        stored.stale_if_error_s,
    ] {
        output.extend_from_slice(&seconds.to_le_bytes());
    }
    output.push(stored.lifetime_source as u8);
    output.extend_from_slice(&stored.flags.0.to_le_bytes());
    match stored.last_modified_s {
        None => output.push(0),
        Some(last_modified_s) => {
            output.push(1);
            output.extend_from_slice(&last_modified_s.to_le_bytes());
        }
    }
    write_extent(stored.extent, output);
    match &stored.etag {
        None => output.push(0),
        Some(etag) => {
            output.push(1);
            write_text(etag, output);
        }
    }
    for text in
        [stored.vary.as_bytes(), &stored.variant_key, stored.tags.as_bytes(), stored.groups.as_bytes(), &stored.lines]
    {
        write_text(text, output);
    }
    write_search(stored.search.as_ref(), output);
    let length = u32::try_from(output.len() - length_at - 4).unwrap_or(u32::MAX);
    output[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
}

fn write_extent(extent: Extent, output: &mut Vec<u8>) {
    let Extent::Part { first, last, total } = extent else { return output.push(0) };
    output.push(if total.is_some() { 2 } else { 1 });
    for number in [Some(first), Some(last), total].into_iter().flatten() {
        output.extend_from_slice(&number.to_le_bytes());
    }
}

fn write_search(search: Option<&NoVarySearch>, output: &mut Vec<u8>) {
    let Some(NoVarySearch { key_order, ignored }) = search else { return output.push(0) };
    let (kind, names) = match ignored {
        Ignored::Params(names) => (1, names),
        Ignored::Except(names) => (2, names),
    };
    output.extend_from_slice(&[kind, u8::from(*key_order)]);
    let count = names.len().min(NAMES_MAX);
    output.extend_from_slice(&u16::try_from(count).unwrap_or(u16::MAX).to_le_bytes());
    for name in &names[..count] {
        write_text(name, output);
    }
}

fn write_text(text: &[u8], output: &mut Vec<u8>) {
    output.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
    output.extend_from_slice(text);
}

/// Decodes the value at the beginning of `bytes`. Returns the value and its encoded length in bytes, or `Ok(None)` if
/// the encoding is incomplete.
pub fn decode(bytes: &[u8]) -> Result<Option<(Stored, usize)>, DecodeError> {
    let Some((&version, rest)) = bytes.split_first() else { return Ok(None) };
    if version != VERSION {
        return Err(DecodeError::Version);
    }
    let Some((length, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    if length > BYTES_MAX {
        return Err(DecodeError::TooLarge);
    }
    let Some(body) = rest.get(..length) else { return Ok(None) };
    let mut reader = CodecReader(body);
    let stored = reader.stored().ok_or(DecodeError::Value)?;
    if reader.0.is_empty() { Ok(Some((stored, 5 + length))) } else { Err(DecodeError::Value) }
}

struct CodecReader<'a>(&'a [u8]);

impl<'a> CodecReader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn time_s(&mut self) -> Option<i64> {
        self.take().map(i64::from_le_bytes)
    }

    fn seconds(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes).filter(|&seconds| seconds <= SECONDS_MAX)
    }

    fn text(&mut self, bytes_max: usize) -> Option<&'a [u8]> {
        let length = usize::try_from(self.take().map(u32::from_le_bytes)?).ok()?;
        let (text, rest) = self.0.split_at_checked(length).filter(|(text, _)| text.len() <= bytes_max)?;
        self.0 = rest;
        Some(text)
    }

    fn stored(&mut self) -> Option<Stored> {
        let status = self.u16().filter(|status| (200..=999).contains(status))?;
        let (request_time_s, response_time_s, date_s) = (self.time_s()?, self.time_s()?, self.time_s()?);
        let (age_field_s, initial_age_s, lifetime_s) = (self.seconds()?, self.seconds()?, self.seconds()?);
        let (stale_while_revalidate_s, stale_if_error_s) = (self.seconds()?, self.seconds()?);
        let lifetime_source = *LifetimeSource::ALL.get(usize::from(self.byte()?))?;
        let flags = self.u16().filter(|bits| bits & !Flags::KNOWN == 0).map(Flags)?;
        let last_modified_s = match self.byte()? {
            0 => None,
            1 => Some(self.time_s()?),
            _ => return None,
        };
        let extent = self.extent()?;
        let etag = match self.byte()? {
            0 => None,
            1 => Some(self.text(LINES_BYTES_MAX).filter(|etag| ETag::parse(etag).is_some())?),
            _ => return None,
        };
        let vary = std::str::from_utf8(self.text(LINES_BYTES_MAX)?).ok()?;
        let variant_key = self.text(VARIANT_KEY_BYTES_MAX)?;
        let tags = Tags::from_bytes(self.text(BYTES_MAX)?)?;
        let groups = Tags::from_bytes(self.text(BYTES_MAX)?)?;
        let lines = self.text(LINES_BYTES_MAX)?;
        // These lines are copied into response heads unchanged, so each must be a valid field line.
        with_fields(lines, |_| ())?;
        let mut stored = Stored {
            status,
            request_time_s,
            response_time_s,
            date_s,
            age_field_s,
            initial_age_s,
            lifetime_s,
            lifetime_source,
            fresh_until_s: i64::MIN,
            stale_while_revalidate_s,
            stale_if_error_s,
            flags,
            etag: etag.map(Into::into),
            last_modified_s,
            vary: vary.into(),
            variant_key: variant_key.into(),
            search: self.search()?,
            tags,
            groups,
            extent,
            lines: lines.into(),
        };
        stored.settle();
        Some(stored)
    }

    fn extent(&mut self) -> Option<Extent> {
        let kind = self.byte()?;
        if kind == 0 {
            return Some(Extent::Whole);
        }
        let (first, last) = (self.u64()?, self.u64()?);
        let total = match kind {
            1 => None,
            2 => Some(self.u64()?),
            _ => return None,
        };
        let valid = first <= last && last < u64::MAX && total.is_none_or(|total| last < total);
        valid.then_some(Extent::Part { first, last, total })
    }

    /// Reads No-Vary-Search. Returns `None` if the encoding is invalid, and `Some(None)` if the response has no
    /// No-Vary-Search.
    #[allow(clippy::option_option)] // the outer option is for errors, the inner one is the value
    fn search(&mut self) -> Option<Option<NoVarySearch>> {
        let kind = self.byte()?;
        if kind == 0 {
            return Some(None);
        }
        let key_order = match self.byte()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let count = self.u16().filter(|&count| usize::from(count) <= NAMES_MAX)?;
        let names = (0..count).map(|_| Some(self.text(LINES_BYTES_MAX)?.to_vec())).collect::<Option<Vec<_>>>()?;
        let ignored = match kind {
            1 => Ignored::Params(names),
            2 => Ignored::Except(names),
            _ => return None,
        };
        Some(Some(NoVarySearch { key_order, ignored }))
    }
}

#[cfg(test)]
mod tests {
    use super::{DecodeError, VERSION, decode, encode};
    use crate::rules::Rules;
    use crate::storable::tests::stored_with;
    use crate::stored::{Extent, Stored};
    use flatout_http::feed::assert_three_ways;

    pub(crate) fn samples() -> Vec<Stored> {
        let rules = Rules { stale_if_error_s: 60, ..Rules::default() };
        let full = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nCache-Control: max-age=60, immutable, no-transform\r\n\
            ETag: \"x\"\r\nLast-Modified: Sun, 06 Nov 1994 07:49:37 GMT\r\nVary: Foo, Accept-Encoding\r\nAge: 7\r\n\
            Surrogate-Key: a b\r\nCache-Groups: \"g\"\r\nNo-Vary-Search: key-order, params=(\"u\" \"v w\")\r\n";
        let part = stored_with(
            "Range: bytes=2-3\r\n",
            206,
            "Cache-Control: max-age=60\r\nContent-Range: bytes 2-3/10\r\nContent-Length: 2\r\n",
            &rules,
        );
        let mut unknown = part.clone();
        unknown.extent = Extent::Part { first: 2, last: 3, total: None };
        vec![
            stored_with("Foo: 1\r\nAccept-Encoding: gzip\r\n", 200, full, &rules),
            stored_with("", 404, "Expires: Fri, 31 Dec 9999 23:59:59 GMT\r\n", &rules),
            stored_with("", 200, "ETag: W/\"\"\r\nCache-Control: no-cache\r\nNo-Vary-Search: params\r\n", &rules),
            part,
            unknown,
        ]
    }

    fn decode_three_ways(bytes: &[u8]) {
        assert_three_ways(bytes, |bytes| decode(bytes).transpose());
    }

    #[test]
    fn encoded_metadata_is_decoded_unchanged() {
        for stored in samples() {
            let mut bytes = Vec::new();
            encode(&stored, &mut bytes);
            assert_eq!(decode(&bytes), Ok(Some((stored, bytes.len()))));
            decode_three_ways(&bytes);
            for end in 0..bytes.len() {
                assert_eq!(decode(&bytes[..end]), Ok(None), "{end}");
            }
        }
    }

    /// If one byte is changed to anything, the decoder either fails or returns exactly what the bytes encode.
    #[test]
    fn changed_bytes_are_rejected_or_decoded_exactly() {
        for stored in samples() {
            let mut bytes = Vec::new();
            encode(&stored, &mut bytes);
            for at in 0..bytes.len() {
                for flip in [1, 0x20, 0x80, 0xff] {
                    let mut changed = bytes.clone();
                    changed[at] ^= flip;
                    decode_three_ways(&changed);
                    if let Ok(Some((stored, used))) = decode(&changed) {
                        let mut again = Vec::new();
                        encode(&stored, &mut again);
                        assert_eq!(again, changed[..used], "byte {at} ^ {flip}");
                    }
                }
            }
        }
    }

    #[test]
    fn other_versions_and_lengths() {
        assert_eq!(decode(b""), Ok(None));
        assert_eq!(decode(&[VERSION + 1]), Err(DecodeError::Version));
        assert_eq!(decode(&[VERSION, 255, 255, 255, 255]), Err(DecodeError::TooLarge));
        assert_eq!(decode(&[VERSION, 0, 0, 0, 0]), Err(DecodeError::Value));
    }
}
