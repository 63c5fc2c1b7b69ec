//! A histogram of times, written as HdrHistogram V2 in base64.
//!
//! The format (`HdrHistogram` for Java, `encodeIntoByteBuffer`): a header of 40 bytes in network order — cookie, length of
//! the payload, normalising offset (0), digits, lowest and highest value, ratio (1.0) — and a payload of counts in order
//! of value, as zig-zag LEB128 of nine bytes at most; a negative number -n stands for n counts of nought. Compressed, that
//! is a zlib stream behind a cookie and its length.

use super::{RecordError, TIME_NS_MAX};
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::io::{Read, Write};

/// Significant decimal digits of every recorded time.
pub const DIGITS: u8 = 3;

/// Most counts of a histogram that is read: 8 MiB. Three digits from 1 ns to a hundred years are 55,000 counts.
pub const COUNTS_MAX: usize = 1 << 20;

/// First bytes of a plain histogram; the lowest byte's upper half says "varint".
const COOKIE: u32 = 0x1c84_9313;

/// First bytes of a compressed one.
const COOKIE_COMPRESSED: u32 = 0x1c84_9314;

/// Bytes before the counts.
const HEADER_BYTES: usize = 40;

/// Bytes of the longest number.
const VARINT_BYTES_MAX: usize = 9;

/// Why bytes are not a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HdrError {
    /// Not base64.
    Base64,
    /// Neither a compressed nor a plain V2 histogram.
    Cookie,
    /// The zlib stream is broken.
    Compression,
    /// It ends too early, or its lengths disagree.
    Truncated,
    /// Its bounds or digits are not usable, or would take too much memory.
    Bounds,
    /// Its counts are too many or too large.
    Counts,
}

impl std::fmt::Display for HdrError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Base64 => "a histogram that is not base64",
            Self::Cookie => "not an HdrHistogram of version 2",
            Self::Compression => "a histogram whose zlib stream is broken",
            Self::Truncated => "a histogram that ends too early, or whose lengths disagree",
            Self::Bounds => "a histogram whose bounds or digits are not usable",
            Self::Counts => "a histogram whose counts are too many or too large",
        })
    }
}

impl std::error::Error for HdrError {}

/// A histogram of nanoseconds from 1 to [`TIME_NS_MAX`]. In JSON a string: compressed HdrHistogram V2 in base64.
///
/// While it is recorded it has room for every count, a quarter of a megabyte. One that is finished can be packed
/// ([`Hdr::pack`]) into the few kilobytes of the counts it has: a sweep keeps ten of them for each of its levels.
#[derive(Clone, Debug)]
pub struct Hdr(Store);

#[derive(Clone, Debug)]
enum Store {
    /// Every count has its place.
    Open(Histogram<u64>),
    /// Plain V2 bytes, as [`encode_plain`] writes them.
    Packed(Box<[u8]>),
}

impl PartialEq for Hdr {
    fn eq(&self, other: &Self) -> bool {
        self.histogram() == other.histogram()
    }
}

impl Hdr {
    /// An empty histogram of three digits.
    pub fn new() -> Result<Self, RecordError> {
        Self::with_digits(DIGITS)
    }

    /// An empty histogram of 1 to 5 digits.
    pub fn with_digits(digits: u8) -> Result<Self, RecordError> {
        Histogram::new_with_bounds(1, TIME_NS_MAX, digits).map(Self::of).map_err(|_| RecordError::Histogram)
    }

    const fn of(histogram: Histogram<u64>) -> Self {
        Self(Store::Open(histogram))
    }

