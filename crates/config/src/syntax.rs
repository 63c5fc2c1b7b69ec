//! Parses KDL into a tree of settings.
//!
//! The tree is built from flatout's tokens in one pass, with limited depth and without recursion, and every common
//! mistake has a message. Strings and numbers are decoded by the `kdl` crate. That crate's document parser is not used
//! because it recurses, and because its time doubles with each level of `/-{` (kdl 6.7.1: 16 levels, 96 bytes, take
//! seconds), which an untrusted file could exploit. The tests compare the trees with that parser's documents.

mod grammar;
mod node;
mod scalar;
#[cfg(test)]
mod tests;
mod token;

pub use grammar::parse_document;
pub use node::{Annotation, Node, Property, Scalar, Value};
pub(crate) use token::{Token, TokenKind, scan};

/// Maximum depth of nested blocks. The settings need five levels; the rest is for nested routes.
pub(crate) const DEPTH_MAX: usize = 32;

/// Maximum size of one document, in bytes. It is larger than that of a file, because the KDL form of a JSON file is
/// longer than the file.
const TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Maximum size of one file, in bytes.
pub const FILE_BYTES_MAX: usize = 1024 * 1024;
