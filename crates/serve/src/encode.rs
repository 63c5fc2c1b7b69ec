//! Encoding of whole contents, off the event loop.

use brotli::enc::BrotliEncoderParams;
use flatout_http::encoding::ContentCoding;
use std::io::{self, Write};

/// Size below which encoding is not worth the field line and the client's work, in bytes.
pub(crate) const ENCODE_BYTES_MIN: u64 = 512;

/// Upper bound of encoded contents, in bytes. More takes seconds and would fill the cache: precompress such files.
pub(crate) const ENCODE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Revision of the settings below, which is part of the entity tags: one tag never identifies two contents.
pub(crate) const REVISION: u32 = 1;

/// Levels that take a few milliseconds for a page. Higher ones save a few per cent, once per version, but delay the
/// first visitors.
const BROTLI_QUALITY: i32 = 6;
const ZSTD_LEVEL: i32 = 9;
const GZIP_LEVEL: u32 = 7;

/// `content` in `coding`, or `None` if that is not at least 5 % smaller.
pub(crate) fn encode(coding: ContentCoding, content: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let encoded = match coding {
        ContentCoding::Identity => return Ok(None),
        ContentCoding::Brotli => encode_brotli(content)?,
        ContentCoding::Zstd => zstd::bulk::compress(content, ZSTD_LEVEL)?,
        ContentCoding::Gzip => encode_gzip(content)?,
    };
    Ok((encoded.len() <= content.len() - content.len() / 20).then_some(encoded))
}

fn encode_brotli(mut content: &[u8]) -> io::Result<Vec<u8>> {
    let parameters = BrotliEncoderParams {
        quality: BROTLI_QUALITY,
        // A window that holds the content, within the range that every decoder must accept (RFC 7932 §9.1: 10 to 24).
        lgwin: content.len().max(1024).ilog2().saturating_add(1).clamp(10, 22).cast_signed(),
        size_hint: content.len(),
        ..BrotliEncoderParams::default()
    };
    let mut encoded = Vec::with_capacity(content.len() / 4);
    brotli::BrotliCompress(&mut content, &mut encoded, &parameters)?;
    Ok(encoded)
}

fn encode_gzip(content: &[u8]) -> io::Result<Vec<u8>> {
    let buffer = Vec::with_capacity(content.len() / 4);
    let mut encoder = flate2::write::GzEncoder::new(buffer, flate2::Compression::new(GZIP_LEVEL));
    encoder.write_all(content)?;
    encoder.finish()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::encode;
    use flatout_http::encoding::ContentCoding;
    use std::io::Read;

    /// Decodes as a client does.
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
        for coding in [ContentCoding::Brotli, ContentCoding::Zstd, ContentCoding::Gzip] {
            let encoded = encode(coding, &text).unwrap().unwrap();
            assert!(encoded.len() < text.len() / 2, "{coding:?}: {}", encoded.len());
            assert_eq!(decode(coding, &encoded), text, "{coding:?}");
            assert_eq!(encode(coding, &text).unwrap().unwrap(), encoded, "the same every time");
            assert_eq!(encode(coding, &noise).unwrap(), None, "{coding:?}");
            assert_eq!(encode(coding, b"").unwrap_or(None).map(|bytes| bytes.len()), None);
        }
        assert_eq!(encode(ContentCoding::Identity, &text).unwrap(), None);
    }
}
