//! Short, readable pages for responses that are not a success. They contain nothing of the request, so nothing can be
//! injected.

use flatout_http::status::reason;

/// The page for `status`, with one sentence for the reader.
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
