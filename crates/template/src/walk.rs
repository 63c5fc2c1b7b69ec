//! Following the HTML through the page's branches and choosing an escaper for each insertion.

use super::Escape;
use super::context::{Context, HtmlState, Unclear};
use super::names::{AttributeValue, ElementContent, LOADS};
use super::script::{InsertionKind, Language};
use super::structure::ControlEvent;
use super::url::Url;
use flatout_config::Code;
use flatout_config::diagnostic::{Report, Span, Texts};

/// An element of a page, in the order of the page.
#[derive(Clone, Copy, Debug)]
pub(super) enum PageElement {
    /// Literal text.
    Text(Span),
    /// An insertion, with its number.
    Insert { span: Span, number: usize, raw: bool },
    /// A statement that affects the order in which the page's parts run.
    Event(ControlEvent, Span),
}

/// The escaper chosen for an insertion.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chosen {
    pub(super) escape: Option<Escape>,
    /// True if a line break must precede the insertion, because browsers drop one there.
    pub(super) line_break: bool,
}

/// Maximum number of bytes and insertions processed, including all iterations of loops, per byte of the page. Two
/// iterations of a loop are enough unless they lead to unknowns, and nested loops multiply the number of iterations.
const ROUNDS_MAX: usize = 64;

/// Maximum number of iterations of a loop until the context no longer changes. Each iteration that changes the context
/// makes it less precise, which can happen only a few times.
const LOOP_ROUNDS_MAX: usize = 8;

enum ControlFrame {
    If { entry: Context, exit: Option<Context>, has_else: bool },
    Loop { entry: Context, back: Option<Context>, start: usize, rounds: usize },
}

/// Processes the elements of a page; `insertions` is the number of insertions. Returns the result for each insertion.
pub(super) fn walk(steps: &[PageElement], insertions: usize, texts: &Texts, report: &mut Report) -> Vec<Chosen> {
    let mut walker =
        Walker { context: Context::new(), frames: Vec::new(), chosen: vec![Chosen::default(); insertions], report };
    let mut budget = ROUNDS_MAX * (texts_bytes(steps) + steps.len());
    let (mut at, mut last) = (0, Span::default());
    while let Some(step) = steps.get(at) {
        let cost = match step {
            PageElement::Text(span) => (span.end - span.start) as usize,
            _ => 1,
        };
        let span = match *step {
            PageElement::Text(span) | PageElement::Event(_, span) | PageElement::Insert { span, .. } => span,
        };
        let Some(rest) = budget.checked_sub(cost) else {
            walker.report.add(Code::PageTangled, span, "loops are nested too deeply to analyze the page");
            return walker.chosen;
        };
        budget = rest;
        last = Span::new(span.file, span.end as usize, span.end as usize);
        at += 1;
        match *step {
            PageElement::Text(span) => walker.text(span, texts.text(span.file)),
            PageElement::Insert { span, number, raw } => walker.insert(span, number, raw),
            PageElement::Event(event, span) => {
                if let Some(start) = walker.event(event, span, at) {
                    at = start;
                }
            }
        }
    }
    walker.end(last);
    walker.chosen
}

fn texts_bytes(steps: &[PageElement]) -> usize {
    let bytes = |step: &PageElement| match step {
        PageElement::Text(span) => (span.end - span.start) as usize,
        _ => 0,
    };
    steps.iter().map(bytes).sum()
}

struct Walker<'a> {
    context: Context,
    frames: Vec<ControlFrame>,
    chosen: Vec<Chosen>,
    report: &'a mut Report,
}

