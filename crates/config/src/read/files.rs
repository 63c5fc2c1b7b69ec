//! The `files` handler and its settings.

use super::field::field_value;
use super::parse::{self, show_duration};
use super::reader::Reader;
use super::setting::{List, Setting, read_block, word_of, write_block};
use super::shape::{Shape, is_off, property};
use super::text::encode_text;
use crate::code::Code;
use crate::diagnostic::Span;
use crate::encode::writer::{SettingWriter, path};
use crate::model::{Compression, EncodedExtension, Files, Listing, Text, TextPart, TryTarget, Variable};
use crate::syntax::{Node, Scalar, Value};
use flatout_http::encoding::ContentCoding::{self, Brotli, Gzip, Zstd};
use std::ops::RangeInclusive;
use std::path::{Component, PathBuf};

pub(super) const SHAPE: Shape = Shape::value("files \"/srv/www\" { listing #true }").may_have_block();
const INDEX: Shape = Shape::values(0, "index \"index.html\"").with(&["off"]);
const CODINGS: Shape =
    Shape::values(0, "compress \"br\" \"zstd\" \"gzip\"").with(&["off", "br-level", "zstd-level", "gzip-level"]);
const EXTENSIONS: Shape = Shape::values(0, "precompressed \"br\" \"zst\" \"gz\"").with(&["off"]);
const ENCODED: Shape = Shape::values(0, "encoded \"svgz\" \"wasm.br\"").with(&["off"]);

/// The settings of `files`.
pub(super) const SETTINGS: &[Setting<Files>] = &[
    Setting::list("index", INDEX, &List("this name", file_name, String::clone, |files: &mut Files| &mut files.index)),
    Setting::custom("listing", Shape::value("listing #true").with(&["entries"]), listing, |writer, name, files| {
        let Some(listing) = files.listing else { return };
        writer.begin(name).raw("#true");
        if listing.entries_max != LISTING_ENTRIES_DEFAULT {
            writer.raw_property("entries", &listing.entries_max.to_string());
        }
        writer.end();
    }),
    Setting::flag("hidden", "hidden #true", |files| &mut files.hidden),
    Setting::list(
        "follow-links",
        Shape::values(1, "follow-links \"/usr/share\""),
        &List("this folder", absolute_path, |folder| path(folder), |files: &mut Files| &mut files.follow_links),
    ),
    Setting::custom("try", Shape::values(1, "try \"{path}.html\" \"=404\""), tries, |writer, name, files| {
        let show = |target: &TryTarget| match target {
            TryTarget::File(text) => encode_text(text),
            TryTarget::Status(status) => format!("={status}"),
        };
        writer.list(name, &files.try_targets.iter().map(show).collect::<Vec<_>>());
    }),
    // `spa` is printed as the equivalent `try`.
    Setting::read_only("spa", Shape::value("spa \"index.html\""), spa),
    Setting::custom("compress", CODINGS, compress, |writer, name, files| {
        if files.compress == defaults().compress {
            return;
        }
        if files.compress.is_empty() {
            return writer.begin(name).raw_property("off", "#true").end();
        }
        writer.begin(name);
        for compression in &files.compress {
            writer.text(compression.coding.name());
        }
        for (property, coding, _) in LEVELS {
            let set =
                files.compress.iter().find(|set| set.coding == coding && !COMPRESS.contains(&(**set, coding.name())));
            if let Some(Compression { level, .. }) = set {
                writer.raw_property(property, &level.to_string());
            }
        }
        writer.end();
    }),
    Setting::list(
        "precompressed",
        EXTENSIONS,
        &List(
            "this coding",
            |reader, value| reader.word(value, &ENDINGS),
            |coding| word_of(&ENDINGS, coding).to_owned(),
            |files: &mut Files| &mut files.precompressed,
        ),
    ),
    Setting::list(
        "encoded",
        ENCODED,
        &List(
            "this extension",
            encoded_extension,
            |encoded| encoded.extension.clone(),
            |files: &mut Files| &mut files.encoded,
        ),
    ),
    Setting::custom(
        "digest",
        Shape::value("digest #true always=#true").with(&["always"]),
        digest,
        |writer, name, files| {
            if !files.digest {
                return;
            }
            writer.begin(name).raw("#true");
            if files.digest_always {
                writer.raw_property("always", "#true");
            }
            writer.end();
        },
    ),
    Setting::flag("content-md5", "content-md5 #true", |files| &mut files.content_md5),
    Setting::custom(
        "cache-control",
        Shape::value("cache-control \"text/html\" \"no-cache\"").takes(2, 2),
        cache_control,
        |writer, name, files| {
            for (kind, value) in &files.cache_control {
                writer.begin(name).text(kind).text(value).end();
            }
        },
    )
    .repeated(),
    Setting::custom(
        "expires",
        Shape::value("expires \"image/*\" \"30d\"").takes(2, 2),
        expires,
        |writer, name, files| {
            for (kind, seconds) in &files.expires {
                writer.begin(name).text(kind).text(&show_duration(u64::from(*seconds) * 1_000)).end();
            }
        },
    )
    .repeated(),
    Setting::flag("pass", "pass #true", |files| &mut files.pass),
];

