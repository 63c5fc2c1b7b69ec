//! Parsing of fixtures.

use super::Reader;
use crate::model::{Fixture, FixturePart, Placed};
use flatout_config::Code;
use flatout_config::syntax::Node;

impl Reader<'_> {
    pub(super) fn fixture(&mut self, node: &Node) -> Fixture {
        self.plain(node, &[]);
        let mut fixture = Fixture {
            name: self.name_of(node).unwrap_or_default(),
            place: self.texts.place(node.span),
            pieces: Vec::new(),
        };
        for setting in self.block(node, "fixture \"site\" { bytes \"file.bin\" 6537455 }") {
            let piece = match setting.name.as_str() {
                "bytes" => self.bytes(setting),
                "text" => self.text_piece(setting),
                "certificate" => self.certificate(setting),
                "folder" => self.template_of(setting).map(|from| FixturePart::Folder { from }),
                "workload" => Some(FixturePart::Workload { arguments: self.words_of(setting) }),
                _ => {
                    self.unknown(setting, &["bytes", "text", "certificate", "folder", "workload"]);
                    None
                }
            };
            fixture.pieces.extend(piece);
        }
        fixture
    }

    fn bytes(&mut self, node: &Node) -> Option<FixturePart> {
        self.plain(node, &[]);
        self.no_block(node);
        let [name, bytes] = node.arguments.as_slice() else {
            let message = "`bytes` needs a file's name and its length";
            self.report.add(Code::ValueMissing, node.span, message).note("as in: bytes \"file.bin\" 6537455");
            return None;
        };
        self.file_name(name)?;
        let (name_placed, length) = (self.placed(name)?, self.placed(bytes)?);
        self.refer_text(&name_placed.text, name.span, &[]);
        self.refer_text(&length.text, bytes.span, &[]);
        self.length(&length, bytes.span);
        Some(FixturePart::Bytes { name: name_placed, bytes: length })
    }

    fn text_piece(&mut self, node: &Node) -> Option<FixturePart> {
        self.plain(node, &["bytes"]);
        self.no_block(node);
        let [name, content] = node.arguments.as_slice() else {
            let message = "`text` needs a file's name and its content";
            self.report
                .add(Code::ValueMissing, node.span, message)
                .note("as in: text \"index.html\" \"<!doctype html>…\"");
            return None;
        };
        self.file_name(name)?;
        let (name_placed, content_placed) = (self.placed(name)?, self.placed(content)?);
        self.refer_text(&name_placed.text, name.span, &[]);
        let mut length = None;
        if let Some(property) = node.properties.iter().find(|property| property.name == "bytes") {
            length = self.placed(&property.value);
            if let Some(length) = &length {
                let text = length.text.clone();
                self.refer_text(&text, property.value.span, &[]);
                self.length(&length.clone(), property.value.span);
            }
            if !content_placed.text.contains("{fill}") {
                let message = "a text of a given length needs `{fill}` where it may grow";
                self.report.add(Code::TextBad, content.span, message);
            }
        }
        Some(FixturePart::Text { name: name_placed, content: content_placed, bytes: length })
    }

    fn certificate(&mut self, node: &Node) -> Option<FixturePart> {
        self.plain(node, &["key"]);
        self.no_block(node);
        let name = self.one(node)?;
        self.file_name(name)?;
        let Some(key) = node.properties.iter().find(|property| property.name == "key") else {
            let message = "`certificate` needs a `key`";
            let example = "as in: certificate \"cert.pem\" key=\"key.pem\"";
            self.report.add(Code::PropertyMissing, node.span, message).note(example);
            return None;
        };
        self.file_name(&key.value)?;
        Some(FixturePart::Certificate { name: self.placed(name)?, key: self.placed(&key.value)? })
    }

    fn length(&mut self, length: &Placed, span: flatout_config::diagnostic::Span) {
        if crate::template::names(&length.text).next().is_none() && crate::fixture::parse_length(&length.text).is_none()
        {
            let message = format!("{:?} is not a length in bytes", length.text);
            let most = crate::fixture::FILE_BYTES_MAX;
            self.report.add(Code::NumberBounds, span, message).label(format!("0 to {most}"));
        }
    }
}