impl Walker<'_> {
    fn text(&mut self, span: Span, text: &str) {
        let text = text.get(span.start as usize..span.end as usize).unwrap_or_default();
        for (offset, character) in text.char_indices() {
            let start = span.start as usize + offset;
            let at = Span::new(span.file, start, start + character.len_utf8());
            if let Err(unclear) = self.context.advance(character, at)
                && !self.report.has_at(Code::MarkupUnclear, at)
            {
                let (message, note) = explain(unclear);
                self.report.add(Code::MarkupUnclear, at, message).note(note);
                if unclear == Unclear::Endless {
                    self.context = Context::new();
                }
            }
        }
    }

    fn event(&mut self, event: ControlEvent, span: Span, next: usize) -> Option<usize> {
        match event {
            ControlEvent::If => {
                self.frames.push(ControlFrame::If { entry: self.context.clone(), exit: None, has_else: false });
            }
            ControlEvent::Else { last } => {
                if let Some(ControlFrame::If { entry, exit, has_else }) = self.frames.pop() {
                    let joined = self.join(exit, span);
                    self.context = entry.clone();
                    self.frames.push(ControlFrame::If { entry, exit: Some(joined), has_else: has_else || last });
                }
            }
            ControlEvent::EndIf => {
                if let Some(ControlFrame::If { entry, exit, has_else }) = self.frames.pop() {
                    self.context = self.join(exit, span);
                    if !has_else {
                        self.context = self.join(Some(entry), span);
                    }
                }
            }
            ControlEvent::Loop => {
                self.frames.push(ControlFrame::Loop {
                    entry: self.context.clone(),
                    back: None,
                    start: next,
                    rounds: 0,
                });
            }
            ControlEvent::Jump => {
                let found = self.frames.iter().rposition(|frame| matches!(frame, ControlFrame::Loop { .. }));
                if let Some(ControlFrame::Loop { back, .. }) = found.and_then(|at| self.frames.get_mut(at)) {
                    let before = back.take();
                    let joined = self.join(before, span);
                    if let Some(ControlFrame::Loop { back, .. }) = found.and_then(|at| self.frames.get_mut(at)) {
                        *back = Some(joined);
                    }
                }
            }
            ControlEvent::EndLoop => {
                if let Some(ControlFrame::Loop { entry, back, start, rounds }) = self.frames.pop() {
                    let errors = self.report.count();
                    self.context = self.join(back, span);
                    self.context = self.join(Some(entry.clone()), span);
                    let changed = !self.context.is_same(&entry) && self.report.count() == errors;
                    if changed && rounds < LOOP_ROUNDS_MAX {
                        let entry = self.context.clone();
                        self.frames.push(ControlFrame::Loop { entry, back: None, start, rounds: rounds + 1 });
                        return Some(start);
                    }
                    if changed {
                        self.differ(&entry, span);
                    }
                }
            }
        }
        None
    }

    /// Joins the current context with the one at the end of another path. If they are incompatible, reports that and
    /// returns the other context.
    fn join(&mut self, other: Option<Context>, span: Span) -> Context {
        let Some(other) = other else { return self.context.clone() };
        if let Some(joined) = other.join(&self.context) {
            return joined;
        }
        self.differ(&other, span);
        other
    }

    fn differ(&mut self, other: &Context, span: Span) {
        if self.report.has_at(Code::BranchesDiffer, span) {
            return;
        }
        let (one, two) = (describe(other), describe(&self.context));
        let message = if one == two {
            format!("the branches that join here end in different contexts, both {one}")
        } else {
            format!("the branches that join here end in different contexts: one {one}, one {two}")
        };
        let (since, other_since) = (self.context.since, other.since);
        let draft = self.report.add(Code::BranchesDiffer, span, message);
        for (since, what) in [(other_since, one), (since, two)] {
            if since.end > since.start && since != span {
                draft.related(since, format!("{what} from here on"));
            }
        }
        draft.note("each branch and each iteration must close what it opens");
    }

    fn insert(&mut self, span: Span, number: usize, raw: bool) {
        let refusal = match choose(&self.context) {
            Ok(escape) => {
                let escape = if raw { Escape::Raw } else { escape };
                let line_break = self.context.first && !raw;
                if let Some(chosen) = self.chosen.get_mut(number) {
                    *chosen = Chosen { escape: Some(escape), line_break };
                }
                None
            }
            // A raw insertion needs no escaper, only a known context.
            Err(refusal) if raw && refusal.is_place => {
                if let Some(chosen) = self.chosen.get_mut(number) {
                    *chosen = Chosen { escape: Some(Escape::Raw), line_break: false };
                }
                None
            }
            Err(refusal) => Some(refusal),
        };
        self.insert_into();
        if let Some(refusal) = refusal
            && !self.report.has_at(refusal.code, span)
        {
            let draft = self.report.add(refusal.code, span, refusal.message);
            draft.label(refusal.label);
            for note in refusal.notes {
                draft.note(note);
            }
        }
    }

    /// Applies the effect of an insertion: the context stays the same, except that it now has content.
    fn insert_into(&mut self) {
        let context = &mut self.context;
        context.first = false;
        if matches!(context.state, HtmlState::Raw(..) | HtmlState::Value(_))
            && let Some(script) = &mut context.script
        {
            script.insert();
        }
        if matches!(context.state, HtmlState::Value(_)) {
            context.url = context.url.insert();
            context.tag.content_inserted |= context.tag.value == Some(AttributeValue::MetaContent);
        }
    }

    fn end(&mut self, last: Span) {
        if self.context.state == HtmlState::Text || !self.report.is_empty() {
            return;
        }
        let what = describe(&self.context);
        let since = self.context.since;
        self.report
            .add(Code::MarkupOpen, last, format!("the page ends {what}"))
            .related(since, "which begins here")
            .note("close it; or, if the file is only included, give it a name that begins with `_`");
    }
}

