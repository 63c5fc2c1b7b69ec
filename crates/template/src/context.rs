//! The HTML context of a position in a page, as determined by a browser's parser.
//!
//! This is the HTML tokenizer (section 13.2.5), working byte by byte, and the part of tree construction that affects
//! tokenizing: which elements contain text instead of markup. Each literal byte advances the context. An insertion does
//! not, because its escaper is chosen so that it cannot change the context.
//!
//! Where the context depends on more than the literal text, nothing is guessed. Branches of code are joined
//! ([`super::join`]). Markup that browsers parse in two ways (inside SVG, MathML, `<noscript>` and `<select>`) is
//! accepted as long as both ways agree, which they do unless a `<` appears where one of them sees text. An insertion in
//! an unknown context does not compile.

use super::names::{AttributeValue, ElementContent, content_of, is_integration_point, is_passive_link, value_of};
use super::reference::{Resolved, resolve};
use super::script::{Language, Script};
use super::url::Url;
use flatout_config::diagnostic::Span;

/// Stands for every byte that is not ASCII.
const OTHER: u8 = 0xff;

/// Maximum number of bytes stored of a name. Names that are significant here are shorter.
const NAME_BYTES: usize = 32;

/// Maximum number of bytes stored of an attribute's value that determines the language of a script or the type of a link.
const KEPT_BYTES: usize = 48;

/// The name of an element or an attribute, in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Name(Vec<u8>);

impl Name {
    fn push(&mut self, byte: u8, bytes_max: usize) {
        if self.0.len() < bytes_max {
            self.0.push(byte.to_ascii_lowercase());
        } else if let Some(first) = self.0.first_mut() {
            // The name is too long for a known name, whatever it begins with.
            *first = b'?';
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The tokenizer's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HtmlState {
    Text,
    /// After `<`.
    TagOpen,
    /// After `</`.
    EndTagOpen,
    TagName,
    /// Where an attribute may start.
    Gap,
    /// Branches ended in different names, or one in a name and one in a gap. The next byte must end the name and must
    /// not be `=`. True if white space has already ended the name.
    Separator(bool),
    AttributeName,
    AfterName,
    /// After `=`.
    BeforeValue,
    /// Inside a value with this quote.
    Value(u8),
    Unquoted,
    AfterValue,
    /// After `<!` and this number of hyphens, at most one.
    Declaration(u8),
    Comment(Dashes),
    /// In a declaration or bogus comment, up to the next `>`.
    Bogus,
    /// The content of an element without markup, and the number of bytes of its end tag that have been matched.
    Raw(ElementContent, u8),
}

/// The preceding characters in a comment (HTML, sections 13.2.5.43 to 13.2.5.52).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dashes {
    /// The beginning of the comment: `<!-->` is a complete comment.
    Start,
    /// The beginning of the comment and one hyphen: `<!--->` is a complete comment, too.
    StartOne,
    None,
    One,
    Two,
    /// The characters `--!`.
    Mark,
}

impl Dashes {
    /// Returns the state after one more byte, or `None` if the byte ends the comment.
    fn advance(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Start | Self::StartOne | Self::Two | Self::Mark, b'>') => return None,
            (Self::Start, b'-') => Self::StartOne,
            (Self::None | Self::Mark, b'-') => Self::One,
            (Self::StartOne | Self::One | Self::Two, b'-') => Self::Two,
            (Self::Two, b'!') => Self::Mark,
            _ => Self::None,
        })
    }
}

/// The current tag, or the element whose content is being read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) name: Name,
    pub(super) is_end: bool,
    /// True if the preceding byte is a `/`.
    pub(super) slash: bool,
    pub(super) attribute: Name,
    pub(super) value: Option<AttributeValue>,
    /// The value read so far that determines the language of a script or the type of a link.
    pub(super) kept: Name,
    /// True if the first `rel` of this `<link>` has only passive types; `None` if the tag has no `rel` so far. Browsers
    /// ignore all but the first.
    pub(super) passive_link: Option<bool>,
    /// The language of a script element. If `type` and `language` disagree, this is [`Language::Other`].
    pub(super) language: Option<Language>,
    /// True if `content` of this `<meta>` contains an insertion.
    pub(super) content_inserted: bool,
    /// True if the tag has `http-equiv`.
    pub(super) http_equiv: bool,
}

