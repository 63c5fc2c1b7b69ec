use super::{COUNTS_MAX, Hdr, HdrError, count_places};
use crate::record::TIME_NS_MAX;
use hdrhistogram::Histogram;
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

/// The numbers 0 to 99,999, once each, as the Java library wrote them (`seq-nums.histz` of the `hdrhistogram` crate).
const JAVA: &str = "HISTFAAAAE54nO3IoRGAMBREwQQQSGawiDSBJp2BoAMapQMQoQD8333iZm45rzmlsqam/zbvT7Pd7egAgHAGIKwRCGsCwipAWBUI68iS9L/6At/YGc4=";

fn of(values: &[u64]) -> Hdr {
    let mut histogram = Hdr::new().unwrap();
    for value in values {
        histogram.record(*value);
    }
    histogram
}

#[test]
fn a_histogram_of_the_java_library_is_read() {
    let read = Hdr::parse(JAVA).unwrap().histogram().into_owned();
    assert_eq!((read.len(), read.min(), read.max()), (100_000, 0, read.highest_equivalent(99_999)));
    let mut same = Histogram::<u64>::new_with_bounds(read.low(), read.high(), read.sigfig()).unwrap();
    (0..100_000).for_each(|value| same.record(value).unwrap());
    assert_eq!(read, same);
}

#[test]
fn what_is_written_has_the_formats_header() {
    let text = of(&[7]).encode();
    assert!(text.starts_with("HISTFAAA"), "{text}");
    let plain = super::encode_plain(&of(&[7]).histogram()).unwrap();
    let mut expected = vec![0x1c, 0x84, 0x93, 0x13, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3];
    expected.extend(1_u64.to_be_bytes());
    expected.extend(TIME_NS_MAX.to_be_bytes());
    expected.extend([0x3f, 0xf0, 0, 0, 0, 0, 0, 0]);
    // Seven counts are 0, and the next is 1.
    expected.extend([0x0d, 0x02]);
    assert_eq!(plain, expected);
    assert_eq!(Hdr::decode(&plain), Ok(of(&[7])));
}

#[test]
fn the_number_of_counts_is_never_underestimated() {
    for (low, high, digits) in [
        (1, TIME_NS_MAX, 3),
        (1, TIME_NS_MAX, 2),
        (1_000, u64::MAX / 4, 3),
        (1, 2, 1),
        (7, 99_999, 4),
        (1, u64::MAX, 5),
    ] {
        let counts = Histogram::<u64>::new_with_bounds(low, high, digits).unwrap().distinct_values();
        let estimate = count_places(low, high, u32::from(digits)).unwrap();
        assert!((counts..=2 * counts).contains(&estimate), "{low} {high} {digits}: {counts} {estimate}");
    }
}

/// Encodes a count, or the negated number of zero counts, in zig-zag encoding with seven bits per byte; the ninth byte
/// holds eight bits.
fn encode_number(number: i64, bytes: &mut Vec<u8>) {
    let mut left = ((number << 1) ^ (number >> 63)).cast_unsigned();
    for _ in 1..9 {
        if left < 0x80 {
            break;
        }
        bytes.push(0x80 | (left & 0x7f) as u8);
        left >>= 7;
    }
    bytes.push(left as u8);
}

/// Returns a plain histogram with this header, and these numbers as its payload.
fn plain(low: u64, high: u64, digits: u32, numbers: &[i64]) -> Vec<u8> {
    let mut payload = Vec::new();
    for number in numbers {
        encode_number(*number, &mut payload);
    }
    let mut bytes = 0x1c84_9313_u32.to_be_bytes().to_vec();
    bytes.extend((payload.len() as u32).to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(digits.to_be_bytes());
    bytes.extend(low.to_be_bytes());
    bytes.extend(high.to_be_bytes());
    bytes.extend(1.0_f64.to_be_bytes());
    bytes.extend(payload);
    bytes
}

#[test]
fn hostile_histograms_are_refused() {
    assert!(Hdr::decode(&plain(1, 1_000_000, 3, &[5, -3, 7])).is_ok());
    for (bytes, error) in [
        (plain(0, 1_000, 3, &[]), HdrError::Bounds),
        (plain(1, 1, 3, &[]), HdrError::Bounds),
        (plain(1, 1_000, 0, &[]), HdrError::Bounds),
        (plain(1, 1_000, 6, &[]), HdrError::Bounds),
        (plain(1, u64::MAX, 5, &[]), HdrError::Bounds),
        (plain(u64::MAX / 2, u64::MAX, 3, &[]), HdrError::Bounds),
        (plain(1, 1_000_000, 3, &[-(1 << 40), 1]), HdrError::Counts),
        (plain(1, 1_000_000, 3, &[i64::MIN, i64::MIN, 1]), HdrError::Counts),
        (plain(1, 1_000_000, 3, &[i64::MAX, i64::MAX, i64::MAX]), HdrError::Counts),
        (plain(1, 2, 1, &vec![1; 10_000]), HdrError::Counts),
    ] {
        assert_eq!(Hdr::decode(&bytes).err(), Some(error));
    }
    let good = plain(1, 1_000_000, 3, &[5]);
    for end in 0..good.len() {
        assert!(Hdr::decode(&good[..end]).is_err());
    }
    for at in [0, 8, 32] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert!(Hdr::decode(&bad).is_err(), "{at}");
    }
}