/// The reason why an insertion does not compile.
struct Refusal {
    code: Code,
    message: String,
    label: &'static str,
    notes: Vec<String>,
    /// True if the context itself is known, so that `<?raw ?>` is allowed.
    is_place: bool,
}

impl Refusal {
    fn new(code: Code, message: impl Into<String>, note: &str) -> Self {
        Self { code, message: message.into(), label: "", notes: vec![note.to_owned()], is_place: false }
    }

    fn vouched(self) -> Self {
        Self { is_place: true, ..self }
    }
}

/// Returns the escaper for a context.
fn choose(context: &Context) -> Result<Escape, Refusal> {
    if context.is_within_reference() {
        let note = "write a literal `&` as `&amp;`";
        return Err(Refusal::new(
            Code::InReference,
            "the `&` before the insertion would turn the inserted text into a character reference",
            note,
        ));
    }
    match context.state {
        HtmlState::TagOpen | HtmlState::EndTagOpen | HtmlState::TagName => {
            let note = "write tag names literally, and use <?lua if … ?> to choose between them";
            Err(Refusal::new(Code::InTag, "an insertion is not allowed in a tag name", note))
        }
        HtmlState::Gap | HtmlState::AfterValue => Err(between_attributes().vouched()),
        HtmlState::Separator(_) | HtmlState::AttributeName | HtmlState::AfterName => Err(between_attributes()),
        HtmlState::BeforeValue | HtmlState::Unquoted => {
            let message = "an attribute's value that contains an insertion must be in quotes";
            let name = shown(context.tag.attribute.bytes());
            Err(Refusal::new(Code::InUnquoted, message, &format!("as in: {name}=\"<?= … ?>\"")))
        }
        HtmlState::Value(_) if context.tag.is_end => {
            Err(Refusal::new(Code::InAttribute, "an end tag must not have attributes", "remove it"))
        }
        HtmlState::Value(_) => choose_value(context),
        HtmlState::Declaration(_) | HtmlState::Comment(_) | HtmlState::Bogus => {
            let note = "for a comment that visitors do not see, write <?lua --[[ … ]] ?>";
            Err(Refusal::new(Code::InComment, format!("an insertion is not allowed {}", describe(context)), note)
                .vouched())
        }
        HtmlState::Raw(..) if context.is_within_end() => {
            let note = "in a string of the script, write `<` as `\\x3c`";
            Err(Refusal::new(Code::InElement, "the `<` before the insertion may begin the element's end tag", note))
        }
        HtmlState::Text | HtmlState::Raw(ElementContent::Text, _) => Ok(Escape::Text),
        HtmlState::Raw(ElementContent::Script, _) => {
            if context.depth.is_unclear() {
                let note = "move the script out of <svg>, <math>, <noscript> or <select>";
                return Err(Refusal::new(
                    Code::InElement,
                    "browsers differ in how they interpret scripts in this element",
                    note,
                ));
            }
            choose_script(context)
        }
        HtmlState::Raw(ElementContent::Style, _) => Err(style().vouched()),
        HtmlState::Raw(..) => {
            let name = shown(context.tag.name.bytes());
            let message = format!("an insertion is not allowed in <{name}>");
            Err(Refusal::new(Code::InElement, message, "browsers do not parse its content as ordinary HTML"))
        }
    }
}

