//! Reading a request's content for a page. The content is received once and kept, so that the page can read it again,
//! also in another form.

use super::Api;
use super::body::{BodyLimits, Form, check_urlencoded, parse_multipart, read_multipart, read_whole};
use super::budget::RequestBudget;
use super::form::{is_media_type, parse_form};
use super::multipart::parse_boundary;
use super::reads;
use super::refusal::{PageRefusal, RefusalCell};
use crate::exchange::{Beside, Exchange, Held};
use crate::sandbox::json::mark_object;
use crate::sandbox::wait::NativeError;
use flatout_handler::content::{Offers, RequestContent};
use mlua::{Lua, Table};
use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

/// The state of a request's content.
enum ContentState {
    /// The content has not been received; `None` if there is none.
    Unread(Option<RequestContent>),
    /// A suspended coroutine of the page is reading the content.
    Reading,
    Read(KeptContent),
    /// The content could not be received.
    Refused(PageRefusal),
}

impl Default for ContentState {
    fn default() -> Self {
        Self::Unread(None)
    }
}

/// Content that has been received, in the forms in which the page has read it.
#[derive(Clone, Default)]
struct KeptContent {
    /// The whole content; `None` if it was received as a multipart form, which may be too large to keep as a string.
    text: Option<Rc<[u8]>>,
    form: Option<Rc<ReadForm>>,
}

impl KeptContent {
    /// Number of bytes in memory.
    fn held_bytes(&self) -> usize {
        let form = self.form.as_ref().map_or(0, |form| form.form.held_bytes());
        self.text.as_ref().map_or(0, |text| text.len()) + form
    }
}

/// The content of a request, stored in its exchange.
#[derive(Clone, Default)]
struct ContentCache {
    state: Rc<RefCell<ContentState>>,
    /// The kept content's share of the budget and of the run's memory limit.
    held: Rc<RefCell<Option<(RequestBudget, Held)>>>,
}

/// A form, and the Luau table with its fields.
#[derive(Default)]
pub(super) struct ReadForm {
    /// The fields and files of a multipart form.
    pub(super) form: Form,
    /// A URL-encoded form, which is decoded whenever it is used, so that it is in memory only once.
    text: Option<Rc<[u8]>>,
    table: RefCell<Option<Table>>,
}

impl ReadForm {
    fn of_text(text: &Rc<[u8]>) -> Self {
        Self { text: Some(Rc::clone(text)), ..Self::default() }
    }

    /// Approximate memory use of the fields' values, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.form.held_bytes() + self.text.as_ref().map_or(0, |text| text.len())
    }

    /// Name and value of each field, in order.
    fn each(&self) -> impl Iterator<Item = (Cow<'_, [u8]>, Cow<'_, [u8]>)> {
        // The number of fields was checked when the form was read.
        let encoded = parse_form(self.text.as_deref().unwrap_or_default()).flatten();
        let parts = self.form.fields.iter().map(|(name, value)| (Cow::from(&name[..]), Cow::from(&value[..])));
        encoded.map(|(name, value)| (bytes(name), bytes(value))).chain(parts)
    }

    /// Returns a table with the first value of each name.
    pub(super) fn fields(&self, lua: &Lua) -> mlua::Result<Table> {
        if let Some(table) = &*self.table.borrow() {
            return Ok(table.clone());
        }
        let table = lua.create_table()?;
        for (name, value) in self.each() {
            let name = lua.create_string(name)?;
            if !table.contains_key(&name)? {
                table.raw_set(name, lua.create_string(value)?)?;
            }
        }
        mark_object(lua, &table)?;
        *self.table.borrow_mut() = Some(table.clone());
        Ok(table)
    }

    /// Returns a table with all values of a name.
    pub(super) fn all(&self, lua: &Lua, name: &[u8]) -> mlua::Result<Table> {
        let values = self.each().filter(|(known, _)| **known == *name);
        lua.create_sequence_from(values.map(|(_, value)| mlua::BString::from(&value[..])))
    }

    /// Returns the first value of a name.
    pub(super) fn first(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        self.each().find_map(|(known, value)| (*known == *name).then_some(value))
    }
}

fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// State shared by the functions that read the content of a request.
pub(super) struct ContentReading {
    api: Rc<Api>,
    limits: BodyLimits,
    pub(super) content_type: Vec<u8>,
    kept: ContentCache,
    share: RequestBudget,
    beside: Beside,
    pub(super) refused: RefusalCell,
}

/// Prepares reading the content of the current request, and takes the content from the connection unless it has already
/// been read. A response that depends on content is private to the sender, because caches do not include content in
/// their keys.
pub(super) fn begin(api: &Rc<Api>, exchange: &mut Exchange) -> Result<ContentReading, NativeError> {
    if exchange.offers.is_some() {
        reads::note_private(exchange)?;
    }
    let kept = exchange.slot::<ContentCache>().clone();
    if let ContentState::Unread(content @ None) = &mut *kept.state.borrow_mut() {
        *content = exchange.offers.as_ref().and_then(Offers::take_content);
    }
    Ok(ContentReading {
        api: Rc::clone(api),
        limits: api.settings.body,
        content_type: exchange.facts.field("content-type").unwrap_or_default().to_vec(),
        kept,
        share: api.settings.budget.share(exchange.facts.client().map(|client| client.ip())),
        beside: Beside::of(exchange),
        refused: RefusalCell::of(exchange),
    })
}