/// Nesting depth in elements whose content browsers parse in two ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Depth {
    svg: u16,
    math: u16,
    noscript: u16,
    select: u16,
    /// True if the rest of the page counts as foreign content.
    lasting: bool,
}

impl Depth {
    /// Returns whether an element that normally contains text may contain markup here.
    pub(super) fn is_unclear(self) -> bool {
        self.is_foreign() || self.noscript > 0 || self.select > 0
    }

    pub(super) fn is_foreign(self) -> bool {
        self.lasting || self.svg > 0 || self.math > 0
    }
}

/// The context of a position in a page.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) state: HtmlState,
    /// Where the state began.
    pub(super) since: Span,
    pub(super) tag: Tag,
    pub(super) depth: Depth,
    /// The incomplete character reference before the position, including its `&`; empty if there is none.
    pub(super) reference: Name,
    pub(super) script: Option<Script>,
    pub(super) url: Url,
    /// True directly after the start tag of an element that drops a line break there.
    pub(super) first: bool,
    /// Number of matched bytes of `<!--` in the content of a script.
    pub(super) comment: u8,
}

/// The reason why literal text is ambiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unclear {
    /// `<` in the text of an element, which other parsers treat as markup.
    Text,
    /// `<` in `<noscript>`, where a browser that runs scripts sees text.
    Noscript,
    /// `<!--` in a script.
    ScriptComment,
    /// `<![CDATA[` in SVG or MathML.
    Cdata,
    /// The element `<plaintext>`, which never ends.
    Endless,
    /// A self-closing `<script/>` in SVG or similar elements.
    SelfClosing,
    /// Text directly after two branches, of which one ends in a name.
    Separator,
    /// `http-equiv` after a `content` that contains an insertion.
    Refresh,
}

impl Context {
    pub(super) fn new() -> Self {
        Self {
            state: HtmlState::Text,
            since: Span::default(),
            tag: Tag::default(),
            depth: Depth::default(),
            reference: Name::default(),
            script: None,
            url: Url::Start,
            first: false,
            comment: 0,
        }
    }