fn between_attributes() -> Refusal {
    let mut refusal = Refusal::new(
        Code::InTag,
        "an insertion is not allowed as an attribute name",
        "write the attribute's name literally, and its value in quotes: name=\"<?= … ?>\"",
    );
    refusal.notes.push("for an attribute without a value: <?lua if checked then ?> checked<?lua end ?>".to_owned());
    refusal
}

fn style() -> Refusal {
    let note = "choose between literal classes, or put the value into a data- attribute and read it with a script";
    Refusal::new(Code::InStyle, "an insertion is not allowed in a style sheet", note)
}

fn choose_value(context: &Context) -> Result<Escape, Refusal> {
    let name = shown(context.tag.attribute.bytes());
    let element = shown(context.tag.name.bytes());
    match context.tag.value {
        Some(AttributeValue::MetaContent) if context.tag.http_equiv => {
            let note = "redirect with response.redirect, and set other fields with response.header";
            Err(Refusal::new(
                Code::InAttribute,
                "after `http-equiv`, `content` changes how browsers read the page",
                note,
            ))
        }
        Some(AttributeValue::Plain | AttributeValue::MetaContent) => Ok(Escape::Attribute),
        Some(AttributeValue::Url) => match context.url {
            Url::Start => Ok(Escape::Url),
            Url::Foreign => {
                let note =
                    "a URL with an insertion must use the scheme http, https, mailto, tel, sms, geo or ftp, or none";
                let message = format!("the scheme of the URL in `{name}` does not allow an insertion");
                Err(Refusal::new(Code::InUrl, message, note).vouched())
            }
            Url::Unclear => Err(unclear_url(&name).vouched()),
            _ => Ok(Escape::UrlPart),
        },
        Some(AttributeValue::Resource) => match context.url {
            Url::Settled | Url::Slash(_) => Ok(Escape::UrlPart),
            Url::Unclear => Err(unclear_url(&name)),
            _ => {
                let message = format!("`{name}` of <{element}> loads code, so its beginning must be literal");
                let note = "begin with a path or with a host: \"/files/<?= … ?>\"";
                let mut refusal = Refusal::new(Code::InUrl, message, note).vouched();
                if element == "link" && context.tag.passive_link.is_none() {
                    refusal
                        .notes
                        .push("or write `rel` before `href`, if it is canonical, next, icon or the like".into());
                }
                Err(refusal)
            }
        },
        Some(AttributeValue::UrlList) => match context.url {
            Url::Settled | Url::Slash(_) | Url::Host(_) | Url::Scheme | Url::Name(..) => Ok(Escape::UrlPart),
            _ => {
                let message = format!("in `{name}`, the beginning of each URL must be literal");
                Err(Refusal::new(Code::InUrl, message, "as in: srcset=\"/images/<?= … ?> 2x\""))
            }
        },
        Some(AttributeValue::Handler) => choose_handler(context),
        Some(AttributeValue::Style) => Err(style().vouched()),
        Some(AttributeValue::ScriptType) => {
            let message =
                format!("`{name}` of <script> determines how browsers interpret the script, so it must be literal");
            Err(Refusal::new(Code::InAttribute, message, "use <?lua if … ?> to choose between literal values"))
        }
        Some(AttributeValue::LinkType) => Err(refused_value(&name, &element, LOADS)),
        Some(AttributeValue::Refused(why)) => Err(refused_value(&name, &element, why)),
        None => Err(between_attributes()),
    }
}

