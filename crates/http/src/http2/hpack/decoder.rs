//! Decoder of HPACK field blocks (RFC 7541 §3, §6).

use super::table::{STATIC_ENTRIES, STATIC_TABLE};
use super::{STRING_PREFIX_BITS, TABLE_BYTES};
use crate::compression::{DynamicTable, TextError, append_entry, decode_integer, decode_string};
use crate::framing::Version;
use crate::http2::fields::SectionDecoder;
use std::ops::Range;

/// Maximum table size updates at the start of a block: one to the smallest size since the last block, and one to the
/// final size (RFC 7541 §4.2). Updates count towards no limit on fields, so their number needs a separate limit.
const RESIZES_MAX: u8 = 2;

/// Maximum number of seven-bit groups in an integer after its prefix: 28 bits.
const INTEGER_GROUPS_MAX: u32 = 4;

/// The reason a block could not be decoded. It is a connection error, because the table is unusable afterwards (RFC
/// 9113 §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecoderError {
    /// The block ends within a field.
    Truncated,
    /// An integer exceeds 28 bits or is encoded in more bytes than that needs.
    Integer,
    /// An index is 0 or beyond both tables.
    Index,
    /// A Huffman-coded string contains EOS, or its padding is invalid.
    Huffman,
    /// A size update exceeds the announced size or follows a field.
    Resize,
    /// There are more size updates at the start of a block than permitted (RFC 7541 §4.2).
    ResizesTooMany,
}

/// Decoder of the field blocks of one connection, in the order received.
#[derive(Clone, Debug)]
pub struct Decoder {
    table: DynamicTable,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// Creates a decoder with a table of [`TABLE_BYTES`], the size that peers may use unless a setting changes it.
    pub const fn new() -> Self {
        Self { table: DynamicTable::new(TABLE_BYTES) }
    }

    /// Decodes a complete block. For each field, calls `add` with the scratch buffer and the ranges of the name and the
    /// value in it. `add` may truncate the buffer to drop the field.
    ///
    /// The caller must limit the size of `block`; the buffer grows by at most its decoded size.
    pub fn decode(
        &mut self,
        block: &[u8],
        scratch: &mut Vec<u8>,
        mut add: impl FnMut(&mut Vec<u8>, Range<usize>, Range<usize>),
    ) -> Result<(), DecoderError> {
        let mut input = block;
        let (mut resizes, mut has_field) = (0, false);
        while let Some(&first) = input.first() {
            if first & 0xe0 == 0x20 {
                let size = decode_small_integer(&mut input, 5)?;
                resizes += 1;
                if resizes > RESIZES_MAX {
                    return Err(DecoderError::ResizesTooMany);
                }
                if has_field || size > TABLE_BYTES {
                    return Err(DecoderError::Resize);
                }
                self.table.resize(size);
                continue;
            }
            has_field = true;
            if first & 0x80 != 0 {
                let (name, value) = append_entry(scratch, self.entry(decode_small_integer(&mut input, 7)?)?);
                add(scratch, name, value);
                continue;
            }
            let (start, is_inserted) = (scratch.len(), first & 0x40 != 0);
            match decode_small_integer(&mut input, if is_inserted { 6 } else { 4 })? {
                0 => decode_string(&mut input, STRING_PREFIX_BITS, scratch)?,
                index => scratch.extend_from_slice(self.entry(index)?.0),
            }
            let name_end = scratch.len();
            decode_string(&mut input, STRING_PREFIX_BITS, scratch)?;
            let end = scratch.len();
            if is_inserted {
                self.table.insert(&scratch[start..name_end], &scratch[name_end..end]);
            }
            add(scratch, start..name_end, name_end..end);
        }
        Ok(())
    }

    /// Returns the entry at `index` in the address space of both tables (RFC 7541 §2.3.3).
    fn entry(&self, index: usize) -> Result<(&[u8], &[u8]), DecoderError> {
        match index.checked_sub(1) {
            None => Err(DecoderError::Index),
            Some(at) if at < STATIC_ENTRIES => {
                let (name, value) = STATIC_TABLE[at];
                Ok((name.as_bytes(), value.as_bytes()))
            }
            Some(at) => self.table.get(at - STATIC_ENTRIES).ok_or(DecoderError::Index),
        }
    }
}

impl SectionDecoder for Decoder {
    type Error = DecoderError;
    const VERSION: Version = Version::Http2;

    fn decode_section(
        &mut self,
        block: &[u8],
        scratch: &mut Vec<u8>,
        add: impl FnMut(&mut Vec<u8>, Range<usize>, Range<usize>),
    ) -> Result<(), DecoderError> {
        self.decode(block, scratch, add)
    }
}

/// Decodes an integer with a prefix of `prefix_bits` in its first byte (RFC 7541 §5.1).
fn decode_small_integer(input: &mut &[u8], prefix_bits: u32) -> Result<usize, DecoderError> {
    Ok(decode_integer(input, prefix_bits, INTEGER_GROUPS_MAX)? as usize)
}

impl From<TextError> for DecoderError {
    fn from(error: TextError) -> Self {
        match error {
            TextError::Truncated => Self::Truncated,
            TextError::Integer => Self::Integer,
            TextError::Huffman => Self::Huffman,
        }
    }
}
