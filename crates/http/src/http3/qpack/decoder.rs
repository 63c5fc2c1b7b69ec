//! Decoder of QPACK field sections, and the dynamic table that the peer's encoder fills (RFC 9204 §3.2, §4.3, §4.5).

use super::table::STATIC_TABLE;
use super::{TABLE_BYTES_MAX, VALUE_PREFIX_BITS};
use crate::compression::{
    DynamicTable, ENTRY_OVERHEAD_BYTES, TextError, append_entry, decode_integer, decode_string, encode_integer,
    skip_string,
};
use crate::framing::Version;
use crate::http2::fields::SectionDecoder;
use crate::http3::error::ConnectionError;
use std::ops::Range;

/// Maximum number of entries in the largest permitted table (RFC 9204 §4.5.1.1).
const ENTRIES_MAX: u64 = (TABLE_BYTES_MAX / ENTRY_OVERHEAD_BYTES) as u64;

/// Maximum compressed size of a string in an instruction, in bytes. A longer string could not be inserted, unless the
/// encoder used Huffman coding although it more than doubles the string.
const STRING_BYTES_MAX: usize = 2 * TABLE_BYTES_MAX;

/// The reason a section could not be decoded. It is a connection error (RFC 9204 §2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecoderError {
    /// The section ends within a field.
    Truncated,
    /// An integer exceeds 62 bits, or the length of a string exceeds 28 bits.
    Integer,
    /// A Huffman-coded string contains EOS, or its padding is invalid.
    Huffman,
    /// An index is beyond the static table or the required insert count, or refers to an evicted entry.
    Index,
    /// The required insert count is invalid (RFC 9204 §4.5.1.1).
    InsertCount,
    /// The base is negative (RFC 9204 §4.5.1.2).
    Base,
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

/// The reason an instruction was not carried out.
enum InstructionError {
    /// The rest of the instruction has not arrived.
    Incomplete,
    Invalid,
}

impl From<TextError> for InstructionError {
    fn from(error: TextError) -> Self {
        match error {
            TextError::Truncated => Self::Incomplete,
            TextError::Integer | TextError::Huffman => Self::Invalid,
        }
    }
}

/// Decoder of the field sections of one connection. Instructions on the encoder stream fill its table.
#[derive(Clone, Debug)]
pub struct Decoder {
    table: DynamicTable,
    /// Number of entries ever inserted.
    inserted: u64,
    /// The start of an instruction that is still arriving.
    pub(super) stash: Vec<u8>,
    /// Reusable buffer for the name and value of an entry.
    scratch: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// Creates a decoder with an empty table of capacity 0 (RFC 9204 §3.2.3).
    pub const fn new() -> Self {
        Self { table: DynamicTable::new(0), inserted: 0, stash: Vec::new(), scratch: Vec::new() }
    }

    /// Returns the number of entries ever inserted.
    pub const fn insert_count(&self) -> u64 {
        self.inserted
    }

    /// Handles received bytes of the encoder stream, and appends an Insert Count Increment to `output`. Calls `admits`
    /// for each instruction; if it returns `false`, the connection must be closed.
    ///
    /// # Errors
    /// [`ConnectionError::EncoderInstruction`] or [`ConnectionError::InstructionFlood`].
    pub fn handle_instructions(
        &mut self,
        input: &[u8],
        mut admits: impl FnMut() -> bool,
        output: &mut Vec<u8>,
    ) -> Result<(), ConnectionError> {
        let before = self.inserted;
        let mut stash = std::mem::take(&mut self.stash);
        let mut rest = input;
        if !stash.is_empty() {
            stash.extend_from_slice(input);
            rest = &stash;
        }
        while !rest.is_empty() {
            let mut after = rest;
            match self.handle_instruction(&mut after) {
                Ok(()) if admits() => rest = after,
                Ok(()) => return Err(ConnectionError::InstructionFlood),
                Err(InstructionError::Incomplete) => break,
                Err(InstructionError::Invalid) => return Err(ConnectionError::EncoderInstruction),
            }
        }
        if stash.is_empty() {
            self.stash.extend_from_slice(rest);
        } else {
            let used = stash.len() - rest.len();
            stash.drain(..used);
            self.stash = stash;
        }
        if self.inserted > before {
            encode_integer(self.inserted - before, 6, 0, output);
        }
        Ok(())
    }

