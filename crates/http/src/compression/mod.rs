//! Integers, Huffman coding and the dynamic table shared by both field compressions: HPACK (RFC 7541) for HTTP/2 and
//! QPACK (RFC 9204) for HTTP/3.
//!
//! | file | contents |
//! |---|---|
//! | `text` | integers and strings |
//! | `huffman` | Huffman coding of strings |
//! | `table` | dynamic table of a decoder |

mod huffman;
mod table;
mod text;

pub(crate) use table::{DynamicTable, ENTRY_OVERHEAD_BYTES};
pub(crate) use text::{
    TextError, append_entry, decode_integer, decode_string, encode_integer, encode_string, skip_string,
};