    /// Returns whether both contexts are equal, except for where their states began.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.state == other.state
            && self.tag == other.tag
            && self.depth == other.depth
            && self.reference == other.reference
            && self.script == other.script
            && self.url == other.url
            && self.first == other.first
            && self.comment == other.comment
    }

    /// Returns whether character references are decoded in this content or attribute value.
    fn is_decoded(&self) -> bool {
        matches!(
            self.state,
            HtmlState::Text | HtmlState::Value(_) | HtmlState::Unquoted | HtmlState::Raw(ElementContent::Text, _)
        )
    }

    /// Advances by a literal character, which is at `at`.
    pub(super) fn advance(&mut self, character: char, at: Span) -> Result<(), Unclear> {
        // Only ASCII characters are significant in HTML.
        let byte = if character.is_ascii() { character as u8 } else { OTHER };
        // A browser drops a line break here; anything else is content.
        self.first = false;
        if self.is_decoded() {
            self.refer(byte, character);
        }
        // If scripts are enabled, all of `<noscript>` is text up to its end tag. Other parsers must find the end tag at
        // the same place.
        let in_markup = !matches!(self.state, HtmlState::Text | HtmlState::TagOpen | HtmlState::Raw(..));
        if byte == b'<' && self.depth.noscript > 0 && in_markup {
            return Err(Unclear::Noscript);
        }
        match self.state {
            HtmlState::Text => {
                if byte == b'<' {
                    self.enter(HtmlState::TagOpen, at);
                    self.reference = Name::default();
                }
            }
            HtmlState::TagOpen => match byte {
                b'!' => self.state = HtmlState::Declaration(0),
                b'/' => self.state = HtmlState::EndTagOpen,
                b'?' => self.state = HtmlState::Bogus,
                _ if byte.is_ascii_alphabetic() => self.begin_tag(byte, false),
                // Not a tag (section 13.2.5.6).
                _ => {
                    self.state = HtmlState::Text;
                    return self.advance(character, at);
                }
            },
            HtmlState::EndTagOpen => match byte {
                b'>' => self.state = HtmlState::Text,
                _ if byte.is_ascii_alphabetic() => self.begin_tag(byte, true),
                _ => self.state = HtmlState::Bogus,
            },
            HtmlState::TagName => match byte {
                b'/' | b'>' => return self.gap(byte, at),
                _ if is_space(byte) => self.state = HtmlState::Gap,
                _ => self.tag.name.push(byte, NAME_BYTES),
            },
            HtmlState::Gap | HtmlState::AfterValue => return self.gap(byte, at),
            HtmlState::Separator(_) if is_space(byte) => self.state = HtmlState::Separator(true),
            HtmlState::Separator(spaced) => {
                let separates = matches!(byte, b'/' | b'>') || (spaced && byte != b'=');
                return self.gap(byte, at).and(if separates { Ok(()) } else { Err(Unclear::Separator) });
            }
            HtmlState::AttributeName => match byte {
                b'/' | b'>' => return self.gap(byte, at),
                b'=' => return self.end_name(),
                _ if is_space(byte) => self.state = HtmlState::AfterName,
                _ => self.tag.attribute.push(byte, NAME_BYTES),
            },
            HtmlState::AfterName => match byte {
                b'=' => return self.end_name(),
                _ => return self.gap(byte, at),
            },
            HtmlState::BeforeValue => match byte {
                b'"' | b'\'' => self.enter(HtmlState::Value(byte), at),
                b'>' => {
                    self.end_value();
                    return self.gap(byte, at);
                }
                _ if is_space(byte) => {}
                _ => {
                    self.enter(HtmlState::Unquoted, at);
                    return self.advance(character, at);
                }
            },
            HtmlState::Value(quote) if byte == quote => {
                self.state = HtmlState::AfterValue;
                self.end_value();
                return Ok(());
            }
            HtmlState::Unquoted if byte == b'>' || is_space(byte) => {
                self.state = HtmlState::Gap;
                self.end_value();
                return self.gap(byte, at);
            }
            HtmlState::Value(_) | HtmlState::Unquoted => {
                if matches!(self.tag.value, Some(AttributeValue::ScriptType | AttributeValue::LinkType)) {
                    self.tag.kept.push(byte, KEPT_BYTES);
                }
            }
            HtmlState::Declaration(hyphens) => match byte {
                b'-' if hyphens == 1 => self.state = HtmlState::Comment(Dashes::Start),
                b'-' => self.state = HtmlState::Declaration(1),
                b'>' => self.state = HtmlState::Text,
                b'[' if self.depth.is_foreign() => {
                    self.state = HtmlState::Bogus;
                    return Err(Unclear::Cdata);
                }
                _ => self.state = HtmlState::Bogus,
            },
            HtmlState::Comment(dashes) => self.state = dashes.advance(byte).map_or(HtmlState::Text, HtmlState::Comment),
            HtmlState::Bogus => {
                if byte == b'>' {
                    self.state = HtmlState::Text;
                }
            }
            HtmlState::Raw(content, read) => return self.raw(content, read, (byte, character), at),
        }
        Ok(())
    }

    fn enter(&mut self, state: HtmlState, at: Span) {
        self.state = state;
        self.since = at;
    }

    fn begin_tag(&mut self, byte: u8, is_end: bool) {
        self.tag = Tag { is_end, ..Tag::default() };
        self.tag.name.push(byte, NAME_BYTES);
        self.state = HtmlState::TagName;
    }

    /// Handles a byte between attributes, or at the end of a name or a value.
    fn gap(&mut self, byte: u8, at: Span) -> Result<(), Unclear> {
        match byte {
            b'>' => return self.end_tag(at),
            b'/' => {
                self.tag.slash = true;
                self.state = HtmlState::Gap;
            }
            _ if is_space(byte) => {
                self.tag.slash = false;
                // A name that is followed by white space may still be followed by its `=`.
                if self.state != HtmlState::AfterName {
                    self.state = HtmlState::Gap;
                }
            }
            _ => {
                self.tag.slash = false;
                self.tag.attribute = Name::default();
                self.tag.value = None;
                self.tag.attribute.push(byte, NAME_BYTES);
                self.state = HtmlState::AttributeName;
            }
        }
        Ok(())
    }

    /// Handles `=` after an attribute's name.
    fn end_name(&mut self) -> Result<(), Unclear> {
        let value = match value_of(self.tag.name.bytes(), self.tag.attribute.bytes()) {
            AttributeValue::Resource if self.tag.passive_link == Some(true) => AttributeValue::Url,
            value => value,
        };
        self.state = HtmlState::BeforeValue;
        self.tag.value = Some(value);
        self.tag.kept = Name::default();
        self.reference = Name::default();
        self.url = Url::Start;
        self.script = (value == AttributeValue::Handler).then(|| Script::new(Language::JavaScript));
        if self.tag.attribute.bytes() == b"http-equiv" {
            self.tag.http_equiv = true;
            if self.tag.content_inserted {
                return Err(Unclear::Refresh);
            }
        }
        Ok(())
    }

    fn end_value(&mut self) {
        if self.tag.value == Some(AttributeValue::ScriptType) {
            let kept = self.tag.kept.bytes();
            let language = if self.tag.attribute.bytes() == b"language" && !kept.is_empty() {
                Language::of_type(&[b"text/", kept].concat())
            } else {
                Language::of_type(kept)
            };
            let mismatched = self.tag.language.filter(|known| *known != language).map(|_| Language::Other);
            self.tag.language = Some(mismatched.unwrap_or(language));
        }
        // An attribute with a namespace prefix is not `rel`.
        if self.tag.value == Some(AttributeValue::LinkType) && self.tag.attribute.bytes() == b"rel" {
            self.tag.passive_link.get_or_insert(is_passive_link(self.tag.kept.bytes()));
        }
        self.script = None;
        self.url = Url::Start;
        self.reference = Name::default();
        self.tag.value = None;
        self.tag.attribute = Name::default();
    }

    /// Handles `>`, after which the content of the element follows.
    fn end_tag(&mut self, at: Span) -> Result<(), Unclear> {
        let tag = std::mem::take(&mut self.tag);
        let name = tag.name.bytes();
        self.reference = Name::default();
        self.enter(HtmlState::Text, at);
        let step = |depth: &mut u16| {
            *depth = if tag.is_end { depth.saturating_sub(1) } else { depth.saturating_add(u16::from(!tag.slash)) };
        };
        match name {
            b"svg" => step(&mut self.depth.svg),
            b"math" => step(&mut self.depth.math),
            // A slash does not close an HTML element.
            b"noscript" => self.depth.noscript = u16::from(!tag.is_end),
            b"select" => self.depth.select = u16::from(!tag.is_end),
            b"frameset" => self.depth.lasting = true,
            _ if self.depth.is_foreign() && is_integration_point(name) => self.depth.lasting = true,
            _ => {}
        }
        if tag.is_end {
            return Ok(());
        }
        self.first = matches!(name, b"textarea" | b"pre" | b"listing");
        let content = content_of(name);
        if content == ElementContent::Markup {
            return Ok(());
        }
        let closes_itself = tag.slash && self.depth.is_unclear();
        if content == ElementContent::Script {
            self.script = Some(Script::new(tag.language.unwrap_or(Language::JavaScript)));
        }
        self.comment = 0;
        self.tag = Tag { name: tag.name, ..Tag::default() };
        self.state = HtmlState::Raw(content, 0);
        match content {
            ElementContent::Endless => Err(Unclear::Endless),
            _ if closes_itself => Err(Unclear::SelfClosing),
            _ => Ok(()),
        }
    }

    /// Handles a byte in the content of an element without markup, up to its end tag (sections 13.2.5.9 to 13.2.5.17).
    fn raw(
        &mut self,
        content: ElementContent,
        read: u8,
        (byte, character): (u8, char),
        at: Span,
    ) -> Result<(), Unclear> {
        let name = self.tag.name.bytes();
        let (next, ends) = match usize::from(read) {
            1 if byte == b'/' => (2, false),
            0 | 1 => (u8::from(byte == b'<'), false),
            read if name.get(read - 2) == Some(&byte.to_ascii_lowercase()) => (read as u8 + 1, false),
            read if read - 2 == name.len() && (is_space(byte) || matches!(byte, b'/' | b'>')) => (0, true),
            _ => (u8::from(byte == b'<'), false),
        };
        if ends {
            self.script = None;
            self.reference = Name::default();
            let name = self.tag.name.clone();
            self.tag = Tag { name, is_end: true, ..Tag::default() };
            self.state = HtmlState::Gap;
            return self.gap(byte, at);
        }
        self.state = HtmlState::Raw(content, next);
        if let Some(script) = &mut self.script {
            script.advance(character);
        }
        let comment = self.comment;
        self.comment = match (comment, byte) {
            (_, b'<') => 1,
            (1, b'!') => 2,
            (2, b'-') => 3,
            _ => 0,
        };
        if content == ElementContent::Script && comment == 3 && byte == b'-' {
            return Err(Unclear::ScriptComment);
        }
        // This `<` does not begin the end tag of the element.
        if read > 0 && next <= 1 && self.depth.is_unclear() {
            return Err(Unclear::Text);
        }
        Ok(())
    }

    /// Follows character references in text and attribute values. The decoded character matters for URLs and scripts,
    /// and an incomplete reference must not extend into an insertion.
    fn refer(&mut self, byte: u8, character: char) {
        let is_value = matches!(self.state, HtmlState::Value(quote) if byte != quote)
            || (self.state == HtmlState::Unquoted && byte != b'>' && !is_space(byte));
        if byte == b'&' || self.reference.bytes().is_empty() {
            if is_value && !self.reference.bytes().is_empty() {
                self.settle(byte);
            }
            self.reference = Name::default();
            if byte == b'&' {
                self.reference.0.push(b'&');
            } else if is_value {
                self.mean(character);
            }
            return;
        }
        if byte.is_ascii_alphanumeric() || byte == b'#' {
            // The longest reference to a character that matters here is much shorter.
            if self.reference.0.len() < NAME_BYTES {
                self.reference.0.push(byte);
            }
            return;
        }
        if matches!(self.state, HtmlState::Value(_) | HtmlState::Unquoted) {
            self.settle(byte);
            if byte != b';' && is_value {
                self.mean(character);
            }
        }
        self.reference = Name::default();
    }

    /// Handles the end of a character reference, before `byte`.
    fn settle(&mut self, byte: u8) {
        let reference = std::mem::take(&mut self.reference.0);
        let name = reference.get(1..).unwrap_or_default();
        let closed = byte == b';';
        match resolve(name, closed, byte) {
            Resolved::Character(character) => self.mean(character),
            Resolved::Literal => {
                for byte in reference.iter().copied().chain(closed.then_some(b';')) {
                    self.mean(char::from(byte));
                }
            }
            Resolved::Unclear => {
                if let Some(script) = &mut self.script {
                    script.give_up();
                }
                if self.url != Url::Settled {
                    self.url = Url::Unclear;
                }
            }
        }
    }

    /// Handles a decoded character of an attribute's value.
    fn mean(&mut self, character: char) {
        match self.tag.value {
            Some(AttributeValue::Handler) => {
                if let Some(script) = &mut self.script {
                    script.advance(character);
                }
            }
            Some(AttributeValue::Url | AttributeValue::Resource) => self.url = self.url.advance(character),
            // Commas and white space separate URLs. What follows white space is a descriptor.
            Some(AttributeValue::UrlList) => {
                self.url = match character {
                    ',' => Url::Start,
                    ' ' | '\t' | '\n' | '\r' if self.url != Url::Start => Url::Unclear,
                    _ => self.url.advance(character),
                }
            }
            _ => {}
        }
    }

    /// Returns whether the position is inside a character reference.
    pub(super) fn is_within_reference(&self) -> bool {
        self.is_decoded() && !self.reference.bytes().is_empty()
    }

    /// Returns whether the position may be inside the end tag of the current element.
    pub(super) fn is_within_end(&self) -> bool {
        matches!(self.state, HtmlState::Raw(_, read) if read > 0)
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0c)
}