/// The default maximum number of entries in a listing.
const LISTING_ENTRIES_DEFAULT: u32 = 10_000;

/// The file name extensions of precompressed files.
const ENDINGS: [(ContentCoding, &str); 3] = [(Brotli, "br"), (Zstd, "zst"), (Gzip, "gz")];

/// The extension of SVG images that are compressed with gzip, which the registration of image/svg+xml requires servers to
/// declare. Other files stay downloads by default: some applications decode files such as `dotnet.wasm.br` themselves.
const SVGZ: &str = "svgz";

/// The codings of `compress` with their default levels, best compression first. Compressing a page at these levels
/// takes a few milliseconds. Higher levels save a few per cent, once per file version, but delay the first visitors.
const COMPRESS: [(Compression, &str); 3] = [
    (Compression { coding: Brotli, level: 6 }, "br"),
    (Compression { coding: Zstd, level: 9 }, "zstd"),
    (Compression { coding: Gzip, level: 7 }, "gzip"),
];

/// The properties of `compress` that set a level, with their bounds. Higher levels of zstd would need hundreds of
/// megabytes of memory.
const LEVELS: [(&str, ContentCoding, RangeInclusive<u64>); 3] =
    [("br-level", Brotli, 0..=11), ("zstd-level", Zstd, 1..=19), ("gzip-level", Gzip, 1..=9)];

/// The longest lifetime for Expires, in milliseconds: a year, as recommended by RFC 2616 §14.21.
const EXPIRES_MS_MAX: u64 = 366 * 86_400_000;

/// The settings for a folder of which only the path is given.
pub(crate) fn defaults() -> Files {
    Files {
        index: vec!["index.html".into()],
        compress: COMPRESS.map(|(compression, _)| compression).to_vec(),
        precompressed: ENDINGS.map(|(coding, _)| coding).to_vec(),
        encoded: vec![EncodedExtension { extension: SVGZ.into(), coding: Gzip }],
        ..Files::default()
    }
}

pub(super) fn read(reader: &mut Reader<'_>, node: &Node) -> Option<Files> {
    let mut files = defaults();
    read_block(reader, node, SETTINGS, &mut files);
    let children = || node.children.iter().flatten();
    if let (Some(spa), Some(tries)) =
        (children().find(|child| child.name == "spa"), children().find(|child| child.name == "try"))
    {
        let draft =
            reader.report.add(Code::Contradiction, spa.span, "`spa` is shorthand for a `try`: use only one of the two");
        draft.related(tries.span, "the other one");
    }
    if let (true, Some(pass)) =
        (files.pass && !files.try_targets.is_empty(), children().find(|child| child.name == "pass"))
        && matches!(files.try_targets.last(), Some(TryTarget::Status(_)))
    {
        reader.report.add(
            Code::Contradiction,
            pass.span,
            "`try` ends with a status, so no request passes to the next handler",
        );
    }
    files.root = reader.path(node.arguments.first()?)?;
    Some(files)
}

pub(crate) fn write(writer: &mut SettingWriter, files: &Files) {
    writer.begin("files").text(&path(&files.root));
    writer.block(|writer| write_block(writer, SETTINGS, files, &defaults()));
}

