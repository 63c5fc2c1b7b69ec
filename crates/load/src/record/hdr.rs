//! Time histogram, serialised as HdrHistogram V2 in base64.
//!
//! The `hdrhistogram` crate does the encoding and decoding. It trusts its input, so this module first checks the
//! lengths and bounds in the header, which has 40 bytes in network order: cookie, payload length, normalising offset,
//! digits, lowest and highest value, ratio. A compressed histogram is a cookie, a length and a zlib stream.

use super::{RecordError, TIME_NS_MAX};
use data_encoding::BASE64;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{self, DeserializeError, Serializer as _, V2DeflateSerializer, V2Serializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::io::Read;

/// Number of significant decimal digits of every recorded time.
pub const DIGITS: u8 = 3;

/// Maximum number of counts of a parsed histogram, which take 8 MiB. Three digits from 1 ns to a hundred years need
/// 55,000 counts.
pub const COUNTS_MAX: usize = 1 << 20;

/// Cookie of a plain histogram. The upper half of the lowest byte means "varint".
const COOKIE: u32 = 0x1c84_9313;

/// Cookie of a compressed histogram.
const COOKIE_COMPRESSED: u32 = 0x1c84_9314;

/// Length of the header in bytes.
const HEADER_BYTES: usize = 40;

/// Maximum number of bytes in an encoded count.
const COUNT_BYTES_MAX: usize = 9;

/// The reason a histogram could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HdrError {
    /// The string is not base64.
    #[error("a histogram that is not base64")]
    Base64,
    /// The bytes are neither a compressed nor a plain V2 histogram.
    #[error("not an HdrHistogram of version 2")]
    Cookie,
    /// The zlib stream is corrupt.
    #[error("a histogram whose zlib stream is corrupt")]
    Compression,
    /// The histogram is truncated, or its lengths are inconsistent.
    #[error("a histogram that ends too early, or whose lengths disagree")]
    Truncated,
    /// The bounds or digits are invalid or would need too much memory.
    #[error("a histogram whose bounds or digits are invalid")]
    Bounds,
    /// There are too many counts, or the counts are too large.
    #[error("a histogram whose counts are too many or too large")]
    Counts,
}

/// A histogram of times from 1 ns to [`TIME_NS_MAX`]. In JSON, it is a string: compressed HdrHistogram V2 in base64.
///
/// During recording, it takes a quarter of a megabyte, which has space for every count. A sweep stores ten histograms
/// per level, so a finished histogram can be packed into some kilobytes ([`Hdr::pack`]).
#[derive(Clone, Debug)]
pub struct Hdr(HdrStorage);

#[derive(Clone, Debug)]
enum HdrStorage {
    /// Can be recorded into.
    Open(Histogram<u64>),
    /// Plain V2 bytes, the output of [`encode_plain`].
    Packed(Box<[u8]>),
}

impl PartialEq for Hdr {
    fn eq(&self, other: &Self) -> bool {
        self.histogram() == other.histogram()
    }
}

impl Hdr {
    /// Creates an empty histogram of [`DIGITS`] significant digits.
    pub fn new() -> Result<Self, RecordError> {
        Self::with_digits(DIGITS)
    }

    /// Creates an empty histogram of 1 to 5 significant digits.
    pub fn with_digits(digits: u8) -> Result<Self, RecordError> {
        Histogram::new_with_bounds(1, TIME_NS_MAX, digits).map(Self::of).map_err(|_| RecordError::Histogram)
    }

    const fn of(histogram: Histogram<u64>) -> Self {
        Self(HdrStorage::Open(histogram))
    }

    /// Returns the histogram, or an unpacked copy if it is packed.
    pub fn histogram(&self) -> Cow<'_, Histogram<u64>> {
        match &self.0 {
            HdrStorage::Open(histogram) => Cow::Borrowed(histogram),
            HdrStorage::Packed(bytes) => Cow::Owned(unpack(bytes)),
        }
    }

    /// Packs the histogram losslessly. A later change unpacks it.
    pub fn pack(&mut self) {
        let HdrStorage::Open(histogram) = &self.0 else { return };
        // If the counts cannot be encoded, or their sum cannot be decoded again, the histogram stays unpacked.
        if let Some(bytes) = encode_plain(histogram).filter(|bytes| decode_plain(bytes).is_ok()) {
            self.0 = HdrStorage::Packed(bytes.into());
        }
    }

    /// Returns the heap memory used, in bytes.
    #[cfg(test)]
    fn memory_bytes(&self) -> usize {
        match &self.0 {
            HdrStorage::Open(histogram) => histogram.distinct_values() * size_of::<u64>(),
            HdrStorage::Packed(bytes) => bytes.len(),
        }
    }

    /// Records a time. Never fails, and allocates only if the histogram was packed.
    pub fn record(&mut self, value_ns: u64) {
        self.change(|histogram| histogram.saturating_record(value_ns));
    }

    fn change<T>(&mut self, change: impl FnOnce(&mut Histogram<u64>) -> T) -> T {
        match &mut self.0 {
            HdrStorage::Open(histogram) => change(histogram),
            HdrStorage::Packed(bytes) => {
                let mut histogram = unpack(bytes);
                let changed = change(&mut histogram);
                self.0 = HdrStorage::Open(histogram);
                changed
            }
        }
    }

    /// Adds the values of another histogram.
    pub fn merge(&mut self, other: &Self) -> Result<(), RecordError> {
        self.change(|histogram| histogram.add(&*other.histogram())).map_err(|_| RecordError::Different)
    }

    /// Encodes the histogram as compressed HdrHistogram V2 in base64, which begins with `HISTFAAA`.
    pub fn encode(&self) -> String {
        let mut bytes = Vec::new();
        // Fails only for a count above `i64::MAX`; readers reject the empty string that this gives.
        let _ = V2DeflateSerializer::new().serialize(&*self.histogram(), &mut bytes);
        BASE64.encode(&bytes)
    }

    /// Parses the output of [`Hdr::encode`] or of any other HdrHistogram library.
    pub fn parse(text: &str) -> Result<Self, HdrError> {
        Self::decode(&BASE64.decode(text.as_bytes()).map_err(|_| HdrError::Base64)?)
    }

    /// Decodes a compressed or a plain histogram.
    pub fn decode(bytes: &[u8]) -> Result<Self, HdrError> {
        let (cookie, rest) = bytes.split_first_chunk::<4>().ok_or(HdrError::Truncated)?;
        match u32::from_be_bytes(*cookie) {
            COOKIE => decode_plain(bytes).map(Self::of),
            COOKIE_COMPRESSED => {
                let (length, stream) = rest.split_first_chunk::<4>().ok_or(HdrError::Truncated)?;
                if u32::from_be_bytes(*length) as usize != stream.len() {
                    return Err(HdrError::Truncated);
                }
                decode_plain(&inflate(stream)?).map(Self::of)
            }
            _ => Err(HdrError::Cookie),
        }
    }

    /// Returns the percentiles, with `missing` requests that count as slower than all others; `None` if the histogram
    /// is empty.
    pub fn percentiles(&self, missing: u64) -> Option<crate::report::Percentiles> {
        crate::report::Percentiles::of(&self.histogram(), missing)
    }
}

