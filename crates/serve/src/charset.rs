//! The character encoding that a file declares for itself.

/// Number of bytes at the beginning of a file in which a declaration counts (HTML §4.2.5.4).
pub const DECLARED_BYTES_MAX: usize = 1024;

/// Returns whether files of this type can declare their encoding.
pub(crate) fn can_declare(content_type: &str) -> bool {
    matches!(content_type.split(';').next(), Some("text/html" | "text/css"))
}

/// Beginnings of the labels of encodings other than UTF-8 (Encoding Standard §4.2). Browsers ignore any other label, and
/// also those of UTF-16, which cannot be declared this way (HTML §13.2.3.2).
const LEGACY: &str = "866 ansi_x3.4-1968 arabic ascii asmo-708 big5 chinese cn-big5 cp csbig5 cseuc csgb2312 csibm866 \
    csiso cskoi8r csksc csmacintosh csshiftjis cyrillic dos-874 ecma- elot_928 euc- gb greek hebrew ibm819 ibm866 iso \
    koi korean ks_c ksc l1 l2 l3 l4 l5 l6 l9 latin logical mac ms932 ms_kanji shift sjis sun_eu_greek tis-620 us-ascii \
    visual windows- x-cp125 x-euc-jp x-gbk x-mac- x-sjis x-x-big5";

/// Returns whether a file of type `content_type` that begins with `beginning` declares an encoding other than UTF-8. The
/// type must then not name one, because browsers prefer the type's.
pub(crate) fn declares_other(content_type: &str, beginning: &[u8]) -> bool {
    let beginning = &beginning[..beginning.len().min(DECLARED_BYTES_MAX)];
    // A byte order mark comes before everything else.
    if beginning.starts_with(b"\xef\xbb\xbf") {
        return false;
    }
    let declared = match content_type.split(';').next() {
        Some("text/html") => declared_by_page(beginning),
        // CSS Syntax §3.2: exactly in this form, at the beginning.
        Some("text/css") => beginning.strip_prefix(b"@charset \"").and_then(|rest| {
            let end = rest.windows(2).position(|bytes| bytes == b"\";")?;
            Some(&rest[..end])
        }),
        _ => None,
    };
    declared.is_some_and(|label| {
        let label = label.trim_ascii().to_ascii_lowercase();
        LEGACY.split_whitespace().any(|beginning| label.starts_with(beginning.as_bytes()))
    })
}

/// Returns the encoding that the first `meta` element with one declares.
fn declared_by_page(mut rest: &[u8]) -> Option<&[u8]> {
    while let Some(at) = rest.iter().position(|&byte| byte == b'<') {
        rest = &rest[at + 1..];
        if rest.starts_with(b"!--") {
            // The comment may end with the dashes with which it begins.
            rest = &rest[1..];
            rest = &rest[rest.windows(3).position(|bytes| bytes == b"-->")?..];
            continue;
        }
        let name_at = usize::from(rest.starts_with(b"/"));
        if !rest.get(name_at).is_some_and(u8::is_ascii_alphabetic) {
            continue;
        }
        let is_end = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'/' | b'>');
        let name_bytes = rest[name_at..].iter().take_while(|byte| !is_end(byte)).count();
        let is_meta = rest[..name_at + name_bytes].eq_ignore_ascii_case(b"meta");
        rest = &rest[name_at + name_bytes..];
        let declared = declared_by_attributes(&mut rest);
        if is_meta && declared.is_some() {
            return declared;
        }
    }
    None
}

/// Reads the attributes of an element up to its end. Returns the encoding that they declare if the element is `meta`.
fn declared_by_attributes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (mut charset, mut content, mut is_type) = (None, None, false);
    while let Some((name, value)) = next_attribute(rest) {
        match &name.to_ascii_lowercase()[..] {
            b"charset" => charset = charset.or(Some(value)),
            b"content" => content = content.or(Some(value)),
            b"http-equiv" => is_type |= value.eq_ignore_ascii_case(b"content-type"),
            _ => {}
        }
    }
    charset.or_else(|| content.filter(|_| is_type).and_then(charset_of_type))
}

