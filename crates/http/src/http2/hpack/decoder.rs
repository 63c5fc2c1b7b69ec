//! Decoder of field blocks (RFC 7541 §3, §6).

use super::TABLE_BYTES;
use super::huffman;
use super::table::{DynamicTable, STATIC_ENTRIES, STATIC_TABLE};
use std::ops::Range;

/// Maximum size updates at the start of a block: the smallest size since the last block, and the final one (RFC 7541
/// §4.2). An update is one byte and counts towards no limit on fields, so their number needs one.
const RESIZES_MAX: u8 = 2;

/// Why a block cannot be decoded. The decoder's table is unusable afterwards: a connection error (RFC 9113 §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecoderError {
    /// The block ends within a field.
    Truncated,
    /// An integer exceeds 28 bits, or has more bytes than it needs.
    Integer,
    /// An index beyond both tables, or 0.
    Index,
    /// A Huffman-coded string contains EOS, or its padding is invalid.
    Huffman,
    /// A size update exceeds the announced size, or follows a field.
    Resize,
    /// More size updates at the start of a block than a table can need.
    ResizesTooMany,
}

/// Decodes the field blocks of one connection in their order.
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
    /// Decoder with a table of [`TABLE_BYTES`], the size that peers may use without a setting.
    pub const fn new() -> Self {
        Self { table: DynamicTable::new(TABLE_BYTES) }
    }

    /// Decodes a complete block. Calls `add` with the scratch buffer and the positions of a name and a value in it for
    /// each field; `add` may truncate the buffer to drop the field.
    ///
    /// The caller bounds the size of `block`; the buffer grows by at most its decoded size.
    pub fn decode(
        &mut self,
        block: &[u8],
        scratch: &mut Vec<u8>,
        mut add: impl FnMut(&mut Vec<u8>, Range<usize>, Range<usize>),
    ) -> Result<(), DecoderError> {
        let mut input = block;
        let (mut resizes, mut has_field) = (0, false);
        while let Some(&first) = input.first() {
            let start = scratch.len();
            if first & 0xe0 == 0x20 {
                let size = decode_integer(&mut input, 5)?;
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
                let (name, value) = self.entry(decode_integer(&mut input, 7)?)?;
                scratch.extend_from_slice(name);
                let name_end = scratch.len();
                scratch.extend_from_slice(value);
                let end = scratch.len();
                add(scratch, start..name_end, name_end..end);
                continue;
            }
            let is_inserted = first & 0x40 != 0;
            match decode_integer(&mut input, if is_inserted { 6 } else { 4 })? {
                0 => decode_string(&mut input, scratch)?,
                index => scratch.extend_from_slice(self.entry(index)?.0),
            }
            let name_end = scratch.len();
            decode_string(&mut input, scratch)?;
            let end = scratch.len();
            if is_inserted {
                self.table.insert(&scratch[start..name_end], &scratch[name_end..end]);
            }
            add(scratch, start..name_end, name_end..end);
        }
        Ok(())
    }

    /// The entry at `index` of both tables (RFC 7541 §2.3.3).
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

/// Decodes an integer with a prefix of `prefix_bits` in its first byte (RFC 7541 §5.1), of at most 28 bits beyond the
/// prefix.
fn decode_integer(input: &mut &[u8], prefix_bits: u32) -> Result<usize, DecoderError> {
    let (&first, mut rest) = input.split_first().ok_or(DecoderError::Truncated)?;
    let mask = (1_usize << prefix_bits) - 1;
    let mut value = usize::from(first) & mask;
    if value == mask {
        for shift in [0, 7, 14, 21, 28] {
            let (&byte, after) = rest.split_first().ok_or(DecoderError::Truncated)?;
            if shift == 28 {
                return Err(DecoderError::Integer);
            }
            rest = after;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *input = rest;
    Ok(value)
}

/// Decodes a string (RFC 7541 §5.2) and appends it to `scratch`.
fn decode_string(input: &mut &[u8], scratch: &mut Vec<u8>) -> Result<(), DecoderError> {
    let is_coded = input.first().is_some_and(|first| first & 0x80 != 0);
    let bytes = decode_integer(input, 7)?;
    let (text, rest) = input.split_at_checked(bytes).ok_or(DecoderError::Truncated)?;
    *input = rest;
    if is_coded {
        huffman::decode(text, scratch).map_err(|()| DecoderError::Huffman)
    } else {
        scratch.extend_from_slice(text);
        Ok(())
    }
}