impl Serialize for Hdr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.encode())
    }
}

impl<'de> Deserialize<'de> for Hdr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <Cow<'de, str>>::deserialize(deserializer)?;
        let mut read = Self::parse(&text).map_err(serde::de::Error::custom)?;
        let histogram = read.histogram();
        // A document contains many histograms. None may exceed the bounds used here, and it must be possible to merge
        // all of them.
        let is_ours = histogram.low() == 1 && histogram.high() == TIME_NS_MAX && histogram.sigfig() <= DIGITS;
        if !is_ours {
            return Err(serde::de::Error::custom(HdrError::Bounds));
        }
        read.pack();
        Ok(read)
    }
}

/// Encodes plain V2 bytes. Returns `None` if a count exceeds `i64::MAX`, the maximum of the format.
fn encode_plain(histogram: &Histogram<u64>) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(1024);
    V2Serializer::new().serialize(histogram, &mut bytes).ok()?;
    Some(bytes)
}

fn inflate(stream: &[u8]) -> Result<Vec<u8>, HdrError> {
    let most = HEADER_BYTES + COUNTS_MAX * COUNT_BYTES_MAX;
    let mut plain = Vec::new();
    let read = ZlibDecoder::new(stream).take(most as u64 + 1).read_to_end(&mut plain);
    match read {
        Err(_) => Err(HdrError::Compression),
        Ok(bytes) if bytes > most => Err(HdrError::Counts),
        Ok(_) => Ok(plain),
    }
}

fn decode_plain(mut bytes: &[u8]) -> Result<Histogram<u64>, HdrError> {
    let (header, counts) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(HdrError::Truncated)?;
    let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let wide = |at: usize| u64::from(number(at)) << 32 | u64::from(number(at + 4));
    let (low, high, digits) = (wide(16), wide(24), number(12));
    if number(0) != COOKIE {
        return Err(HdrError::Cookie);
    }
    // The deserialiser allocates as much memory as the header states.
    if number(4) as usize != counts.len() {
        return Err(HdrError::Truncated);
    }
    if count_places(low, high, digits).is_none_or(|places| places > COUNTS_MAX) {
        return Err(HdrError::Bounds);
    }
    let histogram =
        serialization::Deserializer::new().deserialize::<u64, _>(&mut bytes).map_err(|error| match error {
            DeserializeError::IoError(_) => HdrError::Truncated,
            DeserializeError::InvalidCookie => HdrError::Cookie,
            DeserializeError::UnsupportedFeature | DeserializeError::InvalidParameters => HdrError::Bounds,
            DeserializeError::UnsuitableCounterType
            | DeserializeError::UsizeTypeTooSmall
            | DeserializeError::EncodedArrayTooLong => HdrError::Counts,
        })?;
    // The deserialiser saturates the sum of all counts.
    if histogram.len() == u64::MAX { Err(HdrError::Counts) } else { Ok(histogram) }
}

/// Returns the number of counts of a histogram with these bounds; `None` if the bounds are invalid.
fn count_places(low: u64, high: u64, digits: u32) -> Option<usize> {
    if low == 0 || high < low.checked_mul(2)? || !(1..=5).contains(&digits) {
        return None;
    }
    let places_each = (2 * 10_usize.pow(digits)).next_power_of_two() / 2;
    let doublings = (high / low).ilog2().saturating_sub(places_each.ilog2()) as usize;
    Some((doublings + 3) * places_each)
}

/// Unpacks a histogram.
fn unpack(bytes: &[u8]) -> Histogram<u64> {
    decode_plain(bytes).unwrap_or_else(|_| unreachable!("an encoded histogram can always be decoded"))
}

#[cfg(test)]
mod tests;
