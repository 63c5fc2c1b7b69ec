//! Media types and stored encodings by file extension.

use crate::charset::{can_declare, declares_other};
use flatout_config::model::EncodedExtension;
use flatout_http::encoding::ContentCoding;
use rustix::io::pread;
use std::borrow::Cow;
use std::os::fd::AsFd;

pub use crate::charset::DECLARED_BYTES_MAX;

/// Returns the Content-Type of the file called `name`, and the coding in which it is stored. `encoded` are the extensions
/// of files that are stored encoded.
pub(crate) fn stored_type(name: &[u8], encoded: &[EncodedExtension]) -> (String, ContentCoding) {
    let has = |extension: &str| {
        let stem_bytes = name.len().checked_sub(extension.len() + 1).filter(|&bytes| bytes > 0);
        stem_bytes
            .is_some_and(|bytes| name[bytes] == b'.' && name[bytes + 1..].eq_ignore_ascii_case(extension.as_bytes()))
    };
    let Some(known) = encoded.iter().find(|known| has(&known.extension)) else {
        return (content_type(name), ContentCoding::Identity);
    };
    // An image with the extension `svgz` has no other one.
    let outer_bytes = if known.extension.ends_with("svgz") {
        0
    } else {
        known.extension.rsplit('.').next().map_or(0, |outer| outer.len() + 1)
    };
    (content_type(&name[..name.len() - outer_bytes]), known.coding)
}

/// Returns the Content-Type and the coding with which the file called `name` is served. `beginning` returns the first
/// [`DECLARED_BYTES_MAX`] bytes of its content, in which it may declare an encoding other than UTF-8.
pub fn served_type<'a>(
    name: &[u8],
    encoded: &[EncodedExtension],
    beginning: impl FnOnce() -> Option<Cow<'a, [u8]>>,
) -> (String, ContentCoding) {
    let (mut content_type, coding) = stored_type(name, encoded);
    if coding == ContentCoding::Identity
        && can_declare(&content_type)
        && beginning().is_some_and(|beginning| declares_other(&content_type, &beginning))
    {
        content_type.truncate(content_type.find(';').unwrap_or(content_type.len()));
    }
    (content_type, coding)
}

/// Returns the beginning of the file `fd` for [`served_type`], or `None` if it cannot be read.
pub fn read_beginning(fd: impl AsFd) -> Option<Cow<'static, [u8]>> {
    let mut beginning = vec![0; DECLARED_BYTES_MAX];
    let count = pread(fd, &mut beginning, 0).ok()?;
    beginning.truncate(count);
    Some(Cow::Owned(beginning))
}

/// Returns the Content-Type of the file called `name`. Text is declared as UTF-8. A file with an unknown extension is
/// `application/octet-stream`, which a browser saves instead of guessing a type.
pub(crate) fn content_type(name: &[u8]) -> String {
    let extension = name.rsplit(|&byte| byte == b'.').next().filter(|extension| extension.len() < name.len());
    let extension = extension.and_then(|extension| std::str::from_utf8(extension).ok()).unwrap_or("");
    let media_type = override_type(extension)
        .or_else(|| mime_guess::from_ext(extension).first_raw())
        .unwrap_or("application/octet-stream");
    if media_type.starts_with("text/") { format!("{media_type}; charset=utf-8") } else { media_type.to_owned() }
}

/// Returns whether content of this type is worth compressing. This is true of text and of formats that are not
/// compressed themselves, unlike PNG, JPEG, WOFF2, ZIP or video.
pub(crate) fn is_compressible(content_type: &str) -> bool {
    // The suffix names the underlying syntax (RFC 6839).
    const SUFFIXES: [&str; 3] = ["+xml", "+json", "+text"];
    const TYPES: &[&str] = &[
        "application/javascript",
        "application/json",
        "application/ld+json",
        "application/manifest+json",
        "application/msword",
        "application/rtf",
        "application/vnd.ms-excel",
        "application/vnd.ms-fontobject",
        "application/vnd.ms-powerpoint",
        "application/wasm",
        "application/x-javascript",
        "application/x-ndjson",
        "application/x-sh",
        "application/x-tex",
        "application/xml",
        "application/xml-dtd",
        "application/yaml",
        "application/toml",
        "application/sql",
        "font/collection",
        "font/otf",
        "font/sfnt",
        "font/ttf",
        "application/font-sfnt",
        "application/x-font-ttf",
        "application/x-font-otf",
        "image/bmp",
        "image/vnd.microsoft.icon",
        "image/x-icon",
    ];
    let essence = content_type.split(';').next().unwrap_or_default().trim_end();
    essence.starts_with("text/") || SUFFIXES.iter().any(|suffix| essence.ends_with(suffix)) || TYPES.contains(&essence)
}