    /// Carries out the instruction at the start of `input` and removes it (RFC 9204 §4.3).
    fn handle_instruction(&mut self, input: &mut &[u8]) -> Result<(), InstructionError> {
        let first = input.first().copied().ok_or(InstructionError::Incomplete)?;
        let mut name = std::mem::take(&mut self.scratch);
        name.clear();
        let done = match first {
            0x80.. => self.insert_with_reference(first & 0x40 != 0, input, &mut name),
            0x40.. => self.insert_literal(input, &mut name),
            0x20.. => self.set_capacity(input),
            _ => self.duplicate(input, &mut name),
        };
        self.scratch = name;
        done
    }

    fn insert_with_reference(
        &mut self,
        is_static: bool,
        input: &mut &[u8],
        scratch: &mut Vec<u8>,
    ) -> Result<(), InstructionError> {
        let index = decode_integer(input, 6, u32::MAX)?;
        skip_string(&mut &**input, VALUE_PREFIX_BITS, STRING_BYTES_MAX)?;
        let name = if is_static {
            static_entry(index).map(|(name, _)| name)
        } else {
            self.newest(index).map(|(name, _)| name)
        };
        scratch.extend_from_slice(name.ok_or(InstructionError::Invalid)?);
        self.insert_named(input, scratch)
    }

    fn insert_literal(&mut self, input: &mut &[u8], scratch: &mut Vec<u8>) -> Result<(), InstructionError> {
        let mut ahead = *input;
        skip_string(&mut ahead, 5, STRING_BYTES_MAX)?;
        skip_string(&mut ahead, VALUE_PREFIX_BITS, STRING_BYTES_MAX)?;
        decode_string(input, 5, scratch)?;
        self.insert_named(input, scratch)
    }

    /// Inserts an entry with the name in `scratch` and the value at the start of `input`, which is complete.
    fn insert_named(&mut self, input: &mut &[u8], scratch: &mut Vec<u8>) -> Result<(), InstructionError> {
        let name_bytes = scratch.len();
        decode_string(input, VALUE_PREFIX_BITS, scratch)?;
        self.insert(scratch, name_bytes)
    }

    /// Inserts the entry whose name and value are in `text`. An entry larger than the table is an error (RFC 9204
    /// §3.2.2).
    fn insert(&mut self, text: &[u8], name_bytes: usize) -> Result<(), InstructionError> {
        if text.len() + ENTRY_OVERHEAD_BYTES > self.table.size_bytes_max() {
            return Err(InstructionError::Invalid);
        }
        let (name, value) = text.split_at(name_bytes);
        self.table.insert(name, value);
        self.inserted += 1;
        Ok(())
    }

    fn set_capacity(&mut self, input: &mut &[u8]) -> Result<(), InstructionError> {
        let capacity = decode_integer(input, 5, u32::MAX)?;
        if capacity > TABLE_BYTES_MAX as u64 {
            return Err(InstructionError::Invalid);
        }
        self.table.resize(capacity as usize);
        Ok(())
    }

    fn duplicate(&mut self, input: &mut &[u8], scratch: &mut Vec<u8>) -> Result<(), InstructionError> {
        let index = decode_integer(input, 5, u32::MAX)?;
        let (name, value) = self.newest(index).ok_or(InstructionError::Invalid)?;
        let name_bytes = name.len();
        scratch.extend_from_slice(name);
        scratch.extend_from_slice(value);
        self.insert(scratch, name_bytes)
    }

    /// Returns the entry at `index`, counted from the newest entry.
    fn newest(&self, index: u64) -> Option<(&[u8], &[u8])> {
        self.table.get(usize::try_from(index).ok()?)
    }

    /// Returns the number of insertions that must have arrived before the section `block` can be decoded (RFC 9204
    /// §4.5.1.1).
    ///
    /// # Errors
    /// The section does not begin with a valid required insert count.
    pub fn required_insert_count(&self, block: &[u8]) -> Result<u64, DecoderError> {
        self.take_insert_count(&mut &*block)
    }

    fn take_insert_count(&self, input: &mut &[u8]) -> Result<u64, DecoderError> {
        let encoded = decode_integer(input, 8, u32::MAX)?;
        if encoded == 0 {
            return Ok(0);
        }
        let full_range = 2 * ENTRIES_MAX;
        if encoded > full_range {
            return Err(DecoderError::InsertCount);
        }
        let value_max = self.inserted + ENTRIES_MAX;
        let mut required = value_max / full_range * full_range + encoded - 1;
        if required > value_max {
            required = required.checked_sub(full_range).ok_or(DecoderError::InsertCount)?;
        }
        if required == 0 { Err(DecoderError::InsertCount) } else { Ok(required) }
    }