fn cache_control(reader: &mut Reader<'_>, node: &Node, files: &mut Files) {
    if let Some(kind) = media(reader, &node.arguments[0], files.cache_control.iter().map(|(kind, _)| kind))
        && let Some(value) = field_value(reader, &node.arguments[1])
    {
        files.cache_control.push((kind, value));
    }
}

fn expires(reader: &mut Reader<'_>, node: &Node, files: &mut Files) {
    if let Some(kind) = media(reader, &node.arguments[0], files.expires.iter().map(|(kind, _)| kind))
        && let Some(duration_ms) = reader.duration(&node.arguments[1], 0..=EXPIRES_MS_MAX)
    {
        files.expires.push((kind, (duration_ms / 1_000) as u32));
    }
}

/// Reads the name of a file, without a path.
fn file_name(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
    let name = reader.line(value)?;
    if name.contains('/') || name == "." || name == ".." {
        reader
            .report
            .add(Code::TextBad, value.span, format!("`{name}` is not a valid file name"))
            .label("use a file name without a path");
        return None;
    }
    Some(name)
}

/// Reads an extension whose last part stands for a coding. Extensions are compared case-insensitively.
fn encoded_extension(reader: &mut Reader<'_>, value: &Value) -> Option<EncodedExtension> {
    let extension = reader.line(value)?.to_ascii_lowercase();
    let coding_of = |outer: &str| match outer {
        SVGZ => Some(Gzip),
        _ => ENDINGS.iter().find(|(_, known)| *known == outer).map(|(coding, _)| *coding),
    };
    let is_extension = !extension.contains('/') && extension.split('.').all(|part| !part.is_empty());
    let coding = extension.rsplit('.').next().filter(|_| is_extension).and_then(coding_of);
    if coding.is_none() {
        let message = format!("`{extension}` is not the extension of an encoded file");
        let draft = reader.report.add(Code::TextBad, value.span, message);
        draft.label("it must end in br, zst, gz or svgz, without a dot before it, such as \"wasm.br\"");
    }
    coding.map(|coding| EncodedExtension { extension, coding })
}

fn listing(reader: &mut Reader<'_>, node: &Node, files: &mut Files) {
    let on = reader.flag(&node.arguments[0]).unwrap_or(false);
    let entries = property(node, "entries").and_then(|entries| reader.number(&entries.value, 1..=1_000_000));
    let entries_max = entries.map_or(LISTING_ENTRIES_DEFAULT, |entries| entries as u32);
    files.listing = on.then_some(Listing { entries_max });
}

fn absolute_path(reader: &mut Reader<'_>, value: &Value) -> Option<PathBuf> {
    let text = reader.line(value)?;
    let folder = PathBuf::from(&text);
    if !folder.is_absolute() || folder.components().any(|part| part == Component::ParentDir) {
        let draft = reader.report.add(Code::TextBad, value.span, format!("`{text}` is not an absolute path"));
        draft.label("use an absolute path without `..`, such as \"/usr/share\"");
        return None;
    }
    Some(folder)
}

fn tries(reader: &mut Reader<'_>, node: &Node, files: &mut Files) {
    for (index, value) in node.arguments.iter().enumerate() {
        let Some(target) = try_target(reader, value) else { continue };
        let is_last = index + 1 == node.arguments.len();
        if matches!(target, TryTarget::Status(_)) && !is_last {
            let draft = reader.report.add(Code::Unreachable, node.arguments[index + 1].span, "this is never tried");
            draft.related(value.span, "a status ends the list, so nothing after it is tried");
            return;
        }
        files.try_targets.push(target);
    }
}

fn try_target(reader: &mut Reader<'_>, value: &Value) -> Option<TryTarget> {
    let text = reader.line(value)?;
    if let Some(status) = text.strip_prefix('=') {
        let number = parse::digits(status).filter(|status| (400..=599).contains(status));
        if number.is_none() {
            let draft =
                reader.report.add(Code::StatusBad, value.span, format!("`{status}` is not a valid status here"));
            draft.label("400 to 599, as in \"=404\"");
        }
        return number.map(TryTarget::Status);
    }
    let text = reader.parse_template(value.span, &text)?;
    file_target(reader, value.span, text).map(TryTarget::File)
}