/// Returns the type of an extension for which the `mime_guess` table is outdated, or has a type that browsers do not
/// display.
fn override_type(extension: &str) -> Option<&'static str> {
    // RFC 9239 made text/javascript the only type of JavaScript. The text/plain types are for display.
    const OVERRIDES: &[(&str, &str)] = &[
        ("js", "text/javascript"),
        ("mjs", "text/javascript"),
        ("py", "text/plain"),
        ("rs", "text/plain"),
        ("toml", "text/plain"),
        ("log", "text/plain"),
        ("ico", "image/vnd.microsoft.icon"),
    ];
    OVERRIDES.iter().find(|(known, _)| extension.eq_ignore_ascii_case(known)).map(|(_, media_type)| *media_type)
}

#[cfg(test)]
mod tests {
    use super::{content_type, is_compressible, stored_type};
    use flatout_config::model::EncodedExtension;
    use flatout_http::encoding::ContentCoding::{Brotli, Gzip, Identity, Zstd};

    #[test]
    fn files_that_are_stored_encoded() {
        let encoded = [("svgz", Gzip), ("wasm.br", Brotli), ("JS.zst", Zstd), ("gz", Gzip)]
            .map(|(extension, coding)| EncodedExtension { extension: extension.into(), coding });
        for (name, expected) in [
            ("a.svgz", ("image/svg+xml", Gzip)),
            ("folder/A.SVGZ", ("image/svg+xml", Gzip)),
            ("game.wasm.br", ("application/wasm", Brotli)),
            ("game.framework.js.ZST", ("text/javascript; charset=utf-8", Zstd)),
            ("game.data.gz", ("application/octet-stream", Gzip)),
            ("all.tar.gz", ("application/x-tar", Gzip)),
            ("game.data.br", ("application/octet-stream", Identity)),
            ("wasm.br", ("application/octet-stream", Identity)),
            ("xsvgz", ("application/octet-stream", Identity)),
            ("a.svg", ("image/svg+xml", Identity)),
            (".gz", ("application/gzip", Identity)),
            ("", ("application/octet-stream", Identity)),
        ] {
            let (content_type, coding) = stored_type(name.as_bytes(), &encoded);
            assert_eq!((content_type.as_str(), coding), expected, "{name}");
        }
        assert_eq!(stored_type(b"a.tar.gz", &encoded[..1]), ("application/gzip".to_owned(), Identity));
    }

    #[test]
    fn what_is_worth_compressing() {
        for name in [
            "a.html", "a.css", "a.js", "a.json", "a.svg", "a.xml", "a.wasm", "a.ttf", "a.otf", "a.ico", "a.bmp",
            "a.txt",
        ] {
            assert!(is_compressible(&content_type(name.as_bytes())), "{name}: {}", content_type(name.as_bytes()));
        }
        for name in ["a.png", "a.jpg", "a.webp", "a.woff2", "a.woff", "a.zip", "a.gz", "a.mp4", "a.pdf", "a.unknown"] {
            assert!(!is_compressible(&content_type(name.as_bytes())), "{name}: {}", content_type(name.as_bytes()));
        }
    }

    #[test]
    fn common_endings() {
        for (name, expected) in [
            ("index.html", "text/html; charset=utf-8"),
            ("A.HTML", "text/html; charset=utf-8"),
            ("style.css", "text/css; charset=utf-8"),
            ("app.JS", "text/javascript; charset=utf-8"),
            ("a.json", "application/json"),
            ("logo.svg", "image/svg+xml"),
            ("a.png", "image/png"),
            ("font.woff2", "font/woff2"),
            ("a.wasm", "application/wasm"),
            ("a.tar.gz", "application/gzip"),
            ("notes.txt", "text/plain; charset=utf-8"),
            ("unknown.zzz9", "application/octet-stream"),
            ("html", "application/octet-stream"),
            ("a.", "application/octet-stream"),
            ("", "application/octet-stream"),
        ] {
            assert_eq!(content_type(name.as_bytes()), expected, "{name}");
        }
    }
}