fn refused_value(name: &str, element: &str, why: &str) -> Refusal {
    let note = format!("put the value into a data- attribute, and read it with a script; `{name}` {why}");
    Refusal::new(Code::InAttribute, format!("an insertion is not allowed in `{name}` of <{element}>"), &note)
}

fn unclear_url(name: &str) -> Refusal {
    let note = "put the insertion into each branch, or compute the whole URL first";
    Refusal::new(Code::InEither, format!("the position of this insertion in the URL of `{name}` is ambiguous"), note)
}

fn script_place(context: &Context) -> Result<(InsertionKind, Language), Refusal> {
    let unknown =
        || Refusal::new(Code::InScript, "the script is too complex to analyze", "put the value into a data- attribute");
    let script = context.script.as_ref().ok_or_else(unknown)?;
    match script.place() {
        InsertionKind::None(why) => {
            let note = "write: const name = <?= … ?>; and use the name where it is needed";
            Err(Refusal::new(Code::InScript, format!("the insertion is {why}"), note).vouched())
        }
        place => Ok((place, script.language())),
    }
}

fn choose_script(context: &Context) -> Result<Escape, Refusal> {
    Ok(match script_place(context)? {
        (InsertionKind::Text, _) => Escape::ScriptText,
        (_, Language::Json) => Escape::Data,
        _ => Escape::Script,
    })
}

fn choose_handler(context: &Context) -> Result<Escape, Refusal> {
    Ok(match script_place(context)? {
        (InsertionKind::Text, _) => Escape::ScriptText,
        _ => Escape::Handler,
    })
}

/// Converts a name to a string for messages.
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Describes a context for messages.
fn describe(context: &Context) -> String {
    let name = shown(context.tag.name.bytes());
    match context.state {
        HtmlState::Text => "in text".to_owned(),
        HtmlState::TagOpen | HtmlState::EndTagOpen | HtmlState::TagName => "in a tag name".to_owned(),
        HtmlState::Gap
        | HtmlState::Separator(_)
        | HtmlState::AttributeName
        | HtmlState::AfterName
        | HtmlState::AfterValue => {
            format!("in the tag <{name}>")
        }
        HtmlState::BeforeValue | HtmlState::Value(_) | HtmlState::Unquoted => {
            format!("in the value of `{}`", shown(context.tag.attribute.bytes()))
        }
        HtmlState::Declaration(_) | HtmlState::Comment(_) => "in a comment".to_owned(),
        HtmlState::Bogus => "in a declaration".to_owned(),
        HtmlState::Raw(..) => format!("in <{name}>"),
    }
}

/// Returns the problem with ambiguous text and the suggested remedy.
fn explain(unclear: Unclear) -> (&'static str, &'static str) {
    match unclear {
        Unclear::Text => (
            "within <svg>, <math>, <select> and <noscript>, some browsers read `<` in this element as markup",
            "write it as `&lt;`, or move the element out",
        ),
        Unclear::Noscript => (
            "within <noscript>, browsers that run scripts interpret this `<` as the end of another element",
            "write it as `&lt;`",
        ),
        Unclear::ScriptComment => ("`<!--` in a script changes where the script ends", "write it as `<\\!--`"),
        Unclear::Cdata => {
            ("in HTML, `<![CDATA[` has a different meaning within <svg> than elsewhere", "write plain text")
        }
        Unclear::Endless => ("no tag can end <plaintext>", "use <pre>"),
        Unclear::SelfClosing => {
            ("within <svg>, this element ends here; elsewhere, it continues", "write an end tag: <script></script>")
        }
        Unclear::Separator => (
            "the preceding branches end with different names, which this text would continue",
            "end each branch with a space, or with a complete attribute",
        ),
        Unclear::Refresh => (
            "`http-equiv` after a `content` with an insertion would turn its value into an instruction",
            "write `content` without an insertion",
        ),
    }
}
