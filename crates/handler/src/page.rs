//! The built-in page for error responses. It contains no part of the request, so nothing can be injected into it.

use flatout_http::status::reason;

/// Returns the page for `status`. `text` is one sentence for the reader.
pub(crate) fn page(status: u16, text: &str) -> String {
    let reason = reason(status);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{status} {reason}</title>\n\
         <style>body{{font:1.1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:18vh auto;padding:0 1.5rem}}\
         h1{{font-size:1.4rem;margin:0}}b{{font-size:4rem;line-height:1;display:block;letter-spacing:-.03em}}\
         p{{opacity:.8}}</style>\n<h1><b>{status}</b> {reason}</h1>\n<p>{text}</p>\n</html>\n"
    )
}