/// Reads the request's form, which is empty if there is no content.
pub(super) async fn read_form(mut reading: ContentReading) -> Result<Rc<ReadForm>, NativeError> {
    let state = reading.kept.state.replace(ContentState::Reading);
    let (form, text) = match state {
        ContentState::Reading => return Err(READING.into()),
        ContentState::Refused(refusal) => return reading.refuse(refusal),
        ContentState::Read(KeptContent { form: Some(form), text }) => (Ok(form), text),
        ContentState::Read(KeptContent { form: None, text }) => {
            let form = reading.parse_kept(text.as_ref());
            (form, text)
        }
        ContentState::Unread(None) => (Ok(Rc::default()), Some(Rc::default())),
        ContentState::Unread(Some(content)) if is_urlencoded(&reading.content_type) => {
            match read_whole(content, reading.limits, &mut reading.share).await {
                Ok(text) => {
                    let text = Rc::from(text);
                    (parse_text(&text), Some(text))
                }
                Err(refusal) => return reading.refuse(refusal),
            }
        }
        ContentState::Unread(Some(content)) => match parse_boundary(&reading.content_type) {
            // The page may still read the content as text.
            None => {
                reading.kept.state.replace(ContentState::Unread(Some(content)));
                return Err(reading.refused.refuse(PageRefusal::ContentType));
            }
            Some(Err(_)) => return reading.refuse(PageRefusal::FormMalformed),
            Some(Ok(boundary)) => {
                let folder = &reading.api.settings.spool_folder;
                match read_multipart(content, &boundary, reading.limits, folder, &mut reading.share).await {
                    Ok(form) => (Ok(Rc::new(ReadForm { form, ..ReadForm::default() })), None),
                    Err(refusal) => return reading.refuse(refusal),
                }
            }
        },
    };
    let refused = reading.refused.clone();
    reading.keep(KeptContent { text, form: form.as_ref().ok().cloned() });
    form.map_err(|refusal| refused.refuse(refusal))
}

/// Reads the content as a string.
pub(super) async fn read_text(mut reading: ContentReading) -> Result<Rc<[u8]>, NativeError> {
    let state = reading.kept.state.replace(ContentState::Reading);
    let kept = match state {
        ContentState::Reading => return Err(READING.into()),
        ContentState::Refused(refusal) => return reading.refuse(refusal),
        ContentState::Read(kept) => kept,
        ContentState::Unread(None) => KeptContent { text: Some(Rc::default()), form: None },
        ContentState::Unread(Some(content)) => match read_whole(content, reading.limits, &mut reading.share).await {
            Ok(text) => KeptContent { text: Some(Rc::from(text)), form: None },
            Err(refusal) => return reading.refuse(refusal),
        },
    };
    let text = kept.text.clone();
    reading.keep(kept);
    text.ok_or_else(|| {
        "a multipart form that was read with request.form or request.files is not available as text: call request.text \
         first"
            .into()
    })
}

/// The error if another coroutine of the page is reading the content.
const READING: &str = "the content is already being read";

impl ContentReading {
    /// Keeps content for later calls.
    fn keep(self, content: KeptContent) {
        let bytes = content.held_bytes();
        let before = self.kept.state.replace(ContentState::Read(content));
        debug_assert!(matches!(before, ContentState::Reading));
        let mut held = self.kept.held.borrow_mut();
        let share = held.take().map_or(self.share, |(share, _)| share);
        *held = Some((share, self.beside.hold(bytes)));
    }

    /// Records that the content could not be received, and returns the error for the page.
    fn refuse<T>(self, refusal: PageRefusal) -> Result<T, NativeError> {
        self.kept.state.replace(ContentState::Refused(refusal));
        self.kept.held.replace(None);
        Err(self.refused.refuse(refusal))
    }

    /// Parses content that was read as a string.
    fn parse_kept(&self, text: Option<&Rc<[u8]>>) -> Result<Rc<ReadForm>, PageRefusal> {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(Rc::default()) };
        if is_urlencoded(&self.content_type) {
            return parse_text(text);
        }
        let boundary = parse_boundary(&self.content_type).ok_or(PageRefusal::ContentType)?;
        let boundary = boundary.map_err(|_| PageRefusal::FormMalformed)?;
        let folder = &self.api.settings.spool_folder;
        let mut held = self.kept.held.borrow_mut();
        let (share, _) = held.as_mut().ok_or(PageRefusal::ContentBudget)?;
        let form = parse_multipart(text, &boundary, self.limits, folder, share);
        if form.is_err() {
            // Less than before, so the budget cannot refuse it.
            let _ = share.set(text.len());
        }
        form.map(|form| Rc::new(ReadForm { form, ..ReadForm::default() }))
    }
}

fn is_urlencoded(content_type: &[u8]) -> bool {
    is_media_type(content_type, "application/x-www-form-urlencoded")
}

fn parse_text(text: &Rc<[u8]>) -> Result<Rc<ReadForm>, PageRefusal> {
    check_urlencoded(text).map(|()| Rc::new(ReadForm::of_text(text)))
}

/// Returns the form of the current request, if it has been read.
pub(super) fn known_form(exchange: &mut Exchange) -> Option<Rc<ReadForm>> {
    match &*exchange.slot_if::<ContentCache>()?.state.borrow() {
        ContentState::Read(KeptContent { form, .. }) => form.clone(),
        _ => None,
    }
}