/// Reads a path relative to the root, and adds a leading slash if necessary. The path must not contain `..` or
/// variables that are not paths.
fn file_target(reader: &mut Reader<'_>, span: Span, mut text: Text) -> Option<Text> {
    let is_foreign = |part: &TextPart| match part {
        TextPart::Variable(
            Variable::Uri | Variable::Query | Variable::Scheme | Variable::HostPort | Variable::Client | Variable::Rest,
        ) => true,
        TextPart::Variable(_) => false,
        TextPart::Literal(literal) => literal.split('/').any(|segment| segment == ".."),
    };
    if text.parts.iter().any(is_foreign) {
        let draft = reader.report.add(Code::TargetBad, span, "this is not a valid file path");
        draft.label("use a path inside the folder; it may contain {path} or {host}; for {rest}, use `rewrite to=` before `files`");
        return None;
    }
    match text.parts.first_mut() {
        Some(TextPart::Variable(Variable::Path)) => {}
        Some(TextPart::Literal(literal)) if literal.starts_with('/') => {}
        Some(TextPart::Literal(literal)) => literal.insert(0, '/'),
        _ => text.parts.insert(0, TextPart::Literal("/".into())),
    }
    Some(text)
}

fn spa(reader: &mut Reader<'_>, node: &Node, files: &mut Files) {
    let value = &node.arguments[0];
    let Some(text) = reader.line(value) else { return };
    let text = Text { parts: vec![TextPart::Literal(text)] };
    if let Some(text) = file_target(reader, value.span, text) {
        files.try_targets = vec![TryTarget::File(text)];
    }
}

fn compress(reader: &mut Reader<'_>, node: &Node, files: &mut Files) {
    let off = is_off(reader, node, &CODINGS);
    files.compress = if off {
        Vec::new()
    } else {
        reader.list(&node.arguments, "this coding", |reader, value| reader.word(value, &COMPRESS))
    };
    for (name, coding, bounds) in LEVELS {
        let Some(property) = property(node, name) else { continue };
        let Some(level) = reader.number(&property.value, bounds) else { continue };
        if let Some(compression) = files.compress.iter_mut().find(|compression| compression.coding == coding) {
            compression.level = level as u8;
        } else {
            let message = format!("`{name}` has no effect, because \"{}\" is not in the list", coding.name());
            reader.report.add(Code::Contradiction, property.span, message);
        }
    }
}

fn digest(reader: &mut Reader<'_>, node: &Node, files: &mut Files) {
    files.digest = reader.flag(&node.arguments[0]).unwrap_or(false);
    let always = property(node, "always");
    files.digest_always = always.and_then(|always| reader.flag(&always.value)).unwrap_or(false);
    if let (true, false, Some(always)) = (files.digest_always, files.digest, always) {
        let digest = &node.arguments[0];
        // If the value is neither true nor false, it is invalid and has already been reported.
        if matches!(digest.scalar, Scalar::Bool(false)) {
            reader.report.add(Code::Contradiction, always.span, "`digest` is turned off, but `always` is set");
        }
        files.digest_always = false;
    }
}

/// Reads a media type, a media range or `*` that the list does not contain yet.
fn media<'k>(reader: &mut Reader<'_>, value: &Value, known: impl Iterator<Item = &'k String>) -> Option<String> {
    let text = reader.line(value)?.to_ascii_lowercase();
    if !parse::is_media_pattern(&text) {
        let draft = reader.report.add(Code::MediaTypeBad, value.span, format!("`{text}` is not a valid media type"));
        draft.label("as in \"text/html\", \"image/*\" or \"*\"");
        return None;
    }
    // The first match applies, so an entry after one that covers it would never apply.
    let covers = |known: &String| known.strip_suffix('*').is_some_and(|family| text.starts_with(family));
    for known in known {
        if *known == text {
            reader.same_twice(value.span, "this type");
            return None;
        }
        if covers(known) {
            let draft = reader.report.add(Code::Unreachable, value.span, format!("`{text}` never matches here"));
            draft.label(format!("`{known}` comes before it, and the first match applies"));
            return None;
        }
    }
    Some(text)
}
