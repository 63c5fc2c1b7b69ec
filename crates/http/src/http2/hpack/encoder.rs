//! Encoder of field blocks without a dynamic table (RFC 7541 §6.1, §6.2.2).

use super::huffman;
use super::table::STATIC_TABLE;
use crate::status::digits;

/// Appends a field that neither table of the peer remembers. `name` must be in lower case.
pub fn encode_field(name: &[u8], value: &[u8], output: &mut Vec<u8>) {
    match find_static(name, value) {
        (index @ 1.., true) => encode_integer(index, 7, 0x80, output),
        (index, _) => {
            encode_integer(index, 4, 0, output);
            if index == 0 {
                encode_string(name, output);
            }
            encode_string(value, output);
        }
    }
}

/// Appends the field `:status`, which has three digits.
pub fn encode_status(status: u16, output: &mut Vec<u8>) {
    encode_field(b":status", &digits(status), output);
}

/// Appends an update of the dynamic table's size, which precedes the first field of a block.
pub fn encode_table_size(size: usize, output: &mut Vec<u8>) {
    encode_integer(size, 5, 0x20, output);
}

/// Index of the static entry that equals the field, or has its name; 0 if there is none. The second value is true if
/// the whole field is equal.
fn find_static(name: &[u8], value: &[u8]) -> (usize, bool) {
    let mut found = (0, false);
    for (at, (other, text)) in STATIC_TABLE.iter().enumerate() {
        if other.as_bytes() != name {
            continue;
        }
        if text.as_bytes() == value {
            return (at + 1, true);
        }
        if found.0 == 0 {
            found.0 = at + 1;
        }
    }
    found
}

/// Appends an integer with a prefix of `prefix_bits`, below the bits of `first` (RFC 7541 §5.1).
fn encode_integer(value: usize, prefix_bits: u32, first: u8, output: &mut Vec<u8>) {
    let mask = (1_usize << prefix_bits) - 1;
    if value < mask {
        output.push(first | value as u8);
        return;
    }
    output.push(first | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        output.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    output.push(rest as u8);
}

/// Appends a string, coded if that is shorter (RFC 7541 §5.2).
fn encode_string(text: &[u8], output: &mut Vec<u8>) {
    let coded_bytes = huffman::coded_bytes(text);
    if coded_bytes < text.len() {
        encode_integer(coded_bytes, 7, 0x80, output);
        huffman::encode(text, output);
    } else {
        encode_integer(text.len(), 7, 0, output);
        output.extend_from_slice(text);
    }
}
