//! [`Stored`] as bytes, for the disk, and back.

use crate::stored::Stored;

/// The first byte of what [`encode`] writes.
pub const VERSION: u8 = 1;

/// Why bytes are no stored metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Of another version.
    Version,
    /// A value that [`encode`] never writes.
    Value,
    /// More than the limits allow.
    TooLarge,
}

/// Appends `stored` to `output`. The format is of one machine's byte order for none: little-endian throughout.
pub fn encode(stored: &Stored, output: &mut Vec<u8>) {
    let _ = (stored, output);
    unimplemented!()
}

/// Reads what [`encode`] wrote from the beginning of `bytes`: the value and how many bytes it took. `Ok(None)`: there
/// are more to come.
pub fn decode(bytes: &[u8]) -> Result<Option<(Stored, usize)>, DecodeError> {
    let _ = bytes;
    unimplemented!()
}
