//! Short, readable pages for responses that are not a success. They contain nothing of the request, so nothing can be
//! injected.

use crate::response::{Body, Head, Response};
use flatout_http::status::reason;

/// A page for `status` with one sentence for the reader, and `fields` added to its head.
pub fn page_response(status: u16, text: &str, fields: &[(&str, &str)], outcome: u8) -> Response {
    let reason = reason(status);
    let page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{status} {reason}</title>\n\
         <style>body{{font:1.1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:18vh auto;padding:0 1.5rem}}\
         h1{{font-size:1.4rem;margin:0}}b{{font-size:4rem;line-height:1;display:block;letter-spacing:-.03em}}\
         p{{opacity:.8}}</style>\n<h1><b>{status}</b> {reason}</h1>\n<p>{text}</p>\n</html>\n"
    );
    let length = page.len().to_string();
    let mut all_fields = vec![("Content-Type", "text/html; charset=utf-8"), ("Content-Length", length.as_str())];
    all_fields.extend_from_slice(fields);
    Response::new(status, Head::new(status, &all_fields), Body::Bytes(page.into_bytes().into()), outcome)
}

/// The page for a refusal. Its outcome is not the handler's, so the connection ignores the index.
pub fn error_response(status: u16, text: &'static str) -> Response {
    page_response(status, text, &[], 0)
}

#[cfg(test)]
mod tests {
    use super::page_response;

    #[test]
    fn pages_declare_their_length() {
        let response = page_response(404, "Nothing here has this name.", &[("Allow", "GET")], 1);
        let mut output = Vec::new();
        response.head.append_to(&mut output, &[b'x'; 29], b"", None);
        let text = String::from_utf8(output).unwrap();
        assert!(text.starts_with("HTTP/1.1 404 Not Found\r\n"), "{text}");
        assert!(text.contains(&format!("\r\nContent-Length: {}\r\n", response.body.len())), "{text}");
        assert!(text.contains("\r\nAllow: GET\r\n"));
    }
}
