//! The Link fields of an answer that may go ahead of the next one in a 103 (RFC 8297).
/// Links sent at the most.
pub const LINKS_MAX: usize = 16;
/// Bytes of all together at the most.
pub const BYTES_MAX: usize = 4096;

/// Of the values of Link fields, those link-values that help before the answer is there (`rel` is preload,
/// modulepreload, preconnect or dns-prefetch), each for a Link line of its own, for `Response::early_links`.
pub fn early_links<'a>(_values: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    unimplemented!()
}