    /// Parses the prefix of a section: the required insert count and the base (RFC 9204 §4.5.1).
    fn take_prefix(&self, input: &mut &[u8]) -> Result<References<'_>, DecoderError> {
        let required = self.take_insert_count(input)?;
        let is_negative = input.first().is_some_and(|first| first & 0x80 != 0);
        let delta = decode_integer(input, 7, u32::MAX)?;
        let base = if is_negative {
            required.checked_sub(delta).and_then(|base| base.checked_sub(1))
        } else {
            required.checked_add(delta)
        };
        if required > self.inserted {
            // The caller waits for the insertions before it decodes a section.
            return Err(DecoderError::InsertCount);
        }
        Ok(References { decoder: self, required, base: base.ok_or(DecoderError::Base)? })
    }

    /// Decodes a complete section, for which enough entries must have been inserted. For each field, calls `add` with
    /// the scratch buffer and the ranges of the name and the value in it. `add` may truncate the buffer to drop the
    /// field.
    ///
    /// The caller must limit the size of `block`; the buffer grows by at most its decoded size.
    ///
    /// # Errors
    /// The section is invalid.
    pub fn decode(
        &self,
        block: &[u8],
        scratch: &mut Vec<u8>,
        mut add: impl FnMut(&mut Vec<u8>, Range<usize>, Range<usize>),
    ) -> Result<(), DecoderError> {
        let mut input = block;
        let references = self.take_prefix(&mut input)?;
        while let Some(&first) = input.first() {
            let entry = match first {
                0x80.. => {
                    let index = decode_integer(&mut input, 6, u32::MAX)?;
                    Some(references.entry(first & 0x40 != 0, index)?)
                }
                0x10..0x20 => Some(references.after_base(decode_integer(&mut input, 4, u32::MAX)?)?),
                _ => None,
            };
            if let Some(entry) = entry {
                let (name, value) = append_entry(scratch, entry);
                add(scratch, name, value);
                continue;
            }
            let start = scratch.len();
            match first {
                0x40.. => {
                    let index = decode_integer(&mut input, 4, u32::MAX)?;
                    let (name, _) = references.entry(first & 0x10 != 0, index)?;
                    scratch.extend_from_slice(name);
                }
                0x20.. => decode_string(&mut input, 3, scratch)?,
                _ => {
                    let (name, _) = references.after_base(decode_integer(&mut input, 3, u32::MAX)?)?;
                    scratch.extend_from_slice(name);
                }
            }
            let name_end = scratch.len();
            decode_string(&mut input, VALUE_PREFIX_BITS, scratch)?;
            let end = scratch.len();
            add(scratch, start..name_end, name_end..end);
        }
        Ok(())
    }
}

impl SectionDecoder for Decoder {
    type Error = DecoderError;
    const VERSION: Version = Version::Http3;

    fn decode_section(
        &mut self,
        block: &[u8],
        scratch: &mut Vec<u8>,
        add: impl FnMut(&mut Vec<u8>, Range<usize>, Range<usize>),
    ) -> Result<(), DecoderError> {
        self.decode(block, scratch, add)
    }
}

/// Resolves the references of one section to table entries (RFC 9204 §3.2.4).
struct References<'a> {
    decoder: &'a Decoder,
    required: u64,
    base: u64,
}

impl<'a> References<'a> {
    /// Returns an entry of the static table, or the dynamic entry at a relative index (RFC 9204 §3.2.5).
    fn entry(&self, is_static: bool, index: u64) -> Result<(&'a [u8], &'a [u8]), DecoderError> {
        if is_static {
            return static_entry(index).ok_or(DecoderError::Index);
        }
        self.absolute(self.base.checked_sub(index).and_then(|after| after.checked_sub(1)))
    }

    /// Returns the dynamic entry at a post-base index (RFC 9204 §3.2.6).
    fn after_base(&self, index: u64) -> Result<(&'a [u8], &'a [u8]), DecoderError> {
        self.absolute(self.base.checked_add(index))
    }

    fn absolute(&self, index: Option<u64>) -> Result<(&'a [u8], &'a [u8]), DecoderError> {
        let index = index.filter(|&index| index < self.required).ok_or(DecoderError::Index)?;
        self.decoder.newest(self.decoder.inserted - 1 - index).ok_or(DecoderError::Index)
    }
}

fn static_entry(index: u64) -> Option<(&'static [u8], &'static [u8])> {
    let (name, value) = STATIC_TABLE.get(usize::try_from(index).ok()?)?;
    Some((name.as_bytes(), value.as_bytes()))
}
