//! Parser, which turns tokens into segments.

use super::token::{Element, EsiToken, begins_tag, read_token};
use super::{EsiError, EsiLimits, EsiTemplate, Segment, attributes};

/// Parses a template up to the first error, which is in [`EsiTemplate::error`].
pub fn parse(page: &[u8], limits: &EsiLimits) -> EsiTemplate {
    let mut parser = Parser {
        page,
        limits,
        at: 0,
        open: vec![OpenElement::new(EsiBlock::Page, 0)],
        comment_depth: None,
        tags: 0,
        includes: 0,
        depth: 0,
    };
    let error = if page.len() > limits.page_bytes_max { Err(EsiError::PageTooLarge) } else { parser.parse() };
    parser.finish(error.err())
}

/// An open element.
struct OpenElement {
    kind: EsiBlock,
    /// Byte offset of the opening tag.
    start: usize,
    segments: Vec<Segment>,
    /// The `attempt` and `except` branches, if this element is a `try`.
    attempt: Option<Vec<Segment>>,
    except: Option<Vec<Segment>>,
}

impl OpenElement {
    const fn new(kind: EsiBlock, start: usize) -> Self {
        Self { kind, start, segments: Vec::new(), attempt: None, except: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EsiBlock {
    Page,
    Try,
    Attempt,
    Except,
    Remove,
}

struct Parser<'a> {
    page: &'a [u8],
    limits: &'a EsiLimits,
    at: usize,
    /// Stack of open elements. Never empty: the first represents the page.
    open: Vec<OpenElement>,
    /// Number of open elements at the start of the current `<!--esi` comment.
    comment_depth: Option<usize>,
    tags: usize,
    includes: usize,
    depth: usize,
}

impl Parser<'_> {
    fn parse(&mut self) -> Result<(), EsiError> {
        while self.at < self.page.len() {
            let rest = &self.page[self.at..];
            let Some(token) = read_token(rest, self.comment_depth.is_some(), self.limits) else {
                if begins_tag(rest) {
                    return Err(EsiError::TagUnclosed);
                }
                self.handle_text(rest.len());
                self.at = self.page.len();
                break;
            };
            let (token, used) = token?;
            if token == EsiToken::Text {
                self.handle_text(used);
            } else {
                self.tags += 1;
                if self.tags > self.limits.tags_max {
                    return Err(EsiError::TagsTooMany);
                }
                self.handle_tag(token)?;
            }
            self.at += used;
        }
        if self.open.len() > 1 || self.comment_depth.is_some() {
            return Err(EsiError::ElementUnclosed);
        }
        Ok(())
    }

    fn kind(&self) -> EsiBlock {
        self.open.last().map_or(EsiBlock::Page, |frame| frame.kind)
    }

    /// Adds text as a literal, except text in `remove` and text between the branches of a `try`, which is dropped.
    fn handle_text(&mut self, bytes: usize) {
        if !matches!(self.kind(), EsiBlock::Try | EsiBlock::Remove) {
            let (start, end) = (self.at, self.at + bytes);
            if let Some(frame) = self.open.last_mut() {
                push_literal(&mut frame.segments, start, end);
            }
        }
    }

    fn handle_tag(&mut self, token: EsiToken<'_>) -> Result<(), EsiError> {
        let kind = self.kind();
        match token {
            // Within `remove`, all tags but its closing tag are ignored.
            EsiToken::Close(Element::Remove) if kind == EsiBlock::Remove => {
                self.open.pop();
            }
            _ if kind == EsiBlock::Remove => {}
            EsiToken::Text => {}
            EsiToken::CommentOpen if self.comment_depth.is_none() => self.comment_depth = Some(self.open.len()),
            // The comment must not end within an element that began in it.
            EsiToken::CommentClose if self.comment_depth == Some(self.open.len()) => self.comment_depth = None,
            EsiToken::CommentOpen | EsiToken::CommentClose => return Err(EsiError::ElementMisplaced),
            EsiToken::Open { element, attributes, empty } => self.handle_open(kind, element, attributes, empty)?,
            EsiToken::Close(element) => self.handle_close(kind, element)?,
        }
        Ok(())
    }

    fn handle_open(&mut self, kind: EsiBlock, element: Element, text: &[u8], empty: bool) -> Result<(), EsiError> {
        match element {
            Element::Include if kind != EsiBlock::Try => {
                let include = attributes::read_include(text)?;
                self.includes += 1;
                if self.includes > self.limits.includes_max {
                    return Err(EsiError::IncludesTooMany);
                }
                if let Some(frame) = self.open.last_mut() {
                    frame.segments.push(Segment::Include(include));
                }
                return Ok(());
            }
            Element::Include => return Err(EsiError::ElementMisplaced),
            _ => attributes::check(text)?,
        }
        let opened = match element {
            Element::Include | Element::Comment => return Ok(()),
            Element::Remove => EsiBlock::Remove,
            Element::Try if kind != EsiBlock::Try => {
                self.depth += 1;
                if self.depth > self.limits.depth_max {
                    return Err(EsiError::TooDeep);
                }
                EsiBlock::Try
            }
            Element::Attempt if kind == EsiBlock::Try => EsiBlock::Attempt,
            Element::Except if kind == EsiBlock::Try => EsiBlock::Except,
            Element::Try | Element::Attempt | Element::Except => return Err(EsiError::ElementMisplaced),
        };
        self.open.push(OpenElement::new(opened, self.at));
        if empty { self.close() } else { Ok(()) }
    }

    fn handle_close(&mut self, kind: EsiBlock, element: Element) -> Result<(), EsiError> {
        match (element, kind) {
            // In `<esi:include …></esi:include>`, the element was handled at its opening tag.
            (Element::Include | Element::Comment, _) => Ok(()),
            (Element::Try, EsiBlock::Try)
            | (Element::Attempt, EsiBlock::Attempt)
            | (Element::Except, EsiBlock::Except) => self.close(),
            _ => Err(EsiError::ElementMisplaced),
        }
    }

    /// Closes the innermost element. Returns an error if a comment that began in the element has not ended.
    fn close(&mut self) -> Result<(), EsiError> {
        if self.comment_depth == Some(self.open.len()) {
            return Err(EsiError::ElementMisplaced);
        }
        let (Some(frame), Some(parent)) = (self.open.pop(), self.open.last_mut()) else { return Ok(()) };
        let branch = match frame.kind {
            EsiBlock::Attempt => &mut parent.attempt,
            EsiBlock::Except => &mut parent.except,
            EsiBlock::Try => {
                self.depth -= 1;
                let (Some(attempt), Some(except)) = (frame.attempt, frame.except) else {
                    // The whole element is invalid, so the unparsed remainder begins with it.
                    self.at = frame.start;
                    return Err(EsiError::TryIncomplete);
                };
                parent.segments.push(Segment::Try { attempt, except });
                return Ok(());
            }
            EsiBlock::Page | EsiBlock::Remove => return Ok(()),
        };
        if branch.replace(frame.segments).is_some() {
            return Err(EsiError::TryIncomplete);
        }
        Ok(())
    }

    /// Returns the template, whose last segment is the unparsed remainder if there was an error.
    fn finish(mut self, error: Option<EsiError>) -> EsiTemplate {
        // Incomplete elements are not parsed, so the remainder begins with the outermost open element.
        let rest = self.open.get(1).map_or(self.at, |frame| frame.start.min(self.at));
        let mut segments = std::mem::take(&mut self.open[0].segments);
        if error.is_some() {
            push_literal(&mut segments, rest, self.page.len());
        }
        EsiTemplate { includes: count_includes(&segments), segments, error: error.map(|error| (error, rest)) }
    }
}

fn push_literal(segments: &mut Vec<Segment>, start: usize, end: usize) {
    match segments.last_mut() {
        _ if start == end => {}
        Some(Segment::Literal(last)) if last.end == start => last.end = end,
        _ => segments.push(Segment::Literal(start..end)),
    }
}

/// Counts includes in both branches of each `try`. The recursion is bounded by [`EsiLimits::depth_max`].
pub(super) fn count_includes(segments: &[Segment]) -> usize {
    let count = |segment: &Segment| match segment {
        Segment::Literal(_) => 0,
        Segment::Include(_) => 1,
        Segment::Try { attempt, except } => count_includes(attempt) + count_includes(except),
    };
    segments.iter().map(count).sum()
}