#[test]
fn a_document_holds_histograms_of_our_bounds_only() {
    let in_document = |histogram: &Hdr| serde_json::from_str::<Hdr>(&format!("\"{}\"", histogram.encode()));
    assert_eq!(in_document(&of(&[5])).unwrap(), of(&[5]));
    assert!(in_document(&Hdr::with_digits(2).unwrap()).is_ok());
    let other = Hdr::of(Histogram::new_with_bounds(1, 2 * TIME_NS_MAX, 3).unwrap());
    assert!(in_document(&other).is_err() && in_document(&Hdr::with_digits(4).unwrap()).is_err());
    assert!(Hdr::parse(&other.encode()).is_ok(), "elsewhere they are welcome");
}

#[test]
fn a_stream_that_unpacks_to_too_much_is_refused() {
    use std::io::Write;
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    let zeros = vec![0; 1 << 20];
    (0..=COUNTS_MAX * 9 / zeros.len() + 1).for_each(|_| encoder.write_all(&zeros).unwrap());
    let stream = encoder.finish().unwrap();
    let mut bytes = 0x1c84_9314_u32.to_be_bytes().to_vec();
    bytes.extend((stream.len() as u32).to_be_bytes());
    bytes.extend(&stream);
    assert_eq!(Hdr::decode(&bytes), Err(HdrError::Counts));
    bytes[10] ^= 0xff;
    assert!(matches!(Hdr::decode(&bytes), Err(HdrError::Compression | HdrError::Counts)));
}

#[test]
fn what_is_packed_is_small_and_goes_on() {
    let mut packed = of(&[]);
    assert!(packed.memory_bytes() > 200_000);
    packed.pack();
    assert!(packed.memory_bytes() < 100 && packed.histogram().is_empty());
    packed.record(5);
    packed.pack();
    let mut sum = of(&[5, 9]);
    sum.merge(&packed).unwrap();
    packed.merge(&of(&[9, 5])).unwrap();
    assert_eq!((&packed, packed.percentiles(0)), (&sum, of(&[5, 5, 9]).percentiles(0)));
    assert!(packed.merge(&Hdr::of(Histogram::new_with_bounds(1, 2 * TIME_NS_MAX, 3).unwrap())).is_ok());
    // Counts too large to be encoded, or to be added up, stay unpacked.
    let mut full = of(&[]);
    for value in [5, 6, 7] {
        full.change(|histogram| histogram.record_n(value, u64::MAX / 2)).unwrap();
    }
    let before = full.clone();
    full.pack();
    assert_eq!(full, before);
}

proptest! {
    #[test]
    fn what_is_packed_is_the_same(values in proptest::collection::vec(any::<u64>(), 0..200), shift in 0_u32..64) {
        let histogram = of(&values.iter().map(|value| value >> shift).collect::<Vec<_>>());
        let mut packed = histogram.clone();
        packed.pack();
        // Allow for the first count, which exists even without values.
        prop_assert!(packed.memory_bytes() <= 41 + 20 * values.len());
        prop_assert_eq!(&packed, &histogram);
        prop_assert_eq!(packed.encode(), histogram.encode());
    }

    #[test]
    fn what_is_written_is_read_again(values in proptest::collection::vec(any::<u64>(), 0..200), shift in 0_u32..64) {
        let histogram = of(&values.iter().map(|value| value >> shift).collect::<Vec<_>>());
        prop_assert_eq!(Hdr::parse(&histogram.encode()), Ok(histogram));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), digits in 0_u32..7, low in 0_u64..9) {
        let _ = Hdr::decode(&bytes);
        let mut framed = plain(low, 1_000_000, digits, &[]);
        framed[4..8].copy_from_slice(&(bytes.len() as u32).to_be_bytes());
        framed.extend(&bytes);
        if let Ok(read) = Hdr::decode(&framed) {
            prop_assert!(read.histogram().distinct_values() <= COUNTS_MAX);
        }
    }
}