/// Returns the next attribute of an element, whose value may be empty. Returns `None` at the element's end, and for an
/// attribute that is cut off.
fn next_attribute<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let skip = |rest: &mut &'a [u8], is_skipped: &dyn Fn(u8) -> bool| {
        let (skipped, left) = rest.split_at(rest.iter().take_while(|&&byte| is_skipped(byte)).count());
        *rest = left;
        skipped
    };
    let is_space = |byte: u8| byte.is_ascii_whitespace();
    skip(rest, &|byte| is_space(byte) || byte == b'/');
    let name = skip(rest, &|byte| !is_space(byte) && !matches!(byte, b'/' | b'>' | b'='));
    if name.is_empty() && !rest.starts_with(b"=") {
        return None;
    }
    skip(rest, &is_space);
    let Some(after) = rest.strip_prefix(b"=") else { return Some((name, b"")) };
    *rest = after;
    skip(rest, &is_space);
    let value = if let Some(&quote @ (b'"' | b'\'')) = rest.first() {
        *rest = &rest[1..];
        let value = skip(rest, &|byte| byte != quote);
        *rest = rest.get(1..)?;
        value
    } else {
        let value = skip(rest, &|byte| !is_space(byte) && byte != b'>');
        rest.first()?;
        value
    };
    Some((name, value))
}

/// Returns the parameter `charset` of a media type.
fn charset_of_type(value: &[u8]) -> Option<&[u8]> {
    let at = value.windows(7).position(|bytes| bytes.eq_ignore_ascii_case(b"charset"))? + 7;
    let value = value[at..].trim_ascii_start().strip_prefix(b"=")?.trim_ascii_start();
    let is_end = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b';' | b'"' | b'\'');
    let value = value.strip_prefix(b"\"").or(value.strip_prefix(b"'")).unwrap_or(value);
    Some(&value[..value.iter().position(is_end).unwrap_or(value.len())])
}

#[cfg(test)]
mod tests {
    use super::declares_other;

    #[test]
    fn declarations_of_pages_and_style_sheets() {
        let html = "text/html; charset=utf-8";
        for (beginning, expected) in [
            ("<meta charset=iso-8859-1>", true),
            ("<!doctype html><html><head><META  Charset = 'windows-1252' />", true),
            ("<meta http-equiv=\"Content-Type\" content=\"text/html; charset=ISO-8859-15\">", true),
            ("<meta content='text/html;charset=\"koi8-r\"' http-equiv=content-type>", true),
            ("<meta name=a content=b><meta charset=shift_jis>", true),
            ("<meta charset=utf-8>", false),
            ("<meta charset=\"UTF-8\"><meta charset=latin1>", false),
            ("<meta charset=utf-16le>", false),
            ("<meta charset=utf8mb4>", false),
            ("<meta charset='{{ charset }}'>", false),
            ("<a title='<meta charset=latin1>'>", false),
            ("<!--><meta charset=latin1>", true),
            ("<meta charset>", false),
            ("<meta name=description content=\"why charset=latin1 is old\">", false),
            ("<!-- <meta charset=latin1> --><p>", false),
            ("<!-- <meta charset=latin1>", false),
            ("<metadata charset=latin1>", false),
            ("<p data-charset=latin1>", false),
            ("\u{feff}<meta charset=latin1>", false),
            ("", false),
        ] {
            assert_eq!(declares_other(html, beginning.as_bytes()), expected, "{beginning}");
            assert!(!declares_other("text/plain; charset=utf-8", beginning.as_bytes()), "{beginning}");
            // No beginning of it panics, and none declares what the whole does not.
            for end in 0..beginning.len() {
                let declares = declares_other(html, &beginning.as_bytes()[..end]);
                assert!(expected || !declares, "{beginning} up to {end}");
            }
        }
        let far = format!("{}<meta charset=latin1>", " ".repeat(1010));
        assert!(!declares_other(html, far.as_bytes()));
        let css = "text/css; charset=utf-8";
        for (beginning, expected) in [
            ("@charset \"iso-8859-1\";", true),
            ("@charset \"utf-8\";", false),
            ("@charset 'iso-8859-1';", false),
            ("@charset \"iso-8859-1\"", false),
            (" @charset \"iso-8859-1\";", false),
        ] {
            assert_eq!(declares_other(css, beginning.as_bytes()), expected, "{beginning}");
        }
    }
}
