//! Parsing of fixtures.

use super::Reader;
use super::setting::Row;
use crate::model::{Fixture, FixturePart, Placed};
use flatout_config::diagnostic::Span;
use flatout_config::syntax::Node;
use flatout_config::{Code, Shape, property};

type Parts = Vec<FixturePart>;

/// The parts that a fixture may have.
static PARTS: &[Row<Parts>] = &[
    Row::repeated("bytes", Shape::none("bytes \"file.bin\" 6537455").takes(2, 2), |reader, node, parts| {
        parts.extend(reader.bytes(node));
    }),
    Row::repeated("text", TEXT.takes(2, 2).with(&["bytes"]), |reader, node, parts| {
        parts.extend(reader.text_piece(node));
    }),
    Row::repeated("certificate", CERTIFICATE.with(&["key"]), |reader, node, parts| {
        parts.extend(reader.certificate(node));
    }),
    Row::repeated("folder", Shape::value("folder \"{suite-dir}/site\""), |reader, node, parts| {
        parts.push(FixturePart::Folder { from: reader.template_of(node) });
    }),
    Row::repeated("workload", Shape::values(1, "workload \"web96\" \"--load\" \"4\""), |reader, node, parts| {
        parts.push(FixturePart::Workload { arguments: reader.words_of(node) });
    }),
];

const TEXT: Shape = Shape::none("text \"index.html\" \"<!doctype html>…\"");

const CERTIFICATE: Shape = Shape::value("certificate \"cert.pem\" key=\"key.pem\"");

impl Reader<'_> {
    pub(super) fn fixture(&mut self, node: &Node) -> Fixture {
        let mut fixture = Fixture { name: self.name_of(node), place: self.texts.place(node.span), pieces: Vec::new() };
        self.read_block(node, PARTS, &mut fixture.pieces);
        fixture
    }

    fn bytes(&mut self, node: &Node) -> Option<FixturePart> {
        let [name, bytes] = &node.arguments[..] else { return None };
        self.file_name(name)?;
        let (name_placed, length) = (self.placed(name)?, self.placed(bytes)?);
        self.refer_text(&name_placed.text, name.span, &[]);
        self.length(&length, bytes.span);
        Some(FixturePart::Bytes { name: name_placed, bytes: length })
    }

    fn text_piece(&mut self, node: &Node) -> Option<FixturePart> {
        let [name, content] = &node.arguments[..] else { return None };
        self.file_name(name)?;
        let (name_placed, content_placed) = (self.placed(name)?, self.placed(content)?);
        self.refer_text(&name_placed.text, name.span, &[]);
        let length = self.placed_property(node, "bytes");
        if let Some((length, span)) = &length {
            self.length(length, *span);
            if !content_placed.text.contains("{fill}") {
                let message = "a string with a fixed length needs `{fill}` for the filler text";
                self.report.add(Code::TextBad, content.span, message);
            }
        }
        Some(FixturePart::Text { name: name_placed, content: content_placed, bytes: length.map(|(length, _)| length) })
    }

    fn certificate(&mut self, node: &Node) -> Option<FixturePart> {
        let name = &node.arguments[0];
        self.file_name(name)?;
        let Some(key) = property(node, "key") else {
            let message = "`certificate` needs a `key`";
            let example = "as in: certificate \"cert.pem\" key=\"key.pem\"";
            self.report.add(Code::PropertyMissing, node.span, message).note(example);
            return None;
        };
        self.file_name(&key.value)?;
        Some(FixturePart::Certificate { name: self.placed(name)?, key: self.placed(&key.value)? })
    }

    /// Checks a length in bytes. If it contains placeholders, it is checked when it is used.
    fn length(&mut self, length: &Placed, span: Span) {
        self.refer_text(&length.text, span, &[]);
        if crate::template::names(&length.text).next().is_none() && crate::fixture::parse_length(&length.text).is_none()
        {
            let message = format!("{:?} is not a length in bytes", length.text);
            let most = crate::fixture::FILE_BYTES_MAX;
            self.report.add(Code::NumberBounds, span, message).label(format!("0 to {most}"));
        }
    }
}
