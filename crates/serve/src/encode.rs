//! Encodes complete contents. This takes too long for an event loop.

use brotli::enc::BrotliEncoderParams;
use flatout_config::model::Compression;
use flatout_http::encoding::ContentCoding;
use std::io::{self, Write};

/// Minimum size of a content that is encoded, in bytes. Below it, the savings do not justify the additional field line
/// and the work of the client.
pub(crate) const ENCODE_BYTES_MIN: u64 = 512;

/// Maximum size of a content that is encoded, in bytes. Larger files would take seconds and fill the cache; operators
/// can precompress them.
pub(crate) const ENCODE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Revision of the encoders below. It must increase whenever their output changes.
const REVISION: u32 = 1;

/// Returns the part of an entity tag that identifies the encoder, so that two different contents never have the same
/// tag.
pub(crate) fn tag(Compression { coding, level }: Compression) -> String {
    format!("{}{level}-{REVISION}", coding.name())
}

/// Encodes `content` in the coding and at the level of `compression`. Returns `None` if the result is not at least 5 %
/// smaller.
pub(crate) fn encode(compression: Compression, content: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let level = compression.level;
    let encoded = match compression.coding {
        ContentCoding::Identity => return Ok(None),
        ContentCoding::Brotli => encode_brotli(content, level)?,
        ContentCoding::Zstd => zstd::bulk::compress(content, level.into())?,
        ContentCoding::Gzip => encode_gzip(content, level)?,
    };
    Ok((encoded.len() <= content.len() - content.len() / 20).then_some(encoded))
}

fn encode_brotli(mut content: &[u8], level: u8) -> io::Result<Vec<u8>> {
    let parameters = BrotliEncoderParams {
        quality: level.into(),
        // The window is large enough for the content if possible. Every decoder must accept 10 to 24 bits (RFC 7932
        // §9.1).
        lgwin: content.len().max(1024).ilog2().saturating_add(1).clamp(10, 22).cast_signed(),
        size_hint: content.len(),
        ..BrotliEncoderParams::default()
    };
    let mut encoded = Vec::with_capacity(content.len() / 4);
    brotli::BrotliCompress(&mut content, &mut encoded, &parameters)?;
    Ok(encoded)
}

fn encode_gzip(content: &[u8], level: u8) -> io::Result<Vec<u8>> {
    let buffer = Vec::with_capacity(content.len() / 4);
    let mut encoder = flate2::write::GzEncoder::new(buffer, flate2::Compression::new(level.into()));
    encoder.write_all(content)?;
    encoder.finish()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{encode, tag};
    use flatout_config::model::Compression;
    use flatout_http::encoding::ContentCoding;
    use std::io::Read;

    /// Decodes `encoded` as a client does.
    pub(crate) fn decode(coding: ContentCoding, encoded: &[u8]) -> Vec<u8> {
        let mut content = Vec::new();
        match coding {
            ContentCoding::Identity => content.extend_from_slice(encoded),
            ContentCoding::Brotli => {
                brotli::Decompressor::new(encoded, 4096).read_to_end(&mut content).unwrap();
            }
            ContentCoding::Zstd => content = zstd::stream::decode_all(encoded).unwrap(),
            ContentCoding::Gzip => {
                flate2::read::GzDecoder::new(encoded).read_to_end(&mut content).unwrap();
            }
        }
        content
    }

    #[test]
    fn what_is_encoded_comes_back_smaller_or_not_at_all() {
        let text: Vec<u8> = (0..20_000_u32).flat_map(|number| number.to_string().into_bytes()).collect();
        let mut noise = vec![0_u8; 5000];
        let mut state = 1_u32;
        for byte in &mut noise {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (state >> 24) as u8;
        }
        for (coding, level) in [(ContentCoding::Brotli, 6), (ContentCoding::Zstd, 9), (ContentCoding::Gzip, 7)] {
            let compression = Compression { coding, level };
            let encoded = encode(compression, &text).unwrap().unwrap();
            assert!(encoded.len() < text.len() / 2, "{coding:?}: {}", encoded.len());
            assert_eq!(decode(coding, &encoded), text, "{coding:?}");
            assert_eq!(encode(compression, &text).unwrap().unwrap(), encoded, "the same every time");
            assert_eq!(encode(compression, &noise).unwrap(), None, "{coding:?}");
            assert_eq!(encode(compression, b"").unwrap_or(None).map(|bytes| bytes.len()), None);
            let fast = Compression { coding, level: 1 };
            assert!(encode(fast, &text).unwrap().unwrap().len() > encoded.len(), "{coding:?}");
            assert_ne!(tag(fast), tag(compression));
        }
        assert_eq!(encode(Compression { coding: ContentCoding::Identity, level: 1 }, &text).unwrap(), None);
    }
}