    /// Its counts; one that is packed is unpacked for it, and stays packed.
    pub fn histogram(&self) -> Cow<'_, Histogram<u64>> {
        match &self.0 {
            Store::Open(histogram) => Cow::Borrowed(histogram),
            Store::Packed(bytes) => Cow::Owned(unpack(bytes)),
        }
    }

    /// Makes it as small as its counts allow. Nothing is lost; recording and adding go on with it unpacked again.
    pub fn pack(&mut self) {
        let Store::Open(histogram) = &self.0 else { return };
        let bytes = encode_plain(histogram);
        // Counts that add up to more than can be counted are not read again; such a one stays as it is.
        if decode_plain(&bytes).is_ok() {
            self.0 = Store::Packed(bytes.into());
        }
    }

    /// Room it takes beyond itself, in bytes.
    #[cfg(test)]
    fn memory_bytes(&self) -> usize {
        match &self.0 {
            Store::Open(histogram) => histogram.distinct_values() * size_of::<u64>(),
            Store::Packed(bytes) => bytes.len(),
        }
    }

    /// Records a time; never fails, and never allocates unless it was packed.
    pub fn record(&mut self, value_ns: u64) {
        self.change(|histogram| histogram.saturating_record(value_ns));
    }

    fn change<T>(&mut self, change: impl FnOnce(&mut Histogram<u64>) -> T) -> T {
        match &mut self.0 {
            Store::Open(histogram) => change(histogram),
            Store::Packed(bytes) => {
                let mut histogram = unpack(bytes);
                let changed = change(&mut histogram);
                self.0 = Store::Open(histogram);
                changed
            }
        }
    }

    /// Adds another histogram.
    pub fn merge(&mut self, other: &Self) -> Result<(), RecordError> {
        self.change(|histogram| histogram.add(&*other.histogram())).map_err(|_| RecordError::Different)
    }

    /// The histogram as compressed HdrHistogram V2 in base64; begins with `HISTFAAA`.
    pub fn encode(&self) -> String {
        let plain = match &self.0 {
            Store::Open(histogram) => Cow::Owned(encode_plain(histogram)),
            Store::Packed(bytes) => Cow::Borrowed(&**bytes),
        };
        let mut bytes = COOKIE_COMPRESSED.to_be_bytes().to_vec();
        bytes.extend([0; 4]);
        let mut encoder = ZlibEncoder::new(bytes, Compression::default());
        // Writing to memory does not fail; an empty text would be refused by every reader.
        let Ok(mut bytes) = encoder.write_all(&plain).and_then(|()| encoder.finish()) else { return String::new() };
        let length = (bytes.len() - 8) as u32;
        bytes[4..8].copy_from_slice(&length.to_be_bytes());
        base64::encode(&bytes)
    }

    /// Reads what [`Hdr::encode`], or any other HdrHistogram library, wrote.
    pub fn parse(text: &str) -> Result<Self, HdrError> {
        Self::decode(&base64::decode(text).ok_or(HdrError::Base64)?)
    }

    /// Reads a histogram from its bytes, compressed or plain.
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

    /// Percentiles, or nothing when it is empty.
    pub fn percentiles(&self) -> Option<crate::report::Percentiles> {
        crate::report::Percentiles::of(&self.histogram())
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
        // A document holds many of them: none may be larger than those recorded here, and all must go together.
        let is_ours = histogram.low() == 1 && histogram.high() == TIME_NS_MAX && histogram.sigfig() <= DIGITS;
        if !is_ours {
            return Err(serde::de::Error::custom(HdrError::Bounds));
        }
        read.pack();
        Ok(read)
    }
}

/// How values are laid out in the counts; the numbers that define the format.
struct Layout {
    unit_magnitude: u32,
    half_magnitude: u32,
    counts: usize,
}

impl Layout {
    fn of(low: u64, high: u64, digits: u32) -> Option<Self> {
        if low == 0 || high < low.checked_mul(2)? || !(1..=5).contains(&digits) {
            return None;
        }
        // Values up to twice ten to the digits are told apart singly.
        let largest_single = 2 * 10_u64.pow(digits);
        let sub_magnitude = u64::BITS - (largest_single - 1).leading_zeros();
        let unit_magnitude = low.ilog2();
        if unit_magnitude + sub_magnitude > 62 {
            return None;
        }
        let mut smallest_untrackable = 1_u128 << (sub_magnitude + unit_magnitude);
        let mut buckets = 1;
        while smallest_untrackable <= u128::from(high) {
            smallest_untrackable <<= 1;
            buckets += 1;
        }
        let counts = (buckets + 1) << (sub_magnitude - 1);
        Some(Self { unit_magnitude, half_magnitude: sub_magnitude - 1, counts })
    }

    fn index_of(&self, value: u64) -> usize {
        let mask = ((2 << self.half_magnitude) - 1_u64) << self.unit_magnitude;
        let bucket = (u64::BITS - (value | mask).leading_zeros()) - self.unit_magnitude - self.half_magnitude - 1;
        let sub = value >> (bucket + self.unit_magnitude);
        (((bucket as usize) + 1) << self.half_magnitude) + sub as usize - (1 << self.half_magnitude)
    }

    fn value_at(&self, index: usize) -> u64 {
        let half = 1_usize << self.half_magnitude;
        let (bucket, sub) = match index >> self.half_magnitude {
            0 => (0, index),
            bucket => (bucket as u32 - 1, index % half + half),
        };
        (sub as u64) << (bucket + self.unit_magnitude)
    }
}

