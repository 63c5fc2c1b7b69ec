//! Text to a tree of settings.
//!
//! The tree is built from our own tokens, in one pass, with a bounded depth and without recursion, and every mistake
//! has a message of its own. What a text or a number means in the end is left to the `kdl` crate, one value at a time:
//! its document parser recurses, and its time doubles with each level of `/-{` (kdl 6.7.1: 16 levels, 96 bytes, take
//! seconds), which a file of somebody else's must not be able to use. The tests hold our trees against its documents.

mod grammar;
mod node;
mod scalar;
#[cfg(test)]
mod tests;
mod token;

pub use grammar::parse_document;
pub use node::{Annotation, Node, Property, Scalar, Value};
pub(crate) use token::{Token, TokenKind, scan};

/// Levels of blocks. The language itself needs five; the rest is for routes within routes.
pub(crate) const DEPTH_MAX: usize = 32;

/// Bytes of one text. The KDL of a JSON twin is longer than the twin, and still bounded.
const TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes of one file.
pub const FILE_BYTES_MAX: usize = 1024 * 1024;
