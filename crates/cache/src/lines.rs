//! Field lines as bytes: which are kept, and how they are read again.

use flatout_http::head::Fields;

/// Calls `read` with the fields in `lines`, each `Name: value` and CR LF, as in `Stored::lines`. `None` when they break
/// the grammar.
pub fn with_fields<T>(lines: &[u8], read: impl FnOnce(&Fields<'_>) -> T) -> Option<T> {
    let _ = (lines, read);
    unimplemented!()
}
