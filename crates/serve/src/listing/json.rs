//! The JSON document of a listing. U+FFFD replaces the bytes of a name that are not UTF-8, but `href` is exact.

use super::Listing;
use super::entry::EntryKind;
use flatout_http::date::format_rfc3339;
use serde_json::Value;
use std::fmt::Write;

/// Returns an object in the `flatout-listing/1` schema on a single line. The `size_bytes` of a folder is null.
/// `truncated` is the number of entries that are not listed, or a lower bound if `truncated_exact` is false.
pub(super) fn text(listing: &Listing<'_>) -> String {
    let mut text = String::with_capacity(200 + listing.entries.len() * 150);
    text.push_str(r#"{"schema":"flatout-listing/1","path":"#);
    append_string(&mut text, listing.shown_path);
    text.push_str(r#","entries":["#);
    for (at, entry) in listing.entries.iter().enumerate() {
        text.push_str(if at == 0 { r#"{"name":"# } else { r#",{"name":"# });
        append_string(&mut text, &entry.name);
        let _ = match entry.kind {
            EntryKind::Folder => write!(text, r#","type":"folder","size_bytes":null"#),
            EntryKind::File { size_bytes } => write!(text, r#","type":"file","size_bytes":{size_bytes}"#),
        };
        // Neither the time nor the address contains a character that needs escaping in JSON.
        let (modified, href) = (format_rfc3339(entry.modified_s), entry.href());
        let _ = write!(text, r#","modified":"{modified}","href":"{href}"}}"#);
    }
    let (left_out, exact) = (listing.left_out, listing.read_whole);
    let _ = writeln!(text, r#"],"truncated":{left_out},"truncated_exact":{exact}}}"#);
    text
}

fn append_string(text: &mut String, bytes: &[u8]) {
    let _ = write!(text, "{}", Value::String(String::from_utf8_lossy(bytes).into_owned()));
}