fn encode_plain(histogram: &Histogram<u64>) -> Vec<u8> {
    let digits = u32::from(histogram.sigfig());
    let mut bytes = Vec::with_capacity(1024);
    bytes.extend(COOKIE.to_be_bytes());
    bytes.extend([0; 8]);
    bytes.extend(digits.to_be_bytes());
    bytes.extend(histogram.low().to_be_bytes());
    bytes.extend(histogram.high().to_be_bytes());
    bytes.extend(1.0_f64.to_be_bytes());
    // The histogram was made with these bounds, so they have a layout.
    if let Some(layout) = Layout::of(histogram.low(), histogram.high(), digits) {
        let mut next = 0;
        for step in histogram.iter_recorded() {
            let index = layout.index_of(step.value_iterated_to());
            match (index - next) as u64 {
                0 => {}
                1 => encode_number(0, &mut bytes),
                zeros => encode_number(-zeros.cast_signed(), &mut bytes),
            }
            encode_number(step.count_at_value().min(i64::MAX.cast_unsigned()).cast_signed(), &mut bytes);
            next = index + 1;
        }
    }
    let length = (bytes.len() - HEADER_BYTES) as u32;
    bytes[4..8].copy_from_slice(&length.to_be_bytes());
    bytes
}

fn inflate(stream: &[u8]) -> Result<Vec<u8>, HdrError> {
    let most = HEADER_BYTES + COUNTS_MAX * VARINT_BYTES_MAX;
    let mut plain = Vec::new();
    let read = ZlibDecoder::new(stream).take(most as u64 + 1).read_to_end(&mut plain);
    match read {
        Err(_) => Err(HdrError::Compression),
        Ok(bytes) if bytes > most => Err(HdrError::Counts),
        Ok(_) => Ok(plain),
    }
}

fn decode_plain(bytes: &[u8]) -> Result<Histogram<u64>, HdrError> {
    let (header, counts) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(HdrError::Truncated)?;
    let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let wide = |at: usize| u64::from(number(at)) << 32 | u64::from(number(at + 4));
    let (low, high, digits) = (wide(16), wide(24), number(12));
    if number(0) != COOKIE {
        return Err(HdrError::Cookie);
    }
    if number(4) as usize != counts.len() {
        return Err(HdrError::Truncated);
    }
    // An offset or a ratio are of histograms of floating-point values, which these are not.
    if number(8) != 0 || wide(32) != 1.0_f64.to_bits() {
        return Err(HdrError::Bounds);
    }
    let layout = Layout::of(low, high, digits).filter(|layout| layout.counts <= COUNTS_MAX).ok_or(HdrError::Bounds)?;
    let mut histogram = Histogram::new_with_bounds(low, high, digits as u8).map_err(|_| HdrError::Bounds)?;
    let (mut index, mut rest, mut total) = (0_usize, counts, 0_u64);
    while !rest.is_empty() {
        let number = decode_number(&mut rest).ok_or(HdrError::Truncated)?;
        if number < 0 {
            let zeros = usize::try_from(number.unsigned_abs()).map_err(|_| HdrError::Counts)?;
            index = index.checked_add(zeros).ok_or(HdrError::Counts)?;
            continue;
        }
        let count = number.unsigned_abs();
        total = total.checked_add(count).ok_or(HdrError::Counts)?;
        if count > 0 {
            if index >= layout.counts {
                return Err(HdrError::Counts);
            }
            histogram.record_n(layout.value_at(index), count).map_err(|_| HdrError::Counts)?;
        }
        index += 1;
    }
    if index > layout.counts { Err(HdrError::Counts) } else { Ok(histogram) }
}

/// The histogram that was packed into these bytes.
fn unpack(bytes: &[u8]) -> Histogram<u64> {
    decode_plain(bytes).unwrap_or_else(|_| unreachable!("what cannot be read again is not packed"))
}

/// Zig-zag, then seven bits a byte; the ninth byte holds eight.
fn encode_number(number: i64, bytes: &mut Vec<u8>) {
    let mut left = ((number << 1) ^ (number >> 63)).cast_unsigned();
    for _ in 1..VARINT_BYTES_MAX {
        if left < 0x80 {
            break;
        }
        bytes.push(0x80 | (left & 0x7f) as u8);
        left >>= 7;
    }
    bytes.push(left as u8);
}

fn decode_number(rest: &mut &[u8]) -> Option<i64> {
    let (mut value, mut place) = (0_u64, 0);
    loop {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        if place == VARINT_BYTES_MAX - 1 {
            value |= u64::from(byte) << (7 * place);
            break;
        }
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            break;
        }
        place += 1;
    }
    Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
}

mod base64;

#[cfg(test)]
mod tests;
