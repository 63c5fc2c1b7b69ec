//! Field compression for HTTP/2 (RFC 7541), bounded on both sides.
//!
//! | file | contents |
//! |---|---|
//! | `huffman` | the code of strings, shared with QPACK |
//! | `table` | static table, and the decoder's dynamic table |
//! | `decoder` | field blocks to lines |
//! | `encoder` | lines to field blocks, without a dynamic table |
//!
//! The encoder never inserts into the peer's table: an encoded head is valid on every connection, so a cached response
//! is encoded once.

mod decoder;
mod encoder;
mod huffman;
mod table;

pub use decoder::{Decoder, DecoderError};
pub use encoder::{encode_field, encode_status, encode_table_size};

/// Size of a dynamic table before any setting, in bytes (RFC 9113 §6.5.2).
pub const TABLE_BYTES: usize = 4096;

#[cfg(test)]
mod tests;
