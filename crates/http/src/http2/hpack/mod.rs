//! HPACK, the field compression of HTTP/2 (RFC 7541), with bounded memory on both sides.
//!
//! | file | contents |
//! |---|---|
//! | `table` | static table |
//! | `decoder` | decoder of field blocks |
//! | `encoder` | encoder of field blocks, without a dynamic table |
//!
//! The encoder never inserts into the peer's table. An encoded head is therefore valid on every connection, and a
//! cached response is encoded only once.

mod decoder;
mod encoder;
mod table;

pub use decoder::{Decoder, DecoderError};
pub use encoder::{encode_field, encode_status, encode_table_size};

/// Size of a dynamic table before any setting, in bytes (RFC 9113 §6.5.2).
pub const TABLE_BYTES: usize = 4096;

/// Length of the prefix of a string's length, in bits.
const STRING_PREFIX_BITS: u32 = 7;

#[cfg(test)]
mod tests;
